//! Any bytes are harmless to the readers of index, keep and stage; called by tests and by a fuzz target.

use format::archive::{self, ENTRIES, IndexHead, Layout, StageHead, StageRecord};
use format::keep::{self, KeepHead};
use format::{Addr, BLOCK, Block};

fn block(bytes: &[u8]) -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    let n = bytes.len().min(BLOCK);
    block[..n].copy_from_slice(&bytes[..n]);
    block
}

/// Gives a block the checksum of heads and records, so that later checks are reached.
fn sealed(mut block: Box<Block>) -> Box<Block> {
    block[12..16].fill(0);
    let crc = format::checksum(&[&block[..]]);
    block[12..16].copy_from_slice(&crc.to_le_bytes());
    block
}

/// Reads bytes as heads and tables of an index and a keep and as a stage, with and without valid checksums. What is
/// decoded is encoded again identically. Returns the number of successes.
pub fn beside(bytes: &[u8]) -> usize {
    let mut understood = 0;
    let plain = block(bytes);
    for block in [sealed(plain.clone()), plain] {
        if let Ok(head) = IndexHead::read(&block) {
            understood += 1;
            assert_eq!(IndexHead::read(&head.write()), Ok(head.clone()));
            let layout = Layout::for_volume(head.blocks).expect("a head's blocks are those of a volume");
            if let Some(last) = head.blocks.checked_sub(1) {
                assert!(layout.copy(Addr(last)) < layout.size() && layout.entry(Addr(last)).0 < layout.copy(Addr(0)));
            }
        }
        if let Ok(head) = KeepHead::read(&block) {
            understood += 1;
            assert_eq!(KeepHead::read(&head.write()), Ok(head.clone()));
            let layout = keep::Layout::with_slots(head.slots).expect("a head's slots are those of a keep");
            assert_eq!(layout.slot(head.slots - 1) + 1, layout.size());
        }
        if let Ok(head) = StageHead::read(&block) {
            understood += 1;
            assert_eq!(StageHead::read(&head.write()), Ok(head));
        }
        if let Ok(record) = StageRecord::read(&block) {
            understood += 1;
            assert_eq!(StageRecord::read(&record.write()), Ok(record));
        }
        for n in 0..=ENTRIES as usize {
            let life = u64::from_le_bytes(bytes.get(n..n + 8).and_then(|b| b.try_into().ok()).unwrap_or_default());
            understood += usize::from(archive::entry(&block, n, life).is_some());
            understood += usize::from(keep::entry(&block, n, life).is_some());
        }
    }
    understood
}
