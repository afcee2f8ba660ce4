//! Where was the energy spent: in which directory and file, for which cause, by which component?
//!
//! A [`Flame`] is a ledger with names: each amount has a stack of frames, namely the directories of a path, the file,
//! the cause and the component. [`folded`] and [`speedscope`] write it for other programs, [`icicle`] draws it. None of
//! them loses a picojoule. [`phase`] builds one from an experiment's result.
//!
//! A frame's text is unambiguous. Frames without a name begin with `<`. In names, a first `<`, `\`, `;` and bytes that
//! are not text or would move a cursor are written as `\xNN` ([`escaped`]). So a file name can neither end a line or a
//! frame nor be mistaken for something else, and its bytes can be restored.
//!
//! Left out: mapping inodes and processes to names, which is up to the caller.

pub mod folded;
pub mod icicle;
pub mod phase;
pub mod speedscope;

use std::collections::BTreeMap;
use std::fmt::Write;

use device::energy::{Component, Energy, Ledger, Operation, Part, Purpose};

/// The frames of a stack above the cause, as folded text: escaped, separated by `;`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(String);

impl Place {
    /// A place with one frame without a name; `text` is a constant like `<waiting>`.
    pub fn unnamed(text: &str) -> Self {
        Place(text.replace(';', ","))
    }

    /// A place with one frame for a foreign name.
    pub fn named(name: &[u8]) -> Self {
        Place(escaped(name))
    }

    /// The place of a path from the root, with names separated by `/`. `last` is put before its last name. A
    /// directory's own costs are below it, as `<directory>`.
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

/// Escapes a name for a frame.
pub fn escaped(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    let bytes = |out: &mut String, bytes: &[u8]| {
        for b in bytes {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\x{b:02x}");
        }
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let first = out.is_empty();
            match c {
                '<' if first => bytes(&mut out, b"<"),
                '\\' | ';' => bytes(&mut out, &[c as u8]),
                // Control characters, changes of writing direction, invisible characters, line ends, and characters invalid in XML.
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

/// Depth of the stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// Down to CPU, DRAM, storage and board.
    #[default]
    Components,
    /// Down to their work: bytes over the link, flash programs, the device's own cleaning.
    Parts,
}

/// Names for the numbers in a ledger.
pub struct Words<'a> {
    /// Place of an owner. Owners with the same place are merged.
    pub place: &'a mut dyn FnMut(u64) -> Place,
    /// Name of owner 0, except for time without requests.
    pub nobody: &'a str,
    /// Name of a cause.
    pub cause: &'a dyn Fn(u8) -> String,
}

/// Energy at a place, by cause (index of its text) and part, in this order. A list, because a volume may have a million
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
    /// Builds a flame graph from a ledger and names.
    pub fn from_ledger(ledger: &Ledger, depth: Depth, words: Words<'_>) -> Self {
        let Words { place, nobody, cause } = words;
        let mut purposes: Vec<Purpose> = ledger.purposes().collect();
        // By owner, so that each is looked up only once.
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
            let named = if owner == 0 { Place::unnamed(nobody) } else { place(owner) };
            out.add(named, whose);
            out.add(Place::unnamed(WAITING), waiting);
        }
        out
    }

    /// Builds a flame graph of one place, from energy by cause and part.
    pub fn from_sums(place: Place, depth: Depth, sums: impl IntoIterator<Item = (String, Part, Energy)>) -> Self {
        let mut out = Flame { depth, ..Flame::default() };
        let mut amounts = Amounts::default();
        for (cause, part, energy) in sums {
            amounts.add((out.number(cause), part), energy);
        }
        out.add(place, amounts);
        out
    }

    /// The index of a cause's text.
    fn number(&mut self, cause: String) -> u16 {
        let known = self.causes.iter().position(|known| *known == cause);
        let number = known.unwrap_or_else(|| {
            self.causes.push(cause);
            self.causes.len() - 1
        });
        // A ledger has at most 256 causes, and few ledgers are combined.
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

    /// Adds another flame graph below its own frame: one run, or one disk, of several.
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

    /// Energy of a component.
    pub fn component(&self, component: Component) -> Energy {
        let amounts = self.places.values().flat_map(|amounts| &amounts.0);
        amounts.filter(|((_, part), _)| part.component() == component).map(|(_, energy)| *energy).sum()
    }

    /// The places with their energy, the most expensive first.
    pub fn places(&self) -> Vec<(String, Energy)> {
        let mut all: Vec<(String, Energy)> =
            self.places.iter().map(|(place, amounts)| (place.0.clone(), amounts.total())).collect();
        all.sort_by_key(|(_, energy)| std::cmp::Reverse(*energy));
        all
    }

    /// Every stack, from the outermost frame to the innermost, with its picojoules. All are distinct.
    pub fn stacks(&self) -> impl Iterator<Item = (Vec<&str>, Energy)> {
        self.places.iter().flat_map(move |(place, amounts)| self.below(place, amounts))
    }

    /// The stacks of a place, by cause text and in order of components.
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

    /// Undoes [`escaped`].
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
    fn paths_become_frames_and_special_frames_cannot_be_names() {
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
