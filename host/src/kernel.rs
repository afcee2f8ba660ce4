//! Which requests does the kernel send to its disks now?
//!
//! Its block tracepoints are read through a private tracefs instance, so that other tracing is not disturbed: the
//! origin of a request (`block_bio_queue`), its issue to a disk (`block_rq_issue`) or its return (`block_rq_requeue`),
//! and the inode that a kernel thread writes meanwhile (`writeback_single_inode`). Events of pages becoming dirty use a
//! second instance: they may be so frequent that they would leave no room for the rest. Buffer pages are read as they
//! are, a few times a second or when a buffer is partly full.
//!
//! Left out: disks whose driver takes bios and no requests (device mapper, md, zram): their I/O appears on the disks
//! below. A loop device's requests appear on it and on the disk below, so it has no account unless requested.

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

/// Maximum delay before an event becomes readable, in nanoseconds.
const LATE: u64 = 20_000_000;
/// Per-CPU buffer for block events in KiB: some 15,000 events.
const BUFFER: u32 = 1024;
/// Per-CPU buffer for events of dirty pages in KiB; its size bounds the time of reading them.
const DIRTY_BUFFER: u32 = 512;
/// Maximum interval between reads of the buffers.
const STEP: Duration = Duration::from_millis(250);

/// The block tracepoints.
const BLOCK: [(&str, &str); 3] =
    [("block", "block_bio_queue"), ("block", "block_rq_issue"), ("block", "block_rq_requeue")];
const WRITING: [(&str, &str); 2] =
    [("writeback", "writeback_single_inode_start"), ("writeback", "writeback_single_inode")];
/// The name since Linux 5.18, and the one before.
const PAGES: [(&str, &str); 2] = [("writeback", "writeback_dirty_folio"), ("writeback", "writeback_dirty_page")];
const FILES: (&str, &str) = ("writeback", "writeback_dirty_inode_enqueue");

/// How to attribute pages that are written in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writeback {
    /// By file, and to every process that dirtied its pages: one event per page.
    Pages,
    /// By file, and to the process that dirtied it first: one event per file.
    Files,
    /// Not at all.
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
    /// End of the latest period reported as complete.
    told: u64,
    /// Requests whose events came after that.
    pub late: u64,
    /// Events lost because a buffer was full.
    pub lost: u64,
    /// The same for events of dirty pages.
    pub lost_dirty: u64,
    /// Number of buffer pages with something unknown, and the first such message.
    pub strange: (u64, Option<String>),
}

/// Current time by the clock of the events (`mono`).
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Kernel {
    /// Starts tracing. `shown` formats a path.
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
            // Kernels without writeback tracepoints give less detail.
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

    /// Waits until buffers should be read: at most `most`, less if a signal comes.
    pub fn wait(&self, most: Duration) {
        self.blocks.wait(most.min(STEP));
    }

    /// The requests since the last call, and the time up to which they are complete.
    pub fn requests(&mut self, mut take: impl FnMut(Request, &trace::Names)) -> Result<u64, HostError> {
        let until = now().saturating_sub(LATE).max(self.told);
        // Order matters: for events at the same time, dirtying a page comes before writing it.
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
        // Both consumers need the dirty pages, and the paths for later requests.
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
            // Created when an event is available: `Requests::new` looks at the first events.
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
