//! Each field of a delta node, of kept pages in one, of a root's mark and of a zone gets wrong values, with a matching
//! checksum and with a wrong one. There is no panic or hang; reading a file gives its contents or an error, or `fsck`
//! has a finding; a repair names everything it loses; and its result is clean, also for `fsck.f2fs` after settling.
//!
//! Some forgeries with a matching checksum cannot be detected: an age that makes older deltas count, the number of a
//! block of which another node has a newer delta, that of a kept page, and a stamp, which only roll-forward reads.
//! These must still cause no crash.

use std::sync::Arc;

use device::{BLOCK, BlockDevice, Lba, Memory, Tag};
use f2fs::{MountOptions, Volume, mkfs};
use format::delta::{self, Codec};
use format::inode::RawInode;
use format::node::delta::KEPT;
use format::node::{self, FOOTER};
use format::superblock::Features;
use format::{Block, Ino, Nid};
use fsck::Action;
use judges::damage::{block, clock};
use judges::delta_nodes::Places;
use judges::oracle::tools::assert_fsck_clean;
use vfs::{Caller, FileKind, FileSystem, NewNode, WriteFlags};

use crate::endure::{all_end_well, watched};

/// The files' blocks: the long file has the last block below direct nodes.
const BLOCKS: [u64; 9] = [0, 1, 2, 3, 4, 5, 6, 1000, 3000];
const NAMES: [&[u8]; 3] = [b"zoned", b"noted", b"x.db-wal"];
/// The file whose blocks are composed of kept pages.
const LOG: usize = 2;

/// A volume with a file that has a zone, one that has delta nodes, and a log composed of kept pages; and their
/// contents.
struct Base {
    dev: Memory,
    inos: [Ino; 3],
    pages: [Vec<Vec<u8>>; 3],
}

/// The blocks of a file.
fn blocks(file: usize, pages: &[Vec<u8>]) -> Vec<u64> {
    if file == LOG { (0..pages.len() as u64).collect() } else { BLOCKS[..pages.len()].to_vec() }
}

/// A write-ahead log as SQLite writes it, with few pages that change a little, synced after each transaction.
fn write_log(vol: &Volume, ino: vfs::Ino) -> Vec<u8> {
    let mut rng = device::Rng::new(77);
    let line = |n: u64| format!("{n:>6} rows of a table that compress to a half or less\n").into_bytes();
    let mut pages: Vec<Vec<u8>> =
        (0..5_u64).map(|page| (0..).flat_map(|i| line(page * 1000 + i * i)).take(BLOCK).collect()).collect();
    let mut log = vec![0; 32];
    log[..4].copy_from_slice(&0x377F_0682_u32.to_be_bytes());
    log[8..12].copy_from_slice(&4096_u32.to_be_bytes());
    let mut written = 0;
    for transaction in 0..12_u32 {
        for _ in 0..1 + rng.below(2) {
            let page = rng.index(pages.len());
            let at = rng.index(BLOCK - 20);
            rng.fill(&mut pages[page][at..at + 9]);
            let mut head = [0; 24];
            head[..4].copy_from_slice(&(page as u32 + 1).to_be_bytes());
            head[16..20].copy_from_slice(&transaction.to_be_bytes());
            log.extend_from_slice(&head);
            log.extend_from_slice(&pages[page]);
        }
        vol.write(ino, written as u64, &log[written..], WriteFlags::empty()).unwrap();
        written = log.len();
        vol.fsync(ino, true).unwrap();
    }
    log
}

