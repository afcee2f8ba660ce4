//! The [`FileSystem`] trait.

use std::ops::Range;
use std::time::Duration;

use crate::{
    Allocate, Attr, Caller, Compression, DirEntry, Entry, Error, Extent, FileFlags, Flags, Flow, Ino, Moving, NewNode,
    RenameFlags, Result, Room, Seek, SetAttr, StatFs, WriteFlags, XattrFlags,
};

/// A mounted volume. Every method takes `&self` and may be called from many threads.
///
/// # References
/// Every call that hands out an [`Entry`] (`lookup`, `mknod`, `mkdir`, `symlink`, `link`) takes one
/// reference on that inode; [`forget`](Self::forget) gives references back. An inode without links
/// lives until its last reference and its last `open` are gone. The root needs no reference.
///
/// # Durability
/// What `fsync`, `fsyncdir` or `sync` returned for survives a power cut. Nothing else is promised
/// beyond "old or new".
///
/// Names are bytes: 1 to 255 of them, no `/`, no NUL, not `.` or `..` (an implementation checks).
pub trait FileSystem: Send + Sync + 'static {
    /// The root directory.
    fn root(&self) -> Ino;
    /// Space and limits.
    fn statfs(&self) -> Result<StatFs>;
    /// True if nothing can be written.
    fn read_only(&self) -> bool;

    /// Finds a name. Takes a reference. `..` is understood, and `.` for an inode of any kind: that is how one
    /// known by its number alone (an NFS handle) gets a reference. Without links and references it is
    /// [`NotFound`](crate::Error::NotFound).
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry>;
    /// True if directories may take different bytes for one name: then a change of one changes what others lead to.
    fn folds(&self) -> bool {
        false
    }
    /// True if some files may not be opened even for reading: then a read-only mount must ask about each, too.
    fn refuses_opening(&self) -> bool {
        false
    }
    /// Gives `count` references back.
    fn forget(&self, ino: Ino, count: u64);
    /// `stat`.
    fn getattr(&self, ino: Ino) -> Result<Attr>;
    /// `chmod`, `chown`, `truncate`, `utimens`, in one.
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr>;
    /// A symlink's target.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Makes a regular file, device node, fifo or socket. Takes a reference.
    fn mknod(&self, caller: Caller, parent: Ino, name: &[u8], new: &NewNode) -> Result<Entry>;
    /// Makes a directory. Takes a reference.
    fn mkdir(&self, caller: Caller, parent: Ino, name: &[u8], perm: u16, umask: u16) -> Result<Entry>;
    /// Makes a symlink. Takes a reference.
    fn symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry>;
    /// Makes another name for an inode. Takes a reference.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry>;
    /// Removes a name that is not a directory's.
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;
    /// Moves a name.
    fn rename(&self, caller: Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<()>;
    /// Makes a regular file with no name yet (`O_TMPFILE`) in `parent`'s volume. Takes a reference.
    fn tmpfile(&self, caller: Caller, parent: Ino, perm: u16, umask: u16) -> Result<Entry>;

    /// Announces a handle. `truncate` empties the file first (`O_TRUNC`). [`NoKey`](crate::Error::NoKey): what is in the file
    /// nobody can read here.
    fn open(&self, ino: Ino, truncate: bool) -> Result<()>;
    /// Asked before a file is opened for writing (`appending`: with `O_APPEND`): the error that every change of its contents
    /// would meet. Linux reports it when the file is opened; a mount with a cache of its own would report it when it writes
    /// back, to nobody.
    fn may_write(&self, _ino: Ino, _appending: bool) -> Result<()> {
        Ok(())
    }
    /// Ends a handle.
    fn release(&self, ino: Ino);
    /// Reads at most `buf.len()` bytes; fewer only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Writes all of `data`, or as much as there is space for if that is not nothing.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize>;
    /// `fallocate`.
    fn fallocate(&self, ino: Ino, what: Allocate, offset: u64, len: u64) -> Result<()>;
    /// Somebody read contents, names or a symlink's target: the access time may have to follow, by the rule of
    /// [`Attr::access_is_due`]. Whoever serves a file system calls this where access times are wanted; reading
    /// alone never changes one. True if it changed; a failure is not reported.
    fn accessed(&self, _ino: Ino) -> bool {
        false
    }
    /// `SEEK_DATA`, `SEEK_HOLE`.
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64>;

    /// Lists names after `cookie` (0 from the start), with `.` and `..`. The order is stable while
    /// the directory does not change; a name that stays is listed exactly once.
    fn readdir(&self, ino: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()>;

    /// Makes a file's contents (and, unless `data_only`, everything about it) durable.
    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()>;
    /// Makes a directory's names durable.
    fn fsyncdir(&self, ino: Ino, data_only: bool) -> Result<()>;
    /// Makes everything durable. If that fails, the file system keeps what is in memory and takes no changes; another call
    /// writes all of it once more, and if that succeeds changes are taken again.
    fn sync(&self) -> Result<()>;

    /// One attribute's value, by its full name (`user.x`, `system.posix_acl_access`).
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
    /// Every attribute's full name.
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
    /// Sets an attribute.
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()>;
    /// Removes an attribute.
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// The flags `lsattr` shows.
    fn flags(&self, _ino: Ino) -> Result<Flags> {
        Err(Error::Unsupported("flags of files".to_owned()))
    }
    /// Makes `flags` the flags, and `project` the project if it is given. Immutable and append-only are enforced
    /// from then on, for everybody.
    fn set_flags(&self, _ino: Ino, _flags: FileFlags, _project: Option<u32>) -> Result<()> {
        Err(Error::Unsupported("flags of files".to_owned()))
    }

    /// How a file is compressed; `None` if it is not a compressed file.
    fn compression(&self, _ino: Ino) -> Result<Option<Compression>> {
        Ok(None)
    }
    /// Sets how a compressed file without blocks is to be compressed: the algorithm's number, and blocks in a cluster as a
    /// power of two.
    fn set_compression(&self, _ino: Ino, _algorithm: u8, _log_cluster: u8) -> Result<()> {
        Err(Error::Unsupported("compressed files".to_owned()))
    }
    /// Packs a compressed file's clusters that are on the device as they are, where that saves room, or unpacks all.
    fn repack(&self, _ino: Ino, _packed: bool) -> Result<()> {
        Err(Error::Unsupported("compressed files".to_owned()))
    }
    /// Gives back the room that compression saves; the file does not change any more. Returns how many blocks.
    fn release_saved(&self, _ino: Ino) -> Result<u64> {
        Err(Error::Unsupported("compressed files".to_owned()))
    }
    /// Takes that room again, so that the file may change. Returns how many blocks.
    fn reserve_saved(&self, _ino: Ino) -> Result<u64> {
        Err(Error::Unsupported("compressed files".to_owned()))
    }

    /// Where a file's blocks are on the device, in order, from a block of the file on, at most so many runs. Contents
    /// that are not written back yet, and those in an inode, are nowhere.
    fn extents(&self, _ino: Ino, _from: u64, _most: usize) -> Result<Vec<Extent>> {
        Err(Error::Unsupported("asking where a file lies".to_owned()))
    }
    /// Brings blocks of a file to neighbouring places, as many as one step takes; returns the first block of the range that is left, or
    /// its end, and how many were moved. Of no blocks: only says whether that may be. [`Busy`](crate::Error::Busy): not now.
    /// [`NotPermitted`](crate::Error::NotPermitted), [`Invalid`](crate::Error::Invalid): not this file; the text says why.
    fn defragment(&self, _ino: Ino, _blocks: Range<u64>, _how: Moving) -> Result<(u64, u64)> {
        Err(Error::Unsupported("defragmenting".to_owned()))
    }

    /// What is missing for so many blocks to lie together; if something is and `clean` is set, cleans one section.
    /// [`NoSpace`](crate::Error::NoSpace): nothing is left that is worth it.
    fn room(&self, _blocks: u64, _clean: bool) -> Result<Room> {
        Err(Error::Unsupported("defragmenting".to_owned()))
    }

    /// Does background work that is due (writeback, checkpoint, cleaning, discard), and says after how
    /// long there may be more. A mount calls this from a thread of its own; a simulation whenever it
    /// likes.
    fn tick(&self) -> Result<Duration>;
    /// Called once by whoever calls [`tick`](Self::tick): `wake` asks for a turn sooner than the last one said, as when the
    /// first change after a long rest begins the time within which it is to become durable.
    fn wake_by(&self, _wake: Box<dyn Fn() + Send + Sync>) {}
    /// Counters and settings of the running file system, as name and value, in the order people read
    /// them. Empty if it has none. A volume that can fail to write a checkpoint has the lines of [`crate::state`], too.
    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// What the running file system has spent, as a line of JSON for `fuse::control`, with at most `files` files by name
    /// each by what they cost in all and since the account with the token `since` was given; `None` if nobody counts.
    fn account(&self, _files: usize, _since: u64) -> Option<String> {
        None
    }
    /// Changes a setting of the running file system. The error completes the sentence "NAME ...".
    fn tune(&self, _name: &str, _value: &str) -> std::result::Result<(), String> {
        Err("is not a setting of this file system".to_owned())
    }
    /// Ends the volume's life in a clean state. Later calls fail or do nothing.
    fn unmount(&self) -> Result<()>;
}
