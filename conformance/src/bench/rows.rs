//! What is done to a mounted file system, and how fast was it?

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use device::Rng;

use super::{Outcome, Stopwatch};

/// Bytes of the file that is read and written, all clients together.
const FILE: u64 = 256 << 20;
/// Files made, all clients together.
const FILES: u64 = 10_000;
/// Random reads and writes of 4 KiB, all clients together.
const RANDOM: u64 = 40_000;
/// Writes of 4 KiB with an fsync each, all clients together.
const SYNCED: u64 = 20_000;
/// Times [`RANDOM`] writes are made, each time with an fsync at the end: one lasts but a sixth of a second.
const ROUNDS: u64 = 4;

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What, and by how many clients.
    pub name: String,
    /// In [`unit`](Self::unit).
    pub value: f64,
    /// `MB/s` (millions of bytes) or `op/s`.
    pub unit: &'static str,
}

/// Does everything once, with 1 client and with 4.
///
/// # Errors
/// The first system call that failed.
pub fn all(root: &Path) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for clients in [1_u64, 4] {
        let dir = root.join(format!("with-{clients}"));
        fs::create_dir(&dir)?;
        data(&dir, clients, &mut rows)?;
        names(&dir, clients, &mut rows)?;
        fs::remove_dir_all(&dir)?;
    }
    // A row with one client beside that with four.
    rows.sort_by_key(|row| order(&row.name));
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

/// Runs `work(client)` in one thread for each client, all from one start; seconds until the last is done.
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

/// A buffer that direct I/O takes: 4 KiB at a multiple of 4 KiB.
fn with_aligned<T>(bytes: usize, f: impl FnOnce(&mut [u8]) -> io::Result<T>) -> io::Result<T> {
    let mut buffer = vec![0x5a; bytes + 4096];
    let skip = buffer.as_ptr().align_offset(4096).min(4096);
    f(&mut buffer[skip..skip + bytes])
}

fn data(dir: &Path, clients: u64, rows: &mut Vec<Row>) -> io::Result<()> {
    let each = FILE / clients;
    let file = |client: u64| -> PathBuf { dir.join(format!("data-{client}")) };
    let open = |client: u64| OpenOptions::new().read(true).write(true).open(file(client));
    let mut row = |kind: usize, seconds: f64, amount: u64, unit: &'static str| {
        let scale = if unit == "MB/s" { 1e6 } else { 1.0 };
        rows.push(Row {
            name: format!("{} ({})", KINDS[kind], plural(clients)),
            value: amount as f64 / scale / seconds,
            unit,
        });
    };
    let seconds = timed(clients, |client| {
        let file = File::create(file(client))?;
        let block: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for at in (0..each).step_by(1 << 20) {
            file.write_all_at(&block, at)?;
        }
        file.sync_all()
    })?;
    row(0, seconds, FILE, "MB/s");

    for client in 0..clients {
        // What was just written must come from the file system, not from the page cache.
        rustix::fs::fadvise(open(client)?, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    let seconds = timed(clients, |client| {
        let file = open(client)?;
        let mut block = vec![0; 1 << 20];
        for at in (0..each).step_by(1 << 20) {
            file.read_exact_at(&mut block, at)?;
        }
        Ok(())
    })?;
    row(1, seconds, FILE, "MB/s");

    let reads = RANDOM / clients;
    let seconds = timed(clients, |client| {
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(direct).open(file(client))?;
        let mut rng = Rng::new(client);
        with_aligned(4096, |block| {
            for _ in 0..reads {
                file.read_exact_at(block, rng.below(each / 4096) * 4096)?;
            }
            Ok(())
        })
    })?;
    row(2, seconds, reads * clients, "op/s");

    // Ends with an fsync: a write that is still in the page cache has not reached the file system.
    let seconds = timed(clients, |client| {
        let file = open(client)?;
        let mut rng = Rng::new(100 + client);
        for _ in 0..ROUNDS {
            for i in 0..reads {
                let block = [i as u8; 4096];
                file.write_all_at(&block, rng.below(each / 4096) * 4096)?;
            }
            file.sync_all()?;
        }
        Ok(())
    })?;
    row(3, seconds, ROUNDS * reads * clients, "op/s");

    let writes = SYNCED / clients;
    let seconds = timed(clients, |client| {
        let file = open(client)?;
        let mut rng = Rng::new(200 + client);
        for i in 0..writes {
            file.write_all_at(&[i as u8; 4096], rng.below(each / 4096) * 4096)?;
            file.sync_all()?;
        }
        Ok(())
    })?;
    row(4, seconds, writes * clients, "op/s");
    for client in 0..clients {
        fs::remove_file(file(client))?;
    }
    Ok(())
}

fn names(dir: &Path, clients: u64, rows: &mut Vec<Row>) -> io::Result<()> {
    let each = FILES / clients;
    for client in 0..clients {
        fs::create_dir(dir.join(format!("names-{client}")))?;
    }
    let path = |client: u64, kind: char, i: u64| dir.join(format!("names-{client}/{kind}{i:05}"));
    type Work<'a> = &'a (dyn Fn(u64, u64) -> io::Result<()> + Sync);
    let kinds: [(usize, Work<'_>); 4] = [
        (5, &|c, i| File::create_new(path(c, 'f', i)).map(drop)),
        (6, &|c, i| fs::symlink_metadata(path(c, 'f', i)).map(drop)),
        (7, &|c, i| fs::rename(path(c, 'f', i), path(c, 'r', i))),
        (8, &|c, i| fs::remove_file(path(c, 'r', i))),
    ];
    for (kind, work) in kinds {
        let seconds = timed(clients, |client| (0..each).try_for_each(|i| work(client, i)))?;
        rows.push(Row {
            name: format!("{} ({})", KINDS[kind], plural(clients)),
            value: (each * clients) as f64 / seconds,
            unit: "op/s",
        });
    }
    Ok(())
}

fn plural(clients: u64) -> String {
    if clients == 1 { "1 client".into() } else { format!("{clients} clients") }
}
