//! What can be had back from an image of which only the main area is left?
//!
//! No superblock, no checkpoint, no NAT and no summaries are needed. The footer of a node names its inode, the version of
//! its checkpoint, and the block with which its log continued, which is nearly always the next one. Each step is one
//! question:
//!
//! * [`place`]: where was the volume in the image, and what was it like?
//! * [`sign`]: is this block a node?
//! * [`index`]: which block holds the newest version of each node?
//! * [`tree`]: which files were alive, and what were their names?
//! * [`claims`]: whose is a block that more than one file names?
//! * [`mod@file`]: what does a file hold?
//! * `deltas`: what small updates lie beside its blocks?
//!
//! [`Rescue`] puts them together and says of each file what is proved.
//!
//! Left out on purpose:
//!
//! * writing: nothing here can write to the image, and the caller writes what was found;
//! * several volumes in one image: the one whose place the caller gives is read, else the one that most nodes vote for;
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

/// Blocks read at once while looking for the volume.
const BLOCKS_AT_ONCE: usize = 256;
/// The root directory's inode, if no superblock names another: every mkfs takes this one.
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
    /// More nodes than memory was granted for.
    #[error("more than {most} nodes: raise the limit with --most-nodes, about 40 bytes each")]
    TooManyNodes {
        /// The limit.
        most: usize,
    },
    /// The caller's progress function asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A block of a file.
    #[error("inode {ino}, file block {block}: {what}")]
    Contents {
        /// Whose.
        ino: Ino,
        /// Which.
        block: u64,
        /// Why not.
        what: String,
    },
    /// A file's extended attributes.
    #[error("inode {ino}: extended attributes: {what}")]
    Attributes {
        /// Whose.
        ino: Ino,
        /// Why not.
        what: String,
    },
}

/// Reports to the caller how many blocks are done, and asks it whether to go on.
pub struct Progress<'p> {
    tell: &'p mut dyn FnMut(u64) -> bool,
}

impl<'p> Progress<'p> {
    /// `tell` gets the blocks done since it was last called, and answers whether to go on.
    pub fn new(tell: &'p mut dyn FnMut(u64) -> bool) -> Self {
        Progress { tell }
    }
    fn step(&mut self, blocks: u64) -> Result<(), RescueError> {
        if (self.tell)(blocks) { Ok(()) } else { Err(RescueError::Interrupted) }
    }
}

/// How to search.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The volume's first byte in the image, if it is known.
    pub volume_at: Option<i64>,
    /// Nodes that may be remembered.
    pub most_nodes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { volume_at: None, most_nodes: 1 << 25 }
    }
}

/// What is known of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Why its contents are not proved to be its own, whole and newest; empty if they are.
    pub doubts: Vec<String>,
    /// One of its nodes lies where no other block shows that nodes lie there: it may be contents of a deleted file that
    /// look like a node.
    pub unsure: bool,
    /// The checkpoint version its newest inode was written under.
    pub version: u32,
    /// Versions of its inode that were found.
    pub versions: u16,
}

impl Verdict {
    /// True if there is no doubt, and each node lies among nodes.
    pub fn is_proved(&self) -> bool {
        self.doubts.is_empty() && !self.unsure
    }
}

/// A volume that was found.
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
        // In either case a newer version of anything may be in what is missing.
        let incomplete = cut_short || unreadable > 0;
        let root = place.superblock.as_ref().map_or(ROOT, |sb| sb.root);
        let quota = place.superblock.as_ref().map_or([Ino(0); 3], |sb| sb.quota_inos);
        let mut claims = Claims::new(window.blocks());

        // Files that are alive get their blocks first. A block that looks like a node is none if one of them owns it.
        let from = Sources { window: &window, place: &place, index: &index };
        let tree = Tree::build(from, root, incomplete, &quota)?;
        let mut living: Vec<Ino> = tree.living.iter().map(|ino| Ino(*ino)).collect();
        living.extend(quota.iter().filter(|ino| ino.0 != 0));
        living.sort_unstable();
        claims.give_out(from, &living, &mut || progress.step(0))?;
        index.forget_claimed(&window, claims.contents());

        let from = Sources { window: &window, place: &place, index: &index };
        let mut tree = Tree::build(from, root, incomplete, &quota)?;
        let cut_short = cut_short || past_end(from, &tree)?;
        if cut_short || unreadable > 0 {
            tree.loose.iter_mut().for_each(|(_, loose)| *loose = Loose::Unplaced);
        }
        // Then the others: unplaced files before deleted ones, whose blocks are likelier to be used again.
        let loose = |which: Loose| tree.loose.iter().filter(move |(_, l)| *l == which).map(|(ino, _)| *ino);
        for which in [Loose::Unplaced, Loose::Deleted] {
            let mut inos = Vec::new();
            for top in loose(which) {
                below(from, &tree, top, &mut inos)?;
            }
            claims.give_out(from, &inos, &mut || progress.step(0))?;
        }
        Ok(Rescue { window, place, index, tree, claims, cut_short, unreadable })
    }

    fn from(&self) -> Sources<'_> {
        Sources { window: &self.window, place: &self.place, index: &self.index }
    }

    /// Where the volume is and what is known of it.
    pub fn place(&self) -> &Place {
        &self.place
    }
    /// True if the image ends before the volume does.
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }
    /// Blocks that the search could not read.
    pub fn unreadable_blocks(&self) -> u64 {
        self.unreadable
    }
    /// True if a part of the volume could not be looked at: any inode or directory that was found may be an older version
    /// of itself, so that nothing is proved.
    pub fn is_incomplete(&self) -> bool {
        self.cut_short || self.unreadable > 0
    }
    /// Inodes of which a version has a wrong checksum.
    pub fn damaged_inodes(&self) -> u64 {
        self.index.damaged()
    }
    /// The root directory, if it was found.
    pub fn root(&self) -> Option<Ino> {
        let root = self.place.superblock.as_ref().map_or(ROOT, |sb| sb.root);
        self.tree.living.contains(&root.0).then_some(root)
    }
    /// Files that are not in the tree and lie in no other of them.
    pub fn loose(&self) -> &[(Ino, Loose)] {
        &self.tree.loose
    }
    /// Names whose file is not there, with their directory.
    pub fn lost(&self) -> &[(Ino, Entry)] {
        &self.tree.lost
    }
    /// True if a file is in the tree.
    pub fn is_living(&self, ino: Ino) -> bool {
        self.tree.living.contains(&ino.0)
    }

    /// The entries of a directory whose inodes were found. Of a directory that is not alive: those whose inode still
    /// records this directory as its parent.
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

    /// What is known of a file.
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

/// An inode and what lies below it, of those that are not alive.
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

/// True if a living file names a block behind the end of the image.
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
