//! In which ways may delta nodes be used, so that published systems can be compared with them?
//!
//! What a volume holds is lawful in each of them, and every mount reads it. Only the default is meant for use; the others
//! are there to be measured. They write *more* than the default, so that what they cost is written in truth and not booked
//! as if. Left out: which of them an experiment takes (`lab`).

use format::node::delta::HEADER;

/// Longest payload of an entry in a delta node (MedFS FAST'25, section 5.1: a fifth of a page).
pub const LONGEST: usize = 819;

/// What is written beside a delta node when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Beside {
    /// The inode only if more of it changed than the node can note.
    #[default]
    Nothing,
    /// The inode, which would say where the packed block is.
    Inode,
    /// The inode and the root, which holds no deltas: MedFS FAST'25, section 4.2, where the inode names a meta page, and that
    /// names the compact pages.
    MetaAndInode,
}

/// A way to use delta nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Study {
    /// Pages are compressed, each by itself, in place of their differences, and only where at least two of an fsync are
    /// packed into fewer nodes. A stand-in for FPC (Ji et al., FAST'21), whose format is not published.
    pub alone: bool,
    /// Longest payload of an entry, at most [`format::node::delta::LONGEST`], or with `alone` a little less than a node.
    pub longest: usize,
    /// What an fsync writes with a node.
    pub beside: Beside,
}

impl Default for Study {
    fn default() -> Self {
        Study { alone: false, longest: LONGEST, beside: Beside::Nothing }
    }
}

impl Study {
    /// Whether what is our own beyond deltas is left out: kept pages.
    pub(crate) fn is_of_others(&self) -> bool {
        self.alone || self.beside != Beside::Nothing
    }

    /// Whether packing pages of so many bytes saves anything: fewer nodes than pages.
    pub(super) fn packs(payloads: impl Iterator<Item = usize>) -> bool {
        let (mut pages, mut nodes, mut left) = (0, 0, 0);
        for bytes in payloads.map(|payload| HEADER + payload) {
            pages += 1;
            if bytes > left {
                (nodes, left) = (nodes + 1, format::node::delta::ROOT_CAPACITY);
            }
            left = left.saturating_sub(bytes);
        }
        nodes < pages
    }
}
