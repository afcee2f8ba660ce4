//! Kept pages: storage for pages that recur in a log or journal.
//!
//! A write-ahead log holds database pages, each behind a small header; a rollback journal does too. A block of such
//! a file resembles no other block of the file, but its pages often repeat earlier ones except for a few bytes. So
//! a delta node may hold *kept pages*, which are not contents of the file: versions of database pages. An entry for
//! a block of the file then lists the kept pages of which it consists ([`Codec::Parts`]).
//!
//! A kept page is an entry for a block number from [`KEPT`] on, which no file has; the rest of this number is its
//! id. Its payload begins with a key, u32, shared by all versions of one page. Then follows:
//!
//! | codec | payload |
//! |---|---|
//! | [`Codec::Alone`] | the page by itself |
//! | others | id of an older kept page, u32, 0 for none; what makes this page of that one |
//!
//! The payload of an entry with [`Codec::Parts`] is the number of parts, u8; for each part the id of a kept page,
//! or 0 for zeroes, u32, its offset in that page, u16, and its length, u16; a codec, u8; and the difference between
//! the concatenated parts and the block.
//!
//! Left out: which pages are kept, and for how long.

pub use super::delta::KEPT;

use super::delta::Entry;
use crate::Block;
use crate::delta::codec::{self, Codec};

/// Most steps from a kept page to one without a base.
pub const DEEPEST: usize = 8;
/// Most parts of a block.
const MOST_PARTS: usize = 16;

/// A range of a kept page that is part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The page, or 0 for zeroes.
    pub id: u32,
    /// Offset in the page.
    pub from: u16,
    /// Length in bytes.
    pub len: u16,
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*first))
}

/// The id of the kept page in an entry, if it holds one.
pub fn id(e: &Entry<'_>) -> Option<u32> {
    e.block.checked_sub(KEPT)
}

/// A kept page's key, and the id of its base page, if it has one.
pub fn head(e: &Entry<'_>) -> Option<(u32, Option<u32>)> {
    id(e)?;
    let mut rest = e.payload;
    let key = word(&mut rest)?;
    let base = if e.codec == Codec::Alone { None } else { Some(word(&mut rest)?) };
    Some((key, base.filter(|id| *id != 0)))
}

/// Encodes the payload of a kept page: `data` is relative to the page `base`, or stands alone ([`Codec::Alone`]).
pub fn encode_head(key: u32, base: Option<u32>, data: &[u8]) -> Vec<u8> {
    let base = base.map(u32::to_le_bytes);
    [&key.to_le_bytes()[..], base.as_ref().map_or(&[], |b| &b[..]), data].concat()
}

/// The parts of a block, and the difference between them and the block.
pub fn parts(payload: &[u8]) -> Option<(Vec<Part>, Codec, &[u8])> {
    let (&count, mut rest) = payload.split_first()?;
    if usize::from(count) > MOST_PARTS {
        return None;
    }
    let mut parts = Vec::with_capacity(count.into());
    for _ in 0..count {
        let id = word(&mut rest)?;
        let place = word(&mut rest)?;
        parts.push(Part { id, from: place as u16, len: (place >> 16) as u16 });
    }
    let (&number, data) = rest.split_first()?;
    let codec = Codec::from_number(number).filter(|c| c.has_base())?;
    Some((parts, codec, data))
}

/// Encodes the payload of a block made of these parts.
pub fn encode_parts(parts: &[Part], codec: Codec, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + 8 * parts.len() + data.len());
    out.push(parts.len() as u8);
    for p in parts {
        out.extend_from_slice(&p.id.to_le_bytes());
        out.extend_from_slice(&p.from.to_le_bytes());
        out.extend_from_slice(&p.len.to_le_bytes());
    }
    out.push(codec.number());
    out.extend_from_slice(data);
    out
}

/// Ids of the kept pages that an entry uses.
pub fn pages_used(e: &Entry<'_>) -> Vec<u32> {
    match id(e) {
        Some(_) => head(e).and_then(|(_, base)| base).into_iter().collect(),
        None if e.codec == Codec::Parts => {
            let parts = parts(e.payload).map_or(Vec::new(), |(parts, ..)| parts);
            parts.iter().map(|p| p.id).filter(|id| *id != 0).collect()
        }
        None => Vec::new(),
    }
}

/// Looks up codec and payload of a kept page by its id.
pub type Find<'f> = dyn Fn(u32) -> Option<(Codec, Vec<u8>)> + 'f;

/// Decodes a kept page. `None` if it or one of its bases is missing or invalid.
pub fn page(find: &Find<'_>, id: u32) -> Option<Box<Block>> {
    // From the requested page down to one that stands alone, then back up.
    let mut steps = Vec::new();
    let mut next = id;
    let mut page = loop {
        let (codec, payload) = find(next)?;
        let e = Entry { block: KEPT.checked_add(next)?, codec, check: 0, payload: &payload };
        match head(&e)? {
            _ if codec == Codec::Alone => break codec::alone(payload.get(4..)?)?,
            (_, Some(base)) if steps.len() < DEEPEST => {
                steps.push((codec, payload));
                next = base;
            }
            _ => return None,
        }
    };
    for (codec, payload) in steps.iter().rev() {
        page = codec::decode(*codec, payload.get(8..)?, &page)?;
    }
    Some(page)
}

