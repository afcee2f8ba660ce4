//! What does ScherlFS ask of its disk in a day of calls? For `recordings/archive-day/record`, which makes the calls and
//! gives them on standard input; each day's requests are written to a file, with the times at which they came.
//!
//! Time is virtual. The volume is in a file of the directory that is given, and is removed.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use device::{BLOCK, BlockDevice, FileDevice, Lba, Memory, Tag, VirtualClock};
use joulefs_scherlfs::{Beside, MountOptions, Sync, Volume, index_blocks, keep_blocks, make};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Flow, Ino, NewNode, SetAttr, WriteFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };
/// Bytes of the volume.
const SIZE: u64 = 4 << 30;
/// When the recordings begin, in the ticks of their format.
const BEGIN: u64 = 128_166_372_000_000_000;

type Done<T> = Result<T, Box<dyn Error>>;

/// A disk whose requests are noted.
struct Noted {
    disk: FileDevice,
    clock: Arc<VirtualClock>,
    /// Where they go, and when the day began.
    out: Mutex<Option<(BufWriter<File>, Duration)>>,
}

impl Noted {
    fn note(&self, what: &str, at: Lba, bytes: usize) {
        use device::Clock;
        if let Some((out, begun)) = &mut *self.out.lock().unwrap_or_else(PoisonError::into_inner) {
            let ticks = BEGIN + (self.clock.monotonic().saturating_sub(*begun).as_nanos() / 100) as u64;
            // A recording that cannot be written is not whole, which whoever reads it sees.
            let _ = writeln!(out, "{ticks},day,0,{what},{},{bytes},0", at.0 * BLOCK as u64);
        }
    }
}

impl BlockDevice for Noted {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.note("Read", at, buf.len());
        self.disk.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        self.note("Write", at, data.len());
        self.disk.write(at, data, tag)
    }
    fn flush(&self, _: Tag) -> device::Result<()> {
        Ok(())
    }
    fn discard(&self, _: Lba, _: u64, _: Tag) -> device::Result<()> {
        Ok(())
    }
}

fn names(volume: &Volume, dir: Ino) -> Done<Vec<(Vec<u8>, FileKind)>> {
    let mut names = Vec::new();
    let each = &mut |e: vfs::DirEntry<'_>| {
        names.push((e.name.to_vec(), e.kind));
        Flow::Continue
    };
    volume.readdir(dir, 0, each)?;
    names.retain(|(name, _)| name != b"." && name != b"..");
    Ok(names)
}

/// Looks at all that is in a directory, and below.
fn look(volume: &Volume, dir: Ino, below: bool) -> Done<()> {
    for (name, kind) in names(volume, dir)? {
        let ino = volume.lookup(dir, &name)?.attr.ino;
        if below && kind == FileKind::Directory {
            look(volume, ino, true)?;
        }
        volume.forget(ino, 1);
    }
    Ok(())
}

/// The inode of a path; directories on the way are made if `make`.
fn walk(volume: &Volume, path: &str, make: bool) -> Done<Ino> {
    let mut at = volume.root();
    for name in path.split('/').filter(|n| *n != ".") {
        at = match volume.lookup(at, name.as_bytes()) {
            Err(vfs::Error::NotFound) if make => volume.mkdir(ME, at, name.as_bytes(), 0o755, 0)?.attr.ino,
            found => found?.attr.ino,
        };
    }
    Ok(at)
}

fn write(volume: &Volume, path: &str, len: u64) -> Done<()> {
    let (dir, name) = path.rsplit_once('/').ok_or("a path has a directory")?;
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    let dir = walk(volume, dir, true)?;
    let ino = match volume.mknod(ME, dir, name.as_bytes(), &new) {
        Err(vfs::Error::Exists) => {
            let ino = volume.lookup(dir, name.as_bytes())?.attr.ino;
            volume.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
            ino
        }
        made => made?.attr.ino,
    };
    let bytes = vec![0x5A; 1 << 20];
    for at in (0..len).step_by(1 << 20) {
        volume.write(ino, at, &bytes[..(len - at).min(1 << 20) as usize], WriteFlags::empty())?;
    }
    volume.forget(ino, 1);
    Ok(())
}

fn call(volume: &Volume, op: &str, path: &str, offset: u64, len: u64) -> Done<()> {
    match op {
        "scan" => look(volume, walk(volume, path, false)?, true)?,
        "list" => look(volume, walk(volume, path, false)?, false)?,
        "df" => _ = volume.statfs()?,
        "read" => _ = volume.read(walk(volume, path, false)?, offset, &mut vec![0; len as usize])?,
        "write" => write(volume, path, len)?,
        "sync" => volume.fsync(walk(volume, path, false)?, false)?,
        other => return Err(format!("no call {other}").into()),
    }
    Ok(())
}

struct Runner<'d> {
    disk: Arc<Noted>,
    clock: Arc<VirtualClock>,
    out: &'d Path,
}

