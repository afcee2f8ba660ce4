//! Which path belongs to an inode number reported by the kernel?
//!
//! No directory is searched. On ext2, ext3, ext4 and F2FS, the kernel's cached name is used ([`crate::by_number`]). On
//! other file systems, the open descriptors of the process that first makes a file dirty are searched. Paths are looked
//! up again after some seconds, since inode numbers are reused. A file without a known path is shown by its number.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::clock::{Clock, RealClock};
use trace::askers::Called;
use trace::block::{DeviceId, Event};
use trace::read::buffers::Dirtied;
use trace::{Names, Place, Written};

use crate::{by_number, disk};

/// How long a result is valid.
const FRESH: Duration = Duration::from_secs(5);
/// Maximum number of files looked up in a step; the rest are shown by number.
const EACH_STEP: u32 = 50;
/// Maximum number of descriptors searched per process.
const DESCRIPTORS: usize = 128;
/// `BTRFS_SUPER_MAGIC`.
const BTRFS: rustix::fs::FsWord = 0x9123_683e;
/// Maximum number of cached files.
const REMEMBERED: usize = 1 << 13;

/// A mounted file system.
struct Mounted {
    device: (u32, u32),
    at: PathBuf,
    /// ext2, ext3, ext4, F2FS.
    by_number: bool,
}

/// Paths of files.
pub struct Paths {
    /// Formats a path.
    shown: fn(&str) -> String,
    clock: RealClock,
    /// Start of the step.
    now: Duration,
    mounted: (Vec<Mounted>, Option<Duration>),
    /// Paths by device and inode, with the time of lookup.
    known: BTreeMap<((u32, u32), u64), (String, Duration)>,
    /// Paths of open files by the kernel's name of the file system and inode, with the time of lookup.
    open: BTreeMap<(Place, u64), (Option<PathBuf>, Duration)>,
    /// Lookups left in this step.
    left: u32,
    devices: BTreeMap<(u32, u32), String>,
    /// Partitions by disk, with the time of lookup.
    partitions: BTreeMap<(u32, u32), (Vec<Partition>, Duration)>,
    /// Device and position of the request being attributed.
    at: ((u32, u32), u64),
}

/// A partition, and its sectors on the disk.
struct Partition {
    device: (u32, u32),
    sectors: Range<u64>,
}

/// Parses two numbers separated by a colon.
fn numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The partitions of a disk.
fn partitions((major, minor): (u32, u32)) -> Vec<Partition> {
    let Ok(all) = fs::read_dir(format!("/sys/dev/block/{major}:{minor}")) else { return Vec::new() };
    let one = |entry: fs::DirEntry| {
        let dir = entry.path();
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
        read("partition")?;
        let (start, size): (u64, u64) = (read("start")?.trim().parse().ok()?, read("size")?.trim().parse().ok()?);
        Some(Partition { device: numbers(&read("dev")?)?, sectors: start..start.saturating_add(size) })
    };
    all.flatten().filter_map(one).collect()
}

/// All mounts; for a device mounted in several places, the first one that shows its root.
fn mounted() -> Vec<Mounted> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = |line: &str| {
        let (first, second) = line.split_once(" - ")?;
        let mut words = first.split(' ').skip(2);
        let device = numbers(words.next()?)?;
        let whole = words.next()? == "/";
        let at = PathBuf::from(words.next()?);
        let kind = second.split(' ').next()?;
        let by_number = matches!(kind, "ext2" | "ext3" | "ext4" | "f2fs");
        // Paths with spaces and the like are escaped.
        let plain = !at.to_str()?.contains('\\');
        (whole && plain).then_some(Mounted { device, at, by_number })
    };
    text.lines().filter_map(line).collect()
}

impl Paths {
    /// An empty cache.
    pub fn new(shown: fn(&str) -> String) -> Self {
        Paths {
            shown,
            clock: RealClock::new(),
            now: Duration::ZERO,
            mounted: (Vec::new(), None),
            known: BTreeMap::new(),
            open: BTreeMap::new(),
            left: 0,
            devices: BTreeMap::new(),
            partitions: BTreeMap::new(),
            at: ((0, 0), 0),
        }
    }

    /// True if the result is still valid.
    fn fresh(&self, at: Duration) -> bool {
        self.now.saturating_sub(at) < FRESH
    }

