//! The events in the kernel's ring-buffer pages of one processor.
//!
//! A page begins with its time and how many bytes of it are used, with two bits about events that were lost
//! before it. Every event begins with 5 bits of kind or length and 27 bits of nanoseconds since the one before.

use super::pages::Pages;
use super::store::{Store, u32_at, u64_at};
use crate::names::{count, count_many};
use crate::{Others, TraceError};

/// Nothing more on this page, or an event that was taken back.
const PADDING: u32 = 29;
/// More time than 27 bits hold.
const TIME_EXTEND: u32 = 30;
/// A time that does not count from the event before.
const TIME_STAMP: u32 = 31;
/// Bits of a [`TIME_STAMP`].
const ABSOLUTE: u64 = (1 << 59) - 1;
/// Events were lost before this page.
const LOST: u64 = 1 << 31;
/// How many is told behind the page's events.
const LOST_TOLD: u64 = 1 << 30;
/// Bytes of the page in use.
const USED: u64 = (1 << 27) - 1;

/// How the kernel lays out its pages (`events/header_page`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Bytes of the page's first numbers, and of a `long`.
    pub(crate) header: usize,
    pub(crate) long: usize,
}

/// Where a reader is in a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InPage {
    /// What is used of the page; nothing before the first.
    at: usize,
    end: usize,
    page_time: u64,
    pub(crate) time: u64,
    /// The current event, in the page.
    from: usize,
    to: usize,
}

/// Events that were lost before a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    None,
    /// So many.
    Some(u64),
    /// How many is not known.
    Unknown,
}

impl InPage {
    /// Begins a page; an error says what is wrong with it.
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

    /// Goes to the page's next event; false if there is none.
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
                    // The length counts the word that has it.
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

/// The events of one processor.
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

    /// The page's place in the file.
    pub(super) fn place(&self) -> u64 {
        self.pages.place()
    }

    /// The current event.
    #[inline]
    pub(super) fn event(&self) -> &[u8] {
        self.place.event(self.pages.page())
    }

    /// Goes to the next page; false if there is none.
    fn turn(&mut self, store: &mut Store, others: &mut Others) -> Result<bool, TraceError> {
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

    /// Goes to the next event; false if there is none.
    #[inline]
    pub(super) fn advance(&mut self, store: &mut Store, others: &mut Others) -> Result<bool, TraceError> {
        loop {
            // There is no page before the first.
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
