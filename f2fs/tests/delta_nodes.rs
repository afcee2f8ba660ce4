//! Files too large for deltas in the inode: the cost of an fsync of small changes, and the state afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::{BlockDevice, Counting, Gate, Loss, Memory, Op, PowerCut, Rng};
use format::node::delta::MOST_NODES;
use joulefs_f2fs::delta::Reads;
use joulefs_f2fs::settle::settle;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{Allocate, FileSystem, Ino, SetAttr};

use crate::log_rig::with_deltas;
use crate::log_rig::*;

fn mount(dev: Arc<dyn BlockDevice>) -> Arc<Volume> {
    Volume::mount(dev, clock(), at_any_price()).unwrap()
}

const BLOCK: usize = 4096;

/// Changes some bytes of a page, both in `contents` and in the file.
fn nudge(vol: &Volume, f: Ino, contents: &mut [u8], at: usize, bytes: usize, seed: u64) {
    let range = at..contents.len().min(at + bytes);
    contents[range.clone()].copy_from_slice(&pattern(seed + 1000, range.len()));
    write(vol, f, range.start as u64, &contents[range]);
}

/// Mounts the image left by a cut and checks it; then settles it, for Linux's tools and another mount.
fn assert_recovers(image: &Memory, name: &str, right: impl Fn(&[u8]) -> bool, when: &str) {
    recovered(image, |vol| assert!(right(&read_all(vol, find(vol, name).expect(when))), "{when}"));
    let dev = Arc::new(image.fork());
    settle(dev.clone(), clock(), &mut |_, _| ()).unwrap();
    assert_tools_clean(&dev);
    let vol = mount_copy(&dev);
    assert!(right(&read_all(&vol, find(&vol, name).unwrap())), "{when}, settled");
}

/// A synced file of `blocks` blocks without a delta node.
fn large_file(vol: &Volume, blocks: usize) -> (Ino, Vec<u8>) {
    let f = new_file(vol, vol.root(), "f");
    let contents = pattern(1, blocks * BLOCK);
    write(vol, f, 0, &contents);
    vol.fsync(f, false).unwrap();
    (f, contents)
}

#[test]
fn an_fsync_of_small_changes_writes_one_block_and_flushes_once_whatever_the_files_size() {
    for blocks in [900, 3000, 12_000] {
        let dev = Arc::new(Counting::new(with_deltas(128)));
        let vol = mount(dev.clone());
        let (f, mut contents) = large_file(&vol, blocks);
        let mut rng = Rng::new(7);
        let mut more = 0;
        for round in 0..60 {
            if round % 20 == 10 {
                // Writes of an fsync before a checkpoint stay valid after it.
                vol.sync().unwrap();
            }
            for _ in 0..1 + rng.below(4) {
                let page = rng.below(blocks as u64) as usize;
                nudge(&vol, f, &mut contents, page * BLOCK + rng.below(4000) as usize, 30, round);
            }
            let before = dev.snapshot().total();
            vol.fsync(f, round % 3 == 0).unwrap();
            let cost = dev.snapshot().total() - before;
            assert_eq!(cost.flushes, 1, "{blocks} blocks, round {round}");
            more += cost.blocks_written - 1;
        }
        // A new delta node is entered in the root, which costs a block.
        assert!(more <= 3, "{blocks} blocks: {more} more than 60");
        assert!(vol.counters.deltas.load(Relaxed) > 100);
        assert!(read_all(&vol, f) == contents);
        vol.unmount().unwrap();
        assert_clean(&*dev, "unmounted");
        let vol = mount(dev.clone());
        assert!(read_all(&vol, f) == contents, "another mount");
    }
}

