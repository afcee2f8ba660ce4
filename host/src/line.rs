//! Where do events wait between their source and the code that makes requests of them?

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use trace::block::{Event, Events};
use trace::{Format, Names, OtherCounts, TraceError};

/// A queue of events. Its end means only that no event waits now.
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
    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.events().is_empty()
    }
    /// Appends an event.
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
