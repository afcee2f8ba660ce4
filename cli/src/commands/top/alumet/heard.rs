//! Which process of a recording has which number?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trace::block::{DeviceId, Event, Events};
use trace::timing::Timing;
use trace::{Format, Names, Others, TraceError};

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
    fn format(&self) -> Format {
        self.inner.format()
    }
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
    fn timed(&self) -> bool {
        self.inner.timed()
    }
    fn names(&self) -> &Names {
        self.inner.names()
    }
    fn others(&self) -> &Others {
        self.inner.others()
    }
    fn consumed(&self) -> u64 {
        self.inner.consumed()
    }
    fn device(&self, id: DeviceId) -> Option<String> {
        self.inner.device(id)
    }
    fn timing(&self) -> Timing {
        self.inner.timing()
    }
}
