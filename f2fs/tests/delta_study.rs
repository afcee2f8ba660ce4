//! Other uses of delta nodes, for comparison: what an fsync writes, and that the result is as durable and valid as by
//! default.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{BlockDevice, CountSnapshot, Counting, Loss, PowerCut, Rng};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::delta::{Beside, Places, Study};
use joulefs_f2fs::settle::settle;
use joulefs_f2fs::{InPlace, MountOptions, Volume};
use vfs::FileSystem;

use crate::delta_nodes::Work;
use crate::deltas::{File, judge, work};
use crate::log_rig::with_deltas;
use crate::log_rig::*;

const BLOCK: usize = 4096;

fn mounted(dev: Arc<dyn BlockDevice>, delta_study: Study) -> Arc<Volume> {
    let places = MountOptions { delta_places: Places::Nodes, in_place: InPlace::Few(0), ..MountOptions::default() };
    Volume::mount(dev, clock(), MountOptions { delta_study, ..places }).unwrap()
}

const PACKED: Study = Study { alone: true, longest: 3000, beside: Beside::Inode, at_any_price: false };

/// A page of compressible text.
fn text(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut out = Vec::new();
    while out.len() < BLOCK {
        out.extend_from_slice(
            format!("{:>8} wrote a line of its journal, and nothing else happened\n", rng.below(1 << 20)).as_bytes(),
        );
    }
    out.truncate(BLOCK);
    out
}

/// Blocks written and flushes of an fsync, and the blocks by cause.
fn cost(before: &CountSnapshot, after: &CountSnapshot) -> (u64, u64, [u64; 3]) {
    let spent = after - before;
    let by = [Cause::DeltaNode, Cause::DeltaMeta, Cause::FsyncNode].map(|c| spent[c as u8].blocks_written);
    (spent.total().blocks_written, spent.total().flushes, by)
}

#[test]
fn medfs_own_layout_writes_compact_page_meta_page_and_inode() {
    let cut = Arc::new(PowerCut::new(with_deltas(64)));
    let dev = Arc::new(Counting::new(cut.clone()));
    let vol = mounted(dev.clone(), Study::MEDFS);
    let f = new_file(&vol, vol.root(), "f");
    let mut contents = pattern(1, 100 * BLOCK);
    write(&vol, f, 0, &contents);
    vol.fsync(f, false).unwrap();
    for round in 0..12 {
        for page in [0, 40, 90] {
            let at = page * BLOCK + 40 * round;
            contents[at..at + 8].fill(round as u8 + 1);
            write(&vol, f, at as u64, &contents[at..at + 8]);
        }
        let before = dev.snapshot();
        vol.fsync(f, false).unwrap();
        // The first fsync creates them.
        assert_eq!(cost(&before, &dev.snapshot()), (3, 1, [1, 1, 1]), "round {round}");
        for loss in [Loss::AllLost, Loss::AllKept] {
            let same = recovered(&cut.image(loss), |vol| read_all(vol, find(vol, "f").unwrap()) == contents);
            assert!(same, "round {round}");
        }
    }
    assert_eq!(vol.counters.deltas.load(Relaxed), 36);
    vol.unmount().unwrap();
    let image = cut.image(Loss::AllKept);
    assert_clean(&image, "unmounted");
    // Another mount reads it and continues with its own use.
    let dev = Arc::new(Counting::new(image));
    let vol = mounted(dev.clone(), Study::default());
    let f = find(&vol, "f").unwrap();
    assert!(read_all(&vol, f) == contents);
    contents[5..9].fill(99);
    write(&vol, f, 5, &contents[5..9]);
    vol.fsync(f, false).unwrap();
    vol.unmount().unwrap();
    settle(dev.clone(), clock(), &mut |_, _| ()).unwrap().unwrap();
    assert_tools_clean(&dev.inner().fork());
    let vol = mount_copy(&dev.inner().fork());
    assert!(read_all(&vol, find(&vol, "f").unwrap()) == contents);
}

/// A mount with this layout, of the files that a former mount left.
fn as_user(dev: Arc<dyn BlockDevice>, study: Study, files: &mut BTreeMap<String, File>) -> Option<Arc<Volume>> {
    let vol = Volume::mount(dev, clock(), MountOptions { delta_study: study, ..MountOptions::default() }).ok()?;
    for (name, f) in files {
        *f = File {
            ino: find(&vol, name)?,
            durable: Some(f.now.clone()),
            touched: false,
            now: std::mem::take(&mut f.now),
        };
    }
    Some(vol)
}

#[test]
fn what_was_synced_survives_a_cut_at_any_write_when_mounts_use_both_layouts_in_turn() {
    let (mut cuts, mut deltas) = (0, [0, 0]);
    for seed in 0..4 {
        let turns = if seed % 2 == 0 { [Study::default(), Study::MEDFS] } else { [Study::MEDFS, Study::default()] };
        let base = with_deltas(56);
        let mut before = BTreeMap::new();
        let dev = Arc::new(base);
        let vol = as_user(dev.clone(), turns[0], &mut before).unwrap();
        work(&vol, &mut before, 40 + seed, 300).unwrap();
        deltas[0] += vol.counters.deltas.load(Relaxed);
        vol.unmount().unwrap();
        drop(vol);
        let writes = {
            let (cut, mut files) = (power_cut(&dev), before.clone());
            let vol = as_user(cut.clone(), turns[1], &mut files).unwrap();
            work(&vol, &mut files, seed, 150).unwrap();
            deltas[1] += vol.counters.deltas.load(Relaxed);
            for (name, f) in &files {
                assert!(read_all(&vol, f.ino) == f.now, "seed {seed}: {name}");
            }
            cut.write_count()
        };
        for at in (seed..writes).step_by(7) {
            let (cut, mut files) = (power_cut(&dev), before.clone());
            cut.cut_after(at);
            let Some(vol) = as_user(cut.clone(), turns[1], &mut files) else { continue };
            if work(&vol, &mut files, seed, 150).is_ok() {
                continue;
            }
            drop(vol);
            let images = [cut.image(Loss::AllLost), cut.image(Loss::AllKept), cut.survivors(at), cut.survivors(at + 1)];
            for (n, image) in images.iter().enumerate() {
                judge(image, &files, &format!("seed {seed}, write {at}, loss {n}"));
                cuts += 1;
            }
        }
    }
    assert!(cuts > 250 && deltas.iter().all(|made| *made > 40), "{cuts} cuts, {deltas:?} deltas");
}

