//! What if a file of an unmounted volume had these delta nodes? They are inserted into the image with matching tables
//! and checksums, and single blocks of them can be changed.
//!
//! So code that checks delta nodes can be tested with any list of them, including lists that the file system would not
//! write. Left out: the code that must survive them (the tests).

use device::{BlockDevice, Lba, Memory, Tag};
use format::checkpoint::{self, Checkpoint, CpFlags};
use format::delta::{self, codec};
use format::inode::{self, RawInode};
use format::nat::{self, NatEntry};
use format::node::delta::{Entry, FIRST_OFFSET};
use format::node::{self, Footer};
use format::sit::{self, LogType, RawSitEntry};
use format::summary::{self, Summary, SummaryKind};
use format::superblock::SuperBlock;
use format::{Block, BlockAddr, Ino, Nid, SegNo, bits};

use crate::damage::block;

/// A delta node to insert.
pub struct Node {
    /// Its number within the file.
    pub number: usize,
    /// Of two entries for one block, the one in the node of the higher age is valid.
    pub age: u32,
    /// For each entry the file block, and the resulting contents of its page.
    pub pages: Vec<(u32, Vec<u8>)>,
}

/// Positions of the structures of an unmounted volume.
pub struct Places {
    /// The superblock.
    pub sb: SuperBlock,
    /// The current checkpoint.
    pub cp: Checkpoint,
    pack: BlockAddr,
    nat_journal: Vec<(Nid, NatEntry)>,
    sit_journal: Vec<(SegNo, RawSitEntry)>,
}

fn put(mem: &Memory, at: BlockAddr, bytes: &[u8]) {
    mem.write(Lba(at.0.into()), bytes, Tag::default()).expect("a block of the image");
}

fn get(mem: &Memory, at: BlockAddr) -> Box<Block> {
    block(mem, at.0.into())
}

impl Places {
    /// The positions on this volume.
    ///
    /// # Panics
    /// If it is not a volume.
    pub fn of(mem: &Memory) -> Self {
        let sb = SuperBlock::check(&get(mem, BlockAddr(0))).expect("an undamaged volume");
        let packs = [sb.cp, sb.cp.plus(512)];
        let version = |at: &BlockAddr| checkpoint::version(&get(mem, *at)).unwrap_or(0);
        let pack = packs.into_iter().max_by_key(version).expect("there are two");
        let bytes: Vec<u8> = (0..=sb.cp_payload).flat_map(|i| *get(mem, pack.plus(i))).collect();
        let cp = Checkpoint::check(&sb, &bytes).expect("an undamaged checkpoint");
        let sums = pack.plus(cp.start_sum);
        let (nat, sit) = if cp.flags.contains(CpFlags::COMPACT_SUM) {
            let blocks = [*get(mem, sums)];
            let (nat, sit) = summary::compact_journals(&blocks).expect("both are in its first block");
            (nat.to_vec(), sit.to_vec())
        } else {
            let journal = |k: u32| summary::journal(&get(mem, sums.plus(k))).to_vec();
            (journal(0), journal(2))
        };
        let nat_journal = summary::nat_journal(&nat).expect("an undamaged journal");
        let sit_journal = summary::sit_journal(&sit).expect("an undamaged journal");
        Places { sb, cp, pack, nat_journal, sit_journal }
    }

    fn nat_block(&self, nid: Nid) -> (BlockAddr, usize) {
        let (n, i) = nat::position(nid);
        (self.sb.nat_block(n, bits::msb_test(&self.cp.nat_bitmap, n as usize)), i)
    }

    /// The NAT entry of a node number.
    pub fn nat(&self, mem: &Memory, nid: Nid) -> NatEntry {
        let (at, i) = self.nat_block(nid);
        let journal = self.nat_journal.iter().find(|(n, _)| *n == nid);
        journal.map_or_else(|| nat::get(&get(mem, at), i), |(_, entry)| *entry)
    }

    /// A node.
    pub fn node(&self, mem: &Memory, nid: Nid) -> Box<Block> {
        get(mem, self.nat(mem, nid).addr)
    }

    /// The address of a file block.
    ///
    /// # Panics
    /// If the file has no such block.
    pub fn base(&self, mem: &Memory, ino: Ino, index: u32) -> BlockAddr {
        let inode = self.node(mem, ino.nid());
        let raw = RawInode::of(&inode);
        let shape = raw.shape(self.sb.features).expect("a lawful inode");
        let path = shape.path(index.into()).expect("a file can be so long");
        if path.depth == 0 {
            return raw.addr(raw.divide(self.sb.features).expect("a lawful inode"), path.slots[0]);
        }
        let mut word = raw.nid(path.slots[0] as usize).0;
        for slot in &path.slots[1..=path.depth] {
            word = node::word(&self.node(mem, Nid(word)), *slot as usize);
        }
        BlockAddr(word)
    }

    /// Changes a node in place. Updates the checksum of an inode; that of a delta node only if `sealed`.
    pub fn edit(&self, mem: &Memory, nid: Nid, sealed: bool, change: impl FnOnce(&mut Block)) {
        let at = self.nat(mem, nid).addr;
        let mut block = get(mem, at);
        let f = node::footer(&block);
        change(&mut block);
        if f.nid == f.ino.nid() {
            inode::seal(self.sb.features, self.seed(), &mut block);
        } else if sealed {
            node::delta::seal(self.seed(), &mut block);
        }
        put(mem, at, &block[..]);
    }

    /// The volume's checksum seed.
    pub fn seed(&self) -> u32 {
        inode::checksum_seed(&self.sb.uuid)
    }

