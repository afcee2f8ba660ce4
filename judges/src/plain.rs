//! How should a file system behave? The simplest model: maps in memory, without space limits or data loss. Access and
//! change times are left out.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use vfs::{Allocate, DeviceNumber, Error, FileKind, RenameFlags, Result};

const BLOCK: u64 = 4096;

/// A file's bytes: the blocks that may differ from zero.
#[derive(Debug, Clone, Default)]
pub struct Bytes {
    /// Size of the file.
    pub size: u64,
    /// Shared by copies of the file: tests keep a copy of the tree for each call.
    blocks: BTreeMap<u64, Arc<Vec<u8>>>,
}

/// The part of a range of bytes that lies in block `n`.
fn part(n: u64, from: u64, to: u64) -> (u64, u64) {
    (from.max(n * BLOCK), to.min((n + 1) * BLOCK))
}

impl Bytes {
    /// Numbers of blocks that may be nonzero.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.keys().copied()
    }
    /// The bytes of a range, with zeroes for holes; fewer at the end of the file.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = (offset + len).min(self.size);
        if offset >= end {
            return Vec::new();
        }
        let mut out = vec![0; (end - offset) as usize];
        for (n, block) in self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let (from, to) = part(*n, offset, end);
            let bytes = &block[(from - n * BLOCK) as usize..(to - n * BLOCK) as usize];
            out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(bytes);
        }
        out
    }
    /// Writes, growing the file if needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        for n in offset / BLOCK..end.div_ceil(BLOCK) {
            let (from, to) = part(n, offset, end);
            if from == to {
                continue;
            }
            let block = self.blocks.entry(n).or_insert_with(|| Arc::new(vec![0; BLOCK as usize]));
            let bytes = &mut Arc::make_mut(block)[(from - n * BLOCK) as usize..(to - n * BLOCK) as usize];
            bytes.copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
        }
        self.size = self.size.max(end);
    }
    fn zero(&mut self, from: u64, to: u64) {
        for (n, block) in self.blocks.range_mut(from / BLOCK..to.div_ceil(BLOCK)) {
            let (from, to) = part(*n, from, to);
            Arc::make_mut(block)[(from - n * BLOCK) as usize..(to - n * BLOCK) as usize].fill(0);
        }
        self.blocks.retain(|_, block| block.iter().any(|&b| b != 0));
    }
    /// Sets the size.
    pub fn truncate(&mut self, size: u64) {
        self.zero(size, u64::MAX);
        self.size = size;
    }
    /// `fallocate`.
    pub fn allocate(&mut self, what: Allocate, offset: u64, len: u64) -> Result<()> {
        let (end, by) = (offset + len, len / BLOCK);
        let aligned = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        match what {
            _ if len == 0 => return Err(Error::Invalid("no bytes")),
            Allocate::Reserve { keep_size: true } => {}
            Allocate::Reserve { keep_size: false } => self.size = self.size.max(end),
            Allocate::PunchHole => self.zero(offset, end),
            Allocate::Zero { keep_size } => {
                self.zero(offset, end);
                if !keep_size {
                    self.size = self.size.max(end);
                }
            }
            Allocate::Collapse if !aligned || end >= self.size => {
                return Err(Error::Invalid("collapse"));
            }
            Allocate::Collapse => {
                self.zero(offset, end);
                let move_down = |n| if n * BLOCK >= end { n - by } else { n };
                self.blocks = mem::take(&mut self.blocks).into_iter().map(|(n, b)| (move_down(n), b)).collect();
                self.size -= len;
            }
            Allocate::Insert if !aligned || offset >= self.size => {
                return Err(Error::Invalid("insert"));
            }
            Allocate::Insert => {
                let move_up = |n| if n * BLOCK >= offset { n + by } else { n };
                self.blocks = mem::take(&mut self.blocks).into_iter().map(|(n, b)| (move_up(n), b)).collect();
                self.size += len;
            }
        }
        Ok(())
    }
}

/// The kind of an inode, with its contents.
#[derive(Debug, Clone)]
pub enum Body {
    /// A regular file.
    File(Bytes),
    /// A directory.
    Dir(BTreeMap<Vec<u8>, usize>),
    /// A symlink and its target.
    Symlink(Vec<u8>),
    /// A device node, fifo or socket.
    Special(FileKind, DeviceNumber),
}

/// An inode.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its kind and contents.
    pub body: Body,
    /// Permission bits.
    pub perm: u16,
    /// Its names (for a directory also `.`, and its children's `..`).
    pub links: u32,
    /// The parent directory, for directories.
    parent: usize,
    /// Extended attributes by full name.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Object {
    /// Its kind.
    pub fn kind(&self) -> FileKind {
        match &self.body {
            Body::File(_) => FileKind::Regular,
            Body::Dir(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }
    fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }
}

/// The tree. Objects are identified by their index in `objects`; the root is 0; none is ever removed.
#[derive(Debug, Clone)]
pub struct Plain {
    /// All inodes ever created; those without links are known only to their holders.
    pub objects: Vec<Object>,
}

impl Default for Plain {
    fn default() -> Self {
        let body = Body::Dir(BTreeMap::new());
        Plain { objects: vec![Object { body, perm: 0o755, links: 2, parent: 0, attributes: BTreeMap::new() }] }
    }
}

