//! What if the tables of a volume contradict its tree? Every block can be read and every checksum is valid, but nodes
//! of files have no address, valid blocks count as free and free ones as valid, two owners share a block, or a
//! directory contains itself. Code that cleans, allocates or frees by such tables may loop forever.
//!
//! Left out: damage to single fields (`forge`) and whole blocks (`misplace`), and the code that must survive it (the
//! tests).

use device::{BlockDevice, Lba, Memory, Rng, Tag};
use format::checkpoint::{self, Checkpoint, CpFlags};
use format::inode::{self, Inline, RawInode};
use format::nat::{self, NatEntry};
use format::sit::{self, LogType, RawSitEntry, SIT_ENTRIES};
use format::summary::{self, JOURNAL_BYTES as JOURNAL};
use format::superblock::SuperBlock;
use format::{Block, BlockAddr, Ino, Nid, SegNo, bits, dentry, node};

use crate::damage::block;

/// Offset of the journal in a summary block that is not compact.
const WHOLE_JOURNAL_AT: usize = 3584;
/// Words of a node that may be node numbers or addresses.
const WORDS: usize = 1018;

/// Makes tables contradict each other, and the tree.
pub struct Entangler {
    sb: SuperBlock,
    seed: u32,
    cp: Checkpoint,
    /// First block of the newest pack.
    pack: BlockAddr,
    /// Live nodes: number, address and inode.
    nodes: Vec<(Nid, BlockAddr, Ino)>,
    /// Directory blocks, each with at least one entry.
    names: Vec<BlockAddr>,
}

impl Entangler {
    /// For copies of this volume.
    ///
    /// # Panics
    /// If it is not a volume.
    pub fn of(mem: &Memory) -> Self {
        let sb = SuperBlock::check(&block(mem, 0)).expect("an undamaged volume");
        let packs = [sb.cp, sb.cp.plus(512)].into_iter();
        let pack =
            packs.max_by_key(|at| checkpoint::version(&block(mem, at.0.into())).unwrap_or(0)).expect("two packs");
        let bytes: Vec<u8> = (0..=sb.cp_payload).flat_map(|i| *block(mem, pack.plus(i).0.into())).collect();
        let cp = Checkpoint::check(&sb, &bytes).expect("an undamaged volume");
        let mut out =
            Entangler { seed: inode::checksum_seed(&sb.uuid), sb, cp, pack, nodes: Vec::new(), names: Vec::new() };
        out.nodes = (3..out.sb.max_nid())
            .map(|n| (Nid(n), out.nat(mem, Nid(n))))
            .filter(|(_, e)| out.sb.locate(e.addr).is_some())
            .map(|(nid, e)| (nid, e.addr, e.ino))
            .collect();
        out.names = out.blocks_of_names(mem);
        assert!(out.nodes.len() > 10 && !out.names.is_empty(), "a volume with directories");
        out
    }

    fn blocks_of_names(&self, mem: &Memory) -> Vec<BlockAddr> {
        let mut all = Vec::new();
        for (nid, addr, ino) in &self.nodes {
            let bytes = block(mem, addr.0.into());
            let raw = RawInode::of(&bytes);
            let dir = *nid == ino.nid() && raw.i_mode.get() & 0o170_000 == 0o040_000;
            if let Ok(division) = raw.divide(self.sb.features)
                && dir
                && !raw.inline().contains(Inline::DENTRY)
            {
                let slots = 0..division.direct_slots();
                all.extend(slots.map(|slot| raw.addr(division, slot)).filter(|addr| self.sb.locate(*addr).is_some()));
            }
        }
        all
    }

    /// The position of a table's journal: its block, and the offset there.
    fn journal(&self, of_sit: bool) -> (u64, usize) {
        let first = u64::from(self.pack.plus(self.cp.start_sum).0);
        if self.cp.flags.contains(CpFlags::COMPACT_SUM) {
            return (first, if of_sit { JOURNAL } else { 0 });
        }
        let log = if of_sit { LogType::ColdData } else { LogType::HotData };
        (first + log.index() as u64, WHOLE_JOURNAL_AT)
    }

    fn nat(&self, mem: &Memory, nid: Nid) -> NatEntry {
        let (at, from) = self.journal(false);
        let journal = summary::nat_journal(&block(mem, at)[from..from + JOURNAL]).unwrap_or_default();
        let (n, i) = nat::position(nid);
        let second = bits::msb_test(&self.cp.nat_bitmap, n as usize);
        let below = || nat::get(&block(mem, self.sb.nat_block(n, second).0.into()), i);
        journal.iter().find(|(of, _)| *of == nid).map_or_else(below, |(_, entry)| *entry)
    }

