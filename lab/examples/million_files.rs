//! Creates an image of a phone's 256 GB with a million files: `joulefs inspect` must process it in 20 seconds with one
//! gigabyte of memory.
//!
//! Our own file system writes it. Contents are zeroes, and blocks of zeroes at addresses never written before are left
//! out of the sparse image: the nodes and tables take about 5 GB on disk, and `inspect` reads nothing else.
//!
//! `scripts/inspect-million` creates it, runs `inspect` on it and checks time and memory.
//!
//!     cargo run --release -p joulefs-lab --example million_files -- IMAGE [FILES]

use std::process::ExitCode;
use std::sync::Arc;

use device::{BLOCK, BlockDevice, FileDevice, Lba, Tag};
use f2fs::{MountOptions, Volume};
use parking_lot::Mutex;
use sim::aging;
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};
use volume::Kind;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Bytes of the device.
const DEVICE: u64 = 256 << 30;
/// Files per directory.
const PER_DIRECTORY: u64 = 500;
/// Number of databases that grow together, and of rounds. Each round fragments each database.
const DATABASES: u64 = 400;
const TURNS: u64 = 500;
/// Bytes per write.
const CHUNK: u64 = 4 << 20;

/// A sparse file that skips blocks of zeroes.
struct Sparse {
    file: FileDevice,
    /// One bit for each block ever written to the file.
    written: Mutex<Vec<u64>>,
}

impl BlockDevice for Sparse {
    fn blocks(&self) -> u64 {
        self.file.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.file.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        let mut written = self.written.lock();
        for (n, block) in (at.0..).zip(data.chunks_exact(BLOCK)) {
            let (word, bit) = ((n / 64) as usize, 1 << (n % 64));
            if written[word] & bit == 0 && block.iter().all(|b| *b == 0) {
                continue;
            }
            self.file.write(Lba(n), block, tag)?;
            written[word] |= bit;
        }
        Ok(())
    }
    /// The image need not survive a crash of this machine.
    fn flush(&self, _tag: Tag) -> device::Result<()> {
        Ok(())
    }
    fn discard(&self, _at: Lba, _blocks: u64, _tag: Tag) -> device::Result<()> {
        Ok(())
    }
}

/// Name and size of the n-th file: per thousand, 200 inside their inodes, 500 of up to eight blocks, 280 of up to 64,
/// 19 of some megabytes, and one film.
fn file(n: u64) -> (&'static str, u64) {
    let some = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    match n % 1000 {
        0..200 => ("xml", 100 + some % 3000),
        200..700 => ("webp", (1 + some % 8) * 4096),
        700..980 => ("jpg", (16 + some % 49) * 4096),
        980..999 => ("odex", (600 + some % 1200) * 4096),
        _ => ("mp4", (10_000 + some % 16_000) * 4096),
    }
}

fn make(vol: &Volume, dir: Ino, name: &str) -> Outcome<Ino> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    Ok(vol.mknod(Caller::default(), dir, name.as_bytes(), &new)?.attr.ino)
}

fn directory(vol: &Volume, parent: Ino, name: &str) -> Outcome<Ino> {
    Ok(vol.mkdir(Caller::default(), parent, name.as_bytes(), 0o755, 0)?.attr.ino)
}

fn put(vol: &Volume, ino: Ino, from: u64, bytes: u64, zeroes: &[u8]) -> Outcome<()> {
    let (mut at, end) = (from, from + bytes);
    while at < end {
        let n = vol.write(ino, at, &zeroes[..(end - at).min(CHUNK) as usize], WriteFlags::empty())?;
        if n == 0 {
            return Err("nothing was written".into());
        }
        at += n as u64;
    }
    Ok(())
}

fn fill(vol: &Volume, files: u64) -> Outcome<()> {
    let zeroes = vec![0; CHUNK as usize];
    let data = directory(vol, vol.root(), "data")?;
    let torn = directory(vol, data, "com.example.chat")?;
    let databases =
        (0..DATABASES.min(files)).map(|n| make(vol, torn, &format!("{n}.db"))).collect::<Outcome<Vec<_>>>()?;
    let (mut turn, mut dir) = (0, data);
    for n in 0..files - databases.len() as u64 {
        if n % PER_DIRECTORY == 0 {
            dir = directory(vol, data, &format!("com.example.app{}", n / PER_DIRECTORY))?;
        }
        let (suffix, bytes) = file(n);
        let ino = make(vol, dir, &format!("{n:07}.{suffix}"))?;
        put(vol, ino, 0, bytes, &zeroes)?;
        vol.forget(ino, 1);
        // Rounds are spread evenly over the files.
        if turn < TURNS && n * TURNS >= turn * files {
            for &ino in &databases {
                put(vol, ino, turn * 4096, 4096, &zeroes)?;
                vol.fsync(ino, false)?;
            }
            turn += 1;
        }
        if n % 20_000 == 0 {
            eprintln!("{n} files");
        }
    }
    databases.iter().for_each(|&ino| vol.forget(ino, 1));
    Ok(())
}

fn run(args: &[String]) -> Outcome<()> {
    let [path, files @ ..] = args else { return Err("usage: million_files IMAGE [FILES]".into()) };
    let files = files.first().map_or(Ok(1_000_000), |n| n.parse())?;
    let file = FileDevice::create(path, DEVICE)?;
    let written = Mutex::new(vec![0; (DEVICE / BLOCK as u64 / 64) as usize]);
    let dev = Arc::new(Sparse { file, written });
    let clock = aging::clock();
    aging::format(Kind::F2fs, dev.clone(), &*clock, 11, true)?;
    let vol = Volume::mount(dev, clock, MountOptions::default())?;
    fill(&vol, files)?;
    let free = vol.statfs()?;
    vol.unmount()?;
    let used = (free.blocks - free.blocks_free) * BLOCK as u64;
    println!("{path}: {files} files, {} GiB of {} in use", used >> 30, DEVICE >> 30);
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
