//! Which other uses of delta nodes allow a comparison with published systems?
//!
//! A volume is valid under each of them, and every mount can read it. The others really write *more* than the default,
//! so that their cost is measured, not estimated. Users can choose MedFS's layout ([`Study::MEDFS`]), which is as
//! durable as the default; the rest is for experiments (`lab`) alone: a longer payload, and pages compressed on their
//! own, which are a stand-in for a format that is not published.

use format::node::delta::HEADER;

/// Longest payload of an entry in a delta node (MedFS FAST'25, section 5.1: a fifth of a page).
pub const LONGEST: usize = 819;

/// What is written together with a changed delta node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Beside {
    /// The inode, only if more of it changed than the node can record.
    #[default]
    Nothing,
    /// The inode, which would point to the packed block.
    Inode,
    /// The inode and the root, which holds no deltas: MedFS FAST'25, section 4.2, where the inode points to a meta
    /// page, and the meta page to the compact pages.
    MetaAndInode,
}

/// A way to use delta nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Study {
    /// Pages are compressed on their own instead of as differences, and only if at least two pages of an fsync are
    /// packed into fewer nodes. A stand-in for FPC (Ji et al., FAST'21), whose format is not published.
    pub alone: bool,
    /// Longest payload of an entry, at most [`format::node::delta::LONGEST`]; with `alone`, a little less than a node.
    pub longest: usize,
    /// What an fsync writes together with a node.
    pub beside: Beside,
    /// Deltas are made even for files that they cost more than they save.
    pub at_any_price: bool,
}

impl Default for Study {
    fn default() -> Self {
        Study { alone: false, longest: LONGEST, beside: Beside::Nothing, at_any_price: false }
    }
}

impl Study {
    /// MedFS's own layout (FAST'25, section 4.2): an fsync writes compact pages, their meta page and the inode.
    pub const MEDFS: Study =
        Study { alone: false, longest: LONGEST, beside: Beside::MetaAndInode, at_any_price: false };

    /// Whether this is another system's layout: without kept pages, which are JouleFS's own, and compressed by LZO.
    pub fn is_of_others(&self) -> bool {
        self.alone || self.beside != Beside::Nothing
    }

    /// Whether a file's account decides if it gets deltas.
    pub(crate) fn is_priced(&self) -> bool {
        !self.at_any_price && !self.is_of_others()
    }

    /// Whether packing pages of these sizes saves blocks: fewer nodes than pages.
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
