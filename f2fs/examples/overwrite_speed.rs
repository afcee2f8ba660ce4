//! What does filling holes add to an overwrite?
//!
//! `cargo run --release -p joulefs-f2fs --example overwrite_speed [rounds]`. Overwrites random blocks of a file that
//! fills a third of a volume of 2 GiB in memory: at first the logs use fresh segments, later they fill holes of used
//! ones. Only user-mode processor time counts: page allocation by the kernel is left out.

use std::sync::Arc;

use device::{Memory, RealClock, Rng};
use joulefs_f2fs::gc::settings::Settings;
use joulefs_f2fs::{MountOptions, Volume, mkfs};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode, WriteFlags};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const VOLUME: u64 = 2048 * MIB;
const FILE: u64 = VOLUME / 3 / MIB * MIB;
/// Overwrites in a round.
const ROUND: u64 = 65_536;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// User-mode time of this program, in microseconds.
fn ran() -> Outcome<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // After the program name, which may contain any byte; in hundredths of a second.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    Ok(fields.split_whitespace().nth(11).ok_or("no time in /proc/self/stat")?.parse::<u64>()? * 10_000)
}

fn main() -> Outcome<()> {
    let rounds: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(40);
    let memory = Arc::new(Memory::new(VOLUME / BLOCK));
    let options = mkfs::Options { assume_zeroed: true, ..mkfs::Options::modern() };
    mkfs::format(&*memory, &RealClock::new(), &options)?;
    let gc = Settings { on: false, ..Settings::default() };
    let fs = Volume::mount(memory, Arc::new(RealClock::new()), MountOptions { gc, ..MountOptions::default() })?;
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    let ino = fs.mknod(Caller::default(), fs.root(), b"data", &new)?.attr.ino;
    let piece = vec![1; MIB as usize];
    for at in (0..FILE).step_by(MIB as usize) {
        fs.write(ino, at, &piece, WriteFlags::empty())?;
    }
    fs.fsync(ino, false)?;
    let mut rng = Rng::new(1);
    let (mut fresh, mut holes) = (Vec::new(), Vec::new());
    for i in 0..rounds {
        let before = (ran()?, fs.state().logs.iter().any(|l| l.3));
        for _ in 0..ROUND {
            fs.write(ino, rng.below(FILE / BLOCK) * BLOCK, &[i as u8; BLOCK as usize], WriteFlags::empty())?;
        }
        let micros = (ran()? - before.0) as f64 / ROUND as f64;
        match (before.1, fs.state().logs.iter().any(|l| l.3)) {
            (false, false) => fresh.push(micros),
            (true, true) => holes.push(micros),
            _ => {}
        }
    }
    println!("microseconds of an overwrite, median of rounds");
    for (what, rounds) in [("into fresh segments", &mut fresh), ("into holes", &mut holes)] {
        rounds.sort_by(f64::total_cmp);
        let median = rounds.get(rounds.len() / 2).map_or("none".to_owned(), |m| format!("{m:.2}"));
        println!("  {what:<20} {median:>6} of {}", rounds.len());
    }
    println!("  sections cleaned     {:>6}", fs.counters.sections_cleaned());
    Ok(())
}
