//! Recovery of files from an image of which only the main area is left.
//!
//! No superblock, checkpoint, NAT or summaries are needed. The footer of a node records its inode, the version of
//! its checkpoint, and the next block of its log, which is nearly always the adjacent one. Each step answers one
//! question:
//!
//! * [`place`]: where was the volume in the image, and what were its parameters?
//! * [`sign`]: is this block a node?
//! * [`index`]: which block holds the newest version of each node?
//! * [`tree`]: which files were alive, and what were their names?
//! * [`claims`]: which file owns a block that several files reference?
//! * [`mod@file`]: what are the contents of a file?
//! * `deltas`: which small updates are stored outside its blocks?
//!
//! [`Rescue`] combines these steps and reports what is proved about each file.
//!
//! Left out on purpose:
//!
//! * writing: this crate only reads the image, and the caller writes recovered files;
//! * several volumes in one image: it reads the volume at the place the caller gives, or else the one with most
//!   votes;
//! * encrypted contents.
#![forbid(unsafe_code)]

pub mod bitmap;
pub mod claims;
mod deltas;
pub mod file;
pub mod index;
pub mod place;
pub mod sign;
pub mod sources;
pub mod tree;
pub mod window;

use device::{BlockDevice, DeviceError};
use format::Ino;

use claims::Claims;
pub use file::RescuedFile;
use file::Slot;
use index::Index;
use place::Place;
use sources::{Part, Sources};
use tree::Tree;
pub use tree::{Entry, Loose, Names};
use window::Window;

/// Blocks per read while searching for the volume.
const BLOCKS_AT_ONCE: usize = 256;
/// Inode of the root directory, if no superblock names another: every mkfs uses this one.
const ROOT: Ino = Ino(3);

/// Why a search, or a read of a file, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RescueError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No block of the image looks like a node.
    #[error("no F2FS volume found: no block looks like an F2FS node")]
    NoVolume,
    /// The nodes exceed the memory limit.
    #[error("more than {most} nodes: raise the limit with --most-nodes, about 40 bytes each")]
    TooManyNodes {
        /// The limit.
        most: usize,
    },
    /// The caller's progress function requested a stop.
    #[error("interrupted")]
    Interrupted,
    /// A block of a file cannot be recovered.
    #[error("inode {ino}, file block {block}: {what}")]
    Contents {
        /// The file.
        ino: Ino,
        /// The file block.
        block: u64,
        /// The reason.
        what: String,
    },
    /// A file's extended attributes cannot be recovered.
    #[error("inode {ino}: extended attributes: {what}")]
    Attributes {
        /// The file.
        ino: Ino,
        /// The reason.
        what: String,
    },
}

/// Reports progress to the caller, which may stop the search.
pub struct Progress<'p> {
    tell: &'p mut dyn FnMut(u64) -> bool,
}

impl<'p> Progress<'p> {
    /// `tell` receives the number of blocks done since its last call, and returns whether to continue.
    pub fn new(tell: &'p mut dyn FnMut(u64) -> bool) -> Self {
        Progress { tell }
    }
    fn step(&mut self, blocks: u64) -> Result<(), RescueError> {
        if (self.tell)(blocks) { Ok(()) } else { Err(RescueError::Interrupted) }
    }
}

/// Options of a search.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The volume's first byte in the image, if known.
    pub volume_at: Option<i64>,
    /// Most nodes to keep in memory.
    pub most_nodes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { volume_at: None, most_nodes: 1 << 25 }
    }
}

/// Confidence in one recovered file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Reasons why its contents may be foreign, incomplete or old; empty if they are proved.
    pub doubts: Vec<String>,
    /// One of its nodes lies where no other block indicates nodes: it may be contents of a deleted file that look
    /// like a node.
    pub unsure: bool,
    /// Checkpoint version of its newest inode.
    pub version: u32,
    /// Number of versions found of its inode.
    pub versions: u16,
}

impl Verdict {
    /// True if there are no doubts, and each node lies among nodes.
    pub fn is_proved(&self) -> bool {
        self.doubts.is_empty() && !self.unsure
    }
}

/// A recovered volume.
pub struct Rescue<'d> {
    window: Window<'d>,
    place: Place,
    index: Index,
    tree: Tree,
    claims: Claims,
    cut_short: bool,
    unreadable: u64,
}

