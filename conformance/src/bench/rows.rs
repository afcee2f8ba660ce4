//! Which operations run on the mounted file systems, and how fast was each?
//!
//! All file systems are mounted at the same time, and each row's work is split into [`TURNS`] parts that alternate
//! between them, so that a slow second of the machine affects all of them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use device::Rng;

use super::sides::Running;
use super::{Outcome, Stopwatch};

/// Parts of a row's work.
const TURNS: u64 = 8;
/// Bytes of the file read and written, all clients together.
const FILE: u64 = 256 << 20;
/// Files created, all clients together.
const FILES: u64 = 16_000;
/// Random reads of 4 KiB, all clients together.
const READS: u64 = 40_000;
/// Random writes of 4 KiB, all clients together, with an fsync at the end of each turn.
const WRITES: u64 = 160_000;
/// Writes of 4 KiB with an fsync each, all clients together.
const SYNCED: u64 = 20_000;

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Operation and number of clients.
    pub name: String,
    /// In [`unit`](Self::unit).
    pub value: f64,
    /// `MB/s` (millions of bytes) or `op/s`.
    pub unit: &'static str,
    /// CPU microseconds of the server's process per operation, or per million bytes; none if the kernel is the server.
    pub cpu: Option<f64>,
}

/// Runs everything on all of them, with 1 client and with 4; returns a list of rows for each side.
///
/// # Errors
/// The first system call that failed.
pub fn all(sides: &[Running]) -> Outcome<Vec<Vec<Row>>> {
    let mut rows = vec![Vec::new(); sides.len()];
    for clients in [1_u64, 4] {
        let within = format!("with-{clients}");
        let sides: Vec<(&Running, PathBuf)> = sides.iter().map(|side| (side, side.root.join(&within))).collect();
        for (_, dir) in &sides {
            fs::create_dir(dir)?;
        }
        let mut bench = Bench { sides: &sides, clients, rows: &mut rows };
        bench.data()?;
        bench.names()?;
        for (_, dir) in &sides {
            fs::remove_dir_all(dir)?;
        }
    }
    // Place the rows with one and with four clients next to each other.
    rows.iter_mut().for_each(|rows| rows.sort_by_key(|row| order(&row.name)));
    Ok(rows)
}

const KINDS: [&str; 9] = [
    "sequential write, 1 MiB",
    "sequential read, 1 MiB",
    "random read, 4 KiB, direct",
    "random write, 4 KiB",
    "random write + fsync, 4 KiB",
    "create",
    "stat",
    "rename",
    "unlink",
];

fn order(name: &str) -> (usize, usize) {
    let kind =
        KINDS.iter().position(|k| name.strip_prefix(k).is_some_and(|r| r.starts_with(" ("))).unwrap_or(KINDS.len());
    (kind, name.len())
}

/// Runs `work(client)` in one thread per client, started together; returns the seconds until the last ends.
fn timed(clients: u64, work: impl Fn(u64) -> io::Result<()> + Sync) -> io::Result<f64> {
    let start = Barrier::new(usize::try_from(clients).unwrap_or(1) + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(client)
                })
            })
            .collect();
        start.wait();
        let since = Stopwatch::start();
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a client panicked"))??;
        }
        Ok(since.elapsed().as_secs_f64())
    })
}

/// An aligned buffer for direct I/O: 4 KiB at a multiple of 4 KiB.
fn with_aligned<T>(bytes: usize, f: impl FnOnce(&mut [u8]) -> io::Result<T>) -> io::Result<T> {
    let mut buffer = vec![0x5a; bytes + 4096];
    let skip = buffer.as_ptr().align_offset(4096).min(4096);
    f(&mut buffer[skip..skip + bytes])
}

/// A run with a number of clients.
struct Bench<'a> {
    sides: &'a [(&'a Running, PathBuf)],
    clients: u64,
    rows: &'a mut [Vec<Row>],
}

fn data_file(dir: &Path, client: u64) -> PathBuf {
    dir.join(format!("data-{client}"))
}

fn open(dir: &Path, client: u64) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(data_file(dir, client))
}

/// Opens a file for reading with direct I/O.
fn open_direct(dir: &Path, client: u64) -> io::Result<File> {
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(direct).open(data_file(dir, client))
}

