//! Which calls do programs make to a file system, by file and not by inode? Recordings of system calls.

use crate::timing::Timing;
use crate::{Format, OtherCounts, TraceError};

/// An open file in the recording: one number from its open to its close, even if programs reuse descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

bitflags::bitflags! {
    /// Flags of an open.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct How: u16 {
        /// Open for reading.
        const READ = 1;
        /// Open for writing.
        const WRITE = 2;
        /// Create if missing.
        const CREATE = 4;
        /// Truncate to zero.
        const TRUNCATE = 8;
        /// Every write appends.
        const APPEND = 16;
        /// Fail if it exists.
        const EXCLUSIVE = 32;
        /// Every write is durable when it returns, contents and inode (`O_SYNC`).
        const SYNC = 64;
        /// Every write is durable when it returns, contents only (`O_DSYNC`).
        const DATA_SYNC = 128;
        /// A directory.
        const DIRECTORY = 256;
    }
}

/// A system call. Paths are absolute, as the program sees them, without `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Open a file; later calls refer to it by `handle`.
    Open {
        /// Its handle.
        handle: Handle,
        /// The path.
        path: Vec<u8>,
        /// The flags.
        how: How,
    },
    /// Close it.
    Close {
        /// The open file.
        handle: Handle,
    },
    /// Read.
    Read {
        /// The open file.
        handle: Handle,
        /// The first byte; `None`: where the last call ended.
        at: Option<u64>,
        /// Bytes read, or requested if the result is unknown.
        bytes: u64,
    },
    /// Write.
    Write {
        /// The open file.
        handle: Handle,
        /// The first byte; `None`: where the last call ended, or the end of a file opened to append.
        at: Option<u64>,
        /// Bytes written, or requested if the result is unknown.
        bytes: u64,
    },
    /// Set the position of the next call.
    Seek {
        /// The open file.
        handle: Handle,
        /// The position; `None`: the end.
        to: Option<u64>,
    },
    /// Make a file durable.
    Sync {
        /// The open file.
        handle: Handle,
        /// `fdatasync`: contents, and what is needed to read them.
        data_only: bool,
    },
    /// Make everything durable.
    SyncAll,
    /// Change a file's length.
    Truncate {
        /// The file.
        file: Target,
        /// New length in bytes.
        length: u64,
    },
    /// Allocate or free a range of a file's blocks.
    Allocate {
        /// The open file.
        handle: Handle,
        /// The first byte.
        at: u64,
        /// Bytes.
        bytes: u64,
        /// Free: make a hole.
        punch: bool,
        /// Keep the length.
        keep_size: bool,
    },
    /// Remove a file's name.
    Unlink {
        /// The path.
        path: Vec<u8>,
    },
    /// Remove an empty directory.
    RemoveDir {
        /// The path.
        path: Vec<u8>,
    },
    /// Make a directory.
    MakeDir {
        /// The path.
        path: Vec<u8>,
    },
    /// Rename.
    Rename {
        /// The old path.
        from: Vec<u8>,
        /// The new path.
        to: Vec<u8>,
    },
    /// Create a hard link.
    Link {
        /// An existing path.
        from: Vec<u8>,
        /// The new path.
        to: Vec<u8>,
    },
    /// Make a symbolic link.
    Symlink {
        /// The path.
        path: Vec<u8>,
        /// The link's target.
        target: Vec<u8>,
    },
    /// Get a file's attributes.
    Stat {
        /// The file.
        file: Target,
    },
    /// List a directory.
    List {
        /// The open directory.
        handle: Handle,
    },
}

/// A file, by handle or by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By handle.
    Open(Handle),
    /// By path.
    Path(Vec<u8>),
}

/// A call of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Nanoseconds since the start of the recording's clock.
    pub time: u64,
    /// The calling thread.
    pub thread: u32,
    /// The operation.
    pub op: Op,
    /// Duration in nanoseconds, if known.
    pub took: Option<u64>,
    /// The errno, as a name (`ENOENT`) or number; `None` if it succeeded or the result is unknown.
    pub failed: Option<String>,
}

/// A recording of calls.
pub trait Calls: Send {
    /// The format.
    fn format(&self) -> Format;
    /// The next call; `None` at a complete end. After an error there is nothing more.
    fn next(&mut self) -> Result<Option<Call>, TraceError>;
    /// Other contents seen so far.
    fn other_counts(&self) -> &OtherCounts;
    /// Bytes of the file read so far, for a progress bar.
    fn consumed(&self) -> u64;
    /// Timing so far, if it is read as a [`Session`](crate::session::Session).
    fn timing(&self) -> Timing {
        Timing::default()
    }
}
