//! What does the kernel tell of requests to its disks, now?
//!
//! Its block tracepoints, in an instance of tracefs of our own, so that nobody else's tracing is changed: who asks
//! (`block_bio_queue`), what a disk is given (`block_rq_issue`) or sent back (`block_rq_requeue`), and which inode a thread of the kernel writes meanwhile
//! (`writeback_single_inode`). Who makes pages dirty is told in a second instance: so many of these events may come that
//! they would leave no room for the others. The kernel's pages are taken as they lie in its buffers, a few times a second or
//! when a buffer is filled in part.
//!
//! Left out: disks whose driver takes bios and no requests (device mapper, md, zram): what they pass on is told of the
//! disks below. A loop device's requests are told of its own and of the disk below: it has no account unless asked for.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use trace::block::Action;
use trace::read::buffers::Buffers;
use trace::requests::{Request, Requests, Seen};

use crate::HostError;
use crate::instance::{Instance, Taken, tracefs};
use crate::line::Line;
use crate::paths::Paths;
use crate::who::Who;
use trace::askers::Askers;

/// How late an event may be readable after its time.
const LATE: u64 = 20_000_000;
/// Kibibytes of each processor's buffer for what disks are asked: some 15,000 events.
const BUFFER: u32 = 1024;
/// The same for who makes pages dirty, which bounds what reading it costs.
const DIRTY_BUFFER: u32 = 512;
/// How often buffers are emptied, at least.
const STEP: Duration = Duration::from_millis(250);

/// What is listened to.
const BLOCK: [(&str, &str); 3] =
    [("block", "block_bio_queue"), ("block", "block_rq_issue"), ("block", "block_rq_requeue")];
const WRITING: [(&str, &str); 2] =
    [("writeback", "writeback_single_inode_start"), ("writeback", "writeback_single_inode")];
/// Either, before or since Linux 5.18.
const PAGES: [(&str, &str); 2] = [("writeback", "writeback_dirty_folio"), ("writeback", "writeback_dirty_page")];
const FILES: (&str, &str) = ("writeback", "writeback_dirty_inode_enqueue");

/// How to attribute pages that are written in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writeback {
    /// By file, and to every process that dirtied its pages: one event per page.
    Pages,
    /// By file, and to the process that dirtied it first: one event per file.
    Files,
    /// Nothing.
    Off,
}

/// The kernel's events.
pub struct Kernel {
    blocks: Instance,
    dirty: Option<Instance>,
    buffers: Buffers,
    who: Who,
    paths: Paths,
    askers: Askers,
    line: Line,
    requests: Option<Requests>,
    /// The latest moment that was said to be complete.
    told: u64,
    /// Requests whose events came later than that.
    pub late: u64,
    /// Events the kernel had no room for.
    pub lost: u64,
    /// The same of pages that became dirty.
    pub lost_dirty: u64,
    /// Pages of events in which something is not understood, and the first of that.
    pub strange: (u64, Option<String>),
}

/// Now, by the clock that the events have (`mono`).
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Kernel {
    /// Begins to listen. `shown` is how a path is written.
    pub fn listen(writeback: Writeback, shown: fn(&str) -> String) -> Result<Self, HostError> {
        let tracefs = tracefs()?;
        let mut blocks = Instance::create(&tracefs, "")?;
        if !blocks.has(BLOCK[0]) {
            let why = "this kernel has no block tracepoints (CONFIG_BLK_DEV_IO_TRACE)";
            return Err(format!("{}: {why}: play a recording with --from FILE", tracefs.display()).into());
        }
        let header = blocks.read("events/header_page")?;
        let mut buffers = Buffers::new(&header).map_err(|what| format!("{}: {what}", tracefs.display()))?;
        blocks.prepare(BUFFER)?;
        for point in BLOCK.into_iter().chain(WRITING.into_iter().filter(|_| writeback != Writeback::Off)) {
            // Kernels without writeback's tracepoints tell less.
            if point.0 == "block" || blocks.has(point) {
                blocks.enable(point, &mut buffers)?;
            }
        }
        let told = match writeback {
            Writeback::Off => None,
            Writeback::Files => Some(FILES),
            Writeback::Pages => PAGES.into_iter().find(|point| blocks.has(*point)),
        };
        let mut dirty = None;
        if let Some(point) = told.filter(|point| blocks.has(*point)) {
            let mut instance = Instance::create(&tracefs, "-dirty")?;
            instance.prepare(DIRTY_BUFFER)?;
            instance.enable(point, &mut buffers)?;
            dirty = Some(instance);
        }
        Ok(Kernel {
            blocks,
            dirty,
            buffers,
            who: Who::new(&tracefs),
            paths: Paths::new(shown),
            askers: Askers::default(),
            line: Line::default(),
            requests: None,
            told: 0,
            late: 0,
            lost: 0,
            lost_dirty: 0,
            strange: (0, None),
        })
    }

    /// Names of processes in requests.
    pub fn names(&self) -> &trace::Names {
        self.askers.names()
    }

    /// Waits until buffers should be emptied: not longer than `most`, and not to the end if a signal comes.
    pub fn wait(&self, most: Duration) {
        self.blocks.wait(most.min(STEP));
    }

    /// What disks were asked since the last time, and the moment up to which that is all.
    pub fn requests(&mut self, mut take: impl FnMut(Request, &trace::Names)) -> Result<u64, HostError> {
        let until = now().saturating_sub(LATE).max(self.told);
        // In this order: of events of one moment, who makes a page dirty comes before who writes it.
        if let Some(dirty) = &mut self.dirty {
            let Taken { lost, strange } = dirty.take(&mut self.buffers)?;
            self.lost_dirty += lost;
            note(&mut self.strange, strange);
        }
        let Taken { lost, strange } = self.blocks.take(&mut self.buffers)?;
        self.lost += lost;
        note(&mut self.strange, strange);
        if lost > 0 {
            self.buffers.forget();
        }
        let Kernel { buffers, who, paths, askers, line, .. } = self;
        who.begin();
        paths.begin();
        // Both need to know what pages become dirty, and of what is given later the paths.
        let paths = std::cell::RefCell::new(paths);
        buffers.before(
            until,
            |dirtied| {
                paths.borrow_mut().dirtied(&dirtied);
                who.name(dirtied.pid)
            },
            |event, names| {
                let mut paths = paths.borrow_mut();
                paths.look_at(&event);
                let event = askers.attribute(event, names, &mut **paths);
                if matches!(event.action, Action::Issue | Action::Requeue) {
                    line.push(event);
                }
            },
        );
        while let Some(seen) = self.next()? {
            if let Seen::Asked(request) = seen {
                self.late += u64::from(request.time < self.told);
                take(request, self.askers.names());
            }
        }
        self.told = until;
        Ok(until)
    }

    fn next(&mut self) -> Result<Option<Seen>, HostError> {
        if self.requests.is_none() {
            if self.line.is_empty() {
                return Ok(None);
            }
            // There is an event to look at, and issues are looked for.
            self.requests = Some(Requests::new(Box::new(self.line.clone())));
        }
        self.requests.as_mut().map_or(Ok(None), Requests::seen).map_err(|e| e.to_string().into())
    }
}

fn note(all: &mut (u64, Option<String>), strange: Vec<String>) {
    for what in strange {
        all.0 += 1;
        all.1.get_or_insert(what);
    }
}
