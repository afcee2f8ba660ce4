//! When are two names of a casefolded directory the same name?
//!
//! They are if they fold to the same bytes. Linux always folds by Unicode 12.1: canonical decomposition, full case
//! folding of the result, decomposition of that result, ignorable code points removed, combining marks in canonical
//! order. A code point that 12.1 does not assign stays unchanged. A name that cannot be folded equals only itself:
//! one that is not UTF-8, or that folds to nothing or to more than [`LONGEST`] bytes. Directories hash the folded
//! name, or the bytes of a name that cannot be folded.
//!
//! Decompositions and combining classes of assigned code points never change (Unicode's stability policy), so a
//! library of any later version has the right ones. [`table`] lists the code points that 12.1 assigns, and their
//! foldings.
//!
//! Left out on purpose: casefolded directories that are also encrypted, whose hash is keyed.

mod table;

use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

use crate::hash::name_hash;

/// `s_encoding`: UTF-8 as of Unicode 12.1, the only encoding defined.
pub const UTF8_12_1: u16 = 1;
/// `s_encoding_flags`: names that are not UTF-8 are rejected.
pub const STRICT: u16 = 1;
/// `s_encoding_flags`: lookup uses only the name's own hash.
pub const NO_FALLBACK: u16 = 2;
/// Longest folded name in bytes: the size of Linux's buffer without its terminator.
pub const LONGEST: usize = 254;

/// True if one of the sorted ranges holds `c`.
fn within(ranges: &[(u32, u32)], c: char) -> bool {
    let c = u32::from(c);
    let at = ranges.partition_point(|&(_, last)| last < c);
    ranges.get(at).is_some_and(|&(first, _)| first <= c)
}

/// The folding of `c`, if it differs from `c`.
fn folding(c: char) -> Option<[u32; 3]> {
    let n = u32::from(c);
    if let Ok(at) = table::MANY.binary_search_by_key(&n, |&(from, _)| from) {
        return Some(table::MANY[at].1);
    }
    // Runs of different steps overlap, by two at most, so one of the next few runs contains it or none does.
    let at = table::ONE.partition_point(|&(_, last, ..)| last < n);
    let runs = table::ONE[at..].iter().take_while(|(first, ..)| *first <= n);
    let mut hit = runs.filter(|&&(first, _, step, _)| (n - first).is_multiple_of(step));
    hit.next().map(|&(.., by)| [n.wrapping_add_signed(by), 0, 0])
}

/// A position that marks do not cross, and that produces no output.
const IGNORED: (u8, char) = (0, '\0');

fn expand(c: char, out: &mut Vec<(u8, char)>) {
    if within(&table::IGNORABLE, c) {
        out.push(IGNORED);
    } else if !within(&table::ASSIGNED, c) {
        out.push((0, c));
    } else if let Some(to) = folding(c) {
        to.into_iter().filter(|&n| n != 0).filter_map(char::from_u32).for_each(|c| expand(c, out));
    } else {
        decompose_canonical(c, |part| match part == c {
            true => out.push((canonical_combining_class(c), c)),
            false => expand(part, out),
        });
    }
}

/// The folded name; `None` if it cannot be folded.
pub fn fold(name: &[u8]) -> Option<Vec<u8>> {
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase()).filter(|n| (1..=LONGEST).contains(&n.len()));
    }
    let mut marked = Vec::with_capacity(name.len());
    for c in std::str::from_utf8(name).ok()?.chars() {
        expand(c, &mut marked);
    }
    for run in marked.split_mut(|&(class, _)| class == 0) {
        run.sort_by_key(|&(class, _)| class);
    }
    let folded: String = marked.iter().map(|&(_, c)| c).filter(|&c| c != IGNORED.1).collect();
    Some(folded.into_bytes()).filter(|n| (1..=LONGEST).contains(&n.len()))
}

/// A name to look up in a casefolded directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought<'n> {
    name: &'n [u8],
    folded: Option<Vec<u8>>,
    /// Its hash in the directory.
    pub hash: u32,
}

impl<'n> Sought<'n> {
    /// `.` and `..` are never folded.
    pub fn new(name: &'n [u8]) -> Self {
        let folded = if matches!(name, b"." | b"..") { None } else { fold(name) };
        let hash = name_hash(folded.as_deref().unwrap_or(name));
        Sought { name, folded, hash }
    }
    /// False if Linux rejects it under a strict encoding.
    pub fn is_lawful(&self) -> bool {
        self.folded.is_some() || matches!(self.name, b"." | b"..")
    }
    /// True if `entry`, a name stored in a directory, is the same name.
    pub fn is(&self, entry: &[u8]) -> bool {
        entry == self.name || self.folded.is_some() && fold(entry) == self.folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        Sought::new(a.as_bytes()).is(b.as_bytes()) && Sought::new(b.as_bytes()).is(a.as_bytes())
    }

    #[test]
    fn case_and_composition_make_no_difference() {
        assert!(same("Straße", "STRASSE"));
        assert!(same("\u{c5}ngstr\u{f6}m", "A\u{30a}NGSTRO\u{308}M"));
        assert!(same("ΣΊΣΥΦΟΣ", "σίσυφος"));
        assert!(same("한글", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"));
        assert!(!same("a", "b"));
        assert!(!same("ı", "I"), "the dotless i of Turkish is a letter of its own");
    }

    #[test]
    fn marks_are_in_canonical_order_and_what_is_ignorable_does_not_count() {
        assert!(same("a\u{301}\u{323}", "a\u{323}\u{301}"));
        assert!(same("so\u{ad}ft", "SOFT"));
        assert!(same("\u{2764}\u{fe0f}", "\u{2764}"));
    }

    #[test]
    fn a_name_that_cannot_be_folded_is_only_itself() {
        // Not UTF-8; empty after folding; too long after folding.
        let long = "\u{390}".repeat(60);
        for name in [&b"\xff\xfe"[..], "\u{ad}".as_bytes(), long.as_bytes()] {
            let sought = Sought::new(name);
            assert!(!sought.is_lawful() && sought.is(name) && sought.hash == name_hash(name), "{name:?}");
        }
        assert!(!Sought::new(b"A\xff").is(b"a\xff"));
    }

    #[test]
    fn a_letter_that_came_after_12_1_does_not_fold_and_the_others_do() {
        assert!(same("A\u{2c2f}", "a\u{2c2f}"));
        assert!(!same("\u{2c2f}", "\u{2c5f}"), "Unicode 14 folds these");
    }

    #[test]
    fn a_folded_name_folds_to_itself() {
        for c in (0..=0x10FFFF).filter_map(char::from_u32) {
            if let Some(folded) = fold(c.to_string().as_bytes()) {
                assert_eq!(fold(&folded).as_ref(), Some(&folded), "U+{:04X}", u32::from(c));
            }
        }
    }

    #[test]
    fn the_runs_of_the_table_are_found_whole() {
        for &(first, last, step, by) in &table::ONE {
            for n in (first..=last).step_by(step as usize) {
                assert_eq!(char::from_u32(n).and_then(folding), Some([n.wrapping_add_signed(by), 0, 0]), "U+{n:04X}");
            }
        }
    }
}
