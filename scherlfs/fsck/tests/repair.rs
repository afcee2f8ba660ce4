//! A repaired volume passes checker and mount, and no readable data is lost.

use std::collections::BTreeSet;

use crate::rig::{self, SHAPES, block, judge, volume, write_block};
use device::{BLOCK, BlockDevice, Rng};

fn deep() -> bool {
    std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1")
}

#[test]
fn a_torn_superblock_is_written_from_the_other() {
    for shape in SHAPES {
        let made = volume(shape, 1);
        let dev = &made.dev;
        for at in [0, 1] {
            let image = dev.fork();
            write_block(&image, at, &[0x55; BLOCK]);
            let done = judge(&image, &made.truth, &BTreeSet::new(), &format!("{shape:?}, superblock {at}"));
            assert!(!done.is_empty());
        }
    }
}

#[test]
fn a_damaged_block_of_the_inode_map_is_made_again() {
    for shape in SHAPES {
        let made = volume(shape, 2);
        let dev = &made.dev;
        let report = joulefs_scherlfs_fsck::check(dev);
        assert!(report.is_clean(), "{report:?}");
        let map = map_blocks(dev);
        assert!(!map.is_empty());
        for &at in &map {
            for fill in [0u8, 0xff, 0x11] {
                let image = dev.fork();
                write_block(&image, at, &[fill; BLOCK]);
                judge(&image, &made.truth, &BTreeSet::new(), &format!("{shape:?}, map block {at} of {fill:#x}"));
            }
        }
    }
}

/// Blocks of contents of the inode map.
fn map_blocks(dev: &dyn BlockDevice) -> Vec<u64> {
    use scherlfs_format::extent::Extent;
    use scherlfs_format::{inode, superblock};
    let copies = [0, 1].map(|at| superblock::Superblock::read(&block(dev, at)).unwrap());
    let sb = copies.into_iter().max_by_key(|sb| sb.checkpoint).unwrap();
    let map = inode::Inode::read(&block(dev, sb.ifile.0)).unwrap();
    map.extents
        .iter()
        .flat_map(|e| match *e {
            Extent::Stored { start, blocks } => start.0..start.0 + u64::from(blocks),
            _ => 0..0,
        })
        .collect()
}

#[test]
fn noise_in_any_one_block_costs_no_other_file() {
    for shape in SHAPES {
        let made = volume(shape, 3);
        let dev = &made.dev;
        let mut rng = Rng::new(4);
        let step = if deep() { 1 } else { 3 };
        for at in (0..dev.blocks()).skip(rng.index(step)).step_by(step) {
            if block(dev, at).iter().all(|b| *b == 0) {
                continue;
            }
            let image = dev.fork();
            let mut noise = [0; BLOCK];
            if rng.below(3) > 0 {
                rng.fill(&mut noise);
            }
            write_block(&image, at, &noise);
            judge(&image, &made.truth, &made.touched(at), &format!("{shape:?}, block {at}"));
        }
    }
}

#[test]
fn a_flipped_bit_of_metadata_costs_nothing() {
    for shape in SHAPES {
        let made = volume(shape, 5);
        let dev = &made.dev;
        let mut rng = Rng::new(6);
        for at in 0..dev.blocks() {
            let right = block(dev, at);
            if right.iter().all(|b| *b == 0) {
                continue;
            }
            let content = made.truth.values().any(|k| k.blocks.contains(&at));
            let known = [&b"SINO"[..], b"SEXT", b"SIDX"].iter().any(|m| right.starts_with(m));
            let dir = right[BLOCK - 12..BLOCK - 4] == [0, 0, 0, 0, 12, 0, 0, 0xde];
            if content && !known && !dir {
                continue;
            }
            for _ in 0..if deep() { 40 } else { 2 } {
                let within = if rng.below(2) == 0 { 300 } else { BLOCK };
                let (byte, bit) = (rng.index(within), 1 << rng.index(8));
                let image = dev.fork();
                let mut block = right.clone();
                block[byte] ^= bit;
                write_block(&image, at, &block);
                judge(&image, &made.truth, &BTreeSet::new(), &format!("{shape:?}, block {at}, byte {byte}, bit {bit}"));
            }
        }
    }
}

