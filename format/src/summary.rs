//! Segment summaries (the owner of each block of a segment), and the NAT and SIT journals stored with them, in
//! normal and compact form.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::nat::{NatEntry, RawNatEntry};
use crate::sit::RawSitEntry;
use crate::{Block, FormatError, Nid, SegNo};

/// Entries in a summary block.
pub const SUMMARY_ENTRIES: usize = 512;
/// Most NAT entries in a journal.
pub const NAT_JOURNAL: usize = 38;
/// Most SIT entries in a journal.
pub const SIT_JOURNAL: usize = 6;
/// Bytes of a journal.
pub const JOURNAL_BYTES: usize = 507;
const ENTRY: usize = 7;
const JOURNAL: usize = SUMMARY_ENTRIES * ENTRY;
const FOOTER: usize = 4091;

/// One entry on disk (`f2fs_summary`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSummary {
    /// The node that points at the block; for a node block its own number.
    pub nid: U32,
    /// NAT version of that node.
    pub version: u8,
    /// Slot in that node.
    pub ofs_in_node: U16,
}
const _: () = assert!(size_of::<RawSummary>() == 7);

/// The owner of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Data block: the node whose slot holds its address. Node block: its own number.
    pub nid: Nid,
    /// Data block: the NAT version of `nid` when it was written. Node block: 0.
    pub version: u8,
    /// Data block: the slot, not counting extra attributes. Node block: 0.
    pub slot: u16,
}

impl From<RawSummary> for Summary {
    fn from(r: RawSummary) -> Self {
        Summary { nid: Nid(r.nid.get()), version: r.version, slot: r.ofs_in_node.get() }
    }
}
impl From<Summary> for RawSummary {
    fn from(s: Summary) -> Self {
        RawSummary { nid: s.nid.0.into(), version: s.version, ofs_in_node: s.slot.into() }
    }
}

/// Contents of a segment according to its summary block's footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryKind {
    /// Data blocks.
    Data,
    /// Node blocks.
    Node,
}

