//! What if checkpoints have payload blocks? Volumes of many terabytes do, whose SIT bitmap does not fit next to the
//! NAT's; any volume may.

use device::{BLOCK, BlockDevice, Lba, Memory, Tag};
use format::Block;
use format::checkpoint::{Checkpoint, pack_blocks};
use format::superblock::{RawSuperBlock, SuperBlock};

use crate::damage::block;

/// Gives the packs of a new volume this many payload blocks.
///
/// # Panics
/// If it is not a new volume, or the packs have no room for them.
pub fn give(dev: &Memory, blocks: u32) {
    let old = SuperBlock::check(&block(dev, 0)).expect("a volume");
    let start = u64::from(old.cp.0);
    let n = u64::from(pack_blocks(&block(dev, start)).expect("its first pack counts"));
    let pack: Vec<Block> = (start..start + n).map(|at| *block(dev, at)).collect();
    let mut cp = Checkpoint::check(&old, pack[..=old.cp_payload as usize].as_flattened()).expect("its checkpoint");
    let write = |at: u64, bytes: &[u8]| dev.write(Lba(at), bytes, Tag::default()).expect("a block of the volume");
    for copy in 0..2 {
        let mut b = *block(dev, copy);
        let mut raw = RawSuperBlock::of(&b).clone();
        raw.cp_payload = blocks.into();
        raw.store(&mut b);
        write(copy, &b);
    }
    let new = SuperBlock::check(&block(dev, 0)).expect("so much payload is lawful");
    cp.start_sum += blocks - old.cp_payload;
    cp.pack_blocks += blocks - old.cp_payload;
    let mut bytes = cp.encode(&new);
    let head = bytes[..BLOCK].to_vec();
    bytes.extend_from_slice(pack[1 + old.cp_payload as usize..n as usize - 1].as_flattened());
    bytes.extend_from_slice(&head);
    write(start, &bytes);
}
