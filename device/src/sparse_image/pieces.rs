//! Which files are pieces of one sparse image, and which part does each hold?
//!
//! `simg2simg` splits an image that is too large for one transfer. Every piece records the size of the whole, with
//! "don't care" for the parts in other pieces; their names end in consecutive numbers (`system.img.0`,
//! `system.img_sparsechunk1`). Files are combined only if no block is in two of them. So independent images with
//! such names stay separate: each has a superblock.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Content, Piece, open_piece};

/// Most pieces searched.
const MOST: u64 = 4096;

/// Splits a name that ends in a number: the prefix, the number, and its minimum number of digits.
fn numbered(path: &Path) -> Option<(Vec<u8>, u64, usize)> {
    let name = path.file_name()?.as_bytes();
    let digits = name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (before, number) = name.split_at(name.len() - digits);
    let value = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some((before.to_vec(), value, if number.starts_with(b"0") { digits } else { 1 }))
}

/// The path of the piece with another number.
fn sibling(path: &Path, before: &[u8], number: u64, digits: usize) -> PathBuf {
    let name = [before, format!("{number:0digits$}").as_bytes()].concat();
    path.with_file_name(OsStr::from_bytes(&name))
}

/// Ranges with contents, by start: the end, and the piece. `None` if two pieces overlap.
fn stored(pieces: &[Piece]) -> Option<Vec<(u64, u64, usize)>> {
    let mut all = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        let stored = piece.within(0, piece.size).filter(|(_, _, content)| *content != Content::Absent);
        all.extend(stored.map(|(start, end, _)| (start, end, n)));
    }
    all.sort_unstable();
    all.is_sorted_by(|a, b| a.1 <= b.0).then_some(all)
}

/// Finds the other pieces of the image that `path` belongs to. Returns all pieces, and for each start in the image
/// the piece to read; the latter is empty for a single piece.
pub(super) fn with_others(path: &Path, first: Piece) -> (Vec<Piece>, Vec<(u64, usize)>) {
    let alone = |first| (vec![first], Vec::new());
    if !first.runs.iter().any(|run| run.content == Content::Absent) {
        return alone(first);
    }
    let Some((before, number, digits)) = numbered(path) else { return alone(first) };
    let mut pieces = vec![first];
    let (down, up) = ((0..number).rev(), number.saturating_add(1)..number.saturating_add(MOST));
    for side in [&mut down.take(MOST as usize) as &mut dyn Iterator<Item = u64>, &mut { up }] {
        for other in side {
            let at = sibling(path, &before, other, digits);
            // Missing files and other kinds of files are not pieces.
            if !fs::metadata(&at).is_ok_and(|m| m.is_file()) {
                break;
            }
            let Ok(piece) = open_piece(&at) else { break };
            let [of, to] = [&pieces[0], &piece].map(|p| (p.size, p.block));
            pieces.push(piece);
            if of != to || stored(&pieces).is_none() {
                pieces.pop();
                break;
            }
        }
    }
    let Some(stored) = stored(&pieces).filter(|_| pieces.len() > 1) else {
        pieces.truncate(1);
        return (pieces, Vec::new());
    };
    let mut joined: Vec<(u64, usize)> = vec![(0, 0)];
    for (start, _, n) in stored {
        match joined.last_mut() {
            // Blocks between are in no piece, so any piece may answer.
            Some((from, piece)) if *from == start => *piece = n,
            Some((_, piece)) if *piece == n => {}
            _ => joined.push((start, n)),
        }
    }
    (pieces, joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_numbered_at_the_end_of_their_names() {
        let named = |name: &str| numbered(Path::new(name)).map(|(b, n, d)| (String::from_utf8(b).unwrap(), n, d));
        assert_eq!(named("/a/system.img.0"), Some(("system.img.".into(), 0, 1)));
        assert_eq!(named("super.img_sparsechunk12"), Some(("super.img_sparsechunk".into(), 12, 1)));
        assert_eq!(named("x.007"), Some(("x.".into(), 7, 3)));
        assert_eq!(named("disk.img"), None);
        assert_eq!(sibling(Path::new("/a/x.007"), b"x.", 12, 3), Path::new("/a/x.012"));
        assert_eq!(sibling(Path::new("x.9"), b"x.", 10, 1), Path::new("x.10"));
    }
}