impl<'d> Rescue<'d> {
    /// Searches an image.
    ///
    /// # Errors
    /// [`RescueError::NoVolume`], [`RescueError::TooManyNodes`], [`RescueError::Interrupted`].
    pub fn search(
        dev: &'d dyn BlockDevice,
        options: &Options,
        progress: &mut Progress<'_>,
    ) -> Result<Self, RescueError> {
        let place = match options.volume_at {
            Some(at) => place::at(dev, at, progress)?,
            None => place::find(dev, progress)?,
        };
        let window = Window::new(dev, place.phase, place.first);
        let mut index = Index::build(&window, &place, options.most_nodes, progress)?;
        let end = place.first + window.blocks() as i64;
        let cut_short = index.cut_short || place.block_count.is_some_and(|n| n as i64 > end);
        let unreadable = window.unreadable();
        // In either case the missing part may hold a newer version of anything.
        let incomplete = cut_short || unreadable > 0;
        let root = place.superblock.as_ref().map_or(ROOT, |sb| sb.root);
        let quota = place.superblock.as_ref().map_or([Ino(0); 3], |sb| sb.quota_inos);
        let mut claims = Claims::new(window.blocks());

        // Living files get their blocks first. If one of them owns a block that looks like a node, it is not a
        // node.
        let from = Sources { window: &window, place: &place, index: &index };
        let tree = Tree::build(from, root, incomplete, &quota)?;
        let mut living: Vec<Ino> = tree.living.iter().map(|ino| Ino(*ino)).collect();
        living.extend(quota.iter().filter(|ino| ino.0 != 0));
        living.sort_unstable();
        claims.assign(from, &living, &mut || progress.step(0))?;
        index.forget_claimed(&window, claims.contents());

        let from = Sources { window: &window, place: &place, index: &index };
        let mut tree = Tree::build(from, root, incomplete, &quota)?;
        let cut_short = cut_short || past_end(from, &tree)?;
        if cut_short || unreadable > 0 {
            tree.loose.iter_mut().for_each(|(_, loose)| *loose = Loose::Unplaced);
        }
        // Then the others: unplaced files before deleted ones, whose blocks are more likely to be reused.
        let loose = |which: Loose| tree.loose.iter().filter(move |(_, l)| *l == which).map(|(ino, _)| *ino);
        for which in [Loose::Unplaced, Loose::Deleted] {
            let mut inos = Vec::new();
            for top in loose(which) {
                below(from, &tree, top, &mut inos)?;
            }
            claims.assign(from, &inos, &mut || progress.step(0))?;
        }
        Ok(Rescue { window, place, index, tree, claims, cut_short, unreadable })
    }