#[test]
fn what_was_synced_of_a_large_file_in_medfs_layout_survives_a_cut_at_any_write() {
    let mut cuts = 0;
    for seed in 0..2 {
        let base = with_deltas(64);
        let run = |cut: &Arc<PowerCut>| {
            let mut work = Work::default();
            let vol = as_user(cut.clone(), Study::MEDFS, &mut BTreeMap::new())?;
            let ended = work.run(&vol, seed, 120);
            Some((work, ended.is_ok(), vol.counters.deltas.load(Relaxed)))
        };
        let cut = power_cut(&base);
        let (_, _, deltas) = run(&cut).unwrap();
        assert!(deltas > 30, "{deltas}");
        for at in (seed..cut.write_count()).step_by(5) {
            let cut = power_cut(&base);
            cut.cut_after(at);
            let Some((work, false, _)) = run(&cut) else { continue };
            if work.durable.is_none() {
                continue;
            }
            for (n, image) in [cut.image(Loss::AllLost), cut.image(Loss::AllKept), cut.survivors(at)].iter().enumerate()
            {
                let when = format!("seed {seed}, write {at}, loss {n}");
                recovered(image, |vol| assert!(work.allows(&read_all(vol, find(vol, "f").expect(&when))), "{when}"));
                cuts += 1;
            }
        }
    }
    assert!(cuts > 50, "{cuts}");
}

#[test]
fn pages_that_are_packed_by_themselves_survive_and_cost_a_node_and_the_inode() {
    let cut = Arc::new(PowerCut::new(with_deltas(64)));
    let dev = Arc::new(Counting::new(cut.clone()));
    let vol = mounted(dev.clone(), PACKED);
    let f = new_file(&vol, vol.root(), "f");
    let mut contents: Vec<u8> = (0..40).flat_map(text).collect();
    write(&vol, f, 0, &contents);
    vol.sync().unwrap();
    for round in 0..6 {
        // Completely different pages: no delta would be short.
        for page in 0..2_usize {
            let at = (7 * page + 1) * BLOCK;
            contents[at..at + BLOCK].copy_from_slice(&text(1000 * round + page as u64));
            write(&vol, f, at as u64, &contents[at..at + BLOCK]);
        }
        let before = dev.snapshot();
        vol.fsync(f, false).unwrap();
        let (blocks, flushes, _) = cost(&before, &dev.snapshot());
        assert!(blocks <= 3 && flushes == 1, "round {round}: {blocks} blocks, {flushes} flushes");
        for loss in [Loss::AllLost, Loss::AllKept] {
            let same = recovered(&cut.image(loss), |vol| read_all(vol, find(vol, "f").unwrap()) == contents);
            assert!(same, "round {round}");
        }
    }
    assert_eq!(vol.counters.packed.load(Relaxed), 12);
    // Pages behind the end have no block yet.
    contents.extend((0..3).flat_map(|n| text(77 + n)));
    write(&vol, f, 40 * BLOCK as u64, &contents[40 * BLOCK..]);
    vol.fsync(f, false).unwrap();
    // A single page is written as a whole block: packing would save nothing.
    let before = vol.counters.packed.load(Relaxed);
    contents[9 * BLOCK..10 * BLOCK].copy_from_slice(&text(5000));
    write(&vol, f, 9 * BLOCK as u64, &contents[9 * BLOCK..10 * BLOCK]);
    vol.fsync(f, false).unwrap();
    assert_eq!(vol.counters.packed.load(Relaxed), before);
    vol.unmount().unwrap();
    let image = cut.image(Loss::AllKept);
    assert_clean(&image, "unmounted");
    let vol = mount_copy(&image);
    assert!(read_all(&vol, find(&vol, "f").unwrap()) == contents);
    let dev = Arc::new(image);
    settle(dev.clone(), clock(), &mut |_, _| ()).unwrap().unwrap();
    assert_tools_clean(&dev.fork());
}

#[test]
fn a_longer_threshold_takes_longer_deltas() {
    for (longest, expected) in [(819, 0), (2048, 4)] {
        let dev = Arc::new(with_deltas(64));
        let vol = mounted(dev.clone(), Study { longest, ..Study::default() });
        let f = new_file(&vol, vol.root(), "f");
        let mut contents = pattern(1, 20 * BLOCK);
        write(&vol, f, 0, &contents);
        vol.fsync(f, false).unwrap();
        for page in 0..4 {
            let at = page * BLOCK + 100;
            contents[at..at + 1200].copy_from_slice(&pattern(page as u64 + 5, 1200));
            write(&vol, f, at as u64, &contents[at..at + 1200]);
        }
        vol.fsync(f, false).unwrap();
        assert_eq!(vol.counters.deltas.load(Relaxed), expected, "{longest} bytes");
        vol.unmount().unwrap();
        assert_clean(&*dev, "unmounted");
        let vol = mount_copy(&dev.fork());
        assert!(read_all(&vol, find(&vol, "f").unwrap()) == contents);
    }
}
