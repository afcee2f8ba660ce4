//! How is a private tracefs instance created, configured, read and removed?
//!
//! It is removed at the end; instances of killed processes are removed at the next start. (The kernel does not remove
//! an open instance.)

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::clock::{Clock, RealClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use trace::read::buffers::Buffers;

use crate::HostError;

/// Where tracefs is mounted.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Prefix of JouleFS instances.
const PREFIX: &str = "joulefs-";
/// The largest buffer page size that a kernel can be set to, or has by default.
const LARGEST: usize = 64 << 10;
/// Fill level in percent at which a waiting reader is woken.
const FILLED: &str = "25";
/// Polling interval if the kernel does not wake readers.
const BLIND: Duration = Duration::from_millis(100);

/// The instance's directory, removed on drop.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // Errors are ignored: the command reports its own. The next start removes leftovers.
        let _ = fs::remove_dir(&self.0);
    }
}

/// An instance.
pub struct Instance {
    // Closed before the directory is removed.
    pipes: Vec<(u32, File)>,
    dir: Directory,
    page: Box<[u8]>,
    /// The kernel wakes readers when a buffer is partly full.
    wakes: bool,
    /// Total size of all buffers.
    kibibytes: u32,
}

/// Contents read from the buffers.
#[derive(Debug, Default)]
pub struct Taken {
    /// Events lost because a buffer was full.
    pub lost: u64,
    /// Messages about unknown contents, one per affected page.
    pub strange: Vec<String>,
}

fn named(path: &Path) -> impl Fn(std::io::Error) -> HostError {
    move |e| match e.kind() {
        ErrorKind::PermissionDenied => {
            let path = path.display();
            format!(
                "{path}: {e}; only root may trace: run joulefs top as root, or play a recording with --from \
                FILE"
            )
            .into()
        }
        _ => format!("{}: {e}", path.display()).into(),
    }
}

fn write_text(path: &Path, text: &str) -> Result<(), HostError> {
    fs::write(path, text).map_err(named(path))
}

/// The directory of tracefs.
pub fn tracefs() -> Result<PathBuf, HostError> {
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

/// True if the process that created an instance is gone. Its number may have been reused.
fn left_behind(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).map(|rest| rest.split('-').next().unwrap_or(rest));
    let Some(pid) = digits.and_then(|pid| pid.parse::<u32>().ok()) else { return false };
    let comm = |pid: &str| fs::read(Path::new("/proc").join(pid).join("comm")).ok();
    comm(&pid.to_string()).is_none_or(|its| Some(its) != comm("self"))
}

/// Removes the instances of processes that are gone.
fn sweep(instances: &Path) {
    let Ok(all) = fs::read_dir(instances) else { return };
    for entry in all.flatten() {
        if entry.file_name().to_str().is_some_and(left_behind) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Instance {
    /// Creates an instance; `ending` is the end of its name.
    pub fn create(tracefs: &Path, ending: &str) -> Result<Self, HostError> {
        let instances = tracefs.join("instances");
        sweep(&instances);
        let dir = instances.join(format!("{PREFIX}{}{ending}", std::process::id()));
        fs::create_dir(&dir).map_err(named(&dir))?;
        let page = vec![0; LARGEST].into();
        Ok(Instance { pipes: Vec::new(), dir: Directory(dir), page, wakes: false, kibibytes: 0 })
    }

    fn event(&self, (system, name): (&str, &str)) -> PathBuf {
        self.dir.0.join("events").join(system).join(name)
    }

    /// True if the kernel has this tracepoint.
    pub fn has(&self, point: (&str, &str)) -> bool {
        self.event(point).is_dir()
    }

    /// The contents of a file of the instance.
    pub fn read(&self, file: &str) -> Result<Vec<u8>, HostError> {
        let path = self.dir.0.join(file);
        let mut bytes = vec![0; LARGEST];
        // The kernel returns the beginning of `header_page` on the first read and nothing on the second.
        let got = File::open(&path).and_then(|mut open| open.read(&mut bytes)).map_err(named(&path))?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Sets the clock, gives each processor a buffer of `kibibytes`, and opens the buffers.
    pub fn prepare(&mut self, kibibytes: u32) -> Result<(), HostError> {
        let dir = &self.dir.0;
        write_text(&dir.join("trace_clock"), "mono")?;
        write_text(&dir.join("buffer_size_kb"), &kibibytes.to_string())?;
        // Available since Linux 5.0; before 6.1, readers are woken earlier, see `wait`.
        self.wakes = fs::write(dir.join("buffer_percent"), FILLED).is_ok();
        let processors = dir.join("per_cpu");
        for entry in fs::read_dir(&processors).map_err(named(&processors))? {
            let name = entry.map_err(named(&processors))?.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix("cpu")).and_then(|n| n.parse().ok());
            let Some(number) = number else { continue };
            let path = processors.join(&name).join("trace_pipe_raw");
            let flags = OFlags::NONBLOCK.bits() as i32;
            let pipe = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(named(&path))?;
            self.pipes.push((number, pipe));
        }
        self.pipes.sort_by_key(|(number, _)| *number);
        self.kibibytes = kibibytes;
        Ok(())
    }

    /// Enables a tracepoint.
    pub fn enable(&self, point: (&str, &str), buffers: &mut Buffers) -> Result<(), HostError> {
        let dir = self.event(point);
        let path = dir.join("format");
        let format = fs::read(&path).map_err(named(&path))?;
        buffers.learn(point.0, &format).map_err(|what| format!("{}: {what}", path.display()))?;
        write_text(&dir.join("enable"), "1")
    }

    /// Waits at most `most`, until a buffer is partly full or a signal comes.
    pub fn wait(&self, most: Duration) {
        if !self.wakes {
            return std::thread::sleep(most.min(BLIND));
        }
        let mut all: Vec<PollFd<'_>> = self.pipes.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)).collect();
        let clock = RealClock::new();
        let timeout = Timespec::try_from(most).ok();
        let woken = poll(&mut all, timeout.as_ref()).unwrap_or(0);
        // A kernel that wakes on the first event must not cause a busy loop.
        let waited = clock.monotonic();
        if woken > 0 && waited < most.min(BLIND) / 4 {
            std::thread::sleep(most.min(BLIND) / 4 - waited);
        }
    }

    /// Reads the buffers.
    pub fn take(&mut self, buffers: &mut Buffers) -> Result<Taken, HostError> {
        let Instance { pipes, dir, page, kibibytes, .. } = self;
        let mut taken = Taken::default();
        for (number, pipe) in pipes {
            // Events that arrive during the read may wait.
            let mut left = (*kibibytes as usize) << 11;
            while left > 0 {
                match pipe.read(page) {
                    Ok(0) => break,
                    Ok(got) => {
                        left = left.saturating_sub(got);
                        match buffers.page(*number, &page[..got]) {
                            Ok(lost) => taken.lost += lost,
                            Err(what) => taken.strange.push(what),
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(named(&dir.0.join(format!("per_cpu/cpu{number}/trace_pipe_raw")))(e)),
                }
            }
        }
        Ok(taken)
    }
}
