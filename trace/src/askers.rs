//! Which process made a request that another one issued to the device?
//!
//! A process queues a request (`Queue`), and often a kernel thread issues it to the device (`Issue`) a little later,
//! under its own name. This module matches the two by their location, so that the request belongs to the process.
//! Requests of kernel threads themselves get a descriptive name: [`WRITEBACK`] for pages that processes made dirty long
//! ago, with the file if known, or [`KERNEL`]. A flush that the kernel derives from a durable write belongs to the
//! process of the last such write.
//!
//! Left out: the inode of a writeback, which the block layer does not know and the readers learn from other
//! tracepoints, and the owners of merged bios: a request belongs to the owner of its first sector.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::block::{Action, Event, Events, Flags, Op};
use crate::names::files::{Writeback, Written};
use crate::writeback::works_for_anybody;
use crate::{Names, Process, TraceError};

pub use crate::names::files::WRITEBACK;

/// Name for other requests of kernel threads that work for everyone.
pub const KERNEL: &str = "<kernel>";

/// Least number of remembered bios; the most is twice as many.
const REMEMBERED: usize = 1 << 15;
/// Bios searched for one that contains a sector, the nearest beginning before it first.
const LOOK: usize = 16;

/// Location of a bio: major number and sector. A bio may name a partition where the request names the disk, with the
/// sector counted on the disk. So the minor number is left out; if two disks of one driver use the same sector at the
/// same time, the later bio wins.
type Place = (u32, u64);

/// A queued bio.
#[derive(Debug, Clone, Copy)]
struct Bio {
    ends: u64,
    /// Increasing with time.
    number: u64,
    by: Process,
}

/// Matches processes and requests.
#[derive(Debug, Default)]
pub struct Askers {
    names: Names,
    /// Recent bios, and older ones.
    young: BTreeMap<Place, Bio>,
    old: BTreeMap<Place, Bio>,
    number: u64,
    /// The last process whose request to a driver's disks needs a flush, which the kernel issues for it.
    durable: FxHashMap<u32, Process>,
}

/// Chooses the name of a file whose pages are written.
pub trait Called: Send {
    /// Its name.
    fn called(&mut self, written: &Written, names: &Names) -> String;
}

/// Names files by number.
#[derive(Debug, Default)]
pub struct ByNumber;

impl Called for ByNumber {
    fn called(&mut self, written: &Written, _: &Names) -> String {
        written.text()
    }
}

/// The latest bio that contains the sector. If a bio was too long for one request, a request begins inside it.
fn asked(bios: &BTreeMap<Place, Bio>, (major, sector): Place) -> Option<Bio> {
    let before = bios.range((major, 0)..=(major, sector)).rev().take(LOOK);
    before.map(|(_, bio)| *bio).filter(|bio| bio.ends > sector).max_by_key(|bio| bio.number)
}

impl Askers {
    /// Names of the processes in events returned by [`attribute`](Self::attribute).
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The process that queued an issued request, if known.
    fn asker(&self, issue: &Event, name: &str) -> Option<Process> {
        let place = (issue.device.major, issue.sector);
        match issue.op {
            Op::Flush if works_for_anybody(name) => self.durable.get(&place.0).copied(),
            Op::Flush => None,
            _ => asked(&self.young, place).or_else(|| asked(&self.old, place)).map(|bio| bio.by),
        }
    }

    /// Remembers a queued bio.
    fn remember(&mut self, queue: &Event) {
        let Event { op, flags, sector, sectors, device, process, .. } = *queue;
        if op == Op::Flush || flags.intersects(Flags::PREFLUSH | Flags::FUA) {
            self.durable.insert(device.major, process);
        }
        if sectors == 0 {
            return;
        }
        if self.young.len() == REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        self.number += 1;
        let bio = Bio { ends: sector.saturating_add(sectors), number: self.number, by: process };
        self.young.insert((device.major, sector), bio);
    }

    /// Returns the event with the process that made the request. `names` has the event's names, and `called` names
    /// files.
    pub fn attribute(&mut self, mut event: Event, names: &Names, called: &mut dyn Called) -> Event {
        let name = names.name(event.process);
        let asker = if event.action == Action::Issue { self.asker(&event, name) } else { None };
        event.process = asker.unwrap_or_else(|| self.resolve(&event, names, called));
        if event.action == Action::Queue {
            self.remember(&event);
        }
        event
    }

