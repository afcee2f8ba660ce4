//! What was written to and discarded on a volume's device, in order? As an fio iolog, the format that `replay` reads.
//!
//! Left out: contents, and reads, which do not change a device.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::{BLOCK, BlockDevice, Lba, Remap, Result, Tag, Zones};

use crate::Failure;
use crate::whole::Part;

/// A log being written.
pub struct Log {
    part: Part,
    told: Arc<Mutex<Told>>,
}

struct Told {
    out: BufWriter<File>,
    /// The first write error.
    failed: Option<io::Error>,
}

impl Told {
    fn line(&mut self, what: std::fmt::Arguments<'_>) {
        if self.failed.is_none() {
            self.failed = writeln!(self.out, "{what}").err();
        }
    }

    fn run(&mut self, action: &str, at: Lba, blocks: u64) {
        self.line(format_args!("/dev/volume {action} {} {}", at.0 * BLOCK as u64, blocks * BLOCK as u64));
    }
}

impl Log {
    /// Begins a log.
    pub fn create(file: &Path) -> io::Result<Self> {
        let (part, open) = Part::create(file, true)?;
        let mut told = Told { out: BufWriter::new(open), failed: None };
        told.line(format_args!("fio version 2 iolog\n/dev/volume add\n/dev/volume open"));
        Ok(Log { part, told: Arc::new(Mutex::new(told)) })
    }

    /// The device with its requests logged.
    pub fn of(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        Arc::new(Telling { inner: device, told: self.told.clone() })
    }

    /// Completes the log.
    pub fn finish(self) -> io::Result<()> {
        let mut told = locked(&self.told);
        told.line(format_args!("/dev/volume close"));
        if let Some(failed) = told.failed.take() {
            return Err(failed);
        }
        told.out.flush()?;
        self.part.finish()
    }
}

/// A log, if requested.
pub fn log(file: Option<&Path>) -> std::result::Result<Option<Log>, Failure> {
    let begin = |file: &Path| Log::create(file).map_err(|e| format!("--writes {}: {e}", file.display()).into());
    file.map(begin).transpose()
}

fn locked(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device that logs successful writes, flushes and discards.
struct Telling {
    inner: Arc<dyn BlockDevice>,
    told: Arc<Mutex<Told>>,
}

impl BlockDevice for Telling {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.inner.write(at, data, tag)?;
        locked(&self.told).run("write", at, (data.len() / BLOCK) as u64);
        Ok(())
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.inner.write_gather(at, parts, tag)?;
        locked(&self.told).run("write", at, parts.iter().map(|part| (part.len() / BLOCK) as u64).sum());
        Ok(())
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.inner.write_for(at, data, owners, cause)?;
        locked(&self.told).run("write", at, (data.len() / BLOCK) as u64);
        Ok(())
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.inner.flush(tag)?;
        locked(&self.told).line(format_args!("/dev/volume sync 0 0"));
        Ok(())
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.inner.discard(at, blocks, tag)?;
        locked(&self.told).run("trim", at, blocks);
        Ok(())
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.inner.remap(from, to, blocks, how, tag)
    }
    fn zones(&self) -> Option<&dyn Zones> {
        self.inner.zones()
    }
}
