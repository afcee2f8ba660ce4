//! How long did a run take, and how much memory did this process have meanwhile? It is written beside the plan, in `took.csv`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::plan::{Experiment, TOOK};
use lab::took::{Run, Size, Took};
use rustix::time::{ClockId, clock_gettime};
use terminal::{Failure, whole};

/// Watches this process from a moment on.
pub struct Watch {
    at: Instant,
    cpu: Duration,
}

impl Watch {
    /// From now on.
    #[allow(clippy::disallowed_methods, reason = "how long the run took on this machine is what is kept")]
    pub fn begin() -> Watch {
        // 5 makes the peak what is in use now (proc_pid_clear_refs(5)). Where that is refused, an earlier run of this process may
        // have needed more than the one that is watched, and the peak is its.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Watch { at: Instant::now(), cpu: cpu() }
    }

    /// What a run took that began with it.
    pub fn end(&self, quick: bool, threads: NonZeroUsize) -> Result<Run, Failure> {
        Ok(Run {
            run: if quick { Size::Quick } else { Size::Full },
            cpu_seconds: tenths(cpu().saturating_sub(self.cpu)),
            seconds: tenths(self.at.elapsed()),
            peak_bytes: field("/proc/self/status", "VmHWM")
                .and_then(|kib| in_kib(&kib))
                .ok_or("/proc/self/status: no peak memory (VmHWM), so the run was not timed")?,
            threads: threads.get(),
            processors: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}

/// Processors' time that all threads of this process took.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.try_into().unwrap_or(0))
}

fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

/// The value of the first `name: value` in one of the kernel's files.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let of = |line: &str| line.split_once(':').filter(|(n, _)| n.trim() == name).map(|(_, v)| v.trim().to_owned());
    text.lines().find_map(of)
}

fn in_kib(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Writes what a run took into an experiment's directory, beside what the file there says of a run of another size.
pub fn write(experiment: &Experiment, run: Run, dir: &Path) -> Result<PathBuf, Failure> {
    let file = dir.join(TOOK);
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    let took = Took::parse(&there).map_err(|e| format!("{}: {e}", file.display()))?;
    whole::write(&file, took.with(run).text(&experiment.name))?;
    Ok(file)
}
