//! Any image gives an answer: a typed error or success, soon, without a panic.
//!
//! `JOULEFS_DEEP=1` flips a million bits; `JOULEFS_REPLAY=<volume>:<n>` repeats one case.

use std::sync::Arc;

use device::{Access, BLOCK, BlockDevice, Lba, Memory, OpenError, Rng, Tag};
use f2fs::{MountError, MountOptions, Volume, mkfs};
use judges::damage::{BLOCKS, Targets, clock};
use trials::populated::volume;

use crate::endure::{all_end_well, case, endure, watched};

fn flips(seed: u64, options: &mkfs::Options) {
    let deep = std::env::var_os("JOULEFS_DEEP").is_some();
    let count = if deep { 500_000 } else { 5_000 };
    let mut cases: Vec<u64> = (0..count).collect();
    if let Ok(replay) = std::env::var("JOULEFS_REPLAY") {
        let (volume, n) = replay.split_once(':').expect("JOULEFS_REPLAY=<volume>:<n>");
        cases.clear();
        if volume == seed.to_string() {
            cases.push(n.parse().expect("a number"));
        }
    }
    let base = volume(options);
    let targets = Targets::of(&base);
    let all = cases.len();
    let make = move |n| {
        let image = base.fork();
        let place = targets.flip(&image, &mut Rng::new(seed << 32 | n));
        (image, format!("flip:{seed}:{n} ({place})"))
    };
    let mounted = all_end_well(watched(cases, make, |image, _| endure(image)));
    println!("{mounted} of {all} could be mounted for writing");
    assert!(all < 100 || mounted > all / 2, "only {mounted} of {all} were damaged behind the mount");
}

#[test]
fn a_flipped_bit_on_a_plain_volume_is_survived() {
    flips(1, &mkfs::Options::default());
}

#[test]
fn a_flipped_bit_on_a_volume_with_modern_features_is_survived() {
    flips(2, &mkfs::Options::modern());
}

#[test]
fn a_zeroed_metadata_block_is_survived() {
    for options in [mkfs::Options::default(), mkfs::Options::modern()] {
        let base = volume(&options);
        let places: Vec<_> = Targets::of(&base).all().collect();
        let cases = (0..places.len() as u64).collect();
        let make = move |n: u64| {
            let (kind, at) = places[n as usize];
            let image = base.fork();
            image.write(Lba(at), &[0; BLOCK], Tag::default()).unwrap();
            (image, format!("zero:{at} ({kind})"))
        };
        all_end_well(watched(cases, make, |image, _| endure(image)));
    }
}

#[test]
fn an_image_cut_short_is_refused_with_its_size() {
    let base = volume(&mkfs::Options::default());
    for blocks in [0, 1, 2, 512, 1024, 3000, BLOCKS / 2, BLOCKS - 512] {
        let short = Memory::new(blocks);
        for at in 0..blocks {
            let bytes = judges::damage::block(&base, at);
            short.write(Lba(at), &*bytes, Tag::default()).unwrap();
        }
        let image = Arc::new(short);
        for read_only in [false, true] {
            let options = MountOptions { read_only, ..MountOptions::default() };
            let refused = Volume::mount(image.clone(), clock(), options);
            assert!(matches!(refused, Err(MountError::CutShort { image, .. }) if image == blocks), "{blocks}");
        }
        case(&image, endure).unwrap();
    }
}

#[test]
fn what_holds_no_volume_is_refused_by_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let open = |name: &str| device::open_image(path(name), Access::ReadOnly);
    assert!(matches!(open("missing"), Err(OpenError::NotFound { .. })));
    assert!(device::open_image(dir.path(), Access::ReadOnly).is_err());
    std::fs::write(path("empty"), b"").unwrap();
    if let Ok(dev) = open("empty") {
        assert!(matches!(Volume::mount(dev, clock(), MountOptions::default()), Err(MountError::CutShort { .. })));
    }
    let mut noise = vec![0; 1 << 20];
    Rng::new(9).fill(&mut noise);
    std::fs::write(path("noise"), &noise).unwrap();
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let refused = Volume::mount(open("noise").unwrap(), clock(), options);
    assert!(matches!(refused, Err(MountError::NotF2fs { .. })));
}