#[test]
fn blocks_that_changed_places_cost_only_their_files() {
    for shape in SHAPES {
        let made = volume(shape, 7);
        let dev = &made.dev;
        let mut rng = Rng::new(8);
        let used: Vec<u64> = (0..dev.blocks()).filter(|at| block(dev, *at).iter().any(|b| *b != 0)).collect();
        for _ in 0..if deep() { 2000 } else { 60 } {
            let (a, b) = (used[rng.index(used.len())], used[rng.index(used.len())]);
            let image = dev.fork();
            write_block(&image, a, &block(dev, b));
            // Exchanged, or only copied.
            if rng.below(2) == 0 {
                write_block(&image, b, &block(dev, a));
            }
            let touched = made.touched(a).union(&made.touched(b)).copied().collect();
            judge(&image, &made.truth, &touched, &format!("{shape:?}, blocks {a} and {b}"));
        }
    }
}

#[test]
fn noise_in_many_blocks_costs_only_their_files() {
    for shape in SHAPES {
        let made = volume(shape, 9);
        let mut rng = Rng::new(10);
        for round in 0..if deep() { 1000 } else { 40 } {
            let image = made.dev.fork();
            let mut touched = BTreeSet::new();
            for _ in 0..1 + rng.below(12) {
                let at = rng.below(made.dev.blocks());
                let mut noise = [0; BLOCK];
                if rng.below(2) == 0 {
                    rng.fill(&mut noise);
                }
                touched.extend(made.touched(at));
                write_block(&image, at, &noise);
            }
            judge(&image, &made.truth, &touched, &format!("{shape:?}, round {round}"));
        }
    }
}

#[test]
fn a_volume_without_superblocks_is_found_again_in_its_log() {
    for shape in SHAPES {
        let made = volume(shape, 13);
        let mut rng = Rng::new(14);
        for round in 0..20 {
            let image = made.dev.fork();
            write_block(&image, 0, &[0; BLOCK]);
            write_block(&image, 1, &[0xff; BLOCK]);
            let mut touched = BTreeSet::new();
            if round > 0 {
                // And another fault.
                let at = 2 + rng.below(made.dev.blocks() - 2);
                write_block(&image, at, &[0x22; BLOCK]);
                touched.extend(made.touched(at));
            }
            assert!(joulefs_scherlfs_fsck::seems(&image));
            judge(&image, &made.truth, &touched, &format!("{shape:?}, round {round}, without superblocks {touched:?}"));
        }
    }
}

#[test]
fn a_volume_that_was_cut_off_has_what_lay_before() {
    // A log leaves no room before its head: of the part cut off there, nothing is free.
    let (mut done, mut full) = (0, 0);
    for shape in SHAPES {
        let made = volume(shape, 15);
        for blocks in [200, 300, 500, 700, 900, 1000, 1023] {
            let image = device::Memory::new(blocks);
            (0..blocks).for_each(|at| write_block(&image, at, &block(&made.dev, at)));
            let mut touched: BTreeSet<u64> = (blocks..made.dev.blocks()).collect();
            if touched.iter().any(|at| made.log.contains(at)) {
                touched.extend(&made.log);
            }
            let fork = image.fork();
            if let Err(joulefs_scherlfs_fsck::RepairError::NoSpace) = joulefs_scherlfs_fsck::repair(&fork, &|_, _| {}) {
                full += 1;
                continue;
            }
            judge(&image, &made.truth, &touched, &format!("{shape:?}, {blocks} blocks"));
            done += 1;
        }
    }
    assert!(done >= 8, "{done} were repaired, {full} are full");
}

/// Every remaining block is in use: there is no room to write the repaired volume, so nothing is written.
#[test]
fn a_full_volume_that_cannot_be_repaired_is_left_as_it_is() {
    let made = volume(rig::SHAPES[0], 15);
    let image = device::Memory::new(64);
    (0..64).for_each(|at| write_block(&image, at, &block(&made.dev, at)));
    let before = rig::image(&image);
    let e = joulefs_scherlfs_fsck::repair(&image, &|_, _| {}).unwrap_err();
    assert!(matches!(e, joulefs_scherlfs_fsck::RepairError::NoSpace), "{e}");
    assert!(before == rig::image(&image));
}

#[test]
fn what_is_no_volume_is_not_repaired() {
    let dev = device::Memory::new(1024);
    assert!(matches!(
        joulefs_scherlfs_fsck::repair(&dev, &|_, _| {}),
        Err(joulefs_scherlfs_fsck::RepairError::NoVolume)
    ));
    assert!(!joulefs_scherlfs_fsck::seems(&dev));
}
