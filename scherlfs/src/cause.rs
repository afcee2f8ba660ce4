//! Causes of reads and writes: the small number in a request's tag.

use vfs::Reason;

/// A cause. The numbers are stored in recordings and ledgers and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cause {
    /// Superblocks.
    Superblock = 1,
    /// Contents of files, read.
    Contents = 2,
    /// Inodes and their continuations, read.
    Inode = 3,
    /// Directory blocks, read.
    Directory = 4,
    /// The inode map, read.
    InodeMap = 5,
    /// Writes of the log: contents, directory blocks and inodes together in one request.
    Log = 6,
    /// The inode map, the free list and the orphans, written for a checkpoint.
    Checkpoint = 7,
    /// Reads that follow the log after a power cut.
    Recovery = 8,
    /// Creating a volume.
    Format = 9,
    /// Reads and writes of cleaning: moving blocks out of the log's way.
    Cleaning = 10,
    /// Reads and writes of defragmentation.
    Reorganising = 11,
    /// Flushes caused only by the age of changes.
    Commit = 12,
}

impl Cause {
    /// All causes, in order.
    pub const ALL: [Cause; 12] = [
        Cause::Superblock,
        Cause::Contents,
        Cause::Inode,
        Cause::Directory,
        Cause::InodeMap,
        Cause::Log,
        Cause::Checkpoint,
        Cause::Recovery,
        Cause::Format,
        Cause::Cleaning,
        Cause::Reorganising,
        Cause::Commit,
    ];

    /// All causes, for accounting and reports.
    pub fn reasons() -> Vec<Reason> {
        let reason = |c: Cause| Reason {
            number: c as u8,
            key: c.key(),
            text: c.text(),
            cleaning: c == Cause::Cleaning,
            contents: matches!(c, Cause::Contents | Cause::Log | Cause::Cleaning | Cause::Reorganising),
        };
        Cause::ALL.map(reason).into()
    }

    /// Key for programs: it never changes.
    pub fn key(self) -> &'static str {
        match self {
            Cause::Superblock => "superblocks",
            Cause::Contents => "contents_read",
            Cause::Inode => "inodes_read",
            Cause::Directory => "directories_read",
            Cause::InodeMap => "inode_map_read",
            Cause::Log => "log",
            Cause::Checkpoint => "checkpoints",
            Cause::Recovery => "following_the_log",
            Cause::Format => "making_the_volume",
            Cause::Cleaning => "making_room",
            Cause::Reorganising => "bringing_files_together",
            Cause::Commit => "timed_commits",
        }
    }

    /// Text for people.
    pub fn text(self) -> &'static str {
        match self {
            Cause::Superblock => "superblocks",
            Cause::Contents => "contents, read",
            Cause::Inode => "inodes, read",
            Cause::Directory => "directories, read",
            Cause::InodeMap => "inode map, read",
            Cause::Log => "log",
            Cause::Checkpoint => "checkpoints",
            Cause::Recovery => "following the log",
            Cause::Format => "making the volume",
            Cause::Cleaning => "making room",
            Cause::Reorganising => "bringing files together",
            Cause::Commit => "timed commits",
        }
    }
}
