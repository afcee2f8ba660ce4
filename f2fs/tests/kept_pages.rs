//! Journals and logs whose blocks consist of kept pages: the cost of an fsync, and the state afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{BlockDevice, Counting, Loss, Memory, Rng};
use joulefs_f2fs::Volume;
use joulefs_f2fs::settle::settle;
use vfs::{Allocate, FileSystem, Ino, Seek, SetAttr};

use crate::log_rig::with_deltas;
use crate::log_rig::*;

fn mount(dev: Arc<dyn BlockDevice>) -> Arc<Volume> {
    Volume::mount(dev, clock(), at_any_price()).unwrap()
}

const PAGE: usize = 4096;

/// Slightly changing database pages, and their records.
struct Database {
    pages: Vec<Vec<u8>>,
    rng: Rng,
}

impl Database {
    fn new(pages: usize, seed: u64) -> Self {
        // Text that compresses to about a half, like rows of a table.
        let words = ["hello ", "to ", "you ", "meet ", "again ", "at nine ", "in town "];
        let mut rng = Rng::new(seed);
        let page = |rng: &mut Rng| {
            let mut bytes = Vec::new();
            while bytes.len() < PAGE {
                bytes.extend_from_slice(words[rng.below(7) as usize].as_bytes());
                bytes.push(rng.below(256) as u8);
            }
            bytes.truncate(PAGE);
            bytes
        };
        let pages = (0..pages).map(|_| page(&mut rng)).collect();
        Database { pages, rng }
    }

    /// Changes some pages; returns their numbers, from 1.
    fn change(&mut self) -> Vec<usize> {
        let mut changed: Vec<usize> = (0..1 + self.rng.below(5))
            .map(|_| (self.rng.below(self.pages.len() as u64) * self.rng.below(16) / 16) as usize + 1)
            .collect();
        changed.sort_unstable();
        changed.dedup();
        for number in &changed {
            let at = self.rng.below(4000) as usize;
            let new = pattern(self.rng.below(1 << 30), 1 + self.rng.below(60) as usize);
            self.pages[number - 1][at..at + new.len()].copy_from_slice(&new);
        }
        changed
    }
}

/// A file and its contents.
struct File {
    ino: Ino,
    holds: Vec<u8>,
}

impl File {
    fn new(vol: &Volume, name: &str) -> Self {
        File { ino: new_file(vol, vol.root(), name), holds: Vec::new() }
    }
    fn put(&mut self, vol: &Volume, at: usize, bytes: &[u8]) {
        write(vol, self.ino, at as u64, bytes);
        self.holds.resize(self.holds.len().max(at + bytes.len()), 0);
        self.holds[at..at + bytes.len()].copy_from_slice(bytes);
    }
    fn cut(&mut self, vol: &Volume, size: usize) {
        vol.setattr(self.ino, &SetAttr { size: Some(size as u64), ..SetAttr::default() }).unwrap();
        self.holds.resize(size, 0);
    }
    fn assert_holds(&self, vol: &Volume, when: &str) {
        let held = read_all(vol, self.ino);
        let wrong = held.iter().zip(&self.holds).position(|(a, b)| a != b);
        assert!(held == self.holds, "{when}: {} and {} bytes, first wrong {wrong:?}", held.len(), self.holds.len());
    }
}

/// A write-ahead log in SQLite's format.
struct Log {
    file: File,
    frames: usize,
    lap: u32,
}

