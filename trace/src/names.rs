//! How are repeated names numbered, and ignored contents counted?

pub(crate) mod files;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use files::{Files, Writeback};

/// Index of a process name in [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Process(pub u32);

/// Names of processes; the first, [`Process::default`], is empty and means unknown.
#[derive(Debug, Clone)]
pub struct Names {
    names: Vec<String>,
    numbers: FxHashMap<Vec<u8>, Process>,
    /// A cache of recent short names, indexed by hash.
    recent: Vec<(Short, Process)>,
    /// Inodes with writeback.
    pub files: Files,
    /// Names that represent the writeback of a file, at most [`FILES`].
    writebacks: FxHashMap<Process, Writeback>,
}

/// Half of all names.
const FILES: usize = MOST / 2;

/// Most names; further ones share the last number.
const MOST: usize = 1 << 16;
/// Size of the cache of recent names, a power of two.
const RECENT: usize = 256;

/// A name of at most 16 bytes (the kernel's have 15) as integers; distinct for distinct names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Short {
    ends: [u64; 2],
    length: usize,
}

impl Short {
    /// `None` for a longer name.
    #[inline]
    pub(crate) fn new(name: &[u8]) -> Option<Short> {
        let length = name.len();
        let ends = match length {
            8..=16 => [name.first_chunk(), name.last_chunk()].map(|eight| eight.map_or(0, |b| u64::from_le_bytes(*b))),
            4..=7 => [name.first_chunk(), name.last_chunk()]
                .map(|four| four.map_or(0, |b: &[u8; 4]| u64::from(u32::from_le_bytes(*b)))),
            0..=3 => [name.iter().fold(0, |n, b| n << 8 | u64::from(*b)), 0],
            _ => return None,
        };
        Some(Short { ends, length })
    }

    #[inline]
    fn place(self) -> usize {
        let mixed = (self.ends[0] ^ self.ends[1].rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % RECENT
    }
}

impl Default for Names {
    fn default() -> Self {
        let numbers = FxHashMap::from_iter([(Vec::new(), Process(0))]);
        // Every cache entry starts with the empty name, which means unknown.
        let nobody = (Short { ends: [0; 2], length: 0 }, Process(0));
        Names {
            names: vec![String::new()],
            numbers,
            recent: vec![nobody; RECENT],
            files: Files::default(),
            writebacks: FxHashMap::default(),
        }
    }
}

impl Names {
    /// The number of a name. Names beyond the first 65,536 share the last number.
    #[inline]
    pub fn number(&mut self, name: &[u8]) -> Process {
        let Some(short) = Short::new(name) else { return self.find(name) };
        let place = short.place();
        match self.recent[place] {
            (known, process) if known == short => process,
            _ => {
                let process = self.find(name);
                self.recent[place] = (short, process);
                process
            }
        }
    }

    fn find(&mut self, name: &[u8]) -> Process {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        if self.names.len() == MOST {
            return Process(MOST as u32 - 1);
        }
        let new = Process(self.names.len() as u32);
        self.names.push(if new.0 as usize == MOST - 1 {
            "<others>".into()
        } else {
            String::from_utf8_lossy(name).into_owned()
        });
        self.numbers.insert(name.to_owned(), new);
        new
    }

    /// The number of a file's writeback; `None` if there are too many.
    pub fn number_of_writeback(&mut self, writeback: &Writeback) -> Option<Process> {
        let name = writeback.to_string();
        if self.writebacks.len() >= FILES && !self.numbers.contains_key(name.as_bytes()) {
            return None;
        }
        let process = self.number(name.as_bytes());
        self.writebacks.entry(process).or_insert_with(|| writeback.clone());
        Some(process)
    }

    /// The file, if the number represents a writeback.
    pub fn writeback(&self, process: Process) -> Option<&Writeback> {
        self.writebacks.get(&process)
    }

    /// The name of a number; empty if unknown.
    pub fn name(&self, process: Process) -> &str {
        self.names.get(process.0 as usize).map_or("", String::as_str)
    }
}

/// Contents that a reader recognised and ignored: name and count.
pub type OtherCounts = BTreeMap<String, u64>;

/// Suffix for operations on files whose details are missing in the recording, so that a replay cannot repeat them.
pub const NOT_RECORDED: &str = "is not in the recording";

/// Beginning of the name for lines that a reader could not parse and skipped; the name continues with the first one.
pub const INVALID: &str = "invalid lines skipped";

/// Operations whose details are missing, as text; empty for most recordings.
pub fn missing_details(others: &OtherCounts) -> Vec<String> {
    let all = others.iter().filter(|(name, _)| name.ends_with(NOT_RECORDED));
    all.map(|(name, n)| format!("left out: {n} {name}")).collect()
}

/// The number of invalid lines that were skipped, with the first one, as text; empty for most recordings.
pub fn invalid_lines(others: &OtherCounts) -> Vec<String> {
    let all = others.iter().filter(|(name, _)| name.starts_with(INVALID));
    let one = |name: &str| name.replacen("lines skipped, the first is", "line skipped:", 1);
    all.map(|(name, n)| format!("{n} {}", if *n == 1 { one(name) } else { name.clone() })).collect()
}

/// Adds one.
pub(crate) fn count(others: &mut OtherCounts, what: &str) {
    match others.get_mut(what) {
        Some(n) => *n += 1,
        None => _ = others.insert(what.to_owned(), 1),
    }
}

/// Adds `n`.
pub(crate) fn count_many(others: &mut OtherCounts, what: &str, n: u64) {
    match others.get_mut(what) {
        Some(seen) => *seen = seen.saturating_add(n),
        None => _ = others.insert(what.into(), n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lengths_are_distinguished() {
        let letters = b"ab";
        let mut names = Names::default();
        let mut all: Vec<(Vec<u8>, Process)> = Vec::new();
        // Change one letter at a time, at every position of every length.
        for length in 0..=20 {
            for at in 0..length.max(1) {
                let mut name = vec![letters[0]; length];
                name.iter_mut().skip(at).take(1).for_each(|b| *b = letters[1]);
                let number = names.number(&name);
                all.push((name, number));
            }
            all.push((vec![letters[0]; length], names.number(&vec![letters[0]; length])));
        }
        for (name, number) in &all {
            assert_eq!((names.number(name), names.name(*number).as_bytes()), (*number, &name[..]));
        }
    }

    #[test]
    fn a_name_keeps_its_number_and_too_many_share_one() {
        let mut names = Names::default();
        let a = names.number(b"init");
        assert_eq!((names.number(b"init"), names.name(a), names.name(Process(0))), (a, "init", ""));
        (0..100_000).for_each(|n: u32| _ = names.number(n.to_string().as_bytes()));
        let late = names.number(b"too late");
        assert_eq!((names.name(late), names.name(a)), ("<others>", "init"));
    }
}
