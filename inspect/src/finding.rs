//! What could not be read from a volume, or contradicts the rest?
//!
//! Inspection is not a check: it reports problems that it happens to meet, so that readers know how far to trust a
//! number. `joulefs fsck` is the check.

use format::{BlockAddr, FormatError, Ino, Nid};

/// A problem that limits what is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages document them
pub enum Finding {
    #[error("superblock copy {copy} is damaged ({error}); the other one is used")]
    Superblock { copy: u8, error: FormatError },
    #[error("the image has {blocks} blocks, but the volume {needs}: the missing part is unknown")]
    CutShort { blocks: u64, needs: u64 },
    #[error("checkpoint pack {pack} is damaged ({error})")]
    Pack { pack: u8, error: FormatError },
    #[error("checkpoint pack {pack} is torn: version {head} at its head, {tail} at its tail")]
    PackTorn { pack: u8, head: u64, tail: u64 },
    #[error(
        "no checkpoint can be used: which blocks are in use is unknown; `joulefs rescue` looks for files without one"
    )]
    NoCheckpoint,
    #[error("the {journal} journal is damaged ({error}): its changes are unknown")]
    Journal { journal: &'static str, error: FormatError },
    #[error("the pack has no room for its summaries: the changes in the journals are unknown")]
    NoJournals,
    #[error("{count} blocks of the {table} cannot be read, the first at {first}")]
    TableUnreadable { table: &'static str, count: u64, first: BlockAddr },
    #[error("{count} SIT entries are invalid, the first is that of segment {first}: {error}")]
    Sit { count: u64, first: u32, error: FormatError },
    #[error("{count} node blocks cannot be read, the first at {first}")]
    NodeUnreadable { count: u64, first: BlockAddr },
    #[error("{count} valid blocks in node segments have no owner, the first at {first}")]
    Loose { count: u64, first: BlockAddr },
    #[error("{count} nodes lie where the SIT has no valid block of nodes, the first is {nid} at {addr}")]
    Unmarked { count: u64, nid: Nid, addr: BlockAddr },
    #[error(
        "{count} NAT entries lead to no node, the first is that of {nid}, to {addr}: the contents of these nodes \
        are unknown"
    )]
    NoNode { count: u64, nid: Nid, addr: BlockAddr },
    #[error("{count} nodes belong to missing inodes, the first to inode {ino}")]
    NoInode { count: u64, ino: Ino },
    #[error("{count} inodes have a wrong checksum, the first is {ino}; they are counted anyway")]
    Checksum { count: u64, ino: Ino },
    #[error("{count} inodes are invalid, the first is {ino} ({error}): the location of their contents is unknown")]
    Inode { count: u64, ino: Ino, error: FormatError },
    #[error("{count} delta nodes are damaged, the first is of inode {ino} ({error}): their deltas are not counted")]
    DeltaNode { count: u64, ino: Ino, error: FormatError },
    #[error("{count} nodes have an impossible place in their file, the first is of inode {ino}, at {offset}")]
    Misplaced { count: u64, ino: Ino, offset: u32 },
    #[error("{count} addresses lie outside the main area, the first in inode {ino}: {addr}")]
    Outside { count: u64, ino: Ino, addr: BlockAddr },
    #[error(
        "{count} files have a wrong number of blocks in their inode, the first is {ino}: {stored} stored, {counted} \
         counted"
    )]
    Blocks { count: u64, ino: Ino, stored: u64, counted: u64 },
    #[error("the checkpoint counts {stored} {what}, {counted} were found")]
    Total { what: &'static str, stored: u64, counted: u64 },
}

/// Findings of one kind are merged: a count and the first case.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    all: Vec<Finding>,
}

impl Findings {
    /// Adds a finding. If the kind exists already, only the count grows.
    pub fn add(&mut self, new: Finding) {
        let kind = std::mem::discriminant(&new);
        let counted = self.all.iter_mut().find(|f| std::mem::discriminant(*f) == kind).and_then(Finding::count);
        match counted {
            Some(count) => *count += 1,
            None => self.all.push(new),
        }
    }
    /// All findings.
    pub fn into_vec(self) -> Vec<Finding> {
        self.all
    }
}

impl Finding {
    fn count(&mut self) -> Option<&mut u64> {
        use Finding as F;
        match self {
            F::Sit { count, .. }
            | F::NodeUnreadable { count, .. }
            | F::Loose { count, .. }
            | F::Unmarked { count, .. }
            | F::NoNode { count, .. }
            | F::NoInode { count, .. }
            | F::Checksum { count, .. }
            | F::Inode { count, .. }
            | F::DeltaNode { count, .. }
            | F::Misplaced { count, .. }
            | F::Outside { count, .. }
            | F::Blocks { count, .. } => Some(count),
            _ => None,
        }
    }
}
