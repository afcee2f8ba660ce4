//! Which files were alive, and what were their names?
//!
//! The root directory is alive, and so is every file named in the newest version of a living directory. Any other
//! file was deleted, or its directory was lost. It was deleted if its directory (`i_pino`) is alive and complete
//! and has no such entry, or if the whole tree is complete, so that no other place is left for it. Otherwise the
//! volume cannot decide: such a file is *unplaced*. If the image was truncated, every file without a name is
//! unplaced, since a directory that looks complete may be an old version.
//!
//! A directory has one place in the tree. If damage gave it more names, the recorded one is used, or else any of
//! them: each place leads up to the root.
//!
//! Files below a deleted or unplaced directory belong to it if their inodes agree: an old directory may name inodes
//! that are now other files.

use format::dentry::{self, Layout};
use format::inode::RawInode;
use format::{BLOCK, Ino};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::RescueError;
use crate::claims::is_past_end;
use crate::file::RescuedFile;
use crate::sources::{Part, Sources};

/// A directory's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name; no `/`, no NUL, not `.` nor `..`.
    pub name: Vec<u8>,
    /// The inode it leads to.
    pub ino: Ino,
    /// The kind of file that the entry records.
    pub kind: u8,
}

/// The readable contents of a directory.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Its entries, in the order of its blocks.
    pub entries: Vec<Entry>,
    /// Why entries may be missing.
    pub gaps: Vec<String>,
}

/// Why a file is outside the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loose {
    /// Its directory, or part of it, was lost.
    Unplaced,
    /// No directory names it.
    Deleted,
}

/// Living inodes, and the top inodes of the rest.
pub struct Tree {
    /// Inodes reached from the root.
    pub living: FxHashSet<u32>,
    /// Other inodes that are not below another one of these, in order of their numbers.
    pub loose: Vec<(Ino, Loose)>,
    /// Living directories with gaps.
    pub broken: FxHashSet<u32>,
    /// Entries whose inode was not found, as directory and entry.
    pub lost: Vec<(Ino, Entry)>,
    /// The place of each living directory except the root.
    homes: FxHashMap<u32, Home>,
}

/// Place of a directory.
struct Home {
    above: Ino,
    name: Vec<u8>,
}

/// Most lost names kept.
const MOST_LOST: usize = 1 << 20;

