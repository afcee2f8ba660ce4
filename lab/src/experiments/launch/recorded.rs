//! What is recorded of a launch, and how long did its program compute in between?
//!
//! Recordings contain calls to a file system, as a kernel made them ([`record::calls`]). Lookups of two missing names
//! in the root mark when the program started and when its window showed its first picture; the second name includes the
//! CPU time until then. Left out: the calling process, which is not recorded, so all of a program's processes count as
//! one.

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
/// The files to install.
const FILES: &[u8] = include_bytes!("../../../../experiments/fagc-fig6/files.zst");
/// Looked up when the program starts.
const START: &[u8] = b".start";
/// Looked up when its window shows its first picture, followed by milliseconds.
const WINDOW: &[u8] = b".window-";

/// The files to install on the volume.
pub(super) fn files() -> Result<Vec<Listed>, LabError> {
    let failed = |e: &dyn std::fmt::Display| LabError::parameters(format!("files.zst: {e}"));
    let mut text = String::new();
    let mut input = Input::new(Path::new("files.zst"), Cursor::new(FILES)).map_err(|e| failed(&e))?;
    input.read_to_string(&mut text).map_err(|e| failed(&e))?;
    installed::parse(&text).map_err(|e| failed(&e))
}

/// A recorded launch.
#[derive(Debug)]
pub(super) struct Launch {
    /// The recorded root's inode number.
    pub root: Ino,
    /// Its calls, in order of completion.
    pub events: Vec<Event>,
    /// Index of the first call after the program's start.
    pub start: usize,
    /// Index of the first call after the window's first picture.
    pub window: usize,
    /// CPU time until then, in nanoseconds.
    pub worked: u64,
}

impl Launch {
    /// Finds a shipped launch.
    pub fn find(name: &str) -> Result<Self, LabError> {
        let failed = |e: &dyn std::fmt::Display| LabError::parameters(format!("recording {name}: {e}"));
        let Some((_, bytes)) = SHIPPED.iter().find(|(n, _)| *n == name) else {
            let known: Vec<_> = SHIPPED.iter().map(|(n, _)| *n).collect();
            return Err(failed(&format!("shipped are {}", known.join(", "))));
        };
        let input = Input::new(Path::new(name), Cursor::new(*bytes)).map_err(|e| failed(&e))?;
        let events = Events::new(Reader::new(input).map_err(|e| failed(&e))?).map_err(|e| failed(&e))?;
        let root = events.root();
        // This volume has its own ticks and unmount.
        let own = |e: &Event| matches!(e.call, Call::Tick {} | Call::Unmount {});
        let events: Vec<Event> =
            events.filter(|e| !e.as_ref().is_ok_and(own)).collect::<Result<_, _>>().map_err(|e| failed(&e))?;
        let marked = |mark: &[u8]| {
            let behind = |e: &Event| match &e.call {
                Call::Lookup { parent, name } if *parent == root => name.strip_prefix(mark).map(<[u8]>::to_vec),
                _ => None,
            };
            let found = events.iter().enumerate().find_map(|(n, e)| Some((n, behind(e)?)));
            found.ok_or_else(|| failed(&format!("no look for {:?}", String::from_utf8_lossy(mark))))
        };
        let ((start, _), (window, worked)) = (marked(START)?, marked(WINDOW)?);
        let worked = str::from_utf8(&worked).ok().and_then(|ms| ms.parse::<u64>().ok());
        let worked = worked.ok_or_else(|| failed(&"it does not say how long processors worked"))? * 1_000_000;
        Ok(Launch { root, events, start, window, worked })
    }

    /// Nanoseconds that the program computed before each call, as a part of the time without a call in progress. Until
    /// the window's first picture, the sum is the recorded CPU time.
    pub fn thinking(&self, events: &[Event]) -> Vec<u64> {
        let until_the_window: u64 = self.pauses(&self.events[..self.window]).iter().sum();
        let share = (self.worked as f64 / until_the_window.max(1) as f64).min(1.0);
        self.pauses(events).into_iter().map(|ns| (ns as f64 * share) as u64).collect()
    }

    /// Nanoseconds without a call in progress before each call, from the program's start on.
    fn pauses(&self, events: &[Event]) -> Vec<u64> {
        let mut free = u64::MAX;
        let gap = |(n, event): (usize, &Event)| {
            let ended = event.arrival.saturating_add(event.took);
            let before = event.arrival.saturating_sub(free);
            free = if n < self.start {
                u64::MAX
            } else if free == u64::MAX {
                ended
            } else {
                free.max(ended)
            };
            before
        };
        events.iter().enumerate().map(gap).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn event(arrival: u64, took: u64) -> Event {
        Event { arrival, took, call: Call::Sync {}, answer: Ok(0) }
    }

    fn launch(worked: u64) -> Launch {
        // The second call begins while the first is in progress, the last two after the window.
        let events =
            [(0, 5), (100, 50), (120, 10), (200, 10), (260, 40), (300, 1)].map(|(at, took)| event(at, took)).into();
        Launch { root: Ino(3), events, start: 1, window: 5, worked }
    }

    #[test]
    fn a_program_computes_while_no_call_is_under_way_and_as_long_as_processors_worked() {
        let l = launch(1000);
        // Nothing counts before the start; 50 from 150 to 200, and from 210 to 260.
        assert_eq!(l.thinking(&l.events), [0, 0, 0, 50, 50, 0]);
        assert_eq!(launch(40).thinking(&l.events), [0, 0, 0, 20, 20, 0]);
        assert_eq!(launch(40).thinking(&l.events[..4]), [0, 0, 0, 20], "a part is no more of it");
    }

    /// Paths of the files that a launch looked up, by recorded inode numbers.
    fn paths(launch: &Launch) -> BTreeMap<u64, String> {
        let mut paths = BTreeMap::from([(launch.root.0, String::new())]);
        for e in &launch.events {
            let (Call::Lookup { parent, name }, Ok(ino)) = (&e.call, e.answer) else { continue };
            if let Some(above) = paths.get(&parent.0).filter(|_| name != b"." && name != b"..") {
                let path = format!("{above}/{}", String::from_utf8_lossy(name));
                paths.entry(ino).or_insert(path);
            }
        }
        paths
    }

    #[test]
    fn what_a_launch_reads_is_in_the_list_and_as_long() {
        let list = files().unwrap();
        let sizes = installed::sizes(&list);
        for (name, _) in SHIPPED {
            let launch = Launch::find(name).unwrap();
            let paths = paths(&launch);
            let (mut bytes, mut written) = (0, std::collections::BTreeSet::new());
            for e in &launch.events {
                match (&e.call, e.answer) {
                    (Call::Write { ino, .. } | Call::Setattr { ino, .. }, _) => drop(written.insert(*ino)),
                    (Call::Mknod { .. }, Ok(ino)) => drop(written.insert(Ino(ino))),
                    (Call::Read { ino, offset, .. }, Ok(read)) if !written.contains(ino) => {
                        let path = &paths[&ino.0];
                        let size = sizes.get(&path[1..]).unwrap_or_else(|| panic!("{name}: {path} is not in the list"));
                        assert!(offset + read <= *size, "{name}: {path} has {size} bytes, not {}", offset + read);
                        bytes += read;
                    }
                    _ => {}
                }
            }
            assert!(bytes > 20 << 20, "{name}: {bytes} bytes are read");
            let thought: u64 = launch.thinking(&launch.events[..launch.window]).iter().sum();
            assert!(thought.abs_diff(launch.worked) < launch.worked / 100, "{name}: {thought} and {}", launch.worked);
        }
    }
}
