//! A fingerprint device behaves like a memory device, but generated blocks take almost no memory.

use joulefs_device::model::Remap;
use joulefs_device::{BLOCK, BlockDevice, Fingerprint, Held, Lba, Memory, Origin, Rng, Tag, generate};
use proptest::prelude::*;

const TAG: Tag = Tag { cause: 0, owner: 0 };
/// Four chunks and a partial one.
const BLOCKS: u64 = 300;

#[derive(Debug, Clone, Copy)]
enum Fill {
    Zero,
    Generated {
        seed: u64,
        first: u32,
    },
    /// A generated block with one byte changed.
    Almost {
        seed: u64,
        byte: usize,
    },
    /// Few nonzero bytes.
    Thin {
        at: usize,
    },
    Noise {
        seed: u64,
    },
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Write { at: u64, blocks: u64, fill: Fill },
    Discard { at: u64, blocks: u64 },
    Remap { from: u64, to: u64, blocks: u64, how: Remap },
}

fn contents(fill: Fill, blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0; blocks as usize * BLOCK];
    match fill {
        Fill::Zero => {}
        Fill::Generated { seed, first } => generate(seed, first, &mut bytes),
        Fill::Almost { seed, byte } => {
            generate(seed, 0, &mut bytes);
            bytes.chunks_mut(BLOCK).for_each(|b| b[byte] ^= 0x10);
        }
        Fill::Thin { at } => bytes.chunks_mut(BLOCK).for_each(|b| b[at] = 1),
        Fill::Noise { seed } => Rng::new(seed).fill(&mut bytes),
    }
    bytes
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fill = prop_oneof![
        1 => Just(Fill::Zero),
        4 => (0..3u64, 0..200u32).prop_map(|(seed, first)| Fill::Generated { seed, first }),
        1 => (0..3u64, 0..BLOCK).prop_map(|(seed, byte)| Fill::Almost { seed, byte }),
        1 => (0..BLOCK).prop_map(|at| Fill::Thin { at }),
        1 => any::<u64>().prop_map(|seed| Fill::Noise { seed }),
    ];
    let range = || (0..BLOCKS).prop_flat_map(|at| (Just(at), prop_oneof![Just(1), 0..=(BLOCKS - at)]));
    let step = prop_oneof![
        6 => (range(), fill).prop_map(|((at, blocks), fill)| Step::Write { at, blocks, fill }),
        1 => range().prop_map(|(at, blocks)| Step::Discard { at, blocks }),
        1 => (0..100u64, 100..200u64, 0..100u64, 0..3_usize).prop_map(|(from, to, blocks, how)| {
            let how = [Remap::Exchange, Remap::Move, Remap::Share][how];
            Step::Remap { from, to, blocks: blocks.min(to - from), how }
        }),
    ];
    prop::collection::vec(step, 1..40)
}

fn perform(device: &impl BlockDevice, step: Step) {
    match step {
        Step::Write { at, blocks, fill } => device.write(Lba(at), &contents(fill, blocks), TAG).unwrap(),
        Step::Discard { at, blocks } => device.discard(Lba(at), blocks, TAG).unwrap(),
        Step::Remap { from, to, blocks, how } => device.remap(Lba(from), Lba(to), blocks, how, TAG).unwrap(),
    }
}

fn all(device: &impl BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0xEE; device.blocks() as usize * BLOCK];
    device.read(Lba(0), &mut bytes, TAG).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_reads_as_from_plain_memory(steps in steps()) {
        let (plain, device) = (Memory::new(BLOCKS), Fingerprint::new(BLOCKS));
        for step in steps {
            perform(&plain, step);
            perform(&device, step);
        }
        let bytes = all(&device);
        prop_assert!(bytes == all(&plain));
        // Devices with the same contents are equal, however the contents were written.
        let copied = Fingerprint::new(BLOCKS);
        copied.write(Lba(0), &bytes, TAG).unwrap();
        prop_assert!(copied.same_as(&device));
        prop_assert_eq!(copied.held().other, device.held().other);
    }
}

#[test]
fn generated_blocks_weigh_twelve_bytes_and_less_where_they_continue_one_another() {
    let (blocks, each) = (1 << 15, 64);
    let scattered = Fingerprint::new(blocks);
    let mut bytes = vec![0; each * BLOCK];
    for at in (0..blocks).step_by(each) {
        for (n, block) in bytes.chunks_mut(BLOCK).enumerate() {
            generate(at + n as u64, 9, block);
        }
        scattered.write(Lba(at), &bytes, TAG).unwrap();
    }
    let held = scattered.held();
    assert_eq!((held.generated, held.other), (blocks, 0));
    assert!(held.bytes < 15 * blocks, "{} bytes a block", held.bytes as f64 / blocks as f64);

    let sequential = Fingerprint::new(blocks);
    generate(1, 0, &mut bytes);
    for at in (0..blocks).step_by(each) {
        generate(1, at as u32, &mut bytes);
        sequential.write(Lba(at), &bytes, TAG).unwrap();
    }
    assert!(sequential.held().bytes < 3 * blocks, "{} bytes a block", sequential.held().bytes as f64 / blocks as f64);
}

