//! Parts of findings: places, names, faults.

use std::fmt;

use format::{BlockAddr, Ino, Nid};

/// One of the two checkpoint packs, numbered as in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pack {
    /// At the start of the checkpoint area.
    First,
    /// 512 blocks later.
    Second,
}

impl Pack {
    /// The other pack.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Pack::First => Pack::Second,
            Pack::Second => Pack::First,
        }
    }
}

impl fmt::Display for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pack::First => "1",
            Pack::Second => "2",
        })
    }
}

/// A file name as bytes; unprintable ones are escaped for display.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Vec<u8>);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(s) => write!(f, "{s:?}"),
            Err(_) => write!(f, "\"{}\"", self.0.escape_ascii()),
        }
    }
}

/// A dentry area of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// Inside the inode.
    Inline,
    /// A block of the directory, by its index in the file.
    Block(u64),
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Area::Inline => f.write_str("the inline area"),
            Area::Block(b) => write!(f, "block {b}"),
        }
    }
}

/// One slot of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DentryPlace {
    /// The directory.
    pub dir: Ino,
    /// The area in it.
    pub area: Area,
    /// The slot in the area.
    pub slot: usize,
}

impl fmt::Display for DentryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "directory {}, slot {} of {}", self.dir, self.slot, self.area)
    }
}

/// One pointer in a node: an address slot of an inode or a direct node, or a node number in an inode or an indirect
/// node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The file.
    pub ino: Ino,
    /// The node that holds the pointer.
    pub nid: Nid,
    /// For addresses the slot past extra attributes, for node numbers the index.
    pub index: u32,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}, node {}, slot {}", self.ino, self.nid, self.index)
    }
}

/// A reference to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Referrer {
    /// A name.
    Dentry {
        /// Where the name stands.
        place: DentryPlace,
        /// The name.
        name: Name,
    },
    /// `i_nid` of the inode (index 0..=4) or an indirect node's slot.
    Index(Slot),
    /// `i_xattr_nid`.
    Xattr(Ino),
    /// The inode's root of delta nodes (number 0), or an entry in the root's list of the others.
    Delta {
        /// The inode.
        ino: Ino,
        /// Index of the delta node.
        number: usize,
    },
    /// The superblock's root inode.
    Root,
    /// The superblock's quota inode number `0..=2`.
    Quota(usize),
    /// An entry of the checkpoint's orphan blocks.
    Orphan,
}

impl fmt::Display for Referrer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Referrer::Dentry { place, name } => write!(f, "entry {name} ({place})"),
            Referrer::Index(slot) => slot.fmt(f),
            Referrer::Xattr(ino) => write!(f, "xattr node of inode {ino}"),
            Referrer::Delta { ino, number } => write!(f, "delta node number {number} of inode {ino}"),
            Referrer::Root => f.write_str("root"),
            Referrer::Quota(k) => {
                write!(f, "{} quota file", ["user", "group", "project"].get(*k).unwrap_or(&"?"))
            }
            Referrer::Orphan => f.write_str("orphan list"),
        }
    }
}

/// Why a referenced node cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NodeFault {
    /// No such number.
    #[error("the number is outside the NAT")]
    OutOfRange,
    /// The number is free in the NAT.
    #[error("the NAT has no block for it")]
    Unmapped,
    /// The address in the NAT is not in the main area.
    #[error("the NAT puts it at {addr}, outside the main area")]
    Outside {
        /// The address.
        addr: BlockAddr,
    },
    /// The footer has another node number.
    #[error("its block {addr} says it is node {stored}")]
    FooterNid {
        /// Address of the node.
        addr: BlockAddr,
        /// The number in the footer.
        stored: Nid,
    },
    /// The footer has another inode.
    #[error("its block {addr} says it belongs to inode {stored}")]
    FooterIno {
        /// Address of the node.
        addr: BlockAddr,
        /// The inode in the footer.
        stored: Ino,
    },
    /// It was reached before through another reference.
    #[error("it is in use elsewhere")]
    Twice,
    /// Its block holds another node that was reached before.
    #[error("its block {addr} is in use for something else")]
    BlockTaken {
        /// The block.
        addr: BlockAddr,
    },
    /// It is a directory whose recorded name exists elsewhere.
    #[error("it is a directory named in directory {dir}")]
    NamedElsewhere {
        /// The directory with that name.
        dir: Ino,
    },
    /// Another node of the file instead of a delta node.
    #[error("its place in the file is {offset}, no delta node's")]
    NoDeltaNode {
        /// The offset in the footer.
        offset: u32,
    },
    /// Not a directory, although one is expected.
    #[error("it is not a directory")]
    NotADirectory,
    /// An inode with an invalid type.
    #[error("its mode {mode:#o} is of no file type")]
    Mode {
        /// `i_mode`.
        mode: u16,
    },
}

