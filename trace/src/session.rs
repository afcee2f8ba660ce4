//! Which part of a recording is used, and how long are its pauses?
//!
//! Users leave recordings running: a phone that is used now and then gives a file of weeks with minutes of requests,
//! and rates and idle energy over the whole file are meaningless for those minutes. [`Session`] wraps a recording's
//! events or calls: it drops everything outside of two times, and shortens pauses above a limit to that limit. Times
//! after a shortened pause are moved earlier accordingly; nothing else changes. It also counts events that are out of
//! order of time. [`Timing`] reports all of this, so that a part is not mistaken for the whole.
//!
//! A pause is the time between the end of the last activity, if ends are recorded, and the next event or call. Late
//! events from before the last shortened pause are corrected only by that pause.
//!
//! Left out: a reader's counts of other contents ([`OtherCounts`]), which are still those of the whole recording.

mod before;

use rustc_hash::FxHashMap;

use self::before::Before;
use crate::block::{Event, Events};
use crate::call::{Call, Calls};
use crate::timing::Timing;
use crate::{Format, OtherCounts, TraceError};

/// A part of a recording. Times are nanoseconds since its first event or call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Start.
    pub from: u64,
    /// End, exclusive; `None`: the end of the recording.
    pub to: Option<u64>,
    /// Longer pauses are shortened to this.
    pub max_gap: Option<u64>,
}

impl Span {
    /// True if nothing is changed.
    pub fn is_whole(&self) -> bool {
        *self == Span::default()
    }
}

/// The timeline of a session.
#[derive(Debug, Default)]
struct Line {
    span: Span,
    /// The recording's first time.
    first: Option<u64>,
    /// End of all activity in the session so far; `None` before it.
    ended: Option<u64>,
    /// Time removed by shortened pauses.
    removed: u64,
    /// The last shortened pause: begin, end, time removed before it.
    last: Option<(u64, u64, u64)>,
    timing: Timing,
}

/// Where an event belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    /// In the session, at this time.
    In(u64),
    After,
}

impl Line {
    fn new(span: Span) -> Self {
        Line { span, timing: Timing { pause_counts_ns: span.max_gap, ..Timing::default() }, ..Line::default() }
    }

    /// Places an event that begins at `time` and lasts `took`.
    fn place(&mut self, time: u64, took: u64) -> Place {
        let since = time.saturating_sub(*self.first.get_or_insert(time));
        if since < self.span.from {
            self.timing.before += 1;
            return Place::Before;
        }
        if self.span.to.is_some_and(|to| since >= to) {
            self.timing.after += 1;
            return Place::After;
        }
        let ended = *self.ended.get_or_insert(time);
        if let Some(longest) = self.span.max_gap
            && let Some(pause) = time.checked_sub(ended)
            && pause > longest
        {
            self.last = Some((ended, time, self.removed));
            self.removed += pause - longest;
            self.timing.pauses += 1;
            self.timing.pauses_ns = self.timing.pauses_ns.saturating_add(pause);
        }
        self.ended = Some(ended.max(time.saturating_add(took)));
        Place::In(match self.last {
            // A late event: it belongs before the pause, or into the rest of it.
            Some((began, until, removed)) if time < until => {
                let in_pause = time.saturating_sub(began).min(self.span.max_gap.unwrap_or(u64::MAX));
                time.min(began).saturating_sub(removed) + in_pause
            }
            _ => time - self.removed.min(time),
        })
    }
}

/// Places the records of a recording in a part, for readers that do not use a [`Session`].
#[derive(Debug)]
pub struct Part(Line);

/// Where a record belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lies {
    /// Before the part.
    Before,
    /// In the part, at this time.
    In(u64),
    /// After it.
    After,
}

impl Part {
    /// Nothing has been placed yet.
    pub fn new(span: Span) -> Self {
        Part(Line::new(span))
    }

    /// Places a record that begins at `time` and lasts `took`.
    pub fn place(&mut self, time: u64, took: u64) -> Lies {
        match self.0.place(time, took) {
            Place::Before => Lies::Before,
            Place::In(time) => Lies::In(time),
            Place::After => Lies::After,
        }
    }

    /// Places a record that is no activity and ends no pause, such as background work: its time in the part.
    pub fn place_inactive(&mut self, time: u64) -> Option<u64> {
        let since = time.saturating_sub(*self.0.first.get_or_insert(time));
        if self.0.span.to.is_some_and(|to| since >= to) {
            return None;
        }
        let kept = |ended: u64| self.0.span.max_gap.is_none_or(|longest| time.saturating_sub(ended) <= longest);
        self.0.ended.is_none_or(kept).then(|| time.saturating_sub(self.0.removed))
    }

    /// Timing so far.
    pub fn timing(&self) -> Timing {
        self.0.timing
    }
}

/// A part of a recording, with shortened pauses.
pub struct Session<T: ?Sized> {
    line: Line,
    /// The latest time so far; for calls by thread, since calls of several threads come in the order of their ends.
    latest: u64,
    latest_of: FxHashMap<u32, u64>,
    before: Before,
    inner: Box<T>,
}

