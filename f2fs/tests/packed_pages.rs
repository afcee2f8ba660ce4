//! New pages of small files packed in delta nodes: the cost of their fsync, and the state afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{BlockDevice, Counting, Loss, Memory, Rng};
use joulefs_f2fs::settle::settle;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{Allocate, FileSystem, Ino, RenameFlags, Seek, SetAttr};

use crate::log_rig::*;
use crate::log_rig::{new_file_or, with_deltas};

const BLOCK: usize = 4096;

/// Text that LZ4 compresses to about two fifths.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words: Vec<String> = (0..60).map(|n| format!("{:x} ", (n * n + 7) * (40 + seed % 9))).collect();
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        out.extend_from_slice(words[rng.below(60) as usize].as_bytes());
        if rng.below(4) == 0 {
            out.extend_from_slice(b"and that is what has been said before of it, ");
        }
    }
    out.truncate(len);
    out
}

fn settled(image: &Memory) -> Memory {
    let dev = Arc::new(image.fork());
    settle(dev.clone(), clock(), &mut |_, _| ()).unwrap().expect("it held deltas");
    dev.fork()
}

/// Blocks written by creating a file with these contents and syncing it.
fn cost(dev: Arc<dyn BlockDevice>, options: MountOptions, contents: &[u8]) -> (u64, u64, u64) {
    let dev = Arc::new(Counting::new(dev));
    let vol = Volume::mount(dev.clone(), clock(), options).unwrap();
    vol.sync().unwrap();
    let f = new_file(&vol, vol.root(), "f");
    write(&vol, f, 0, contents);
    let before = dev.snapshot().total();
    vol.fsync(f, false).unwrap();
    let cost = dev.snapshot().total() - before;
    (cost.blocks_written, cost.flushes, vol.counters.packed.load(Relaxed))
}

#[test]
fn pages_of_a_new_small_file_share_blocks_and_those_of_others_do_not() {
    let base = with_deltas(64);
    let on = |contents: &[u8]| cost(Arc::new(base.fork()), MountOptions::default(), contents);
    let off = |contents: &[u8]| {
        cost(Arc::new(base.fork()), MountOptions { delta: false, ..MountOptions::default() }, contents)
    };
    let page = text(1, 6 * BLOCK);
    let ((plain, plain_flushes, none), (packed, flushes, pages)) = (off(&page), on(&page));
    assert_eq!((plain, none, pages), (7, 0, 6));
    assert!(
        (4..=5).contains(&packed) && flushes < plain_flushes,
        "{packed} blocks, {flushes} of {plain_flushes} flushes"
    );
    for (of, contents) in [
        ("what does not compress", pattern(1, 6 * BLOCK)),
        ("one page, which a node would hold alone", text(1, BLOCK)),
        ("a large file", text(1, 40 * BLOCK)),
    ] {
        assert_eq!(on(&contents), off(&contents), "{of}");
    }
}

#[test]
fn a_packed_page_is_data_and_changes_again_where_it_lies() {
    let dev = Arc::new(Counting::new(with_deltas(64)));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    let mut contents = text(3, 5 * BLOCK);
    write(&vol, f, 0, &contents);
    vol.fsync(f, false).unwrap();
    assert_eq!(vol.counters.packed.load(Relaxed), 5);
    for page in 0..5 {
        assert_eq!(vol.seek(f, (page * BLOCK) as u64, Seek::Data).unwrap(), (page * BLOCK) as u64);
    }
    assert_eq!(vol.seek(f, 0, Seek::Hole).unwrap(), contents.len() as u64);
    for round in 0..6 {
        let before = dev.snapshot().total();
        let at = round * 700;
        contents[at..at + 20].copy_from_slice(&text(round as u64, 20));
        write(&vol, f, at as u64, &contents[at..at + 20]);
        vol.fsync(f, true).unwrap();
        let cost = dev.snapshot().total() - before;
        assert_eq!((cost.blocks_written, cost.flushes), (1, 1), "round {round}");
    }
    assert!(read_all(&vol, f) == contents);
    // A page that no longer compresses gets a block.
    contents[..BLOCK].copy_from_slice(&pattern(5, BLOCK));
    write(&vol, f, 0, &contents[..BLOCK]);
    vol.fsync(f, false).unwrap();
    vol.unmount().unwrap();
    assert_clean(&*dev, "unmounted");
    let vol = mount(dev.clone());
    assert!(read_all(&vol, find(&vol, "f").unwrap()) == contents, "another mount");
}

