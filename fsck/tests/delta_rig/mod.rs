//! A volume with two files that have delta nodes and a zone, and what must remain after a repair of it.
#![allow(dead_code)] // each test uses a part

use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Tag};
use f2fs::mkfs::Options;
use f2fs::{MountOptions, Volume};
use format::inode::RawInode;
use format::node::delta;
use format::superblock::Features;
use format::{BLOCK, Ino, Nid, bits, nat};
use fsck::{Action, FindingKind as K};
use judges::damage::{block, clock};
use judges::delta_nodes::{Node, Places};
use judges::oracle::tools::assert_fsck_clean;
use vfs::{Caller, FileKind, FileSystem, NewNode, WriteFlags};

/// Contents of file block `index` of a file.
pub fn page(file: u64, index: u32) -> Vec<u8> {
    let mut out = vec![0; BLOCK];
    device::Rng::new(file << 32 | u64::from(index)).fill(&mut out);
    out
}

/// The same contents, changed for the `n`-th time.
pub fn changed(file: u64, index: u32, n: u8) -> Vec<u8> {
    let mut out = page(file, index);
    (0..40).for_each(|i| out[100 + 64 * i] ^= n);
    out
}

/// File blocks of the files, the last two below direct nodes.
pub const BLOCKS: [u32; 8] = [0, 1, 2, 3, 4, 5, 1000, 3000];

/// A volume with delta nodes: files `a` and `b` have three each.
pub struct Fixture {
    pub dev: Memory,
    pub places: Places,
    /// File `a` and its nodes with indices 0, 1 and 5.
    pub a: Ino,
    pub nids: Vec<Nid>,
    /// File `b` and its nodes.
    pub b: Ino,
    pub other: Vec<Nid>,
}

/// Contents of `a` and `b`: blocks 0 and 3 without deltas, block 1 in the root, block 2 in both others, of which
/// index 1 is older.
fn nodes(file: u64) -> [Node; 3] {
    [
        Node { number: 0, age: 1, pages: vec![(1, changed(file, 1, 1)), (1000, changed(file, 1000, 1))] },
        Node { number: 1, age: 2, pages: vec![(2, changed(file, 2, 1)), (4, changed(file, 4, 1))] },
        Node { number: 5, age: 3, pages: vec![(2, changed(file, 2, 2)), (3000, changed(file, 3000, 1))] },
    ]
}

/// Contents of block `index`.
pub fn held(file: u64, index: u32) -> Vec<u8> {
    match index {
        1 | 4 | 1000 | 3000 => changed(file, index, 1),
        2 => changed(file, 2, 2),
        _ => page(file, index),
    }
}

impl Fixture {
    pub fn new() -> Self {
        let dev = Arc::new(Memory::new(64 * 256));
        let features = Options::modern().features | Features::DELTA;
        f2fs::mkfs::format(&*dev, &*clock(), &Options { features, ..Options::modern() }).unwrap();
        let vol = Volume::mount(dev.clone(), clock(), MountOptions::default()).unwrap();
        let inos: Vec<Ino> = ["a", "b"]
            .into_iter()
            .zip(1..)
            .map(|(name, file)| {
                let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
                let ino = vol.mknod(Caller::default(), vol.root(), name.as_bytes(), &new).unwrap().attr.ino;
                for index in BLOCKS {
                    let at = u64::from(index) * BLOCK as u64;
                    vol.write(ino, at, &page(file, index), WriteFlags::empty()).unwrap();
                }
                Ino(ino.0 as u32)
            })
            .collect();
        vol.unmount().unwrap();
        let dev = dev.fork();
        let [a, b] = inos[..] else { unreachable!() };
        let nids = Places::of(&dev).give(&dev, a, &nodes(1));
        let other = Places::of(&dev).give(&dev, b, &nodes(2));
        let places = Places::of(&dev);
        Fixture { dev, places, a, nids, b, other }
    }

    /// Inserts a delta of an address slot into the zone of `a`, so that its page becomes `page`, or with a wrong
    /// check.
    pub fn put_in_zone(&self, slot: u32, page: &[u8], wrong: bool) {
        let base = block(&self.dev, self.places.base(&self.dev, self.a, slot).0.into());
        let mut payload = Vec::new();
        let page: &format::Block = page.try_into().unwrap();
        let codec = format::delta::codec::encode(&base, page, format::delta::LONGEST, &mut payload).unwrap();
        self.places.edit(&self.dev, self.a.nid(), true, |b| {
            let raw = RawInode::of_mut(b);
            let check = format::delta::check(self.places.seed(), self.a, raw.i_generation.get(), slot, page);
            let check = check ^ u32::from(wrong);
            let d = raw.divide(self.places.sb.features).unwrap();
            assert!(format::delta::insert(raw, d, &format::delta::Entry { slot, codec, check, payload: &payload }));
        });
    }

    /// Changes the inode of `a` under a correct checksum.
    pub fn forge_inode(&self, change: impl FnOnce(&mut RawInode)) {
        self.places.edit(&self.dev, self.a.nid(), true, |b| change(RawInode::of_mut(b)));
    }