impl<T: ?Sized> Session<T> {
    /// Wraps a recording at its beginning.
    pub fn new(inner: Box<T>, span: Span) -> Self {
        let before = Before::default();
        Session { line: Line::new(span), latest: 0, latest_of: FxHashMap::default(), before, inner }
    }
}

impl Events for Session<dyn Events> {
    crate::passes_on!(inner: format, timed, names, other_counts, consumed, device);

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        while let Some(event) = self.inner.next()? {
            if let Place::In(time) = self.line.place(event.time, event.took.unwrap_or(0)) {
                self.line.timing.in_order(&mut self.latest, event.time, 1);
                return Ok(Some(Event { time, ..event }));
            }
        }
        Ok(None)
    }
    fn timing(&self) -> Timing {
        self.line.timing
    }
}

impl Calls for Session<dyn Calls> {
    fn format(&self) -> Format {
        self.inner.format()
    }
    fn next(&mut self) -> Result<Option<Call>, TraceError> {
        loop {
            if let Some(call) = self.before.pop() {
                return Ok(Some(call));
            }
            let Some(call) = self.inner.next()? else { return Ok(None) };
            match self.line.place(call.time, call.took.unwrap_or(0)) {
                Place::Before => self.before.track(&call),
                Place::After => {}
                Place::In(time) => {
                    let latest = self.latest_of.entry(call.thread).or_default();
                    self.line.timing.in_order(latest, call.time, 1);
                    self.line.timing.opened_before += u64::from(self.before.push(Call { time, ..call }));
                }
            }
        }
    }
    fn other_counts(&self) -> &OtherCounts {
        self.inner.other_counts()
    }
    fn consumed(&self) -> u64 {
        self.inner.consumed()
    }
    fn timing(&self) -> Timing {
        self.line.timing.with_reader(self.inner.timing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn placed(span: Span, times: &[u64]) -> (Vec<u64>, Timing) {
        let mut line = Line::new(span);
        let places: Vec<Place> = times.iter().map(|t| line.place(*t, 0)).collect();
        let inside = places.into_iter().filter_map(|p| if let Place::In(time) = p { Some(time) } else { None });
        (inside.collect(), line.timing)
    }

    #[test]
    fn a_session_lies_between_two_times_since_the_beginning() {
        let times = [1000 * S, 1001 * S, 1002 * S, 1003 * S];
        let (all, timing) = placed(Span::default(), &times);
        assert_eq!((&all[..], timing), (&times[..], Timing::default()));
        let (some, timing) = placed(Span { from: S, to: Some(3 * S), max_gap: None }, &times);
        assert_eq!(some, [1001 * S, 1002 * S]);
        assert_eq!((timing.before, timing.after), (1, 1));
    }

    #[test]
    fn a_longer_pause_counts_as_the_longest_and_what_follows_comes_earlier() {
        let span = Span { max_gap: Some(5 * S), ..Span::default() };
        let (times, timing) = placed(span, &[S, 2 * S, 100 * S, 105 * S, 200 * S]);
        assert_eq!(times, [S, 2 * S, 7 * S, 12 * S, 17 * S]);
        assert_eq!((timing.pauses, timing.pauses_ns), (2, (98 + 95) * S), "a pause as long as the longest stays");
    }

    #[test]
    fn a_pause_begins_when_running_requests_have_ended() {
        let mut line = Line::new(Span { max_gap: Some(5 * S), ..Span::default() });
        assert_eq!(line.place(S, 30 * S), Place::In(S));
        assert_eq!(line.place(33 * S, 0), Place::In(33 * S));
        assert_eq!(line.place(43 * S, 0), Place::In(38 * S));
    }

    #[test]
    fn late_events_from_before_a_pause_stay_before_it() {
        let span = Span { max_gap: Some(5 * S), ..Span::default() };
        // The last two were before the first pause and in the middle of it.
        let (times, timing) = placed(span, &[S, 2 * S, 100 * S, 2 * S, 50 * S, 101 * S]);
        assert_eq!(times, [S, 2 * S, 7 * S, 2 * S, 7 * S, 8 * S]);
        assert_eq!(timing.pauses, 1);
    }

    #[test]
    fn events_out_of_order_are_counted_with_the_largest_distance() {
        let (mut line, mut latest) = (Line::default(), 0);
        [3, 5, 4, 5, 1, 6].iter().for_each(|t| line.timing.in_order(&mut latest, *t, 1));
        assert_eq!((line.timing.late, line.timing.late_ns), (2, 4));
    }

    #[test]
    fn times_at_the_end_of_all_time_are_times() {
        let span = Span { from: u64::MAX, to: Some(0), max_gap: Some(0) };
        assert!(placed(span, &[0, u64::MAX]).0.is_empty());
        let span = Span { max_gap: Some(0), ..Span::default() };
        let (times, timing) = placed(span, &[0, u64::MAX, 0, u64::MAX]);
        assert_eq!((times, timing.pauses_ns), (vec![0; 4], u64::MAX));
        let mut line = Line::new(span);
        assert_eq!(line.place(u64::MAX, u64::MAX), Place::In(u64::MAX));
    }
}
