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
pub(super) struct Layout {
    /// Bytes of the page's first numbers, and of a `long`.
    pub(super) header: usize,
    pub(super) long: usize,
}

/// The events of one processor.
pub(super) struct Ring {
    pages: Pages,
    layout: Layout,
    /// What is used of the current page; nothing before the first.
    at: usize,
    end: usize,
    page_time: u64,
    pub(super) time: u64,
    /// The current event, in the page.
    from: usize,
    to: usize,
}

impl Ring {
    pub(super) fn new(pages: Pages, layout: Layout) -> Self {
        Ring { pages, layout, at: 0, end: 0, page_time: 0, time: 0, from: 0, to: 0 }
    }

    pub(super) fn processor(&self) -> u32 {
        self.pages.processor()
    }

    /// The page's place in the file.
    pub(super) fn place(&self) -> u64 {
        self.pages.place()
    }

    /// The current event.
    #[inline]
    pub(super) fn event(&self) -> &[u8] {
        &self.pages.page()[self.from..self.to]
    }

    /// Goes to the next page; false if there is none.
    fn turn(&mut self, store: &mut Store, others: &mut Others) -> Result<bool, TraceError> {
        if !self.pages.advance(store)? {
            return Ok(false);
        }
        let page = self.pages.page();
        let big = store.big;
        let long = |at: usize| match self.layout.long {
            8 => u64_at(page, at, big),
            _ => u32_at(page, at, big).map(u64::from),
        };
        let (Some(time), Some(commit)) = (u64_at(page, 0, big), long(8)) else {
            return Err(store.damaged(self.place(), "a page too short to be one"));
        };
        let used = (commit & USED) as usize;
        let end = self.layout.header + used;
        if end > page.len() {
            return Err(store.damaged(self.place(), format!("a page with {used} bytes of events")));
        }
        if commit & LOST != 0 {
            match long(end).filter(|_| commit & LOST_TOLD != 0) {
                Some(n) => count_many(others, "lost events", n),
                None => count(others, "lost events, how many is not known"),
            }
        }
        (self.at, self.end) = (self.layout.header, end);
        (self.page_time, self.time) = (time, time);
        Ok(true)
    }

    /// Goes to the next event; false if there is none.
    #[inline]
    pub(super) fn advance(&mut self, store: &mut Store, others: &mut Others) -> Result<bool, TraceError> {
        let big = store.big;
        loop {
            while self.at >= self.end {
                if !self.turn(store, others)? {
                    return Ok(false);
                }
            }
            let page = &self.pages.page()[..self.end];
            let place = self.pages.place();
            let wrong = |what: &str| Err(store.damaged(place, what));
            let Some(header) = u32_at(page, self.at, big) else { return wrong("an event of fewer than 4 bytes") };
            let (kind, delta) = if big { (header >> 27, header & 0x7ff_ffff) } else { (header & 0x1f, header >> 5) };
            let delta = u64::from(delta);
            let first = self.at + 4;
            match kind {
                PADDING if delta == 0 => {
                    self.at = self.end;
                    continue;
                }
                0 | PADDING..=TIME_STAMP => {
                    let Some(word) = u32_at(page, first, big) else { return wrong("an event that ends too early") };
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
                        return wrong("an event longer than its page");
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
                        return wrong("an event longer than its page");
                    }
                    self.at = next;
                    (self.from, self.to) = (first, next);
                }
            }
            return Ok(true);
        }
    }
}
