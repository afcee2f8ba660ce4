//! Opening images, and what was written to them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Access, BlockDevice, Counting, FileDevice, OpenError, RealClock, open_image};
use f2fs::cause::Cause;
use f2fs::{MountOptions, RollForward, Volume};
use serde_json::{Value, json};
use vfs::FileSystem;

use crate::Failure;
use crate::half_made::HalfMade;
use crate::place::Place;

/// A mounted image with its write counts.
pub struct Image {
    /// The volume.
    pub vol: Arc<Volume>,
    dev: Arc<Counting<Arc<dyn BlockDevice>>>,
    path: PathBuf,
}

/// Refuses a place inside an image where an image is meant.
pub fn check_name(path: &Path) -> Result<(), Failure> {
    match Place::from(path.as_os_str().to_owned()) {
        Place::Inside { image, .. } if image.exists() => Err(Failure::Usage(format!(
            "{}: a place inside an image; here the image is meant: {}",
            path.display(),
            image.display()
        ))),
        _ => Ok(()),
    }
}

/// Opens an image as a device.
pub fn open_device(path: &Path, write: bool) -> Result<Arc<dyn BlockDevice>, Failure> {
    check_name(path)?;
    let access = if write { Access::ReadWrite } else { Access::ReadOnly };
    Ok(open_image(path, access).map_err(|e| e.to_string())?)
}

/// Makes an image where nothing is; it goes again unless it is kept.
pub fn create(path: &Path, bytes: u64, made: HalfMade) -> Result<(FileDevice, HalfMade), Failure> {
    match FileDevice::create(path, bytes) {
        Ok(dev) => Ok((dev, made)),
        Err(e) => {
            if matches!(e, OpenError::InUse { .. }) {
                // Somebody else made it meanwhile.
                made.keep();
            }
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists());
            Err(dir.map_or_else(|| e.to_string(), |dir| format!("{}: no such directory", dir.display())).into())
        }
    }
}

impl Image {
    /// Mounts an image.
    pub fn open(path: &Path, write: bool) -> Result<Self, Failure> {
        Self::open_with(path, MountOptions { read_only: !write, ..MountOptions::default() })
    }

    /// Mounts an image to read it; with `norecovery` as of its last checkpoint, whatever was synced since.
    pub fn open_to_read(path: &Path, norecovery: bool) -> Result<Self, Failure> {
        let roll_forward = if norecovery { RollForward::Leave } else { RollForward::Replay };
        Self::open_with(path, MountOptions { read_only: true, roll_forward, ..MountOptions::default() })
    }

    /// Mounts an image with options.
    pub fn open_with(path: &Path, options: MountOptions) -> Result<Self, Failure> {
        Self::open_through(path, options, |dev, _| Ok(dev))
    }

    /// Mounts an image with options, and with something between the volume and the image: `through` gets
    /// the image's device and returns what the volume is to use; it may change the options.
    pub fn open_through(
        path: &Path,
        mut options: MountOptions,
        through: impl FnOnce(Arc<dyn BlockDevice>, &mut MountOptions) -> Result<Arc<dyn BlockDevice>, Failure>,
    ) -> Result<Self, Failure> {
        let dev = Arc::new(Counting::new(through(open_device(path, !options.read_only)?, &mut options)?));
        let vol = Volume::mount(dev.clone(), Arc::new(RealClock::new()), options)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Image { vol, dev, path: path.to_owned() })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the volume clean.
    pub fn close(&self) -> Result<(), Failure> {
        Ok(self.vol.unmount().map_err(|e| format!("{}: {e}", self.path.display()))?)
    }

    /// What was written and why: a table, or JSON.
    pub fn statistics(&self) -> Statistics {
        let counts = self.dev.snapshot();
        let written = counts
            .causes()
            .filter(|(_, c)| c.blocks_written > 0)
            .map(|(n, c)| (Cause::from_number(n).map_or("other", Cause::text), c.blocks_written))
            .collect();
        let user_bytes = self.vol.counters.user_bytes.load(std::sync::atomic::Ordering::Relaxed);
        Statistics { written, user_bytes, flushes: counts.total().flushes }
    }
}

/// Blocks written by cause.
pub struct Statistics {
    written: Vec<(&'static str, u64)>,
    user_bytes: u64,
    flushes: u64,
}

impl Statistics {
    fn total(&self) -> u64 {
        self.written.iter().map(|(_, n)| n).sum()
    }
    fn amplification(&self) -> Option<f64> {
        (self.user_bytes > 0).then(|| self.total() as f64 * 4096.0 / self.user_bytes as f64)
    }
    /// For people.
    pub fn table(&self) -> String {
        use std::fmt::Write;
        let mut out = String::from("written to the device      blocks     share\n");
        let total = self.total().max(1);
        for (cause, n) in &self.written {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  {cause:<22} {n:>8}   {:>6.2}%", *n as f64 * 100.0 / total as f64);
        }
        let _ = writeln!(out, "  {:<22} {:>8}   in {} flushes", "all", self.total(), self.flushes);
        let _ = write!(out, "user wrote {}", crate::output::bytes(self.user_bytes));
        if let Some(a) = self.amplification() {
            let _ = write!(out, "; write amplification {a:.3}");
        }
        out
    }
    /// For machines.
    pub fn json(&self) -> Value {
        let causes: serde_json::Map<String, Value> =
            self.written.iter().map(|(c, n)| ((*c).to_owned(), json!(n))).collect();
        json!({
            "blocks_written": causes,
            "blocks_written_total": self.total(),
            "flushes": self.flushes,
            "user_bytes": self.user_bytes,
            "write_amplification": self.amplification(),
        })
    }
}
