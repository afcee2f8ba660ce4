//! What does a policy that looks ahead know of the free space and of the volume's next use?
//!
//! A *use* lasts from one rest of the volume to the next. Left out on purpose: how uses are measured (the file system), and
//! what follows (the policies).

/// The free space, and what the next use of the volume will do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outlook {
    /// Sections that are free, or will be with the next checkpoint.
    pub free: u32,
    /// With no more free sections than these, logs fill holes.
    pub kept_back: u32,
    /// Free sections that a user wants held, whatever they cost.
    pub asked: u32,
    /// Blocks for which the logs will find places.
    pub takes: u64,
    /// Blocks that the device will be given, those written in place among them.
    pub writes: u64,
    /// Requests that 1,024 blocks in holes cost more than as many behind each other, as the logs that filled holes
    /// last found it.
    pub cuts: u32,
    /// The same of blocks that cleaning moved into holes.
    pub moved_cuts: u32,
    /// Free blocks in sections that hold valid ones, but for those that are promised to what waits in memory.
    pub holes: u64,
    /// Logs are written at their ends alone (`mode=lfs`, zoned devices): holes are no place for any block. A use that is short
    /// of free sections waits for cleaning.
    pub only_appends: bool,
}

/// Sections beyond those that its blocks fill: a use does not begin where a section does, and nodes have logs of their own.
const EDGES: u64 = 2;

impl Outlook {
    /// True if fewer sections are free than a user asked for.
    pub fn is_owed(&self) -> bool {
        self.free < self.asked
    }
    /// True if the next use will fill holes, or wait for cleaning where logs fill none; `section` is the number of blocks in one.
    pub fn is_short(&self, section: u64) -> bool {
        let wanted = u64::from(self.kept_back) + self.takes.div_ceil(section.max(1)) + EDGES;
        u64::from(self.free) < wanted
    }
    /// How often the next use will fill each hole, as a fraction; `None` if it leaves some alone. With so many blocks placed the logs
    /// come by all room that there is, and must come by again.
    pub fn rounds(&self, section: u64) -> Option<(u64, u64)> {
        let room = self.holes.saturating_add(self.spare(section)).max(1);
        (self.is_short(section) && !self.only_appends && self.takes >= room).then_some((self.takes, room))
    }
    /// Free blocks that no log will take as long as it can help it.
    pub fn spare(&self, section: u64) -> u64 {
        u64::from(self.free.saturating_sub(self.kept_back)).saturating_mul(section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_that_fits_is_not_short_and_one_block_more_is() {
        let fits = Outlook { free: 20, kept_back: 8, takes: 10 * 512, ..Outlook::default() };
        assert!(!fits.is_short(512));
        assert!(Outlook { takes: 10 * 512 + 1, ..fits }.is_short(512));
        assert!(Outlook { free: 19, ..fits }.is_short(512));
        assert!(!Outlook { free: 19, takes: 9 * 512, ..fits }.is_short(512));
    }

    #[test]
    fn a_use_of_more_blocks_than_there_is_room_for_fills_each_hole_and_more_than_once() {
        let most = Outlook { free: 20, kept_back: 8, takes: 30_000, holes: 3856, ..Outlook::default() };
        assert_eq!(most.rounds(512), Some((30_000, 10_000)));
        assert_eq!(Outlook { takes: 9999, ..most }.rounds(512), None);
        // Without holes what is not spare is room all the same, and a use that fits fills none.
        assert_eq!(Outlook { free: 8, holes: 0, ..most }.rounds(512), Some((30_000, 1)));
        assert_eq!(Outlook { free: 90, holes: 0, ..most }.rounds(512), None);
        assert_eq!(Outlook { only_appends: true, ..most }.rounds(512), None);
    }

    #[test]
    fn what_is_kept_back_is_not_spare() {
        let some = Outlook { free: 20, kept_back: 8, ..Outlook::default() };
        assert_eq!((some.spare(512), Outlook { free: 7, ..some }.spare(512)), (12 * 512, 0));
    }
}
