//! Types of operations: inode numbers, attributes, flags, directory entries.

use bitflags::bitflags;

/// Inode number, unique within a volume. The root's is [`FileSystem::root`](crate::FileSystem::root).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

/// A point in time: whole seconds since 1970-01-01 UTC (may be negative) and nanoseconds below 10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds, 0..1_000_000_000.
    pub nsec: u32,
}

/// Kind of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
}

impl FileKind {
    /// The `S_IFMT` bits of a mode.
    pub fn mode_bits(self) -> u16 {
        match self {
            FileKind::Fifo => 0o010000,
            FileKind::CharDevice => 0o020000,
            FileKind::Directory => 0o040000,
            FileKind::BlockDevice => 0o060000,
            FileKind::Regular => 0o100000,
            FileKind::Symlink => 0o120000,
            FileKind::Socket => 0o140000,
        }
    }
    /// Kind from the `S_IFMT` bits of a mode; `None` for an invalid value.
    pub fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & 0o170000 {
            0o010000 => FileKind::Fifo,
            0o020000 => FileKind::CharDevice,
            0o040000 => FileKind::Directory,
            0o060000 => FileKind::BlockDevice,
            0o100000 => FileKind::Regular,
            0o120000 => FileKind::Symlink,
            0o140000 => FileKind::Socket,
            _ => return None,
        })
    }
}

/// A device number, independent of its encoding in any protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceNumber {
    /// Major, 12 bits on Linux.
    pub major: u32,
    /// Minor, 20 bits on Linux.
    pub minor: u32,
}

/// The attributes returned by `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// Distinguishes successive uses of one number.
    pub generation: u32,
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits with suid, sgid, sticky (`mode & 0o7777`).
    pub perm: u16,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Space used, in 512-byte units (as `st_blocks`).
    pub blocks512: u64,
    /// Device number of a device node, otherwise zero.
    pub rdev: DeviceNumber,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation time, if the volume records it.
    pub crtime: Option<Timestamp>,
}

impl Attr {
    /// True if an access now must be recorded, by the rule of Linux's `relatime`: the time of the last access only
    /// tells whether the file was read since its last change, and on which day.
    pub fn access_is_due(&self, now: Timestamp) -> bool {
        const DAY: i64 = 24 * 3600;
        self.atime <= self.mtime || self.atime <= self.ctime || now.sec.saturating_sub(self.atime.sec) >= DAY
    }
}

/// The result of looking up or creating a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Attributes of the inode.
    pub attr: Attr,
}

/// The owner of new inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// A new time for `setattr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The file system's current time.
    Now,
    /// This time.
    At(Timestamp),
}

/// Changes by `setattr`; `None` keeps a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (`& 0o7777`).
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Truncate or extend.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time; set only by a kernel that owns the times (writeback cache).
    pub ctime: Option<Timestamp>,
    /// Creation time, for copies that keep it.
    pub crtime: Option<Timestamp>,
    /// Clear suid and, if the group may execute, sgid (after a write by an unprivileged user).
    pub kill_suid_sgid: bool,
}

/// The flags as shown by `lsattr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Its flags.
    pub flags: FileFlags,
    /// Its project, or 0 if none is stored.
    pub project: u32,
}

/// Compression parameters of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// Linux's number of the algorithm, and its name.
    pub algorithm: u8,
    /// See `algorithm`.
    pub name: &'static str,
    /// Blocks in a cluster, as a power of two.
    pub log_cluster: u8,
    /// Blocks saved by compression for which room is still reserved.
    pub saved: u64,
    /// True if that room was released: the file is immutable.
    pub released: bool,
}

/// Initial attributes of a new inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    /// Its kind. [`FileSystem::mknod`](crate::FileSystem::mknod) creates every kind except directories and
    /// symlinks.
    pub kind: FileKind,
    /// Requested permission bits, before `umask`.
    pub perm: u16,
    /// Bits to clear; ignored if the parent has a default ACL.
    pub umask: u16,
    /// For device nodes.
    pub rdev: DeviceNumber,
}

