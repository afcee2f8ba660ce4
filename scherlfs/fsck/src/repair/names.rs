//! Which file has which name after a repair?
//!
//! All directories are read, and consistent entries are kept: every name leads to an inode; each directory has one
//! name, in its recorded parent if that has one; and everything is below the root. Files without a remaining name
//! go to `lost+found` as `#` and their number.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;
use scherlfs_format::directory::Entries;
use scherlfs_format::inode::{Attributes, Time};
use scherlfs_format::{BLOCK, FIRST_INO, IFILE, Ino, ROOT, Seq};

use super::action::{Log, What};
use super::dirs::{Dir, Named};
use super::file::File;
use super::gather::Gathered;
use crate::{Disk, kind};

/// The name of the inode map in the root.
const IFILE_NAME: &[u8] = b".ifile";
/// Directory for files without a name.
const LOST_FOUND: &[u8] = b"lost+found";

struct Mender<'a, 'd> {
    disk: &'a Disk<'d>,
    files: BTreeMap<Ino, File>,
    /// Lost inodes, with an earlier name of each.
    lost: BTreeMap<Ino, Option<(Ino, Vec<u8>)>>,
    dirs: BTreeMap<Ino, Dir>,
    /// Remaining names, by inode.
    to: BTreeMap<Ino, Vec<Named>>,
    /// `lost+found` and its names, after its first use.
    found: Option<(Ino, FxHashSet<Vec<u8>>)>,
    log: &'a mut Log,
}

/// Files with one of their names each.
pub(crate) struct Mended {
    pub files: BTreeMap<Ino, File>,
    /// Directory and name of each file.
    pub names: BTreeMap<Ino, (Ino, Vec<u8>)>,
}

/// The path of a file, if it has one.
pub(crate) fn path(names: &BTreeMap<Ino, (Ino, Vec<u8>)>, ino: Ino) -> Option<Vec<u8>> {
    let (mut parts, mut at) = (Vec::new(), ino);
    while at != ROOT {
        let (dir, name) = names.get(&at)?;
        parts.push(name.as_slice());
        at = *dir;
        if parts.len() > names.len() {
            return None;
        }
    }
    if parts.is_empty() {
        return Some(b"/".to_vec());
    }
    Some(parts.iter().rev().flat_map(|p| [b"/".as_slice(), p].concat()).collect())
}

fn below(mut dir: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if dir != b"/" {
        dir.push(b'/');
    }
    dir.extend_from_slice(name);
    dir
}

/// Repairs names, and the inode fields that depend on them. `orphans` may be freed.
pub(crate) fn mend(disk: &Disk<'_>, gathered: Gathered, orphans: &BTreeSet<Ino>, log: &mut Log) -> Mended {
    let Gathered { files, lost, blind } = gathered;
    let lost = lost.into_iter().map(|ino| (ino, None)).collect();
    let mut m = Mender { disk, files, lost, dirs: BTreeMap::new(), to: BTreeMap::new(), found: None, log };
    m.root();
    m.read_directories();
    m.shapes();
    m.check_names();
    m.one_name_for_directories();
    let whole: BTreeSet<Ino> = m.dirs.iter().filter(|(_, d)| d.whole).map(|(ino, _)| *ino).collect();
    let mut reached = m.reach();
    if blind {
        m.drop_deleted(&reached, &whole);
        reached = m.reach();
    }
    m.adopt(reached, orphans);
    m.count_links();
    let lost = std::mem::take(&mut m.lost);
    let names: BTreeMap<Ino, (Ino, Vec<u8>)> =
        m.to.iter().filter_map(|(ino, all)| all.first().map(|e| (*ino, (e.dir, e.name.clone())))).collect();
    for (ino, dir) in std::mem::take(&mut m.dirs) {
        if let Some(file) = m.files.get_mut(&ino) {
            dir.settle(ino, file);
        }
    }
    for (ino, was) in lost {
        let had = was.and_then(|(dir, name)| Some(below(path(&names, dir)?, &name)));
        match had {
            Some(path) => m.log.gone(ino, path, What::Lost),
            None => m.log.file(ino, What::Lost),
        }
    }
    Mended { files: m.files, names }
}

