//! Which files are below a mounted directory, and where are their blocks according to the kernel?
//!
//! Regular files of the directory's own file system, each once, however many names it has. If the time does not suffice
//! for all of them, directories are visited in random order, so that the result is a sample; the seed is fixed, so that
//! two inspections of one tree visit files in the same order. Unreadable files are counted.

use std::collections::HashSet;
use std::fs::{self, File as HostFile};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use device::{Clock, RealClock, Rng};
use format::Ino;
use inspect::File;
use inspect::class::Class;
use inspect::ext::Tree;
use inspect::file;
use inspect::inode::Kind;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use super::ground::Known;
use super::segment_bits;
use crate::Failure;
use host::fiemap;

/// Files below a directory, or in an image of a file system other than F2FS.
pub struct Mounted {
    /// Regular files.
    pub files: Vec<File>,
    /// Their paths, in the same order.
    pub paths: Vec<Vec<u8>>,
    /// Their inode numbers, in the same order: they may have 64 bits.
    pub numbers: Vec<u64>,
    /// The segments, or ranges of 2 MiB, if the file system reports them.
    pub known: Option<Known>,
    /// Directories visited.
    pub dirs: u64,
    /// Known directories not visited: if there are any, the result is a sample.
    pub left: u64,
    /// Files and directories that could not be opened.
    pub closed: u64,
    /// Blocks without an address yet.
    pub waiting: u64,
    /// Files whose extents the file system does not report.
    pub silent: u64,
    /// The kernel's name of the file system's type; empty if unknown.
    pub file_system: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its free bytes.
    pub free_bytes: u64,
    /// Its inodes in use; 0 if it does not count them.
    pub inodes: u64,
    /// What could not be determined in an image.
    pub damage: Vec<String>,
}

/// Examines files below a directory for a limited time, or all of them.
///
/// # Errors
/// If the directory cannot be read, the file system reports no file's extents, or the caller interrupts.
pub fn look(
    root: &Path,
    time: Option<Duration>,
    (window, extents): (u64, bool),
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<Mounted, Failure> {
    let named = |e: &dyn std::fmt::Display| Failure::from(format!("{}: {e}", root.display()));
    let device = fs::metadata(root).map_err(|e| named(&e))?.dev();
    fs::read_dir(root).map_err(|e| named(&e))?;
    let space = rustix::fs::statvfs(root).map_err(|e| named(&e))?;
    let mut out = Mounted {
        files: Vec::new(),
        paths: Vec::new(),
        numbers: Vec::new(),
        known: None,
        dirs: 0,
        left: 0,
        closed: 0,
        waiting: 0,
        silent: 0,
        file_system: file_system(root, device),
        bytes: space.f_blocks.saturating_mul(space.f_frsize),
        free_bytes: space.f_bfree.saturating_mul(space.f_frsize),
        inodes: inodes(root),
        damage: Vec::new(),
    };
    out.known = known(root, device, &out);
    let clock = RealClock::new();
    let began = clock.monotonic();
    let over = || time.is_some_and(|time| clock.monotonic().saturating_sub(began) > time);
    let mut rng = Rng::new(1);
    let (mut twice, mut told) = (HashSet::new(), 0);
    let mut waiting = vec![root.to_owned()];
    while !waiting.is_empty() {
        if !tell(out.files.len() as u64 - told) {
            return Err("interrupted".into());
        }
        told = out.files.len() as u64;
        if over() {
            break;
        }
        let dir = waiting.swap_remove(rng.index(waiting.len()));
        let Ok(entries) = fs::read_dir(&dir) else {
            out.closed += 1;
            continue;
        };
        out.dirs += 1;
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_block_device() || kind.is_char_device() || kind.is_symlink() {
                continue;
            }
            let Ok(meta) = entry.metadata() else { continue };
            if meta.dev() != device {
                continue;
            }
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_file() && (meta.nlink() < 2 || twice.insert(meta.ino())) {
                out.take(&entry.path(), &meta, window, extents);
                if over() {
                    // This directory was visited in part.
                    waiting.push(dir);
                    break;
                }
            }
        }
    }
    out.left = waiting.len() as u64;
    if out.silent > 0 && out.files.iter().all(|f| f.layout.extents == 0 && !f.inline) {
        let what = if out.file_system.is_empty() { "its file system" } else { &out.file_system };
        return Err(named(&format!("{what} does not report where files lie (FIEMAP)")));
    }
    Ok(out)
}

