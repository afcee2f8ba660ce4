//! The words for what programs ask of a file system, by file and not by inode: recordings of system calls.

use crate::timing::Timing;
use crate::{Format, Others, TraceError};

/// An open file as the recording numbers it: one number is one open file from its open to its close, whatever
/// descriptors a program reused for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

bitflags::bitflags! {
    /// How a file is opened.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct How: u16 {
        /// To be read.
        const READ = 1;
        /// To be written.
        const WRITE = 2;
        /// Made if missing.
        const CREATE = 4;
        /// Emptied.
        const TRUNCATE = 8;
        /// Every write goes to the end.
        const APPEND = 16;
        /// It must not be there yet.
        const EXCLUSIVE = 32;
        /// Every write is durable when it returns, contents and inode (`O_SYNC`).
        const SYNC = 64;
        /// Every write is durable when it returns, contents only (`O_DSYNC`).
        const DATA_SYNC = 128;
        /// A directory.
        const DIRECTORY = 256;
    }
}

/// A system call. Paths are absolute, as the program would say them, without `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Open a file; later calls name it by `handle`.
    Open {
        /// Its number from now on.
        handle: Handle,
        /// Where.
        path: Vec<u8>,
        /// How.
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
        /// Bytes that were read, or asked for where that is not told.
        bytes: u64,
    },
    /// Write.
    Write {
        /// The open file.
        handle: Handle,
        /// The first byte; `None`: where the last call ended, or the end of a file opened to append.
        at: Option<u64>,
        /// Bytes that were written, or to write where that is not told.
        bytes: u64,
    },
    /// Go to a place; the next call without one begins there.
    Seek {
        /// The open file.
        handle: Handle,
        /// The byte; `None`: the end.
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
        /// Where.
        file: Target,
        /// Bytes.
        length: u64,
    },
    /// Give a range of a file blocks, or take them.
    Allocate {
        /// The open file.
        handle: Handle,
        /// The first byte.
        at: u64,
        /// Bytes.
        bytes: u64,
        /// Take them: a hole.
        punch: bool,
        /// The length stays.
        keep_size: bool,
    },
    /// Remove a file's name.
    Unlink {
        /// Where.
        path: Vec<u8>,
    },
    /// Remove an empty directory.
    RemoveDir {
        /// Where.
        path: Vec<u8>,
    },
    /// Make a directory.
    MakeDir {
        /// Where.
        path: Vec<u8>,
    },
    /// Change a name.
    Rename {
        /// The old one.
        from: Vec<u8>,
        /// The new one.
        to: Vec<u8>,
    },
    /// Give a file one more name.
    Link {
        /// One it has.
        from: Vec<u8>,
        /// The new one.
        to: Vec<u8>,
    },
    /// Make a symbolic link.
    Symlink {
        /// Where.
        path: Vec<u8>,
        /// What it says.
        target: Vec<u8>,
    },
    /// Look at a file's attributes.
    Stat {
        /// Which.
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
    /// An open one.
    Open(Handle),
    /// One by its path.
    Path(Vec<u8>),
}

/// A call of a program, when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Nanoseconds since whatever the recording counts from.
    pub time: u64,
    /// Who called: a thread.
    pub thread: u32,
    /// What was asked.
    pub op: Op,
    /// Nanoseconds it took, where that is told.
    pub took: Option<u64>,
    /// The errno it failed with, as a name (`ENOENT`) or number; `None` if it did not fail or that is not told.
    pub failed: Option<String>,
}

/// A recording of calls.
pub trait Calls: Send {
    /// What is read.
    fn format(&self) -> Format;
    /// The next call; `None` at a complete end. After an error there is nothing more.
    fn next(&mut self) -> Result<Option<Call>, TraceError>;
    /// What was seen so far and does not concern files.
    fn others(&self) -> &Others;
    /// Bytes of the recording read so far, as they lie in the file, for who shows progress.
    fn consumed(&self) -> u64;
    /// What is to be known of its times so far, if it is read as a [`Session`](crate::session::Session).
    fn timing(&self) -> Timing {
        Timing::default()
    }
}
