//! What if every checksum is valid and a field has a wrong value? One field of one metadata block gets a value that
//! would be meaningful elsewhere, and the checksum is updated.
//!
//! Left out: random bit flips (`damage`), and the code that must survive it (the tests).

use device::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag};
use format::checkpoint;
use format::inode::{self, RawInode};
use format::node::NodeKind;
use format::superblock::{self, RawSuperBlock, SuperBlock};
use format::{Block, node};

use crate::damage::{Targets, block};
use crate::fields::{self, Field};

/// A field: its offset and size.
type Span = (usize, usize);

/// Fields of an inode before its addresses, and the sizes of the inline areas.
const INODE: &[Span] = &[
    (0, 2),
    (2, 1),
    (3, 1),
    (12, 4),
    (16, 8),
    (24, 8),
    (68, 4),
    (72, 4),
    (76, 4),
    (80, 4),
    (84, 4),
    (88, 4),
    (92, 1),
    (347, 1),
    (348, 4),
    (352, 4),
    (356, 4),
    (360, 2),
    (362, 2),
    (364, 4),
    (384, 8),
    (392, 1),
    (393, 1),
    (394, 2),
    (4052, 4),
    (4056, 4),
    (4060, 4),
    (4064, 4),
    (4068, 4),
];
const FOOTER: &[Span] = &[(4072, 4), (4076, 4), (4080, 4), (4084, 8), (4092, 4)];
/// The header of a delta node, and the beginning of its list and of its first entry.
const DELTA_NODE: &[Span] = &[
    (0, 4),
    (4, 2),
    (6, 2),
    (8, 1),
    (9, 1),
    (10, 2),
    (12, 4),
    (16, 8),
    (24, 8),
    (32, 8),
    (40, 4),
    (44, 4),
    (48, 4),
    (52, 2),
    (54, 1),
    (56, 4),
    (60, 1),
];
const SUPERBLOCK: &[Span] = &[(1148, 4), (1664, 4), (2180, 4), (2201, 1), (2265, 4), (2745, 4), (2749, 4), (2757, 1)];

