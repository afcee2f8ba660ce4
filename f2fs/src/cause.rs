//! Why a block was written or read: the meaning of a device tag's cause.

use device::Tag;
use format::Ino;
use vfs::Reason;

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $n:literal, $key:literal, $text:literal;)*) => {
        /// Why a device operation was done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Cause { $($(#[$doc])* $name = $n,)* }
        impl Cause {
            /// Every cause, in order.
            pub const ALL: &[Cause] = &[$(Cause::$name,)*];
            /// What a program reads: it never changes.
            pub fn key(self) -> &'static str {
                match self { $(Cause::$name => $key,)* }
            }
            /// What a person reads.
            pub fn text(self) -> &'static str {
                match self { $(Cause::$name => $text,)* }
            }
        }
    };
}

causes! {
    /// Not said.
    Other = 0, "other", "other";
    /// Contents of files.
    UserData = 1, "user_data", "user data";
    /// Directory blocks.
    Directory = 2, "directory_blocks", "directory blocks";
    /// Node blocks written by the background or by a checkpoint.
    Node = 3, "nodes", "nodes";
    /// Node blocks written because of an fsync.
    FsyncNode = 4, "nodes_for_fsync", "nodes for fsync";
    /// Checkpoint packs.
    Checkpoint = 5, "checkpoint_packs", "checkpoint packs";
    /// Node address table.
    Nat = 6, "nat", "NAT";
    /// Segment information table.
    Sit = 7, "sit", "SIT";
    /// Segment summaries.
    Ssa = 8, "segment_summaries", "segment summaries";
    /// Data moved because space ran out.
    ForegroundGcData = 9, "foreground_cleaning_data", "foreground cleaning, data";
    /// Nodes moved because space ran out.
    ForegroundGcNode = 10, "foreground_cleaning_nodes", "foreground cleaning, nodes";
    /// Data moved ahead of time.
    BackgroundGcData = 11, "background_cleaning_data", "background cleaning, data";
    /// Nodes moved ahead of time.
    BackgroundGcNode = 12, "background_cleaning_nodes", "background cleaning, nodes";
    /// Replaying what fsync left after a power cut.
    Recovery = 13, "recovery", "recovery";
    /// Making the file system.
    Mkfs = 14, "mkfs", "mkfs";
    /// Checking and repairing it.
    Fsck = 15, "fsck", "fsck";
    /// The superblock.
    Superblock = 16, "superblock", "superblock";
    /// Blocks that changed pages are compared with.
    DeltaBase = 17, "bases_of_deltas", "bases of deltas";
    /// Pages of deltas, written whole.
    DeltaFold = 18, "folded_deltas", "folded deltas";
    /// Making deltas, which is computation alone.
    DeltaEncode = 19, "encoding_deltas", "encoding deltas";
    /// Making pages of deltas, likewise.
    DeltaDecode = 20, "decoding_deltas", "decoding deltas";
    /// Nodes that hold deltas for which an inode has no room.
    DeltaNode = 21, "delta_nodes", "delta nodes";
    /// Clusters of compressed files that are packed; a request of several clusters is named after its first block.
    Compressed = 22, "compressed_data", "compressed data";
    /// Packing clusters, which is computation alone, kept or not.
    Compress = 23, "compressing", "compressing";
    /// Unpacking clusters, likewise.
    Decompress = 24, "decompressing", "decompressing";
    /// Nodes that only name delta nodes, in comparisons with MedFS's own layout.
    DeltaMeta = 25, "meta_pages_of_deltas", "meta pages of deltas";
    /// Blocks of files that defragmentation brings together.
    Defragment = 26, "defragmentation", "defragmentation";
    /// Nodes, tables and packs of checkpoints that were written only because changes had waited long enough.
    Commit = 27, "timed_commits", "timed commits";
}

impl Cause {
    /// A tag for no inode in particular.
    pub fn tag(self) -> Tag {
        Tag { cause: self as u8, owner: 0 }
    }
    /// A tag for one inode.
    pub fn of(self, ino: Ino) -> Tag {
        Tag { cause: self as u8, owner: ino.0.into() }
    }
    /// All, for those who count and report.
    pub fn reasons() -> Vec<Reason> {
        let cleaning =
            [Cause::ForegroundGcData, Cause::ForegroundGcNode, Cause::BackgroundGcData, Cause::BackgroundGcNode];
        let contents = [Cause::UserData, Cause::Compressed];
        let reason = |c: &Cause| Reason {
            number: *c as u8,
            key: c.key(),
            text: c.text(),
            cleaning: cleaning.contains(c),
            contents: contents.contains(c),
        };
        Cause::ALL.iter().map(reason).collect()
    }
    /// The cause a tag's number names.
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| *c as u8 == n)
    }
}
