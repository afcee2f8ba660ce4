//! Actions of a repair.

use std::fmt;

use scherlfs_format::{Addr, Ino, Seq};

/// An action of a repair, and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The file; `None` for the volume.
    pub ino: Option<Ino>,
    /// Its path in the repaired volume; for a lost file its earlier path.
    pub path: Option<Vec<u8>>,
    /// The action.
    pub what: What,
}

/// Kinds of actions.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // the message explains the fields
pub enum What {
    /// A superblock copy was rewritten from the other, or with a flipped bit restored.
    Superblock { at: Addr },
    /// Both copies were lost: the checkpoint was found in the log.
    Found { seq: Seq },
    /// A field of the superblock contradicted the log.
    Field { field: &'static str },
    /// The length of the volume was set to that of its device.
    Cut { from: u64, to: u64 },
    /// The inode map was rebuilt from the inodes on the volume.
    MapRebuilt,
    /// The list of free blocks was rebuilt.
    FreeList,
    /// The list of orphans was rebuilt.
    Orphans,
    /// The undo history was discarded.
    Undone,
    /// Counts were recomputed.
    Counted,
    /// The map points to an inode again.
    Placed { at: Addr },
    /// A number without an inode became free.
    NumberFreed,
    /// A flipped bit was restored.
    Bit { at: Addr },
    /// The newest version of an inode is damaged: an older one is used.
    Older { seq: Seq },
    /// An inode is lost.
    Lost,
    /// Blocks of a file became a hole.
    Hole { from: u64, blocks: u64, why: &'static str },
    /// A field of an inode was invalid, or differed from the count.
    Mended { field: &'static str },
    /// A directory block is damaged: its names are lost.
    Names { block: u64 },
    /// A name was removed from a directory.
    NameRemoved { name: Vec<u8>, why: &'static str },
    /// A name was restored from an older block of its directory.
    NameFound { name: Vec<u8> },
    /// The kind in a name's entry was corrected.
    NameKind { name: Vec<u8> },
    /// The inode map's name in the root directory was restored.
    MapNamed,
    /// A file without a name was moved to lost+found.
    Adopted,
    /// A file without a name that was in use was freed.
    OrphanFreed,
    /// A directory was created.
    Made,
    /// Transactions behind the checkpoint were included in it.
    LogTaken { transactions: u64 },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ino, &self.path) {
            (Some(ino), Some(path)) => write!(f, "inode {ino} ({:?}): ", String::from_utf8_lossy(path))?,
            (Some(ino), None) => write!(f, "inode {ino}: ")?,
            (None, _) => {}
        }
        let name = |name: &Vec<u8>| format!("{:?}", String::from_utf8_lossy(name));
        match &self.what {
            What::Superblock { at } => write!(f, "superblock {at} written again"),
            What::Found { seq } => {
                write!(
                    f,
                    "both superblocks are lost: found the checkpoint of transaction {seq} in the log",
                    seq = seq.0
                )
            }
            What::Field { field } => write!(f, "superblock: {field} corrected from the log"),
            What::Cut { from, to } => write!(f, "the device has {to} blocks: the volume was of {from}"),
            What::MapRebuilt => write!(f, "inode map rebuilt from the inodes on the volume"),
            What::FreeList => write!(f, "list of free blocks rebuilt"),
            What::Orphans => write!(f, "list of orphans rebuilt"),
            What::Undone => write!(f, "transactions before the repair cannot be undone any more"),
            What::Counted => write!(f, "inodes, promised and free blocks recounted"),
            What::Placed { at } => write!(f, "the map leads to it at block {at} again"),
            What::NumberFreed => write!(f, "the map led to no inode: the number is free"),
            What::Bit { at } => write!(f, "a flipped bit of block {at} corrected"),
            What::Older { seq } => {
                write!(f, "its newest version is damaged: using that of transaction {}", seq.0)
            }
            What::Lost => write!(f, "lost: no version of the inode can be read"),
            What::Hole { from, blocks: 1, why } => write!(f, "block {from} is a hole: {why}"),
            What::Hole { from, blocks, why } => {
                write!(f, "blocks {from} to {} are a hole: {why}", from + blocks - 1)
            }
            What::Mended { field } => write!(f, "{field} repaired"),
            What::Names { block } => write!(f, "block {block} is damaged: its names are lost"),
            What::NameRemoved { name: n, why } => write!(f, "name {} removed: {why}", name(n)),
            What::NameFound { name: n } => write!(f, "name {} found again in an older block", name(n)),
            What::NameKind { name: n } => write!(f, "name {}: file type corrected", name(n)),
            What::MapNamed => write!(f, "name of the inode map added again"),
            What::Adopted => write!(f, "had no name: put into lost+found"),
            What::OrphanFreed => write!(f, "had no name and was in use: freed"),
            What::Made => write!(f, "made"),
            What::LogTaken { transactions } => {
                write!(f, "{transactions} transactions after the checkpoint are part of it")
            }
        }
    }
}

/// Actions so far.
#[derive(Default)]
pub(crate) struct Log(pub Vec<Action>);

impl Log {
    /// Records an action on the volume.
    pub fn volume(&mut self, what: What) {
        self.0.push(Action { ino: None, path: None, what });
    }
    /// Records an action on a file.
    pub fn file(&mut self, ino: Ino, what: What) {
        self.0.push(Action { ino: Some(ino), path: None, what });
    }
    /// Records an action on a deleted file with its earlier path.
    pub fn gone(&mut self, ino: Ino, path: Vec<u8>, what: What) {
        self.0.push(Action { ino: Some(ino), path: Some(path), what });
    }
}