impl Log {
    fn new(vol: &Volume) -> Self {
        let mut log = Log { file: File::new(vol, "chat.db-wal"), frames: 0, lap: 0 };
        log.begin(vol);
        log
    }
    fn begin(&mut self, vol: &Volume) {
        let mut head = [0; 32];
        head[..4].copy_from_slice(&0x377F_0682_u32.to_be_bytes());
        head[8..12].copy_from_slice(&4096_u32.to_be_bytes());
        self.lap += 1;
        head[16..20].copy_from_slice(&self.lap.to_be_bytes());
        self.file.put(vol, 0, &head);
        self.frames = 0;
    }
    /// One transaction, without its fsync.
    fn append(&mut self, vol: &Volume, db: &mut Database) {
        let changed = db.change();
        self.append_pages(vol, db, &changed);
    }
    fn append_pages(&mut self, vol: &Volume, db: &Database, pages: &[usize]) {
        for &number in pages {
            let mut head = [0; 24];
            head[..4].copy_from_slice(&(number as u32).to_be_bytes());
            head[8..12].copy_from_slice(&self.lap.to_be_bytes());
            head[16..24].copy_from_slice(&pattern(u64::from(self.lap) << 20 | self.frames as u64, 8));
            let at = 32 + self.frames * (24 + PAGE);
            self.file.put(vol, at, &head);
            self.file.put(vol, at + 24, &db.pages[number - 1]);
            self.frames += 1;
        }
    }
}

/// One transaction of a rollback journal, before the database is written: its records, an fsync, its header, an fsync.
fn journal(vol: &Volume, file: &mut File, db: &mut Database) {
    let old = db.pages.clone();
    let changed = db.change();
    let mut head = vec![0; 512];
    head[20..24].copy_from_slice(&512_u32.to_be_bytes());
    head[24..28].copy_from_slice(&4096_u32.to_be_bytes());
    let nonce = pattern(db.rng.below(1 << 40), 4);
    head[12..16].copy_from_slice(&nonce);
    file.put(vol, 0, &head);
    for (record, number) in changed.iter().enumerate() {
        let at = 512 + record * (PAGE + 8);
        file.put(vol, at, &(*number as u32).to_be_bytes());
        file.put(vol, at + 4, &old[number - 1]);
        file.put(vol, at + 4 + PAGE, &nonce);
    }
    vol.fsync(file.ino, true).unwrap();
    file.put(vol, 0, &[0xD9, 0xD5, 5, 0xF9, 0x20, 0xA1, 0x63, 0xD7, 0, 0, 0, changed.len() as u8]);
    vol.fsync(file.ino, true).unwrap();
}

fn settled(image: &Memory, name: &str, holds: &[u8], when: &str) {
    let dev = Arc::new(image.fork());
    settle(dev.clone(), clock(), &mut |_, _| ()).unwrap();
    assert_tools_clean(&dev);
    let vol = mount_copy(&dev);
    assert!(read_all(&vol, find(&vol, name).unwrap()) == holds, "{when}, settled");
}

#[test]
fn a_log_costs_about_one_block_for_each_transaction_and_is_there_after_a_cut() {
    let cut = power_cut(&with_deltas(128));
    let dev = Arc::new(Counting::new(cut.clone()));
    let mut vol = mount(dev.clone());
    let mut db = Database::new(40, 1);
    let mut log = Log::new(&vol);
    let before = dev.snapshot().total();
    for round in 0..400 {
        if log.frames > 100 {
            log.begin(&vol);
        }
        log.append(&vol, &mut db);
        vol.fsync(log.file.ino, round % 2 == 0).unwrap();
        if round % 40 == 7 {
            log.file.assert_holds(&vol, &format!("round {round}"));
            for loss in [Loss::AllLost, Loss::AllKept] {
                recovered(&cut.image(loss), |vol| {
                    let held = read_all(vol, find(vol, "chat.db-wal").unwrap());
                    assert!(held == log.file.holds, "round {round}, {loss:?}");
                });
            }
        }
        if round % 100 == 60 {
            vol.sync().unwrap();
        }
        if round == 250 {
            vol.unmount().unwrap();
            assert_clean(&*dev, "unmounted");
            vol = mount(dev.clone());
            log.file.assert_holds(&vol, "another mount");
        }
    }
    let cost = dev.snapshot().total() - before;
    // 400 transactions of 2.6 pages; without deltas, each takes 3.6 blocks. Most of the excess over 400 is 40 pages
    // logged for the first time, and the checkpoints.
    assert!(cost.blocks_written < 760 && cost.flushes < 460, "{cost:?}");
    assert!(vol.counters.deltas.load(Relaxed) > 200);
    settled(&cut.image(Loss::AllLost), "chat.db-wal", &log.file.holds, "the end");
    vol.unlink(vol.root(), b"chat.db-wal").unwrap();
    vol.forget(log.file.ino, 1);
    vol.unmount().unwrap();
    assert_clean(&*dev, "without the log");
}

