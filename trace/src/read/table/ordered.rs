//! How are requests that are recorded at their end returned in the order of their start?
//!
//! Up to 1,024 are held back: a request that took longer than the next 1,024 is late.

use std::collections::BTreeMap;

use crate::TraceError;
use crate::block::{Event, Events};

/// Most requests held back.
const HELD: usize = 1024;

/// A recording in the order of starts.
pub(super) struct Ordered<E> {
    inner: E,
    /// By start and number.
    held: BTreeMap<(u64, u64), Event>,
    read: u64,
    /// The result after the last request.
    end: Option<Result<(), TraceError>>,
}

impl<E: Events> Ordered<E> {
    pub(super) fn new(inner: E) -> Self {
        Ordered { inner, held: BTreeMap::new(), read: 0, end: None }
    }
}

impl<E: Events> Events for Ordered<E> {
    crate::passes_on!(inner: all);

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        while self.end.is_none() && self.held.len() < HELD {
            match self.inner.next() {
                Ok(Some(event)) => {
                    self.read += 1;
                    self.held.insert((event.time, self.read), event);
                }
                Ok(None) => self.end = Some(Ok(())),
                Err(e) => self.end = Some(Err(e)),
            }
        }
        match self.held.pop_first() {
            Some((_, event)) => Ok(Some(event)),
            None => self.end.replace(Ok(())).unwrap_or(Ok(())).map(|()| None),
        }
    }
}