#[test]
fn size_and_times_that_only_a_delta_node_has_survive_a_cut() {
    let cut = power_cut(&with_deltas(128));
    let now = clock();
    let vol = Volume::mount(cut.clone(), now.clone(), at_any_price()).unwrap();
    let (f, mut contents) = large_file(&vol, 2000);
    contents.extend(pattern(2, 100));
    write(&vol, f, 2000 * BLOCK as u64, &contents[2000 * BLOCK..]);
    vol.fsync(f, false).unwrap();
    let mut noted = 0;
    for round in 0..20 {
        now.advance(Duration::from_millis(1500));
        // It grows within its last page.
        let more = pattern(50 + round, 20);
        write(&vol, f, contents.len() as u64, &more);
        contents.extend(more);
        nudge(&vol, f, &mut contents, 500 * BLOCK, 8, round);
        vol.fsync(f, false).unwrap();
        noted = vol.counters.deltas.load(Relaxed);
        let attr = vol.getattr(f).unwrap();
        for loss in [Loss::AllLost, Loss::AllKept] {
            let image = cut.image(loss);
            recovered(&image, |vol| {
                let found = vol.getattr(find(vol, "f").unwrap()).unwrap();
                assert_eq!((found.size, found.mtime, found.ctime), (attr.size, attr.mtime, attr.ctime), "{round}");
            });
            assert_recovers(&image, "f", |held| held == contents, &format!("round {round}"));
        }
    }
    assert!(noted > 30, "{noted}");
}

#[test]
fn a_delta_for_which_no_node_has_room_leaves_the_older_one_until_its_page_is_written() {
    let cut = power_cut(&with_deltas(128));
    let dev = Arc::new(Gate::new(cut.clone()));
    let vol = mount(dev.clone());
    let (f, mut contents) = large_file(&vol, 2000);
    // Fills every node with eight deltas of about 480 bytes.
    for group in 0..MOST_NODES + 2 {
        (0..8).for_each(|i| nudge(&vol, f, &mut contents, (group * 8 + i) * BLOCK, 472, i as u64));
        vol.fsync(f, false).unwrap();
    }
    let ino = format::Ino(f.0 as u32);
    let before = vol.deltas_in(ino).unwrap();
    assert!((8 * MOST_NODES - 22..=8 * MOST_NODES).contains(&before), "{before}");
    let old = contents.clone();
    // For two pages in one node, only one new delta fits.
    for page in 160..176 {
        nudge(&vol, f, &mut contents, page * BLOCK, 805, 9);
    }
    dev.stop(Op::Flush, None);
    let images: Vec<Memory> = std::thread::scope(|scope| {
        let syncer = scope.spawn(|| vol.fsync(f, true).unwrap());
        assert!(dev.await_one());
        let kept = [Loss::AllKept, Loss::AllLost].map(|loss| cut.image(loss));
        let images = kept.into_iter().chain((0..20).map(|seed| cut.survivors(seed))).collect();
        dev.go_on();
        syncer.join().unwrap();
        images
    });
    assert!(vol.deltas_in(ino).unwrap() < before, "some found no room");
    let page = |of: &[u8], at: usize| of[at * BLOCK..(at + 1) * BLOCK].to_vec();
    for (n, image) in images.iter().enumerate() {
        let held = recovered(image, |vol| read_all(vol, find(vol, "f").unwrap()));
        assert!((0..2000).all(|p| [&old, &contents].iter().any(|of| page(of, p) == page(&held, p))), "image {n}");
    }
    for loss in [Loss::AllLost, Loss::AllKept] {
        assert_recovers(&cut.image(loss), "f", |held| held == contents, "after the fsync");
    }
}