    /// The delta nodes of a file with their numbers, the root first.
    pub fn delta_nodes(&self, mem: &Memory, ino: Ino) -> Vec<(usize, Nid)> {
        let Some(root) = delta::root(RawInode::of(&self.node(mem, ino.nid())), self.sb.features) else {
            return Vec::new();
        };
        let block = self.node(mem, root);
        [(0, root)].into_iter().chain(node::delta::other_nodes(&block)).collect()
    }

    /// Inserts delta nodes into a file; the first must be number 0. Returns their node numbers.
    ///
    /// # Panics
    /// If they do not fit, the file already has delta nodes, or a base is missing.
    pub fn give(&self, mem: &Memory, ino: Ino, nodes: &[Node]) -> Vec<Nid> {
        let inode = self.node(mem, ino.nid());
        let generation = RawInode::of(&inode).i_generation.get();
        assert_eq!((nodes[0].number, self.delta_nodes(mem, ino).len()), (0, 0));
        let free = |nid: &Nid| self.nat(mem, *nid) == NatEntry::default();
        let nids: Vec<Nid> = (4..nat::NAT_ENTRIES).rev().map(Nid).filter(free).take(nodes.len()).collect();
        let seg = self.free_segment(mem);
        let start = self.sb.seg_start(seg);
        let mut sums = Box::new([0; format::BLOCK]);
        summary::set_kind(&mut sums, SummaryKind::Node);
        let mut entry = RawSitEntry {
            vblocks: ((LogType::WarmNode as u16) << 10 | nodes.len() as u16).into(),
            valid_map: [0; sit::MAP_BYTES],
            mtime: 0.into(),
        };
        for (k, (of, nid)) in nodes.iter().zip(&nids).enumerate() {
            let addr = start.plus(k as u32);
            let mut block = Box::new([0; format::BLOCK]);
            let footer = Footer {
                nid: *nid,
                ino,
                cold: true,
                fsync: false,
                dentry: false,
                offset: FIRST_OFFSET + of.number as u32,
                cp_ver: self.cp.version,
                next: addr.plus(1),
            };
            node::set_footer(&mut block, &footer);
            node::delta::init(&mut block);
            node::delta::set_age(&mut block, of.age);
            let payloads: Vec<_> = of.pages.iter().map(|(index, page)| self.payload(mem, ino, *index, page)).collect();
            let entries: Vec<Entry<'_>> = of
                .pages
                .iter()
                .zip(&payloads)
                .map(|((index, page), (codec, payload))| Entry {
                    block: *index,
                    codec: *codec,
                    check: delta::check(self.seed(), ino, generation, *index, page),
                    payload,
                })
                .collect();
            assert!(node::delta::rewrite(&mut block, |_| true, &entries), "too much for a node");
            if of.number == 0 {
                for (other, nid) in nodes.iter().zip(&nids).skip(1) {
                    assert!(node::delta::set_other(&mut block, other.number, *nid));
                }
            }
            node::delta::seal(self.seed(), &mut block);
            put(mem, addr, &block[..]);
            bits::msb_put(&mut entry.valid_map, k, true);
            summary::put(&mut sums, k, Summary { nid: *nid, version: 0, slot: 0 });
            let (at, i) = self.nat_block(*nid);
            let mut table = get(mem, at);
            nat::put(&mut table, i, NatEntry { version: 0, ino, addr });
            put(mem, at, &table[..]);
        }
        put(mem, self.sb.ssa_block(seg), &sums[..]);
        let (at, i) = self.sit_block(seg);
        let mut table = get(mem, at);
        sit::put(&mut table, i, &entry);
        put(mem, at, &table[..]);
        self.edit(mem, ino.nid(), true, |b| {
            let raw = RawInode::of_mut(b);
            raw.i_blocks = (raw.i_blocks.get() + nodes.len() as u64).into();
            delta::set_root(raw, Some(nids[0]));
        });
        let mut cp = self.cp.clone();
        cp.valid_blocks += nodes.len() as u64;
        cp.valid_nodes += nodes.len() as u32;
        cp.free_segs -= 1;
        let bytes = cp.encode(&self.sb);
        put(mem, self.pack, &bytes);
        put(mem, self.pack.plus(cp.pack_blocks - 1), &bytes[..format::BLOCK]);
        nids
    }

    fn payload(&self, mem: &Memory, ino: Ino, index: u32, page: &[u8]) -> (delta::Codec, Vec<u8>) {
        let base = self.base(mem, ino, index);
        assert!(base.is_real(), "file block {index} has no base");
        let page: &Block = page.try_into().expect("a page");
        let mut out = Vec::new();
        let codec = codec::encode(&get(mem, base), page, node::delta::LONGEST, &mut out);
        (codec.expect("a page that differs little from its base"), out)
    }

    fn sit_block(&self, seg: SegNo) -> (BlockAddr, usize) {
        let (n, i) = (seg.0 / sit::SIT_ENTRIES, seg.0 % sit::SIT_ENTRIES);
        (self.sb.sit_block(n, bits::msb_test(&self.cp.sit_bitmap, n as usize)), i as usize)
    }

    /// An unused segment.
    fn free_segment(&self, mem: &Memory) -> SegNo {
        let free = |seg: &SegNo| {
            let (at, i) = self.sit_block(*seg);
            sit::get(&get(mem, at), i).valid_map == [0; sit::MAP_BYTES]
                && self.sit_journal.iter().all(|(s, _)| s != seg)
                && self.cp.logs.iter().all(|log| log.seg != *seg)
        };
        (0..self.sb.main_segs).rev().map(SegNo).find(free).expect("a free segment")
    }
}