bitflags! {
    /// Treatment of an existing target by `rename` (`renameat2`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail if the target exists.
        const NO_REPLACE = 1;
        /// Swap source and target.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) in place of the source.
        const WHITEOUT = 4;
    }
    /// Options of `write`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// Clear suid/sgid (the writer is unprivileged).
        const KILL_SUID_SGID = 1;
        /// The data is writeback from a cache that owns the times: leave mtime and ctime unchanged. It has already
        /// waited for more data, so waiting again gains little.
        const FROM_CACHE = 2;
    }
    /// The flags of `chattr` and `lsattr`, with Linux's numbers (`FS_*_FL`). Flags without a name here are passed
    /// through.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct FileFlags: u32 {
        /// Compressed. For a directory: new files in it are compressed.
        const COMPRESS = 0x0000_0004;
        /// Every write is durable immediately.
        const SYNC = 0x0000_0008;
        /// Immutable.
        const IMMUTABLE = 0x0000_0010;
        /// Append-only.
        const APPEND = 0x0000_0020;
        /// Excluded from backups.
        const NODUMP = 0x0000_0040;
        /// Access times are not updated.
        const NOATIME = 0x0000_0080;
        /// Never compressed. For a directory: new files in it are not compressed.
        const NOCOMP = 0x0000_0400;
        /// Encrypted; read-only flag.
        const ENCRYPT = 0x0000_0800;
        /// Protected by fs-verity; read-only flag.
        const VERITY = 0x0010_0000;
        /// New children inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// For a directory: names that differ only in case are equal.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
    /// Treatment of an existing attribute by `setxattr`, and the ACL case that also clears sgid.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct XattrFlags: u32 {
        /// Fail if it exists.
        const CREATE = 1;
        /// Fail if it does not exist.
        const REPLACE = 2;
        /// Setting an access ACL must also clear sgid (the setter is not in the group).
        const ACL_KILL_SGID = 4;
    }
}

/// Operation of `fallocate` on the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Reserve blocks; extend the size unless `keep_size`.
    Reserve {
        /// Keep the size.
        keep_size: bool,
    },
    /// Punch a hole; the size is unchanged.
    PunchHole,
    /// Zero the range and reserve it; extend the size unless `keep_size`.
    Zero {
        /// Keep the size.
        keep_size: bool,
    },
    /// Remove the range and shift the rest down. Block-aligned.
    Collapse,
    /// Insert a gap and shift the rest up. Block-aligned.
    Insert,
}

/// Target of `seek`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next stored byte.
    Data,
    /// The next byte that is not stored (the end of the file counts).
    Hole,
}

/// One name in a directory, as returned by `readdir`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Its inode.
    pub ino: Ino,
    /// Its kind according to the directory.
    pub kind: FileKind,
    /// The name's bytes, without a terminator.
    pub name: &'a [u8],
    /// Cookie for `readdir` to continue after this entry.
    pub next: u64,
}

/// Tells `readdir` whether to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Send the next entry.
    Continue,
    /// Stop; this entry did not fit and is not consumed.
    Stop,
}

/// A run of a file's blocks at consecutive addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first block of the file.
    pub from: u64,
    /// Its address: blocks of 4 KiB from the start of the device.
    pub addr: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// True if the preceding block of the file is a hole or does not exist. (In a compressed file, consecutive
    /// clusters are read one after the other, although they have fewer blocks than they represent.)
    pub begins: bool,
}

/// Shortage of contiguous room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// Number of further sections that must become free; 0: there is room.
    pub short: u64,
    /// Estimated number of blocks that cleaning the emptiest sections would move.
    pub moves: u64,
    /// Number of blocks that cleaning has moved now.
    pub moved: u64,
}

/// How blocks are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moving {
    /// By reading and writing.
    Copy,
    /// By a device command that shows them at the new places too; the old places are discarded later (`REMAP`).
    Share,
}

/// Space and limits of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes per block.
    pub block_size: u32,
    /// User-visible blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks available to ordinary users.
    pub blocks_available: u64,
    /// Maximum number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}
