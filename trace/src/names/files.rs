//! Which files are written back by kernel threads?

use std::fmt;

use rustc_hash::FxHashMap;

use super::{Names, Process};

/// Name for pages written in the background by a kernel thread.
pub const WRITEBACK: &str = "<writeback>";

/// Most distinct files and places; further ones have no number.
const MOST: usize = 1 << 15;

/// Location of an inode, by the kernel's name for it in [`Files::place`]: a disk's numbers with a colon, or a name
/// specific to the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place(u32);

/// Index of an inode's writeback in [`Files::written`], or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Writing(u32);

/// An inode whose pages are written, and the processes that made them dirty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Written {
    /// Major and minor number of the file system's device, if known: a partition or disk.
    pub device: (u32, u32),
    /// Location of the inode, as named by the kernel.
    pub place: Place,
    /// Inode number.
    pub ino: u64,
    /// Processes that made it dirty, ordered by number; empty if unknown.
    pub by: Vec<Process>,
    /// True if there are more than these.
    pub more: bool,
}

impl Written {
    /// True for the blocks of a device itself: metadata of a file system, or writes to the device without one.
    pub fn is_device(&self) -> bool {
        let (major, minor) = self.device;
        (self.ino >> 20, self.ino & 0xf_ffff) == (u64::from(major), u64::from(minor))
    }

    /// Text for the file from this information alone.
    pub fn text(&self) -> String {
        let (major, minor) = self.device;
        match self.is_device() {
            true => format!("blocks of {major},{minor}"),
            false => format!("inode {} of {major},{minor}", self.ino),
        }
    }
}

/// A kernel thread that writes back pages of this file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Writeback {
    /// The file: its path, or what is known about it.
    pub file: String,
    /// Names of the processes that made its pages dirty; empty if unknown.
    pub by: Vec<String>,
    /// True if there are more than these.
    pub more: bool,
}

impl Writeback {
    /// The writeback of an inode whose file is called `file`.
    pub fn new(written: &Written, file: String, names: &Names) -> Self {
        let mut by: Vec<String> = written.by.iter().map(|p| names.name(*p).to_owned()).collect();
        by.sort();
        Writeback { file, by, more: written.more }
    }

    /// Text for the processes that made its pages dirty; empty if unknown.
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

/// Files with writeback, in bounded lists.
#[derive(Debug, Clone)]
pub struct Files {
    /// The first is empty.
    places: Vec<String>,
    place_numbers: FxHashMap<String, Place>,
    /// Numbered from 1.
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
    /// The number of a place; that of the empty place if there are too many.
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

    /// The place of a device number.
    pub(crate) fn place_of(&mut self, (major, minor): (u32, u32)) -> Place {
        self.place_named(format!("{major}:{minor}").as_bytes())
    }

    /// The name of a place.
    pub fn place(&self, place: Place) -> &str {
        self.places.get(place.0 as usize).map_or("", String::as_str)
    }

    /// The number of an inode's writeback; none if there are too many.
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

    /// The inode with this writeback number.
    pub fn written(&self, writing: Writing) -> Option<&Written> {
        self.written.get((writing.0 as usize).checked_sub(1)?)
    }
}