fn base() -> Base {
    let dev = Arc::new(Memory::new(64 * 256));
    let features = mkfs::Options::modern().features | Features::DELTA;
    mkfs::format(&*dev, &*clock(), &mkfs::Options { features, ..mkfs::Options::modern() }).unwrap();
    let vol = Volume::mount(dev.clone(), clock(), MountOptions::default()).unwrap();
    let mut pages = [0, 1].map(|file| {
        let page = |index: &u64| {
            let mut page = vec![0; BLOCK];
            device::Rng::new(file << 32 | index).fill(&mut page);
            page
        };
        BLOCKS.iter().map(page).collect::<Vec<_>>()
    });
    let new = |name: &[u8]| {
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
        vol.mknod(Caller::default(), vol.root(), name, &new).unwrap().attr.ino
    };
    let [zoned, noted] = [0, 1].map(|file| {
        let ino = new(NAMES[file]);
        for (index, page) in BLOCKS.iter().zip(&pages[file]).take(if file == 0 { 7 } else { 9 }) {
            vol.write(ino, index * BLOCK as u64, page, WriteFlags::empty()).unwrap();
        }
        ino
    });
    let inos = [zoned, noted, new(NAMES[LOG])];
    pages[0].truncate(7);
    vol.sync().unwrap();
    let mut change = |file: usize, k: usize, n: u8, bytes: usize| {
        for i in 0..bytes {
            let at = 40 + i * 13;
            pages[file][k][at] ^= n;
            let at_file = BLOCKS[k] * BLOCK as u64 + at as u64;
            vol.write(inos[file], at_file, &pages[file][k][at..=at], WriteFlags::empty()).unwrap();
        }
    };
    (0..3).for_each(|k| change(0, k, 5, 9));
    vol.fsync(inos[0], false).unwrap();
    for n in 1..12 {
        // More than fits in a node, so that there are several, with older deltas in them.
        [0, 1, 2, 4, 5, 7, 8].into_iter().for_each(|k| change(1, k, n, 260));
        vol.fsync(inos[1], false).unwrap();
        change(1, 3, n, 60);
        vol.fsync(inos[1], false).unwrap();
    }
    let kept = vol.counters.kept.load(std::sync::atomic::Ordering::Relaxed);
    let log = write_log(&vol, inos[LOG]);
    assert!(vol.counters.kept.load(std::sync::atomic::Ordering::Relaxed) > kept + 8, "few kept pages");
    let [zoned, noted] = pages;
    let pages = [zoned, noted, log.chunks(BLOCK).map(<[u8]>::to_vec).collect()];
    vol.unmount().unwrap();
    Base { dev: dev.fork(), inos: inos.map(|ino| Ino(ino.0 as u32)), pages }
}

/// The forged structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum In {
    /// The file's delta node at this index.
    Node(usize),
    /// The mark in this file's inode.
    Mark(usize),
    /// The zone, from its end backwards.
    Zone,
    /// The log's delta node at this index.
    Kept(usize),
}

#[derive(Clone, Debug)]
struct Lie {
    of: In,
    at: usize,
    width: usize,
    sealed: bool,
    value: u64,
}

impl Lie {
    /// True if no other byte of the volume contradicts it.
    fn is_beyond_judges(&self, base: &Base) -> bool {
        let of_a_node = matches!(self.of, In::Node(_) | In::Kept(_)) && self.sealed;
        // A delta forged into a kept page of missing blocks: such pages may be left over.
        let kept = self.value >= u64::from(KEPT) && self.may_move_a_delta(base);
        of_a_node && ((12..48).contains(&self.at) || kept || self.is_said_to_be_superseded(base))
    }
    /// True if a delta is forged to be for a block of which another node has a newer one: then it is never read.
    fn is_said_to_be_superseded(&self, base: &Base) -> bool {
        let (k, file) = match self.of {
            In::Node(k) => (k, 1),
            In::Kept(k) => (k, LOG),
            In::Mark(_) | In::Zone => return false,
        };
        let places = Places::of(&base.dev);
        let nodes = places.delta_nodes(&base.dev, base.inos[file]);
        let node = |n: usize| places.node(&base.dev, nodes[n].1);
        let newer = |n: &usize| node::delta::age(&node(*n)) > node::delta::age(&node(k));
        let has = |n: usize| node::delta::entries(&node(n)).any(|e| u64::from(e.block) == self.value);
        self.may_move_a_delta(base) && (0..nodes.len()).filter(newer).any(has)
    }
    /// True if it may assign a delta to another block: the original block is no longer known.
    fn may_move_a_delta(&self, base: &Base) -> bool {
        let places = Places::of(&base.dev);
        match self.of {
            In::Node(k) => {
                self.at == first_entry(&places.node(&base.dev, places.delta_nodes(&base.dev, base.inos[1])[k].1))
            }
            In::Kept(k) => {
                let b = places.node(&base.dev, places.delta_nodes(&base.dev, base.inos[LOG])[k].1);
                entries_at(&b).iter().any(|(at, ..)| *at == self.at)
            }
            In::Zone => true,
            In::Mark(_) => false,
        }
    }
}