/// Sets metadata fields to wrong values.
pub struct Forger {
    sb: SuperBlock,
    seed: u32,
    /// Blocks by kind; the nodes after the checkpoint count as nodes.
    kinds: Vec<(&'static str, Vec<u64>)>,
    /// Existing node numbers and addresses.
    numbers: Vec<u32>,
}

impl Forger {
    /// For copies of this volume.
    ///
    /// # Panics
    /// If it is not a volume.
    pub fn of(mem: &Memory) -> Self {
        let sb = SuperBlock::check(&block(mem, 0)).expect("an undamaged volume");
        let mut kinds: Vec<(&'static str, Vec<u64>)> = Vec::new();
        for (kind, at) in Targets::of(mem).all() {
            match kinds.last_mut().filter(|(last, _)| *last == kind) {
                Some((_, blocks)) => blocks.push(at),
                None => kinds.push((kind, vec![at])),
            }
        }
        // Heads and tails of packs are few, but the most important blocks of packs.
        let packs = [sb.cp.0, sb.cp.0 + 512].map(u64::from);
        kinds.push((
            "checkpoint",
            packs.into_iter().filter(|at| checkpoint::version(&block(mem, *at)).is_ok()).collect(),
        ));
        let mut numbers =
            vec![sb.cp.0, sb.sit.0, sb.nat.0, sb.ssa.0, sb.main.0, sb.main.0 - 1, sb.max_nid(), sb.max_nid() - 1];
        let end = sb.main.0 + sb.main_segs * 512;
        numbers.extend([end - 1, end, sb.main_segs - 1, sb.main_segs]);
        for (kind, blocks) in &kinds {
            if matches!(*kind, "node" | "dentry") {
                numbers.extend(blocks.iter().map(|at| *at as u32));
            }
            if *kind == "node" {
                numbers.extend(blocks.iter().map(|at| node::footer(&block(mem, *at)).nid.0));
            }
        }
        Forger { seed: inode::checksum_seed(&sb.uuid), sb, kinds, numbers }
    }

    /// Changes one field; returns a description.
    ///
    /// # Panics
    /// If the image is not a copy of the volume.
    pub fn forge(&self, mem: &Memory, rng: &mut Rng) -> String {
        let (kind, blocks) = loop {
            let (kind, blocks) = &self.kinds[rng.index(self.kinds.len())];
            // Most changes to a superblock are rejected at once; those to nodes are the most effective.
            let weight = match *kind {
                "superblock" => 1,
                "node" => 8,
                "SSA" => 2,
                _ => 4,
            };
            if rng.chance(weight, 8) {
                break (*kind, blocks);
            }
        };
        let at = blocks[rng.index(blocks.len())];
        let mut bytes = block(mem, at);
        let was = bytes.clone();
        let (byte, width) = self.field(kind, &bytes, rng);
        let (old, new) = self.lie(&mut bytes, (byte, width), rng);
        self.seal(mem, kind, at, &was, &mut bytes);
        format!("{kind} block {at}, {width} bytes at {byte}: {old:#x} -> {new:#x}")
    }

    /// Sets one field of a block to a value, and updates the checksum. `kind` is one of `superblock`, `checkpoint` (a
    /// pack's head), `node`, or another name for blocks without checksum.
    ///
    /// # Panics
    /// If the image is not a copy of the volume.
    pub fn set(&self, mem: &Memory, kind: &str, at: u64, field: &Field, value: u64) {
        let mut bytes = block(mem, at);
        let was = bytes.clone();
        fields::put(&mut bytes[..], field, value);
        self.seal(mem, kind, at, &was, &mut bytes);
    }

    /// A random field of a block of this kind.
    fn field(&self, kind: &str, bytes: &Block, rng: &mut Rng) -> Span {
        let of = |fields: &[Span], rng: &mut Rng| fields[rng.index(fields.len())];
        let summary = |base: usize, n: usize, rng: &mut Rng| {
            let (at, width) = of(&[(0, 4), (4, 1), (5, 2)], rng);
            (base + 7 * rng.index(n) + at, width)
        };
        let journal = |base: usize, rng: &mut Rng| match rng.index(4) {
            0 => (base, 2),
            1 => (base + 2 + 13 * rng.index(8), 4),
            2 => (base + 6 + 13 * rng.index(8) + 1, 4),
            _ => (base + 2 + rng.index(400), of(&[(0, 1), (0, 2), (0, 4)], rng).1),
        };
        match kind {
            "superblock" if rng.chance(1, 4) => of(SUPERBLOCK, rng),
            "superblock" => (superblock::OFFSET + 4 * rng.index(27), 4),
            "checkpoint" if checkpoint::version(bytes).is_ok() => match rng.index(4) {
                0 => (192 + rng.index(512), 1),
                1 => (36 + 2 * rng.index(70), 2),
                _ => (4 * rng.index(48), 4),
            },
            "checkpoint" => match rng.index(4) {
                0 => journal(0, rng),
                1 => journal(507, rng),
                2 => journal(3584, rng),
                _ => (rng.index(1020) * 4, 4),
            },
            "SIT" => (74 * rng.index(55) + rng.index(73), of(&[(0, 1), (0, 2)], rng).1),
            "NAT" => {
                let used: Vec<usize> = (0..455).filter(|i| bytes[9 * i..9 * i + 9] != [0; 9]).collect();
                let i = if used.is_empty() || rng.chance(1, 4) { rng.index(455) } else { used[rng.index(used.len())] };
                let (at, width) = of(&[(0, 1), (1, 4), (5, 4), (5, 4)], rng);
                (9 * i + at, width)
            }
            "SSA" if rng.chance(1, 20) => (4091, 1),
            "SSA" => summary(0, 512, rng),
            "node" if rng.chance(1, 4) => of(FOOTER, rng),
            "node" if node::footer(bytes).offset == 0 && rng.chance(2, 3) => of(INODE, rng),
            "node" if node::kind_of(node::footer(bytes).offset) == NodeKind::Delta && rng.chance(1, 2) => {
                of(DELTA_NODE, rng)
            }
            "node" => {
                let first = if node::footer(bytes).offset == 0 { 90 } else { 0 };
                let used: Vec<usize> = (first..1018).filter(|i| node::word(bytes, *i) != 0).collect();
                let some = used.is_empty() || rng.chance(1, 4);
                let i = if some { first + rng.index(1018 - first) } else { used[rng.index(used.len())] };
                // Extended attributes and inline names are bytes, not words.
                let width = if rng.chance(1, 3) { 1 } else { 4 };
                (4 * i + if width == 1 { rng.index(4) } else { 0 }, width)
            }
            _ => match rng.index(6) {
                0 => (rng.index(27), 1),
                1 => (2384 + rng.index(1600), 1),
                _ => {
                    let (at, width) = of(&[(0, 4), (4, 4), (4, 4), (8, 2), (10, 1)], rng);
                    let used: Vec<usize> = (0..214).filter(|i| bytes[30 + 11 * i + 4..][..4] != [0; 4]).collect();
                    let i = if used.is_empty() { 0 } else { used[rng.index(used.len())] };
                    (30 + 11 * i + at, width)
                }
            },
        }
    }

    /// Writes another value; returns the old and the new one.
    fn lie(&self, bytes: &mut Block, (at, width): Span, rng: &mut Rng) -> (u64, u64) {
        let get =
            |bytes: &Block, at: usize| bytes[at..at + width].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let old = get(bytes, at);
        let most = u64::MAX >> (64 - 8 * width as u32);
        let number = u64::from(self.numbers[rng.index(self.numbers.len())]);
        let new = match rng.index(16) {
            0 => 0,
            1 => 1,
            2 => most,
            3 => most - 1,
            4 => most >> 1,
            5 => old.wrapping_add(1),
            6 => old.wrapping_sub(1),
            7 => old << 1,
            8 => old >> 1,
            9 => old ^ 1 << rng.below(8 * width as u64),
            10 => get(bytes, rng.index(BLOCK - width)),
            11 => rng.next_u64(),
            12 => rng.below(4096),
            _ => number,
        } & most;
        bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
        (old, new)
    }

    fn write(&self, mem: &Memory, at: u64, bytes: &Block) {
        if at < mem.blocks() {
            mem.write(Lba(at), bytes, Tag::default()).expect("a block of the image");
        }
    }

    /// Writes a changed block with valid checksums, and its copies.
    fn seal(&self, mem: &Memory, kind: &str, at: u64, was: &Block, bytes: &mut Block) {
        match kind {
            "superblock" => {
                RawSuperBlock::of(&bytes.clone()).store(bytes);
                self.write(mem, 1 - at, bytes);
            }
            "checkpoint" if checkpoint::version(was).is_ok() => return self.seal_pack(mem, at, was, bytes),
            "node" if node::footer(was).nid == node::footer(was).ino.nid() => {
                inode::seal(self.sb.features, self.seed, bytes);
            }
            "node" if node::kind_of(node::footer(was).offset) == NodeKind::Delta => {
                node::delta::seal(self.seed, bytes);
            }
            _ => {}
        }
        self.write(mem, at, bytes);
    }

    /// Updates head and tail alike, and makes the node chain after them match the new checksum.
    fn seal_pack(&self, mem: &Memory, at: u64, was: &Block, bytes: &mut Block) {
        let start = u64::from(self.sb.cp.0) + if at >= u64::from(self.sb.cp.0) + 512 { 512 } else { 0 };
        let word = |b: &Block, at: usize| b[at..at + 4].iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
        let sum_at = word(was, 164) as usize;
        let after = |b: &Block| match sum_at + 4 < BLOCK {
            true => format::crc::crc32(format::crc::crc32(format::crc::SEED, &b[..sum_at]), &b[sum_at + 4..]),
            false => format::crc::crc32(format::crc::SEED, &b[..sum_at]),
        };
        let sum = after(bytes);
        bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
        self.write(mem, start, bytes);
        for blocks in [word(was, 136), word(bytes, 136)].map(u64::from) {
            if (2..=512).contains(&blocks) {
                self.write(mem, start + blocks - 1, bytes);
            }
        }
        let ver = |b: &Block| u64::from(word(b, 0)) | u64::from(word(b, sum_at)) << 32;
        for (_, nodes) in self.kinds.iter().filter(|(kind, _)| *kind == "node") {
            for at in nodes {
                let mut node = block(mem, *at);
                let footer = node::footer(&node);
                if footer.cp_ver == ver(was) {
                    node::set_footer(&mut node, &node::Footer { cp_ver: ver(bytes), ..footer });
                    if footer.nid == footer.ino.nid() && RawInode::of(&node).i_mode.get() != 0 {
                        inode::seal(self.sb.features, self.seed, &mut node);
                    }
                    self.write(mem, *at, &node);
                }
            }
        }
    }
}
