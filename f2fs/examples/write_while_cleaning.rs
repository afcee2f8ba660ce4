//! How long does a write wait during cleaning, with different numbers of writers?
//!
//! `cargo run --release -p joulefs-f2fs --example write_while_cleaning [writes]`. 1, 2 and 4 threads overwrite 4 KiB at
//! random, each in its own file, on a volume of 2 GiB in memory; alternately without cleaning, and with one thread that
//! empties section after section. Real time: compare ratios within a run, on an idle machine.
#![allow(clippy::disallowed_methods, reason = "this machine's time is what is measured")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use device::{Memory, RealClock, Rng};
use joulefs_f2fs::gc::settings::Settings;
use joulefs_f2fs::{MountOptions, Volume, mkfs};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const VOLUME: u64 = 2048 * MIB;
/// Bytes in each thread's file.
const FILE: u64 = 256 * MIB;
/// Repetitions of each measurement.
const ROUNDS: usize = 5;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Results of the writers.
struct Seen {
    /// Sorted write times in nanoseconds.
    nanos: Vec<u64>,
    per_second: f64,
    sections: u64,
}

fn writes(fs: &Volume, ino: Ino, count: u64, seed: u64) -> Outcome<Vec<u64>> {
    let (mut rng, mut nanos) = (Rng::new(seed), Vec::with_capacity(count as usize));
    for _ in 0..count {
        let (at, from) = (rng.below(FILE / BLOCK) * BLOCK, Instant::now());
        fs.write(ino, at, &[seed as u8; BLOCK as usize], WriteFlags::empty())?;
        nanos.push(from.elapsed().as_nanos() as u64);
    }
    Ok(nanos)
}

fn measure(fs: &Arc<Volume>, files: &[Ino], count: u64, cleans: bool, seed: u64) -> Outcome<Seen> {
    let (done, before) = (AtomicBool::new(false), fs.counters.sections_cleaned());
    let from = Instant::now();
    let (nanos, took) = std::thread::scope(|scope| -> Outcome<(Vec<u64>, f64)> {
        let collector = cleans.then(|| {
            scope.spawn(|| -> Outcome<()> {
                while !done.load(Relaxed) {
                    fs.clean_in_background(&Settings::default())?;
                }
                Ok(())
            })
        });
        let writers: Vec<_> =
            (seed..).zip(files).map(|(n, ino)| scope.spawn(move || writes(fs, *ino, count, n))).collect();
        let mut all = Vec::new();
        for w in writers {
            all.extend(w.join().map_err(|_| "a writer panicked")??);
        }
        let took = from.elapsed().as_secs_f64();
        done.store(true, Relaxed);
        if let Some(c) = collector {
            c.join().map_err(|_| "the collector panicked")??;
        }
        Ok((all, took))
    })?;
    let mut nanos = nanos;
    nanos.sort_unstable();
    let per_second = nanos.len() as f64 / took;
    Ok(Seen { nanos, per_second, sections: fs.counters.sections_cleaned() - before })
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() -> Outcome<()> {
    let count: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(40_000);
    let memory = Arc::new(Memory::new(VOLUME / BLOCK));
    let options = mkfs::Options { assume_zeroed: true, ..mkfs::Options::modern() };
    mkfs::format(&*memory, &RealClock::new(), &options)?;
    let gc = Settings { on: false, ..Settings::default() };
    let fs = Volume::mount(memory, Arc::new(RealClock::new()), MountOptions { gc, ..MountOptions::default() })?;
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    let mut files = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let ino = fs.mknod(Caller::default(), fs.root(), name.as_bytes(), &new)?.attr.ino;
        for at in (0..FILE).step_by(MIB as usize) {
            fs.write(ino, at, &vec![1; MIB as usize], WriteFlags::empty())?;
        }
        fs.fsync(ino, false)?;
        files.push(ino);
    }
    println!("threads  cleaning  writes/s   median us      p99 us    p99.9 us  sections");
    for threads in [1, 2, 4] {
        let mut seen = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for cleans in [false, true] {
                let seed = (round * 100 + threads * 10) as u64;
                seen[usize::from(cleans)].push(measure(&fs, &files[..threads], count, cleans, seed)?);
            }
        }
        for (what, seen) in ["no", "yes"].into_iter().zip(&seen) {
            let of = |share: f64| {
                median(seen.iter().map(|s| s.nanos[(s.nanos.len() as f64 * share) as usize] as f64 / 1e3).collect())
            };
            let per_second = median(seen.iter().map(|s| s.per_second).collect());
            let sections = median(seen.iter().map(|s| s.sections as f64).collect());
            let (p50, p99, p999) = (of(0.5), of(0.99), of(0.999));
            println!(
                "{threads:>7}  {what:>8}  {per_second:>8.0}  {p50:>10.2}  {p99:>10.2}  {p999:>10.2}  {sections:>8}"
            );
        }
    }
    Ok(())
}
