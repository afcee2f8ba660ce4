//! Where did the joules go: into which directory, which file, for what, by which component?
//!
//! A [`Flame`] is a ledger with names: every amount under a stack of frames, the directories of a path, the file, the cause,
//! the component. [`folded`] and [`speedscope`] write it for programs of others, [`icicle`] draws it. Each keeps every
//! picojoule. [`phase`] makes one of what an experiment's result keeps.
//!
//! A frame's text means one thing. What stands for no name begins with `<`; in a name, a first `<`, a `\`, a `;` and bytes
//! that are no text or would move a cursor are written as `\xNN` ([`escaped`]). So a file's name can neither end a line or a
//! frame nor be taken for something else, and its bytes can be had back.
//!
//! Left out: who knows the names of inodes and processes, which the caller does.

pub mod folded;
pub mod icicle;
pub mod phase;
pub mod speedscope;

use std::collections::BTreeMap;
use std::fmt::Write;

use device::energy::{Component, Energy, Ledger, Operation, Part, Purpose};

/// Frames of a stack above the cause, in the form of folded text: escaped, parted by `;`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(String);

impl Place {
    /// A place of one frame for what has no name; `text` is ours, like `<waiting>`.
    pub fn of(text: &str) -> Self {
        Place(text.replace(';', ","))
    }

    /// A place of one frame with a name of somebody's.
    pub fn named(name: &[u8]) -> Self {
        Place(escaped(name))
    }

    /// Where a path from the root leads, of names parted by `/`. `last` stands before its last name, and a directory is not
    /// among its own entries: what was spent on itself is below it, as `<directory>`.
    pub fn path(path: &[u8], last: &str, is_directory: bool) -> Self {
        let mut out = String::from("/");
        let mut names = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            out.push(';');
            if names.peek().is_none() {
                out += last;
            }
            out += &escaped(name);
        }
        if is_directory || out == "/" {
            out += ";<directory>";
        }
        Place(out)
    }

    fn frames(&self) -> impl Iterator<Item = &str> {
        self.0.split(';')
    }
}

/// A name as a frame shows it.
pub fn escaped(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    let bytes = |out: &mut String, bytes: &[u8]| {
        for b in bytes {
            // Writing to a string does not fail.
            let _ = write!(out, "\\x{b:02x}");
        }
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let first = out.is_empty();
            match c {
                '<' if first => bytes(&mut out, b"<"),
                '\\' | ';' => bytes(&mut out, &[c as u8]),
                // Controls, what turns the direction of writing or is not seen, ends of lines, and what no XML may hold.
                c if c.is_control()
                    || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
                    || matches!(c, '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') =>
                {
                    bytes(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                c => out.push(c),
            }
        }
        bytes(&mut out, chunk.invalid());
    }
    out
}

/// How far stacks go down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// To CPU, DRAM, storage and board.
    #[default]
    Components,
    /// To what they did: bytes over the link, flash programs, the device's own cleaning.
    Parts,
}

/// What is known of the numbers in a ledger.
pub struct Words<'a> {
    /// What an owner stands for. Several may have one place, and are then one.
    pub place: &'a mut dyn FnMut(u64) -> Place,
    /// What stands for owner 0 where it is not time without requests.
    pub nobody: &'a str,
    /// What a cause means.
    pub cause: &'a dyn Fn(u8) -> String,
}

/// What was spent at a place, by the number of a cause's text and by part, in this order. A list: a volume may have a million
/// places, each with a dozen amounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Amounts(Vec<((u16, Part), Energy)>);

impl Amounts {
    fn add(&mut self, what: (u16, Part), energy: Energy) {
        if energy == Energy::ZERO {
            return;
        }
        match self.0.binary_search_by_key(&what, |(known, _)| *known) {
            Ok(at) => self.0[at].1 += energy,
            Err(at) => self.0.insert(at, (what, energy)),
        }
    }

    fn total(&self) -> Energy {
        self.0.iter().map(|(_, energy)| *energy).sum()
    }
}

/// A ledger by place, cause and part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flame {
    causes: Vec<String>,
    places: BTreeMap<Place, Amounts>,
    depth: Depth,
}

/// Time without requests.
pub const WAITING: &str = "<waiting>";

impl Flame {
    /// A ledger with names.
    pub fn of(ledger: &Ledger, depth: Depth, words: Words<'_>) -> Self {
        let Words { place, nobody, cause } = words;
        let mut purposes: Vec<Purpose> = ledger.purposes().collect();
        // By owner, so that each is looked up once.
        purposes.sort_unstable();
        let mut out = Flame { depth, ..Flame::default() };
        let mut causes = [None; 256];
        for of_owner in purposes.chunk_by(|a, b| a.owner == b.owner) {
            let owner = of_owner[0].owner;
            let mut whose = Amounts::default();
            let mut waiting = Amounts::default();
            for purpose in of_owner {
                let number = usize::from(purpose.cause);
                let number = *causes[number].get_or_insert_with(|| out.number(cause(purpose.cause)));
                let waits = owner == 0 && purpose.operation == Operation::Idle;
                let at = if waits { &mut waiting } else { &mut whose };
                ledger.spent_for(*purpose).for_each(|(part, energy)| at.add((number, part), energy));
            }
            if whose.0.is_empty() && waiting.0.is_empty() {
                continue;
            }
            let named = if owner == 0 { Place::of(nobody) } else { place(owner) };
            out.add(named, whose);
            out.add(Place::of(WAITING), waiting);
        }
        out
    }

