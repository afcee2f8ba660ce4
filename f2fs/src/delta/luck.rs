//! Is it worth comparing a file's pages with their bases?
//!
//! Pure: a count that knows how the last comparisons ended.

/// How often pages of a file became deltas lately. A page with a delta is not overwritten in place, and its next
/// contents cost a node and a flush more if they find no place in a delta: so deltas are for files most of whose pages
/// change little.
#[derive(Debug)]
pub(crate) struct Luck {
    /// From 0 to [`BEST_LUCK`]; deltas are made above 0.
    level: u8,
    /// Pages of an unlucky file asked for since the last that was compared.
    asked: u8,
}

const BEST_LUCK: u8 = 16;
/// Of a file without luck one page in so many is compared, to see whether that has changed.
const PROBE: u8 = 16;

impl Default for Luck {
    fn default() -> Self {
        Luck { level: BEST_LUCK / 2, asked: 0 }
    }
}

impl Luck {
    /// Whether to compare a page.
    pub(super) fn tries(&mut self) -> bool {
        if self.level > 0 {
            return true;
        }
        self.asked = (self.asked + 1) % PROBE;
        self.asked == 0
    }
    /// Whether pages are compared, all of them.
    pub(crate) fn hopes(&self) -> bool {
        self.level > 0
    }
    /// What was wanted found no room: more is lost than one comparison gave.
    pub(super) fn found_no_room(&mut self) {
        self.level = self.level.saturating_sub(2);
    }
    /// Notes how a comparison ended. True if its delta is wanted.
    pub(super) fn wants(&mut self, is_small: bool) -> bool {
        let before = self.level;
        self.level = match is_small {
            true => (self.level + 1).min(BEST_LUCK),
            false => self.level.saturating_sub(1),
        };
        is_small && before > 0
    }
}