#[test]
fn a_journal_that_is_kept_or_cut_is_there_after_every_fsync() {
    for cuts in [false, true] {
        let cut = power_cut(&with_deltas(128));
        let dev = Arc::new(Counting::new(cut.clone()));
        let vol = mount(dev.clone());
        let mut db = Database::new(30, 2);
        let mut file = File::new(&vol, "chat.db-journal");
        let before = dev.snapshot().total();
        for round in 0..200 {
            journal(&vol, &mut file, &mut db);
            if round % 20 == 3 {
                let when = format!("round {round}, cut {cuts}");
                file.assert_holds(&vol, &when);
                recovered(&cut.image(Loss::AllLost), |vol| {
                    let held = read_all(vol, find(vol, "chat.db-journal").unwrap());
                    assert!(held == file.holds, "{when}");
                });
            }
            match cuts {
                true => file.cut(&vol, 0),
                false => file.put(&vol, 0, &[0; 28]),
            }
            if round % 50 == 20 {
                vol.sync().unwrap();
                file.assert_holds(&vol, "synced");
            }
        }
        let cost = dev.snapshot().total() - before;
        // Two fsyncs of one block each; for a truncated journal the inode is written too.
        assert!(cost.blocks_written < if cuts { 1000 } else { 560 }, "cut {cuts}: {cost:?}");
        vol.fsync(file.ino, false).unwrap();
        settled(&cut.image(Loss::AllLost), "chat.db-journal", &file.holds, "the end");
        vol.unmount().unwrap();
        assert_clean(&*dev, "unmounted");
    }
}

#[test]
fn whatever_else_is_done_to_a_log_it_holds_what_was_written() {
    let mut seen = 0;
    for seed in 0..12 {
        let cut = power_cut(&with_deltas(128));
        let mut vol = mount(cut.clone());
        let mut db = Database::new(20, seed);
        let mut log = Log::new(&vol);
        let mut rng = Rng::new(seed + 100);
        for step in 0..120 {
            let when = format!("seed {seed}, step {step}");
            let size = log.file.holds.len();
            match rng.below(16) {
                0 if size > PAGE => {
                    let at = rng.below((size / PAGE) as u64) as usize * PAGE;
                    let len = (1 + rng.below(3) as usize) * PAGE;
                    vol.fallocate(log.file.ino, Allocate::PunchHole, at as u64, len as u64).unwrap();
                    let end = size.min(at + len);
                    log.file.holds[at..end].fill(0);
                }
                1 => log.file.put(&vol, rng.below(1 + size as u64) as usize, &pattern(step, 6000)),
                2 => {
                    let to = rng.below(1 + size as u64) as usize;
                    log.file.cut(&vol, to);
                    log.frames = to.saturating_sub(32) / (24 + PAGE);
                }
                3 if size > 8 * PAGE => {
                    vol.fallocate(log.file.ino, Allocate::Collapse, 2 * PAGE as u64, PAGE as u64).unwrap();
                    log.file.holds.drain(2 * PAGE..3 * PAGE);
                }
                4 => vol.sync().unwrap(),
                5 => {
                    vol.fsync(log.file.ino, false).unwrap();
                    vol.unmount().unwrap();
                    assert_clean(&cut, &when);
                    vol = mount(cut.clone());
                    log.file.ino = find(&vol, "chat.db-wal").unwrap();
                }
                6 => log.begin(&vol),
                7 => {
                    let end = vol.seek(log.file.ino, 0, Seek::Hole);
                    assert!(size == 0 || end.is_ok(), "{when}");
                }
                _ => log.append(&vol, &mut db),
            }
            if rng.below(3) > 0 {
                vol.fsync(log.file.ino, rng.below(2) == 0).unwrap();
                if rng.below(4) == 0 {
                    recovered(&cut.image(Loss::AllLost), |vol| {
                        let held = read_all(vol, find(vol, "chat.db-wal").unwrap());
                        assert!(held == log.file.holds, "{when}");
                    });
                }
            }
            log.file.assert_holds(&vol, &when);
        }
        seen += vol.counters.deltas.load(Relaxed);
        vol.fsync(log.file.ino, false).unwrap();
        settled(&cut.image(Loss::AllLost), "chat.db-wal", &log.file.holds, "the end");
    }
    assert!(seen > 300, "{seen}");
}

