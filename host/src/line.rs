//! Where do events wait between who hears them and who makes requests of them?

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use trace::block::{Event, Events};
use trace::{Format, Names, OtherCounts, TraceError};

/// Events in a line, which wait until somebody takes them. Its end is only the end of what there is now.
#[derive(Clone, Default)]
pub struct Line {
    events: Arc<Mutex<VecDeque<Event>>>,
    names: Names,
    others: OtherCounts,
}

impl Line {
    fn events(&self) -> std::sync::MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.events().is_empty()
    }
    /// Adds one.
    pub fn push(&self, event: Event) {
        self.events().push_back(event);
    }
}

impl Events for Line {
    fn format(&self) -> Format {
        Format::Ftrace
    }
    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        Ok(self.events().pop_front())
    }
    fn names(&self) -> &Names {
        &self.names
    }
    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }
    fn consumed(&self) -> u64 {
        0
    }
}