    /// The process of an event, or a descriptive name in its place.
    fn resolve(&mut self, event: &Event, names: &Names, called: &mut dyn Called) -> Process {
        let name = names.name(event.process);
        if !works_for_anybody(name) {
            return self.names.number(name.as_bytes());
        }
        // Reads during writeback are made to find free space for it.
        if let Some(written) = names.files.written(event.writing) {
            let writeback = Writeback::new(written, called.called(written, names), names);
            if let Some(process) = self.names.number_of_writeback(&writeback) {
                return process;
            }
        }
        let writes = matches!(event.op, Op::Write | Op::WriteZeroes);
        let background = writes && !event.flags.intersects(Flags::SYNC | Flags::FUA | Flags::META);
        self.names.number(if background { WRITEBACK } else { KERNEL }.as_bytes())
    }
}

/// A recording whose requests belong to the processes that queued them.
pub struct Attributed {
    inner: Box<dyn Events>,
    askers: Askers,
}

impl Attributed {
    /// Wraps a recording.
    pub fn new(inner: Box<dyn Events>) -> Self {
        Attributed { inner, askers: Askers::default() }
    }
}

impl Events for Attributed {
    crate::passes_on!(inner: format, timed, other_counts, consumed, device, timing);

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        let Some(event) = self.inner.next()? else { return Ok(None) };
        Ok(Some(self.askers.attribute(event, self.inner.names(), &mut ByNumber)))
    }
    fn names(&self) -> &Names {
        self.askers.names()
    }
}

/// A recording in which requests that write back a file are named after it; all others keep their process. A recording
/// without file information is not changed.
pub struct WithFiles {
    inner: Box<dyn Events>,
    askers: Askers,
    /// `None` before the first file; then the names so far, by number, and all later ones.
    names: Option<Names>,
}

impl WithFiles {
    /// Wraps a recording.
    pub fn new(inner: Box<dyn Events>) -> Self {
        WithFiles { inner, askers: Askers::default(), names: None }
    }
}

impl Events for WithFiles {
    crate::passes_on!(inner: format, timed, other_counts, consumed, device, timing);

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        let Some(mut event) = self.inner.next()? else { return Ok(None) };
        let theirs = self.inner.names();
        if self.names.is_none() && theirs.files.written(event.writing).is_none() {
            return Ok(Some(event));
        }
        let names = self.names.get_or_insert_with(|| theirs.clone());
        let heard = self.askers.attribute(event, theirs, &mut ByNumber);
        let file = self.askers.names().writeback(heard.process);
        let file = file.and_then(|writeback| names.number_of_writeback(writeback));
        event.process = file.unwrap_or_else(|| names.number(theirs.name(event.process).as_bytes()));
        Ok(Some(event))
    }
    fn names(&self) -> &Names {
        self.names.as_ref().unwrap_or_else(|| self.inner.names())
    }
}

#[cfg(test)]
mod tests {
    use crate::names::files::Writing;

    use super::*;
    use crate::block::DeviceId;

    fn event(action: Action, minor: u32, op: Op, flags: Flags, sector: u64) -> Event {
        let (device, process, writing) = (DeviceId { major: 8, minor }, Process::default(), Writing::default());
        Event {
            time: 0,
            action,
            op,
            flags,
            sector,
            sectors: 8,
            device,
            cpu: 0,
            pid: 0,
            process,
            took: None,
            error: 0,
            writing,
            from: None,
        }
    }

    fn who(askers: &mut Askers, event: Event, name: &str) -> String {
        let mut names = Names::default();
        let process = names.number(name.as_bytes());
        let heard = askers.attribute(Event { process, ..event }, &names, &mut ByNumber);
        askers.names().name(heard.process).to_owned()
    }

    #[test]
    fn a_request_belongs_to_the_process_that_queued_it_on_the_disk_or_its_partition() {
        let mut askers = Askers::default();
        let read = |action, minor, sector| event(action, minor, Op::Read, Flags::empty(), sector);
        assert_eq!(who(&mut askers, read(Action::Queue, 1, 80), "cat"), "cat");
        assert_eq!(who(&mut askers, read(Action::Issue, 0, 80), "kworker/1:1H"), "cat");
        // The second half of a bio that was too long, and what is beyond its end.
        assert_eq!(who(&mut askers, read(Action::Issue, 0, 84), "kworker/1:1H"), "cat");
        assert_eq!(who(&mut askers, read(Action::Issue, 0, 88), "kworker/1:1H"), KERNEL);
        // A later bio for part of it wins.
        assert_eq!(who(&mut askers, read(Action::Queue, 1, 76), "tar"), "tar");
        assert_eq!(who(&mut askers, read(Action::Issue, 0, 80), "kworker/1:1H"), "tar");
        assert_eq!(who(&mut askers, read(Action::Issue, 0, 84), "kworker/1:1H"), "cat");
        assert_eq!(who(&mut askers, read(Action::Issue, 0, 160), "dd"), "dd");
    }

