//! Encodings of the difference between two pages.
//!
//! Two codecs. *Runs* walks over both pages and records the differences: fast, and short if bytes are overwritten.
//! *LZ4* compresses the new page with the base as its dictionary: slower, and short if bytes moved within the page,
//! like the cells of a database page. [`encode`] tries *Runs* first. Two more codecs have no block as a base:
//! *Alone* is LZ4 without a dictionary, and *Parts* is assembled from kept pages ([`crate::node::kept`]).

use crate::Block;

/// Encoding of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Repeated: the number of bytes copied from the base, the number of new bytes, and these bytes. An empty
    /// payload means that the page equals its base.
    Runs,
    /// An LZ4 block whose dictionary is the base.
    Lz4,
    /// An LZ4 block without a dictionary. Only in delta nodes.
    Alone,
    /// Parts of kept pages. Only in delta nodes.
    Parts,
}

impl Codec {
    /// Decodes the number in an entry.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Codec::Runs),
            2 => Some(Codec::Lz4),
            3 => Some(Codec::Alone),
            4 => Some(Codec::Parts),
            _ => None,
        }
    }
    /// The number in an entry.
    pub fn number(self) -> u8 {
        match self {
            Codec::Runs => 1,
            Codec::Lz4 => 2,
            Codec::Alone => 3,
            Codec::Parts => 4,
        }
    }
    /// True if the payload needs a base page.
    pub fn has_base(self) -> bool {
        matches!(self, Codec::Runs | Codec::Lz4)
    }
}

/// Most equal bytes between two runs that are cheaper to repeat than to skip.
const GAP: usize = 3;
/// Pages that differ in more bytes are not tried with LZ4: the result seldom fits where deltas are stored.
const WORTH: usize = 2048;

/// Length of the common prefix of two byte strings of equal length.
fn alike(a: &[u8], b: &[u8]) -> usize {
    let (wa, _) = a.as_chunks::<8>();
    let (wb, _) = b.as_chunks::<8>();
    let words = wa.iter().zip(wb).take_while(|(x, y)| x == y).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(x, y)| x == y).count()
}

/// End of the run of differing bytes that begins at `from`: before more than [`GAP`] equal bytes.
fn run_end(base: &[u8], page: &[u8], from: usize) -> usize {
    let (mut end, mut at) = (from + 1, from + 1);
    while at < page.len() && at - end <= GAP {
        if base[at] != page[at] {
            end = at + 1;
        }
        at += 1;
    }
    end
}

fn put_number(out: &mut Vec<u8>, n: usize) {
    if n >= 0x80 {
        out.push(n as u8 | 0x80);
    }
    out.push(if n >= 0x80 { (n >> 7) as u8 } else { n as u8 });
}

fn number(from: &mut &[u8]) -> Option<usize> {
    let (&low, rest) = from.split_first()?;
    *from = rest;
    if low < 0x80 {
        return Some(low.into());
    }
    let (&high, rest) = from.split_first()?;
    *from = rest;
    Some(usize::from(low & 0x7F) | usize::from(high) << 7)
}

/// Encodes runs into `out`; on failure returns the number of differing bytes seen so far.
fn runs(base: &Block, page: &Block, limit: usize, out: &mut Vec<u8>) -> Result<(), usize> {
    let (mut at, mut differ, mut fits) = (0, 0, true);
    while at < page.len() {
        let skip = alike(&base[at..], &page[at..]);
        if at + skip == page.len() {
            break;
        }
        let from = at + skip;
        let end = run_end(base, page, from);
        differ += end - from;
        if fits {
            put_number(out, skip);
            put_number(out, end - from);
            out.extend_from_slice(&page[from..end]);
            fits = out.len() <= limit;
        }
        if !fits && differ > WORTH {
            break;
        }
        at = end;
    }
    if fits { Ok(()) } else { Err(differ) }
}

