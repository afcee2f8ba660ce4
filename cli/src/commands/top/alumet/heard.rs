//! Which process of a recording has which number?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trace::TraceError;
use trace::block::{Event, Events};

/// Names of processes by number, told by a recording's events.
pub type Heard = Arc<Mutex<BTreeMap<u32, String>>>;

/// A recording, of whose events is heard which process has which number.
pub struct Hearing {
    inner: Box<dyn Events>,
    heard: Heard,
    last: u32,
}

impl Hearing {
    /// Of a recording.
    pub fn new(inner: Box<dyn Events>, heard: Heard) -> Self {
        Hearing { inner, heard, last: 0 }
    }
}

/// Processes that are heard of at most.
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