    #[test]
    fn a_flush_that_the_kernel_makes_of_a_write_is_whose_the_write_is() {
        let mut askers = Askers::default();
        let flush = Event { sectors: 0, ..event(Action::Issue, 0, Op::Flush, Flags::empty(), 0) };
        assert_eq!(who(&mut askers, flush, "kworker/0:1H"), KERNEL);
        who(&mut askers, event(Action::Queue, 1, Op::Write, Flags::PREFLUSH | Flags::SYNC, 8), "jbd2/sda1-8");
        who(&mut askers, event(Action::Queue, 1, Op::Write, Flags::SYNC, 64), "dd");
        assert_eq!(who(&mut askers, flush, "kworker/0:1H"), "jbd2/sda1-8");
        assert_eq!(who(&mut askers, flush, "sync"), "sync");
    }

    #[test]
    fn requests_of_kernel_threads_have_descriptive_names() {
        let mut askers = Askers::default();
        let write = |action, flags| event(action, 0, Op::Write, flags, 8);
        assert_eq!(who(&mut askers, write(Action::Queue, Flags::empty()), "kworker/u4:2"), WRITEBACK);
        assert_eq!(who(&mut askers, write(Action::Issue, Flags::empty()), "dd"), WRITEBACK);
        assert_eq!(who(&mut askers, write(Action::Queue, Flags::META), "kworker/u4:2"), KERNEL);
        assert_eq!(who(&mut askers, write(Action::Queue, Flags::empty()), "kworkers"), "kworkers");
    }

    #[test]
    fn a_writeback_is_named_after_the_inode_and_its_dirtying_processes() {
        let (mut askers, mut names) = (Askers::default(), Names::default());
        let kworker = names.number(b"kworker/u4:2");
        let by = vec![names.number(b"dd"), names.number(b"cp")];
        let place = names.files.place_of((8, 0));
        let written = Written { device: (8, 1), place, ino: 12, by, more: false };
        let writing = names.files.writing(written.clone());
        let of = names.files.writing(Written { ino: 8 << 20 | 1, by: Vec::new(), more: true, ..written });
        let mut heard = |action, minor, sector, writing, process| {
            let event = Event { writing, process, ..event(action, minor, Op::Write, Flags::SYNC, sector) };
            let heard = askers.attribute(event, &names, &mut ByNumber);
            let writeback = askers.names().writeback(heard.process).map(|w| (w.file.clone(), w.by.clone()));
            (askers.names().name(heard.process).to_owned(), writeback)
        };
        let by = vec!["cp".to_owned(), "dd".to_owned()];
        let expected = ("<writeback> inode 12 of 8,1 (cp, dd)".to_owned(), Some(("inode 12 of 8,1".to_owned(), by)));
        assert_eq!(heard(Action::Queue, 1, 80, writing, kworker), expected);
        assert_eq!(heard(Action::Issue, 0, 80, Writing::default(), kworker), expected);
        assert_eq!(heard(Action::Queue, 1, 800, of, kworker).0, "<writeback> blocks of 8,1");
        // A process that waits for the write is charged for it.
        let process = names.number(b"sync");
        let event = Event { writing, process, ..event(Action::Queue, 1, Op::Write, Flags::SYNC, 8) };
        assert_eq!(askers.attribute(event, &names, &mut ByNumber).process, askers.names.number(b"sync"));
    }

    #[test]
    fn requests_that_are_never_issued_are_forgotten() {
        let mut askers = Askers::default();
        for n in 0..5 * REMEMBERED as u64 {
            who(&mut askers, event(Action::Queue, 0, Op::Read, Flags::empty(), n), "cat");
            assert!(askers.young.len() <= REMEMBERED && askers.old.len() <= REMEMBERED);
        }
    }

    /// A recording that has ended, except for its timing.
    #[derive(Default)]
    struct Late(Names, crate::OtherCounts);

    impl Events for Late {
        fn format(&self) -> crate::Format {
            crate::Format::Ftrace
        }
        fn next(&mut self) -> Result<Option<Event>, crate::TraceError> {
            Ok(None)
        }
        fn names(&self) -> &Names {
            &self.0
        }
        fn other_counts(&self) -> &crate::OtherCounts {
            &self.1
        }
        fn consumed(&self) -> u64 {
            0
        }
        fn timing(&self) -> crate::timing::Timing {
            crate::timing::Timing { late: 3, ..Default::default() }
        }
    }

    #[test]
    fn timing_of_a_recording_is_passed_on() {
        assert_eq!(Attributed::new(Box::new(Late::default())).timing().late, 3);
        assert_eq!(WithFiles::new(Box::new(Late::default())).timing().late, 3);
    }
}