impl Runner<'_> {
    fn passes(&self, volume: &Volume, until: Duration) -> Done<()> {
        use device::Clock;
        while self.clock.monotonic() < until {
            self.clock.advance((until - self.clock.monotonic()).min(Duration::from_secs(1)));
            while volume.tick()? < Duration::from_secs(1) {}
        }
        Ok(())
    }

    fn day(&self, variant: &str, day: &str, calls: &[Vec<String>], options: MountOptions) -> Done<()> {
        use device::Clock;
        let volume = Volume::mount(self.disk.clone(), self.clock.clone(), options)?;
        self.passes(&volume, self.clock.monotonic() + Duration::from_secs(60))?;
        let mut out = BufWriter::new(File::create(self.out.join(format!("{variant}.{day}.csv")))?);
        writeln!(out, "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime")?;
        let begun = self.clock.monotonic();
        *self.disk.out.lock().unwrap_or_else(PoisonError::into_inner) = Some((out, begun));
        for words in calls {
            let [at, op, path, offset, len] = &words[..] else { return Err("five words a call".into()) };
            self.passes(&volume, begun + Duration::from_secs_f64(at.parse()?))?;
            call(&volume, op, path, offset.parse()?, len.parse()?)?;
        }
        self.passes(&volume, begun + Duration::from_secs(24 * 3600))?;
        if let Some((mut out, _)) = self.disk.out.lock().unwrap_or_else(PoisonError::into_inner).take() {
            out.flush()?;
        }
        let wakes = volume.report().into_iter().filter(|(n, _)| n.starts_with("disk_wakes") || n.starts_with("keep"));
        eprintln!("{variant} {day}: {:?}", wakes.map(|(_, v)| v).collect::<Vec<_>>());
        volume.unmount()?;
        Ok(())
    }
}

fn main() -> Done<()> {
    let out = std::env::args().nth(1).ok_or("day DIRECTORY < calls")?;
    let out = Path::new(&out);
    let (mut tree, mut days) = (Vec::new(), Vec::<(String, Vec<Vec<String>>)>::new());
    for line in std::io::stdin().lock().lines() {
        let words: Vec<String> = line?.split(' ').map(str::to_owned).collect();
        match words[0].as_str() {
            "make" => tree.push((words[1].clone(), words[2].parse::<u64>()?)),
            "day" => days.push((words[1].clone(), Vec::new())),
            _ => days.last_mut().ok_or("a call before its day")?.1.push(words),
        }
    }
    let device = |blocks: u64| -> Option<Arc<dyn BlockDevice>> { Some(Arc::new(Memory::new(blocks))) };
    let index = || Ok::<_, vfs::Error>(device(index_blocks(SIZE / BLOCK as u64)?));
    let keep = |bytes: u64| Ok::<_, vfs::Error>(device(keep_blocks(bytes / BLOCK as u64)?));
    let (stage, sleep) = (|| device(64 << 10), Some(Duration::from_secs(900)));
    let asleep = |index, keep, stage, sync| MountOptions {
        sync,
        dirty: 64 << 8,
        beside: Beside { index, keep, stage, sleep, program_of: None },
        ..MountOptions::default()
    };
    let plain = MountOptions::default;
    // The name, how the volume is filled, how it is mounted in the days.
    let mut variants =
        vec![("scherlfs", plain(), plain()), ("scherlfs-stage", plain(), asleep(None, None, None, Sync::Fsync))];
    let mut lived = |name, options: MountOptions| variants.push((name, options.clone(), options));
    lived("scherlfs-index", asleep(index()?, None, None, Sync::Fsync));
    lived("scherlfs-burst", asleep(index()?, None, stage(), Sync::Burst));
    lived("scherlfs-keep", asleep(index()?, keep(256 << 20)?, None, Sync::Fsync));
    lived("scherlfs-keep-burst", asleep(index()?, keep(256 << 20)?, stage(), Sync::Burst));
    lived("scherlfs-keep-16m", asleep(index()?, keep(16 << 20)?, stage(), Sync::Burst));
    // The archive was filled before anybody gave it a keep.
    variants.push(("scherlfs-keep-new", plain(), asleep(index()?, keep(256 << 20)?, stage(), Sync::Burst)));
    for (variant, filled, options) in variants {
        let path = out.join("scherlfs.image");
        let clock = Arc::new(VirtualClock::default());
        let disk = FileDevice::create(&path, SIZE)?;
        let disk = Arc::new(Noted { disk, clock: clock.clone(), out: Mutex::new(None) });
        make::format(disk.clone(), &*clock, &make::Options { uuid: [1; 16], ..make::Options::default() })?;
        let volume = Volume::mount(disk.clone(), clock.clone(), filled)?;
        tree.iter().try_for_each(|(path, size)| write(&volume, path, *size))?;
        volume.unmount()?;
        let runner = Runner { disk, clock, out };
        for (day, calls) in &days {
            runner.day(variant, day, calls, options.clone())?;
        }
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
