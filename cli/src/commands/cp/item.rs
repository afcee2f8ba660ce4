//! What a copy is made of: where things come from and go to, and what is copied of a file beside its contents.

use vfs::{DeviceNumber, FileKind, Timestamp};

use crate::interrupt::Interrupt;
use crate::output;

/// What is copied of a file beside its contents.
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
    /// Device and inode, if it has more names than one.
    pub identity: Option<(u64, u64)>,
    pub target: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Why a directory's attributes are not all in `xattrs`.
    pub amiss: Option<String>,
}

/// The bits of a mode by which a program runs as somebody else.
const SET_ID: u16 = 0o6000;
/// The bits of a mode that an access list can restrict.
const OTHERS: u16 = 0o077;

impl Item {
    /// Something that no inode stands for: this user's, empty, of no time.
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
    /// Access lists that the copy must not have.
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

/// What a first look at a file tells. It leaves the file's access time as it is.
#[derive(Debug, Clone, Copy)]
pub struct Glance {
    pub kind: FileKind,
    pub size: u64,
    /// Device (0: the image) and inode.
    pub file: (u64, u64),
}

/// The attributes that are access lists: a file and a directory may have taken them from the directory
/// they were made in, so where the original has none they must go.
pub const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

pub type Out<T> = Result<T, String>;

/// Contents being read.
pub trait Reader {
    /// The next stretch of data at or after `offset`; `None` if only holes are left.
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

/// Makes of a directory's path that of a name in it.
pub fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Where things come from. Paths are bytes with `/` between the names.
pub trait Source {
    fn glance(&self, path: &[u8]) -> Out<Glance>;
    fn item(&self, path: &[u8]) -> Out<Item>;
    /// The names in a directory, sorted. Where reading it fails: those read until then, and why.
    fn names(&self, path: &[u8]) -> (Vec<Vec<u8>>, Out<()>);
    fn open<'s>(&'s self, path: &[u8]) -> Out<Box<dyn Reader + 's>>;
    /// A path as a person writes it.
    fn place(&self, path: &[u8]) -> String {
        output::name(path)
    }
    /// How many bytes all contents together can have, if a volume of known size holds them.
    fn holds(&self) -> Option<u64> {
        None
    }
    /// True if each directory has one name, so that one that is met again is damage.
    fn names_directories_once(&self) -> bool {
        false
    }
}

/// Where things go.
pub trait Sink {
    fn kind(&self, path: &[u8]) -> Out<Option<FileKind>>;
    /// Makes a directory; one that is there serves.
    fn make_directory(&self, path: &[u8]) -> Out<()>;
    /// Makes anything but a directory.
    fn make<'s>(&'s self, path: &[u8], item: &Item) -> Out<Box<dyn Made + 's>>;
    /// Gives a file one more name; what is there gives way.
    fn link(&self, existing: &[u8], path: &[u8]) -> Out<()>;
    /// Gives a directory its owner, attributes, mode and times, last of all.
    fn finish(&self, path: &[u8], item: &Item) -> Out<()>;
    /// True once something was refused so that the host keeps room free: the copy ends.
    fn is_full(&self) -> bool {
        false
    }
}

/// A file being made. Dropped before it is placed, it is gone.
pub trait Made {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Out<()>;
    fn set_size(&mut self, size: u64) -> Out<()>;
    /// Gives it its owner, attributes, mode and times.
    fn finish(&mut self, item: &Item) -> Out<()>;
    /// It is whole, and what its name leads to from now on.
    fn place(self: Box<Self>) -> Out<()>;
    /// Its contents are whole, but it could not be finished: it gets its name if that was nobody's. False if it is gone.
    fn keep(self: Box<Self>) -> bool;
}

/// Copying ends early if somebody asks for it.
pub fn go_on(stop: &Interrupt) -> Out<()> {
    if stop.came() { Err("interrupted".into()) } else { Ok(()) }
}
