//! Records operations and promises, and checks a recovered volume against them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vfs::{Allocate, Attr, FileKind, FileSystem, Flow, Ino};

const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// Contents at one time; blocks are shared with neighbouring versions.
#[derive(Debug, Clone, Default)]
struct Version {
    size: u64,
    blocks: Vec<Arc<[u8]>>,
}

impl Version {
    fn resize(&mut self, size: u64) {
        if size < self.size {
            self.blocks.truncate(size.div_ceil(BLOCK as u64) as usize);
            let tail = size as usize % BLOCK;
            if tail > 0
                && let Some(last) = self.blocks.last_mut()
            {
                let mut bytes = last.to_vec();
                bytes[tail..].fill(0);
                *last = bytes.into();
            }
        } else {
            self.blocks.resize(size.div_ceil(BLOCK as u64) as usize, vec![0; BLOCK].into());
        }
        self.size = size;
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        if end > self.size {
            self.resize(end);
        }
        let mut done = 0;
        while done < data.len() {
            let place = at as usize + done;
            let (block, from) = (place / BLOCK, place % BLOCK);
            let n = (BLOCK - from).min(data.len() - done);
            let mut bytes = self.blocks[block].to_vec();
            bytes[from..from + n].copy_from_slice(&data[done..done + n]);
            self.blocks[block] = bytes.into();
            done += n;
        }
    }

    fn allocate(&mut self, what: Allocate, at: u64, len: u64) {
        let end = at + len;
        match what {
            Allocate::Reserve { keep_size } | Allocate::Zero { keep_size } if !keep_size && end > self.size => {
                self.resize(end);
            }
            _ => {}
        }
        let blocks = at as usize / BLOCK..end as usize / BLOCK;
        match what {
            Allocate::Reserve { .. } => {}
            Allocate::PunchHole | Allocate::Zero { .. } => {
                let end = end.min(self.size);
                if at < end {
                    self.write(at, &vec![0; (end - at) as usize]);
                }
            }
            Allocate::Collapse => {
                self.blocks.drain(blocks);
                self.size -= len;
            }
            Allocate::Insert => {
                let zeroes: Arc<[u8]> = vec![0; BLOCK].into();
                self.blocks.splice(blocks.start..blocks.start, blocks.map(|_| zeroes.clone()));
                self.size += len;
            }
        }
    }

    fn sector(&self, n: usize) -> &[u8] {
        let per = BLOCK / SECTOR;
        match self.blocks.get(n / per) {
            Some(b) => &b[n % per * SECTOR..][..SECTOR],
            None => &[0; SECTOR],
        }
    }
}

/// The number of an inode whose creation did not return.
const UNTOLD: Ino = Ino(u64::MAX);

#[derive(Debug, Clone)]
struct Object {
    ino: Ino,
    directory: bool,
    /// From the floor; the last is current.
    versions: Vec<Version>,
    attributes: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// For a directory, from the floor; empty if they were never set.
    permissions: Vec<u16>,
    /// It was made durable, and has had a name ever since.
    durable: bool,
    links: u32,
    /// The power failed during its last change, which may have been applied in part.
    unfinished: bool,
}

/// All operations and promises.
#[derive(Debug, Default, Clone)]
pub struct Record {
    objects: Vec<Object>,
    /// The targets of each name, from its floor: (directory, name) to objects.
    names: BTreeMap<(usize, Vec<u8>), Vec<Option<usize>>>,
    /// Names in object 0 that belong to the file system.
    own: &'static [&'static [u8]],
}

impl Record {
    /// Only the top directory, object 0: the root or another durable directory.
    pub fn new(root: Ino) -> Self {
        let mut record = Record::default();
        record.object(root, true);
        record.objects[0].durable = true;
        record
    }

