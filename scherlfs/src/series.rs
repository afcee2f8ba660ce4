//! A transaction that can be continued, and when it may be.
//!
//! A transaction of one file that is still being written is rewritten with the next attempt number, while nothing
//! is written behind it. Durable data is never overwritten by data that is not: of two places for the inode the
//! other is used. Pure bookkeeping; [`crate::placement`] uses it.

use scherlfs_format::{Addr, Checksum, Ino, Run, Seq};

use crate::path::Path;
use crate::space::Blocks;

/// Most blocks of contents in a transaction that is continued: a reader of the log reads them all to verify it.
pub(crate) const BLOCKS: u32 = 1024;
/// Most attempts.
const ATTEMPTS: u8 = 200;

/// Place of the inode.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Behind the contents, with the path before that block if the log can return to it.
    End { at: Addr, path: Option<Path> },
    /// In one of two blocks before the contents.
    Slots {
        slots: [Addr; 2],
        /// The last one written.
        last: Option<usize>,
        /// The durable one.
        durable: Option<usize>,
        /// True while a flush makes the last one durable.
        flushing: bool,
    },
}

/// A transaction that can be continued.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub ino: Ino,
    pub seq: Seq,
    /// Attempt of its last written inode.
    pub attempt: Option<u8>,
    /// Address of the inode before the series.
    pub was: Option<Addr>,
    pub sum: Checksum,
    pub blocks: u32,
    /// Its contents, including replaced ones.
    pub contents: Blocks,
    pub place: Place,
    /// True if the inode on the disk does not cover all contents.
    pub open: bool,
}

/// Transaction and attempt.
pub(crate) type Attempt = (Seq, Option<u8>);

impl Series {
    /// True if a transaction of these inodes behind transaction `last` continues it. An open one must be continued.
    pub fn goes_on(&self, last: Seq, order: &[Ino], gone: bool) -> bool {
        let free = match &self.place {
            Place::End { path, .. } => path.is_some(),
            Place::Slots { flushing, .. } => !flushing,
        };
        let room = self.blocks < BLOCKS && self.attempt.is_none_or(|a| a < ATTEMPTS);
        self.open || (free && room && self.seq == last && order == [self.ino] && !gone)
    }

    /// The block to write next.
    pub fn next_slot(last: Option<usize>, durable: Option<usize>) -> usize {
        durable.map_or(last.unwrap_or(0), |d| 1 - d)
    }

    /// Places for its inode that hold no data of its file.
    pub fn idle(&self, addr: Option<Addr>) -> Vec<Run> {
        match &self.place {
            Place::End { .. } => Vec::new(),
            Place::Slots { slots, .. } => {
                slots.iter().filter(|s| Some(**s) != addr).map(|&start| Run { start, blocks: 1 }).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_durable_is_not_the_next() {
        assert_eq!(Series::next_slot(None, None), 0);
        assert_eq!(Series::next_slot(Some(0), None), 0, "nothing is durable yet");
        assert_eq!(Series::next_slot(Some(0), Some(0)), 1);
        assert_eq!(Series::next_slot(Some(1), Some(0)), 1, "the last was not made durable");
        assert_eq!(Series::next_slot(Some(1), Some(1)), 0);
    }
}