#[test]
fn a_document_saved_anew_again_and_again_never_costs_a_checkpoint() {
    let dev = Arc::new(Counting::new(with_deltas(64)));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    vol.sync().unwrap();
    for round in 0..8 {
        vol.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        let contents = text(round, 5 * BLOCK);
        write(&vol, f, 0, &contents);
        let (before, checkpoints) = (dev.snapshot().total(), vol.counters.checkpoints.load(Relaxed));
        vol.fsync(f, false).unwrap();
        let cost = dev.snapshot().total() - before;
        assert_eq!(vol.counters.checkpoints.load(Relaxed), checkpoints, "round {round}");
        assert!(cost.blocks_written <= 5 && cost.flushes == 1, "round {round}: {cost:?}");
        assert!(read_all(&vol, f) == contents, "round {round}");
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, "unmounted");
}

#[test]
fn a_volume_without_room_for_nodes_takes_packed_pages_as_blocks() {
    let dev = Arc::new(with_deltas(56));
    let vol = mount(dev.clone());
    let fill = new_file(&vol, vol.root(), "fill");
    let mut at = 0;
    while vol.write(fill, at, &pattern(at, 64 * BLOCK), vfs::WriteFlags::empty()).is_ok() {
        at += 64 * BLOCK as u64;
    }
    vol.setattr(fill, &SetAttr { size: Some(at - 60 * BLOCK as u64), ..SetAttr::default() }).unwrap();
    vol.sync().unwrap();
    let mut held = BTreeMap::new();
    for n in 0..60 {
        let name = format!("f{n}");
        let Ok(f) = new_file_or(&vol, &name) else { break };
        let contents = text(n, 4 * BLOCK);
        if vol.write(f, 0, &contents, vfs::WriteFlags::empty()) != Ok(contents.len()) {
            // Full: a partial write does not matter here.
            break;
        }
        vol.fsync(f, false).unwrap();
        held.insert(name, contents);
    }
    assert!(!held.is_empty() && held.len() < 60, "{}", held.len());
    vol.unmount().unwrap();
    assert_clean(&*dev, "full");
    let vol = mount(dev.clone());
    for (name, contents) in &held {
        assert!(read_all(&vol, find(&vol, name).unwrap()) == *contents, "{name}");
    }
}

struct File {
    ino: Ino,
    now: Vec<u8>,
    durable: Option<Vec<u8>>,
    touched: bool,
}