/// Offset of a node's first entry, from its list.
fn first_entry(b: &Block) -> usize {
    48 + 4 * usize::from(b[9])
}

/// Offset, block and codec of each entry in a node.
fn entries_at(b: &Block) -> Vec<(usize, u32, Codec)> {
    let mut at = first_entry(b);
    let mut found = Vec::new();
    for e in node::delta::entries(b) {
        found.push((at, e.block, e.codec));
        at += e.bytes();
    }
    found
}

fn lies(base: &Base) -> Vec<Lie> {
    let places = Places::of(&base.dev);
    let nodes = places.delta_nodes(&base.dev, base.inos[1]);
    assert!(nodes.len() > 1, "one delta node alone");
    let mut out = Vec::new();
    let mut add = |of: In, bytes: &[u8], at: usize, width: usize, sealed: bool| {
        let old = bytes[..width].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let most = u64::MAX >> (64 - 8 * width);
        let wild = [0, 1, most, old.wrapping_add(1), old ^ 16, old << 1, 700, nodes[1].1.0.into()];
        let mut values: Vec<u64> = wild.into_iter().map(|v| v & most).filter(|v| *v != old).collect();
        values.sort_unstable();
        values.dedup();
        out.extend(values.into_iter().map(|value| Lie { of, at, width, sealed, value }));
    };
    for (k, (_, nid)) in nodes.iter().enumerate().filter(|(k, _)| [0, nodes.len() - 1].contains(k)) {
        let b = places.node(&base.dev, *nid);
        let e = first_entry(&b);
        let head =
            [(0, 4), (4, 2), (6, 2), (8, 1), (9, 1), (10, 2), (12, 4), (16, 8), (24, 8), (40, 4), (48, 4), (52, 4)];
        let entry = [(0, 4), (4, 2), (6, 1), (7, 1), (8, 4), (12, 1), (20, 2)].map(|(at, width)| (e + at, width));
        let footer = [(0, 4), (4, 4), (8, 4), (12, 8), (20, 4)].map(|(at, width)| (FOOTER + at, width));
        for (at, width) in head.into_iter().chain(entry).chain(footer) {
            add(In::Node(k), &b[at..], at, width, true);
            if width > 1 || at == 9 {
                add(In::Node(k), &b[at..], at, width, false);
            }
        }
    }
    // In the log's nodes: a separate kept page, one based on another, and a block composed of such pages.
    let of_log = places.delta_nodes(&base.dev, base.inos[LOG]);
    let mut kinds = [false; 3];
    for (k, (_, nid)) in of_log.iter().enumerate() {
        let b = places.node(&base.dev, *nid);
        for (at, block, codec) in entries_at(&b) {
            let kind = match codec {
                Codec::Alone => 0,
                Codec::Parts => 2,
                _ if block >= KEPT => 1,
                _ => continue,
            };
            if std::mem::replace(&mut kinds[kind], true) {
                continue;
            }
            // Head; key and base of a kept page; number of parts; and id, place and length of the first part.
            let fields: &[(usize, usize)] = match kind {
                2 => &[(0, 4), (4, 2), (6, 1), (8, 4), (12, 1), (13, 4), (17, 2), (19, 2), (21, 4)],
                _ => &[(0, 4), (4, 2), (6, 1), (8, 4), (12, 4), (16, 4), (20, 2)],
            };
            for (field, width) in fields {
                let from = at + field;
                add(In::Kept(k), &b[from..], from, *width, true);
                add(In::Kept(k), &b[from..], from, *width, false);
            }
        }
    }
    assert_eq!(kinds, [true; 3], "kinds of entries in the log's nodes");
    for file in 0..2 {
        let b = places.node(&base.dev, base.inos[file].nid());
        for at in [348, 352, 356] {
            add(In::Mark(file), &b[at..], at, 4, true);
            add(In::Mark(file), &b[at..], at, 4, false);
        }
    }
    let b = places.node(&base.dev, base.inos[0].nid());
    let d = RawInode::of(&b).divide(places.sb.features).unwrap();
    let (end, words) = (d.xattr_area().start, d.zone as usize);
    for (back, width) in [(8, 2), (6, 1), (5, 1), (4, 4)].into_iter().chain((3..=words).map(|w| (4 * w, 4))) {
        add(In::Zone, &b[end - back..], end - back, width, true);
        add(In::Zone, &b[end - back..], end - back, width, false);
    }
    out
}