    fn from(&self) -> Sources<'_> {
        Sources { window: &self.window, place: &self.place, index: &self.index }
    }

    /// Position and parameters of the volume.
    pub fn place(&self) -> &Place {
        &self.place
    }
    /// True if the image ends before the volume does.
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }
    /// Number of blocks that the search could not read.
    pub fn unreadable_blocks(&self) -> u64 {
        self.unreadable
    }
    /// True if a part of the volume could not be read: any inode or directory found may be an old version, so
    /// nothing is proved.
    pub fn is_incomplete(&self) -> bool {
        self.cut_short || self.unreadable > 0
    }
    /// Number of inodes with a version that has a wrong checksum.
    pub fn damaged_inodes(&self) -> u64 {
        self.index.damaged()
    }
    /// The root directory, if it was found.
    pub fn root(&self) -> Option<Ino> {
        let root = self.place.superblock.as_ref().map_or(ROOT, |sb| sb.root);
        self.tree.living.contains(&root.0).then_some(root)
    }
    /// Files outside the tree that are not below another such file.
    pub fn loose(&self) -> &[(Ino, Loose)] {
        &self.tree.loose
    }
    /// Entries whose inode is missing, with their directory.
    pub fn lost(&self) -> &[(Ino, Entry)] {
        &self.tree.lost
    }
    /// True if a file is in the tree.
    pub fn is_living(&self, ino: Ino) -> bool {
        self.tree.living.contains(&ino.0)
    }

    /// The entries of a directory whose inodes were found. If the directory is not alive: only those whose inode
    /// still records it as the parent.
    ///
    /// # Errors
    /// If the device fails.
    pub fn names(&self, dir: Ino) -> Result<Names, RescueError> {
        let mut out = tree::names(self.from(), dir)?;
        let living = self.is_living(dir);
        let mut kept = Vec::new();
        // A directory has one name. With two names each, forty directories would have 2^40 paths.
        let mut dirs = rustc_hash::FxHashSet::default();
        for entry in out.entries {
            let there = match living {
                true => self.is_living(entry.ino) && self.file(entry.ino)?.is_some_and(|f| f.kind() == entry.kind),
                false => self.tree.belongs(self.from(), dir, &entry)?,
            };
            if !there {
                continue;
            }
            let elsewhere = living && !self.tree.is_home(dir, &entry);
            if entry.kind == 2 && (elsewhere || !dirs.insert(entry.ino.0)) {
                let name = entry.name.escape_ascii();
                out.gaps.push(format!("{name} is skipped: that directory, inode {}, has another name", entry.ino));
                continue;
            }
            kept.push(entry);
        }
        out.entries = kept;
        Ok(out)
    }

    /// A file by its number.
    ///
    /// # Errors
    /// If the device fails.
    pub fn file(&self, ino: Ino) -> Result<Option<RescuedFile<'_>>, RescueError> {
        RescuedFile::open(self.from(), ino)
    }

    /// Confidence in a file.
    ///
    /// # Errors
    /// If the device fails.
    pub fn verdict(&self, file: &RescuedFile<'_>) -> Result<Verdict, RescueError> {
        let mut doubts = Vec::new();
        let (mut missing, mut past, mut ambiguous) = (0u64, 0u64, file.version.ambiguous);
        let (mut unsure, mut outdated) = (false, false);
        let mut nodes = Vec::new();
        file.parts(&mut |part| match part {
            Part::Missing => missing += 1,
            Part::Node(v, nid) => {
                ambiguous |= v.ambiguous;
                unsure |= !v.believed;
                outdated |= self.index.is_outdated_delta_node(nid, v.version);
                nodes.push((v.addr, nid));
            }
        })?;
        let blocks = file.raw().i_size.get().div_ceil(format::BLOCK as u64);
        for (addr, nid) in nodes {
            let Some(block) = self.window.block(addr)? else { continue };
            let gone = |s: &&Slot| s.index < blocks && claims::is_past_end(self.from(), s.addr);
            past += file.slots(nid, &block).iter().filter(gone).count() as u64;
        }
        if missing > 0 {
            doubts.push(format!("{missing} of its nodes are missing"));
        }
        if past > 0 {
            doubts.push(format!("{past} of its blocks lie after the end of the image"));
        }
        match self.claims.contested(file.ino) {
            0 => {}
            n => doubts.push(format!("{n} of its blocks may have been overwritten by newer data")),
        }
        if ambiguous {
            doubts.push("several versions are of the same age: another may be the newest".into());
        }
        if self.index.is_outdated(file.ino, file.version.version) {
            doubts.push("an inode version that is as new or newer has a wrong checksum".into());
        }
        if outdated {
            doubts.push("a version of one of its delta nodes that is as new or newer has a wrong checksum".into());
        }
        if let Some(room) = file.inline().map(<[u8]>::len)
            && file.kind() != 2
            && file.raw().i_size.get() > room as u64
        {
            doubts.push(format!("its size is {}, but its inode has room for {room} bytes", file.raw().i_size.get()));
        }
        if file.is_encrypted() {
            doubts.push("it is encrypted".into());
        }
        Ok(Verdict { doubts, unsure, version: file.version.version, versions: file.version.found })
    }
}

/// An inode that is not alive, and everything below it.
fn below(from: Sources<'_>, tree: &Tree, top: Ino, out: &mut Vec<Ino>) -> Result<(), RescueError> {
    let mut seen = rustc_hash::FxHashSet::default();
    let mut waiting = vec![top];
    while let Some(ino) = waiting.pop() {
        if !seen.insert(ino.0) {
            continue;
        }
        out.push(ino);
        if RescuedFile::open(from, ino)?.is_none_or(|f| f.kind() != 2) {
            continue;
        }
        for entry in tree::names(from, ino)?.entries {
            if tree.belongs(from, ino, &entry)? {
                waiting.push(entry.ino);
            }
        }
    }
    Ok(())
}

/// True if a living file references a block behind the end of the image.
fn past_end(from: Sources<'_>, tree: &Tree) -> Result<bool, RescueError> {
    for ino in &tree.living {
        let Some(file) = RescuedFile::open(from, Ino(*ino))? else { continue };
        let mut nodes = Vec::new();
        file.parts(&mut |part| {
            if let Part::Node(v, nid) = part {
                nodes.push((v.addr, nid));
            }
        })?;
        for (addr, nid) in nodes {
            let Some(block) = from.window.block(addr)? else { continue };
            if file.slots(nid, &block).iter().any(|s| claims::is_past_end(from, s.addr)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
