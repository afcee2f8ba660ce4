//! Why a block was written or read: the meaning of a device tag's cause.

use device::Tag;
use format::Ino;
use vfs::Reason;

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $n:literal, $key:literal, $text:literal;)*) => {
        /// Why a device operation happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Cause { $($(#[$doc])* $name = $n,)* }
        impl Cause {
            /// Every cause, in order.
            pub const ALL: &[Cause] = &[$(Cause::$name,)*];
            /// Machine-readable name; it never changes.
            pub fn key(self) -> &'static str {
                match self { $(Cause::$name => $key,)* }
            }
            /// Human-readable name.
            pub fn text(self) -> &'static str {
                match self { $(Cause::$name => $text,)* }
            }
        }
    };
}

causes! {
    /// Unspecified.
    Other = 0, "other", "other";
    /// File contents.
    UserData = 1, "user_data", "user data";
    /// Directory blocks.
    Directory = 2, "directory_blocks", "directory blocks";
    /// Node blocks written in the background or by a checkpoint.
    Node = 3, "nodes", "nodes";
    /// Node blocks written by an fsync.
    FsyncNode = 4, "nodes_for_fsync", "nodes for fsync";
    /// Checkpoint packs.
    Checkpoint = 5, "checkpoint_packs", "checkpoint packs";
    /// Node address table.
    Nat = 6, "nat", "NAT";
    /// Segment information table.
    Sit = 7, "sit", "SIT";
    /// Segment summaries.
    Ssa = 8, "segment_summaries", "segment summaries";
    /// Data moved in the foreground, because space ran out.
    ForegroundGcData = 9, "foreground_cleaning_data", "foreground cleaning, data";
    /// Nodes moved in the foreground, because space ran out.
    ForegroundGcNode = 10, "foreground_cleaning_nodes", "foreground cleaning, nodes";
    /// Data moved in the background.
    BackgroundGcData = 11, "background_cleaning_data", "background cleaning, data";
    /// Nodes moved in the background.
    BackgroundGcNode = 12, "background_cleaning_nodes", "background cleaning, nodes";
    /// Roll-forward recovery after a power cut.
    Recovery = 13, "recovery", "recovery";
    /// Creating the file system.
    Mkfs = 14, "mkfs", "mkfs";
    /// Checking and repairing the file system.
    Fsck = 15, "fsck", "fsck";
    /// The superblock.
    Superblock = 16, "superblock", "superblock";
    /// Base blocks that changed pages are compared with.
    DeltaBase = 17, "bases_of_deltas", "bases of deltas";
    /// Delta pages written as whole blocks.
    DeltaFold = 18, "folded_deltas", "folded deltas";
    /// Encoding deltas (computation only).
    DeltaEncode = 19, "encoding_deltas", "encoding deltas";
    /// Decoding deltas (computation only).
    DeltaDecode = 20, "decoding_deltas", "decoding deltas";
    /// Delta nodes: deltas that do not fit in the inode.
    DeltaNode = 21, "delta_nodes", "delta nodes";
    /// Packed clusters of compressed files; a request for several clusters carries the tag of its first block.
    Compressed = 22, "compressed_data", "compressed data";
    /// Compressing clusters (computation only), whether the result is kept or not.
    Compress = 23, "compressing", "compressing";
    /// Decompressing clusters (computation only).
    Decompress = 24, "decompressing", "decompressing";
    /// Nodes that only point to delta nodes, in comparisons with MedFS's own layout.
    DeltaMeta = 25, "meta_pages_of_deltas", "meta pages of deltas";
    /// File blocks moved by defragmentation.
    Defragment = 26, "defragmentation", "defragmentation";
    /// Nodes, tables and packs of checkpoints written only because the commit interval expired.
    Commit = 27, "timed_commits", "timed commits";
}

impl Cause {
    /// A tag without an inode.
    pub fn tag(self) -> Tag {
        Tag { cause: self as u8, owner: 0 }
    }
    /// A tag for one inode.
    pub fn of(self, ino: Ino) -> Tag {
        Tag { cause: self as u8, owner: ino.0.into() }
    }
    /// All causes, for counters and reports.
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
    /// The cause with this number in a tag.
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| *c as u8 == n)
    }
}