    /// Begins a step.
    pub fn begin(&mut self) {
        self.now = self.clock.monotonic();
        self.left = EACH_STEP;
        if self.known.len() > REMEMBERED {
            self.known.clear();
        }
        if self.open.len() > REMEMBERED {
            self.open.clear();
        }
    }

    fn mounts(&mut self) -> &[Mounted] {
        if self.mounted.1.is_none_or(|at| !self.fresh(at)) {
            self.mounted = (mounted(), Some(self.now));
        }
        &self.mounted.0
    }

    /// A page became dirty: if only the descriptors of its dirtier can give the file's path, searches them.
    pub fn dirtied(&mut self, dirtied: &Dirtied<'_>) {
        let (number, place) = dirtied.place;
        let key = (number, dirtied.ino);
        if self.left == 0 || self.open.get(&key).is_some_and(|(_, at)| self.fresh(*at)) {
            return;
        }
        let major = place.split_once(':').and_then(|(major, _)| major.parse::<u32>().ok());
        let told = self.mounts().iter().any(|m| m.by_number && Some(m.device.0) == major);
        let path = if told {
            None
        } else {
            self.left -= 1;
            descriptor(dirtied.pid, place, dirtied.ino)
        };
        self.open.insert(key, (path, self.now));
    }

    /// Sets the request to which the next lookups belong.
    pub fn look_at(&mut self, event: &Event) {
        self.at = ((event.device.major, event.device.minor), event.sector);
    }

    /// The partition of the request; the kernel reports only the disk.
    fn partition(&mut self, device: (u32, u32)) -> (u32, u32) {
        let (disk, sector) = self.at;
        if disk != device {
            return device;
        }
        if self.partitions.get(&disk).is_none_or(|(_, at)| !self.fresh(*at)) {
            self.partitions.insert(disk, (partitions(disk), self.now));
        }
        self.partitions[&disk].0.iter().find(|p| p.sectors.contains(&sector)).map_or(device, |p| p.device)
    }

    fn path(&mut self, written: &Written, device: (u32, u32)) -> Option<PathBuf> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let found = self.mounts().iter().find(|m| m.device == device && m.by_number);
        if let Some(path) = found.and_then(|m| by_number::path(&m.at, written.ino)) {
            return Some(path);
        }
        self.open.get(&(written.place, written.ino))?.0.clone()
    }

    /// The name of a device.
    fn device(&mut self, (major, minor): (u32, u32)) -> &str {
        self.devices.entry((major, minor)).or_insert_with(|| {
            disk::disk(DeviceId { major, minor }).map_or_else(|| format!("{major},{minor}"), |disk| disk.name)
        })
    }
}

/// True if a file may be on the device reported by writeback: on a disk with this major number, or on a Btrfs, whose
/// files have private device numbers.
fn may_be_on(link: &Path, dev: u64, place: &str) -> bool {
    match numbers(place) {
        Some((major, _)) => rustix::fs::major(dev) == major,
        None if place.starts_with("btrfs") => rustix::fs::statfs(link).is_ok_and(|fs| fs.f_type == BTRFS),
        None => false,
    }
}

/// The path of an inode that a process has open.
fn descriptor(pid: u32, place: &str, ino: u64) -> Option<PathBuf> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    for entry in all.take(DESCRIPTORS).flatten() {
        let link = entry.path();
        if let Ok(meta) = fs::metadata(&link)
            && meta.ino() == ino
            && meta.is_file()
            && may_be_on(&link, meta.dev(), place)
            && let Ok(path) = fs::read_link(&link)
            && fs::metadata(&path).is_ok_and(|at| (at.dev(), at.ino()) == (meta.dev(), ino))
        {
            return Some(path);
        }
    }
    None
}

impl Called for Paths {
    fn called(&mut self, written: &Written, _: &Names) -> String {
        let device = if written.is_device() { written.device } else { self.partition(written.device) };
        let key = (device, written.ino);
        if let Some((known, at)) = self.known.get(&key)
            && self.fresh(*at)
        {
            return known.clone();
        }
        let path = if written.is_device() { None } else { self.path(written, device) };
        let text = match path {
            Some(path) => (self.shown)(&path.to_string_lossy()),
            None if written.is_device() => format!("blocks of {}", self.device(device)),
            None => format!("inode {} of {}", written.ino, self.device(device)),
        };
        self.known.insert(key, (text.clone(), self.now));
        text
    }
}