/// Random work on small text files; ends at the first error, which a cut causes.
fn work(vol: &Volume, files: &mut BTreeMap<String, File>, seed: u64, steps: usize) -> vfs::Result<()> {
    let mut rng = Rng::new(seed);
    for step in 0..steps as u64 {
        let name = format!("f{}", rng.below(4));
        if !files.contains_key(&name) {
            let ino = new_file_or(vol, &name)?;
            files.insert(name.clone(), File { ino, now: Vec::new(), durable: None, touched: true });
        }
        let f = files.get_mut(&name).unwrap();
        let blocks = f.now.len().div_ceil(BLOCK);
        f.touched = true;
        match rng.below(24) {
            0..=8 => {
                let room = if rng.below(8) == 0 { 20 * BLOCK } else { f.now.len() };
                let at = rng.below(1 + room as u64) as usize;
                let len = 1 + rng.below(5 * BLOCK as u64) as usize;
                let data = if rng.below(5) == 0 { pattern(step, len) } else { text(step, len) };
                f.now.resize(f.now.len().max(at + data.len()), 0);
                f.now[at..at + data.len()].copy_from_slice(&data);
                vol.write(f.ino, at as u64, &data, vfs::WriteFlags::empty())?;
            }
            9 => {
                let size = rng.below(1 + f.now.len() as u64 * 5 / 4);
                f.now.resize(size as usize, 0);
                vol.setattr(f.ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
            }
            10 if blocks > 2 => {
                let (at, len) = (rng.below(f.now.len() as u64), 1 + rng.below(3 * BLOCK as u64));
                let end = f.now.len().min((at + len) as usize);
                f.now[at as usize..end].fill(0);
                vol.fallocate(f.ino, Allocate::PunchHole, at, len)?;
            }
            11 if blocks > 3 => {
                let (at, len) = (rng.below(blocks as u64 - 2) as usize * BLOCK, BLOCK);
                vol.fallocate(f.ino, Allocate::Collapse, at as u64, len as u64)?;
                f.now.drain(at..at + len);
            }
            12 if blocks > 1 => {
                let at = rng.below(blocks as u64 - 1) as usize * BLOCK;
                vol.fallocate(f.ino, Allocate::Insert, at as u64, BLOCK as u64)?;
                f.now.splice(at..at, vec![0; BLOCK]);
            }
            13..=18 => {
                vol.fsync(f.ino, rng.below(2) == 0)?;
                (f.durable, f.touched) = (Some(f.now.clone()), false);
            }
            19 => {
                vol.sync()?;
                files.values_mut().for_each(|f| (f.durable, f.touched) = (Some(f.now.clone()), false));
            }
            20 => drop(vol.clean_in_foreground()?),
            21 => {
                // Saved to a new file, synced, renamed over the old one.
                let new = new_file_or(vol, "new")?;
                let data = text(step, 1 + rng.below(9 * BLOCK as u64) as usize);
                vol.write(new, 0, &data, vfs::WriteFlags::empty())?;
                vol.fsync(new, false)?;
                vol.rename(ROOT, (vol.root(), b"new"), (vol.root(), name.as_bytes()), RenameFlags::empty())?;
                vol.forget(f.ino, 1);
                *f = File { ino: new, now: data, durable: None, touched: true };
                if rng.below(2) == 0 {
                    vol.fsyncdir(vol.root(), false)?;
                } else {
                    vol.sync()?;
                    files.values_mut().for_each(|f| (f.durable, f.touched) = (Some(f.now.clone()), false));
                    continue;
                }
                // Its name is durable; its contents already were.
                (f.durable, f.touched) = (Some(f.now.clone()), false);
            }
            _ => {
                vol.unlink(vol.root(), name.as_bytes())?;
                vol.forget(f.ino, 1);
                files.remove(&name);
                vol.sync()?;
                files.values_mut().for_each(|f| (f.durable, f.touched) = (Some(f.now.clone()), false));
            }
        }
    }
    Ok(())
}

#[test]
fn files_with_packed_pages_hold_what_was_written() {
    let (mut packed, mut folded) = (0, 0);
    for seed in 0..8 {
        let dev = Arc::new(with_deltas(64));
        let vol = mount(dev.clone());
        let mut files = BTreeMap::new();
        for part in 0..8 {
            work(&vol, &mut files, 100 * seed + part, 100).unwrap();
            for (name, f) in &files {
                assert!(read_all(&vol, f.ino) == f.now, "seed {seed}, part {part}: {name}");
            }
        }
        packed += vol.counters.packed.load(Relaxed);
        folded += vol.counters.folded.load(Relaxed);
        vol.unmount().unwrap();
        assert_clean(&*dev, "unmounted");
        let plain = settled(&dev.fork());
        assert_tools_clean(&plain);
        for image in [&dev.fork(), &plain] {
            let vol = mount_copy(image);
            for (name, f) in &files {
                assert!(read_all(&vol, find(&vol, name).unwrap()) == f.now, "seed {seed}: {name} in another mount");
            }
        }
    }
    assert!(packed > 1500 && folded > 20, "{packed} packed, {folded} folded");
}

fn judge(image: &Memory, files: &BTreeMap<String, File>, when: &str) {
    let look = |vol: &Volume| {
        for (name, f) in files {
            let Some(durable) = f.durable.as_ref().filter(|_| !f.touched) else { continue };
            let held = find(vol, name).map(|ino| read_all(vol, ino));
            assert!(held.is_some_and(|held| held == *durable), "{when}: {name}");
        }
    };
    recovered(image, look);
    look(&mount_copy(&settled(image)));
}

#[test]
fn what_was_synced_survives_a_cut_at_any_write() {
    let (mut cuts, mut packed) = (0, 0);
    for seed in 0..4 {
        let base = with_deltas(56);
        let writes = {
            let cut = power_cut(&base);
            let vol = mount(cut.clone());
            work(&vol, &mut BTreeMap::new(), seed, 130).unwrap();
            packed += vol.counters.packed.load(Relaxed);
            cut.write_count()
        };
        for at in (seed..writes).step_by(4) {
            let cut = power_cut(&base);
            cut.cut_after(at);
            let Ok(vol) = Volume::mount(cut.clone(), clock(), MountOptions::default()) else { continue };
            let mut files = BTreeMap::new();
            if work(&vol, &mut files, seed, 130).is_ok() {
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
    assert!(cuts > 300 && packed > 100, "{cuts} cuts, {packed} packed");
}
