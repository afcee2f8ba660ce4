//! How fast is the core, without FUSE around it?

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use device::{Access, BlockDevice, FileDevice, Memory, RealClock, Rng};
use f2fs::mkfs::Options;
use f2fs::{MountOptions, Volume};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};

use super::{Outcome, Stopwatch, median};

/// A measurement and its goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// What was measured.
    pub name: String,
    /// In [`unit`](Self::unit).
    pub value: f64,
    /// `op/s`, `GB/s`, `s`, `MB`.
    pub unit: &'static str,
    /// The minimum or maximum to reach.
    pub aim: &'static str,
}

const TIB: u64 = 1 << 40;
/// Bytes of the volume in memory.
const VOLUME: u64 = 2 << 30;
/// Bytes of the file written and read.
const FILE: u64 = 512 << 20;
const CREATES: u64 = 200_000;
const OVERWRITES: u64 = 400_000;
/// Files on the large image, and files per directory.
const FILES: u64 = 1_000_000;
const FILES_EACH: u64 = 10_000;

/// Everything, each as the median of `passes` passes; the large image is made once, in `dir`, if given.
///
/// # Errors
/// The first operation that failed.
pub fn all(passes: usize, large_image_in: Option<&Path>) -> Outcome<Vec<Measured>> {
    let mut by_pass = Vec::new();
    for _ in 0..passes {
        by_pass.push(one_pass()?);
    }
    let mut rows: Vec<Measured> = by_pass.first().cloned().unwrap_or_default();
    for (i, row) in rows.iter_mut().enumerate() {
        let values: Vec<f64> = by_pass.iter().filter_map(|p| p.get(i)).map(|r| r.value).collect();
        row.value = median(&values);
    }
    if let Some(dir) = large_image_in {
        rows.extend(large_image(dir)?);
    }
    Ok(rows)
}

fn mount(dev: Arc<dyn BlockDevice>) -> Outcome<Arc<Volume>> {
    Ok(Volume::mount(dev, Arc::new(RealClock::new()), MountOptions::default())?)
}

fn create(fs: &Volume, parent: Ino, name: &str) -> vfs::Result<Ino> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    Ok(fs.mknod(Caller::default(), parent, name.as_bytes(), &new)?.attr.ino)
}

fn one_pass() -> Outcome<Vec<Measured>> {
    let memory = Arc::new(Memory::new(VOLUME / 4096));
    let options = Options { assume_zeroed: true, ..Options::modern() };
    f2fs::mkfs::format(&*memory, &RealClock::new(), &options)?;
    let fs = mount(memory)?;
    let mut rows = Vec::new();
    let mut row = |name: &str, value: f64, unit, aim| {
        rows.push(Measured { name: name.into(), value, unit, aim });
    };

    let file = create(&fs, fs.root(), "data")?;
    let piece: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let since = Stopwatch::start();
    for at in (0..FILE).step_by(1 << 20) {
        fs.write(file, at, &piece, WriteFlags::empty())?;
    }
    fs.fsync(file, false)?;
    row("sequential write, 1 MiB, with fsync", FILE as f64 / 1e9 / since.elapsed().as_secs_f64(), "GB/s", "≥ 2");

    let mut back = vec![0; 1 << 20];
    let since = Stopwatch::start();
    for at in (0..FILE).step_by(1 << 20) {
        fs.read(file, at, &mut back)?;
    }
    row("sequential read, 1 MiB", FILE as f64 / 1e9 / since.elapsed().as_secs_f64(), "GB/s", "≥ 2");
    if back != piece {
        return Err("what was read is not what was written".into());
    }

    let mut rng = Rng::new(1);
    let since = Stopwatch::start();
    for i in 0..OVERWRITES {
        let block = [i as u8; 4096];
        fs.write(file, rng.below(FILE / 4096) * 4096, &block, WriteFlags::empty())?;
    }
    fs.fsync(file, true)?;
    row("random overwrites, 4 KiB", OVERWRITES as f64 / since.elapsed().as_secs_f64(), "op/s", "≥ 400,000");

    let since = Stopwatch::start();
    let mut block = [0; 4096];
    for _ in 0..OVERWRITES {
        fs.read(file, rng.below(FILE / 4096) * 4096, &mut block)?;
    }
    row("random reads, 4 KiB", OVERWRITES as f64 / since.elapsed().as_secs_f64(), "op/s", "");

    let mut dirs = Vec::new();
    for d in 0..CREATES / FILES_EACH {
        let dir = fs.mkdir(Caller::default(), fs.root(), format!("d{d:02}").as_bytes(), 0o755, 0)?;
        dirs.push(dir.attr.ino);
    }
    let name = |i: u64| format!("f{:05}", i % FILES_EACH);
    let dir = |i: u64| dirs[(i / FILES_EACH) as usize];
    let since = Stopwatch::start();
    for i in 0..CREATES {
        let ino = create(&fs, dir(i), &name(i))?;
        fs.forget(ino, 1);
    }
    row("creates, 10,000 in a directory", CREATES as f64 / since.elapsed().as_secs_f64(), "op/s", "≥ 200,000");
    let since = Stopwatch::start();
    for i in 0..CREATES {
        let entry = fs.lookup(dir(i), name(i).as_bytes())?;
        fs.forget(entry.attr.ino, 1);
    }
    row("lookups", CREATES as f64 / since.elapsed().as_secs_f64(), "op/s", "");
    let since = Stopwatch::start();
    for i in 0..CREATES {
        fs.unlink(dir(i), name(i).as_bytes())?;
    }
    row("unlinks", CREATES as f64 / since.elapsed().as_secs_f64(), "op/s", "");
    for dir in &dirs {
        fs.forget(*dir, 1);
    }
    fs.forget(file, 1);
    let since = Stopwatch::start();
    fs.unmount()?;
    row("unmount", since.elapsed().as_secs_f64(), "s", "");
    Ok(rows)
}

