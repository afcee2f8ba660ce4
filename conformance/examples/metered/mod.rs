//! A metered disk that is shown as a file and takes its time; from some moment to another what it is asked is recorded.
//! For programs of this directory that put a kernel's file system on it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use device::clock::RealClock;
use device::energy::profile::Profile;
use device::energy::{Energy, Operation};
use device::gauge::{CAUSES, Gauge, Setup, Speed};
use device::model::Remap;
use device::{BlockDevice, Lba, Memory, Tag, model};
use fuse::gauge::Files;
use fuse::{Caching, MountOptions, Mounted};
use parking_lot::Mutex;
use record::blocks::Recorder;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A device, or another one in its place from some moment on.
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

/// A pipe into a program that compresses it to a file.
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
        // A compressor that failed leaves a file that cannot be read.
        let _ = self.0.wait();
    }
}

/// The disk.
pub struct Disk {
    gauge: Arc<Gauge>,
    switch: Arc<Switch>,
    plain: Arc<dyn BlockDevice>,
    recorder: Option<Arc<Recorder<Arc<dyn BlockDevice>>>>,
    shown: Mounted,
    dir: tempfile::TempDir,
}

impl Disk {
    /// One like `profile`, of so many mebibytes, with nothing on it.
    pub fn new(profile: &Profile, mib: u64) -> Outcome<Self> {
        let blocks = mib << 8;
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
        Ok(Disk { gauge, plain: switch.to(), switch, recorder: None, shown, dir })
    }

    /// Its file.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// From now on what it is asked is recorded to a file.
    pub fn record(&mut self, out: &Path, clock: &Arc<RealClock>) -> Outcome<()> {
        let file = std::fs::File::create(out)?;
        let zstd = Command::new("zstd").args(["-q", "-19"]).stdin(Stdio::piped()).stdout(file).spawn()?;
        let recorder = Arc::new(Recorder::new(self.plain.clone(), Compressed(zstd), clock.clone(), CAUSES)?);
        *self.switch.to.lock() = recorder.clone();
        self.recorder = Some(recorder);
        Ok(())
    }

    /// That ends; says how many requests were recorded.
    pub fn recorded(&mut self) -> Outcome<u64> {
        *self.switch.to.lock() = self.plain.clone();
        Ok(self.recorder.take().ok_or("nothing is recorded")?.finish()?)
    }

    /// Energy but for time nobody asked anything in, and requests: reads, writes, flushes.
    pub fn spent(&self) -> (Energy, [u64; 3]) {
        let ledger = self.gauge.report().ledger;
        let counts = [Operation::Read, Operation::Write, Operation::Flush].map(|o| ledger.operation(o).operations);
        (ledger.total() - ledger.operation(Operation::Idle).energy, counts)
    }

    /// Takes it away.
    pub fn close(self) -> Outcome<()> {
        self.shown.unmount()?;
        Ok(self.shown.wait()?)
    }
}
