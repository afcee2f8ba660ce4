//! Is it worth comparing a file's pages with their bases?
//!
//! Pure: a score of the last comparisons.

/// How often pages of a file recently became deltas. A page with a delta is not overwritten in place, and if its next
/// contents do not fit in a delta, they cost an extra node and flush: so deltas pay only for files in which most pages
/// change little.
#[derive(Debug)]
pub(crate) struct Luck {
    /// From 0 to [`BEST_LUCK`]; deltas are written above 0.
    level: u8,
    /// At level 0: pages since the last one that was compared.
    asked: u16,
    /// At level 0: comparisons since the last success.
    failed: u16,
    /// What encoding and reading bases cost since this was last asked for, in pJ.
    pub(crate) spent: u64,
}

const BEST_LUCK: u8 = 16;
/// At level 0, one page in this many is compared, to detect a change.
const PROBE: u16 = 16;
/// After this many failed comparisons in a row a file is lost: each batch of this many failures halves the share of
/// compared pages, down to one in [`RAREST`]. Each comparison costs a base read.
const LOST: u16 = 64;
const RAREST: u16 = 256;

impl Default for Luck {
    fn default() -> Self {
        Luck { level: BEST_LUCK / 2, asked: 0, failed: 0, spent: 0 }
    }
}

impl Luck {
    /// Whether to compare a page.
    pub(crate) fn tries(&mut self) -> bool {
        if self.level > 0 {
            return true;
        }
        let doublings = u32::from(self.failed / LOST).min((RAREST / PROBE).ilog2());
        self.asked += 1;
        let probes = self.asked >= PROBE << doublings;
        if probes {
            self.asked = 0;
        }
        probes
    }
    /// Whether all pages are compared.
    pub(crate) fn hopes(&self) -> bool {
        self.level > 0
    }
    /// Whether comparisons have failed for so long that nothing is prepared for the next.
    pub(crate) fn is_lost(&self) -> bool {
        self.level == 0 && self.failed >= LOST
    }
    /// Compares the file as often as one that is not lost.
    pub(crate) fn stays_found(&mut self) {
        self.failed = 0;
    }
    /// A wanted delta did not fit: that costs more than one comparison gained.
    pub(crate) fn found_no_room(&mut self) {
        self.level = self.level.saturating_sub(2);
    }
    /// Records the result of a comparison. True if its delta is wanted.
    pub(crate) fn wants(&mut self, is_small: bool) -> bool {
        let before = self.level;
        self.failed = match is_small || before > 0 {
            true => 0,
            false => self.failed.saturating_add(1),
        };
        self.level = match is_small {
            true => (self.level + 1).min(BEST_LUCK),
            false => self.level.saturating_sub(1),
        };
        is_small && before > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `pages` are compared if none is small.
    fn compared(luck: &mut Luck, pages: usize) -> usize {
        (0..pages).filter(|_| luck.tries() && !luck.wants(false)).count()
    }

    #[test]
    fn a_file_whose_pages_never_resemble_their_bases_is_asked_less_and_less_and_is_not_forgotten() {
        let mut luck = Luck::default();
        assert_eq!(compared(&mut luck, 8), 8);
        assert!(!luck.hopes() && !luck.is_lost());
        assert_eq!(compared(&mut luck, 16 * 63), 63);
        assert!(!luck.is_lost(), "it may be a bad hour");
        assert_eq!(compared(&mut luck, 16), 1);
        assert!(luck.is_lost());
        assert_eq!(compared(&mut luck, 2048), 64, "half as many");
        compared(&mut luck, 100_000);
        assert_eq!(compared(&mut luck, 25_600), 100);
        while !luck.tries() {}
        assert!(!luck.wants(true), "one swallow");
        assert!(luck.hopes() && !luck.is_lost() && luck.tries());
        // It falls again, but is not lost at once.
        assert_eq!(compared(&mut luck, 1 + 16 * 63), 1 + 63);
        assert!(!luck.is_lost());
    }
}
