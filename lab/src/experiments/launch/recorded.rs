//! What is recorded of a launch, and how long did its program compute in between?
//!
//! Recordings are of calls to a file system, as a kernel made them ([`record::calls`]). Looks for two names in the root, which
//! are not there, say when the program was started and when its window had its first picture. Left out: who called, which is not
//! recorded, so that all of the program's processes are one.

use std::io::{Cursor, Read};
use std::path::Path;

use record::Reader;
use record::calls::{Call, Event, Events};
use trace::Input;
use vfs::Ino;

use crate::error::LabError;
use crate::installed::{self, Listed};

macro_rules! shipped {
    ($($name:literal),*) => {
        &[$(($name, include_bytes!(concat!("../../../../experiments/fagc-fig6/", $name, ".rec.zst")))),*]
    };
}

/// Recordings by name.
const SHIPPED: &[(&str, &[u8])] = shipped!["browser", "game", "office", "video", "chat"];
/// What is installed.
const FILES: &[u8] = include_bytes!("../../../../experiments/fagc-fig6/files.zst");
/// Looked for when the program is started.
const START: &[u8] = b".start";
/// Looked for when its window has its first picture.
const WINDOW: &[u8] = b".window";

/// What is installed on the volume.
pub(super) fn files() -> Result<Vec<Listed>, LabError> {
    let failed = |e: &dyn std::fmt::Display| LabError::Parameters(format!("files.zst: {e}"));
    let mut text = String::new();
    let mut input = Input::new(Path::new("files.zst"), Cursor::new(FILES)).map_err(|e| failed(&e))?;
    input.read_to_string(&mut text).map_err(|e| failed(&e))?;
    installed::parse(&text).map_err(|e| failed(&e))
}

/// A recorded launch.
#[derive(Debug)]
pub(super) struct Launch {
    /// The number of the recorded root.
    pub root: Ino,
    /// Its calls, in the order in which they were done.
    pub events: Vec<Event>,
    /// Which of them came first after the program was started.
    pub start: usize,
    /// Which of them came first after its window had its first picture.
    pub window: usize,
}

impl Launch {
    /// A shipped one.
    pub fn find(name: &str) -> Result<Self, LabError> {
        let failed = |e: &dyn std::fmt::Display| LabError::Parameters(format!("recording {name}: {e}"));
        let Some((_, bytes)) = SHIPPED.iter().find(|(n, _)| *n == name) else {
            let known: Vec<_> = SHIPPED.iter().map(|(n, _)| *n).collect();
            return Err(failed(&format!("shipped are {}", known.join(", "))));
        };
        let input = Input::new(Path::new(name), Cursor::new(*bytes)).map_err(|e| failed(&e))?;
        let events = Events::new(Reader::new(input).map_err(|e| failed(&e))?).map_err(|e| failed(&e))?;
        let root = events.root();
        // Time and the end of the mount are this one's own.
        let own = |e: &Event| matches!(e.call, Call::Tick {} | Call::Unmount {});
        let events: Vec<Event> = events.filter(|e| !e.as_ref().is_ok_and(own)).collect::<Result<_, _>>().map_err(|e| failed(&e))?;
        let marked = |mark: &[u8]| {
            let looks = |e: &Event| matches!(&e.call, Call::Lookup { parent, name } if *parent == root && name == mark);
            events.iter().position(looks).ok_or_else(|| failed(&format!("no look for {:?}", String::from_utf8_lossy(mark))))
        };
        let (start, window) = (marked(START)?, marked(WINDOW)?);
        Ok(Launch { root, events, start, window })
    }

    /// How many nanoseconds the program computed before each of these calls: as long as no call was under way, from its
    /// start on.
    pub fn thinking(&self, events: &[Event]) -> Vec<u64> {
        let mut free = u64::MAX;
        let gap = |(n, event): (usize, &Event)| {
            let ended = event.arrival.saturating_add(event.took);
            let before = event.arrival.saturating_sub(free);
            free = if n < self.start { u64::MAX } else if free == u64::MAX { ended } else { free.max(ended) };
            before
        };
        events.iter().enumerate().map(gap).collect()
    }
}
