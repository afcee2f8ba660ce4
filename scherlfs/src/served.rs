//! The volume as a [`vfs::Volume`]: queries for mounting, accounting and reports.
//!
//! An inode records its directory, but not its name, which must be searched there. A file with several names
//! records the directory of one of them.

use scherlfs_format::superblock::Superblock;
use scherlfs_format::{FIRST_INO, IFILE, Ino, ROOT};
use vfs::{Accountant, Cleaned, Error, FreeFragments, Look, Owner, Reason, Reporter, Result};

use crate::cause::Cause;
use crate::inode::Inode;
use crate::make::IFILE_NAME;
use crate::path;
use crate::volume::{State, Volume};

/// Deepest directory nesting; more is a circle.
const DEEPEST: usize = 1024;

/// The name of an inode in a directory whose names are in memory.
fn name_in(dir: &Inode, ino: Ino) -> Option<Vec<u8>> {
    let names = dir.names.as_ref()?;
    names.spots.iter().find(|(_, spot)| spot.ino == ino).map(|(name, _)| name.to_vec())
}

/// Information about one inode.
enum Step {
    /// Its directory and its name there.
    Up(Ino, Vec<u8>),
    /// Deleted, or without a name.
    Gone,
    /// Its name was not found.
    Unknown,
}

impl State {
    fn step_in_memory(&self, ino: Ino) -> Step {
        match self.inodes.get(&ino) {
            Some(inode) if inode.a.nlink == 0 => Step::Gone,
            Some(inode) => {
                let parent = inode.a.parent;
                let name = self.inodes.get(&parent).and_then(|dir| name_in(dir, ino));
                name.map_or(Step::Unknown, |name| Step::Up(parent, name))
            }
            None if self.gone_names.name_of(ino).is_some() => Step::Gone,
            None => Step::Unknown,
        }
    }

    fn step(&mut self, ino: Ino) -> Result<Step> {
        let (links, parent) = match self.inode(ino) {
            Ok(inode) => (inode.a.nlink, inode.a.parent),
            Err(Error::NotFound) => return Ok(Step::Gone),
            Err(e) => return Err(e),
        };
        if links == 0 {
            return Ok(Step::Gone);
        }
        if parent == ino {
            return Ok(Step::Unknown);
        }
        self.with(parent, |st, dir| {
            st.names(dir)?;
            let name = name_in(dir, ino);
            st.forget_names(dir);
            Ok(name.map_or(Step::Unknown, |name| Step::Up(parent, name)))
        })
    }
}

