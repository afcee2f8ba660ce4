//! What is the minimum cost of a complete file system? One in memory.
//!
//! It keeps all promises of [`vfs::FileSystem`] except durability, as simply as possible: a lock per inode, and one for
//! changes of the name tree, which reads, writes and lookups never take. Behind FUSE it shows the cost of FUSE itself;
//! in tests it is a working file system. Left out: inheritance of default ACLs.

mod acl;
mod content;
mod node;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::{Clock, RealClock};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use vfs::{
    Allocate, Attr, Caller, DeviceNumber, DirEntry, Entry, Error, FileKind, FileSystem, Flow, Ino, NewNode,
    RenameFlags, Result, Seek, SetAttr, SetTime, StatFs, Timestamp, WriteFlags, XattrFlags,
};

use content::{Content, Space};
use node::{Body, Directory, FIRST, Node, State};
use tree::check_name;

const ROOT: Ino = Ino(1);
const SHARDS: usize = 64;
const NAME_MAX: usize = 255;
const TARGET_MAX: usize = 4095;
const XATTR_MAX: usize = 65536;
const INODES_MAX: u64 = 1 << 32;

/// A file system in memory.
pub struct MemFs {
    nodes: [RwLock<FxHashMap<u64, Arc<Node>>>; SHARDS],
    next_ino: AtomicU64,
    live: AtomicU64,
    space: Space,
    /// Held while names are created, moved or removed; inode locks are then taken one at a time.
    tree: Mutex<()>,
    clock: Arc<dyn Clock>,
    ticks: AtomicU64,
    ended: AtomicBool,
    write_nanos: AtomicU64,
}

impl MemFs {
    /// An empty file system with room for `bytes` of contents, on the host's clock.
    pub fn new(bytes: u64) -> Self {
        Self::with_clock(bytes, Arc::new(RealClock::new()))
    }

    /// An empty file system on any clock.
    pub fn with_clock(bytes: u64, clock: Arc<dyn Clock>) -> Self {
        let fs = MemFs {
            nodes: std::array::from_fn(|_| RwLock::default()),
            next_ino: AtomicU64::new(ROOT.0),
            live: AtomicU64::new(0),
            space: Space::new(bytes),
            tree: Mutex::new(()),
            clock,
            ticks: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            write_nanos: AtomicU64::new(0),
        };
        let root = new(FileKind::Directory, 0o755, 0);
        fs.new_node(Caller::default(), &root, 2, Body::Directory(Directory::new(ROOT)));
        fs
    }

    /// Number of calls for background work.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// True after [`FileSystem::unmount`].
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Delays the effect of every write, like a slow device.
    pub fn slow_writes(&self, by: Duration) {
        self.write_nanos.store(by.as_nanos() as u64, Ordering::Relaxed);
    }

    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        Timestamp { sec: now.secs, nsec: now.nanos }
    }

    fn shard(&self, ino: Ino) -> &RwLock<FxHashMap<u64, Arc<Node>>> {
        &self.nodes[(ino.0 % SHARDS as u64) as usize]
    }

    fn find(&self, ino: Ino) -> Result<Arc<Node>> {
        self.shard(ino).read().get(&ino.0).cloned().ok_or(Error::Stale)
    }

    fn node(&self, ino: Ino) -> Result<Arc<Node>> {
        let node = self.find(ino)?;
        if node.damaged.load(Ordering::Relaxed) {
            return Err(Error::corrupt(format_args!("inode {} is damaged", ino.0)));
        }
        Ok(node)
    }

    /// Makes everything but listing fail for this inode from now on, as if it were unreadable.
    pub fn damage(&self, ino: Ino) -> Result<()> {
        self.find(ino)?.damaged.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Outstanding references to this inode.
    pub fn references(&self, ino: Ino) -> Result<u64> {
        Ok(self.find(ino)?.references.load(Ordering::Acquire))
    }

    /// Creates an inode with one reference.
    fn new_node(&self, owner: Caller, new: &NewNode, nlink: u32, body: Body) -> Arc<Node> {
        let ino = Ino(self.next_ino.fetch_add(1, Ordering::Relaxed));
        let now = self.now();
        let node = Arc::new(Node {
            ino,
            kind: new.kind,
            rdev: new.rdev,
            references: AtomicU64::new(1),
            damaged: AtomicBool::new(false),
            state: RwLock::new(State {
                perm: new.perm & !new.umask & 0o7777,
                nlink,
                uid: owner.uid,
                gid: owner.gid,
                atime: now,
                mtime: now,
                ctime: now,
                crtime: now,
                xattrs: BTreeMap::new(),
                body,
            }),
        });
        self.live.fetch_add(1, Ordering::Relaxed);
        self.shard(ino).write().insert(ino.0, node.clone());
        node
    }

    /// Frees an inode without names and references.
    fn reap(&self, node: &Node) {
        let dead = {
            let mut shard = self.shard(node.ino).write();
            let unused = node.references.load(Ordering::Acquire) == 0;
            if unused && node.state.read().nlink == 0 { shard.remove(&node.ino.0) } else { None }
        };
        if let Some(node) = dead {
            self.live.fetch_sub(1, Ordering::Relaxed);
            if let Body::File(content) = &mut node.state.write().body {
                content.clear(&self.space);
            }
        }
    }

    fn unreference(&self, ino: Ino, count: u64) {
        let Ok(node) = self.find(ino) else { return };
        let before =
            node.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| Some(n.saturating_sub(count)));
        if before.is_ok_and(|n| n <= count) {
            self.reap(&node);
        }
    }
}