fn new_directory(like: Option<&Attributes>, parent: Ino) -> File {
    let attributes = Attributes {
        mode: kind::DIRECTORY | 0o755,
        nlink: 2,
        parent,
        times: like.map_or([Time::default(); 4], |a| a.times),
        ..Attributes::default()
    };
    File {
        at: None,
        seq: Seq(0),
        attributes,
        xattrs: Vec::new(),
        extents: Vec::new(),
        own: Vec::new(),
        changed: true,
        pages: BTreeMap::new(),
    }
}

impl Mender<'_, '_> {
    /// Ensures that there is a root directory.
    fn root(&mut self) {
        match self.files.get_mut(&ROOT) {
            Some(file) if file.is_dir() => {
                if file.attributes.parent != ROOT {
                    file.attributes.parent = ROOT;
                    file.changed = true;
                    self.log.file(ROOT, What::Mended { field: "parent" });
                }
            }
            Some(file) => {
                file.attributes.mode = kind::DIRECTORY | (file.attributes.mode & 0o7777);
                file.attributes.parent = ROOT;
                file.changed = true;
                self.log.file(ROOT, What::Mended { field: "mode" });
            }
            None => {
                self.files.insert(ROOT, new_directory(None, ROOT));
                self.lost.remove(&ROOT);
                self.log.file(ROOT, What::Made);
            }
        }
    }

    fn looks_like_directory(&self, ino: Ino, file: &File) -> bool {
        file.stored().take(4).any(|(n, at)| self.disk.read(at).is_ok_and(|b| Entries::read(&b, ino, n).is_ok()))
    }

    /// Reads all directories, including those identified only by their names and blocks.
    fn read_directories(&mut self) {
        let mut hints: BTreeMap<Ino, BTreeSet<u8>> = BTreeMap::new();
        let mut waiting: Vec<Ino> = self.files.iter().filter(|(_, f)| f.is_dir()).map(|(i, _)| *i).collect();
        while let Some(ino) = waiting.pop() {
            let Some(file) = self.files.get(&ino) else { continue };
            if self.dirs.contains_key(&ino) {
                continue;
            }
            let dir = Dir::read(self.disk, ino, file, self.log);
            for name in dir.names(ino) {
                hints.entry(name.ino).or_default().insert(name.kind);
                let Some(child) = self.files.get(&name.ino) else { continue };
                if name.kind == 2 && !child.is_dir() && self.looks_like_directory(name.ino, child) {
                    self.set_mode_kind(name.ino, kind::DIRECTORY);
                    waiting.push(name.ino);
                }
            }
            self.dirs.insert(ino, dir);
        }
        let unlawful: Vec<Ino> =
            self.files.iter().filter(|(_, f)| !kind::lawful(f.attributes.mode)).map(|(i, _)| *i).collect();
        for ino in unlawful {
            let hint = hints.get(&ino).and_then(|h| h.first()).map_or(kind::REGULAR, |k| kind::of_entry(*k));
            self.set_mode_kind(ino, hint);
            if hint == kind::DIRECTORY
                && let Some(file) = self.files.get(&ino)
            {
                let dir = Dir::read(self.disk, ino, file, self.log);
                self.dirs.insert(ino, dir);
            }
        }
        // An inode without a valid directory block, and with another kind in its names.
        let wrong = |ino: &Ino, file: &File| {
            let called = hints.get(ino).is_some_and(|h| !h.contains(&2));
            called && *ino != ROOT && file.stored().next().is_some() && !self.looks_like_directory(*ino, file)
        };
        let wrong: Vec<Ino> = self.files.iter().filter(|(i, f)| f.is_dir() && wrong(i, f)).map(|(i, _)| *i).collect();
        for ino in wrong {
            let hint = hints.get(&ino).and_then(|h| h.first()).map_or(kind::REGULAR, |k| kind::of_entry(*k));
            self.dirs.remove(&ino);
            self.log.0.retain(|a| a.ino != Some(ino) || !matches!(a.what, What::Names { .. }));
            self.set_mode_kind(ino, hint);
        }
    }

