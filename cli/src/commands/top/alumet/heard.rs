//! Collects the names of a recording's processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trace::TraceError;
use trace::block::{Event, Events};

/// Process names by number, from a recording's events.
pub type Heard = Arc<Mutex<BTreeMap<u32, String>>>;

/// A recording whose process names are collected.
pub struct Hearing {
    inner: Box<dyn Events>,
    heard: Heard,
    last: u32,
}

impl Hearing {
    /// Wraps a recording.
    pub fn new(inner: Box<dyn Events>, heard: Heard) -> Self {
        Hearing { inner, heard, last: 0 }
    }
}

/// Maximum number of processes.
pub const PROCESSES: usize = 1 << 16;

impl Events for Hearing {
    trace::passes_on!(inner: all);

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        let event = self.inner.next()?;
        if let Some(event) = event.filter(|e| e.pid != 0 && e.pid != self.last) {
            self.last = event.pid;
            let name = self.inner.names().name(event.process);
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            if !name.is_empty() && (heard.len() < PROCESSES || heard.contains_key(&event.pid)) {
                heard.insert(event.pid, name.to_owned());
            }
        }
        Ok(event)
    }
}