#[test]
fn pages_for_which_no_node_has_room_are_written_and_no_later_block_is_made_of_them() {
    let cut = power_cut(&with_deltas(128));
    let vol = mount(cut.clone());
    let mut db = Database::new(400, 3);
    let mut log = Log::new(&vol);
    for round in 0..500 {
        // Each page occurs once, then again.
        log.append_pages(&vol, &db, &[round % 400 + 1]);
        vol.fsync(log.file.ino, true).unwrap();
        if round % 50 == 49 {
            log.file.assert_holds(&vol, &format!("round {round}"));
        }
    }
    assert!(vol.counters.kept.load(Relaxed) > 150);
    for _ in 0..100 {
        log.append(&vol, &mut db);
        vol.fsync(log.file.ino, true).unwrap();
    }
    log.file.assert_holds(&vol, "the end");
    settled(&cut.image(Loss::AllLost), "chat.db-wal", &log.file.holds, "the end");
}

#[test]
fn a_page_that_comes_again_after_its_blocks_are_gone_is_made_of_what_is_still_there() {
    let cut = power_cut(&with_deltas(128));
    let vol = mount(cut.clone());
    let mut db = Database::new(170, 4);
    let mut log = Log::new(&vol);
    for lap in 0..4 {
        for round in 0..170 {
            let page = if lap % 2 == 0 { round + 1 } else { 170 - round };
            let change = pattern((lap * 1000 + round) as u64, 9);
            db.pages[page - 1][round * 20..round * 20 + 9].copy_from_slice(&change);
            log.append_pages(&vol, &db, &[page]);
            vol.fsync(log.file.ino, true).unwrap();
        }
        log.file.assert_holds(&vol, &format!("lap {lap}"));
        recovered(&cut.image(Loss::AllLost), |vol| {
            assert!(read_all(vol, find(vol, "chat.db-wal").unwrap()) == log.file.holds, "lap {lap}");
        });
        log.begin(&vol);
    }
}

#[test]
fn blocks_that_only_kept_pages_tell_of_are_data_for_who_seeks_it() {
    let dev = Arc::new(with_deltas(64));
    let vol = mount(dev.clone());
    let mut db = Database::new(8, 5);
    let mut log = Log::new(&vol);
    for _ in 0..20 {
        log.append(&vol, &mut db);
        vol.fsync(log.file.ino, false).unwrap();
    }
    assert!(vol.counters.deltas.load(Relaxed) > 20);
    vol.unmount().unwrap();
    let vol = mount(dev.clone());
    let ino = find(&vol, "chat.db-wal").unwrap();
    let size = log.file.holds.len() as u64;
    assert_eq!(vol.seek(ino, 0, Seek::Hole).unwrap(), size);
    for at in (0..size).step_by(PAGE) {
        assert_eq!(vol.seek(ino, at, Seek::Data).unwrap(), at);
    }
}

