//! How are the events in the kernel's ring-buffer pages of one CPU read?
//!
//! A page begins with its time and the number of bytes used, with two bits about events lost before it. Every event
//! begins with 5 bits of type or length and 27 bits of nanoseconds since the previous one.

use super::pages::Pages;
use super::store::{Store, u32_at, u64_at};
use crate::names::{count, count_many};
use crate::{OtherCounts, TraceError};

/// End of the page, or a discarded event.
const PADDING: u32 = 29;
/// A time difference above 27 bits.
const TIME_EXTEND: u32 = 30;
/// An absolute time.
const TIME_STAMP: u32 = 31;
/// Bits of a [`TIME_STAMP`].
const ABSOLUTE: u64 = (1 << 59) - 1;
/// Events were lost before this page.
const LOST: u64 = 1 << 31;
/// Their number follows the page's events.
const LOST_TOLD: u64 = 1 << 30;
/// Bytes used in the page.
const USED: u64 = (1 << 27) - 1;

/// The kernel's page layout (`events/header_page`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Size of the page header, and of a `long`.
    pub(crate) header: usize,
    pub(crate) long: usize,
}

/// Position of a reader in a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InPage {
    /// Next event and end of the data; 0 before the first page.
    at: usize,
    end: usize,
    page_time: u64,
    pub(crate) time: u64,
    /// The current event's range in the page.
    from: usize,
    to: usize,
}

/// Events lost before a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    None,
    /// Their number.
    Some(u64),
    /// An unknown number.
    Unknown,
}

impl InPage {
    /// Begins a page; an error describes what is wrong.
    pub(crate) fn begin(&mut self, page: &[u8], layout: Layout, big: bool) -> Result<Lost, String> {
        let long = |at: usize| match layout.long {
            8 => u64_at(page, at, big),
            _ => u32_at(page, at, big).map(u64::from),
        };
        let (Some(time), Some(commit)) = (u64_at(page, 0, big), long(8)) else {
            return Err("a page too short to be one".into());
        };
        let used = (commit & USED) as usize;
        let end = layout.header + used;
        if end > page.len() {
            return Err(format!("a page with {used} bytes of events"));
        }
        let lost = match (commit & LOST != 0, long(end).filter(|_| commit & LOST_TOLD != 0)) {
            (false, _) => Lost::None,
            (true, Some(n)) => Lost::Some(n),
            (true, None) => Lost::Unknown,
        };
        (self.at, self.end) = (layout.header, end);
        (self.page_time, self.time) = (time, time);
        Ok(lost)
    }

    /// The current event.
    #[inline]
    pub(crate) fn event<'a>(&self, page: &'a [u8]) -> &'a [u8] {
        &page[self.from..self.to]
    }

    /// Advances to the page's next event; false at the end.
    #[inline]
    pub(crate) fn advance(&mut self, page: &[u8], big: bool) -> Result<bool, &'static str> {
        while self.at < self.end {
            let page = &page[..self.end];
            let Some(header) = u32_at(page, self.at, big) else { return Err("an event of fewer than 4 bytes") };
            let (kind, delta) = if big { (header >> 27, header & 0x7ff_ffff) } else { (header & 0x1f, header >> 5) };
            let delta = u64::from(delta);
            let first = self.at + 4;
            match kind {
                PADDING if delta == 0 => {
                    self.at = self.end;
                    continue;
                }
                0 | PADDING..=TIME_STAMP => {
                    let Some(word) = u32_at(page, first, big) else { return Err("an event that ends too early") };
                    let high = u64::from(word) << 27;
                    match kind {
                        TIME_EXTEND => {
                            self.time = self.time.wrapping_add(high | delta);
                            self.at = first + 4;
                            continue;
                        }
                        TIME_STAMP => {
                            self.time = self.page_time & !ABSOLUTE | (high | delta) & ABSOLUTE;
                            self.at = first + 4;
                            continue;
                        }
                        _ => {}
                    }
                    self.time = self.time.wrapping_add(delta);
                    // The length includes this word.
                    let length = word as usize;
                    let next = first.saturating_add(length.next_multiple_of(4));
                    if length < 4 || next > page.len() {
                        return Err("an event longer than its page");
                    }
                    self.at = next;
                    if kind == PADDING {
                        continue;
                    }
                    (self.from, self.to) = (first + 4, first + length);
                }
                words => {
                    self.time = self.time.wrapping_add(delta);
                    let next = first + words as usize * 4;
                    if next > page.len() {
                        return Err("an event longer than its page");
                    }
                    self.at = next;
                    (self.from, self.to) = (first, next);
                }
            }
            return Ok(true);
        }
        Ok(false)
    }
}

/// The events of one CPU.
pub(super) struct Ring {
    pages: Pages,
    layout: Layout,
    place: InPage,
}

impl Ring {
    pub(super) fn new(pages: Pages, layout: Layout) -> Self {
        Ring { pages, layout, place: InPage::default() }
    }

    pub(super) fn processor(&self) -> u32 {
        self.pages.processor()
    }

    /// The current event's time.
    #[inline]
    pub(super) fn time(&self) -> u64 {
        self.place.time
    }

    /// Offset of the page in the file.
    pub(super) fn place(&self) -> u64 {
        self.pages.place()
    }

    /// The current event.
    #[inline]
    pub(super) fn event(&self) -> &[u8] {
        self.place.event(self.pages.page())
    }

    /// Advances to the next page; false at the end.
    fn turn(&mut self, store: &mut Store, others: &mut OtherCounts) -> Result<bool, TraceError> {
        if !self.pages.advance(store)? {
            return Ok(false);
        }
        let begun = self.place.begin(self.pages.page(), self.layout, store.big);
        match begun.map_err(|what| store.damaged(self.place(), what))? {
            Lost::None => {}
            Lost::Some(n) => count_many(others, "lost events", n),
            Lost::Unknown => count(others, "lost events, how many is not known"),
        }
        Ok(true)
    }

    /// Advances to the next event; false at the end.
    #[inline]
    pub(super) fn advance(&mut self, store: &mut Store, others: &mut OtherCounts) -> Result<bool, TraceError> {
        loop {
            // Before the first event there is no page.
            let there = self.place.end > 0 && {
                let advanced = self.place.advance(self.pages.page(), store.big);
                advanced.map_err(|what| store.damaged(self.pages.place(), what))?
            };
            if there {
                return Ok(true);
            }
            if !self.turn(store, others)? {
                return Ok(false);
            }
        }
    }
}
