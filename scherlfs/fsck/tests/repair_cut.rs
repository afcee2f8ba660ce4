//! An interrupted repair can be repeated, with the same result.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::rig::{SHAPES, look, volume, whole, write_block};
use device::{BLOCK, BlockDevice, Loss, PowerCut, Rng};
use joulefs_scherlfs_fsck as fsck;

#[test]
fn a_repair_that_the_power_cut_off_is_repaired_to_the_same() {
    let mut cuts = 0;
    for shape in SHAPES {
        let made = volume(shape, 21);
        let mut rng = Rng::new(22);
        for round in 0..24 {
            let image = made.dev.fork();
            let mut touched = BTreeSet::new();
            for _ in 0..1 + rng.below(4) {
                // Including superblocks.
                let at = if rng.below(4) == 0 { rng.below(2) } else { rng.below(made.dev.blocks()) };
                let mut noise = [0; BLOCK];
                rng.fill(&mut noise);
                write_block(&image, at, &noise);
                touched.extend(made.touched(at));
            }
            if fsck::check(&image).is_clean() {
                continue;
            }
            let right = Arc::new(image.fork());
            fsck::repair(&*right, &|_, _| {}).unwrap();
            let right = look(&right).unwrap();
            let uncut = PowerCut::new(image.fork());
            fsck::repair(&uncut, &|_, _| {}).unwrap();
            for cut in 1..=uncut.write_count() {
                let dev = PowerCut::new(image.fork());
                dev.cut_after(cut);
                let _ = fsck::repair(&dev, &|_, _| {});
                for loss in Loss::PLAIN.into_iter().chain([Loss::LastTorn(3), Loss::Random(cut)]) {
                    let left = Arc::new(dev.image(loss));
                    let place = format!("{shape:?}, round {round}, cut {cut}:{loss}");
                    let done = fsck::repair(&*left, &|_, _| {}).unwrap_or_else(|e| panic!("{place}: {e}"));
                    whole(&left, &made.truth, &touched, &place, &done.actions);
                    let found = look(&left).unwrap();
                    assert!(found.len() == right.len(), "{place}: {} files, not {}", found.len(), right.len());
                    for (ino, known) in &right {
                        let is = &found[ino];
                        assert!((&is.paths, &is.bytes) == (&known.paths, &known.bytes), "{place}: inode {ino}");
                    }
                    cuts += 1;
                }
            }
        }
    }
    assert!(cuts > 300, "{cuts}");
}