/// A mark of an inode that changes how its names or contents are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Case folding in `i_flags`.
    Casefold,
    /// Compression in `i_flags`.
    Compressed,
    /// Encryption in `i_advise`.
    Encrypted,
    /// fs-verity in `i_advise`.
    Verity,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mark::Casefold => "as one whose names fold case",
            Mark::Compressed => "as compressed",
            Mark::Encrypted => "as encrypted",
            Mark::Verity => "as sealed by fs-verity",
        })
    }
}

/// Contents of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Data blocks only.
    Data,
    /// Node blocks only.
    Node,
    /// Both; no repair of a table can mend that.
    Both,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Data => "data",
            Class::Node => "nodes",
            Class::Both => "data and nodes",
        })
    }
}

/// A total in the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Total {
    /// `valid_block_count`.
    ValidBlocks,
    /// `valid_node_count`.
    ValidNodes,
    /// `valid_inode_count`.
    ValidInodes,
    /// `free_segment_count`.
    FreeSegments,
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Total::ValidBlocks => "valid_block_count",
            Total::ValidNodes => "valid_node_count",
            Total::ValidInodes => "valid_inode_count",
            Total::FreeSegments => "free_segment_count",
        })
    }
}

/// A fault of `.` or `..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DotFault {
    /// Missing.
    Missing,
    /// More than one.
    Repeated,
    /// It leads to another inode.
    LeadsTo(Ino),
}

impl fmt::Display for DotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DotFault::Missing => f.write_str("missing"),
            DotFault::Repeated => f.write_str("there more than once"),
            DotFault::LeadsTo(ino) => write!(f, "leading to inode {ino}"),
        }
    }
}

/// A fault in a list of extended attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XattrFault {
    /// The magic is wrong.
    #[error("they begin with {stored:#010x}, must be 0xf2f52011")]
    Magic {
        /// `h_magic`.
        stored: u32,
    },
    /// An entry passes the end of the area.
    #[error("the entry at byte {at} passes the end of the area ({size} bytes)")]
    Overrun {
        /// Offset in the joined list.
        at: usize,
        /// Size of the joined list.
        size: usize,
    },
    /// No room is left for the terminating zero.
    #[error("no terminating zero")]
    Unterminated,
    /// Bytes behind the end are not zero.
    #[error("stale bytes after the end at byte {at}")]
    StaleTail {
        /// Offset of the end in the joined list.
        at: usize,
    },
}

/// Changes to one inode that `fsync` wrote after the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// The inode.
    pub ino: Ino,
    /// Its path according to the names recorded in inodes; `None` if one of them is unreadable.
    pub path: Option<Name>,
    /// Node blocks that roll-forward replays.
    pub nodes: u64,
    /// Blocks of contents that are not in the checkpoint.
    pub blocks: u64,
}

/// Why Linux would refuse or misread a quota file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaFault {
    /// Not a quota file, or one of another kind.
    #[error("it begins with magic {magic:#010x}, version {version}")]
    Header {
        /// `dqh_magic`.
        magic: u32,
        /// `dqh_version`.
        version: u32,
    },
    /// The recorded length exceeds the file.
    #[error("it says it has {blocks} blocks of 1 KiB, its size has room for {room}")]
    Blocks {
        /// `dqi_blocks`.
        blocks: u32,
        /// Blocks according to `i_size`.
        room: u64,
    },
    /// A list of free places begins outside the file.
    #[error("free places begin at block {block} of {blocks}")]
    FreeBlock {
        /// `dqi_free_blk` or `dqi_free_entry`.
        block: u32,
        /// `dqi_blocks`.
        blocks: u32,
    },
    /// A reference in the tree leads outside the file.
    #[error("its tree leads to block {to} of {blocks}")]
    Reference {
        /// The block.
        to: u32,
        /// `dqi_blocks`.
        blocks: u32,
    },
    /// A block is referenced twice in the tree.
    #[error("its tree leads to block {block} twice")]
    Twice {
        /// The block.
        block: u32,
    },
    /// An identity has no entry at its place in the tree.
    #[error("its tree leads to block {block} for identity {id}, which has no entry there")]
    Entry {
        /// The identity.
        id: u32,
        /// The block.
        block: u32,
    },
}
