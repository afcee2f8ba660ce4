//! What is known of a transaction that can be taken up again, and when may it be?
//!
//! A transaction of one file that is written on is written anew, with one more attempt, as long as nothing was written behind it.
//! What was made durable is never overwritten by what is not: of two places for the inode the other is used. Pure bookkeeping; what is
//! done with it is [`crate::placement`]'s.

use scherlfs_format::{Addr, Checksum, Ino, Run, Seq};

use crate::path::Path;
use crate::space::Blocks;

/// Blocks of contents in a transaction that is still taken up: who follows the log reads them all to prove it.
pub(crate) const BLOCKS: u32 = 1024;
/// How often it is.
const ATTEMPTS: u8 = 200;

/// Where the inode stands.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Behind the contents. The path as it led before that block, if the log can go back to it.
    End { at: Addr, path: Option<Path> },
    /// In one of two blocks before them.
    Slots {
        slots: [Addr; 2],
        /// The one written last.
        last: Option<usize>,
        /// The one that is durable.
        durable: Option<usize>,
        /// A flush is under way that is to make the last one durable.
        flushing: bool,
    },
}

/// A transaction that can be taken up again.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub ino: Ino,
    pub seq: Seq,
    /// Of its inode as it was written last.
    pub attempt: Option<u8>,
    /// Where the inode was before.
    pub was: Option<Addr>,
    pub sum: Checksum,
    pub blocks: u32,
    /// Its contents, also those that were replaced since.
    pub contents: Blocks,
    pub place: Place,
    /// There are contents on the disk that its inode there does not name.
    pub open: bool,
}

/// Which attempt of which transaction.
pub(crate) type Attempt = (Seq, Option<u8>);

impl Series {
    /// Whether it is taken up by a transaction of these inodes behind transaction `last`. An open one must be.
    pub fn goes_on(&self, last: Seq, order: &[Ino], gone: bool) -> bool {
        let free = match &self.place {
            Place::End { path, .. } => path.is_some(),
            Place::Slots { flushing, .. } => !flushing,
        };
        let room = self.blocks < BLOCKS && self.attempt.is_none_or(|a| a < ATTEMPTS);
        self.open || (free && room && self.seq == last && order == [self.ino] && !gone)
    }

    /// Which of two blocks is written next.
    pub fn next_slot(last: Option<usize>, durable: Option<usize>) -> usize {
        durable.map_or(last.unwrap_or(0), |d| 1 - d)
    }

    /// Places for its inode that hold none of its file's.
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
