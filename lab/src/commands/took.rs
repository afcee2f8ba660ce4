//! How long did a run take, and how much memory did this process use meanwhile? Stored next to the plan, in `took.csv`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::plan::{Experiment, TOOK};
use lab::took::{Run, Size, Took};
use rustix::time::{ClockId, clock_gettime};
use terminal::{Failure, whole};

/// Measures this process from its creation on.
pub struct Watch {
    at: Instant,
    cpu: Duration,
}

impl Watch {
    /// Starts measuring.
    #[allow(clippy::disallowed_methods, reason = "how long the run took on this machine is what is kept")]
    pub fn begin() -> Watch {
        // 5 resets the peak to the current use (proc_pid_clear_refs(5)). If that is refused, the peak may be that of an
        // earlier run in this process.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Watch { at: Instant::now(), cpu: cpu() }
    }

    /// Run time and memory since `begin`.
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

/// CPU time of all threads of this process.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.try_into().unwrap_or(0))
}

fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

/// The value of the first `name: value` in a file under /proc.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let of = |line: &str| line.split_once(':').filter(|(n, _)| n.trim() == name).map(|(_, v)| v.trim().to_owned());
    text.lines().find_map(of)
}

fn in_kib(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Writes a run's time and memory into an experiment's directory and keeps the row of the other size.
pub fn write(experiment: &Experiment, run: Run, dir: &Path) -> Result<PathBuf, Failure> {
    let file = dir.join(TOOK);
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    let took = Took::parse(&there).map_err(|e| format!("{}: {e}", file.display()))?;
    whole::write(&file, took.with(run).text(&experiment.name))?;
    Ok(file)
}
