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
/// Every call that returns an [`Entry`] (`lookup`, `mknod`, `mkdir`, `symlink`, `link`) takes one reference on that
/// inode; [`forget`](Self::forget) gives references back. An inode without links exists until its last reference
/// and its last `open` are gone. The root needs no reference.
///
/// # Durability
/// Data covered by a successful `fsync`, `fsyncdir` or `sync` survives a power cut. Otherwise the only promise is
/// "old or new".
///
/// Names are 1 to 255 bytes, without `/` and NUL, and not `.` or `..` (an implementation checks).
pub trait FileSystem: Send + Sync + 'static {
    /// The root directory.
    fn root(&self) -> Ino;
    /// Space and limits.
    fn statfs(&self) -> Result<StatFs>;
    /// True if the volume is read-only.
    fn read_only(&self) -> bool;

    /// Looks up a name. Takes a reference. Accepts `..`, and `.` for an inode of any kind, which gives a reference
    /// to an inode known only by number (an NFS handle). Without links and references the result is
    /// [`NotFound`](crate::Error::NotFound).
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry>;
    /// True if directories may accept different bytes for one name: changing one then affects lookups of the
    /// others.
    fn folds(&self) -> bool {
        false
    }
    /// True if some files must not be opened even for reading: then a read-only mount must ask for each open, too.
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

    /// Creates a regular file, device node, fifo or socket. Takes a reference.
    fn mknod(&self, caller: Caller, parent: Ino, name: &[u8], new: &NewNode) -> Result<Entry>;
    /// Creates a directory. Takes a reference.
    fn mkdir(&self, caller: Caller, parent: Ino, name: &[u8], perm: u16, umask: u16) -> Result<Entry>;
    /// Creates a symlink. Takes a reference.
    fn symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry>;
    /// Creates another name for an inode. Takes a reference.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry>;
    /// Removes a name of an inode that is not a directory.
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;
    /// Renames or moves a name.
    fn rename(&self, caller: Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<()>;
    /// Creates a regular file without a name (`O_TMPFILE`) in `parent`'s volume. Takes a reference.
    fn tmpfile(&self, caller: Caller, parent: Ino, perm: u16, umask: u16) -> Result<Entry>;

    /// Opens a handle. `truncate` empties the file first (`O_TRUNC`). [`NoKey`](crate::Error::NoKey): the contents
    /// cannot be read here.
    fn open(&self, ino: Ino, truncate: bool) -> Result<()>;
    /// Called before a file is opened for writing (`appending`: with `O_APPEND`); returns the error that every
    /// change of its contents would get. Linux reports it at open; a mount with its own cache would report it only
    /// at writeback, without a caller.
    fn may_write(&self, _ino: Ino, _appending: bool) -> Result<()> {
        Ok(())
    }
    /// Closes a handle.
    fn release(&self, ino: Ino);
    /// Reads at most `buf.len()` bytes; fewer only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Writes all of `data`, or the nonempty part for which there is space.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize>;
    /// `fallocate`.
    fn fallocate(&self, ino: Ino, what: Allocate, offset: u64, len: u64) -> Result<()>;
    /// Notes that contents, names or a symlink's target were read: the access time may have to change, by the rule
    /// of [`Attr::access_is_due`]. Front ends call this if access times are wanted; reads alone never change them.
    /// True if it changed; errors are not reported.
    fn accessed(&self, _ino: Ino) -> bool {
        false
    }
    /// `SEEK_DATA`, `SEEK_HOLE`.
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64>;

    /// Lists names after `cookie` (0 is the start), with `.` and `..`. The order is stable while the directory does
    /// not change; a name that stays is listed exactly once.
    fn readdir(&self, ino: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()>;

    /// Makes a file's contents and, unless `data_only`, its metadata durable.
    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()>;
    /// Makes a directory's names durable.
    fn fsyncdir(&self, ino: Ino, data_only: bool) -> Result<()>;
    /// Makes everything durable. If that fails, the file system keeps its state in memory and rejects changes. The
    /// next call writes everything again; if it succeeds, changes are accepted again.
    fn sync(&self) -> Result<()>;

    /// An attribute's value, by its full name (`user.x`, `system.posix_acl_access`).
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
    /// The full names of all attributes.
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
    /// Sets an attribute.
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()>;
    /// Removes an attribute.
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// The flags as shown by `lsattr`.
    fn flags(&self, _ino: Ino) -> Result<Flags> {
        Err(Error::Unsupported("flags of files".to_owned()))
    }
    /// Sets the flags, and the project if given. Immutable and append-only then apply to every user.
    fn set_flags(&self, _ino: Ino, _flags: FileFlags, _project: Option<u32>) -> Result<()> {
        Err(Error::Unsupported("flags of files".to_owned()))
    }

    /// Begins a set of writes that [`commit_atomic`](Self::commit_atomic) makes durable at once, or not at all. Until
    /// then readers see the writes, but no sync makes them durable. `owner` is the handle that begins, and alone may
    /// end, the set. Does nothing if the owner has begun one already.
    ///
    /// # Errors
    /// [`Busy`](crate::Error::Busy) if another handle has begun one; [`Invalid`](crate::Error::Invalid) for a file that
    /// cannot have one: not regular, compressed, or pinned.
    fn start_atomic(&self, _ino: Ino, _owner: u64) -> Result<()> {
        Err(Error::Unsupported("atomic writes".to_owned()))
    }
    /// Ends a set of writes: all of them are durable now. Without a set, makes the file's contents durable.
    ///
    /// # Errors
    /// [`TooBig`](crate::Error::TooBig) if the set did not fit in memory; [`Busy`](crate::Error::Busy) if it is another
    /// handle's. After any other error than `Busy` there is no set any more. The file is as before it, unless the device
    /// failed: then it may show the new contents until it is mounted again.
    fn commit_atomic(&self, _ino: Ino, _owner: u64) -> Result<()> {
        Err(Error::Unsupported("atomic writes".to_owned()))
    }
    /// Drops a set of writes; true if there was one. The file is as before it.
    ///
    /// # Errors
    /// [`Busy`](crate::Error::Busy) if the set is another handle's.
    fn abort_atomic(&self, _ino: Ino, _owner: u64) -> Result<bool> {
        Ok(false)
    }
    /// The feature bits that programs may ask for (Linux: `F2FS_IOC_GET_FEATURES`).
    fn feature_bits(&self) -> Result<u32> {
        Err(Error::Unsupported("feature bits".to_owned()))
    }

    /// Compression parameters of a file; `None` if it is not compressed.
    fn compression(&self, _ino: Ino) -> Result<Option<Compression>> {
        Ok(None)
    }
    /// Sets the compression of a compressed file without blocks: the algorithm's number, and blocks in a cluster as
    /// a power of two.
    fn set_compression(&self, _ino: Ino, _algorithm: u8, _log_cluster: u8) -> Result<()> {
        Err(Error::Unsupported("compressed files".to_owned()))
    }
    /// Compresses uncompressed clusters of a compressed file where that saves room, or decompresses all.
    fn repack(&self, _ino: Ino, _packed: bool) -> Result<()> {
        Err(Error::Unsupported("compressed files".to_owned()))
    }
    /// Releases the room saved by compression, and makes the file immutable. Returns the number of blocks.
    fn release_saved(&self, _ino: Ino) -> Result<u64> {
        Err(Error::Unsupported("compressed files".to_owned()))
    }
    /// Reserves that room again, so that the file may change. Returns the number of blocks.
    fn reserve_saved(&self, _ino: Ino) -> Result<u64> {
        Err(Error::Unsupported("compressed files".to_owned()))
    }

    /// Addresses of a file's blocks on the device, in order, from block `from` of the file on, at most `most` runs.
    /// Contents that are not written back yet, or that are in the inode, have no address.
    fn extents(&self, _ino: Ino, _from: u64, _most: usize) -> Result<Vec<Extent>> {
        Err(Error::Unsupported("asking where a file lies".to_owned()))
    }
    /// Moves blocks of a file to contiguous places, one step per call; returns the first remaining block of the
    /// range, or its end, and the number of blocks moved. An empty range only checks whether that is possible.
    /// [`Busy`](crate::Error::Busy): not now. [`NotPermitted`](crate::Error::NotPermitted),
    /// [`Invalid`](crate::Error::Invalid): not this file; the text gives the reason.
    fn defragment(&self, _ino: Ino, _blocks: Range<u64>, _how: Moving) -> Result<(u64, u64)> {
        Err(Error::Unsupported("defragmenting".to_owned()))
    }

    /// The shortage of contiguous room for `blocks` blocks; if there is one and `clean` is set, cleans one section.
    /// [`NoSpace`](crate::Error::NoSpace): no section is worth cleaning.
    fn room(&self, _blocks: u64, _clean: bool) -> Result<Room> {
        Err(Error::Unsupported("defragmenting".to_owned()))
    }

    /// Does due background work (writeback, checkpoint, cleaning, discard), and returns the time until there may be
    /// more. A mount calls this from a thread of its own; a simulation at any time.
    fn tick(&self) -> Result<Duration>;
    /// Called once by the caller of [`tick`](Self::tick): `wake` requests the next call earlier than the last one
    /// announced, for example when the first change after a long rest starts its time limit.
    fn wake_by(&self, _wake: Box<dyn Fn() + Send + Sync>) {}
    /// Counters and settings of the running file system, as names and values in reading order. Empty if it has
    /// none. A volume with checkpoints that can fail also reports the lines of [`crate::state`].
    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// Energy spent by the running file system, as a line of JSON for `fuse::control`. It lists at most `files`
    /// files each by total cost and by cost since the account with the token `since`. `None` if energy is not
    /// counted.
    fn account(&self, _files: usize, _since: u64) -> Option<String> {
        None
    }
    /// Changes a setting of the running file system. The error completes the sentence "NAME ...".
    fn tune(&self, _name: &str, _value: &str) -> std::result::Result<(), String> {
        Err("is not a setting of this file system".to_owned())
    }
    /// Unmounts the volume in a clean state. Later calls fail or do nothing.
    fn unmount(&self) -> Result<()>;
}
