//! Damages images by changing bytes.
//!
//! Left out: the damaged volume (`trials::populated`), the code that must survive it (the tests), and faults of a
//! device in use (`device::Faulty`).

use std::sync::Arc;

use device::{BLOCK, BlockDevice, Clock, Lba, Memory, Rng, Tag, Time, VirtualClock};
use format::superblock::SuperBlock;
use format::{SegNo, node};

/// Blocks of the image: 64 MiB, so that copies are cheap.
pub const BLOCKS: u64 = 16384;

/// Every name of the volume starts with this, which distinguishes directory blocks from data blocks.
pub const NAME: &[u8] = b"entry_";

/// Offset of the checksum in a checkpoint's head and tail on a small volume.
const SUM_AT: usize = BLOCK - 4;

/// A clock that does not advance.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)))
}

/// The kinds of metadata, and the nonempty blocks of each.
pub struct Targets {
    kinds: Vec<(&'static str, Vec<u64>)>,
}

/// A block of the image.
pub fn block(mem: &Memory, at: u64) -> Box<format::Block> {
    let mut out = Box::new([0; BLOCK]);
    mem.read(Lba(at), &mut *out, Tag::default()).expect("a block of the image");
    out
}

impl Targets {
    /// Finds them.
    ///
    /// # Panics
    /// If the image is not a volume.
    pub fn of(mem: &Memory) -> Self {
        let sb = SuperBlock::check(&block(mem, 0)).expect("an undamaged volume");
        let filled = |from: u64, to: u64| -> Vec<u64> {
            (from..to).filter(|at| block(mem, *at).iter().any(|b| *b != 0)).collect()
        };
        let main = u64::from(sb.main.0);
        let (sit, nat, ssa) = (sb.sit_block(0, false), sb.nat_block(0, false), sb.ssa_block(SegNo(0)));
        let (sit, nat, ssa) = (u64::from(sit.0), u64::from(nat.0), u64::from(ssa.0));
        let (mut nodes, mut names) = (Vec::new(), Vec::new());
        for at in filled(main, mem.blocks()) {
            let bytes = block(mem, at);
            let (nid, max) = (node::footer(&bytes).nid.0, sb.max_nid());
            if (1..max).contains(&nid) {
                nodes.push(at);
            } else if bytes.windows(NAME.len()).any(|w| w == NAME) {
                names.push(at);
            }
        }
        let kinds = vec![
            ("superblock", filled(0, 2)),
            ("checkpoint", filled(sb.cp.0.into(), sit)),
            ("SIT", filled(sit, nat)),
            ("NAT", filled(nat, ssa)),
            ("SSA", filled(ssa, main)),
            ("node", nodes),
            ("dentry", names),
        ];
        for (kind, blocks) in &kinds {
            assert!(!blocks.is_empty(), "no {kind} block holds anything");
        }
        Self { kinds }
    }

    /// All of them, with the names of their kinds.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.kinds.iter().flat_map(|(kind, blocks)| blocks.iter().map(move |at| (*kind, *at)))
    }

    /// Flips one bit of one block, choosing every kind with equal probability; returns a description.
    ///
    /// # Panics
    /// Never on a device of [`BLOCKS`] blocks.
    pub fn flip(&self, mem: &Memory, rng: &mut Rng) -> String {
        let (kind, blocks) = &self.kinds[rng.index(self.kinds.len())];
        let at = blocks[rng.index(blocks.len())];
        let mut bytes = block(mem, at);
        // Mostly a significant byte: zeros are often never read.
        let used: Vec<usize> = (0..BLOCK).filter(|i| bytes[*i] != 0).collect();
        let byte =
            if rng.chance(1, 3) { rng.index(BLOCK) } else { used.get(rng.index(used.len())).copied().unwrap_or(0) };
        let bit = rng.below(8);
        let sum = |b: &format::Block| format::crc::crc32(format::crc::SEED, &b[..SUM_AT]).to_le_bytes();
        let sealed = bytes[SUM_AT..] == sum(&bytes);
        bytes[byte] ^= 1 << bit;
        // Half the checkpoint heads get a valid checksum; otherwise no damage would pass the first check.
        let forged = sealed && *kind == "checkpoint" && rng.chance(1, 2);
        if forged {
            let new = sum(&bytes);
            bytes[SUM_AT..].copy_from_slice(&new);
        }
        mem.write(Lba(at), &*bytes, Tag::default()).expect("a block of the image");
        // Half the superblocks get the same damage in both copies, so that no intact one is left.
        if *kind == "superblock" && rng.chance(1, 2) {
            mem.write(Lba(1 - at), &*bytes, Tag::default()).expect("a block of the image");
        }
        format!("{kind} block {at}, byte {byte}, bit {bit}{}", if forged { ", checksum forged" } else { "" })
    }
}