    /// The same, for a directory in which these names belong to the file system.
    pub fn without(self, own: &'static [&'static [u8]]) -> Self {
        Record { own, ..self }
    }

    /// A new object without a name.
    pub fn object(&mut self, ino: Ino, directory: bool) -> usize {
        self.objects.push(Object {
            ino,
            directory,
            versions: vec![Version::default()],
            attributes: vec![BTreeMap::new()],
            permissions: Vec::new(),
            durable: false,
            links: 0,
            unfinished: false,
        });
        self.objects.len() - 1
    }

    /// A new object under a name, before its creation: its number is not known yet.
    pub fn making(&mut self, (dir, name): (usize, &[u8]), directory: bool) -> usize {
        let object = self.object(UNTOLD, directory);
        self.bind(&[(dir, name, Some(object))]);
        object
    }

    /// It was created, with this number.
    pub fn made(&mut self, object: usize, ino: Ino) {
        self.objects[object].ino = ino;
    }

    /// Its creation failed, without other operations since: its name keeps the previous target.
    pub fn not_made(&mut self, (dir, name): (usize, &[u8])) {
        let history = self.names.get_mut(&(dir, name.to_vec()));
        if let Some(object) = history.and_then(|h| h.pop()).flatten() {
            self.objects[object].links -= 1;
        }
    }

    /// Its inode number.
    pub fn ino(&self, object: usize) -> Ino {
        self.objects[object].ino
    }

    /// Its size.
    pub fn size(&self, object: usize) -> u64 {
        self.objects[object].versions.last().map_or(0, |v| v.size)
    }

    /// The object created last.
    pub fn newest(&self) -> Option<usize> {
        self.objects.len().checked_sub(1)
    }

    /// The current target of a name.
    pub fn get(&self, dir: usize, name: &[u8]) -> Option<usize> {
        self.names.get(&(dir, name.to_vec())).and_then(|h| *h.last()?)
    }

    /// Directories that have a name, and the top directory.
    pub fn directories(&self) -> Vec<usize> {
        let named = |(i, o): &(usize, &Object)| o.directory && (*i == 0 || o.links > 0);
        self.objects.iter().enumerate().filter(named).map(|(i, _)| i).collect()
    }

    /// Every current name, of directories or of everything else: its directory, the name, the object.
    pub fn entries(&self, directories: bool) -> Vec<(usize, Vec<u8>, usize)> {
        let now = self.names.iter().filter_map(|((dir, name), h)| Some((*dir, name, (*h.last()?)?)));
        now.filter(|(_, _, o)| self.objects[*o].directory == directories).map(|(d, n, o)| (d, n.clone(), o)).collect()
    }

    /// True of a directory.
    pub fn is_directory(&self, object: usize) -> bool {
        self.objects[object].directory
    }

    /// True if it contains no names now.
    pub fn is_empty(&self, dir: usize) -> bool {
        self.names.range((dir, Vec::new())..(dir + 1, Vec::new())).all(|(_, h)| h.last().is_none_or(Option::is_none))
    }

    /// True if `dir` is `above` or below it.
    pub fn is_below(&self, dir: usize, above: usize) -> bool {
        let mut at = dir;
        while at != above {
            let up = self.entries(true).into_iter().find(|(_, _, o)| *o == at);
            let Some((parent, ..)) = up else { return false };
            at = parent;
        }
        true
    }

    /// The object that currently has this inode.
    pub fn known(&self, ino: Ino) -> Option<usize> {
        self.objects.iter().rposition(|o| o.ino == ino)
    }

    /// The file has these contents from now on.
    pub fn replace(&mut self, object: usize, data: &[u8]) {
        self.change(object, |v| {
            v.resize(0);
            v.write(0, data);
        });
    }

    /// The power failed during the last change of a file, so it is unknown how much was applied.
    pub fn unfinished(&mut self, object: usize) {
        self.objects[object].unfinished = true;
    }

    /// The file has these attributes from now on.
    pub fn replace_attributes(&mut self, object: usize, all: BTreeMap<Vec<u8>, Vec<u8>>) {
        self.objects[object].attributes.push(all);
    }

    /// A name has a new target from now on. A rename changes several at once.
    pub fn bind(&mut self, changes: &[(usize, &[u8], Option<usize>)]) {
        for &(dir, name, to) in changes {
            let history = self.names.entry((dir, name.to_vec())).or_insert_with(|| vec![None]);
            let before = *history.last().unwrap_or(&None);
            history.push(to);
            if let Some(o) = to {
                self.objects[o].links += 1;
            }
            if let Some(o) = before {
                self.objects[o].links -= 1;
            }
        }
        for object in &mut self.objects[1..] {
            object.durable &= object.links > 0;
        }
    }

    /// A file is written.
    pub fn write(&mut self, object: usize, at: u64, data: &[u8]) {
        self.change(object, |v| v.write(at, data));
    }

    /// A file is truncated or extended.
    pub fn resize(&mut self, object: usize, size: u64) {
        self.change(object, |v| v.resize(size));
    }

    /// Holes, reservations, shifted blocks.
    pub fn allocate(&mut self, object: usize, what: Allocate, at: u64, len: u64) {
        self.change(object, |v| v.allocate(what, at, len));
    }

    fn change(&mut self, object: usize, how: impl FnOnce(&mut Version)) {
        let versions = &mut self.objects[object].versions;
        let mut next = versions.last().cloned().unwrap_or_default();
        how(&mut next);
        versions.push(next);
    }

    /// An attribute is set.
    pub fn set_attribute(&mut self, object: usize, name: &[u8], value: &[u8]) {
        let all = &mut self.objects[object].attributes;
        let mut next = all.last().cloned().unwrap_or_default();
        next.insert(name.to_vec(), value.to_vec());
        all.push(next);
    }

    /// A directory's permissions change.
    pub fn set_permissions(&mut self, dir: usize, before: u16, now: u16) {
        let all = &mut self.objects[dir].permissions;
        if all.is_empty() {
            all.push(before);
        }
        all.push(now);
    }

    /// A file was synced: its contents, and its names.
    pub fn synced(&mut self, object: usize) {
        let o = &mut self.objects[object];
        o.versions.drain(..o.versions.len() - 1);
        o.attributes.drain(..o.attributes.len() - 1);
        o.durable = o.links > 0;
        for history in self.names.values_mut().filter(|h| *h.last().unwrap_or(&None) == Some(object)) {
            history.drain(..history.len() - 1);
        }
    }

    /// A directory was synced.
    pub fn synced_names(&mut self, dir: usize) {
        let permissions = &mut self.objects[dir].permissions;
        permissions.drain(..permissions.len().saturating_sub(1));
        for (_, history) in self.names.iter_mut().filter(|((d, _), _)| *d == dir) {
            history.drain(..history.len() - 1);
        }
    }

    /// Everything was synced.
    pub fn synced_all(&mut self) {
        for o in &mut self.objects {
            o.versions.drain(..o.versions.len() - 1);
            o.attributes.drain(..o.attributes.len() - 1);
            o.permissions.drain(..o.permissions.len().saturating_sub(1));
            o.durable = o.links > 0;
        }
        self.objects[0].durable = true;
        for history in self.names.values_mut() {
            history.drain(..history.len() - 1);
        }
    }

    /// Checks a volume against every promise.
    ///
    /// # Errors
    /// The first that is broken.
    pub fn judge(&self, fs: &dyn FileSystem) -> Result<(), String> {
        let mut waiting = vec![(0, self.objects[0].ino)];
        let mut reached = BTreeSet::from([0]);
        while let Some((dir, at)) = waiting.pop() {
            let perm = fs.getattr(at).map_err(|e| format!("directory {dir}: {e}"))?.perm;
            let allowed = &self.objects[dir].permissions;
            if !allowed.is_empty() && !allowed.contains(&perm) {
                return Err(format!("directory {dir}: permissions {perm}, allowed are {allowed:?}"));
            }
            let mut found = BTreeMap::new();
            fs.readdir(at, 0, &mut |e| {
                let own = dir == 0 && self.own.contains(&e.name);
                if ![&b"."[..], b"..", b"lost+found"].contains(&e.name) && !own {
                    found.insert(e.name.to_vec(), e.ino);
                }
                Flow::Continue
            })
            .map_err(|e| format!("listing directory {dir}: {e}"))?;
            for name in found.keys() {
                if !self.names.contains_key(&(dir, name.clone())) {
                    return Err(format!("a name nobody made: {:?}", String::from_utf8_lossy(name)));
                }
            }
            for ((_, name), history) in self.names.range((dir, Vec::new())..(dir + 1, Vec::new())) {
                let text = String::from_utf8_lossy(name);
                let Some(ino) = found.get(name) else {
                    if history.contains(&None) {
                        continue;
                    }
                    return Err(format!("{text}: its name was durable and is gone"));
                };
                let e = fs.lookup(at, name).map_err(|e| format!("{text}: {e}"))?.attr;
                let directory = e.kind == FileKind::Directory;
                let candidates = history.iter().flatten().copied().collect::<BTreeSet<_>>();
                // A reused inode number matches several objects: the one with these contents, or else the newest.
                let all = || candidates.iter().rev().copied().filter(|o| self.objects[*o].ino == *ino);
                let fits = |o: &usize| {
                    let regular = e.kind == FileKind::Regular && !self.objects[*o].directory;
                    regular && self.judge_content(fs, *o, e.size).is_ok()
                };
                let known = if all().count() > 1 { all().find(fits).or_else(|| all().next()) } else { all().next() };
                // An object whose creation was interrupted has an unknown number, and is empty.
                let untold = |o: &usize| self.objects[*o].ino == UNTOLD && self.objects[*o].directory == directory;
                let untold = candidates.iter().rev().copied().find(untold).filter(|_| self.is_new(fs, &e));
                let Some(object) = untold.or(known) else {
                    return Err(format!("{text}: leads to inode {}, which it never did since its floor", ino.0));
                };
                if directory != self.objects[object].directory {
                    return Err(format!("{text}: is a {:?}", e.kind));
                }
                let first = reached.insert(object);
                if directory && first {
                    waiting.push((object, *ino));
                } else if e.kind == FileKind::Regular && first && untold.is_none() {
                    self.judge_content(fs, object, e.size).map_err(|m| format!("{text}: {m}"))?;
                }
                fs.forget(*ino, 1);
            }
        }
        for (i, object) in self.objects.iter().enumerate() {
            if object.durable && !reached.contains(&i) {
                return Err(format!("inode {} was durable and has no name any more", object.ino.0));
            }
        }
        Ok(())
    }

    /// True if an inode is unchanged since its creation.
    fn is_new(&self, fs: &dyn FileSystem, attr: &Attr) -> bool {
        let empty = match attr.kind {
            FileKind::Directory => {
                let mut names = 0;
                let told = fs.readdir(attr.ino, 0, &mut |e| {
                    names += u32::from(e.name != b"." && e.name != b"..");
                    Flow::Continue
                });
                told.is_ok() && names == 0
            }
            _ => attr.size == 0 && attr.nlink == 1,
        };
        empty && fs.listxattr(attr.ino).is_ok_and(|names| names.is_empty())
    }

    /// Every attribute of a file and its value.
    ///
    /// # Errors
    /// The file system's.
    pub fn attributes_of(fs: &dyn FileSystem, ino: Ino) -> vfs::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        fs.listxattr(ino)?.into_iter().map(|name| Ok((name.clone(), fs.getxattr(ino, &name)?))).collect()
    }

    fn judge_content(&self, fs: &dyn FileSystem, object: usize, size: u64) -> Result<(), String> {
        let o = &self.objects[object];
        // A write without space for all of it ends with a whole block.
        let cut_short = match &o.versions[..] {
            [.., before, last] if o.unfinished => {
                (before.size..last.size).contains(&size) && size.is_multiple_of(BLOCK as u64)
            }
            _ => false,
        };
        if !cut_short && !o.versions.iter().any(|v| v.size == size) {
            let sizes: Vec<u64> = o.versions.iter().map(|v| v.size).collect();
            return Err(format!("{size} bytes, allowed are {sizes:?}"));
        }
        let mut have = vec![0; size as usize];
        let n = fs.read(o.ino, 0, &mut have).map_err(|e| format!("reading: {e}"))?;
        if n as u64 != size {
            return Err(format!("read {n} of {size} bytes"));
        }
        for (i, sector) in have.chunks(SECTOR).enumerate() {
            if !o.versions.iter().any(|v| v.sector(i)[..sector.len()] == *sector) {
                return Err(format!("bytes from {} are of none of {} versions", i * SECTOR, o.versions.len()));
            }
        }
        let attributes = Self::attributes_of(fs, o.ino).map_err(|e| format!("attributes: {e}"))?;
        if !o.attributes.contains(&attributes) {
            return Err(format!("attributes are none of {} versions: {} found", o.attributes.len(), attributes.len()));
        }
        Ok(())
    }
}