#[test]
fn a_block_that_is_mostly_zero_weighs_its_lines_that_are_not() {
    let device = Fingerprint::new(1024);
    let mut block = [0; BLOCK];
    (block[100], block[4095]) = (1, 1);
    let empty = device.held().bytes;
    device.write(Lba(1000), &block, TAG).unwrap();
    assert_eq!(device.held(), Held { generated: 0, other: 1, bytes: device.held().bytes });
    assert!(device.held().bytes - empty < 16384 + 400, "{}", device.held().bytes);
    let mut read = [9; BLOCK];
    device.read(Lba(1000), &mut read, TAG).unwrap();
    assert!(read == block);
}

#[test]
fn what_is_overwritten_or_discarded_weighs_nothing_any_more() {
    let device = Fingerprint::new(4096);
    let origin = Origin { seed: 3, index: 5 }.block();
    for at in 0..2000 {
        device.write(Lba(at), &origin, TAG).unwrap();
    }
    device.write(Lba(0), &[0; 100 * BLOCK], TAG).unwrap();
    device.discard(Lba(100), 1850, TAG).unwrap();
    assert_eq!((device.held().generated, device.held().other), (50, 0));
    device.discard(Lba(0), 4096, TAG).unwrap();
    assert!(device.same_as(&Fingerprint::new(4096)));
}

#[test]
fn a_fork_and_its_origin_do_not_see_each_others_writes() {
    let a = Fingerprint::new(BLOCKS);
    a.write(Lba(3), &contents(Fill::Generated { seed: 1, first: 0 }, 250), TAG).unwrap();
    let b = a.fork();
    assert!(a.same_as(&b));
    let before = all(&a);
    b.write(Lba(60), &contents(Fill::Noise { seed: 4 }, 10), TAG).unwrap();
    assert!(all(&a) == before && !a.same_as(&b));
}

#[test]
fn a_saved_image_has_every_byte_and_no_more_than_it_needs() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = Fingerprint::new(50_001);
    device.write(Lba(49_900), &contents(Fill::Generated { seed: 1, first: 7 }, 101), TAG).unwrap();
    device.write(Lba(70), &contents(Fill::Thin { at: 9 }, 3), TAG).unwrap();
    device.save(&path).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), 50_001 * 4096);
    assert!(meta.blocks() * 512 < 1 << 20, "{} bytes on disk", meta.blocks() * 512);
    let (loaded, plain) = (Memory::load(&path).unwrap(), Memory::new(50_001));
    plain.write(Lba(49_900), &contents(Fill::Generated { seed: 1, first: 7 }, 101), TAG).unwrap();
    plain.write(Lba(70), &contents(Fill::Thin { at: 9 }, 3), TAG).unwrap();
    assert_eq!(loaded.first_difference(&plain), None);
    // Without generated blocks.
    device.save_hollow(&path).unwrap();
    let (hollow, left) = (Memory::load(&path).unwrap(), Memory::new(50_001));
    left.write(Lba(70), &contents(Fill::Thin { at: 9 }, 3), TAG).unwrap();
    assert_eq!(hollow.first_difference(&left), None);
    assert!(std::fs::metadata(&path).unwrap().blocks() < meta.blocks());
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Fills 60 % of a device of `blocks` blocks: nine of ten blocks are generated, each with its own sequence (so none
/// continues another); every tenth resembles metadata, with a few used lines.
fn fill(blocks: u64) -> Fingerprint {
    let device = Fingerprint::new(blocks);
    let mut bytes = vec![0; 64 * BLOCK];
    for at in (0..blocks * 6 / 10).step_by(64) {
        for (n, block) in bytes.chunks_mut(BLOCK).enumerate() {
            if n % 10 == 0 {
                block.fill(0);
                (block[90], block[360], block[4090]) = (1, 2, 3);
            } else {
                generate(at + n as u64, 0, block);
            }
        }
        device.write(Lba(at), &bytes, TAG).unwrap();
    }
    device
}

#[test]
fn a_gigabyte_mostly_full_takes_under_eight_megabytes() {
    // A 256th of 256 GB in a 256th of 2 GB.
    let device = fill(250_000);
    assert!(device.held().bytes < (2_000_000_000 / 256), "{:?}", device.held());
}

/// Deep test: takes a minute and nearly that much memory.
#[test]
fn a_256_gb_disk_mostly_full_fits_in_two_gigabytes() {
    if std::env::var_os("JOULEFS_DEEP").is_none_or(|v| v != "1") {
        return testlog::only_in("make deep");
    }
    let before = resident();
    let device = fill(256_000_000_000 / BLOCK as u64);
    let took = resident() - before;
    println!("{:?}; resident: {} MB", device.held(), took / 1_000_000);
    assert!(device.held().generated > 33_000_000);
    assert!(took < 2_000_000_000, "{took} bytes");
}
