//! Opening images, and counting writes to them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::host_room::Turn;
use device::{Access, BLOCK, BlockDevice, Clock, Counting, FileDevice, HostRoom, OpenError, RealClock};
use serde_json::{Value, json};
use volume::{Kind, MountOptions, Mounted};

use crate::half_made::HalfMade;
use crate::place::Place;
use crate::reading::Reading;
use crate::table::{self, Table};
use crate::{Failure, in_use, opening, output};

/// A mounted image with its write counts.
pub struct Image {
    /// The volume.
    pub vol: Arc<dyn vfs::Volume>,
    mounted: Mounted,
    dev: Arc<Counting<Arc<dyn BlockDevice>>>,
    room: Option<Arc<HostRoom>>,
    path: PathBuf,
}

/// Refuses a path inside an image where an image is expected.
pub fn check_name(path: &Path) -> Result<(), Failure> {
    match Place::from(path.as_os_str().to_owned()) {
        Place::Inside { image, .. } if image.exists() => Err(Failure::Usage(format!(
            "{}: a path inside an image; give the image itself: {}",
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
    Ok(opening::open(path, access).map_err(|why| in_use::why(path).unwrap_or(why))?)
}

/// Opens an image as the device of a volume mounted for writing. Prints a line if the host has no room.
fn open_to_mount(path: &Path) -> Result<(Arc<dyn BlockDevice>, Option<Arc<HostRoom>>), Failure> {
    check_name(path)?;
    let (device, room) = opening::open_to_mount(path).map_err(|why| in_use::why(path).unwrap_or(why))?;
    if let Some(room) = &room {
        let name = path.display().to_string();
        let report = move |turn| {
            if turn == Turn::Short {
                say_full(&name);
            }
        };
        room.report_to(Box::new(report));
    }
    Ok((device, room))
}

fn say_full(image: &str) {
    output::warn(&format!("{image}: the file system that holds this image is full"));
}

/// Refuses an image that is not F2FS, for commands that read F2FS blocks directly; `what` names the command.
pub fn only_f2fs(dev: &dyn BlockDevice, path: &Path, what: &str) -> Result<(), Failure> {
    match volume::probe(dev) {
        Some(kind) if kind != Kind::F2fs => {
            Err(format!("{}: a {kind} volume; {what} is for F2FS", path.display()).into())
        }
        _ => Ok(()),
    }
}

/// Creates an image at an unused path; it is removed unless kept.
pub fn create(path: &Path, bytes: u64, made: HalfMade) -> Result<(FileDevice, HalfMade), Failure> {
    match FileDevice::create(path, bytes) {
        Ok(dev) => Ok((dev, made)),
        Err(e) => {
            if matches!(e, OpenError::InUse { .. }) {
                // Created by another process meanwhile.
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
        Self::open_with(path, MountOptions::default().read_only(!write))
    }

    /// Mounts an image for reading.
    pub fn open_to_read(path: &Path, reading: Reading) -> Result<Self, Failure> {
        Self::open_with(path, reading.options())
    }

    /// Mounts an image with options.
    pub fn open_with(path: &Path, options: MountOptions) -> Result<Self, Failure> {
        Self::open_through(path, options, |dev, _, _| Ok(dev))
    }

    /// Mounts an image with options and a clock.
    pub fn open_at(path: &Path, options: MountOptions, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        Self::open_between(path, options, clock, |dev, _, _| Ok(dev))
    }

    /// Mounts an image with options and a layer between volume and image: `through` gets the image's device and its
    /// file system, and returns the device for the volume; it may change the options.
    pub fn open_through(
        path: &Path,
        options: MountOptions,
        through: impl FnOnce(Arc<dyn BlockDevice>, Kind, &mut MountOptions) -> Result<Arc<dyn BlockDevice>, Failure>,
    ) -> Result<Self, Failure> {
        Self::open_between(path, options, Arc::new(RealClock::new()), through)
    }

    fn open_between(
        path: &Path,
        mut options: MountOptions,
        clock: Arc<dyn Clock>,
        through: impl FnOnce(Arc<dyn BlockDevice>, Kind, &mut MountOptions) -> Result<Arc<dyn BlockDevice>, Failure>,
    ) -> Result<Self, Failure> {
        let (dev, room) = match options.is_read_only() {
            true => (open_device(path, false)?, None),
            false => open_to_mount(path)?,
        };
        if let Some(room) = &room {
            options.set_host_room(room);
        }
        let kind = volume::probe(&*dev).unwrap_or_default();
        let has_zones = dev.zones().is_some() && !options.is_read_only();
        let dev = Arc::new(Counting::new(through(dev, kind, &mut options)?));
        if room.as_ref().is_some_and(|room| room.is_short()) {
            say_full(&path.display().to_string());
        }
        if has_zones && dev.zones().is_none() {
            return Err(format!("{}: zoned disk; leave out --profile and --record-device", path.display()).into());
        }
        let mounted =
            volume::mount(kind, dev.clone(), clock, options).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Image { vol: mounted.volume(), mounted, dev, room, path: path.to_owned() })
    }

    /// Path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The host's room for the image, if it is a file mounted for writing.
    pub fn host_room(&self) -> Option<&Arc<HostRoom>> {
        self.room.as_ref()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.dev.blocks().saturating_mul(BLOCK as u64)
    }

    /// The mounted file system.
    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// The F2FS volume; fails on other file systems, naming `what`, which needs F2FS.
    pub fn f2fs(&self, what: &str) -> Result<&Arc<f2fs::Volume>, Failure> {
        match &self.mounted {
            Mounted::F2fs(volume) => Ok(volume),
            other => Err(format!("{}: a {} volume; {what} is for F2FS", self.path.display(), other.kind()).into()),
        }
    }

    /// Unmounts the volume cleanly. Fails if the image was removed meanwhile: the data written to it is lost.
    pub fn close(&self) -> Result<(), Failure> {
        let path = self.path.display();
        self.vol.unmount().map_err(|e| format!("{path}: {e}"))?;
        if self.room.as_ref().is_some_and(|room| !room.has_name()) {
            return Err(format!("{path}: removed or replaced meanwhile: what was written to it is lost").into());
        }
        Ok(())
    }

    /// Writes by cause: a table, or JSON.
    pub fn statistics(&self) -> Statistics {
        let counts = self.dev.snapshot();
        let reasons = self.vol.reasons();
        let written = counts
            .causes()
            .filter(|(_, c)| c.blocks_written > 0)
            .map(|(n, c)| {
                let (key, text) =
                    reasons.iter().find(|r| r.number == n).map_or(("other", "other"), |r| (r.key, r.text));
                Written { key, text, blocks: c.blocks_written }
            })
            .collect();
        Statistics { written, user_bytes: self.vol.user_bytes(), flushes: counts.total().flushes }
    }
}

/// Blocks written for a cause.
struct Written {
    key: &'static str,
    text: &'static str,
    blocks: u64,
}

/// Blocks written by cause.
pub struct Statistics {
    written: Vec<Written>,
    user_bytes: u64,
    flushes: u64,
}

impl Statistics {
    fn total(&self) -> u64 {
        self.written.iter().map(|w| w.blocks).sum()
    }
    fn amplification(&self) -> Option<f64> {
        (self.user_bytes > 0).then(|| self.total() as f64 * 4096.0 / self.user_bytes as f64)
    }
    /// For people.
    pub fn table(&self) -> String {
        let columns = [
            table::word("written to the device").least(24),
            table::number("blocks").least(8),
            table::number("share").least(8),
            table::text(""),
        ];
        let mut table = Table::new(columns).between(1);
        let total = self.total().max(1);
        for Written { text, blocks, .. } in &self.written {
            let share = format!("{:.2}%", *blocks as f64 * 100.0 / total as f64);
            table.row(&[&format!("  {text}"), blocks, &share]);
        }
        table.row(&[&"  all", &self.total(), &"", &format!("in {} flushes", self.flushes)]);
        let mut out = format!("{}\nuser wrote {}", table.text(), output::bytes(self.user_bytes));
        if let Some(a) = self.amplification() {
            out += &format!("; write amplification {a:.3}");
        }
        out
    }
    /// For machines.
    pub fn json(&self) -> Value {
        let causes: serde_json::Map<String, Value> =
            self.written.iter().map(|w| (w.key.to_owned(), json!(w.blocks))).collect();
        json!({
            "blocks_written": causes,
            "blocks_written_total": self.total(),
            "flushes": self.flushes,
            "user_bytes": self.user_bytes,
            "write_amplification": self.amplification(),
        })
    }
}