/// Encodes `page` relative to `base` into `out`, which is cleared first. `None` if it takes more than `limit`
/// bytes.
pub fn encode(base: &Block, page: &Block, limit: usize, out: &mut Vec<u8>) -> Option<Codec> {
    out.clear();
    match runs(base, page, limit, out) {
        Ok(()) => return Some(Codec::Runs),
        Err(differ) if differ > WORTH => return None,
        Err(_) => {}
    }
    out.resize(lz4_flex::block::get_maximum_output_size(page.len()), 0);
    let packed = lz4_flex::block::compress_into_with_dict(page, out, base).ok()?;
    out.truncate(packed);
    (packed <= limit).then_some(Codec::Lz4)
}

/// Encodes a page without a base in at most `limit` bytes.
pub fn encode_alone(page: &Block, limit: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; lz4_flex::block::get_maximum_output_size(page.len())];
    let packed = lz4_flex::block::compress_into(page, &mut out).ok()?;
    out.truncate(packed);
    (packed <= limit).then_some(out)
}

/// Decodes a payload of [`encode_alone`]. `None` if it gives no page.
pub fn alone(payload: &[u8]) -> Option<Box<Block>> {
    let mut page = Box::new([0; 4096]);
    let length = lz4_flex::block::decompress_into(payload, &mut page[..]).ok()?;
    (length == page.len()).then_some(page)
}

/// Applies a payload to a base. `None` if it gives no page, or if its codec has no base.
pub fn decode(codec: Codec, payload: &[u8], base: &Block) -> Option<Box<Block>> {
    match codec {
        Codec::Runs => {
            let mut page = Box::new(*base);
            let (mut at, mut rest) = (0, payload);
            while !rest.is_empty() {
                let (skip, length) = (number(&mut rest)?, number(&mut rest)?);
                at += skip;
                let (new, behind) = rest.split_at_checked(length)?;
                page.get_mut(at..at + length)?.copy_from_slice(new);
                (at, rest) = (at + length, behind);
            }
            Some(page)
        }
        Codec::Lz4 => {
            let mut page = Box::new([0; 4096]);
            let length = lz4_flex::block::decompress_into_with_dict(payload, &mut page[..], base).ok()?;
            (length == page.len()).then_some(page)
        }
        Codec::Alone | Codec::Parts => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64) -> Box<Block> {
        let mut x = seed;
        Box::new(std::array::from_fn(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 56) as u8
        }))
    }

    fn back(base: &Block, page: &Block) -> Option<(Codec, usize)> {
        let mut out = Vec::new();
        let codec = encode(base, page, 255, &mut out)?;
        assert!(*decode(codec, &out, base).unwrap() == *page);
        Some((codec, out.len()))
    }

    #[test]
    fn few_overwritten_bytes_cost_few_bytes_more() {
        let base = noise(1);
        assert_eq!(back(&base, &base), Some((Codec::Runs, 0)));
        for at in [0, 1, 127, 128, 2000, 4087, 4088] {
            let mut page = base.clone();
            page[at..at + 8].iter_mut().for_each(|b| *b ^= 0x5A);
            let (codec, length) = back(&base, &page).unwrap();
            assert!(codec == Codec::Runs && length <= 11, "{at}: {length}");
        }
        let mut page = base.clone();
        page[5] ^= 1;
        page[4095] ^= 1;
        assert!(back(&base, &page).unwrap().1 <= 8);
    }

    #[test]
    fn bytes_that_moved_within_the_page_are_found() {
        let base = noise(2);
        let mut page = base.clone();
        page.copy_within(100..400, 140);
        let (codec, length) = back(&base, &page).unwrap();
        assert!(codec == Codec::Lz4 && length < 80, "{length}");
    }

    #[test]
    fn another_page_has_no_delta() {
        assert_eq!(back(&noise(3), &noise(4)), None);
        assert_eq!(back(&[0; 4096], &noise(4)), None);
    }

    #[test]
    fn any_payload_gives_a_page_or_nothing() {
        let base = noise(5);
        for seed in 0..20_000 {
            let bytes = noise(seed);
            let payload = &bytes[8..8 + usize::from(bytes[0])];
            for codec in [Codec::Runs, Codec::Lz4] {
                let _ = decode(codec, payload, &base);
            }
        }
    }
}
