//! Which section is being emptied, on which occasion, where do its blocks go, and how far has it got?

use format::addr::SecNo;

use crate::cause::Cause;

/// The occasion of a cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// A writer waits for space.
    Foreground,
    /// No writer waits.
    Background,
}

/// Where moved data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Into {
    /// To the end of the cold log.
    ColdLog,
    /// Into the log of moved blocks: holes of segments of similar age.
    SimilarAge,
}

/// A section being emptied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) section: SecNo,
    pub(super) when: When,
    pub(super) into: Into,
    /// The next block to check, counted from the section's start.
    pub(super) next: u32,
    /// True if every valid block so far had an owner.
    pub(super) clean: bool,
    /// True if some blocks belong to pinned files.
    pub(super) pinned: bool,
}

impl Work {
    pub(super) fn new(section: SecNo, when: When, into: Into) -> Work {
        Work { section, when, into, next: 0, clean: true, pinned: false }
    }
    pub(super) fn data_cause(&self) -> Cause {
        match self.when {
            When::Foreground => Cause::ForegroundGcData,
            When::Background => Cause::BackgroundGcData,
        }
    }
    pub(super) fn node_cause(&self) -> Cause {
        match self.when {
            When::Foreground => Cause::ForegroundGcNode,
            When::Background => Cause::BackgroundGcNode,
        }
    }
}
