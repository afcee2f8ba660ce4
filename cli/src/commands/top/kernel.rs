//! What does the kernel tell of requests to its disks, now?
//!
//! Its block tracepoints, in an instance of tracefs of our own, so that nobody else's tracing is changed: who asks
//! (`block_bio_queue`) and what a disk is given (`block_rq_issue`). The text of `trace_pipe` is read in batches without
//! waiting, and read by the reader of recordings. The instance is removed at the end; those of processes that were
//! killed are removed by the next.
//!
//! Left out: disks whose driver takes bios and no requests (device mapper, md, zram): what they pass on is told of the
//! disks below. A loop device's requests are told of its own and of the disk below: it has no account unless asked for.

use std::fs::{self, File, OpenOptions};
use std::io::{Cursor, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};
use trace::askers::Askers;
use trace::block::{Action, Event};
use trace::requests::{Request, Requests, Seen};
use trace::{At, Format, Input, Opened, TraceError};

use super::line::Line;
use crate::Failure;

/// Where tracefs is mounted.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// What is listened to.
const POINTS: [&str; 2] = ["block_bio_queue", "block_rq_issue"];
/// Kibibytes of events that the kernel keeps for each processor until they are read: some 10,000 events.
const BUFFER: &str = "1024";
/// Bytes taken at a time.
const PAGE: usize = 16 << 10;
/// Bytes of lines that are read together at most.
const TOGETHER: usize = 1 << 20;
/// How late an event may be readable after its time.
const LATE: u64 = 20_000_000;
/// Our instances begin so.
const PREFIX: &str = "joulefs-";

/// The instance; removed when this is dropped.
struct Instance(PathBuf);

impl Drop for Instance {
    fn drop(&mut self) {
        // An error here is not told: the command has its own to tell. The next start removes what stays.
        let _ = fs::remove_dir(&self.0);
    }
}

/// The kernel's events.
pub struct Kernel {
    // Closed before the instance is removed.
    pipe: File,
    instance: Instance,
    askers: Askers,
    line: Line,
    requests: Option<Requests>,
    page: Box<[u8]>,
    /// Lines that were taken and not read, the last of which may be a part.
    rest: Vec<u8>,
    /// The latest moment that was said to be complete.
    told: u64,
    /// Requests whose events came later than that.
    pub late: u64,
    /// Events the kernel had no room for.
    pub lost: u64,
    /// Lines that nobody understands, and the first of them.
    pub strange: (u64, Option<String>),
}

fn named(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |e| match e.kind() {
        ErrorKind::PermissionDenied => {
            let path = path.display();
            format!("{path}: {e}: only root may trace: run it as root, or play a recording with --from FILE").into()
        }
        _ => format!("{}: {e}", path.display()).into(),
    }
}

fn put(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(named(path))
}

/// The directory of tracefs.
fn tracefs() -> Result<PathBuf, Failure> {
    for dir in MOUNTED.map(Path::new) {
        match dir.join("instances").metadata() {
            Ok(_) => return Ok(dir.to_owned()),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return Err(named(dir)(e)),
            Err(_) => {}
        }
    }
    let dir = MOUNTED[0];
    Err(format!(
        "no tracefs at {dir}: `mount -t tracefs tracefs {dir}` as root if this kernel has it (CONFIG_FTRACE), or play a \
         recording with --from FILE"
    )
    .into())
}

