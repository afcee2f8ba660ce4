//! What do those who mount, count and report ask a volume, whichever file system it is of?
//!
//! The numbers of causes and owners are those of a device's requests, which this crate does not know.

use std::sync::Arc;

use crate::{FileSystem, FreeFragments, Ino};

/// What may be asked to find a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Only what is in memory; names are not checked. Costs no request to the device.
    InMemory,
    /// The device, too.
    Everywhere,
}

/// What a number stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The volume's own blocks: those that are no file's.
    Volume,
    /// What has this path, from the root on; bytes as they are in the directories.
    Path(Vec<u8>),
    /// An inode that is gone, or has no name left; with its last path, if that was kept.
    Deleted(Option<Vec<u8>>),
    /// An inode whose name was not found.
    Unnamed,
}

/// Why a request to the device was made: its number, what a program reads, and what a person reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// The number that stands in recordings and ledgers.
    pub number: u8,
    /// A word for programs, of small letters and underscores. It stays as it is, whatever the words for people become.
    pub key: &'static str,
    /// In words.
    pub text: &'static str,
    /// Blocks were moved to make room.
    pub cleaning: bool,
    /// Contents of files pass, alone or beside what belongs to them.
    pub contents: bool,
}

/// What making room has done since the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// Sections, or whatever is cleaned as one.
    pub sections: u64,
    /// Of them those for which a writer waited.
    pub waited_for: u64,
    /// Blocks moved.
    pub moved: u64,
}

/// Answers what a volume has spent: at most so many files by name, and since the answer with this token.
pub type Accountant = Arc<dyn Fn(usize, u64) -> String + Send + Sync>;
/// Says more for a volume's report.
pub type Reporter = Box<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

/// A mounted volume whose requests say why they are made and for which inode.
pub trait Volume: FileSystem {
    /// The name of its file system.
    fn kind(&self) -> &'static str;
    /// Why it makes requests, all there is.
    fn reasons(&self) -> Vec<Reason>;
    /// What is [`Owner::Volume`]'s, in words.
    fn own_blocks(&self) -> &'static str;
    /// What the owner of a request stands for now. Counts are booked by inode; a number that was freed and given to another
    /// file stands for the new one.
    fn owner_of(&self, owner: u64, look: Look) -> Owner;
    /// From now on the names of files that are deleted are kept, of the first 65,536 of them.
    fn keep_deleted_names(&self);
    /// Bytes that callers wrote into files since the mount.
    fn user_bytes(&self) -> u64;
    /// Blocks of its device that are the volume's, in use or not.
    fn device_blocks(&self) -> u64;
    /// In how many pieces its free space lies.
    fn free_fragments(&self) -> FreeFragments;
    /// Blocks of the largest file that fits into so many free ones ([`StatFs::blocks_free`](crate::StatFs)) together with
    /// all that it takes beside its contents, a directory's block for its name included. `None` if none does.
    fn largest_file(&self, free: u64) -> Option<u64>;
    /// Whether it may make room ahead of time, when nobody waits for it.
    fn cleans_ahead(&self) -> bool {
        false
    }
    /// From now on it does, or does not; a volume that never does has nothing to change.
    fn clean_ahead(&self, _on: bool) {}
    /// What making room has done since the mount.
    fn cleaned(&self) -> Cleaned {
        Cleaned::default()
    }
    /// Who answers [`FileSystem::account`].
    fn account_by(&self, accountant: Accountant);
    /// Who adds to [`FileSystem::report`].
    fn report_too(&self, reporter: Reporter);
    /// What whoever mounts it to write should be told, if anything; it follows the volume's name.
    fn warning(&self) -> Option<String> {
        None
    }
    /// Inodes that changed since the last durable checkpoint, so that a copy of them and of their names holds all that would
    /// be lost. `None`: the volume cannot tell, and everything has to be copied.
    fn not_durable(&self) -> Option<Vec<Ino>> {
        None
    }
}