#[test]
fn room_that_a_log_got_ahead_is_given_back_at_the_unmount_and_room_that_was_asked_for_stays() {
    let dev = Arc::new(with_deltas(64));
    let vol = mount(dev.clone());
    let mut db = Database::new(8, 5);
    let mut log = Log::new(&vol);
    let blocks = |vol: &Volume| vol.getattr(find(vol, "chat.db-wal").unwrap()).unwrap().blocks512 / 8;
    for _ in 0..12 {
        log.append(&vol, &mut db);
        vol.fsync(log.file.ino, false).unwrap();
    }
    let needed = log.file.holds.len().div_ceil(PAGE) as u64;
    let nodes_and = |vol: &Volume| blocks(vol) - needed;
    let before = nodes_and(&vol);
    vol.unmount().unwrap();
    assert_tools_clean_settled(&dev);
    let vol = mount(dev.clone());
    // The inode and delta nodes.
    let after = nodes_and(&vol);
    assert!(after <= 8 && before > after + 4, "{before} blocks more than it needs before, {after} after");
    log.file.ino = find(&vol, "chat.db-wal").unwrap();
    log.file.assert_holds(&vol, "another mount");
    let free = vol.statfs().unwrap().blocks_free;
    log.append(&vol, &mut db);
    vol.fsync(log.file.ino, false).unwrap();
    // A user reserves blocks behind the end.
    let keep = Allocate::Reserve { keep_size: true };
    vol.fallocate(log.file.ino, keep, log.file.holds.len() as u64, 50 * PAGE as u64).unwrap();
    vol.unmount().unwrap();
    let vol = mount(dev.clone());
    let used = free - vol.statfs().unwrap().blocks_free;
    assert!((50..60).contains(&used), "{used} blocks");
    log.file.ino = find(&vol, "chat.db-wal").unwrap();
    log.file.assert_holds(&vol, "with room of its own");
}

fn assert_tools_clean_settled(dev: &Memory) {
    assert_clean(dev, "unmounted");
    let dev = Arc::new(dev.fork());
    settle(dev.clone(), clock(), &mut |_, _| ()).unwrap();
    assert_tools_clean(&dev);
}

#[test]
fn a_log_whose_kept_pages_have_had_all_numbers_is_written_whole_and_loses_nothing() {
    use format::node::delta as in_node;
    use format::node::kept::{KEPT, encode_head};
    let dev = Arc::new(with_deltas(64));
    let vol = mount(dev.clone());
    let mut db = Database::new(20, 6);
    let mut log = Log::new(&vol);
    for _ in 0..10 {
        log.append(&vol, &mut db);
        vol.fsync(log.file.ino, true).unwrap();
    }
    vol.unmount().unwrap();
    // A kept page with the highest number but two.
    let image = dev.fork();
    let places = judges::delta_nodes::Places::of(&image);
    let ino = format::Ino(log.file.ino.0 as u32);
    let (_, nid) = *places.delta_nodes(&image, ino).last().unwrap();
    let generation = format::inode::RawInode::of(&places.node(&image, ino.nid())).i_generation.get();
    let block = u32::MAX - 3;
    let page = [9; PAGE];
    let payload = encode_head(777, None, &format::delta::codec::encode_alone(&page, PAGE).unwrap());
    let check = format::delta::check(places.seed(), ino, generation, block, &page);
    let entry = in_node::Entry { block, codec: format::delta::Codec::Alone, check, payload: &payload };
    places.edit(&image, nid, true, |b| assert!(in_node::rewrite(b, |_| true, &[entry])));
    let dev = Arc::new(image);
    assert_clean(&*dev, "forged");
    let vol = mount(dev.clone());
    log.file.ino = find(&vol, "chat.db-wal").unwrap();
    log.file.assert_holds(&vol, "forged");
    for lap in 0..3 {
        for _ in 0..25 {
            log.append(&vol, &mut db);
            vol.fsync(log.file.ino, true).unwrap();
        }
        log.file.assert_holds(&vol, "no numbers are left");
        recovered(&dev.fork(), |vol| {
            assert!(read_all(vol, find(vol, "chat.db-wal").unwrap()) == log.file.holds, "lap {lap}")
        });
        log.begin(&vol);
    }
    let kept = vol.counters.kept.load(Relaxed);
    assert!(kept <= u64::from(u32::MAX - KEPT - (block - KEPT)), "{kept} kept pages more");
    // The numbers of a recreated log start from the first.
    vol.unlink(vol.root(), b"chat.db-wal").unwrap();
    vol.forget(log.file.ino, 1);
    let mut log = Log::new(&vol);
    for _ in 0..10 {
        log.append(&vol, &mut db);
        vol.fsync(log.file.ino, true).unwrap();
    }
    assert!(vol.counters.kept.load(Relaxed) > kept + 5);
    vol.unmount().unwrap();
    assert_tools_clean_settled(&dev);
}
