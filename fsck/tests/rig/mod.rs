//! Images made by f2fs-tools, functions that damage them, and the judge that must agree after a repair.
#![allow(dead_code)] // each test uses a part

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Mutex;

use device::{BlockDevice, Lba, Memory, Tag};
use format::checkpoint::{CHECKSUM_OFFSET, Checkpoint, RawCheckpoint};
use format::inode::{self, Inline, RawInode};
use format::superblock::{RawSuperBlock, SuperBlock};
use format::{BLOCK, Block, BlockAddr, Ino, Nid, SegNo, bits, crc, dentry, nat, node, sit, summary};
use fsck::{FindingKind, Repaired, Report};
use judges::oracle::tools::{Mkfs, Sload, assert_fsck_clean};
use zerocopy::{FromBytes, IntoBytes};

/// All features of mkfs.f2fs that change inodes.
pub const FEATURES: &[&str] = &[
    "extra_attr",
    "inode_checksum",
    "sb_checksum",
    "inode_crtime",
    "lost_found",
    "compression",
    "quota",
    "project_quota",
];

/// An image in memory with its decoded structures.
pub struct Volume {
    pub dev: Memory,
    pub sb: SuperBlock,
    pub cp: Checkpoint,
    /// First block of the current pack.
    pub pack: BlockAddr,
}

static IMAGES: Mutex<BTreeMap<Vec<&'static str>, Memory>> = Mutex::new(BTreeMap::new());