fn forged(base: &Base, lie: &Lie) -> Memory {
    let image = base.dev.fork();
    let places = Places::of(&image);
    let nid = match lie.of {
        In::Node(k) => places.delta_nodes(&image, base.inos[1])[k].1,
        In::Kept(k) => places.delta_nodes(&image, base.inos[LOG])[k].1,
        In::Mark(file) => base.inos[file].nid(),
        In::Zone => base.inos[0].nid(),
    };
    let at = places.nat(&image, nid).addr;
    let mut b = block(&image, at.0.into());
    b[lie.at..lie.at + lie.width].copy_from_slice(&lie.value.to_le_bytes()[..lie.width]);
    match lie.of {
        _ if !lie.sealed || lie.at == 0 => {}
        // Forged fields are never in the footer, whose numbers enter the checksum.
        In::Node(_) | In::Kept(_) => node::delta::seal(places.seed(), &mut b),
        _ => format::inode::seal(places.sb.features, places.seed(), &mut b),
    }
    image.write(Lba(at.0.into()), &b[..], Tag::default()).unwrap();
    image
}

/// Each page of all files; `None` if reading fails.
fn read(vol: &Volume, base: &Base) -> [Vec<Option<Vec<u8>>>; 3] {
    [0, 1, 2].map(|file| {
        let ino = vol.lookup(vol.root(), NAMES[file]).map(|e| e.attr.ino);
        let page = |index: &u64| {
            let mut page = vec![0; BLOCK];
            let n = vol.read(*ino.as_ref().ok()?, index * BLOCK as u64, &mut page).ok()?;
            page.truncate(n);
            Some(page)
        };
        blocks(file, &base.pages[file]).iter().map(page).collect()
    })
}

fn mounted(image: &Memory) -> Option<Arc<Volume>> {
    Volume::mount(Arc::new(image.fork()), clock(), MountOptions::default()).ok()
}

/// Changes to both files, which may fail.
fn use_it(vol: &Volume) {
    for name in NAMES {
        let Ok(entry) = vol.lookup(vol.root(), name) else { continue };
        let ino = entry.attr.ino;
        for turn in 0..3 {
            for index in [0_u64, 2, 5, 1000, 3000, 3001] {
                let _ = vol.write(ino, index * BLOCK as u64 + 9, &[turn; 40], WriteFlags::empty());
            }
            let _ = vol.fsync(ino, turn == 1);
        }
        let _ = vol.fallocate(ino, vfs::Allocate::PunchHole, 2 * BLOCK as u64, BLOCK as u64);
        let _ = vol.fsync(ino, false);
    }
    let _ = vol.sync();
    let _ = vol.tick();
    let _ = vol.unmount();
}