    fn set_mode_kind(&mut self, ino: Ino, kind: u16) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.attributes.mode = kind | (file.attributes.mode & 0o7777);
            file.changed = true;
            self.log.file(ino, What::Mended { field: "mode" });
        }
    }

    /// Limits sizes to those valid for the kind of file.
    fn shapes(&mut self) {
        let mut lost = Vec::new();
        for (&ino, file) in &mut self.files {
            let mut size = file.attributes.size;
            if kind::of_mode(file.attributes.mode) == kind::SYMLINK {
                let target = file.stored().next().filter(|(n, _)| *n == 0).and_then(|(_, at)| self.disk.read(at).ok());
                let long = target.map_or(0, |b| b.iter().position(|b| *b == 0).unwrap_or(BLOCK - 1));
                if long == 0 {
                    lost.push(ino);
                    continue;
                }
                // What follows a NUL byte leads nowhere.
                if size == 0 || size > long as u64 {
                    size = long as u64;
                }
            } else if !file.is_dir() && size > i64::MAX as u64 {
                size = file.extents.iter().map(|e| e.blocks()).sum::<u64>().saturating_mul(BLOCK as u64);
                size = size.min(i64::MAX as u64);
            }
            if size != file.attributes.size {
                file.attributes.size = size;
                file.changed = true;
                self.log.file(ino, What::Mended { field: "size" });
            }
        }
        for ino in lost {
            self.files.remove(&ino);
            self.lost.insert(ino, None);
        }
    }

    fn drop_name(&mut self, entry: &Named, why: &'static str) {
        if let Some(dir) = self.dirs.get_mut(&entry.dir) {
            dir.remove(entry);
        }
        self.log.file(entry.dir, What::NameRemoved { name: entry.name.clone(), why });
    }

    /// Removes invalid names and those that lead to no inode.
    fn check_names(&mut self) {
        let mut mapped = false;
        for ino in self.dirs.keys().copied().collect::<Vec<_>>() {
            let mut seen = FxHashSet::default();
            for entry in self.dirs.get(&ino).map(|d| d.names(ino)).unwrap_or_default() {
                let n = entry.name.as_slice();
                if n.contains(&b'/') || n.contains(&0) || n == b"." || n == b".." {
                    self.drop_name(&entry, "no file can have it");
                    continue;
                }
                if entry.ino == IFILE || (ino == ROOT && n == IFILE_NAME) {
                    let own = ino == ROOT && n == IFILE_NAME && entry.ino == IFILE && !mapped;
                    if !own {
                        self.drop_name(&entry, "it is not the inode map's");
                    } else if entry.kind != 1 {
                        self.set_kind(&entry, 1);
                    }
                    mapped |= own;
                    if own {
                        seen.insert(entry.name);
                    }
                    continue;
                }
                let Some(child) = self.files.get(&entry.ino) else {
                    let lost = self.lost.get_mut(&entry.ino);
                    let why = if lost.is_some() { "its inode is lost" } else { "it leads to no inode" };
                    if let Some(had @ None) = lost {
                        *had = Some((ino, entry.name.clone()));
                    }
                    self.drop_name(&entry, why);
                    continue;
                };
                let is = kind::for_entry(child.attributes.mode);
                if entry.ino == ROOT || seen.contains(&entry.name) {
                    let why = if entry.ino == ROOT { "it leads to the root" } else { "it is there twice" };
                    self.drop_name(&entry, why);
                    continue;
                }
                seen.insert(entry.name.clone());
                if entry.kind != is {
                    self.set_kind(&entry, is);
                }
                self.to.entry(entry.ino).or_default().push(entry);
            }
        }
        if !mapped && let Some(root) = self.dirs.get_mut(&ROOT) {
            root.add(IFILE, 1, IFILE_NAME);
            self.log.file(ROOT, What::MapNamed);
        }
    }

    fn set_kind(&mut self, entry: &Named, kind: u8) {
        if let Some(dir) = self.dirs.get_mut(&entry.dir) {
            dir.set_kind(entry, kind);
        }
        self.log.file(entry.dir, What::NameKind { name: entry.name.clone() });
    }

    /// Keeps one name of each directory.
    fn one_name_for_directories(&mut self) {
        for ino in self.dirs.keys().copied().collect::<Vec<_>>() {
            let Some(names) = self.to.get(&ino).filter(|n| n.len() > 1).cloned() else { continue };
            let parent = self.files.get(&ino).map(|f| f.attributes.parent);
            let stays = names.iter().position(|e| Some(e.dir) == parent).unwrap_or(0);
            for (n, entry) in names.iter().enumerate() {
                if n != stays {
                    self.drop_name(entry, "a directory has one name");
                }
            }
            self.to.insert(ino, vec![names[stays].clone()]);
        }
    }

    /// All inodes below the root.
    fn reach(&self) -> BTreeSet<Ino> {
        let mut reached = BTreeSet::from([ROOT]);
        self.reach_from(ROOT, &mut reached);
        reached
    }

    fn reach_from(&self, ino: Ino, reached: &mut BTreeSet<Ino>) {
        let mut waiting = vec![ino];
        while let Some(ino) = waiting.pop() {
            for entry in self.dirs.get(&ino).map(|d| d.names(ino)).unwrap_or_default() {
                if self.files.contains_key(&entry.ino) && reached.insert(entry.ino) {
                    waiting.push(entry.ino);
                }
            }
        }
    }

    /// Removes deleted inodes: their directory, or an ancestor, exists, was written later, and does not contain
    /// them.
    fn drop_deleted(&mut self, reached: &BTreeSet<Ino>, whole: &BTreeSet<Ino>) {
        let mut deleted = BTreeSet::new();
        for (&ino, file) in self.files.iter().filter(|(i, _)| !reached.contains(i)) {
            let (mut at, mut seq, mut steps) = (file.attributes.parent, file.seq, 0);
            let gone = loop {
                steps += 1;
                match self.files.get(&at) {
                    Some(dir) if reached.contains(&at) => break whole.contains(&at) && dir.seq >= seq,
                    Some(dir) if steps < 4096 && dir.attributes.parent != at => {
                        (at, seq) = (dir.attributes.parent, dir.seq);
                    }
                    _ => break false,
                }
            };
            if gone || file.attributes.nlink == 0 {
                deleted.insert(ino);
            }
        }
        for ino in &deleted {
            self.files.remove(ino);
            self.dirs.remove(ino);
            self.to.remove(ino);
        }
        self.log.0.retain(|a| a.ino.is_none_or(|i| !deleted.contains(&i)));
        for names in self.to.values_mut() {
            names.retain(|e| !deleted.contains(&e.dir));
        }
        self.to.retain(|_, names| !names.is_empty());
    }

    /// Moves everything that is not below the root to `lost+found`, or frees it if it was an orphan.
    fn adopt(&mut self, mut reached: BTreeSet<Ino>, orphans: &BTreeSet<Ino>) {
        let unnamed: Vec<Ino> =
            self.files.keys().filter(|i| !reached.contains(i) && !self.to.contains_key(i)).copied().collect();
        for ino in unnamed {
            let Some(file) = self.files.get(&ino) else { continue };
            if file.attributes.nlink == 0
                && (!file.is_dir() || self.dirs.get(&ino).is_none_or(|d| d.names(ino).is_empty()))
            {
                if !orphans.contains(&ino) {
                    self.log.file(ino, What::OrphanFreed);
                }
                self.files.remove(&ino);
                self.dirs.remove(&ino);
                continue;
            }
            reached.insert(ino);
            self.reach_from(ino, &mut reached);
            reached.insert(self.into_lost_found(ino));
        }
        // The rest are circles.
        loop {
            let Some(ino) = self.files.keys().find(|i| !reached.contains(i)).copied() else { return };
            let ino = self.in_the_circle(ino);
            for entry in self.to.remove(&ino).unwrap_or_default() {
                self.drop_name(&entry, "the directory is below itself");
            }
            reached.insert(ino);
            self.reach_from(ino, &mut reached);
            reached.insert(self.into_lost_found(ino));
        }
    }

    fn in_the_circle(&self, from: Ino) -> Ino {
        let (mut seen, mut at) = (BTreeSet::new(), from);
        while seen.insert(at) {
            match self.to.get(&at).and_then(|n| n.first()) {
                Some(entry) => at = entry.dir,
                None => return at,
            }
        }
        at
    }

    fn lost_found(&mut self) -> Ino {
        let here = |m: &Self, name: &[u8]| {
            let names = m.dirs.get(&ROOT).map(|d| d.names(ROOT)).unwrap_or_default();
            names.into_iter().find(|e| e.name == name).map(|e| e.ino)
        };
        let mut name = LOST_FOUND.to_vec();
        loop {
            match here(self, &name) {
                Some(ino) if self.dirs.contains_key(&ino) => return ino,
                Some(_) => name.push(b'_'),
                None => break,
            }
        }
        let taken = |ino: &Ino| self.files.contains_key(ino);
        let ino = (FIRST_INO.0..).map(Ino).find(|i| !taken(i)).unwrap_or(FIRST_INO);
        let root = self.files.get(&ROOT).map(|f| f.attributes);
        let mut file = new_directory(root.as_ref(), ROOT);
        file.attributes.mode = kind::DIRECTORY | 0o700;
        self.files.insert(ino, file);
        self.lost.remove(&ino);
        self.dirs.insert(ino, Dir::default());
        self.name(ROOT, ino, name);
        self.log.file(ino, What::Made);
        ino
    }

    fn name(&mut self, dir: Ino, ino: Ino, name: Vec<u8>) {
        let kind = self.files.get(&ino).map_or(1, |f| kind::for_entry(f.attributes.mode));
        if let Some(blocks) = self.dirs.get_mut(&dir) {
            blocks.add(ino, kind, &name);
        }
        self.to.entry(ino).or_default().push(Named { dir, block: 0, at: 0, name, ino, kind });
    }

    /// Returns the new parent directory.
    fn into_lost_found(&mut self, ino: Ino) -> Ino {
        let (dir, mut taken) = self.found.take().unwrap_or_else(|| {
            let dir = self.lost_found();
            let names = self.dirs.get(&dir).map(|d| d.names(dir)).unwrap_or_default();
            (dir, names.into_iter().map(|e| e.name).collect())
        });
        let mut name = format!("#{ino}").into_bytes();
        while !taken.insert(name.clone()) {
            name.push(b'_');
        }
        self.found = Some((dir, taken));
        self.name(dir, ino, name);
        if let Some(file) = self.files.get_mut(&ino) {
            file.attributes.parent = dir;
            file.changed = true;
        }
        self.log.file(ino, What::Adopted);
        dir
    }

    /// Counts names, and sets the parent of each directory.
    fn count_links(&mut self) {
        let mut links: BTreeMap<Ino, u32> = self.dirs.keys().map(|i| (*i, 2)).collect();
        for (ino, names) in &self.to {
            if self.dirs.contains_key(ino) {
                for e in names {
                    *links.entry(e.dir).or_default() += 1;
                }
            } else {
                *links.entry(*ino).or_default() += names.len() as u32;
            }
        }
        for (&ino, file) in &mut self.files {
            let count = links.get(&ino).copied().unwrap_or(0);
            if file.attributes.nlink != count {
                file.attributes.nlink = count;
                file.changed = true;
                self.log.file(ino, What::Mended { field: "links" });
            }
            let above = self.to.get(&ino).and_then(|n| n.first()).map(|e| e.dir);
            if let Some(dir) = above.filter(|d| self.dirs.contains_key(&ino) && *d != file.attributes.parent) {
                file.attributes.parent = dir;
                file.changed = true;
                self.log.file(ino, What::Mended { field: "parent" });
            }
        }
    }
}