/// Entry `i` of a summary block; an empty one past the end.
#[inline]
pub fn get(block: &Block, i: usize) -> Summary {
    let at = i.min(SUMMARY_ENTRIES) * ENTRY;
    match block.get(at..at + ENTRY) {
        Some(b) if i < SUMMARY_ENTRIES => Summary {
            nid: Nid(u32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            version: b[4],
            slot: u16::from_le_bytes([b[5], b[6]]),
        },
        _ => Summary::default(),
    }
}

/// Writes entry `i` of a summary block; does nothing past the end.
#[inline]
pub fn put(block: &mut Block, i: usize, s: Summary) {
    if i < SUMMARY_ENTRIES {
        block[i * ENTRY..i * ENTRY + ENTRY].copy_from_slice(RawSummary::from(s).as_bytes());
    }
}

/// The kind in a summary block's footer; `None` if it is neither.
pub fn kind(block: &Block) -> Option<SummaryKind> {
    match block[FOOTER] {
        0 => Some(SummaryKind::Data),
        1 => Some(SummaryKind::Node),
        _ => None,
    }
}

/// Writes a summary block's footer.
pub fn set_kind(block: &mut Block, kind: SummaryKind) {
    block[FOOTER] = u8::from(kind == SummaryKind::Node);
    // Linux neither fills nor verifies the footer's checksum; keep it zero as Linux does.
    block[FOOTER + 1..].fill(0);
}

/// The journal inside a summary block.
pub fn journal(block: &Block) -> &[u8] {
    &block[JOURNAL..JOURNAL + JOURNAL_BYTES]
}

/// The journal inside a summary block, mutable.
pub fn journal_mut(block: &mut Block) -> &mut [u8] {
    &mut block[JOURNAL..JOURNAL + JOURNAL_BYTES]
}

fn count(journal: &[u8], most: usize, field: &'static str) -> Result<usize, FormatError> {
    let (&[a, b], true) = (journal.first_chunk::<2>().unwrap_or(&[0; 2]), journal.len() >= JOURNAL_BYTES) else {
        return Err(FormatError::Short { structure: "journal", have: journal.len(), need: JOURNAL_BYTES });
    };
    let n = u16::from_le_bytes([a, b]);
    if usize::from(n) > most {
        return Err(FormatError::field("journal", field, n, "at most 38 NAT or 6 SIT entries"));
    }
    Ok(usize::from(n))
}

/// The NAT entries of a journal.
pub fn nat_journal(journal: &[u8]) -> Result<Vec<(Nid, NatEntry)>, FormatError> {
    let n = count(journal, NAT_JOURNAL, "n_nats")?;
    let entries = journal[2..].chunks_exact(13).take(n);
    Ok(entries
        .filter_map(|e| {
            let nid = Nid(u32::from_le_bytes(*e.first_chunk()?));
            Some((nid, RawNatEntry::read_from_bytes(&e[4..]).ok()?.into()))
        })
        .collect())
}

/// The SIT entries of a journal, unchecked.
pub fn sit_journal(journal: &[u8]) -> Result<Vec<(SegNo, RawSitEntry)>, FormatError> {
    let n = count(journal, SIT_JOURNAL, "n_sits")?;
    let entries = journal[2..].chunks_exact(78).take(n);
    Ok(entries
        .filter_map(|e| {
            let seg = SegNo(u32::from_le_bytes(*e.first_chunk()?));
            Some((seg, RawSitEntry::read_from_bytes(&e[4..]).ok()?))
        })
        .collect())
}

/// Encodes a journal of NAT entries; at most [`NAT_JOURNAL`] are used.
pub fn encode_nat_journal(entries: &[(Nid, NatEntry)]) -> [u8; JOURNAL_BYTES] {
    let mut out = [0; JOURNAL_BYTES];
    let entries = &entries[..entries.len().min(NAT_JOURNAL)];
    out[..2].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    for (slot, (nid, e)) in out[2..].chunks_exact_mut(13).zip(entries) {
        slot[..4].copy_from_slice(&nid.0.to_le_bytes());
        slot[4..].copy_from_slice(RawNatEntry::from(*e).as_bytes());
    }
    out
}

/// Encodes a journal of SIT entries; at most [`SIT_JOURNAL`] are used.
pub fn encode_sit_journal(entries: &[(SegNo, RawSitEntry)]) -> [u8; JOURNAL_BYTES] {
    let mut out = [0; JOURNAL_BYTES];
    let entries = &entries[..entries.len().min(SIT_JOURNAL)];
    out[..2].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    for (slot, (seg, e)) in out[2..].chunks_exact_mut(78).zip(entries) {
        slot[..4].copy_from_slice(&seg.0.to_le_bytes());
        slot[4..].copy_from_slice(e.as_bytes());
    }
    out
}

/// Kilobytes ever written, in the hot node log's journal.
pub fn kbytes_written(journal: &[u8]) -> u64 {
    journal.get(2..10).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Stores [`kbytes_written`].
pub fn set_kbytes_written(journal: &mut [u8], kbytes: u64) {
    if let Some(b) = journal.get_mut(2..10) {
        b.copy_from_slice(&kbytes.to_le_bytes());
    }
}

/// Block and byte offset of entry `n` in compact summaries (counted over the three data logs). The first block
/// begins with both journals; no entry reaches into the last 5 bytes.
fn compact_position(n: usize) -> (usize, usize) {
    const FIRST: usize = (FOOTER - 2 * JOURNAL_BYTES) / ENTRY; // 439
    const REST: usize = FOOTER / ENTRY; // 584
    if n < FIRST { (0, 2 * JOURNAL_BYTES + n * ENTRY) } else { (1 + (n - FIRST) / REST, (n - FIRST) % REST * ENTRY) }
}

/// Number of blocks of compact summaries with `entries` entries.
pub fn compact_blocks(entries: usize) -> usize {
    if entries == 0 { 1 } else { compact_position(entries - 1).0 + 1 }
}

/// The NAT and the SIT journal of compact summaries.
pub fn compact_journals(blocks: &[Block]) -> Option<(&[u8], &[u8])> {
    let first = blocks.first()?;
    Some((&first[..JOURNAL_BYTES], &first[JOURNAL_BYTES..2 * JOURNAL_BYTES]))
}

/// Entry `n` of compact summaries; `None` past the given blocks.
pub fn compact_get(blocks: &[Block], n: usize) -> Option<Summary> {
    let (b, at) = compact_position(n);
    let bytes = blocks.get(b)?.get(at..at + ENTRY)?;
    RawSummary::read_from_bytes(bytes).ok().map(Summary::from)
}

/// Packs journals and entries into compact form.
pub fn encode_compact(
    nat: &[u8; JOURNAL_BYTES],
    sit: &[u8; JOURNAL_BYTES],
    entries: impl ExactSizeIterator<Item = Summary>,
) -> Vec<Block> {
    let mut blocks = vec![[0u8; 4096]; compact_blocks(entries.len())];
    blocks[0][..JOURNAL_BYTES].copy_from_slice(nat);
    blocks[0][JOURNAL_BYTES..2 * JOURNAL_BYTES].copy_from_slice(sit);
    for (n, s) in entries.enumerate() {
        let (b, at) = compact_position(n);
        blocks[b][at..at + ENTRY].copy_from_slice(RawSummary::from(s).as_bytes());
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_summaries_hold_439_entries_in_the_first_block_and_584_in_the_next() {
        assert_eq!(compact_blocks(439), 1);
        assert_eq!(compact_blocks(440), 2);
        assert_eq!(compact_blocks(439 + 584), 2);
        assert_eq!(compact_blocks(439 + 584 + 1), 3);
    }

    #[test]
    fn compact_summaries_leave_the_last_five_bytes_of_every_block_alone() {
        let entries = |n: u32| (1..=n).map(|i| Summary { nid: Nid(i), version: 0xFF, slot: 0xFFFF });
        let all: Vec<Summary> = entries(3 * 512).collect();
        let blocks = encode_compact(&[0xFF; 507], &[0xFF; 507], all.clone().into_iter());
        let (full, last) = blocks.split_at(2);
        assert!(full.iter().all(|b| b[FOOTER..] == [0; 5] && b[FOOTER - 8..FOOTER].contains(&0xFF)));
        assert_eq!(last[0][..4], (439u32 + 584 + 1).to_le_bytes());
        let read: Vec<Summary> = (0..all.len()).map(|n| compact_get(&blocks, n).unwrap()).collect();
        assert_eq!(read, all);
    }
}
