//! Deltas in an inode: small changes to pages, stored next to the addresses of the file.
//!
//! On a volume with [`Features::DELTA`](crate::superblock::Features::DELTA) the unused last address slots of an
//! inode may be a *zone*. It ends where the inline extended attributes begin. Its last 8 bytes are the trailer
//! (bytes used, u16; number of entries, u8; version, u8; 0, u32). The entries lie right below the trailer, the
//! oldest lowest. An entry is the difference between the page of one slot and its *base*, the block at the slot's
//! address:
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | slot in the low 10 bits, codec in the high 6 |
//! | 2 | length of the payload |
//! | 3 | 0 |
//! | 4..8 | [`check`] of the page that it gives |
//! | 8.. | payload |
//!
//! The mark of a zone is in `i_ext`, the cached extent, which such a file does not use: word 1 is [`MARK`] plus the
//! zone's length in words, and word 2 is 0. Word 0 is the number of the file's first delta node, or 0; a file may
//! have such nodes and no zone. Linux never sees the mark, because the volume has another magic.
//!
//! Left out: which page becomes a delta, and reading bases.

pub mod codec;

use crate::inode::{ADDR_OFFSET, ADDRS_PER_INODE, Division, Inline, RawInode};
use crate::superblock::Features;
use crate::{FormatError, Ino, Nid, crc};
use zerocopy::IntoBytes;

pub use codec::Codec;

/// High half of the second word of `i_ext` in an inode with a zone. No volume with deltas has a block at such an
/// address.
pub const MARK: u32 = crate::superblock::MOST_WITH_DELTAS;
/// Longest payload of an entry (MedFS FAST'25, section 6.3: deltas below 256 bytes).
pub const LONGEST: usize = 255;
/// Most entries in a zone.
pub const MOST: usize = 255;
/// Bytes of an entry without its payload.
pub const HEADER: usize = 8;
/// Bytes of the trailer.
pub const TRAILER: usize = 8;
const VERSION: u8 = 1;
const SLOT_BITS: u32 = 10;

/// One page's delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The address slot whose block is the base.
    pub slot: u32,
    /// Encoding of the payload.
    pub codec: Codec,
    /// [`check`] of the page that results from base and payload.
    pub check: u32,
    /// The difference.
    pub payload: &'a [u8],
}

/// Checksum of a resulting page. It covers volume, inode and slot too, to detect a delta applied to a wrong base or
/// found in a wrong inode. `seed` is the volume's seed of inode checksums.
pub fn check(seed: u32, ino: Ino, generation: u32, slot: u32, page: &[u8]) -> u32 {
    let mut c = crc::crc32(seed, &ino.0.to_le_bytes());
    c = crc::crc32(c, &generation.to_le_bytes());
    c = crc::crc32(c, &slot.to_le_bytes());
    crc::crc32(c, page)
}

/// Length of an inode's zone in words according to its mark; 0 without a zone.
pub(crate) fn marked_words(raw: &RawInode) -> u32 {
    let [_, mark, length] = raw.i_ext.map(|w| w.get());
    if length == 0 && mark >= MARK { mark - MARK } else { 0 }
}

/// The zone's bytes in the block.
fn area(d: Division, words: u32) -> std::ops::Range<usize> {
    let end = ADDR_OFFSET + 4 * (ADDRS_PER_INODE - d.xattr) as usize;
    end - 4 * words as usize..end
}

/// The bytes of the entries and their number, unless the trailer does not fit the zone.
fn body(raw: &RawInode, d: Division) -> Option<(&[u8], u8)> {
    let zone = raw.as_bytes().get(area(d, d.zone))?;
    let (body, trailer) = zone.split_last_chunk::<TRAILER>()?;
    let used = usize::from(u16::from_le_bytes([trailer[0], trailer[1]]));
    (trailer[3] == VERSION && trailer[4..] == [0; 4]).then_some(())?;
    Some((body.get(body.len().checked_sub(used)?..)?, trailer[2]))
}