/// `asked`: whether to run `fsck.f2fs`.
fn judge(base: &Base, image: &Memory, lie: &Lie, asked: bool) {
    let check = |dev: &Memory| fsck::check(dev, &fsck::Options::default()).unwrap();
    let report = check(image);
    let found = !report.findings.is_empty();
    if let Some(vol) = mounted(image) {
        for (file, pages) in read(&vol, base).into_iter().enumerate() {
            for (k, page) in pages.into_iter().enumerate() {
                let right = page.is_none_or(|page| page == base.pages[file][k]);
                assert!(right || found || lie.is_beyond_judges(base), "page {k} of file {file} is silently another");
            }
        }
        use_it(&vol);
    }
    let image = image.fork();
    let done = fsck::repair(&image, &fsck::Options::default()).unwrap_or_else(|e| panic!("repair: {e}\n{report}"));
    let after = check(&image);
    assert!(after.is_clean(), "after repair: {after}");
    assert!(fsck::repair(&image, &fsck::Options::default()).unwrap().actions.is_empty(), "a second repair has work");
    let vol = mounted(&image).expect("a repaired volume is mounted");
    let moved = lie.may_move_a_delta(base);
    for (file, pages) in read(&vol, base).into_iter().enumerate() {
        let named = |block: u64| {
            done.actions.iter().any(|a| match a {
                Action::DeltasGivenUp { ino, block: of } => {
                    *ino == base.inos[file] && (moved || of.is_none_or(|of| u64::from(of) == block))
                }
                Action::PackedLost { ino, block: of } => *ino == base.inos[file] && (moved || u64::from(*of) == block),
                _ => false,
            })
        };
        for (k, page) in pages.into_iter().enumerate() {
            let page = page.unwrap_or_else(|| panic!("page {k} of file {file} cannot be read after repair"));
            let right =
                page == base.pages[file][k] || named(blocks(file, &base.pages[file])[k]) || lie.is_beyond_judges(base);
            assert!(right, "page {k} of file {file} is another after repair, and nobody says so: {:?}", done.actions);
        }
    }
    use_it(&vol);
    drop(vol);
    let dev = Arc::new(image);
    f2fs::settle::settle(dev.clone(), clock(), &mut |_, _| ()).unwrap();
    let after = check(&dev);
    assert!(after.is_clean(), "after settling: {after}");
    if !asked {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    dev.save(&path).unwrap();
    assert_fsck_clean(&path);
}

/// Checks all forgeries of one kind.
fn are_survived_found_and_repaired(kind: impl Fn(In) -> bool) {
    let base = Arc::new(base());
    {
        let vol = mounted(&base.dev).unwrap();
        for (file, pages) in read(&vol, &base).into_iter().enumerate() {
            assert!(pages.into_iter().map(Option::unwrap).eq(base.pages[file].iter().cloned()), "file {file}");
        }
        let report = fsck::check(&base.dev, &fsck::Options::default()).unwrap();
        assert!(report.findings.is_empty(), "{report}");
        let inode = Places::of(&base.dev).node(&base.dev, base.inos[1].nid());
        assert!(delta::root(RawInode::of(&inode), Features::DELTA) != Some(Nid(0)));
    }
    let lies: Arc<Vec<Lie>> = Arc::new(lies(&base).into_iter().filter(|lie| kind(lie.of)).collect());
    let only = std::env::var("JOULEFS_REPLAY").ok().map(|n| n.parse::<u64>().expect("a number"));
    let cases: Vec<u64> = (0..lies.len() as u64).filter(|n| only.is_none_or(|only| only == *n)).collect();
    println!("{} lies", cases.len());
    let (from, all) = (base.clone(), lies.clone());
    let make = move |n| (forged(&from, &all[n as usize]), format!("{n}: {:?}", all[n as usize]));
    let judged = move |image: &Memory, name: &str| {
        let n: usize = name.split(':').next().and_then(|n| n.parse().ok()).expect("a number");
        judge(&base, image, &lies[n], n.is_multiple_of(8));
        true
    };
    all_end_well(watched(cases, make, judged));
}

#[test]
fn a_lie_in_any_field_of_a_delta_node_is_survived_found_and_repaired() {
    are_survived_found_and_repaired(|of| matches!(of, In::Node(_)));
}

#[test]
fn a_lie_in_any_field_of_kept_pages_is_survived_found_and_repaired() {
    are_survived_found_and_repaired(|of| matches!(of, In::Kept(_)));
}

#[test]
fn a_lie_in_any_field_of_a_zone_or_of_the_mark_of_deltas_is_survived_found_and_repaired() {
    are_survived_found_and_repaired(|of| matches!(of, In::Mark(_) | In::Zone));
}