/// Climbs from an inode to the root by calling `step` for each inode on the way.
fn climb(ino: Ino, gone: impl Fn(Ino) -> Option<(Ino, Vec<u8>)>, mut step: impl FnMut(Ino) -> Result<Step>) -> Owner {
    let (mut at, mut names, mut deleted) = (ino, Vec::new(), false);
    while at != ROOT {
        // Unreadable directories show no name; direct reads report the error.
        match step(at).unwrap_or(Step::Unknown) {
            Step::Up(dir, name) => {
                names.push(name);
                at = dir;
            }
            Step::Gone => {
                let Some((dir, name)) = gone(at) else {
                    return if names.is_empty() || deleted { Owner::Deleted(None) } else { Owner::Unnamed };
                };
                deleted = true;
                names.push(name);
                at = dir;
            }
            Step::Unknown => return if deleted { Owner::Deleted(None) } else { Owner::Unnamed },
        }
        if names.len() > DEEPEST {
            return Owner::Unnamed;
        }
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    if deleted { Owner::Deleted(Some(path)) } else { Owner::Path(path) }
}

impl Volume {
    /// The last written superblock, or the one found at mount.
    pub fn superblock(&self) -> Superblock {
        self.state.read().sb.clone()
    }

    /// The path of an owner, if it is in memory.
    pub(crate) fn path_of(&self, owner: u64) -> Option<String> {
        match vfs::Volume::owner_of(self, owner, Look::InMemory) {
            Owner::Path(path) => Some(String::from_utf8_lossy(&path).into_owned()),
            _ => None,
        }
    }

    /// Number of free runs, and blocks of the largest.
    pub fn free_runs(&self) -> (usize, u64) {
        let state = self.state.read();
        (state.free.runs(), state.free.from(0).map(|(_, blocks)| blocks).max().unwrap_or(0))
    }
}

/// Blocks of the largest file that fits into `free` blocks in `runs` runs, together with its inode, continuations,
/// a directory block, and path blocks.
fn largest_file(free: u64, runs: usize) -> Option<u64> {
    // Upper bound for the inode and its directory's, a block of names, and the inode map blocks of a checkpoint.
    const BESIDE: u64 = 12;
    let rest = free.checked_sub(BESIDE + path::overhead(free, runs))?;
    let extents = rest.min(runs as u64 + 1);
    rest.checked_sub(extents.div_ceil(160) + rest / 160).filter(|n| *n > 0)
}

impl vfs::Volume for Volume {
    fn kind(&self) -> &'static str {
        "ScherlFS"
    }

    fn reasons(&self) -> Vec<Reason> {
        Cause::reasons()
    }

    fn own_blocks(&self) -> &'static str {
        "checkpoint, free list"
    }

    fn owner_of(&self, owner: u64, look: Look) -> Owner {
        let Ok(ino) = Volume::number(vfs::Ino(owner)) else { return Owner::Volume };
        match ino {
            IFILE => return Owner::Path([b"/", IFILE_NAME].concat()),
            ino if ino < FIRST_INO && ino != ROOT => return Owner::Volume,
            _ => {}
        }
        match look {
            Look::InMemory => {
                let state = self.state.read();
                climb(ino, |ino| state.gone_names.name_of(ino), |ino| Ok(state.step_in_memory(ino)))
            }
            Look::Everywhere => {
                let state = parking_lot::Mutex::new(self.state.write());
                climb(ino, |ino| state.lock().gone_names.name_of(ino), |ino| state.lock().step(ino))
            }
        }
    }

    fn keep_deleted_names(&self) {
        self.state.write().gone_names.keep();
    }

    fn user_bytes(&self) -> u64 {
        self.state.read().user_bytes
    }

    fn device_blocks(&self) -> u64 {
        self.state.read().sb.blocks
    }

    fn free_fragments(&self) -> FreeFragments {
        let state = self.state.read();
        // Blocks that the next checkpoint frees may adjoin free ones.
        let mut all = state.free.clone();
        all.add_spans(&state.dead.spans());
        let mut pieces = FreeFragments::default();
        all.from(0).for_each(|(_, blocks)| pieces.add(blocks));
        pieces
    }

    fn largest_file(&self, free: u64) -> Option<u64> {
        let state = self.state.read();
        largest_file(free, state.free.runs() + state.dead.runs())
    }

    fn cleans_ahead(&self) -> bool {
        !self.state.read().background.paused
    }

    fn clean_ahead(&self, on: bool) {
        self.state.write().background.paused = !on;
    }

    fn cleaned(&self) -> Cleaned {
        let done = self.done();
        Cleaned { sections: done.segments, waited_for: 0, moved: done.moved }
    }

    fn account_by(&self, accountant: Accountant) {
        *self.hooks.accountant.lock() = Some(accountant);
    }

    fn warning(&self) -> Option<String> {
        self.archive.as_ref().and_then(|archive| archive.warning.clone())
    }

    fn not_durable(&self) -> Option<Vec<vfs::Ino>> {
        let state = self.state.read();
        // Of written but unflushed inodes only the places are known.
        let waiting = state.waiting.values().map(|ino| vfs::Ino(ino.0.into()));
        state.unflushed.is_none().then(|| waiting.collect())
    }

    fn report_too(&self, reporter: Reporter) {
        *self.hooks.reporter.lock() = Some(reporter);
    }
}
