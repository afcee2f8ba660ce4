//! The recordings of calls of the experiment `nexus-apps` on the host kernel's ext4, over a metered device that takes
//! its time: what the device is asked is recorded, so that the experiment can make the same requests again.
//!
//! The file system is made whole (nothing is left for a thread to do later), holds what the calls need, and is mounted
//! anew before them with nothing in memory. Recorded is what the device is asked from then on until it is unmounted; what
//! mounting asks is not.
//!
//! Not part of `joulefs lab`, for it needs root (loop devices) and as long as the programs took, and does not repeat to
//! the picojoule: another run is another recording.
//!
//!     cargo run -p joulefs-conformance --example kernel_apps -- OUT galaxy-nexus-emmc RECORDING...

mod metered;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use device::clock::RealClock;
use device::energy::profile::Profile;
use metered::Disk;
use record::Tempo;
use trace::Opened;
use trace::call::Calls;
use trace::replay::calls::{Pauses, Replayed, replay};
use trace::replay::needs::{self, Needs};
use trace::replay::place::OnDirectory;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Mebibytes of the device.
const DEVICE: u64 = 1024;

/// Runs a program and gives back what it printed; its complaint if it fails.
fn tell(program: &str, args: &[&str]) -> Outcome<String> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned()),
        false => Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr)).into()),
    }
}

/// ext4 on a disk that is a file, until it is dropped.
struct Mounted {
    device: String,
    at: tempfile::TempDir,
}

impl Mounted {
    fn new(disk: &str) -> Outcome<Self> {
        let device = tell("losetup", &["--find", "--show", "--direct-io=on", disk])?;
        let mounted = Mounted { device, at: tempfile::tempdir()? };
        tell("mount", &["-t", "ext4", &mounted.device, mounted.at.path().to_str().ok_or("a path that is no text")?])?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What fails is seen by whoever mounts it next.
        let _ = tell("umount", &[&self.at.path().to_string_lossy()]);
        let _ = tell("losetup", &["--detach", &self.device]);
    }
}

fn calls(path: &Path) -> Outcome<Box<dyn Calls>> {
    match trace::open(path)? {
        Opened::Calls(calls) => Ok(calls),
        _ => Err(format!("{}: no recording of calls", path.display()).into()),
    }
}

fn measure(profile: &Profile, recording: &Path, out: &Path) -> Outcome<()> {
    let mut disk = Disk::new(profile, DEVICE)?;
    let path = disk.path();
    let path = path.to_str().ok_or("a path that is no text")?;
    tell("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", path])?;
    let (needs, whole): (Needs, _) = needs::scan(&mut *calls(recording)?, |_| ());
    whole?;
    let mounted = Mounted::new(path)?;
    needs
        .prepare(&mut OnDirectory::new(mounted.at.path()), |_| ())
        .map_err(|(path, why)| format!("{}: {why}", String::from_utf8_lossy(&path)))?;
    drop(mounted);
    std::fs::write("/proc/sys/vm/drop_caches", "3")?;
    let mounted = Mounted::new(path)?;
    let clock = Arc::new(RealClock::new());
    let before = disk.spent();
    disk.record(out, &clock)?;
    let tempo = Tempo::Real(clock.clone());
    let mut place = OnDirectory::new(mounted.at.path());
    let (done, whole) = replay(&mut *calls(recording)?, &mut place, &*clock, &tempo, Pauses::Recorded, |_| ());
    drop((place, mounted));
    let requests = disk.recorded()?;
    whole?;
    let after = disk.spent();
    let [reads, writes, flushes] = [0, 1, 2].map(|n| after.1[n] - before.1[n]);
    let Replayed { calls, left_out, failed, first_failure, span_ns, .. } = done;
    println!(
        "| {} | {calls} | {:.1} | {reads} | {writes} | {flushes} | {:.2} | {requests} |",
        out.display(),
        span_ns as f64 / 1e9,
        (after.0 - before.0).joules(),
    );
    if left_out + failed > 0 {
        println!("{left_out} calls left out, {failed} failed: {}", first_failure.unwrap_or_default());
    }
    disk.close()
}

fn run() -> Outcome<()> {
    let mut args = std::env::args_os().skip(1);
    let usage = "kernel_apps OUT PROFILE RECORDING...";
    let out = PathBuf::from(args.next().ok_or(usage)?);
    let profile = Profile::find(&args.next().ok_or(usage)?.to_string_lossy())?;
    println!("| recording | calls | s | reads | writes | flushes | J | recorded |");
    println!("|---|---|---|---|---|---|---|---|");
    for recording in args.map(PathBuf::from) {
        let name = recording.file_name().ok_or(usage)?.to_string_lossy().into_owned();
        // chat.strace.zst, mobigen.out.facebook
        let name = name.split('.').find(|part| !["mobigen", "out"].contains(part)).unwrap_or(&name).to_owned();
        measure(&profile, &recording, &out.join(format!("{name}.ext4.rec.zst")))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("kernel_apps: {e}");
            ExitCode::FAILURE
        }
    }
}
