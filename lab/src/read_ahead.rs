//! Which pages of a file does a kernel read ahead?
//!
//! The rules are those of Linux since 6.10 (`mm/readahead.c`, with the usual 128 KiB). A sequential reader gets windows
//! that double; one page of each window is marked, and reading it requests the next window. A reader of a page with
//! many cached pages before it also counts as sequential, so that reads elsewhere in between do no harm. Cached pages
//! cause no requests. Left out: memory pressure, and requests in flight.

use std::collections::BTreeSet;
use std::ops::Range;

/// Pages in the largest window.
const MOST: u64 = 32;

/// A kernel's read-ahead state of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadAhead {
    /// Cached pages.
    kept: BTreeSet<u64>,
    /// The window: its first page, its pages, and the marked page as a distance from its end.
    start: u64,
    size: u64,
    last: u64,
    /// The last page read.
    before: Option<u64>,
}

impl ReadAhead {
    /// Written pages are cached.
    pub fn written(&mut self, pages: Range<u64>) {
        self.kept.extend(pages);
    }

    /// Drops all pages from this one on.
    pub fn cut(&mut self, from: u64) {
        self.kept.split_off(&from);
    }

    /// Reads pages of a file of `end` pages; returns the ranges to read from the device, in order.
    pub fn read(&mut self, pages: Range<u64>, end: u64) -> Vec<Range<u64>> {
        let mut asked = Vec::new();
        let pages = pages.start..pages.end.min(end);
        for page in pages.clone() {
            let wanted = if !self.kept.contains(&page) {
                self.missed(page, pages.end - page)
            } else if self.size > 0 && page == self.start + self.size - self.last {
                self.start += self.size;
                self.size = next(self.size);
                self.last = self.size;
                self.start..self.start + self.size
            } else {
                continue;
            };
            // Skip cached pages and pages after the end.
            let missing: Vec<u64> = (wanted.start..wanted.end.min(end)).filter(|p| self.kept.insert(*p)).collect();
            asked.extend(missing.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[run.len() - 1] + 1));
        }
        self.before = pages.last().or(self.before);
        asked
    }

    /// The range to request because a page is not cached.
    fn missed(&mut self, page: u64, more: u64) -> Range<u64> {
        let in_order = self.before.is_some_and(|b| page.wrapping_sub(b) <= 1);
        if page == 0 || more > MOST || in_order {
            self.start = page;
            self.size = first(more);
            self.last = if self.size > more { self.size - more } else { self.size / 2 };
            return page..page + self.size;
        }
        let known = (1..=MOST.min(page)).take_while(|back| self.kept.contains(&(page - back))).count() as u64;
        if known <= more {
            return page..page + more;
        }
        // Sequential from the file's beginning: expect more.
        let known = if known == page { 2 * known } else { known };
        (self.start, self.size, self.last) = (page, (known + more).min(MOST), 1);
        page..page + self.size
    }
}

/// The first window for a read of this many pages.
fn first(pages: u64) -> u64 {
    match pages.next_power_of_two() {
        n if n <= MOST / 32 => n * 4,
        n if n <= MOST / 4 => n * 2,
        _ => MOST,
    }
}

/// The next window's size.
fn next(size: u64) -> u64 {
    match size {
        n if n < MOST / 16 => 4 * n,
        n if n <= MOST / 2 => 2 * n,
        _ => MOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests for reads of single pages.
    fn asked(file: &mut ReadAhead, pages: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
        pages.flat_map(|p| file.read(p..p + 1, 1000)).map(|r| (r.start, r.end - r.start)).collect()
    }

    #[test]
    fn windows_double_for_who_reads_in_order() {
        let mut file = ReadAhead::default();
        // Page 1 is marked, then the first of each window: 4, 12, 28.
        assert_eq!(asked(&mut file, 0..12), [(0, 4), (4, 8), (12, 16)]);
        assert_eq!(asked(&mut file, 12..100), [(28, 32), (60, 32), (92, 32), (124, 32)]);
        // The end of the file is the end.
        let mut file = ReadAhead::default();
        assert_eq!(file.read(0..3, 2), [0..2]);
    }

    #[test]
    fn a_look_elsewhere_does_no_harm_and_who_reads_anywhere_gets_what_he_reads() {
        let mut file = ReadAhead::default();
        let there_and_back = (0..100).flat_map(|p| [p, 500]);
        let with = asked(&mut file, there_and_back);
        assert_eq!(with.iter().filter(|(at, _)| *at >= 500).collect::<Vec<_>>(), [&(500, 1)]);
        assert!(with.len() < 12, "{with:?}");
        let mut file = ReadAhead::default();
        assert_eq!(asked(&mut file, [900, 40, 300, 700].into_iter()), [(900, 1), (40, 1), (300, 1), (700, 1)]);
    }

    #[test]
    fn what_is_in_memory_is_not_asked_for_and_what_is_cut_is_gone() {
        let mut file = ReadAhead::default();
        file.written(0..50);
        assert_eq!(asked(&mut file, 0..50), []);
        file.cut(10);
        assert_eq!(asked(&mut file, 9..11), [(10, 4)]);
    }
}
