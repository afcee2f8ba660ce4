//! How is a recording restricted to some of its devices?

use rustc_hash::FxHashMap;

use crate::TraceError;
use crate::block::{DeviceId, Event, Events};

/// Devices, by number or by the recording's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// By number.
    pub numbers: Vec<DeviceId>,
    /// By name.
    pub names: Vec<String>,
}

impl Devices {
    /// True if the device is included.
    pub fn has(&self, id: DeviceId, name: Option<&str>) -> bool {
        self.numbers.contains(&id) || name.is_some_and(|name| self.names.iter().any(|n| n == name))
    }

    /// True if no device is included.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.names.is_empty()
    }
}

/// A recording restricted to some devices.
pub struct Only {
    inner: Box<dyn Events>,
    wanted: Devices,
    known: FxHashMap<DeviceId, bool>,
}

/// Most cached devices; for others each event is tested again.
const MOST: usize = 1 << 12;

impl Only {
    /// Restricts a recording.
    pub fn new(inner: Box<dyn Events>, wanted: Devices) -> Self {
        Only { inner, wanted, known: FxHashMap::default() }
    }

    fn wants(&mut self, id: DeviceId) -> bool {
        if let Some(known) = self.known.get(&id) {
            return *known;
        }
        let wants = self.wanted.has(id, self.inner.device(id).as_deref());
        if self.known.len() < MOST {
            self.known.insert(id, wants);
        }
        wants
    }
}

impl Events for Only {
    crate::passes_on!(inner: all);

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        while let Some(event) = self.inner.next()? {
            if self.wants(event.device) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}