    fn set_nat(&self, mem: &Memory, nid: Nid, entry: NatEntry) {
        let (at, from) = self.journal(false);
        let mut bytes = block(mem, at);
        if let Ok(mut journal) = summary::nat_journal(&bytes[from..from + JOURNAL]) {
            journal.iter_mut().filter(|(of, _)| *of == nid).for_each(|(_, e)| *e = entry);
            bytes[from..from + JOURNAL].copy_from_slice(&summary::encode_nat_journal(&journal));
            write(mem, at, &bytes);
        }
        let (n, i) = nat::position(nid);
        for second in [false, true] {
            let at = self.sb.nat_block(n, second).0.into();
            let mut bytes = block(mem, at);
            nat::put(&mut bytes, i, entry);
            write(mem, at, &bytes);
        }
    }

    fn sit(&self, mem: &Memory, seg: SegNo) -> RawSitEntry {
        let (at, from) = self.journal(true);
        let journal = summary::sit_journal(&block(mem, at)[from..from + JOURNAL]).unwrap_or_default();
        let n = seg.0 / SIT_ENTRIES;
        let second = bits::msb_test(&self.cp.sit_bitmap, n as usize);
        let below = || sit::get(&block(mem, self.sb.sit_block(n, second).0.into()), (seg.0 % SIT_ENTRIES) as usize);
        journal.iter().find(|(of, _)| *of == seg).map_or_else(below, |(_, entry)| *entry)
    }

    /// Stores an entry with a count that matches its bits.
    fn set_sit(&self, mem: &Memory, seg: SegNo, mut entry: RawSitEntry) {
        let count = bits::count(&entry.valid_map) as u16;
        entry.vblocks = (entry.vblocks.get() & !0x3FF | count).into();
        let (at, from) = self.journal(true);
        let mut bytes = block(mem, at);
        if let Ok(mut journal) = summary::sit_journal(&bytes[from..from + JOURNAL]) {
            journal.iter_mut().filter(|(of, _)| *of == seg).for_each(|(_, e)| *e = entry);
            bytes[from..from + JOURNAL].copy_from_slice(&summary::encode_sit_journal(&journal));
            write(mem, at, &bytes);
        }
        for second in [false, true] {
            let at = self.sb.sit_block(seg.0 / SIT_ENTRIES, second).0.into();
            let mut bytes = block(mem, at);
            sit::put(&mut bytes, (seg.0 % SIT_ENTRIES) as usize, &entry);
            write(mem, at, &bytes);
        }
    }

    fn set_node(&self, mem: &Memory, at: BlockAddr, bytes: &mut Block) {
        let f = node::footer(bytes);
        if f.nid == f.ino.nid() {
            inode::seal(self.sb.features, self.seed, bytes);
        }
        write(mem, at.0.into(), bytes);
    }

    /// Creates one contradiction; returns a description.
    pub fn entangle(&self, mem: &Memory, rng: &mut Rng) -> String {
        match rng.index(12) {
            0 | 1 => self.lose_node(mem, rng),
            2 => self.send_node_elsewhere(mem, rng),
            3..=5 => self.miscount(mem, rng),
            6 => self.misattribute(mem, rng),
            7 | 8 => self.redirect_name(mem, rng),
            9 | 10 => self.redirect_pointer(mem, rng),
            _ => self.fill_free_segments(mem, rng),
        }
    }

    fn one_node(&self, rng: &mut Rng) -> (Nid, BlockAddr, Ino) {
        self.nodes[rng.index(self.nodes.len())]
    }

    /// Removes the address of a node in use, or frees its number.
    fn lose_node(&self, mem: &Memory, rng: &mut Rng) -> String {
        let (nid, ..) = self.one_node(rng);
        let old = self.nat(mem, nid);
        let how = match rng.index(3) {
            0 => NatEntry::default(),
            1 => NatEntry { addr: BlockAddr::NULL, ..old },
            _ => NatEntry { addr: BlockAddr::NEW, ..old },
        };
        self.set_nat(mem, nid, how);
        format!("NAT: node {nid} is at {}", how.addr)
    }

    fn send_node_elsewhere(&self, mem: &Memory, rng: &mut Rng) -> String {
        let ((nid, ..), (other, there, _)) = (self.one_node(rng), self.one_node(rng));
        let old = self.nat(mem, nid);
        let addr = match rng.index(3) {
            0 => BlockAddr(self.sb.main.0 + rng.below(u64::from(self.sb.main_segs) * 512) as u32),
            _ => there,
        };
        self.set_nat(mem, nid, NatEntry { addr, ..old });
        if addr == there && rng.chance(1, 2) {
            self.set_nat(mem, other, NatEntry { addr: old.addr, ..self.nat(mem, other) });
            return format!("NAT: nodes {nid} and {other} have each other's addresses");
        }
        format!("NAT: node {nid} is at {addr}")
    }

    /// Makes a segment's bits differ from its blocks.
    fn miscount(&self, mem: &Memory, rng: &mut Rng) -> String {
        let seg = SegNo(rng.below(self.sb.main_segs.into()) as u32);
        let mut entry = self.sit(mem, seg);
        let how = match rng.index(6) {
            0 => {
                entry.valid_map.fill(0);
                "no block is valid".to_owned()
            }
            1 => {
                entry.valid_map.fill(0xFF);
                "every block is valid".to_owned()
            }
            2 => {
                let kind = rng.below(7) as u16;
                entry.vblocks = (kind << 10).into();
                format!("its type is {kind}")
            }
            n => {
                let times = 1 + rng.below(200);
                for _ in 0..times {
                    bits::msb_put(&mut entry.valid_map, rng.index(512), n != 3 && (n == 4 || rng.chance(1, 2)));
                }
                format!("{times} bits are others")
            }
        };
        self.set_sit(mem, seg, entry);
        format!("SIT: segment {seg}: {how}")
    }

