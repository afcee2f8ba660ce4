//! Every device fulfils the contract: comparison with a plain model under random operations.

use std::sync::Arc;

use device::energy::Meter;
use device::energy::profile::{DeviceSpec, Profile, SHIPPED};
use device::model::disk::Disk;
use device::model::flash::Flash;
use device::model::{self, Pace, Remap, Simulated};
use device::{
    BLOCK, BlockDevice, Counting, DeviceError, Faulty, FileDevice, Fingerprint, Lba, Memory, Overlay, PowerCut,
    Retained, Tag, Time, VirtualClock,
};
use proptest::prelude::*;

/// More than one memory chunk, but not a multiple of it.
const BLOCKS: u64 = 41;
const TAG: Tag = Tag { cause: 3, owner: 9 };

#[derive(Debug, Clone)]
enum Step {
    Read { at: u64, blocks: u64 },
    Write { at: u64, blocks: u64, stamp: u8 },
    Gather { at: u64, parts: Vec<u64>, stamp: u8, owned: bool },
    Discard { at: u64, blocks: u64 },
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || 0..BLOCKS + 2;
    let blocks = || prop_oneof![0..4u64, 0..BLOCKS + 2];
    let step = prop_oneof![
        3 => (at(), blocks()).prop_map(|(at, blocks)| Step::Read { at, blocks }),
        4 => (at(), blocks(), 1..=255u8).prop_map(|(at, blocks, stamp)| Step::Write { at, blocks, stamp }),
        2 => (at(), prop::collection::vec(0..5u64, 0..5), 1..=255u8, any::<bool>())
            .prop_map(|(at, parts, stamp, owned)| Step::Gather { at, parts, stamp, owned }),
        2 => (at(), blocks()).prop_map(|(at, blocks)| Step::Discard { at, blocks }),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..60)
}

/// The contents of a block after a write with `stamp`: different in every sector.
fn pattern(block: u64, stamp: u8) -> Vec<u8> {
    if stamp == 0 {
        return vec![0; BLOCK];
    }
    (0..BLOCK).map(|i| stamp ^ (block as u8).wrapping_mul(31) ^ (i / 512) as u8).collect()
}

/// The possible stamps of a block: one if written; all earlier ones and zeroes if discarded.
struct Model(Vec<(Vec<u8>, bool)>);

impl Model {
    fn new() -> Self {
        Self((0..BLOCKS).map(|_| (vec![0], false)).collect())
    }

    fn fits(&self, at: u64, blocks: u64) -> bool {
        at + blocks <= BLOCKS
    }

    fn write(&mut self, at: u64, blocks: u64, stamp: u8) {
        for (held, discarded) in &mut self.0[at as usize..(at + blocks) as usize] {
            held.push(stamp);
            *discarded = false;
        }
    }

    fn allows(&self, block: u64, bytes: &[u8]) -> bool {
        let (held, discarded) = &self.0[block as usize];
        match discarded {
            false => bytes == pattern(block, *held.last().unwrap()),
            true => held.iter().any(|stamp| bytes == pattern(block, *stamp)),
        }
    }
}

fn data(at: u64, blocks: u64, stamp: u8) -> Vec<u8> {
    (at..at + blocks).flat_map(|b| pattern(b, stamp)).collect()
}

fn agrees(result: &device::Result<()>, fits: bool) -> bool {
    matches!((result, fits), (Ok(()), true) | (Err(DeviceError::OutOfRange { .. }), false))
}