/// Creates a 1 TiB sparse image with a million files in `dir` and mounts it in a separate process.
fn large_image(dir: &Path) -> Outcome<Vec<Measured>> {
    let image = dir.join("large.img");
    let dev = FileDevice::create(&image, TIB)?;
    let options = Options { assume_zeroed: true, ..Options::modern() };
    f2fs::mkfs::format(&dev, &RealClock::new(), &options)?;
    let fs = mount(Arc::new(dev))?;
    let since = Stopwatch::start();
    for d in 0..FILES / FILES_EACH {
        let parent = fs.mkdir(Caller::default(), fs.root(), format!("d{d:03}").as_bytes(), 0o755, 0)?.attr.ino;
        for i in 0..FILES_EACH {
            let ino = create(&fs, parent, &format!("f{i:05}"))?;
            fs.write(ino, 0, &i.to_le_bytes(), WriteFlags::empty())?;
            fs.forget(ino, 1);
        }
        fs.forget(parent, 1);
        fs.tick()?;
    }
    fs.unmount()?;
    drop(fs);
    let making = since.elapsed().as_secs_f64();
    let output = Command::new(std::env::current_exe()?).arg("mount-once").arg(&image).output()?;
    std::fs::remove_file(&image)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [seconds, megabytes] = numbers[..] else {
        return Err(format!("mounting 1 TiB: {}{}", text, String::from_utf8_lossy(&output.stderr)).into());
    };
    let row = |name: &str, value, unit, aim| Measured { name: name.into(), value, unit, aim };
    Ok(vec![
        row("1 TiB, a million small files: making them", FILES as f64 / making, "op/s", ""),
        row("the same: mounting", seconds, "s", "≤ 1"),
        row("the same: peak memory of the process that mounts and looks", megabytes, "MB", "≤ 100"),
    ])
}

/// The separate process: mounts, looks a few files up, prints seconds to mount and peak megabytes.
///
/// # Errors
/// If the image cannot be mounted or read.
pub fn mount_once(image: &Path) -> Outcome<()> {
    let since = Stopwatch::start();
    let fs = mount(Arc::new(FileDevice::open(image, Access::ReadWrite)?))?;
    let seconds = since.elapsed().as_secs_f64();
    for d in [0, 57, 99] {
        let parent = fs.lookup(fs.root(), format!("d{d:03}").as_bytes())?.attr.ino;
        let ino = fs.lookup(parent, b"f09999")?.attr.ino;
        let mut found = [0; 9];
        if fs.read(ino, 0, &mut found)? != 8 || found[..8] != 9999_u64.to_le_bytes() {
            return Err("a file is not what was written".into());
        }
    }
    println!("{seconds} {}", peak_megabytes()?);
    fs.unmount()?;
    Ok(())
}

/// Peak memory of this process.
///
/// # Errors
/// If the host does not report it.
pub fn peak_megabytes() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak: f64 = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .and_then(|l| l.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .ok_or("no VmHWM")?;
    Ok(peak * 1024.0 / 1e6)
}