impl Bench<'_> {
    /// Runs `work(directory, client, turn)` in turns, and adds a row for each side. `amount` is the total over all
    /// turns and clients: operations or bytes.
    fn in_turns(
        &mut self,
        kind: usize,
        amount: u64,
        unit: &'static str,
        work: impl Fn(&Path, u64, u64) -> io::Result<()> + Sync,
    ) -> io::Result<()> {
        let clients = self.clients;
        let mut spent = vec![(0.0, Some(Duration::ZERO)); self.sides.len()];
        for turn in 0..TURNS {
            // The order rotates: each side is first in some turn.
            for i in 0..self.sides.len() {
                let i = (i + turn as usize) % self.sides.len();
                let ((side, dir), (seconds, cpu)) = (&self.sides[i], &mut spent[i]);
                let before = side.server_cpu();
                *seconds += timed(clients, |client| work(dir, client, turn))?;
                let used = before.zip(side.server_cpu()).map(|(before, after)| after.saturating_sub(before));
                *cpu = cpu.zip(used).map(|(a, b)| a + b);
            }
        }
        let amount = amount as f64 / if unit == "MB/s" { 1e6 } else { 1.0 };
        for (rows, (seconds, cpu)) in self.rows.iter_mut().zip(spent) {
            let name = format!("{} ({})", KINDS[kind], plural(clients));
            let cpu = cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / amount);
            rows.push(Row { name, value: amount / seconds, unit, cpu });
        }
        Ok(())
    }

    fn data(&mut self) -> io::Result<()> {
        let clients = self.clients;
        let each = FILE / clients;
        let part = each / TURNS;
        let pages = each / 4096;
        let block: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for ((_, dir), client) in self.sides.iter().flat_map(|side| (0..clients).map(move |client| (side, client))) {
            File::create(data_file(dir, client))?;
        }
        self.in_turns(0, FILE, "MB/s", |dir, client, turn| {
            let file = open(dir, client)?;
            (part * turn..part * (turn + 1)).step_by(1 << 20).try_for_each(|at| file.write_all_at(&block, at))?;
            file.sync_all()
        })?;
        for ((_, dir), client) in self.sides.iter().flat_map(|side| (0..clients).map(move |client| (side, client))) {
            // Reads must come from the file system, not from the page cache of the preceding write.
            rustix::fs::fadvise(open(dir, client)?, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        self.in_turns(1, FILE, "MB/s", |dir, client, turn| {
            let file = open(dir, client)?;
            let mut block = vec![0; 1 << 20];
            (part * turn..part * (turn + 1)).step_by(1 << 20).try_for_each(|at| file.read_exact_at(&mut block, at))
        })?;
        self.in_turns(2, READS, "op/s", |dir, client, turn| {
            let file = open_direct(dir, client)?;
            let mut rng = Rng::new(client * TURNS + turn);
            with_aligned(4096, |block| {
                (0..READS / clients / TURNS).try_for_each(|_| file.read_exact_at(block, rng.below(pages) * 4096))
            })
        })?;
        // Ends with an fsync: data in the page cache has not reached the file system.
        self.in_turns(3, WRITES, "op/s", |dir, client, turn| {
            let file = open(dir, client)?;
            let mut rng = Rng::new(100 + client * TURNS + turn);
            (0..WRITES / clients / TURNS)
                .try_for_each(|i| file.write_all_at(&[i as u8; 4096], rng.below(pages) * 4096))?;
            file.sync_all()
        })?;
        self.in_turns(4, SYNCED, "op/s", |dir, client, turn| {
            let file = open(dir, client)?;
            let mut rng = Rng::new(200 + client * TURNS + turn);
            (0..SYNCED / clients / TURNS).try_for_each(|i| {
                file.write_all_at(&[i as u8; 4096], rng.below(pages) * 4096)?;
                file.sync_all()
            })
        })?;
        for ((_, dir), client) in self.sides.iter().flat_map(|side| (0..clients).map(move |client| (side, client))) {
            fs::remove_file(data_file(dir, client))?;
        }
        Ok(())
    }

    fn names(&mut self) -> io::Result<()> {
        for ((_, dir), client) in self.sides.iter().flat_map(|side| (0..self.clients).map(move |client| (side, client)))
        {
            fs::create_dir(dir.join(format!("names-{client}")))?;
        }
        let path = |dir: &Path, client: u64, kind: char, i: u64| dir.join(format!("names-{client}/{kind}{i:05}"));
        type Work<'a> = &'a (dyn Fn(&Path, u64, u64) -> io::Result<()> + Sync);
        let kinds: [(usize, Work<'_>); 4] = [
            (5, &|dir, c, i| File::create_new(path(dir, c, 'f', i)).map(drop)),
            (6, &|dir, c, i| fs::symlink_metadata(path(dir, c, 'f', i)).map(drop)),
            (7, &|dir, c, i| fs::rename(path(dir, c, 'f', i), path(dir, c, 'r', i))),
            (8, &|dir, c, i| fs::remove_file(path(dir, c, 'r', i))),
        ];
        let part = FILES / self.clients / TURNS;
        for (kind, work) in kinds {
            self.in_turns(kind, FILES, "op/s", |dir, client, turn| {
                (part * turn..part * (turn + 1)).try_for_each(|i| work(dir, client, i))
            })?;
        }
        Ok(())
    }
}

fn plural(clients: u64) -> String {
    if clients == 1 { "1 client".into() } else { format!("{clients} clients") }
}