/// Iterator over entries; stops at the first incomplete one.
#[derive(Clone)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;
    fn next(&mut self) -> Option<Entry<'a>> {
        let (header, rest) = self.rest.split_first_chunk::<HEADER>()?;
        let (payload, rest) = rest.split_at_checked(usize::from(header[2]))?;
        let word = u16::from_le_bytes([header[0], header[1]]);
        let codec = Codec::from_number((word >> SLOT_BITS) as u8).filter(|c| c.has_base())?;
        self.rest = rest;
        let check = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        Some(Entry { slot: u32::from(word) & ((1 << SLOT_BITS) - 1), codec, check, payload })
    }
}

/// The deltas of an inode, the oldest first.
pub fn entries(raw: &RawInode, d: Division) -> Entries<'_> {
    let rest = if d.zone == 0 { None } else { body(raw, d).map(|(bytes, _)| bytes) };
    Entries { rest: rest.unwrap_or(&[]) }
}

/// The delta for one slot.
pub fn find(raw: &RawInode, d: Division, slot: u32) -> Option<Entry<'_>> {
    entries(raw, d).find(|e| e.slot == slot)
}

/// Checks a whole zone: every entry is complete, for a distinct slot with an address, and their number matches the
/// trailer. Checking the resulting page requires the base.
///
/// # Errors
/// The first fault.
pub fn verify(raw: &RawInode, features: Features) -> Result<(), FormatError> {
    let d = raw.divide(features)?;
    if root(raw, features).is_some()
        && (raw.i_mode.get() & 0o170_000 != 0o100_000 || raw.inline().contains(Inline::DATA))
    {
        return Err(FormatError::field("inode", "i_ext", raw.i_mode.get(), "no delta nodes but in a regular file"));
    }
    if d.zone == 0 {
        return Ok(());
    }
    let bad = |value: u64, must| Err(FormatError::Field { structure: "inode", field: "delta zone", value, must });
    let Some((bytes, count)) = body(raw, d) else { return bad(d.zone.into(), "ended by its trailer") };
    if raw.i_mode.get() & 0o170_000 != 0o100_000 {
        return bad(raw.i_mode.get().into(), "in a regular file");
    }
    if count == 0 || words_for(bytes.len()) != d.zone {
        return bad(d.zone.into(), "as long as its entries need, and no longer");
    }
    let mut walk = Entries { rest: bytes };
    let mut seen = [0_u64; 16];
    let mut found = 0;
    for e in walk.by_ref() {
        found += 1;
        if e.slot >= d.addressed() || !raw.addr(d, e.slot).is_real() {
            return bad(e.slot.into(), "entries of slots that have an address");
        }
        let (word, bit) = (&mut seen[e.slot as usize / 64], 1 << (e.slot % 64));
        if *word & bit != 0 {
            return bad(e.slot.into(), "one entry for a slot");
        }
        *word |= bit;
    }
    if !walk.rest.is_empty() {
        return bad(walk.rest.len() as u64, "whole entries only");
    }
    if found != u32::from(count) {
        return bad(found.into(), "as many entries as its trailer counts");
    }
    Ok(())
}

/// Words of a zone with `bytes` bytes of entries.
fn words_for(bytes: usize) -> u32 {
    if bytes == 0 { 0 } else { (bytes + TRAILER).div_ceil(4) as u32 }
}

fn push(out: &mut Vec<u8>, e: &Entry<'_>) {
    let word = (e.slot & ((1 << SLOT_BITS) - 1)) as u16 | u16::from(e.codec.number()) << SLOT_BITS;
    out.extend_from_slice(&word.to_le_bytes());
    out.extend_from_slice(&[e.payload.len() as u8, 0]);
    out.extend_from_slice(&e.check.to_le_bytes());
    out.extend_from_slice(e.payload);
}

