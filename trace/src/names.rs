//! Names that come again and again, and things that were seen and not used.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// A process by its place in [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Process(pub u32);

/// Names of processes; the first, [`Process::default`], is the empty one of who is not known.
#[derive(Debug, Clone)]
pub struct Names {
    names: Vec<String>,
    numbers: FxHashMap<Vec<u8>, Process>,
}

/// At most so many; a recording with more lumps the rest together.
const MOST: usize = 1 << 16;

impl Default for Names {
    fn default() -> Self {
        let numbers = FxHashMap::from_iter([(Vec::new(), Process(0))]);
        Names { names: vec![String::new()], numbers }
    }
}

impl Names {
    /// The number of a name. Names beyond the first 65,536 get the last one's.
    pub fn number(&mut self, name: &[u8]) -> Process {
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

    /// The name of a number; empty if there is none.
    pub fn name(&self, process: Process) -> &str {
        self.names.get(process.0 as usize).map_or("", String::as_str)
    }
}

/// What a reader knew and had no use for, by name, and how often.
pub type Others = BTreeMap<String, u64>;

/// Counts once more.
pub(crate) fn count(others: &mut Others, what: &str) {
    match others.get_mut(what) {
        Some(n) => *n += 1,
        None => _ = others.insert(what.to_owned(), 1),
    }
}

/// Counts `n` of something.
pub(crate) fn count_many(others: &mut Others, what: &str, n: u64) {
    match others.get_mut(what) {
        Some(seen) => *seen = seen.saturating_add(n),
        None => _ = others.insert(what.into(), n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
