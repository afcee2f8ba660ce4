//! What do deltas cost a machine, as opposed to a device?
//!
//! Everything on one thread, on a volume in memory, so that requests cost nothing. Left out: what they save (the lab's
//! experiments named after MedFS).

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::{BLOCK, Memory, RealClock, Rng};
use f2fs::delta::Places;
use f2fs::mkfs::Options;
use f2fs::settle::settle;
use f2fs::{MountOptions, Volume};
use format::delta::codec::{decode, encode};
use format::superblock::Features;
use format::{Block, Ino, delta};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode, WriteFlags};

use super::in_process::Measured;
use super::{Outcome, Stopwatch, median};

const PAGES: usize = 20_000;
/// Bytes of the overwritten file.
const FILE: u64 = 64 << 20;
const OVERWRITES: u64 = 40_000;
/// Pages per fsync.
const TOGETHER: u64 = 8;
/// Number of files with one GiB and 10,000 deltas in total.
const FILES: u64 = 100;
const DELTAS_EACH: u64 = 100;

/// The rows, each as the median of `passes` passes.
///
/// # Errors
/// The first operation that failed.
pub fn all(passes: usize) -> Outcome<Vec<Measured>> {
    let mut by_pass = Vec::new();
    for _ in 0..passes {
        let mut rows = codecs();
        rows.push(overwrites()?);
        for places in [Places::Inode, Places::Both] {
            rows.extend(growing(places)?);
        }
        rows.push(settling()?);
        by_pass.push(rows);
    }
    let mut rows: Vec<Measured> = by_pass.first().cloned().unwrap_or_default();
    for (i, row) in rows.iter_mut().enumerate() {
        row.value = median(&by_pass.iter().map(|p| p[i].value).collect::<Vec<f64>>());
    }
    Ok(rows)
}

/// Creates deltas and reconstructs pages from them, including checks. Pages are in the processor's cache, as after a
/// program has just written them.
fn codecs() -> Vec<Measured> {
    let mut rng = Rng::new(1);
    let mut base: Box<Block> = Box::new([0; BLOCK]);
    rng.fill(&mut base[..]);
    let mut changed = |runs: usize, length: usize| {
        let mut page = base.clone();
        for _ in 0..runs {
            let at = rng.below((BLOCK + 1 - length) as u64) as usize;
            rng.fill(&mut page[at..at + length]);
        }
        page
    };
    let mut moved = base.clone();
    moved.copy_within(100..2000, 140);
    let pages = [
        ("8 bytes", changed(1, 8), ["≤ 2", "≤ 1"]),
        ("64 bytes in 8 places", changed(8, 8), ["≤ 2", "≤ 1"]),
        ("256 bytes in 8 places", changed(8, 32), ["≤ 2", "≤ 1"]),
        ("1,900 bytes that moved by 40", moved, ["", ""]),
    ];
    let check = |page: &Block| delta::check(7, Ino(8), 9, 10, page);
    let mut rows = Vec::new();
    let (mut out, mut sum) = (Vec::new(), 0);
    for (name, page, [encoding, decoding]) in pages {
        let since = Stopwatch::start();
        let mut codec = None;
        for _ in 0..PAGES {
            codec = encode(&base, &page, format::node::delta::LONGEST, &mut out);
            sum ^= check(&page);
        }
        rows.push(row(format!("making a delta, {name}"), micros(since.elapsed(), PAGES), "us", encoding));
        let Some(codec) = codec else { continue };
        let since = Stopwatch::start();
        for _ in 0..PAGES {
            if let Some(page) = decode(codec, &out, &base) {
                sum ^= check(&page);
            }
        }
        rows.push(row(format!("making its page, {name}"), micros(since.elapsed(), PAGES), "us", decoding));
    }
    black_box(sum);
    rows
}

fn micros(time: Duration, n: usize) -> f64 {
    time.as_secs_f64() * 1e6 / n as f64
}

fn row(name: String, value: f64, unit: &'static str, aim: &'static str) -> Measured {
    Measured { name, value, unit, aim }
}

fn volume(mib: u64, options: MountOptions) -> Outcome<(Arc<Memory>, Arc<Volume>)> {
    let memory = Arc::new(Memory::new(mib << 8));
    let features = Options::modern().features | Features::DELTA;
    f2fs::mkfs::format(&*memory, &RealClock::new(), &Options { features, assume_zeroed: true, ..Options::modern() })?;
    let volume = Volume::mount(memory.clone(), Arc::new(RealClock::new()), options)?;
    Ok((memory, volume))
}

fn file(vol: &Volume, name: &str, bytes: u64, rng: &mut Rng) -> Outcome<vfs::Ino> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    let ino = vol.mknod(Caller::default(), vol.root(), name.as_bytes(), &new)?.attr.ino;
    let mut piece = vec![0; 1 << 20];
    for at in (0..bytes).step_by(piece.len()) {
        rng.fill(&mut piece);
        vol.write(ino, at, &piece, WriteFlags::empty())?;
    }
    vol.fsync(ino, false)?;
    Ok(ino)
}