#[test]
fn a_file_that_is_only_read_loses_its_deltas_while_nobody_uses_the_volume() {
    let dev = Arc::new(Counting::new(with_deltas(128)));
    let now = clock();
    let options = MountOptions { delta_return: true, ..at_any_price() };
    let vol = Volume::mount(dev.clone(), now.clone(), options).unwrap();
    let (f, contents) = large_file(&vol, 2000);
    let contents = std::cell::RefCell::new(contents);
    let nudge = |at: usize, seed: u64| nudge(&vol, f, &mut contents.borrow_mut(), at, 8, seed);
    for round in 0..25 {
        (0..8).for_each(|i| nudge((round as usize * 8 + i) * 10 * BLOCK, round));
        vol.fsync(f, false).unwrap();
    }
    let ino = format::Ino(f.0 as u32);
    assert_eq!(vol.deltas_in(ino).unwrap(), 200);
    // By a mount with empty caches.
    let reads = || {
        vol.sync().unwrap();
        let dev = Arc::new(Counting::new(dev.inner().fork()));
        let vol = mount(dev.clone());
        let before = dev.snapshot().total().reads;
        assert!(read_all(&vol, f) == *contents.borrow());
        dev.snapshot().total().reads - before
    };
    let with_deltas = reads();
    let wait = |seconds: u64| {
        now.advance(Duration::from_secs(seconds));
        vol.tick().unwrap();
    };
    // In a window with writes, they stay.
    wait(61);
    wait(10);
    assert_eq!(vol.counters.restored.load(Relaxed), 0);
    let mut page = [0; BLOCK];
    (0..300).for_each(|i| assert_eq!(vol.read(f, i * BLOCK as u64, &mut page).unwrap(), BLOCK));
    wait(61);
    assert_eq!(vol.counters.restored.load(Relaxed), 0, "somebody has just read");
    wait(1);
    wait(10);
    wait(10);
    assert_eq!((vol.counters.restored.load(Relaxed), vol.deltas_in(ino).unwrap()), (200, 0));
    // The pages are now elsewhere, so reading them takes the same number of requests as before.
    assert!(reads() <= with_deltas, "{} for {with_deltas}", reads());
    // While it is only read, it gets no new ones.
    (0..4).for_each(|i| nudge(i * 1000, 7));
    vol.fsync(f, false).unwrap();
    assert_eq!(vol.deltas_in(ino).unwrap(), 0);
    vol.unmount().unwrap();
    assert_clean(&*dev, "unmounted");
    assert!(read_all(&mount(dev.clone()), f) == *contents.borrow());
}

/// Random work on one large file. Ends at the first error, which a cut causes; `durable` is then the last promised
/// state, and `since` the pages changed after it.
#[derive(Default)]
pub(crate) struct Work {
    now: Vec<u8>,
    pub(crate) durable: Option<Vec<u8>>,
    since: std::collections::BTreeSet<usize>,
    /// The file was truncated or its pages moved since.
    reshaped: bool,
}