fn new(kind: FileKind, perm: u16, umask: u16) -> NewNode {
    NewNode { kind, perm, umask, rdev: DeviceNumber::default() }
}

impl FileSystem for MemFs {
    fn root(&self) -> Ino {
        ROOT
    }

    fn statfs(&self) -> Result<StatFs> {
        let free = self.space.free();
        Ok(StatFs {
            block_size: 4096,
            blocks: self.space.pages(),
            blocks_free: free,
            blocks_available: free,
            files: INODES_MAX,
            files_free: INODES_MAX.saturating_sub(self.live.load(Ordering::Relaxed)),
            name_max: NAME_MAX as u32,
        })
    }

    fn read_only(&self) -> bool {
        false
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let parent = self.node(parent)?;
        let node = match name {
            b"." => parent,
            b".." => {
                let up = parent.state.read().directory()?.parent;
                self.node(up)?
            }
            _ => self.child(&parent, name)?,
        };
        node.references.fetch_add(1, Ordering::AcqRel);
        Ok(Entry { attr: node.attr() })
    }

    fn forget(&self, ino: Ino, count: u64) {
        if ino != ROOT {
            self.unreference(ino, count);
        }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.node(ino)?.attr())
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let node = self.node(ino)?;
        let now = self.now();
        let time = |t: SetTime| match t {
            SetTime::Now => now,
            SetTime::At(at) => at,
        };
        let mut guard = node.state.write();
        let state = &mut *guard;
        if let Some(size) = set.size {
            if size > i64::MAX as u64 {
                return Err(Error::TooBig);
            }
            state.file_mut()?.truncate(&self.space, size);
            state.mtime = now;
        }
        if set.kill_suid_sgid {
            state.kill_suid_sgid();
        }
        if let Some(perm) = set.perm {
            state.perm = perm & 0o7777;
            if let Some(list) = state.xattrs.get_mut(acl::ACCESS) {
                acl::follow(list, perm)?;
            }
        }
        state.uid = set.uid.unwrap_or(state.uid);
        state.gid = set.gid.unwrap_or(state.gid);
        state.atime = set.atime.map_or(state.atime, time);
        state.mtime = set.mtime.map_or(state.mtime, time);
        state.crtime = set.crtime.unwrap_or(state.crtime);
        state.ctime = set.ctime.unwrap_or(now);
        Ok(node.attr_of(state))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.node(ino)?.state.read().body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::Invalid("not a symlink")),
        }
    }

    fn mknod(&self, caller: Caller, parent: Ino, name: &[u8], new: &NewNode) -> Result<Entry> {
        let body = match new.kind {
            FileKind::Regular => Body::File(Content::default()),
            FileKind::Directory | FileKind::Symlink => {
                return Err(Error::Invalid("mknod makes no directory or symlink"));
            }
            _ => Body::Special,
        };
        self.make(caller, parent, name, new, body)
    }

    fn mkdir(&self, caller: Caller, parent: Ino, name: &[u8], perm: u16, umask: u16) -> Result<Entry> {
        let body = Body::Directory(Directory::new(parent));
        self.make(caller, parent, name, &new(FileKind::Directory, perm, umask), body)
    }

    fn symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        if target.is_empty() {
            return Err(Error::Invalid("an empty symlink"));
        }
        if target.len() > TARGET_MAX {
            return Err(Error::NameTooLong);
        }
        let body = Body::Symlink(target.to_vec());
        self.make(caller, parent, name, &new(FileKind::Symlink, 0o777, 0), body)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry> {
        check_name(name)?;
        let _tree = self.tree.lock();
        let node = self.node(ino)?;
        if node.kind == FileKind::Directory {
            return Err(Error::NotPermitted("a hard link to a directory"));
        }
        let parent = self.node(parent)?;
        {
            let mut state = parent.state.write();
            if state.nlink == 0 {
                return Err(Error::NotFound);
            }
            let directory = state.directory_mut()?;
            if directory.get(name).is_some() {
                return Err(Error::Exists);
            }
            directory.insert(name, ino, node.kind);
            state.modified(self.now());
        }
        let mut state = node.state.write();
        state.nlink += 1;
        state.changed(self.now());
        node.references.fetch_add(1, Ordering::AcqRel);
        Ok(Entry { attr: node.attr_of(&state) })
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, true)
    }

    fn rename(&self, caller: Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        self.move_name(caller, from, to, flags)
    }

    fn tmpfile(&self, caller: Caller, parent: Ino, perm: u16, umask: u16) -> Result<Entry> {
        self.node(parent)?.state.read().directory()?;
        let new = new(FileKind::Regular, perm, umask);
        let node = self.new_node(caller, &new, 0, Body::File(Content::default()));
        Ok(Entry { attr: node.attr() })
    }

    fn open(&self, ino: Ino, truncate: bool) -> Result<()> {
        let node = self.node(ino)?;
        if truncate {
            self.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        }
        node.references.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn release(&self, ino: Ino) {
        self.unreference(ino, 1);
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.node(ino)?.state.read().file()?.read(offset, buf))
    }

    fn accessed(&self, ino: Ino) -> bool {
        let Ok(node) = self.node(ino) else { return false };
        let now = self.now();
        let due = node.attr().access_is_due(now);
        if due {
            node.state.write().atime = now;
        }
        due
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        let node = self.node(ino)?;
        let slow = self.write_nanos.load(Ordering::Relaxed);
        if slow > 0 {
            std::thread::sleep(Duration::from_nanos(slow));
        }
        let mut state = node.state.write();
        state.file_mut()?.write(&self.space, offset, data)?;
        if flags.contains(WriteFlags::KILL_SUID_SGID) {
            state.kill_suid_sgid();
        }
        if !flags.contains(WriteFlags::FROM_CACHE) {
            state.modified(self.now());
        }
        Ok(data.len())
    }

    fn fallocate(&self, ino: Ino, what: Allocate, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|&e| e <= i64::MAX as u64).ok_or(Error::TooBig)?;
        let node = self.node(ino)?;
        let mut state = node.state.write();
        let content = state.file_mut()?;
        let aligned = offset.is_multiple_of(4096) && len.is_multiple_of(4096);
        match what {
            Allocate::Collapse | Allocate::Insert if !aligned => {
                return Err(Error::Invalid("not whole blocks"));
            }
            Allocate::Collapse => content.collapse(&self.space, offset, len)?,
            Allocate::Insert => content.insert(&self.space, offset, len)?,
            Allocate::PunchHole => content.punch(&self.space, offset, len),
            Allocate::Zero { keep_size } | Allocate::Reserve { keep_size } => {
                if matches!(what, Allocate::Zero { .. }) {
                    content.punch(&self.space, offset, len);
                }
                if !keep_size && end > content.size {
                    content.truncate(&self.space, end);
                }
            }
        }
        state.modified(self.now());
        Ok(())
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.node(ino)?.state.read().file()?.seek(offset, what)
    }

    fn readdir(&self, ino: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()> {
        let node = self.node(ino)?;
        let state = node.state.read();
        let directory = state.directory()?;
        let dots = [(1, b".".as_slice(), ino), (2, b"..".as_slice(), directory.parent)];
        let dots = dots.into_iter().map(|(at, name, ino)| (at, name, ino, FileKind::Directory));
        let names = dots.chain(directory.from(FIRST.max(cookie.saturating_add(1))));
        for (position, name, ino, kind) in names.filter(|(position, ..)| *position > cookie) {
            if each(DirEntry { ino, kind, name, next: position }) == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    fn fsync(&self, ino: Ino, _: bool) -> Result<()> {
        self.node(ino).map(|_| ())
    }

    fn fsyncdir(&self, ino: Ino, _: bool) -> Result<()> {
        self.node(ino).map(|_| ())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.node(ino)?.state.read().xattrs.get(name).cloned().ok_or(Error::NoAttribute)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.node(ino)?.state.read().xattrs.keys().cloned().collect())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        if name.is_empty() || name.len() > NAME_MAX || value.len() > XATTR_MAX {
            return Err(Error::Range);
        }
        let node = self.node(ino)?;
        let mut state = node.state.write();
        match state.xattrs.contains_key(name) {
            true if flags.contains(XattrFlags::CREATE) => return Err(Error::Exists),
            false if flags.contains(XattrFlags::REPLACE) => return Err(Error::NoAttribute),
            _ => {}
        }
        if name == acl::ACCESS {
            state.perm = state.perm & !0o777 | acl::perm(value)?;
            if flags.contains(XattrFlags::ACL_KILL_SGID) {
                state.perm &= !0o2000;
            }
        }
        state.xattrs.insert(name.to_vec(), value.to_vec());
        state.changed(self.now());
        Ok(())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let node = self.node(ino)?;
        let mut state = node.state.write();
        state.xattrs.remove(name).ok_or(Error::NoAttribute)?;
        state.changed(self.now());
        Ok(())
    }

    fn tick(&self) -> Result<Duration> {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        Ok(Duration::from_secs(1))
    }

    fn unmount(&self) -> Result<()> {
        self.ended.store(true, Ordering::Release);
        Ok(())
    }
}
