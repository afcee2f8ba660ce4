//! A database's transactions: inserts, updates and deletes of one row each, on a table with existing rows.
//!
//! SQLite itself, on our file system through [`sqlite_disk`](crate::sqlite_disk).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::energy::profile::Profile;
use device::{BLOCK, Rng};
use f2fs::MountOptions;
use rusqlite::{Connection, OpenFlags, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vfs::FileSystem;
use volume::Kind;

use super::given::Named;
use super::keeping::Keeping;
use super::{Measured, parameters};
use crate::apps::text::Writer;
use crate::error::LabError;
use crate::plan::Job;
use crate::sqlite_disk::{Directory, Habits, ONE_AT_A_TIME, Registered, SyncsDirectory};
use sim::bench::{Bench, Recorder, blocks_of_mib};
use sim::progress::Progress;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// MiB of the volume; 0: twice the size of the table.
    volume_mib: u64,
    /// Rows in the table before the measurement.
    rows: u64,
    /// Transactions of each kind.
    transactions: u64,
    /// Bytes of a row's record.
    record: u64,
    /// SQLite's journal.
    journal_mode: Journal,
    /// SQLite's `synchronous` setting.
    synchronous: Synchronous,
    /// KiB of SQLite's page cache.
    cache_kib: u64,
    /// How the directory of a new journal is synced.
    #[serde(default)]
    directory: SyncsDirectory,
    /// What the records contain.
    #[serde(default)]
    contents: Contents,
    /// How the volume stores small updates; by default as with default mount options.
    keeping: Option<Keeping>,
    /// The file system: `f2fs` or `scherlfs`.
    #[serde(default)]
    #[schemars(with = "String")]
    fs: Kind,
    /// Further mount options.
    #[serde(default)]
    options: Named,
}

impl Parameters {
    /// Checks what the types cannot express.
    pub fn check(&self) -> Result<(), LabError> {
        if self.keeping.is_some() && self.fs != Kind::F2fs {
            return Err(LabError::parameters(format!("a volume of {}: keeping is for F2FS alone", self.fs)));
        }
        self.options.beside(self.fs, MountOptions::default()).map(drop)
    }
}

#[derive(Deserialize, Serialize, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Contents {
    /// Random bytes.
    #[default]
    Noise,
    /// Words.
    Text,
}

/// Generates records.
struct Filler {
    contents: Contents,
    writer: Writer,
    rng: Rng,
}

impl Filler {
    fn fill(&mut self, record: &mut [u8]) {
        match self.contents {
            Contents::Noise => self.rng.fill(record),
            Contents::Text => {
                let text = self.writer.words(&mut self.rng, record.len() as u64);
                // OK to index: a word and its space are at least two bytes.
                record.copy_from_slice(&text.as_bytes()[..record.len()]);
            }
        }
    }
}

#[derive(Deserialize, Clone, Copy, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Journal {
    Wal,
    Delete,
    Truncate,
    Persist,
}

#[derive(Deserialize, Clone, Copy, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Synchronous {
    Off,
    Normal,
    Full,
    /// Like `full`, and the directory of a deleted journal is synced, too.
    Extra,
}

impl Journal {
    fn word(self) -> &'static str {
        match self {
            Journal::Wal => "wal",
            Journal::Delete => "delete",
            Journal::Truncate => "truncate",
            Journal::Persist => "persist",
        }
    }
}

impl Synchronous {
    fn word(self) -> &'static str {
        match self {
            Synchronous::Off => "off",
            Synchronous::Normal => "normal",
            Synchronous::Full => "full",
            Synchronous::Extra => "extra",
        }
    }
}

/// Rows per transaction while the table is filled.
const BATCH: u64 = 1000;