impl Work {
    pub(crate) fn run(&mut self, vol: &Volume, seed: u64, steps: usize) -> vfs::Result<()> {
        let new =
            vfs::NewNode { kind: vfs::FileKind::Regular, perm: 0o644, umask: 0, rdev: vfs::DeviceNumber::default() };
        let f = vol.mknod(ROOT, vol.root(), b"f", &new)?.attr.ino;
        self.put(vol, f, 0, &pattern(seed, 1400 * BLOCK))?;
        vol.fsync(f, false)?;
        self.promised();
        let mut rng = Rng::new(seed);
        for step in 0..steps as u64 {
            let len = self.now.len();
            match rng.below(40) {
                0..=17 => {
                    for _ in 0..=rng.below(3) {
                        let (at, n) = (rng.below(len as u64) as usize, 1 + rng.below(60) as usize);
                        let data = pattern(step, n.min(len - at));
                        self.put(vol, f, at, &data)?;
                    }
                }
                18..=20 => {
                    // A few pages are hot, and their changes grow each time.
                    let at = (rng.below(6) * 200) as usize * BLOCK + rng.below(3000) as usize;
                    if at + 700 < len {
                        self.put(vol, f, at, &pattern(step, 700))?;
                    }
                }
                21..=22 => {
                    let at = rng.below(len as u64) as usize;
                    self.put(vol, f, at, &pattern(step, 5000))?;
                }
                23 => self.put(vol, f, len, &pattern(step, 1 + rng.below(3000) as usize))?,
                24 => {
                    let size = len - rng.below(len.min(40 * BLOCK) as u64) as usize;
                    self.now.truncate(size);
                    self.reshaped = true;
                    vol.setattr(f, &SetAttr { size: Some(size as u64), ..SetAttr::default() })?;
                }
                25 => {
                    let (at, n) = (rng.below(len as u64) as usize, 1 + rng.below(4 * BLOCK as u64) as usize);
                    let end = len.min(at + n);
                    self.now[at..end].fill(0);
                    self.since.extend(at / BLOCK..=end / BLOCK);
                    vol.fallocate(f, Allocate::PunchHole, at as u64, n as u64)?;
                }
                26 if step % 3 == 0 => {
                    let at = rng.below((len / BLOCK) as u64 - 2) as usize * BLOCK;
                    self.reshaped = true;
                    vol.fallocate(f, Allocate::Collapse, at as u64, BLOCK as u64)?;
                    self.now.drain(at..at + BLOCK);
                }
                27 => drop(vol.clean_in_foreground()?),
                28 => {
                    vol.sync()?;
                    self.promised();
                }
                _ => {
                    vol.fsync(f, rng.below(2) == 0)?;
                    self.promised();
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, vol: &Volume, f: Ino, at: usize, data: &[u8]) -> vfs::Result<()> {
        self.now.resize(self.now.len().max(at + data.len()), 0);
        self.now[at..at + data.len()].copy_from_slice(data);
        self.since.extend(at / BLOCK..=(at + data.len()) / BLOCK);
        vol.write(f, at as u64, data, vfs::WriteFlags::empty()).map(drop)
    }

    fn promised(&mut self) {
        *self = Work { now: std::mem::take(&mut self.now), ..Work::default() };
        self.durable = Some(self.now.clone());
    }

    /// Every page that did not change since the promise is unchanged.
    pub(crate) fn allows(&self, held: &[u8]) -> bool {
        let Some(durable) = &self.durable else { return true };
        let page = |of: &[u8], at: usize| of.get(at * BLOCK..of.len().min((at + 1) * BLOCK)).map(<[u8]>::to_vec);
        self.reshaped
            || (0..durable.len().div_ceil(BLOCK))
                .filter(|at| !self.since.contains(at))
                .all(|at| page(durable, at) == page(held, at))
    }
}

#[test]
fn a_large_file_with_deltas_holds_what_one_without_holds() {
    let (mut deltas, mut folded) = (0, 0);
    for seed in 0..6 {
        let dev = Arc::new(with_deltas(64));
        let vol = mount(dev.clone());
        let mut work = Work::default();
        work.run(&vol, seed, 700).unwrap();
        let f = find(&vol, "f").unwrap();
        assert!(read_all(&vol, f) == work.now, "seed {seed}");
        deltas += vol.counters.deltas.load(Relaxed);
        folded += vol.counters.folded.load(Relaxed);
        vol.unmount().unwrap();
        assert_clean(&*dev, "unmounted");
        assert_recovers(&dev.fork(), "f", |held| held == work.now, &format!("seed {seed}, unmounted"));
    }
    assert!(deltas > 2000 && folded > 20, "{deltas} deltas, {folded} folded");
}

#[test]
fn what_was_synced_of_a_large_file_survives_a_cut_at_any_write() {
    // If all bases are read, more pages become deltas; if few are, more are overwritten in place.
    let options = |seed| {
        let delta_reads = if seed % 2 == 0 { Reads::All } else { Reads::Few };
        MountOptions { delta_reads, ..at_any_price() }
    };
    let mut cuts = 0;
    for seed in 0..4 {
        let base = with_deltas(64);
        let writes = {
            let cut = power_cut(&base);
            let vol = Volume::mount(cut.clone(), clock(), options(seed)).unwrap();
            Work::default().run(&vol, seed, 120).unwrap();
            let deltas = vol.counters.deltas.load(Relaxed);
            assert!(deltas > 30, "{deltas}");
            cut.write_count()
        };
        for at in (seed..writes).step_by(5) {
            let cut: Arc<PowerCut> = power_cut(&base);
            cut.cut_after(at);
            let Ok(vol) = Volume::mount(cut.clone(), clock(), options(seed)) else { continue };
            let mut work = Work::default();
            if work.run(&vol, seed, 120).is_ok() || work.durable.is_none() {
                continue;
            }
            drop(vol);
            for (n, image) in [cut.image(Loss::AllLost), cut.image(Loss::AllKept), cut.survivors(at)].iter().enumerate()
            {
                let when = format!("seed {seed}, write {at}, loss {n}");
                recovered(image, |vol| assert!(work.allows(&read_all(vol, find(vol, "f").expect(&when))), "{when}"));
                cuts += 1;
            }
        }
    }
    assert!(cuts > 100, "{cuts}");
}
