//! How are segments, bits and files encoded in a page?
//!
//! As zlib streams in base64, which a browser decompresses natively (`DecompressionStream`). Segments with a used block
//! are stored as columns: number and age (32 bits each, little-endian), log (one byte, 7: unknown), 64 bytes of bits.
//! Files are a stream of variable-length numbers (seven bits per byte), each file with its extents, addresses as
//! differences; then their paths, each terminated by a zero.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use format::sit::LogType;
use inspect::inode::Kind;
use inspect::tables::Segment;

use super::super::Seen;
use super::super::ground::Ground;
use crate::output::plain;

/// Maximum number of files in a page.
const FILES: usize = 100_000;
/// Maximum number of extents in a page. A file beyond it is stored without extents, which the page shows.
const EXTENTS: usize = 1_000_000;

fn packed(bytes: &[u8]) -> std::io::Result<String> {
    let mut out = ZlibEncoder::new(Vec::new(), Compression::default());
    out.write_all(bytes)?;
    Ok(STANDARD.encode(out.finish()?))
}

/// Segments with a used block.
pub fn segments(ground: &Ground<'_>) -> std::io::Result<String> {
    let used: Vec<_> = ground.segments.iter().filter(|(_, s)| s.valid > 0).collect();
    let age = |s: &Segment| ground.now.map_or(0, |now| now.saturating_sub(s.mtime));
    let mut out = Vec::with_capacity(used.len() * 73);
    used.iter().for_each(|(n, _)| out.extend(n.0.to_le_bytes()));
    used.iter().for_each(|(_, s)| out.extend(u32::try_from(age(s)).unwrap_or(u32::MAX).to_le_bytes()));
    let log =
        |s: &Segment| s.log.filter(|_| ground.has_logs).map_or(if ground.has_logs { 6 } else { 7 }, LogType::index);
    used.iter().for_each(|(_, s)| out.push(log(s) as u8));
    used.iter().for_each(|(_, s)| out.extend(s.map));
    packed(&out)
}

fn number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 128 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A signed difference as an unsigned number: nonnegative differences are even.
fn signed(out: &mut Vec<u8>, n: i64) {
    number(out, (n.wrapping_shl(1) ^ (n >> 63)) as u64);
}

/// Files, the most fragmented first, then by size; and their number.
pub fn files(seen: &Seen<'_>) -> std::io::Result<(String, usize)> {
    let all = seen.files();
    let mut rest: Vec<usize> = (0..all.len()).filter(|&i| all[i].kind != Kind::File || all[i].excess() == 0).collect();
    rest.sort_by_key(|&i| std::cmp::Reverse(all[i].layout.blocks));
    let order: Vec<usize> = seen.verdict.worst.iter().copied().chain(rest).take(FILES).collect();
    let (mut out, mut paths, mut room) = (Vec::new(), Vec::new(), EXTENTS);
    number(&mut out, order.len() as u64);
    for (n, &i) in order.iter().enumerate() {
        let (f, p) = (&all[i], &seen.verdict.priced[i]);
        let l = &f.layout;
        let worst = if n < seen.verdict.worst.len() { n as u64 + 1 } else { 0 };
        let facts = [f.size, l.blocks, l.extents.into(), l.min_extents.into(), p.read.energy.0, p.ideal.energy.0];
        facts.into_iter().chain([u64::from(f.inline), worst]).for_each(|n| number(&mut out, n));
        let extents = if f.extents.len() <= room { &f.extents[..] } else { &[] };
        room -= extents.len();
        number(&mut out, extents.len() as u64);
        let mut end = 0_i64;
        for e in extents {
            // OK to wrap: addresses are far below 2^63, and a wrong one would only not be drawn.
            signed(&mut out, (e.addr as i64).wrapping_sub(end));
            number(&mut out, e.blocks);
            end = e.addr.wrapping_add(e.blocks) as i64;
        }
        paths.extend(plain(&seen.path(i).text()).bytes());
        paths.push(0);
    }
    out.extend(paths);
    Ok((packed(&out)?, order.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_seven_bits_a_byte_and_differences_both_ways() {
        let mut out = Vec::new();
        [0, 127, 128, 300].into_iter().for_each(|n| number(&mut out, n));
        assert_eq!(out, [0, 127, 128, 1, 172, 2]);
        out.clear();
        [0, 1, -1, 64, -64].into_iter().for_each(|n| signed(&mut out, n));
        assert_eq!(out, [0, 2, 1, 128, 1, 127]);
    }
}
