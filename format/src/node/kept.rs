//! Kept pages: how do the same pages lie that come back in a log or journal again and again?
//!
//! A write-ahead log holds pages of a database, each behind a head of a few bytes; a rollback journal does too. What a
//! block of such a file holds resembles no block of the file, but pages in it are often the same as earlier ones but for
//! a few bytes. So a delta node may hold *kept pages*, which are no contents of the file: versions of a database's pages.
//! A block of the file is then an entry that says of which kept pages it consists ([`Codec::Parts`]).
//!
//! A kept page is an entry for a block from [`KEPT`] on, which no file has; the rest of this number is its id. Its
//! payload begins with a key, u32, which versions of one page share. Behind it:
//!
//! | codec | payload |
//! |---|---|
//! | [`Codec::Alone`] | the page by itself |
//! | others | id of an older kept page, u32, 0 for none; what makes this page of that one |
//!
//! The payload of an entry with [`Codec::Parts`] is the number of parts, u8; each part: id of a kept page or 0 for
//! zeroes, u32, where in it the part begins, u16, how many bytes it has, u16; a codec, u8; what makes the block of all
//! parts in a row.
//!
//! Left out: which pages are kept, and for how long.

pub use super::delta::KEPT;

use super::delta::Entry;
use crate::Block;
use crate::delta::codec::{self, Codec};

/// Most steps from a kept page to one that stands alone.
pub const DEEPEST: usize = 8;
/// Most parts of a block: a block has at least one byte of each.
const MOST_PARTS: usize = 16;

/// Bytes of a kept page that are part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The page, or 0 for zeroes.
    pub id: u32,
    /// Where in it the part begins.
    pub from: u16,
    /// How many bytes it has.
    pub len: u16,
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*first))
}

/// The id of the kept page that an entry is, if it is one.
pub fn id(e: &Entry<'_>) -> Option<u32> {
    e.block.checked_sub(KEPT)
}

/// A kept page's key, and the id of the page that it is made of, if it is.
pub fn head(e: &Entry<'_>) -> Option<(u32, Option<u32>)> {
    id(e)?;
    let mut rest = e.payload;
    let key = word(&mut rest)?;
    let base = if e.codec == Codec::Alone { None } else { Some(word(&mut rest)?) };
    Some((key, base.filter(|id| *id != 0)))
}

/// The payload of a kept page: `data` makes it of the page `base`, or by itself ([`Codec::Alone`]).
pub fn put_head(key: u32, base: Option<u32>, data: &[u8]) -> Vec<u8> {
    let base = base.map(u32::to_le_bytes);
    [&key.to_le_bytes()[..], base.as_ref().map_or(&[], |b| &b[..]), data].concat()
}

/// The parts of a block, and what makes the block of them.
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
    let codec = Codec::of(number).filter(|c| c.has_base())?;
    Some((parts, codec, data))
}

/// The payload of a block of such parts.
pub fn put_parts(parts: &[Part], codec: Codec, data: &[u8]) -> Vec<u8> {
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

/// The kept pages that an entry is made of.
pub fn made_of(e: &Entry<'_>) -> Vec<u32> {
    match id(e) {
        Some(_) => head(e).and_then(|(_, base)| base).into_iter().collect(),
        None if e.codec == Codec::Parts => {
            let parts = parts(e.payload).map_or(Vec::new(), |(parts, ..)| parts);
            parts.iter().map(|p| p.id).filter(|id| *id != 0).collect()
        }
        None => Vec::new(),
    }
}

/// Codec and payload of a kept page, by its id.
pub type Find<'f> = dyn Fn(u32) -> Option<(Codec, Vec<u8>)> + 'f;

/// A kept page. `None` if it, or one that it is made of, is not there or makes no page.
pub fn page(find: &Find<'_>, id: u32) -> Option<Box<Block>> {
    // From the page asked for down to one that stands alone, then up again.
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

/// The parts of a block in a row. `None` if they are not a block's length, or `page` does not give one by its id.
pub fn row(mut page: impl FnMut(u32) -> Option<Box<Block>>, parts: &[Part]) -> Option<Box<Block>> {
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

/// What an entry makes of the block at its address, which one with a codec that has no base does not need.
pub fn decode(find: &Find<'_>, codec: Codec, payload: &[u8], base: Option<&Block>) -> Option<Box<Block>> {
    match codec {
        Codec::Alone => codec::alone(payload),
        Codec::Parts => {
            let (parts, codec, data) = parts(payload)?;
            codec::decode(codec, data, &*row(|id| page(find, id), &parts)?)
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
        (Codec::Alone, put_head(9, None, &codec::encode_alone(page, 4096).unwrap()))
    }

    fn made(base: u32, old: &Block, new: &Block) -> (Codec, Vec<u8>) {
        let mut out = Vec::new();
        let codec = codec::encode(old, new, 900, &mut out).unwrap();
        (codec, put_head(9, Some(base), &out))
    }

    #[test]
    fn a_block_is_put_together_of_kept_pages() {
        let (a, mut b) = (pattern(3), pattern(3));
        b[1000..1010].fill(0xEE);
        let kept = [alone(&a), made(1, &a, &b)];
        let find = |id: u32| kept.get(id as usize - 1).cloned();
        assert!(*page(&find, 2).unwrap() == *b);
        let parts =
            [Part { id: 2, from: 96, len: 4000 }, Part { id: 0, from: 0, len: 24 }, Part { id: 1, from: 0, len: 72 }];
        let mut block = Box::new([0; 4096]);
        block[..4000].copy_from_slice(&b[96..]);
        block[4000..4024].fill(7);
        block[4024..].copy_from_slice(&a[..72]);
        let row = row(|id| page(&find, id), &parts).unwrap();
        let mut data = Vec::new();
        let inner = codec::encode(&row, &block, 100, &mut data).unwrap();
        let payload = put_parts(&parts, inner, &data);
        assert!(payload.len() < 60, "{}", payload.len());
        assert!(*decode(&find, Codec::Parts, &payload, None).unwrap() == *block);
        let e = Entry { block: 5, codec: Codec::Parts, check: 0, payload: &payload };
        assert_eq!(made_of(&e), [2, 1]);
        assert!(decode(&|_| None, Codec::Parts, &payload, None).is_none(), "pages that are gone");
    }

    #[test]
    fn what_leads_in_a_circle_or_too_deep_is_no_page() {
        let a = pattern(5);
        let circle = |id: u32| Some(made(3 - id, &a, &a));
        assert!(page(&circle, 1).is_none());
        let deep = |id: u32| Some(if id == 1 { alone(&a) } else { made(id - 1, &a, &a) });
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
                let _ = (made_of(&e), head(&e));
                let _ = page(&|_| Some((codec, payload.clone())), 1);
            }
        }
    }
}