    /// What was spent by cause and part alone, at one place.
    pub fn of_sums(place: Place, depth: Depth, sums: impl IntoIterator<Item = (String, Part, Energy)>) -> Self {
        let mut out = Flame { depth, ..Flame::default() };
        let mut amounts = Amounts::default();
        for (cause, part, energy) in sums {
            amounts.add((out.number(cause), part), energy);
        }
        out.add(place, amounts);
        out
    }

    /// The number of a cause's text.
    fn number(&mut self, cause: String) -> u16 {
        let known = self.causes.iter().position(|known| *known == cause);
        let number = known.unwrap_or_else(|| {
            self.causes.push(cause);
            self.causes.len() - 1
        });
        // A ledger has 256 causes, and few ledgers are put beside each other.
        u16::try_from(number).unwrap_or(u16::MAX)
    }

    fn add(&mut self, place: Place, amounts: Amounts) {
        if amounts.0.is_empty() {
            return;
        }
        let there = self.places.entry(place).or_default();
        if there.0.is_empty() {
            *there = amounts;
        } else {
            amounts.0.into_iter().for_each(|(what, energy)| there.add(what, energy));
        }
    }

    /// Takes in another one below a frame of its own: a run, or a disk, of several.
    pub fn add_below(&mut self, frame: &str, other: &Flame) {
        self.depth = other.depth;
        let numbers: Vec<u16> = other.causes.iter().map(|cause| self.number(cause.clone())).collect();
        for (place, amounts) in &other.places {
            let mut here = Amounts::default();
            for ((cause, part), energy) in &amounts.0 {
                here.add((numbers[usize::from(*cause)], *part), *energy);
            }
            self.add(Place(format!("{};{}", escaped(frame.as_bytes()), place.0)), here);
        }
    }

    /// Everything.
    pub fn total(&self) -> Energy {
        self.places.values().map(Amounts::total).sum()
    }

    /// What a component spent.
    pub fn component(&self, component: Component) -> Energy {
        let amounts = self.places.values().flat_map(|amounts| &amounts.0);
        amounts.filter(|((_, part), _)| part.component() == component).map(|(_, energy)| *energy).sum()
    }

    /// The places, each with what was spent there, those that cost most first.
    pub fn places(&self) -> Vec<(String, Energy)> {
        let mut all: Vec<(String, Energy)> =
            self.places.iter().map(|(place, amounts)| (place.0.clone(), amounts.total())).collect();
        all.sort_by_key(|(_, energy)| std::cmp::Reverse(*energy));
        all
    }

    /// Every stack, from the outermost frame to the innermost, with its picojoules. No two are equal.
    pub fn stacks(&self) -> impl Iterator<Item = (Vec<&str>, Energy)> {
        self.places.iter().flat_map(move |(place, amounts)| self.below(place, amounts))
    }

    /// The stacks of a place, by text of cause and in order of components.
    fn below<'a>(&'a self, place: &'a Place, amounts: &'a Amounts) -> impl Iterator<Item = (Vec<&'a str>, Energy)> {
        let mut lines: BTreeMap<(&str, Component, Option<Part>), Energy> = BTreeMap::new();
        for ((cause, part), energy) in &amounts.0 {
            let deeper = (self.depth == Depth::Parts).then_some(*part);
            *lines.entry((&self.causes[usize::from(*cause)], part.component(), deeper)).or_default() += *energy;
        }
        lines.into_iter().map(|((cause, component, part), energy)| {
            let innermost = [cause, component.text()].into_iter().chain(part.map(Part::text));
            (place.frames().chain(innermost).collect(), energy)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that [`escaped`] made a text of.
    fn back(text: &str) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), text.as_bytes());
        while let Some((first, after)) = rest.split_first() {
            rest = match first {
                b'\\' => {
                    out.push(u8::from_str_radix(std::str::from_utf8(&after[1..3]).unwrap(), 16).unwrap());
                    &after[3..]
                }
                other => {
                    out.push(*other);
                    after
                }
            };
        }
        out
    }

    #[test]
    fn any_bytes_become_one_line_of_one_frame_and_can_be_had_back() {
        let mut rng = device::Rng::new(3);
        let of = |rng: &mut device::Rng| match rng.below(6) {
            0 => b';',
            1 => b"\n\r\t\\<> \x1b\x7f"[rng.index(9)],
            2 => 0x80 | rng.below(128) as u8,
            _ => rng.below(256) as u8,
        };
        for _ in 0..20_000 {
            let mut name: Vec<u8> = (0..1 + rng.below(12)).map(|_| of(&mut rng)).collect();
            if rng.below(3) == 0 {
                name.extend("\u{202e}\u{2028}\u{ffff}é漢".bytes());
            }
            let text = escaped(&name);
            assert_eq!(back(&text), name, "{text}");
            assert!(!text.contains(|c: char| c == ';' || c.is_control() || c == '\u{202e}'), "{text:?}");
            assert!(!text.starts_with('<'));
        }
    }

    #[test]
    fn paths_become_frames_and_what_is_no_name_cannot_be_one() {
        let path = |p: &[u8], last, dir| Place::path(p, last, dir).0;
        assert_eq!(path(b"/a/b;c/d", "", false), "/;a;b\\x3bc;d");
        assert_eq!(path(b"/", "", true), "/;<directory>");
        assert_eq!(path(b"/a", "", true), "/;a;<directory>");
        assert_eq!(path(b"/a/<directory>", "", false), "/;a;\\x3cdirectory>");
        assert_eq!(path(b"/x/j", "<deleted> ", false), "/;x;<deleted> j");
        assert_eq!(path(b"/x/<deleted> j", "", false), "/;x;\\x3cdeleted> j");
        assert_eq!(Place::named(b"kworker/u16:3").0, "kworker/u16:3");
    }
}