/// Random overwrites of dissimilar pages with syncs: speed with deltas as a fraction of the speed without. The two
/// alternate, since the machine's speed varies.
fn overwrites() -> Outcome<Measured> {
    let sides = [true, false].map(|delta| -> Outcome<_> {
        let (_, vol) = volume(512, MountOptions { delta, ..MountOptions::default() })?;
        let ino = file(&vol, "data", FILE, &mut Rng::new(1))?;
        Ok((vol, ino, Rng::new(2), Duration::ZERO))
    });
    let [with, without] = sides;
    let mut sides = [with?, without?];
    let mut page = vec![0; BLOCK];
    for _ in 0..8 {
        for (vol, ino, rng, took) in &mut sides {
            let since = Stopwatch::start();
            for n in 0..OVERWRITES / 8 {
                rng.fill(&mut page);
                vol.write(*ino, rng.below(FILE / BLOCK as u64) * BLOCK as u64, &page, WriteFlags::empty())?;
                if n % TOGETHER == TOGETHER - 1 {
                    vol.fsync(*ino, false)?;
                }
            }
            *took += since.elapsed();
        }
    }
    let rate = |side: usize| OVERWRITES as f64 / sides[side].3.as_secs_f64();
    let name = format!(
        "overwrites that are no deltas, 8 for each fsync: {:.0} op/s, of {:.0} with `delta=off`",
        rate(0),
        rate(1)
    );
    Ok(row(name, 100.0 * rate(0) / rate(1), "%", "≥ 90"))
}

/// The longest call of a writer whose file grows into its deltas, page by page and all at once.
fn growing(places: Places) -> Outcome<[Measured; 2]> {
    let mut longest = [Duration::ZERO; 2];
    let mut folded = 0;
    for (n, pages) in [(0, 1), (1, 608)] {
        let (_, vol) = volume(128, MountOptions { delta_places: places, ..MountOptions::default() })?;
        let mut rng = Rng::new(5);
        let ino = file(&vol, "grows", 1 << 20, &mut rng)?;
        for page in 0..256_u64 {
            let at = page * BLOCK as u64 + rng.below(4000);
            vol.write(ino, at, &rng.next_u64().to_le_bytes(), WriteFlags::empty())?;
            if page % TOGETHER == TOGETHER - 1 {
                vol.fsync(ino, false)?;
            }
        }
        vol.sync()?;
        let data = vec![7; pages * BLOCK];
        let mut at = 1 << 20;
        while at < 864 * BLOCK as u64 {
            let since = Stopwatch::start();
            vol.write(ino, at, &data, WriteFlags::empty())?;
            longest[n] = longest[n].max(since.elapsed());
            at += data.len() as u64;
        }
        folded = vol.counters.folded.load(Relaxed);
    }
    let of = if places == Places::Inode { "of the inode alone" } else { "with delta nodes" };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok([
        row(format!("longest write that grows into deltas {of}, page by page"), ms(longest[0]), "ms", "≤ 1"),
        row(format!("the same, all of {folded} at once"), ms(longest[1]), "ms", "≤ 1"),
    ])
}

/// Converts a volume with one GiB of files and 10,000 deltas to plain F2FS.
fn settling() -> Outcome<Measured> {
    let (memory, vol) = volume(2048, MountOptions::default())?;
    let mut rng = Rng::new(3);
    let bytes = (1 << 30) / FILES / (1 << 20) * (1 << 20) + (1 << 20);
    for n in 0..FILES {
        let ino = file(&vol, &format!("f{n}"), bytes, &mut rng)?;
        for k in 0..DELTAS_EACH {
            let page = rng.below(bytes / BLOCK as u64 / DELTAS_EACH) + k * (bytes / BLOCK as u64 / DELTAS_EACH);
            vol.write(ino, page * BLOCK as u64 + 100, &rng.next_u64().to_le_bytes(), WriteFlags::empty())?;
            if k % TOGETHER == TOGETHER - 1 {
                vol.fsync(ino, false)?;
            }
        }
        vol.fsync(ino, false)?;
        vol.forget(ino, 1);
    }
    vol.unmount()?;
    drop(vol);
    let since = Stopwatch::start();
    let done = settle(memory, Arc::new(RealClock::new()), &mut |_, _| ())?.ok_or("a volume without deltas")?;
    let took = since.elapsed().as_secs_f64();
    let name = format!("settling {} MiB in {} files with {} deltas", (FILES * bytes) >> 20, done.inodes, done.deltas);
    Ok(row(name, took, "s", "≤ 2"))
}