/// Segments or free space, as reported by the file system.
fn known(root: &Path, device: u64, m: &Mounted) -> Option<Known> {
    if m.file_system == "f2fs" {
        return segment_bits::of(device);
    }
    let open = fs::File::open(root).ok()?;
    let free = fiemap::free(&open).ok()?;
    // The file system's own count excludes metadata: free space may lie beyond it.
    let end = free.last().map_or(0, |(from, count)| from + count);
    Known::of_free(&free, end.max(device_blocks(device)?))
}

/// Blocks of 4 KiB of a block device.
fn device_blocks(device: u64) -> Option<u64> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let sectors = fs::read_to_string(format!("/sys/dev/block/{number}/size")).ok()?;
    Some(sectors.trim().parse::<u64>().ok()? / 8)
}

impl Mounted {
    /// The files read from an image.
    pub fn of_tree(tree: Tree) -> Self {
        let of_segments = |(segments, space)| Known { segments, space, first: Some(0), now: None, has_logs: false };
        Mounted {
            numbers: tree.files.iter().map(|f| f.ino.0.into()).collect(),
            files: tree.files,
            paths: tree.paths,
            known: tree.segments.map(of_segments),
            dirs: tree.dirs,
            left: 0,
            closed: 0,
            waiting: 0,
            silent: 0,
            file_system: tree.kind.to_owned(),
            bytes: tree.bytes,
            free_bytes: tree.free_bytes,
            inodes: tree.inodes,
            damage: tree.damage,
        }
    }

    fn take(&mut self, path: &Path, meta: &fs::Metadata, window: u64, extents: bool) {
        let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
        let mut map = fiemap::Map::default();
        if meta.len() > 0 || meta.blocks() > 0 {
            match open(path).and_then(|f| fiemap::map(&f)) {
                Ok(found) => map = found,
                Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => return self.silent += 1,
                Err(_) => return self.closed += 1,
            }
        }
        self.waiting += map.waiting;
        let mut layout = file::of_extents(&map.extents, window);
        layout.reserved = map.reserved;
        self.paths.push(path.as_os_str().as_bytes().to_vec());
        self.numbers.push(meta.ino());
        self.files.push(File {
            ino: Ino(u32::try_from(meta.ino()).unwrap_or(u32::MAX)),
            kind: Kind::File,
            class: Class::from_name(name),
            parent: Ino(0),
            name: name.into(),
            name_is_sure: true,
            name_is_encrypted: false,
            size: meta.len(),
            links: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
            mtime_ns: meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()),
            inline: map.inline,
            compressed: false,
            released: false,
            delta_room: 0,
            deltas: 0,
            lawful: true,
            layout,
            extents: if extents { map.extents } else { Vec::new() },
        });
    }
}

/// Opens a file only to query its extents, without changing its access time.
fn open(path: &Path) -> Result<HostFile, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let with = |flags: OFlags| fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    // Only the owner may suppress access time updates.
    with(flags | OFlags::NOATIME)
        .or_else(|_| with(flags))
        .map_err(|e| e.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
}

/// The type of a directory's file system. The kernel identifies its mount; before Linux 5.8 the mount with the same
/// device number is used, which fails on Btrfs subvolumes.
fn file_system(root: &Path, device: u64) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let asked = rustix::fs::statx(rustix::fs::CWD, root, AtFlags::empty(), StatxFlags::MNT_ID).ok();
    let id = asked.filter(|s| s.stx_mask & StatxFlags::MNT_ID.bits() != 0).map(|s| s.stx_mnt_id.to_string());
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let kind = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut words = before.split(' ');
        let is_it = match &id {
            Some(id) => words.next()? == id,
            None => words.nth(2)? == number,
        };
        is_it.then(|| after.split(' ').next().unwrap_or_default().to_owned())
    };
    mounts.lines().find_map(kind).unwrap_or_default()
}

/// Used inodes on a directory's file system, for a progress bar; 0 if not counted.
pub fn inodes(root: &Path) -> u64 {
    rustix::fs::statvfs(root).map_or(0, |space| space.f_files.saturating_sub(space.f_ffree))
}