/// Measures inserts, then updates, then deletes.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let _alone = ONE_AT_A_TIME.lock();
    let p: Parameters = parameters(job)?;
    p.check()?;
    // A record of a page's size takes an overflow page and much of a leaf.
    let table = (p.rows + p.transactions) * (p.record.next_multiple_of(BLOCK as u64) + BLOCK as u64);
    let volume = if p.volume_mib > 0 { blocks_of_mib(p.volume_mib) } else { (2 * table / BLOCK as u64).max(1 << 16) };
    let mut bench = Bench::with_kind(p.fs, profile, volume)?;
    match p.keeping {
        None => bench.format(job.seed, p.options.beside(p.fs, MountOptions::default())?)?,
        Some(keeping) => {
            let (features, options) = keeping.of();
            bench.format_with(job.seed, features, p.options.beside(p.fs, options)?)?;
        }
    }
    let checkpoints = |bench: &Bench| bench.f2fs().map(|volume| volume.counters.checkpoints.load(Relaxed)).ok();
    let mut filler = Filler { contents: p.contents, writer: Writer::default(), rng: Rng::new(job.seed) };
    let fill = progress.part(0, 4);
    {
        let session = Session::open(&bench, &p, job.seed)?;
        let db = &session.db;
        db.execute_batch("CREATE TABLE records (id INTEGER PRIMARY KEY, record BLOB NOT NULL)")?;
        let mut record = vec![0; p.record as usize];
        for first in (0..p.rows).step_by(BATCH as usize) {
            db.execute_batch("BEGIN")?;
            for id in first..(first + BATCH).min(p.rows) {
                insert(db, id, &mut record, &mut filler)?;
            }
            db.execute_batch("COMMIT")?;
            bench.volume()?.tick()?;
            fill.report(first as f64 / p.rows as f64);
        }
    }
    let mut phases = Vec::new();
    for (n, kind) in ["insert", "update", "delete"].into_iter().enumerate() {
        bench.restart(false)?;
        let session = Session::open(&bench, &p, job.seed)?;
        let db = &session.db;
        // Each row at most once, so that deleted rows exist.
        let mut ids: Vec<u64> = (0..p.rows).collect();
        filler.rng.shuffle(&mut ids);
        let transactions = if kind == "insert" { p.transactions } else { p.transactions.min(p.rows) };
        let mut record = vec![0; p.record as usize];
        let syncs = session.disk.syncs();
        let checkpoints_before = checkpoints(&bench);
        let mut phase =
            bench.measure(kind, transactions, &progress.part(n + 1, 4), |recorder: &mut Recorder<'_>| {
                for i in 0..transactions {
                    match kind {
                        "insert" => insert(db, p.rows + i, &mut record, &mut filler)?,
                        "update" => update(db, ids[i as usize], &mut record, &mut filler)?,
                        _ => delete(db, ids[i as usize])?,
                    }
                    recorder.step()?;
                }
                // This phase also pays for writing back the log and the caches.
                bench.volume()?.sync()?;
                Ok(transactions * p.record)
            })?;
        let millijoules = phase.total().millijoules() / transactions as f64;
        phase.note("energy_per_transaction", millijoules, "mJ/txn");
        phase.note("fsyncs_per_transaction", (session.disk.syncs() - syncs) as f64 / transactions as f64, "1/txn");
        if let (Some(now), Some(before)) = (checkpoints(&bench), checkpoints_before) {
            phase.note("checkpoints_per_transaction", (now - before) as f64 / transactions as f64, "1/txn");
        }
        let per = |blocks: &str| phase.measures.get(blocks).map_or(0.0, |m| m.value * 1024.0) / transactions as f64;
        let (written, read) = (per("written"), per("read"));
        phase.note("written_per_transaction", written, "KB/txn");
        phase.note("read_per_transaction", read, "KB/txn");
        phases.push(phase);
    }
    Ok((phases, Vec::new()))
}

/// A connection and its VFS, which is dropped after it.
struct Session {
    db: Connection,
    disk: Registered,
}

impl Session {
    fn open(bench: &Bench, p: &Parameters, seed: u64) -> Result<Self, LabError> {
        let volume: Arc<dyn FileSystem> = bench.volume()?.clone();
        let syncs_deletions = matches!(p.synchronous, Synchronous::Extra);
        let disk = Registered::new(
            Box::new(Directory::root(volume)),
            seed,
            Habits { directory: p.directory, syncs_deletions },
        )?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags_and_vfs("records.db", flags, disk.name())?;
        if matches!(p.journal_mode, Journal::Wal) {
            // One process uses the database, so the log's index is in its memory: SQLite's mode without shared memory,
            // which is never written to the device either way. (A journal would not be deleted then.)
            db.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(()))?;
        }
        let wanted = p.journal_mode.word();
        let mode: String = db.pragma_update_and_check(None, "journal_mode", wanted, |r| r.get(0))?;
        if mode != wanted {
            return Err(LabError::parameters(format!("journal_mode: SQLite chose {mode} for {wanted}")));
        }
        db.pragma_update(None, "synchronous", p.synchronous.word())?;
        db.pragma_update(None, "cache_size", -(p.cache_kib as i64))?;
        Ok(Session { db, disk })
    }
}

fn insert(db: &Connection, id: u64, record: &mut [u8], filler: &mut Filler) -> Result<(), LabError> {
    filler.fill(record);
    let mut insert = db.prepare_cached("INSERT INTO records (id, record) VALUES (?1, ?2)")?;
    expect_one(insert.execute(params![id as i64, &*record])?)
}

fn update(db: &Connection, id: u64, record: &mut [u8], filler: &mut Filler) -> Result<(), LabError> {
    filler.fill(record);
    let mut update = db.prepare_cached("UPDATE records SET record = ?2 WHERE id = ?1")?;
    expect_one(update.execute(params![id as i64, &*record])?)
}

fn delete(db: &Connection, id: u64) -> Result<(), LabError> {
    let mut delete = db.prepare_cached("DELETE FROM records WHERE id = ?1")?;
    expect_one(delete.execute(params![id as i64])?)
}

fn expect_one(rows: usize) -> Result<(), LabError> {
    if rows == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(rows).into()) }
}