/// Removes instances of processes that are gone.
fn sweep(instances: &Path) {
    let Ok(all) = fs::read_dir(instances) else { return };
    for entry in all.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix(PREFIX)).and_then(|n| n.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Now, by the clock that the events have (`mono`).
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Kernel {
    /// Begins to listen.
    pub fn listen() -> Result<Self, Failure> {
        let tracefs = tracefs()?;
        let instances = tracefs.join("instances");
        sweep(&instances);
        let dir = instances.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&dir).map_err(named(&dir))?;
        let instance = Instance(dir.clone());
        if !dir.join("events/block").is_dir() {
            let why = "this kernel tells nothing of its disks (CONFIG_BLK_DEV_IO_TRACE)";
            return Err(format!("{}: {why}: play a recording with --from FILE", tracefs.display()).into());
        }
        put(&dir.join("trace_clock"), "mono")?;
        put(&dir.join("buffer_size_kb"), BUFFER)?;
        for point in POINTS {
            put(&dir.join("events/block").join(point).join("enable"), "1")?;
        }
        let path = dir.join("trace_pipe");
        let flags = OFlags::NONBLOCK.bits() as i32;
        let pipe = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(named(&path))?;
        Ok(Kernel {
            pipe,
            instance,
            askers: Askers::default(),
            line: Line::default(),
            requests: None,
            page: vec![0; PAGE].into(),
            rest: Vec::new(),
            told: 0,
            late: 0,
            lost: 0,
            strange: (0, None),
        })
    }

    /// Names of processes in requests.
    pub fn names(&self) -> &trace::Names {
        self.askers.names()
    }

    /// What disks were asked since the last time, and the moment up to which that is all.
    pub fn requests(&mut self, mut take: impl FnMut(Request, &trace::Names)) -> Result<u64, Failure> {
        let until = now().saturating_sub(LATE).max(self.told);
        loop {
            // The kernel gives a page at a time; its lines are read together.
            match self.pipe.read(&mut self.page) {
                Ok(0) => break,
                Ok(got) => {
                    self.rest.extend_from_slice(&self.page[..got]);
                    if self.rest.len() >= TOGETHER {
                        self.lines()?;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(named(&self.instance.0.join("trace_pipe"))(e)),
            }
        }
        self.lines()?;
        while let Some(seen) = self.next()? {
            if let Seen::Asked(request) = seen {
                self.late += u64::from(request.time < self.told);
                take(request, self.askers.names());
            }
        }
        self.told = until;
        Ok(until)
    }

    fn next(&mut self) -> Result<Option<Seen>, Failure> {
        if self.requests.is_none() {
            if self.line.is_empty() {
                return Ok(None);
            }
            // There is an event to look at, and every event in the line is an issue.
            self.requests = Some(Requests::new(Box::new(self.line.clone())));
        }
        self.requests.as_mut().map_or(Ok(None), Requests::seen).map_err(|e| e.to_string().into())
    }

    /// Takes the whole lines out of what was read.
    fn lines(&mut self) -> Result<(), Failure> {
        let Some(end) = self.rest.iter().rposition(|b| *b == b'\n') else { return Ok(()) };
        let rest = self.rest.split_off(end + 1);
        let text = std::mem::replace(&mut self.rest, rest);
        let mut from = 0;
        while let Some(strange) = self.events(&text[from..])? {
            let mut ends = text[from..].iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
            let begins = if strange < 2 { 0 } else { ends.nth(strange - 2).unwrap_or(0) };
            let length = text[from + begins..].iter().position(|b| *b == b'\n').map_or(text.len(), |at| at + 1);
            let line = &text[from + begins..(from + begins + length).min(text.len())];
            self.strange.0 += 1;
            self.strange.1.get_or_insert_with(|| String::from_utf8_lossy(line).trim().to_owned());
            from = (from + begins + length).min(text.len());
        }
        Ok(())
    }

    /// Reads lines; the number of the first, from 1, that nobody understands, after which nothing was read.
    fn events(&mut self, text: &[u8]) -> Result<Option<usize>, Failure> {
        if text.is_empty() {
            return Ok(None);
        }
        // So that it is recognised whatever its first line is.
        let text = [b"# tracer: nop\n", text].concat();
        let input = Input::new(&self.instance.0.join("trace_pipe"), Cursor::new(text)).map_err(|e| e.to_string())?;
        let mut events = match trace::open_input(input).map_err(|e| e.to_string())? {
            Opened::Blocks(events) if events.format() == Format::Ftrace => events,
            other => return Err(format!("the kernel's events look like {}", other.format()).into()),
        };
        let strange = loop {
            match events.next() {
                Ok(Some(event)) => {
                    let event = self.askers.hear(event, events.names().name(event.process));
                    self.issued(event);
                }
                Ok(None) => break None,
                Err(TraceError::Damaged { at: At::Line(n), .. }) => break Some((n as usize).saturating_sub(1).max(1)),
                Err(e) => return Err(e.to_string().into()),
            }
        };
        let lost = events.others().iter().filter(|(what, _)| what.starts_with("lost events"));
        self.lost += lost.map(|(_, n)| n).sum::<u64>();
        Ok(strange)
    }

    fn issued(&mut self, event: Event) {
        if event.action == Action::Issue {
            self.line.push(event);
        }
    }
}
