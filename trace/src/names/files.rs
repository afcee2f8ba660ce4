//! Files whose pages threads of the kernel write back, by number.

use std::fmt;

use rustc_hash::FxHashMap;

use super::{Names, Process};

/// Pages that are written in the background by a thread of the kernel.
pub const WRITEBACK: &str = "<writeback>";

/// Files and places that are told apart; more have no number.
const MOST: usize = 1 << 15;

/// Where an inode is, by the name that the kernel's writeback has for it, in [`Files::place`]: a disk's numbers with a
/// colon, or a name of the file system's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place(u32);

/// That a request is part of the writing of an inode: one of [`Files::written`], or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Writing(u32);

/// Which inode's pages are written, and who made them dirty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Written {
    /// The numbers, major and minor, of the device that has the file system, as far as it is known: a partition or disk.
    pub device: (u32, u32),
    /// Where the kernel says the inode is.
    pub place: Place,
    /// The inode's number.
    pub ino: u64,
    /// Who made it dirty, in order of number; empty if that is not known.
    pub by: Vec<Process>,
    /// More than these.
    pub more: bool,
}

impl Written {
    /// The blocks of a device itself: a file system's own structures, or what was written to the device without one.
    pub fn is_device(&self) -> bool {
        let (major, minor) = self.device;
        (self.ino >> 20, self.ino & 0xf_ffff) == (u64::from(major), u64::from(minor))
    }

    /// What is known of the file without asking anybody.
    pub fn text(&self) -> String {
        let (major, minor) = self.device;
        match self.is_device() {
            true => format!("blocks of {major},{minor}"),
            false => format!("inode {} of {major},{minor}", self.ino),
        }
    }
}

/// Who asks is a thread of the kernel that writes pages of this file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Writeback {
    /// The file: its path, or what is known of it.
    pub file: String,
    /// The names of who made its pages dirty; empty if that is not known.
    pub by: Vec<String>,
    /// More than these.
    pub more: bool,
}

impl Writeback {
    /// Of an inode whose file is called `file`.
    pub fn new(written: &Written, file: String, names: &Names) -> Self {
        let mut by: Vec<String> = written.by.iter().map(|p| names.name(*p).to_owned()).collect();
        by.sort();
        Writeback { file, by, more: written.more }
    }

    /// Who made its pages dirty, in words; empty if that is not known.
    pub fn dirtied_by(&self) -> String {
        self.by.join(", ") + if self.more { " and others" } else { "" }
    }
}

impl fmt::Display for Writeback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WRITEBACK} {}", self.file)?;
        if self.by.is_empty() { Ok(()) } else { write!(f, " ({})", self.dirtied_by()) }
    }
}

/// Files that are written back. The lists are bounded.
#[derive(Debug, Clone)]
pub struct Files {
    /// The first is the empty one.
    places: Vec<String>,
    place_numbers: FxHashMap<String, Place>,
    /// The first number is 1.
    written: Vec<Written>,
    writings: FxHashMap<Written, Writing>,
}

impl Default for Files {
    fn default() -> Self {
        Files {
            places: vec![String::new()],
            place_numbers: FxHashMap::from_iter([(String::new(), Place::default())]),
            written: Vec::new(),
            writings: FxHashMap::default(),
        }
    }
}

impl Files {
    /// The number of a place where inodes are; that of the nameless one if there are too many.
    pub(crate) fn place_named(&mut self, name: &[u8]) -> Place {
        let name = String::from_utf8_lossy(name);
        if let Some(known) = self.place_numbers.get(&*name) {
            return *known;
        }
        if self.places.len() >= MOST {
            return Place::default();
        }
        let new = Place(self.places.len() as u32);
        self.places.push(name.clone().into_owned());
        self.place_numbers.insert(name.into_owned(), new);
        new
    }

    /// The place that a device's numbers name.
    pub(crate) fn place_of(&mut self, (major, minor): (u32, u32)) -> Place {
        self.place_named(format!("{major}:{minor}").as_bytes())
    }

    /// The name of a place where inodes are.
    pub fn place(&self, place: Place) -> &str {
        self.places.get(place.0 as usize).map_or("", String::as_str)
    }

    /// The number of an inode's writing; none if there are too many.
    pub(crate) fn writing(&mut self, written: Written) -> Writing {
        if let Some(known) = self.writings.get(&written) {
            return *known;
        }
        if self.written.len() >= MOST {
            return Writing::default();
        }
        self.written.push(written.clone());
        let new = Writing(self.written.len() as u32);
        self.writings.insert(written, new);
        new
    }

    /// Which inode's writing a number stands for.
    pub fn written(&self, writing: Writing) -> Option<&Written> {
        self.written.get((writing.0 as usize).checked_sub(1)?)
    }
}
