//! Queries on a volume for mounting, accounting and reporting, independent of its file system.
//!
//! Causes and owners are numbers of a device's requests, which this crate does not know.

use std::sync::Arc;

use crate::{FileSystem, FreeFragments, Ino};

/// How far to search for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Only in memory, without checking names. Costs no device request.
    InMemory,
    /// Also on the device.
    Everywhere,
}

/// Meaning of an owner number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Blocks that belong to no file.
    Volume,
    /// The file with this path from the root; bytes as in the directories.
    Path(Vec<u8>),
    /// A deleted inode or one without names, with its last path if recorded.
    Deleted(Option<Vec<u8>>),
    /// An inode whose name was not found.
    Unnamed,
}

/// Cause of a device request: its number, a key for programs, and a text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// The number in recordings and ledgers.
    pub number: u8,
    /// A key for programs, in small letters and underscores. It stays unchanged even if the text changes.
    pub key: &'static str,
    /// The text.
    pub text: &'static str,
    /// Blocks were moved to free space.
    pub cleaning: bool,
    /// File contents are transferred, alone or with their metadata.
    pub contents: bool,
}

/// Work of cleaning since the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// Sections, or other units of cleaning.
    pub sections: u64,
    /// Those for which a writer waited.
    pub waited_for: u64,
    /// Number of blocks moved.
    pub moved: u64,
}

/// Answers [`FileSystem::account`]: at most this number of files by name, and costs since the answer with this
/// token.
pub type Accountant = Arc<dyn Fn(usize, u64) -> String + Send + Sync>;
/// Adds lines to a volume's report.
pub type Reporter = Box<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

/// A mounted volume whose requests carry cause and inode.
pub trait Volume: FileSystem {
    /// The name of its file system.
    fn kind(&self) -> &'static str;
    /// All causes of its requests.
    fn reasons(&self) -> Vec<Reason>;
    /// Text for [`Owner::Volume`].
    fn own_blocks(&self) -> &'static str;
    /// The current meaning of a request's owner. Costs are booked by inode; a number that was freed and reused
    /// means the new file.
    fn owner_of(&self, owner: u64, look: Look) -> Owner;
    /// Records the names of files deleted from now on, at most 65,536.
    fn keep_deleted_names(&self);
    /// Bytes that callers wrote into files since the mount.
    fn user_bytes(&self) -> u64;
    /// Device blocks of the volume, used or not.
    fn device_blocks(&self) -> u64;
    /// Fragmentation of its free space.
    fn free_fragments(&self) -> FreeFragments;
    /// Blocks of the largest file that fits into `free` free blocks ([`StatFs::blocks_free`](crate::StatFs))
    /// together with its metadata, including a directory block for its name. `None` if none fits.
    fn largest_file(&self, free: u64) -> Option<u64>;
    /// True if it may clean ahead of time, while no writer waits.
    fn cleans_ahead(&self) -> bool {
        false
    }
    /// Switches cleaning ahead of time on or off; no effect on a volume that never does it.
    fn clean_ahead(&self, _on: bool) {}
    /// Work of cleaning since the mount.
    fn cleaned(&self) -> Cleaned {
        Cleaned::default()
    }
    /// Sets the provider of [`FileSystem::account`].
    fn account_by(&self, accountant: Accountant);
    /// Adds a provider of [`FileSystem::report`].
    fn report_too(&self, reporter: Reporter);
    /// A warning for writable mounts, if any, to be printed after the volume's name.
    fn warning(&self) -> Option<String> {
        None
    }
    /// Inodes changed since the last durable checkpoint: copying them with their names saves everything that could
    /// be lost. `None` if unknown: then everything must be copied.
    fn not_durable(&self) -> Option<Vec<Ino>> {
        None
    }
}