/// Concatenates the parts of a block. `None` if their length is not a block's, or `page` does not find one of them.
pub fn join_parts(mut page: impl FnMut(u32) -> Option<Box<Block>>, parts: &[Part]) -> Option<Box<Block>> {
    let mut row = Box::new([0; 4096]);
    let mut at = 0;
    for p in parts {
        let (from, len) = (usize::from(p.from), usize::from(p.len));
        let to = row.get_mut(at..at + len)?;
        if p.id != 0 {
            to.copy_from_slice(page(p.id)?.get(from..from + len)?);
        }
        at += len;
    }
    (at == row.len()).then_some(row)
}

/// Decodes an entry, given the block at its address. Codecs without a base need no block.
pub fn decode(find: &Find<'_>, codec: Codec, payload: &[u8], base: Option<&Block>) -> Option<Box<Block>> {
    match codec {
        Codec::Alone => codec::alone(payload),
        Codec::Parts => {
            let (parts, codec, data) = parts(payload)?;
            codec::decode(codec, data, &*join_parts(|id| page(find, id), &parts)?)
        }
        Codec::Runs | Codec::Lz4 => codec::decode(codec, payload, base?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(seed: u8) -> Box<Block> {
        Box::new(std::array::from_fn(|i| (i as u8 / 7).wrapping_mul(seed)))
    }

    fn alone(page: &Block) -> (Codec, Vec<u8>) {
        (Codec::Alone, encode_head(9, None, &codec::encode_alone(page, 4096).unwrap()))
    }

    fn delta_of(base: u32, old: &Block, new: &Block) -> (Codec, Vec<u8>) {
        let mut out = Vec::new();
        let codec = codec::encode(old, new, 900, &mut out).unwrap();
        (codec, encode_head(9, Some(base), &out))
    }

    #[test]
    fn a_block_is_put_together_of_kept_pages() {
        let (a, mut b) = (pattern(3), pattern(3));
        b[1000..1010].fill(0xEE);
        let kept = [alone(&a), delta_of(1, &a, &b)];
        let find = |id: u32| kept.get(id as usize - 1).cloned();
        assert!(*page(&find, 2).unwrap() == *b);
        let parts =
            [Part { id: 2, from: 96, len: 4000 }, Part { id: 0, from: 0, len: 24 }, Part { id: 1, from: 0, len: 72 }];
        let mut block = Box::new([0; 4096]);
        block[..4000].copy_from_slice(&b[96..]);
        block[4000..4024].fill(7);
        block[4024..].copy_from_slice(&a[..72]);
        let row = join_parts(|id| page(&find, id), &parts).unwrap();
        let mut data = Vec::new();
        let inner = codec::encode(&row, &block, 100, &mut data).unwrap();
        let payload = encode_parts(&parts, inner, &data);
        assert!(payload.len() < 60, "{}", payload.len());
        assert!(*decode(&find, Codec::Parts, &payload, None).unwrap() == *block);
        let e = Entry { block: 5, codec: Codec::Parts, check: 0, payload: &payload };
        assert_eq!(pages_used(&e), [2, 1]);
        assert!(decode(&|_| None, Codec::Parts, &payload, None).is_none(), "pages that are gone");
    }

    #[test]
    fn what_leads_in_a_circle_or_too_deep_is_no_page() {
        let a = pattern(5);
        let circle = |id: u32| Some(delta_of(3 - id, &a, &a));
        assert!(page(&circle, 1).is_none());
        let deep = |id: u32| Some(if id == 1 { alone(&a) } else { delta_of(id - 1, &a, &a) });
        assert!(page(&deep, 1 + DEEPEST as u32).is_some());
        assert!(page(&deep, 2 + DEEPEST as u32).is_none());
        assert!(page(&|_| None, u32::MAX).is_none());
    }

    #[test]
    fn any_payload_gives_a_block_or_nothing() {
        let mut x = 1_u64;
        let mut noise = move || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 56) as u8
        };
        let a = pattern(5);
        let find = |id: u32| if id < 4 { Some(alone(&a)) } else { None };
        for _ in 0..20_000 {
            let mut payload: Vec<u8> = (0..noise()).map(|_| noise()).collect();
            if let Some(first) = payload.first_mut() {
                *first %= 4;
            }
            for codec in [Codec::Alone, Codec::Parts] {
                let _ = decode(&find, codec, &payload, None);
                let e = Entry { block: KEPT + 1, codec, check: 0, payload: &payload };
                let _ = (pages_used(&e), head(&e));
                let _ = page(&|_| Some((codec, payload.clone())), 1);
            }
        }
    }
}