fn keeps_the_contract(device: &impl BlockDevice, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model = Model::new();
    prop_assert_eq!(device.blocks(), BLOCKS);
    prop_assert!(!device.read_only());
    for step in steps {
        match step {
            Step::Read { at, blocks } => {
                let mut buf = vec![0xEE; *blocks as usize * BLOCK];
                let result = device.read(Lba(*at), &mut buf, TAG);
                prop_assert!(agrees(&result, model.fits(*at, *blocks)), "{:?}: {:?}", step, result);
                if result.is_ok() {
                    for (block, bytes) in (*at..).zip(buf.chunks(BLOCK)) {
                        prop_assert!(model.allows(block, bytes), "{:?}: block {} is wrong", step, block);
                    }
                }
            }
            Step::Write { at, blocks, stamp } => {
                let result = device.write(Lba(*at), &data(*at, *blocks, *stamp), TAG);
                prop_assert!(agrees(&result, model.fits(*at, *blocks)), "{:?}: {:?}", step, result);
                if result.is_ok() {
                    model.write(*at, *blocks, *stamp);
                }
            }
            Step::Gather { at, parts, stamp, owned } => {
                let blocks = parts.iter().sum();
                let whole = data(*at, blocks, *stamp);
                let mut rest = &whole[..];
                let mut slices = Vec::new();
                for part in parts {
                    let (head, tail) = rest.split_at(*part as usize * BLOCK);
                    slices.push(head);
                    rest = tail;
                }
                let result = match owned {
                    false => device.write_gather(Lba(*at), &slices, TAG),
                    true => {
                        let owners: Vec<u64> = (0..blocks).collect();
                        // Leftovers of an earlier request in the buffer must not matter.
                        let mut room = vec![0xEE; 3 * BLOCK];
                        device.write_parts_for(Lba(*at), &slices, (&owners, TAG.cause), &mut room)
                    }
                };
                prop_assert!(agrees(&result, model.fits(*at, blocks)), "{:?}: {:?}", step, result);
                if result.is_ok() {
                    model.write(*at, blocks, *stamp);
                }
            }
            Step::Discard { at, blocks } => {
                let result = device.discard(Lba(*at), *blocks, TAG);
                prop_assert!(agrees(&result, model.fits(*at, *blocks)), "{:?}: {:?}", step, result);
                if result.is_ok() {
                    for (_, discarded) in &mut model.0[*at as usize..(*at + *blocks) as usize] {
                        *discarded = true;
                    }
                }
            }
            Step::Flush => device.flush(TAG).unwrap(),
        }
    }
    let mut all = vec![0xEE; BLOCKS as usize * BLOCK];
    device.read(Lba(0), &mut all, TAG).unwrap();
    for (block, bytes) in (0..).zip(all.chunks(BLOCK)) {
        prop_assert!(model.allows(block, bytes), "at the end: block {} is wrong", block);
    }
    Ok(())
}

