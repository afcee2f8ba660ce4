//! Free space and the expected next use of the volume, for a policy that plans ahead.
//!
//! A *use* lasts from one rest of the volume to the next. Left out on purpose: how uses are measured (the
//! file system), and the decisions (the policies).

/// The free space, and the demand of the next use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outlook {
    /// Sections that are free now or from the next checkpoint on.
    pub free: u32,
    /// The reserve: if no more sections than these are free, logs fill holes.
    pub kept_back: u32,
    /// Free sections that a user wants available at any cost.
    pub asked: u32,
    /// Blocks that the logs will place.
    pub takes: u64,
    /// Blocks that will be written to the device, in-place writes included.
    pub writes: u64,
    /// Extra requests per 1,024 blocks in holes, compared with sequential blocks, as last measured by the
    /// logs.
    pub cuts: u32,
    /// The same for blocks that cleaning moved into holes.
    pub moved_cuts: u32,
    /// Free blocks in sections with valid blocks, without those reserved for dirty contents in memory.
    pub holes: u64,
    /// Logs only append (`mode=lfs`, zoned devices): holes cannot be used. A use that runs out of free
    /// sections waits for cleaning.
    pub only_appends: bool,
}

/// Extra sections of a use: it does not begin at a section boundary, and nodes have logs of their own.
const EDGES: u64 = 2;

impl Outlook {
    /// True if fewer sections are free than a user asked for.
    pub fn is_owed(&self) -> bool {
        self.free < self.asked
    }
    /// True if the next use will fill holes, or wait for cleaning where logs only append. A section has
    /// `section` blocks.
    pub fn is_short(&self, section: u64) -> bool {
        let wanted = u64::from(self.kept_back) + self.takes.div_ceil(section.max(1)) + EDGES;
        u64::from(self.free) < wanted
    }
    /// How often the next use will fill each hole, as a fraction; `None` if it leaves some unused. A use that
    /// places more blocks than there is room for passes over all holes, repeatedly.
    pub fn rounds(&self, section: u64) -> Option<(u64, u64)> {
        let room = self.holes.saturating_add(self.spare(section)).max(1);
        (self.is_short(section) && !self.only_appends && self.takes >= room).then_some((self.takes, room))
    }
    /// Free blocks beyond the reserve.
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
        // Without holes the room is what is spare, and a use that fits fills no hole.
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