impl Plain {
    /// The names in a directory.
    pub fn names(&self, dir: usize) -> Result<&BTreeMap<Vec<u8>, usize>> {
        match &self.objects[dir].body {
            Body::Dir(names) => Ok(names),
            _ => Err(Error::NotDirectory),
        }
    }
    fn names_mut(&mut self, dir: usize) -> Result<&mut BTreeMap<Vec<u8>, usize>> {
        match &mut self.objects[dir].body {
            Body::Dir(names) => Ok(names),
            _ => Err(Error::NotDirectory),
        }
    }
    fn changeable(&self, dir: usize) -> Result<()> {
        self.names(dir)?;
        if self.objects[dir].links == 0 { Err(Error::NotFound) } else { Ok(()) }
    }
    /// Creates an inode with a name.
    pub fn create(&mut self, dir: usize, name: &[u8], body: Body, mut perm: u16) -> Result<usize> {
        self.changeable(dir)?;
        if self.names(dir)?.contains_key(name) {
            return Err(Error::Exists);
        }
        let is_dir = matches!(body, Body::Dir(_));
        if is_dir {
            self.objects[dir].links += 1;
            perm |= self.objects[dir].perm & 0o2000;
        }
        let links = if is_dir { 2 } else { 1 };
        let id = self.objects.len();
        self.objects.push(Object { body, perm, links, parent: dir, attributes: BTreeMap::new() });
        self.names_mut(dir)?.insert(name.to_vec(), id);
        Ok(id)
    }
    /// Adds a name to an inode.
    pub fn link(&mut self, id: usize, dir: usize, name: &[u8]) -> Result<()> {
        if self.objects[id].is_dir() {
            return Err(Error::NotPermitted("a directory"));
        }
        self.changeable(dir)?;
        if self.names(dir)?.contains_key(name) {
            return Err(Error::Exists);
        }
        self.names_mut(dir)?.insert(name.to_vec(), id);
        self.objects[id].links += 1;
        Ok(())
    }
    fn drop_link(&mut self, id: usize) {
        let parent = self.objects[id].parent;
        if self.objects[id].is_dir() {
            self.objects[parent].links -= 1;
            self.objects[id].links = 0;
        } else {
            self.objects[id].links -= 1;
        }
    }
    /// Removes the name of a directory or of anything else.
    pub fn remove(&mut self, dir: usize, name: &[u8], directory: bool) -> Result<()> {
        self.changeable(dir)?;
        let id = *self.names(dir)?.get(name).ok_or(Error::NotFound)?;
        match (self.objects[id].is_dir(), directory) {
            (true, false) => return Err(Error::IsDirectory),
            (false, true) => return Err(Error::NotDirectory),
            (true, true) if !self.names(id)?.is_empty() => return Err(Error::NotEmpty),
            _ => {}
        }
        self.names_mut(dir)?.remove(name);
        self.drop_link(id);
        Ok(())
    }
    fn inside(&self, mut place: usize, dir: usize) -> bool {
        while place != 0 && place != dir {
            place = self.objects[place].parent;
        }
        place == dir
    }
    fn put(&mut self, dir: usize, name: &[u8], id: usize) -> Result<()> {
        self.names_mut(dir)?.insert(name.to_vec(), id);
        if self.objects[id].is_dir() {
            let old = mem::replace(&mut self.objects[id].parent, dir);
            self.objects[old].links -= 1;
            self.objects[dir].links += 1;
        }
        Ok(())
    }
    /// Refuses conflicting flags.
    pub fn check_flags(flags: RenameFlags) -> Result<()> {
        let alone = !flags.contains(RenameFlags::EXCHANGE) || flags == RenameFlags::EXCHANGE;
        if alone { Ok(()) } else { Err(Error::Invalid("flags")) }
    }
    /// `renameat2`. Returns the whiteout it created.
    pub fn rename(&mut self, from: (usize, &[u8]), to: (usize, &[u8]), flags: RenameFlags) -> Result<Option<usize>> {
        Self::check_flags(flags)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        // Both parents must be directories before any lookup in them.
        self.names(from.0).and(self.names(to.0))?;
        self.changeable(from.0)?;
        self.changeable(to.0)?;
        let moving = *self.names(from.0)?.get(from.1).ok_or(Error::NotFound)?;
        let target = self.names(to.0)?.get(to.1).copied();
        if flags.contains(RenameFlags::NO_REPLACE) && target.is_some() {
            return Err(Error::Exists);
        }
        if exchange && target.is_none() {
            return Err(Error::NotFound);
        }
        if target == Some(moving) {
            return Ok(None);
        }
        let is_dir = |id: usize| self.objects[id].is_dir();
        if is_dir(moving) && self.inside(to.0, moving) {
            return Err(Error::Invalid("into itself"));
        }
        if let Some(t) = target {
            match (exchange, is_dir(moving), is_dir(t)) {
                (true, _, true) if self.inside(from.0, t) => {
                    return Err(Error::Invalid("into itself"));
                }
                (false, ..) if self.inside(from.0, t) => return Err(Error::NotEmpty),
                (false, true, false) => return Err(Error::NotDirectory),
                (false, false, true) => return Err(Error::IsDirectory),
                (false, true, true) if !self.names(t)?.is_empty() => return Err(Error::NotEmpty),
                _ => {}
            }
        }
        self.names_mut(from.0)?.remove(from.1);
        match target {
            Some(t) if exchange => self.put(from.0, from.1, t)?,
            Some(t) => self.drop_link(t),
            None => {}
        }
        self.put(to.0, to.1, moving)?;
        if !flags.contains(RenameFlags::WHITEOUT) {
            return Ok(None);
        }
        let white = Body::Special(FileKind::CharDevice, DeviceNumber::default());
        self.create(from.0, from.1, white, 0).map(Some)
    }
}
