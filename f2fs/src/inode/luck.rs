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
    asked: u16,
    /// Comparisons since the last that ended well, of a file without luck.
    failed: u16,
}

const BEST_LUCK: u8 = 16;
/// Of a file without luck one page in so many is compared, to see whether that has changed.
const PROBE: u16 = 16;
/// So many comparisons that failed one after the other make a lost file. From then on fewer and fewer pages are compared: after
/// each so many more half as many, down to one in [`RAREST`]. Each costs a base that is read.
const LOST: u16 = 64;
const RAREST: u16 = 256;

impl Default for Luck {
    fn default() -> Self {
        Luck { level: BEST_LUCK / 2, asked: 0, failed: 0 }
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
    /// Whether pages are compared, all of them.
    pub(crate) fn hopes(&self) -> bool {
        self.level > 0
    }
    /// Whether pages have resembled their bases in nothing for so long that nothing is done for the next.
    pub(crate) fn is_lost(&self) -> bool {
        self.level == 0 && self.failed >= LOST
    }
    /// The file is compared as often as one that is not lost.
    pub(crate) fn stays_found(&mut self) {
        self.failed = 0;
    }
    /// What was wanted found no room: more is lost than one comparison gave.
    pub(crate) fn found_no_room(&mut self) {
        self.level = self.level.saturating_sub(2);
    }
    /// Notes how a comparison ended. True if its delta is wanted.
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

    /// How many of so many pages are compared, if none is small.
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
        // It falls again, and is not lost at once.
        assert_eq!(compared(&mut luck, 1 + 16 * 63), 1 + 63);
        assert!(!luck.is_lost());
    }
}