    /// Changes a delta node of `a` under a correct checksum.
    pub fn forge(&self, k: usize, change: impl FnOnce(&mut format::Block)) {
        self.places.edit(&self.dev, self.nids[k], true, change);
    }

    pub fn check(&self) -> fsck::Report {
        fsck::check(&self.dev, &fsck::Options::default()).unwrap()
    }

    #[track_caller]
    pub fn finds(&self, what: impl Fn(&K) -> bool) {
        let report = self.check();
        assert!(report.findings.iter().any(|f| what(&f.kind)), "not found:\n{report}");
        assert!(!report.is_clean());
    }

    /// Demands a repair after which nothing is found, and which drops the deltas of these blocks of `a`; `None`
    /// stands for unknown blocks. Returns its other actions.
    #[track_caller]
    pub fn repairs(&self, given_up: &[Option<u32>]) -> Vec<Action> {
        let done =
            fsck::repair(&self.dev, &fsck::Options::default()).unwrap_or_else(|e| panic!("{e}\n{}", self.check()));
        let (mut lost, mut rest) = (Vec::new(), Vec::new());
        for action in done.actions {
            match action {
                Action::DeltasGivenUp { ino, block } => {
                    assert_eq!(ino, self.a);
                    lost.push(block);
                }
                other => rest.push(other),
            }
        }
        lost.sort_unstable();
        assert_eq!(lost, given_up, "{rest:?}");
        let report = self.check();
        assert!(report.is_clean(), "{report}");
        let again = fsck::repair(&self.dev, &fsck::Options::default()).unwrap();
        assert_eq!((again.actions.len(), again.checkpoints), (0, 0));
        // The second judge knows no deltas: it checks the tree without them.
        self.judged_without_deltas();
        rest
    }

    /// `fsck.f2fs` finds nothing after the delta nodes are removed.
    fn judged_without_deltas(&self) {
        let dev = self.dev.fork();
        for ino in [self.a, self.b] {
            strip(&dev, ino);
        }
        for copy in [0, 1] {
            let mut b = block(&dev, copy);
            let mut raw = format::superblock::RawSuperBlock::of(&b).clone();
            raw.magic = format::superblock::MAGIC.into();
            raw.store(&mut b);
            dev.write(Lba(copy), &b[..], Tag::default()).unwrap();
        }
        fsck::repair(&dev, &fsck::Options::default()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        dev.save(&image).unwrap();
        assert_fsck_clean(&image);
    }

    /// Contents of each file block from the current entries, by `fsck`'s own walk.
    pub fn page_of(&self, ino: Ino, index: u32) -> Vec<u8> {
        let places = Places::of(&self.dev);
        let inode = places.node(&self.dev, ino.nid());
        let raw = RawInode::of(&inode);
        let at = places.base(&self.dev, ino, index);
        let base = if at.is_real() { block(&self.dev, at.0.into()) } else { Box::new([0; BLOCK]) };
        let nodes = places.delta_nodes(&self.dev, ino);
        let mut blocks: Vec<_> = nodes.iter().map(|(_, nid)| places.node(&self.dev, *nid)).collect();
        blocks.sort_by_key(|b| delta::age(b));
        let division = raw.divide(places.sb.features).unwrap();
        let in_zone = format::delta::find(raw, division, index);
        let in_nodes = blocks.iter().filter_map(|b| delta::find(b, index)).next_back();
        let entry = match (in_zone, in_nodes) {
            (Some(e), _) => (e.codec, e.payload, e.check),
            (None, Some(e)) => (e.codec, e.payload, e.check),
            (None, None) => return base.to_vec(),
        };
        let page = format::node::kept::decode(&|_| None, entry.0, entry.1, Some(&base)).unwrap();
        let check = format::delta::check(places.seed(), ino, raw.i_generation.get(), index, &page[..]);
        assert_eq!(check, entry.2, "block {index}");
        page.to_vec()
    }

    /// Demands that `a` has these contents in these blocks and its old ones in all others, and that `b` is
    /// unchanged.
    #[track_caller]
    pub fn holds(&self, but: &[(u32, Vec<u8>)]) {
        for index in BLOCKS {
            let expected = but.iter().find(|(b, _)| *b == index).map_or_else(|| held(1, index), |(_, p)| p.clone());
            assert!(self.page_of(self.a, index) == expected, "block {index} of a");
            assert!(self.page_of(self.b, index) == held(2, index), "block {index} of b");
        }
    }
}

/// Removes the delta nodes of a file from an image without updating its tables.
fn strip(dev: &Memory, ino: Ino) {
    let places = Places::of(dev);
    places.edit(dev, ino.nid(), true, |b| format::delta::set_root(RawInode::of_mut(b), None));
}

pub fn nat_edit(dev: &Memory, places: &Places, nid: Nid, change: impl FnOnce(&mut nat::NatEntry)) {
    let (n, i) = nat::position(nid);
    let at = places.sb.nat_block(n, bits::msb_test(&places.cp.nat_bitmap, n as usize));
    let mut table = block(dev, at.0.into());
    let mut entry = nat::get(&table, i);
    change(&mut entry);
    nat::put(&mut table, i, entry);
    dev.write(Lba(at.0.into()), &table[..], Tag::default()).unwrap();
}