    /// Marks every segment, or all but a few, as full in the SIT.
    fn fill_free_segments(&self, mem: &Memory, rng: &mut Rng) -> String {
        let left = rng.below(4) as u32;
        for seg in (left..self.sb.main_segs).map(SegNo) {
            let mut entry = self.sit(mem, seg);
            if entry.valid_map == [0; sit::MAP_BYTES] {
                entry.valid_map.fill(0xFF);
                if rng.chance(1, 2) {
                    bits::msb_put(&mut entry.valid_map, rng.index(512), false);
                }
                self.set_sit(mem, seg, entry);
            }
        }
        "SIT: free segments are full".to_owned()
    }

    /// Makes summaries name wrong owners.
    fn misattribute(&self, mem: &Memory, rng: &mut Rng) -> String {
        let seg = SegNo(rng.below(self.sb.main_segs.into()) as u32);
        let at = self.sb.ssa_block(seg).0.into();
        let mut bytes = block(mem, at);
        let times = 1 + rng.below(512);
        for _ in 0..times {
            let i = rng.index(512);
            let mut owner = summary::get(&bytes, i);
            match rng.index(3) {
                0 => owner.slot = rng.below(1018) as u16,
                1 => owner.version = owner.version.wrapping_add(1),
                _ => owner.nid = self.one_node(rng).0,
            }
            summary::put(&mut bytes, i, owner);
        }
        write(mem, at, &bytes);
        format!("SSA: {times} owners in segment {seg} are others")
    }

    /// Points a name to an ancestor, its own directory, another name's inode or a node that is not an inode.
    fn redirect_name(&self, mem: &Memory, rng: &mut Rng) -> String {
        let at = self.names[rng.index(self.names.len())];
        let mut bytes = block(mem, at.0.into());
        let layout = dentry::Layout::BLOCK;
        let slots: Vec<_> = dentry::entries(&layout, &bytes[..], 0).map(|d| (d.slot, d.ino)).collect();
        if slots.is_empty() {
            return "nothing".to_owned();
        }
        let (slot, _) = slots[rng.index(slots.len())];
        let (_, other) = slots[rng.index(slots.len())];
        let to = match rng.index(4) {
            0 => self.sb.root.0,
            1 => other,
            2 => self.one_node(rng).0.0,
            _ => self.one_node(rng).2.0,
        };
        let kind = if rng.chance(1, 2) { 2 } else { 1 };
        dentry::redirect(&layout, &mut bytes[..], slot, to, kind);
        write(mem, at.0.into(), &bytes);
        format!("names in block {at}: slot {slot} leads to {to}")
    }

    /// Points a node's entry to another owner's block or node, or to itself.
    fn redirect_pointer(&self, mem: &Memory, rng: &mut Rng) -> String {
        let (nid, at, ino) = self.one_node(rng);
        let mut bytes = block(mem, at.0.into());
        let own = nid == ino.nid();
        if own && rng.chance(1, 2) {
            let k = rng.index(6);
            let to = if rng.chance(1, 4) { nid } else { self.one_node(rng).0 };
            let raw = RawInode::of_mut(&mut bytes);
            match k {
                5 => raw.i_xattr_nid = to.0.into(),
                k => raw.i_nid[k] = to.0.into(),
            }
            self.set_node(mem, at, &mut bytes);
            return format!("inode {ino}: pointer {k} leads to node {to}");
        }
        let first = if own { 90 } else { 0 };
        let used: Vec<usize> = (first..WORDS).filter(|i| node::word(&bytes, *i) != 0).collect();
        let word = if used.is_empty() { first + rng.index(WORDS - first) } else { used[rng.index(used.len())] };
        let end = self.sb.main.0 + self.sb.main_segs * 512;
        let value = match rng.index(6) {
            0 => self.one_node(rng).0.0,
            1 => self.one_node(rng).1.0,
            2 => node::word(&bytes, *used.first().unwrap_or(&word)),
            3 => nid.0,
            _ => self.sb.main.0 + rng.below(u64::from(end - self.sb.main.0)) as u32,
        };
        // All following entries, or one.
        let times = if rng.chance(1, 8) { WORDS - word } else { 1 };
        (word..word + times).for_each(|i| node::set_word(&mut bytes, i, value));
        self.set_node(mem, at, &mut bytes);
        format!("node {nid}: {times} words from {word} on are {value}")
    }
}

fn write(mem: &Memory, at: u64, bytes: &Block) {
    mem.write(Lba(at), bytes, Tag::default()).expect("a block of the image");
}
