//! Replays the recorded calls of the experiment `nexus-apps` on the host kernel's ext4, on a metered device with
//! realistic latency, and records the device requests, so that the experiment can replay them.
//!
//! The file system is fully initialized (no lazy initialization in a thread), has the files that the calls need, and is
//! remounted before them with cold caches. The recording covers all device requests from then on until unmounting,
//! without those of the mount.
//!
//! Not part of `joulefs lab`: it needs root (loop devices) and as much time as the programs took, and does not repeat
//! to the picojoule.
//!
//!     cargo run -p joulefs-conformance --example kernel_apps -- OUT galaxy-nexus-emmc RECORDING...

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use device::clock::RealClock;
use device::energy::profile::Profile;
use device::energy::{Energy, Operation};
use device::gauge::{CAUSES, Gauge, Setup, Speed};
use device::model::Remap;
use device::{BlockDevice, Lba, Memory, Tag, model};
use fuse::gauge::Files;
use fuse::{Caching, MountOptions};
use parking_lot::Mutex;
use record::Tempo;
use record::blocks::Recorder;
use trace::Opened;
use trace::call::Calls;
use trace::replay::calls::{Pauses, Replayed, replay};
use trace::replay::needs::{self, Needs};
use trace::replay::place::OnDirectory;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// MiB of the device.
const DEVICE: u64 = 1024;

/// A device that can be replaced by another while in use.
struct Switch {
    to: Mutex<Arc<dyn BlockDevice>>,
}

impl Switch {
    fn to(&self) -> Arc<dyn BlockDevice> {
        self.to.lock().clone()
    }
}

impl BlockDevice for Switch {
    fn blocks(&self) -> u64 {
        self.to().blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.to().read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        self.to().write(at, data, tag)
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> device::Result<()> {
        self.to().write_gather(at, parts, tag)
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> device::Result<()> {
        self.to().write_for(at, data, owners, cause)
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.to().flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.to().discard(at, blocks, tag)
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> device::Result<()> {
        self.to().remap(from, to, blocks, how, tag)
    }
}

/// Runs a program and returns its output, or its error message if it fails.
fn tell(program: &str, args: &[&str]) -> Outcome<String> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned()),
        false => Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr)).into()),
    }
}

/// ext4 on a file-backed disk; unmounted on drop.
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
        // The next mount reports any failure.
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

/// Energy without idle time, and numbers of requests: reads, writes, flushes.
fn spent(gauge: &Gauge) -> (Energy, [u64; 3]) {
    let ledger = gauge.report().ledger;
    let counts = [Operation::Read, Operation::Write, Operation::Flush].map(|o| ledger.operation(o).operations);
    (ledger.total() - ledger.operation(Operation::Idle).energy, counts)
}

/// A pipe into a program that compresses to a file.
struct Compressed(std::process::Child);

impl Write for Compressed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.flush()
    }
}

impl Drop for Compressed {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // If the compressor failed, the file cannot be read.
        let _ = self.0.wait();
    }
}

fn measure(profile: &Profile, recording: &Path, out: &Path) -> Outcome<()> {
    let blocks = DEVICE << 8;
    let mut switch = None;
    let setup = Setup {
        contents: Arc::new(Memory::new(blocks)),
        discards_read_zero: true,
        model: model::build(profile, blocks)?,
        profile: profile.clone(),
        speed: Speed::Paced,
    };
    let gauge =
        Arc::new(Gauge::with(setup, |device| switch.insert(Arc::new(Switch { to: Mutex::new(device) })).clone()));
    let switch = switch.ok_or("a gauge without a device")?;
    let dir = tempfile::tempdir()?;
    let options = MountOptions { caching: Caching::Live, ..MountOptions::default() };
    let shown = fuse::mount(Arc::new(Files::new(gauge.clone())), dir.path(), &options)?;
    let disk = dir.path().join("disk");
    let disk = disk.to_str().ok_or("a path that is no text")?;
    tell("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk])?;
    let (needs, whole): (Needs, _) = needs::scan(&mut *calls(recording)?, |_| ());
    whole?;
    let mounted = Mounted::new(disk)?;
    needs
        .prepare(&mut OnDirectory::new(mounted.at.path()), |_| ())
        .map_err(|(path, why)| format!("{}: {why}", String::from_utf8_lossy(&path)))?;
    drop(mounted);
    std::fs::write("/proc/sys/vm/drop_caches", "3")?;
    let mounted = Mounted::new(disk)?;
    let file = std::fs::File::create(out)?;
    let zstd = Command::new("zstd").args(["-q", "-19"]).stdin(std::process::Stdio::piped()).stdout(file).spawn()?;
    let plain = switch.to();
    let clock = Arc::new(RealClock::new());
    let recorder = Arc::new(Recorder::new(plain.clone(), Compressed(zstd), clock.clone(), CAUSES)?);
    let before = spent(&gauge);
    *switch.to.lock() = recorder.clone();
    let tempo = Tempo::Real(clock.clone());
    let mut place = OnDirectory::new(mounted.at.path());
    let (done, whole) = replay(&mut *calls(recording)?, &mut place, &*clock, &tempo, Pauses::Recorded, |_| ());
    drop((place, mounted));
    *switch.to.lock() = plain;
    let requests = recorder.finish()?;
    drop(recorder);
    whole?;
    let after = spent(&gauge);
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
    shown.unmount()?;
    shown.wait()?;
    Ok(())
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
