//! The types that operations take and return: inode numbers, attributes, flags, directory entries.

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

/// What an inode is.
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
    /// Kind from the `S_IFMT` bits of a mode; `None` for a value that names no kind.
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

/// A device number, kept apart from how any protocol packs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceNumber {
    /// Major, 12 bits on Linux.
    pub major: u32,
    /// Minor, 20 bits on Linux.
    pub minor: u32,
}

/// Everything `stat` says of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// Distinguishes two lives of one number.
    pub generation: u32,
    /// What it is.
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
    /// Device number of a device node, else zero.
    pub rdev: DeviceNumber,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Birth, where the volume records it.
    pub crtime: Option<Timestamp>,
}

impl Attr {
    /// Whether an access now has to be noted: the rule of Linux's `relatime`. The time of the last access is
    /// kept only so far that it says whether anything was read since it changed, and on which day.
    pub fn access_is_due(&self, now: Timestamp) -> bool {
        const DAY: i64 = 24 * 3600;
        self.atime <= self.mtime || self.atime <= self.ctime || now.sec.saturating_sub(self.atime.sec) >= DAY
    }
}

/// The result of finding or making a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Attributes of the inode the name leads to.
    pub attr: Attr,
}

/// Who asks: new inodes belong to them.
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
    /// The file system's own now.
    Now,
    /// Exactly this.
    At(Timestamp),
}

/// Changes `setattr` makes; `None` leaves a field alone.
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
    /// Change time; only a kernel that owns the times (writeback cache) says it.
    pub ctime: Option<Timestamp>,
    /// Birth time, for copies that keep it.
    pub crtime: Option<Timestamp>,
    /// Clear suid and, where the group may execute, sgid (a write by somebody unprivileged).
    pub kill_suid_sgid: bool,
}

/// What `lsattr` shows of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Its flags.
    pub flags: FileFlags,
    /// The project it belongs to, 0 where none is kept.
    pub project: u32,
}

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// Linux's number of the algorithm, and its name.
    pub algorithm: u8,
    /// See `algorithm`.
    pub name: &'static str,
    /// Blocks in a cluster, as a power of two.
    pub log_cluster: u8,
    /// Blocks that compression saves, for which the file still has room.
    pub saved: u64,
    /// That room was given back: the file does not change.
    pub released: bool,
}

/// What a new inode starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    /// What to make. [`FileSystem::mknod`](crate::FileSystem::mknod) makes every kind but directories and symlinks.
    pub kind: FileKind,
    /// Permission bits as asked for, before `umask`.
    pub perm: u16,
    /// Bits to take away; ignored where the parent has a default ACL.
    pub umask: u16,
    /// For device nodes.
    pub rdev: DeviceNumber,
}

bitflags! {
    /// How `rename` treats an existing target (`renameat2`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail if the target exists.
        const NO_REPLACE = 1;
        /// Swap source and target.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) in the source's place.
        const WHITEOUT = 4;
    }
    /// How `write` behaves.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// Clear suid/sgid (the writer is unprivileged).
        const KILL_SUID_SGID = 1;
        /// The data is pages written back from a cache that owns times: leave mtime and ctime alone. They have
        /// waited there for more; waiting on gains little.
        const FROM_CACHE = 2;
    }
    /// The flags of `chattr` and `lsattr`, with Linux's numbers (`FS_*_FL`). What has no name here is passed on as
    /// it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct FileFlags: u32 {
        /// Compressed; of a directory: files made in it are.
        const COMPRESS = 0x0000_0004;
        /// Every write is durable at once.
        const SYNC = 0x0000_0008;
        /// Cannot change.
        const IMMUTABLE = 0x0000_0010;
        /// Can only grow.
        const APPEND = 0x0000_0020;
        /// Left out of backups.
        const NODUMP = 0x0000_0040;
        /// Access times stand still.
        const NOATIME = 0x0000_0080;
        /// Never compressed; of a directory: files made in it are not.
        const NOCOMP = 0x0000_0400;
        /// Encrypted; cannot be set.
        const ENCRYPT = 0x0000_0800;
        /// Sealed by fs-verity; cannot be set.
        const VERITY = 0x0010_0000;
        /// New children inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Of a directory: names that differ only in case are one name.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
    /// How `setxattr` treats an existing attribute, and the ACL case that also drops sgid.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct XattrFlags: u32 {
        /// Fail if it exists.
        const CREATE = 1;
        /// Fail if it does not.
        const REPLACE = 2;
        /// Setting an access ACL must also clear sgid (the setter is not in the group).
        const ACL_KILL_SGID = 4;
    }
}

/// What `fallocate` is to do with the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Reserve blocks; extend the size unless `keep_size`.
    Reserve {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Make a hole; the size stays.
    PunchHole,
    /// Make it read as zeroes, reserved; extend the size unless `keep_size`.
    Zero {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Cut the range out and move the rest down. Block-aligned.
    Collapse,
    /// Open a gap and move the rest up. Block-aligned.
    Insert,
}

/// What `seek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is stored.
    Data,
    /// The next byte that is not (the end of the file counts).
    Hole,
}

/// One name in a directory, as `readdir` hands it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Where it leads.
    pub ino: Ino,
    /// What it is, as the directory records it.
    pub kind: FileKind,
    /// The name's bytes, without a terminator.
    pub name: &'a [u8],
    /// Give this to `readdir` to go on after this entry.
    pub next: u64,
}

/// Whether `readdir`'s receiver wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Send the next.
    Continue,
    /// This one did not fit: it is not consumed; stop.
    Stop,
}

/// A run of a file's blocks at neighbouring places of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first block of the file.
    pub from: u64,
    /// Its place: blocks of 4 KiB from the beginning of the device.
    pub addr: u64,
    /// How many.
    pub blocks: u64,
    /// True if no stored block of the file is right before it: a hole is, or the beginning. (In a compressed file,
    /// clusters that follow each other are read one after the other, though they have fewer blocks than they stand for.)
    pub begins: bool,
}

/// What is missing for blocks that are to lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// Sections that would have to be free beside those that are; none: there is room.
    pub short: u64,
    /// Blocks that cleaning the emptiest sections would move for that; an estimate.
    pub moves: u64,
    /// Blocks that cleaning has moved now.
    pub moved: u64,
}

/// How blocks get to other places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moving {
    /// They are read and written.
    Copy,
    /// The device is told to show them there too, and forgets the old places later (`REMAP`).
    Share,
}

/// Space and limits of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes per block, the unit below.
    pub block_size: u32,
    /// User-visible blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks an ordinary user may take.
    pub blocks_available: u64,
    /// Inodes there can be.
    pub files: u64,
    /// Inodes still free.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}
