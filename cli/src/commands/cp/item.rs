//! The interfaces of a copy: sources, sinks, and a file's metadata.

use vfs::{DeviceNumber, FileKind, Timestamp};

use crate::interrupt::Interrupt;
use crate::output;

/// The metadata of a file that is copied.
#[derive(Debug, Clone)]
pub struct Item {
    pub kind: FileKind,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub rdev: DeviceNumber,
    /// Device and inode, if it is hard-linked.
    pub identity: Option<(u64, u64)>,
    pub target: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Why a directory's `xattrs` are incomplete.
    pub amiss: Option<String>,
}

/// The set-user-ID and set-group-ID bits.
const SET_ID: u16 = 0o6000;
/// The bits of a mode that an access list can restrict.
const OTHERS: u16 = 0o077;

impl Item {
    /// An item without an inode: owned by the current user, empty, with zero times.
    pub fn made(kind: FileKind, perm: u16) -> Self {
        Item {
            kind,
            perm,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            size: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            rdev: DeviceNumber::default(),
            identity: None,
            target: Vec::new(),
            xattrs: Vec::new(),
            amiss: None,
        }
    }
    /// The mode of a copy that belongs to `owner` and `group`. If these differ from the original's, the set-id bits are
    /// cleared, so that no program runs as an unintended user. If an access list may be missing, the permissions that
    /// it may have restricted are removed.
    pub fn mode_for(&self, owner: u32, group: u32) -> u16 {
        let set_id = if (owner, group) == (self.uid, self.gid) { 0 } else { SET_ID };
        let others = if self.amiss.is_some() { OTHERS } else { 0 };
        self.perm & !set_id & !others
    }
    /// Access lists that must be removed from the copy.
    pub fn lists_not_had(&self) -> impl Iterator<Item = &'static [u8]> {
        let had = |list: &[u8]| self.xattrs.iter().any(|(name, _)| name == list);
        let kinds = match self.kind {
            FileKind::Symlink => 0,
            FileKind::Directory => 2,
            _ => 1,
        };
        ACCESS_LISTS.into_iter().take(kinds).filter(move |list| !had(list))
    }
}

/// Basic information on a file. Getting it does not change the access time.
#[derive(Debug, Clone, Copy)]
pub struct Glance {
    pub kind: FileKind,
    pub size: u64,
    /// Device (0: the image) and inode.
    pub file: (u64, u64),
}

/// The attributes with access lists. A new file or directory may inherit them from its parent; if the original has
/// none, they must be removed.
pub const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

pub type Out<T> = Result<T, String>;

/// Contents being read.
pub trait Reader {
    /// The next range of data at or after `offset`; `None` if only holes remain.
    fn next_data(&mut self, offset: u64) -> Out<Option<(u64, u64)>>;
    /// Reads at most `buf.len()` bytes.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Out<usize>;
}

/// The path of a name in a directory.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut out = dir.to_vec();
    push(&mut out, name);
    out
}

/// Appends a name to a directory's path.
pub fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Where files are read. Paths are bytes with `/` between the names.
pub trait Source {
    fn glance(&self, path: &[u8]) -> Out<Glance>;
    fn item(&self, path: &[u8]) -> Out<Item>;
    /// The sorted names in a directory. On a read error: the names read so far, and the error.
    fn names(&self, path: &[u8]) -> (Vec<Vec<u8>>, Out<()>);
    fn open<'s>(&'s self, path: &[u8]) -> Out<Box<dyn Reader + 's>>;
    /// Formats a path for display.
    fn place(&self, path: &[u8]) -> String {
        output::name(path)
    }
    /// Maximum total size of the contents, if a volume of known size holds them.
    fn holds(&self) -> Option<u64> {
        None
    }
    /// True if each directory has one name, so that meeting one again means damage.
    fn names_directories_once(&self) -> bool {
        false
    }
}

/// Where files are written.
pub trait Sink {
    fn kind(&self, path: &[u8]) -> Out<Option<FileKind>>;
    /// Creates a directory, or uses an existing one.
    fn make_directory(&self, path: &[u8]) -> Out<()>;
    /// Creates anything but a directory.
    fn make<'s>(&'s self, path: &[u8], item: &Item) -> Out<Box<dyn Made + 's>>;
    /// Adds a name to a file, replacing an existing one.
    fn link(&self, existing: &[u8], path: &[u8]) -> Out<()>;
    /// Sets a directory's owner, attributes, mode and times, after its contents.
    fn finish(&self, path: &[u8], item: &Item) -> Out<()>;
    /// True after a write was refused to keep room free on the host: the copy ends.
    fn is_full(&self) -> bool {
        false
    }
}

/// A file being created, removed on drop unless placed.
pub trait Made {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Out<()>;
    fn set_size(&mut self, size: u64) -> Out<()>;
    /// Sets owner, attributes, mode and times.
    fn finish(&mut self, item: &Item) -> Out<()>;
    /// The file is complete: gives it its name.
    fn place(self: Box<Self>) -> Out<()>;
    /// The contents are complete, but finishing failed: keeps the file if no other file had its name. False if it was
    /// removed.
    fn keep(self: Box<Self>) -> bool;
}

/// Fails if the copy was interrupted.
pub fn go_on(stop: &Interrupt) -> Out<()> {
    if stop.came() { Err("interrupted".into()) } else { Ok(()) }
}