/// A simulated device of every shipped profile.
fn simulated() -> impl Iterator<Item = Simulated<Memory>> {
    SHIPPED.iter().map(|(name, text)| {
        let profile = Profile::parse(text, name).unwrap_or_else(|e| panic!("{e}"));
        let model: Box<dyn model::Model> = match &profile.device {
            DeviceSpec::Flash(spec) => Box::new(Flash::new(spec, BLOCKS)),
            DeviceSpec::Disk(spec) => Box::new(Disk::new(spec, BLOCKS)),
        };
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let pace = Pace::Virtual(Arc::new(VirtualClock::new(Time::default())));
        Simulated::new(Memory::new(BLOCKS), model, meter, pace)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_keeps_the_contract(steps in steps()) {
        keeps_the_contract(&Memory::new(BLOCKS), &steps)?;
    }

    #[test]
    fn a_fingerprint_device_keeps_the_contract(steps in steps()) {
        keeps_the_contract(&Fingerprint::new(BLOCKS), &steps)?;
    }

    #[test]
    fn a_file_keeps_the_contract(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        // Half a block more than whole blocks.
        let device = FileDevice::create(dir.path().join("image"), BLOCKS * 4096 + 2048).unwrap();
        keeps_the_contract(&device, &steps)?;
    }

    #[test]
    fn decorators_keep_the_contract(steps in steps()) {
        keeps_the_contract(&Counting::new(Memory::new(BLOCKS)), &steps)?;
        keeps_the_contract(&Overlay::new(Memory::new(BLOCKS)), &steps)?;
        keeps_the_contract(&Faulty::new(Memory::new(BLOCKS)), &steps)?;
        keeps_the_contract(&PowerCut::new(Memory::new(BLOCKS)), &steps)?;
        for limit in [10 * BLOCK, 1000 * BLOCK] {
            keeps_the_contract(&Retained::new(Memory::new(BLOCKS), limit), &steps)?;
        }
        keeps_the_contract(&(Arc::new(Memory::new(BLOCKS)) as Arc<dyn BlockDevice>), &steps)?;
    }

    #[test]
    fn a_simulated_device_keeps_the_contract(steps in steps()) {
        for device in simulated() {
            keeps_the_contract(&device, &steps)?;
        }
    }

    #[test]
    fn an_overlay_never_changes_what_is_below(steps in steps()) {
        let below = Memory::new(BLOCKS);
        below.write(Lba(5), &data(5, 20, 77), TAG).unwrap();
        let before = below.fork();
        let overlay = Overlay::new(below);
        for step in &steps {
            let _ = match step {
                Step::Write { at, blocks, stamp } => overlay.write(Lba(*at), &data(*at, *blocks, *stamp), TAG),
                Step::Discard { at, blocks } => overlay.discard(Lba(*at), *blocks, TAG),
                _ => overlay.flush(TAG),
            };
        }
        prop_assert_eq!(overlay.held().len() as u64, overlay.held_blocks());
        prop_assert!(overlay.inner().same_as(&before));
    }
}

#[test]
fn a_buffer_that_is_not_whole_blocks_is_refused_and_changes_nothing() {
    fn check(device: &impl BlockDevice) {
        let odd = vec![1u8; BLOCK + 512];
        let whole = vec![1u8; BLOCK];
        let misaligned = |r: device::Result<()>| assert!(matches!(r, Err(DeviceError::Misaligned { .. })), "{r:?}");
        misaligned(device.write(Lba(0), &odd, TAG));
        misaligned(device.write_gather(Lba(0), &[&whole, &odd], TAG));
        misaligned(device.write_parts_for(Lba(0), &[&whole, &odd], (&[1, 2], 3), &mut Vec::new()));
        misaligned(device.read(Lba(0), &mut odd.clone(), TAG));
        let mut now = vec![9u8; 2 * BLOCK];
        device.read(Lba(0), &mut now, TAG).unwrap();
        assert!(now.iter().all(|b| *b == 0));
        let past = device.discard(Lba(u64::MAX), 2, TAG);
        assert!(matches!(past, Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(device.read(Lba(u64::MAX), &mut now, TAG), Err(DeviceError::OutOfRange { .. })));
    }
    check(&Memory::new(BLOCKS));
    check(&Fingerprint::new(BLOCKS));
    check(&Counting::new(Memory::new(BLOCKS)));
    check(&Overlay::new(Memory::new(BLOCKS)));
    check(&Faulty::new(Memory::new(BLOCKS)));
    check(&PowerCut::new(Memory::new(BLOCKS)));
    check(&Retained::new(Memory::new(BLOCKS), 8 * BLOCK));
    simulated().for_each(|device| check(&device));
    let dir = tempfile::tempdir().unwrap();
    check(&FileDevice::create(dir.path().join("image"), BLOCKS * 4096).unwrap());
}

#[test]
fn a_block_is_never_seen_half_written() {
    fn check(device: &(impl BlockDevice + ?Sized)) {
        std::thread::scope(|threads| {
            for writer in 1..=2u8 {
                threads.spawn(move || {
                    for round in 0..1500u32 {
                        let stamp = writer.wrapping_add((round % 100) as u8 * 2);
                        device.write(Lba(14), &[stamp; 4 * BLOCK], TAG).unwrap();
                    }
                });
            }
            threads.spawn(|| {
                for _ in 0..3000 {
                    let mut buf = vec![0; 4 * BLOCK];
                    device.read(Lba(14), &mut buf, TAG).unwrap();
                    for block in buf.chunks(BLOCK) {
                        assert!(block.iter().all(|b| *b == block[0]), "torn: {} and {}", block[0], block[BLOCK - 1]);
                    }
                }
            });
        });
    }
    check(&Memory::new(BLOCKS));
    check(&Fingerprint::new(BLOCKS));
    check(&Overlay::new(Memory::new(BLOCKS)));
    check(&Retained::new(Memory::new(BLOCKS), 8 * BLOCK));
    simulated().for_each(|device| check(&device));
    let dir = tempfile::tempdir().unwrap();
    check(&FileDevice::create(dir.path().join("image"), BLOCKS * 4096).unwrap());
}

/// The contents of every block, as one number each.
fn stamps(device: &impl BlockDevice) -> Vec<u8> {
    let mut all = vec![0xEE; BLOCKS as usize * BLOCK];
    device.read(Lba(0), &mut all, TAG).unwrap();
    all.chunks(BLOCK).map(|b| b[0]).collect()
}

#[test]
fn a_remap_changes_places_or_moves_and_refuses_what_overlaps() {
    for device in simulated() {
        for at in 0..20 {
            device.write(Lba(at), &[at as u8 + 1; BLOCK], TAG).unwrap();
        }
        let before = stamps(&device);
        let outside = device.remap(Lba(0), Lba(BLOCKS - 1), 2, Remap::Move, TAG);
        assert!(matches!(outside, Err(DeviceError::OutOfRange { .. })), "{outside:?}");
        let overlapping = device.remap(Lba(3), Lba(5), 3, Remap::Exchange, TAG);
        assert!(overlapping.is_err());
        match device.remap(Lba(2), Lba(30), 5, Remap::Move, TAG) {
            // A disk has no map to change.
            Err(DeviceError::Unsupported { .. }) => assert_eq!(stamps(&device), before),
            result => {
                result.unwrap();
                device.remap(Lba(10), Lba(31), 2, Remap::Exchange, TAG).unwrap();
                let after = stamps(&device);
                assert_eq!(after[30..35], [3, 11, 12, 6, 7]);
                assert_eq!(after[10..12], [4, 5]);
                device.remap(Lba(15), Lba(25), 3, Remap::Share, TAG).unwrap();
                device.write(Lba(16), &[99; BLOCK], TAG).unwrap();
                device.discard(Lba(15), 1, TAG).unwrap();
                assert_eq!(stamps(&device)[25..28], [16, 17, 18]);
            }
        }
    }
}

#[test]
fn counts_are_kept_by_cause() {
    let device = Counting::new(Memory::new(BLOCKS));
    let (a, b) = (Tag { cause: 1, owner: 5 }, Tag { cause: 255, owner: 0 });
    device.write(Lba(0), &[1; 3 * BLOCK], a).unwrap();
    let earlier = device.snapshot();
    device.write_gather(Lba(0), &[&[1; BLOCK], &[2; 2 * BLOCK]], a).unwrap();
    device.read(Lba(0), &mut [0; BLOCK], b).unwrap();
    device.flush(b).unwrap();
    device.discard(Lba(1), 7, b).unwrap();
    assert!(device.write(Lba(BLOCKS), &[1; BLOCK], a).is_err());
    let now = device.snapshot();
    assert_eq!((now[1].writes, now[1].blocks_written), (2, 6));
    let between = &now - &earlier;
    assert_eq!((between[1].writes, between[1].blocks_written), (1, 3));
    assert_eq!((between[255].reads, between[255].flushes, between[255].blocks_discarded), (1, 1, 7));
    assert_eq!(between.causes().map(|(cause, _)| cause).collect::<Vec<_>>(), [1, 255]);
    assert_eq!(between.total().writes, 1);
}