/// A filled volume, created once per feature set.
pub fn volume(features: &[&'static str]) -> Volume {
    let mut images = IMAGES.lock().unwrap_or_else(|e| e.into_inner());
    let dev = images.entry(features.to_vec()).or_insert_with(|| make(features)).fork();
    Volume::of(dev)
}

fn make(features: &[&str]) -> Memory {
    let dir = tempfile::tempdir().unwrap();
    let (image, tree) = (dir.path().join("image"), dir.path().join("tree"));
    fill_tree(&tree);
    let mkfs = Mkfs::with_features(features.iter().copied());
    mkfs.format(&image, 128 << 20).unwrap();
    Sload::default().fill(&image, &tree).unwrap();
    assert_fsck_clean(&image);
    Memory::load(&image).unwrap()
}

/// Files to damage: `many/` is a directory of several blocks, `big` has two direct nodes and an indirect one,
/// `tiny` is inline data, `twice` and `again` are one inode, `link` is a symbolic link.
fn fill_tree(at: &Path) {
    std::fs::create_dir_all(at.join("many")).unwrap();
    std::fs::create_dir_all(at.join("deep/er")).unwrap();
    for i in 0..400 {
        std::fs::write(at.join(format!("many/file_number_{i}")), format!("number {i}")).unwrap();
    }
    let bytes: Vec<u8> = (0..13u32 << 20).map(|i| (i / 4096 * 7 + i) as u8).collect();
    std::fs::write(at.join("big"), &bytes).unwrap();
    std::fs::write(at.join("mid"), &bytes[..50_000]).unwrap();
    std::fs::write(at.join("other"), &bytes[4096..40_000]).unwrap();
    std::fs::write(at.join("tiny"), b"inline").unwrap();
    std::fs::write(at.join("deep/er/leaf"), b"leaf").unwrap();
    std::fs::write(at.join("twice"), &bytes[..5000]).unwrap();
    std::fs::hard_link(at.join("twice"), at.join("again")).unwrap();
    symlink("many/file_number_1", at.join("link")).unwrap();
}

impl Volume {
    pub fn of(dev: Memory) -> Self {
        let sb = SuperBlock::check(&read(&dev, BlockAddr(0))).unwrap();
        let head = |k: u32| {
            let at = sb.cp.plus(512 * k);
            let v = format::checkpoint::version(&read(&dev, at));
            v.ok().map(|v| (v, at))
        };
        let (_, pack) = match (head(0), head(1)) {
            (Some(a), Some(b)) if b.0 > a.0 => b,
            (Some(a), _) => a,
            (None, b) => b.unwrap(),
        };
        let bytes: Vec<u8> = (0..=sb.cp_payload).flat_map(|i| read(&dev, pack.plus(i))).collect();
        let cp = Checkpoint::check(&sb, &bytes).unwrap();
        Volume { dev, sb, cp, pack }
    }

    pub fn read(&self, at: BlockAddr) -> Block {
        read(&self.dev, at)
    }
    pub fn write(&self, at: BlockAddr, block: &Block) {
        self.dev.write(Lba(at.0.into()), block, Tag::default()).unwrap();
    }
    pub fn edit(&self, at: BlockAddr, change: impl FnOnce(&mut Block)) {
        let mut block = self.read(at);
        change(&mut block);
        self.write(at, &block);
    }

    /// Address of the current NAT block for a node number, and the index of the entry. The entry must not be in the
    /// journal.
    pub fn nat_place(&self, nid: Nid) -> (BlockAddr, usize) {
        let (n, i) = nat::position(nid);
        (self.sb.nat_block(n, bits::msb_test(&self.cp.nat_bitmap, n as usize)), i)
    }
    pub fn nat(&self, nid: Nid) -> nat::NatEntry {
        let (at, i) = self.nat_place(nid);
        nat::get(&self.read(at), i)
    }
    pub fn edit_nat(&self, nid: Nid, change: impl FnOnce(&mut nat::NatEntry)) {
        let (at, i) = self.nat_place(nid);
        let mut entry = self.nat(nid);
        change(&mut entry);
        self.edit(at, |b| nat::put(b, i, entry));
    }
    pub fn edit_sit(&self, seg: SegNo, change: impl FnOnce(&mut sit::RawSitEntry)) {
        let n = seg.0 / sit::SIT_ENTRIES;
        let at = self.sb.sit_block(n, bits::msb_test(&self.cp.sit_bitmap, n as usize));
        let i = (seg.0 % sit::SIT_ENTRIES) as usize;
        self.edit(at, |b| {
            let mut raw = sit::get(b, i);
            change(&mut raw);
            sit::put(b, i, &raw);
        });
    }
    pub fn sit(&self, seg: SegNo) -> sit::SitEntry {
        let n = seg.0 / sit::SIT_ENTRIES;
        let at = self.sb.sit_block(n, bits::msb_test(&self.cp.sit_bitmap, n as usize));
        sit::SitEntry::check(&sit::get(&self.read(at), (seg.0 % sit::SIT_ENTRIES) as usize)).unwrap()
    }

    /// A node as stored.
    pub fn node(&self, nid: Nid) -> Block {
        self.read(self.nat(nid).addr)
    }
    /// Changes a node in place and updates an inode's checksum.
    pub fn edit_node(&self, nid: Nid, change: impl FnOnce(&mut Block)) {
        let at = self.nat(nid).addr;
        self.edit(at, |b| {
            let is_inode = node::footer(b).nid == node::footer(b).ino.nid();
            change(b);
            if is_inode {
                inode::seal(self.sb.features, inode::checksum_seed(&self.sb.uuid), b);
            }
        });
    }
    pub fn edit_inode(&self, ino: Ino, change: impl FnOnce(&mut RawInode)) {
        self.edit_node(ino.nid(), |b| change(RawInode::of_mut(b)));
    }
    pub fn division(&self, ino: Ino) -> inode::Division {
        RawInode::of(&self.node(ino.nid())).divide(self.sb.features).unwrap()
    }
    /// Address `slot` of an inode.
    pub fn addr(&self, ino: Ino, slot: u32) -> BlockAddr {
        RawInode::of(&self.node(ino.nid())).addr(self.division(ino), slot)
    }

    /// The blocks of a directory: file block and address.
    pub fn dir_blocks(&self, dir: Ino) -> Vec<(u64, BlockAddr)> {
        (0..self.division(dir).direct_slots())
            .map(|i| (u64::from(i), self.addr(dir, i)))
            .filter(|(_, a)| a.is_real())
            .collect()
    }
    /// The inode of a path from the root: `many/file_number_7`.
    pub fn ino(&self, path: &str) -> Ino {
        path.split('/').fold(self.sb.root, |dir, name| self.entry(dir, name).2)
    }
    /// Place of an entry: block, slot, inode.
    pub fn entry(&self, dir: Ino, name: &str) -> (BlockAddr, usize, Ino) {
        assert!(!RawInode::of(&self.node(dir.nid())).inline().contains(Inline::DENTRY));
        for (_, addr) in self.dir_blocks(dir) {
            let block = self.read(addr);
            if let Some(d) = dentry::entries(&dentry::Layout::BLOCK, &block, 0).find(|d| d.name == name.as_bytes()) {
                return (addr, d.slot, Ino(d.ino));
            }
        }
        panic!("no {name} in directory {dir}");
    }

    /// Changes the checkpoint's first 192 bytes, in head and tail, under a correct checksum.
    pub fn edit_cp(&self, change: impl FnOnce(&mut RawCheckpoint)) {
        self.edit_cp_block(|b| {
            let (mut raw, _) = RawCheckpoint::read_from_prefix(&b[..]).unwrap();
            change(&mut raw);
            b[..192].copy_from_slice(raw.as_bytes());
        });
    }
    pub fn edit_cp_block(&self, change: impl FnOnce(&mut Block)) {
        let at = CHECKSUM_OFFSET as usize;
        let tail = self.pack.plus(self.cp.pack_blocks - 1);
        let mut block = self.read(self.pack);
        change(&mut block);
        let sum = crc::crc32(crc::SEED, &block[..at]);
        block[at..].copy_from_slice(&sum.to_le_bytes());
        self.write(self.pack, &block);
        self.write(tail, &block);
    }
    /// The block of the pack that begins with the journals or holds the first data summary.
    pub fn first_summary(&self) -> BlockAddr {
        self.pack.plus(self.cp.start_sum)
    }
    pub fn edit_sb(&self, copy: u32, change: impl FnOnce(&mut RawSuperBlock)) {
        self.edit(BlockAddr(copy), |b| {
            let mut raw = RawSuperBlock::of(b).clone();
            change(&mut raw);
            raw.store(b);
        });
    }
    /// Changes the summary entry of a block in the SSA (not in a log's segment).
    pub fn edit_ssa(&self, addr: BlockAddr, change: impl FnOnce(&mut summary::Summary)) {
        let (seg, off) = self.sb.locate(addr).unwrap();
        assert!(self.cp.logs.iter().all(|l| l.seg != seg), "block {addr} is in a log's segment");
        self.edit(self.sb.ssa_block(seg), |b| {
            let mut s = summary::get(b, off.into());
            change(&mut s);
            summary::put(b, off.into(), s);
        });
    }
    /// An unused segment.
    pub fn free_segment(&self) -> SegNo {
        (0..self.sb.main_segs)
            .rev()
            .map(SegNo)
            .find(|s| self.sit(*s).valid == 0 && self.cp.logs.iter().all(|l| l.seg != *s))
            .unwrap()
    }

    pub fn check(&self) -> Report {
        fsck::check(&self.dev, &fsck::Options::default()).unwrap()
    }

    /// Demands the finding, and a repair after which neither JouleFS nor fsck.f2fs finds anything.
    #[track_caller]
    pub fn finds_and_repairs(&self, what: impl Fn(&FindingKind) -> bool) -> Repaired {
        let report = self.finds(what);
        assert!(!report.is_clean());
        self.repairs()
    }
    /// Demands the finding.
    #[track_caller]
    pub fn finds(&self, what: impl Fn(&FindingKind) -> bool) -> Report {
        let report = self.check();
        assert!(report.findings.iter().any(|f| what(&f.kind)), "not found:\n{report}");
        report
    }
    /// Demands a repair after which neither JouleFS nor fsck.f2fs finds anything.
    #[track_caller]
    pub fn repairs(&self) -> Repaired {
        let done =
            fsck::repair(&self.dev, &fsck::Options::default()).unwrap_or_else(|e| panic!("{e}\n{}", self.check()));
        let after = self.check();
        assert!(after.is_clean(), "{after}");
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        self.dev.save(&image).unwrap();
        assert_fsck_clean(&image);
        done
    }
}

fn read(dev: &Memory, at: BlockAddr) -> Block {
    let mut block = [0; BLOCK];
    dev.read(Lba(at.0.into()), &mut block, Tag::default()).unwrap();
    block
}
