//! How is a recording read that consists of several files?
//!
//! Requests are merged by time: files by processor or disk become one recording, and files that do not overlap follow
//! each other. Their times must be those of one clock. Devices and processes with the same name are the same. Which files
//! the kernel wrote back is left out: these names belong to one file.
//!
//! The text of calls is read one file after the other, in the order of the first call, because descriptors and unfinished
//! calls continue in the next file. Files by process (`strace -ff`) must be merged by `strace-log-merge`.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use crate::block::{DeviceId, Event, Events};
use crate::names::count_many;
use crate::opened::Opened;
use crate::recognise::{files_of, open_input, open_one};
use crate::{At, Format, Input, Names, Options, OtherCounts, Process, TraceError};

/// Opens a recording and its further files.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Opened, TraceError> {
    let mut parts = Vec::new();
    let mut calls = Vec::new();
    for path in distinct(path, &options.further) {
        match open_one(&path, options)? {
            Opened::Blocks(events) => parts.push(Part::new(events)),
            Opened::Calls(mut recorded) if matches!(recorded.format(), Format::Strace | Format::Mobibench) => {
                let first = recorded.next()?.map_or(u64::MAX, |call| call.time);
                calls.push((first, path));
            }
            other => return Err(unsupported(&path, other.format(), "its files are not joined")),
        }
    }
    if let (Some(_), Some((_, path))) = (parts.first(), calls.first()) {
        return Err(unsupported(path, Format::Strace, "a recording of calls is not joined with one of block devices"));
    }
    if calls.is_empty() {
        return Ok(Opened::Blocks(Box::new(Joined::new(parts))));
    }
    if let Some((_, path)) = calls.iter().find(|(_, path)| path.as_os_str() == "-") {
        return Err(unsupported(path, Format::Strace, "standard input cannot be one of several files of calls"));
    }
    calls.sort_by_key(|(first, _)| *first);
    let inputs = calls.iter().map(|(_, path)| Input::open(path)).collect::<Result<_, _>>()?;
    open_input(Input::chain(inputs)?.strict(options.strict))
}

fn unsupported(path: &Path, format: Format, what: &str) -> TraceError {
    TraceError::Unsupported { path: path.to_owned(), format, at: At::Byte(0), what: what.into() }
}

/// The paths without those that another one opens, too: blktrace's files by processor.
fn distinct(path: &Path, further: &[PathBuf]) -> Vec<PathBuf> {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (mut opened, mut all): (Vec<PathBuf>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    for path in std::iter::once(path).chain(further.iter().map(PathBuf::as_path)) {
        if !opened.contains(&real(path)) {
            opened.extend(files_of(path).iter().map(|file| real(file)));
            all.push(path.to_owned());
        }
    }
    all
}

/// One file.
struct Part {
    events: Box<dyn Events>,
    next: Option<Event>,
    /// Numbers here by numbers there.
    processes: FxHashMap<Process, Process>,
    devices: FxHashMap<DeviceId, DeviceId>,
}

impl Part {
    fn new(events: Box<dyn Events>) -> Self {
        Part { events, next: None, processes: FxHashMap::default(), devices: FxHashMap::default() }
    }
}

/// Files of requests as one recording.
struct Joined {
    parts: Vec<Part>,
    names: Names,
    others: OtherCounts,
    device_names: FxHashMap<String, DeviceId>,
    by_number: FxHashMap<DeviceId, String>,
    /// An error after the event that was returned last.
    error: Option<TraceError>,
    begun: bool,
    ended: bool,
}

/// Most devices whose names are remembered; further ones keep the numbers of their file.
const MOST: usize = 1 << 16;

impl Joined {
    fn new(parts: Vec<Part>) -> Self {
        Joined {
            parts,
            names: Names::default(),
            others: OtherCounts::new(),
            device_names: FxHashMap::default(),
            by_number: FxHashMap::default(),
            error: None,
            begun: false,
            ended: false,
        }
    }

    /// Takes the next event of a file.
    fn advance(&mut self, at: usize) -> Result<(), TraceError> {
        let Some(part) = self.parts.get_mut(at) else { return Ok(()) };
        let Some(event) = part.events.next()? else {
            part.next = None;
            return Ok(());
        };
        let process = match part.processes.get(&event.process) {
            Some(known) => *known,
            None => {
                let process = self.names.number(part.events.names().name(event.process).as_bytes());
                part.processes.insert(event.process, process);
                process
            }
        };
        let mut number = |id: DeviceId| match part.devices.get(&id) {
            Some(known) => *known,
            None => {
                let name = part.events.device(id).filter(|_| self.by_number.len() < MOST);
                let number = match &name {
                    None => id,
                    // A number that another name has is replaced.
                    Some(name) => *self.device_names.entry(name.clone()).or_insert_with(|| {
                        let mut free = id;
                        while self.by_number.contains_key(&free) {
                            free.major = free.major.wrapping_add(1);
                        }
                        free
                    }),
                };
                if let Some(name) = name {
                    self.by_number.insert(number, name);
                }
                if part.devices.len() < MOST {
                    part.devices.insert(id, number);
                }
                number
            }
        };
        let device = number(event.device);
        let from = event.from.map(|(id, sector)| (number(id), sector));
        part.next = Some(Event { process, device, from, writing: Default::default(), ..event });
        Ok(())
    }

    fn event(&mut self) -> Result<Option<Event>, TraceError> {
        if !std::mem::replace(&mut self.begun, true) {
            (0..self.parts.len()).try_for_each(|at| self.advance(at))?;
        }
        if let Some(e) = self.error.take() {
            return Err(e);
        }
        let times = self.parts.iter().enumerate().filter_map(|(at, part)| Some((part.next?.time, at)));
        let Some((_, at)) = times.min() else { return Ok(None) };
        let event = self.parts[at].next.take();
        self.error = self.advance(at).err();
        Ok(event)
    }
}

impl Events for Joined {
    fn format(&self) -> Format {
        self.parts.first().map_or(Format::Columns, |part| part.events.format())
    }

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        if self.ended {
            return Ok(None);
        }
        let next = self.event();
        if !matches!(next, Ok(Some(_))) {
            self.ended = true;
            for part in &self.parts {
                part.events.other_counts().iter().for_each(|(name, n)| count_many(&mut self.others, name, *n));
            }
        }
        next
    }

    fn timed(&self) -> bool {
        self.parts.iter().all(|part| part.events.timed())
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn consumed(&self) -> u64 {
        self.parts.iter().map(|part| part.events.consumed()).sum()
    }

    fn device(&self, id: DeviceId) -> Option<String> {
        self.by_number.get(&id).cloned()
    }
}