/// Replaces the zone by one with these bytes. The slots that it takes must be empty.
fn store(raw: &mut RawInode, d: Division, bytes: &[u8], count: usize) {
    let words = words_for(bytes.len());
    let block = raw.as_mut_bytes();
    block[area(d, d.zone.max(words))].fill(0);
    if words > 0 {
        let end = area(d, words).end;
        block[end - TRAILER..end - TRAILER + 2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
        block[end - TRAILER + 2] = count as u8;
        block[end - TRAILER + 3] = VERSION;
        block[end - TRAILER - bytes.len()..end - TRAILER].copy_from_slice(bytes);
    }
    mark(raw, marked_root(raw), words);
}

fn mark(raw: &mut RawInode, root: Option<Nid>, words: u32) {
    let root = root.map_or(0, |nid| nid.0);
    raw.i_ext = match (root, words) {
        (0, 0) => [0.into(); 3],
        _ => [root.into(), (MARK + words).into(), 0.into()],
    };
}

/// The inode's root of delta nodes ([`crate::node::delta`]), if it has one.
pub fn root(raw: &RawInode, features: Features) -> Option<Nid> {
    if features.contains(Features::DELTA) { marked_root(raw) } else { None }
}

fn marked_root(raw: &RawInode) -> Option<Nid> {
    let [nid, mark, length] = raw.i_ext.map(|w| w.get());
    (length == 0 && mark >= MARK && nid != 0).then_some(Nid(nid))
}

/// Records the root of the inode's delta nodes. Clears a cached extent.
pub fn set_root(raw: &mut RawInode, root: Option<Nid>) {
    let words = marked_words(raw);
    mark(raw, root, words);
}

/// Address slots that a zone could take, its present ones included: those behind the last used one.
fn free_words(raw: &RawInode, d: Division) -> u32 {
    let used = (0..d.addressed()).rev().find(|slot| raw.addr(d, *slot) != crate::BlockAddr::NULL);
    d.direct_slots() - used.map_or(0, |slot| slot + 1)
}

/// Largest zone in bytes, its trailer included, before it meets an address.
pub fn room(raw: &RawInode, d: Division) -> usize {
    // One slot remains, since an inode must have one.
    4 * free_words(raw, d).min(d.direct_slots() - 1) as usize
}

/// Inserts an entry, replacing the one for its slot. Returns false and changes nothing if there is no room.
pub fn insert(raw: &mut RawInode, d: Division, entry: &Entry<'_>) -> bool {
    let mut bytes = Vec::with_capacity(4 * d.zone as usize + HEADER + LONGEST);
    let mut count = 1;
    for e in entries(raw, d).filter(|e| e.slot != entry.slot) {
        push(&mut bytes, &e);
        count += 1;
    }
    push(&mut bytes, entry);
    if bytes.len() + TRAILER > room(raw, d) || count > MOST || entry.payload.len() > LONGEST {
        return false;
    }
    store(raw, d, &bytes, count);
    true
}

/// Drops the entries for a range of slots and returns their number. The zone shrinks to what it needs.
pub fn drop_slots(raw: &mut RawInode, d: Division, slots: std::ops::Range<u32>) -> usize {
    if d.zone == 0 || !entries(raw, d).any(|e| slots.contains(&e.slot)) {
        return 0;
    }
    let (mut bytes, mut left, mut gone) = (Vec::with_capacity(4 * d.zone as usize), 0, 0);
    for e in entries(raw, d) {
        if slots.contains(&e.slot) {
            gone += 1;
        } else {
            push(&mut bytes, &e);
            left += 1;
        }
    }
    store(raw, d, &bytes, left);
    gone
}

/// Drops the zone with all its contents, valid or not.
pub fn clear(raw: &mut RawInode, d: Division) {
    store(raw, d, &[], 0);
}

/// Replaces the zone by that of another block of the same inode.
pub fn copy_zone(raw: &mut RawInode, d: Division, from: &RawInode, from_d: Division) {
    let (mut bytes, mut count) = (Vec::new(), 0);
    for e in entries(from, from_d) {
        push(&mut bytes, &e);
        count += 1;
    }
    store(raw, d, &bytes, count);
}