/// True for a name that a directory may have and that does not lead elsewhere.
pub fn is_lawful(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// The entries of a directory.
pub fn names(from: Sources<'_>, dir: Ino) -> Result<Names, RescueError> {
    let mut out = Names::default();
    let Some(mut file) = RescuedFile::open(from, dir)?.filter(|f| f.kind() == 2) else {
        out.gaps.push("its inode is missing".into());
        return Ok(out);
    };
    if file.is_encrypted() {
        out.gaps.push("its names are encrypted".into());
        return Ok(out);
    }
    if let Some(area) = file.inline().map(<[u8]>::to_vec) {
        take(&Layout::inline(area.len()), &area, &mut out);
        return Ok(out);
    }
    let (mut missing, mut gone) = (0u64, 0u64);
    let mut nodes = Vec::new();
    file.parts(&mut |part| match part {
        Part::Missing => missing += 1,
        Part::Node(v, nid) => nodes.push((v.addr, nid)),
    })?;
    for (addr, nid) in nodes {
        let Some(block) = from.window.block(addr)? else { continue };
        gone += file.slots(nid, &block).iter().filter(|s| is_past_end(from, s.addr)).count() as u64;
    }
    if missing + gone > 0 {
        out.gaps.push(format!("{missing} of its nodes and {gone} of its blocks are missing"));
    }
    let end = file.raw().i_size.get().div_ceil(BLOCK as u64);
    let mut block = [0; BLOCK];
    file.lenient = true;
    let mut at = 0;
    let (mut seen, mut repeated) = (FxHashSet::default(), 0u64);
    while let Some(next) = file.next_data(at, end)? {
        at = next + 1;
        if file.address(next)?.is_some_and(|addr| addr.is_real() && !seen.insert(addr.0)) {
            repeated += 1;
            continue;
        }
        match file.read_block(next, &mut block) {
            Ok(()) => take(&Layout::BLOCK, &block, &mut out),
            Err(e) => out.gaps.push(e.to_string()),
        }
    }
    if repeated > 0 {
        out.gaps.push(format!("{repeated} of its blocks exist more than once"));
    }
    Ok(out)
}

fn take(layout: &Layout, area: &[u8], out: &mut Names) {
    for d in dentry::entries(layout, area, 0) {
        if d.name == b"." || d.name == b".." {
            continue;
        }
        match is_lawful(d.name) {
            true => out.entries.push(Entry { name: d.name.to_vec(), ino: Ino(d.ino), kind: d.kind }),
            false => out.gaps.push("the name of an entry contains '/' or a zero byte".into()),
        }
    }
}

impl Tree {
    /// Determines the living files. `unnamed` are used inodes without a name.
    pub fn build(from: Sources<'_>, root: Ino, cut_short: bool, unnamed: &[Ino]) -> Result<Self, RescueError> {
        let mut tree = Tree {
            living: FxHashSet::default(),
            loose: Vec::new(),
            broken: FxHashSet::default(),
            lost: Vec::new(),
            homes: FxHashMap::default(),
        };
        let has_root = RescuedFile::open(from, root)?.is_some_and(|f| f.kind() == 2);
        let mut lost_dirs = FxHashSet::default();
        let mut waiting = Vec::new();
        // Names of directories that differ from the recorded ones.
        let mut others = Vec::new();
        if has_root {
            tree.living.insert(root.0);
            waiting.push(root);
        }
        loop {
            let Some(dir) = waiting.pop() else {
                let Some((above, name, dir)): Option<(Ino, Vec<u8>, Ino)> = others.pop() else { break };
                if tree.living.insert(dir.0) {
                    tree.homes.insert(dir.0, Home { above, name });
                    waiting.push(dir);
                }
                continue;
            };
            let names = names(from, dir)?;
            if !names.gaps.is_empty() {
                tree.broken.insert(dir.0);
            }
            for entry in names.entries {
                let file = RescuedFile::open(from, entry.ino)?;
                match file.filter(|f| f.kind() == entry.kind) {
                    Some(file) if entry.kind == 2 => {
                        let own = Ino(file.raw().i_pino.get()) == dir && file.raw().name() == entry.name;
                        if !own {
                            others.push((dir, entry.name, entry.ino));
                        } else if tree.living.insert(entry.ino.0) {
                            tree.homes.insert(entry.ino.0, Home { above: dir, name: entry.name });
                            waiting.push(entry.ino);
                        }
                    }
                    Some(_) => _ = tree.living.insert(entry.ino.0),
                    _ => {
                        if entry.kind == 2 {
                            lost_dirs.insert(entry.ino.0);
                        }
                        if tree.lost.len() < MOST_LOST {
                            tree.lost.push((dir, entry));
                        }
                    }
                }
            }
        }
        tree.living.extend(unnamed.iter().map(|ino| ino.0));
        let whole = has_root && !cut_short && tree.broken.is_empty() && lost_dirs.is_empty();
        tree.sort_out(from, cut_short, whole)?;
        unnamed.iter().for_each(|ino| _ = tree.living.remove(&ino.0));
        Ok(tree)
    }

    fn sort_out(&mut self, from: Sources<'_>, cut_short: bool, whole: bool) -> Result<(), RescueError> {
        let others: Vec<Ino> = from.index.inodes().into_iter().filter(|i| !self.living.contains(&i.0)).collect();
        let mut above: FxHashMap<u32, u32> = FxHashMap::default();
        for dir in &others {
            if kind_of(from, *dir)? != Some(2) {
                continue;
            }
            for entry in names(from, *dir)?.entries {
                if self.belongs(from, *dir, &entry)? && !leads_to(&above, *dir, entry.ino) {
                    above.entry(entry.ino.0).or_insert(dir.0);
                }
            }
        }
        for ino in others.into_iter().filter(|ino| !above.contains_key(&ino.0)) {
            let Some(file) = RescuedFile::open(from, ino)? else { continue };
            let parent = Ino(file.raw().i_pino.get());
            let parent_whole = self.living.contains(&parent.0) && !self.broken.contains(&parent.0);
            let gone = whole || !cut_short && parent_whole;
            self.loose.push((ino, if gone { Loose::Deleted } else { Loose::Unplaced }));
        }
        Ok(())
    }

    /// True if an entry of a living directory is the only place of the directory it leads to.
    pub fn is_home(&self, dir: Ino, entry: &Entry) -> bool {
        self.homes.get(&entry.ino.0).is_some_and(|home| home.above == dir && home.name == entry.name)
    }

    /// True if an entry of a directory that is not alive still refers to its inode.
    pub fn belongs(&self, from: Sources<'_>, dir: Ino, entry: &Entry) -> Result<bool, RescueError> {
        if self.living.contains(&entry.ino.0) || entry.ino == dir {
            return Ok(false);
        }
        let Some(file) = RescuedFile::open(from, entry.ino)? else { return Ok(false) };
        Ok(file.kind() == entry.kind && Ino(file.raw().i_pino.get()) == dir)
    }
}

/// True if `ino` is an ancestor of `dir`, or `dir` itself.
fn leads_to(above: &FxHashMap<u32, u32>, dir: Ino, ino: Ino) -> bool {
    let mut at = dir.0;
    for _ in 0..=above.len() {
        if at == ino.0 {
            return true;
        }
        match above.get(&at) {
            Some(up) => at = *up,
            None => return false,
        }
    }
    true
}

fn kind_of(from: Sources<'_>, ino: Ino) -> Result<Option<u8>, RescueError> {
    Ok(RescuedFile::open(from, ino)?.map(|f| f.kind()))
}

/// The name recorded in an inode, if it is valid.
pub fn own_name(raw: &RawInode) -> Option<Vec<u8>> {
    Some(raw.name().to_vec()).filter(|name| is_lawful(name))
}
