//! Flipped bits cause no panic and no endless loop, and what the superblock proves is still reported.

use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Rng, Tag};
use f2fs::{MountOptions, mkfs};
use format::sit::{self, LogType};
use format::superblock::Features;
use inspect::price::Prices;
use inspect::verdict::Verdict;
use inspect::{InspectError, Options, Progress, Volume};
use judges::churn;
use judges::damage::{self, Targets};
use judges::zoo::in_process;
use trials::populated;
use vfs::FileSystem;

fn look(dev: &dyn BlockDevice) -> Result<Volume, InspectError> {
    let options = Options { extents: true, ..Options::default() };
    let volume = Volume::read(dev, &options, &mut Progress::new(&mut |_| true))?;
    let profile = device::energy::profile::Profile::find("kirin9000-ufs31").unwrap();
    let verdict = Verdict::new(&volume.files, &Prices::from_profile(&profile), options.window);
    assert_eq!(verdict.priced.len(), volume.files.len());
    let all: usize = volume.files.iter().map(|f| volume.path(f).bytes.len()).sum();
    assert!(all > 0 || volume.files.is_empty());
    Ok(volume)
}

#[test]
fn flipped_bits_neither_panic_nor_hang_and_most_of_the_volume_is_reported() {
    let delta = mkfs::Options::modern().features | Features::DELTA | Features::COMPRESSION;
    for (features, seed) in [(mkfs::Options::default().features, 1), (delta, 2)] {
        let base = populated::volume(&mkfs::Options { features, ..mkfs::Options::default() });
        let targets = Targets::of(&base);
        let whole = look(&base).unwrap().files.len();
        let mut rng = Rng::new(seed);
        let (mut told, mut found) = (0, 0);
        for _ in 0..250 {
            let dev = base.fork();
            let showers = rng.below(2) * rng.below(30);
            for _ in 0..=showers {
                targets.flip(&dev, &mut rng);
            }
            if let Ok(volume) = look(&dev) {
                told += u32::from(volume.files.len() + 8 > whole);
                found += u32::from(!volume.findings.is_empty());
            }
        }
        assert!(told > 120 && found > 50, "of 250 {told} were told nearly whole, {found} with a finding");
    }
}

#[test]
fn noise_in_every_area_is_survived() {
    let base = populated::unmounted(&mkfs::Options::default());
    let sb = look(&base).unwrap().superblock;
    let mut rng = Rng::new(7);
    let areas = [sb.cp, sb.sit, sb.nat, sb.ssa, sb.main].map(|a| u64::from(a.0));
    for from in areas {
        for _ in 0..4 {
            let dev = base.fork();
            for _ in 0..300 {
                let mut block = [0; 4096];
                rng.fill(&mut block);
                let end = if from == areas[4] { dev.blocks() } else { areas[4] };
                dev.write(Lba(from + rng.below(end - from)), &block, Tag::default()).unwrap();
            }
            let _ = look(&dev);
        }
    }
    let noise = Memory::new(4096);
    let mut bytes = vec![0; 4096 * 4096];
    rng.fill(&mut bytes);
    noise.write(Lba(0), &bytes, Tag::default()).unwrap();
    assert!(matches!(look(&noise), Err(InspectError::NotF2fs)));
}

#[test]
fn a_wrong_segment_table_hides_no_file() {
    let base = populated::unmounted(&mkfs::Options::default());
    let before = look(&base).unwrap();
    let dev = base.fork();
    let sb = &before.superblock;
    for at in sb.sit.0..sb.nat.0 {
        dev.write(Lba(at.into()), &[0; 4096], Tag::default()).unwrap();
    }
    let after = look(&dev).unwrap();
    assert_eq!(after.counts, before.counts);
    assert!(after.findings.iter().any(|f| f.to_string().contains("has no valid block of nodes")));
}

#[test]
fn old_versions_of_nodes_marked_valid_belong_to_no_file() {
    // This device keeps freed blocks, like one without discard.
    let dev = Arc::new(Memory::new(damage::BLOCKS));
    mkfs::format(&*dev, &*damage::clock(), &mkfs::Options::default()).unwrap();
    let options = MountOptions { discard: false, ..MountOptions::default() };
    let vol = f2fs::Volume::mount(dev.clone(), damage::clock(), options).unwrap();
    for round in 0..4 {
        in_process::perform(&*vol, &churn::round(3, 12 << 20, round)).unwrap();
        vol.sync().unwrap();
    }
    vol.unmount().unwrap();
    let before = look(&*dev).unwrap();
    assert_eq!(before.findings, []);
    let sb = &before.superblock;
    let mut entries = 0;
    for at in sb.sit.0..sb.nat.0 {
        let mut block = damage::block(&dev, at.into());
        for i in 0..sit::SIT_ENTRIES as usize {
            let mut raw = sit::get(&block, i);
            let log = LogType::from_number((raw.vblocks.get() >> 10) as u8);
            if raw.vblocks.get() & 0x3FF > 0 && log.is_some_and(LogType::is_node) {
                raw.valid_map = [0xFF; sit::MAP_BYTES];
                raw.vblocks = (raw.vblocks.get() & !0x3FF | 512).into();
                sit::put(&mut block, i, &raw);
                entries += 1;
            }
        }
        dev.write(Lba(at.into()), &*block, Tag::default()).unwrap();
    }
    assert!(entries > 0);
    let after = look(&*dev).unwrap();
    assert_eq!(after.counts, before.counts);
    assert!(after.findings.iter().any(|f| f.to_string().contains("have no owner")), "{:?}", after.findings);
}

#[test]
fn an_image_that_ends_early_gives_its_readable_part() {
    let base = populated::unmounted(&mkfs::Options::default());
    let before = look(&base).unwrap();
    let blocks = u64::from(before.superblock.main.0) + 4 * 512;
    let short = Memory::new(blocks);
    for at in 0..blocks {
        short.write(Lba(at), &*damage::block(&base, at), Tag::default()).unwrap();
    }
    let after = look(&short).unwrap();
    assert!(after.findings.iter().any(|f| f.to_string().starts_with("the image has")), "{:?}", after.findings);
    assert!(after.files.len() <= before.files.len());
}
