//! Databases of several applications that grow together, record by record, in Android's directories.
//!
//! SQLite itself, on our file system: `/data/PACKAGE/databases/NAME.db`, pages of 4 KiB, a journal next to each;
//! programs in `/app/PACKAGE-1`, written whole when they are installed; pictures in `/data/PACKAGE/cache`. A record has
//! an indexed key, so that inserts at the end of a table also change pages in the middle of a file. Left out: the
//! records' contents.

use std::sync::Arc;

use device::{BLOCK, Rng, generate};
use rusqlite::{Connection, OpenFlags, params};
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};

use crate::apps::database::Journal;
use crate::error::LabError;
use crate::sqlite_disk::{Directory, Habits, Registered, SyncsDirectory};
use sim::bench::{Bench, Recorder};

/// An application.
#[derive(Deserialize, Clone, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AppSpec {
    /// Its package.
    pub package: String,
    /// Number of its databases.
    pub databases: u64,
    /// Final size of each in KiB.
    pub kib: u64,
    /// Mean size of a record in bytes.
    #[serde(default = "usual_record")]
    pub record: u64,
    /// Records inserted per transaction.
    #[serde(default = "one")]
    pub batch: u64,
    /// Whether records are looked up by key, through an index.
    #[serde(default = "yes")]
    pub index: bool,
    /// Sizes of its program files in MiB.
    #[serde(default)]
    pub programs_mib: Vec<u64>,
}

fn usual_record() -> u64 {
    600
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

impl AppSpec {
    /// Transactions that insert `left` bytes of records.
    fn transactions(&self, left: u64) -> u64 {
        left.div_ceil((stored(self.record) * self.batch).max(1))
    }
}

/// How databases grow.
#[derive(Deserialize, Clone, Copy, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct How {
    /// SQLite's journal.
    pub journal: Journal,
    /// Whether they grow together, or one after the other.
    pub together: bool,
    /// Percent of transactions that are followed by a picture.
    pub pictures_percent: u64,
    /// Mean size of a picture in KiB.
    pub picture_kib: u64,
}

struct Database {
    db: Connection,
    rows: u64,
    /// Bytes of records still to insert.
    left: u64,
}

struct App {
    // Connections are dropped before their VFS.
    databases: Vec<Database>,
    _disk: Registered,
    cache: Ino,
    pictures: u64,
    spec: AppSpec,
}

/// The applications with open databases. Drop it before remounting the volume.
pub(super) struct Growing {
    apps: Vec<App>,
    how: How,
    seed: u64,
    rng: Rng,
}

/// The directory with this path, created if missing.
pub(super) fn directory(fs: &dyn FileSystem, path: &str) -> Result<Ino, LabError> {
    path.split('/').filter(|p| !p.is_empty()).try_fold(fs.root(), |above, name| {
        let found = match fs.lookup(above, name.as_bytes()) {
            Err(vfs::Error::NotFound) => fs.mkdir(Caller::default(), above, name.as_bytes(), 0o755, 0),
            found => found,
        };
        Ok(found?.attr.ino)
    })
}

/// Writes a new file whole, sequentially.
pub(super) fn write_new(
    fs: &dyn FileSystem,
    dir: Ino,
    name: &str,
    bytes: u64,
    seed: u64,
    sync: bool,
) -> Result<(), LabError> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    let ino = fs.mknod(Caller::default(), dir, name.as_bytes(), &new)?.attr.ino;
    let mut buf = vec![0; 1 << 20];
    for at in (0..bytes).step_by(buf.len()) {
        let piece = &mut buf[..(bytes - at).min(1 << 20) as usize];
        generate(seed, (at / BLOCK as u64) as u32, piece);
        let mut done = 0;
        while done < piece.len() {
            done += fs.write(ino, at + done as u64, &piece[done..], WriteFlags::empty())?;
        }
    }
    if sync {
        fs.fsync(ino, false)?;
    }
    fs.forget(ino, 1);
    Ok(())
}

/// Writes applications' programs; syncs each file.
pub(super) fn install(
    bench: &Bench,
    apps: &[AppSpec],
    seed: u64,
    recorder: &mut Recorder<'_>,
) -> Result<u64, LabError> {
    let fs = &**bench.volume()?;
    let mut bytes = 0;
    for (n, app) in apps.iter().enumerate() {
        let dir = directory(fs, &format!("app/{}-1", app.package))?;
        let names = ["base.apk".to_owned(), "base.odex".to_owned()];
        let more = (0..).map(|n| format!("lib{n}.so"));
        for (k, (mib, name)) in app.programs_mib.iter().zip(names.into_iter().chain(more)).enumerate() {
            write_new(fs, dir, &name, mib << 20, seed ^ ((n as u64) << 16 | k as u64) << 32, true)?;
            bytes += mib << 20;
            recorder.step()?;
        }
    }
    Ok(bytes)
}

impl Growing {
    /// Opens all databases, new or existing. `grow`: whether they will grow to their final sizes.
    pub fn open(bench: &Bench, apps: &[AppSpec], how: How, grow: bool, seed: u64) -> Result<Self, LabError> {
        let fs: Arc<dyn FileSystem> = bench.volume()?.clone();
        let mut rng = Rng::new(seed ^ 0x0db5);
        let habits = Habits { directory: SyncsDirectory::Fsync, syncs_deletions: false };
        let mut open = Vec::new();
        for spec in apps {
            let dir = directory(&*fs, &format!("data/{}/databases", spec.package))?;
            let cache = directory(&*fs, &format!("data/{}/cache", spec.package))?;
            let disk = Registered::new(Box::new(Directory::reading_ahead(fs.clone(), dir)), rng.next_u64(), habits)?;
            let databases = (0..spec.databases)
                .map(|n| {
                    let db = connect(&format!("store{n}.db"), how.journal, spec.index, &disk)?;
                    let rows = db.query_row("SELECT coalesce(max(id), 0) FROM records", [], |r| r.get::<_, i64>(0))?;
                    Ok(Database { db, rows: rows as u64, left: if grow { spec.kib * 1024 } else { 0 } })
                })
                .collect::<Result<Vec<_>, LabError>>()?;
            open.push(App { databases, _disk: disk, cache, pictures: 0, spec: spec.clone() });
        }
        Ok(Growing { apps: open, how, seed, rng })
    }

    /// Approximate number of transactions until all have their sizes.
    pub fn steps(&self) -> u64 {
        self.apps.iter().flat_map(|a| a.databases.iter().map(|d| a.spec.transactions(d.left))).sum()
    }

    /// Lets all databases grow to their sizes. Returns bytes of records.
    pub fn grow(&mut self, bench: &Bench, recorder: &mut Recorder<'_>) -> Result<u64, LabError> {
        let mut bytes = 0;
        while let Some((app, n)) = self.next() {
            bytes += self.insert(app, n)?;
            if self.rng.chance(self.how.pictures_percent, 100) {
                self.picture(bench, app)?;
            }
            recorder.step()?;
        }
        Ok(bytes)
    }

    /// The next database: random, weighted by remaining transactions, so that all finish at about the same time; or
    /// simply the first.
    fn next(&mut self) -> Option<(usize, usize)> {
        let all = self.steps();
        if all == 0 {
            return None;
        }
        let mut at = if self.how.together { self.rng.below(all) } else { 0 };
        for (a, app) in self.apps.iter().enumerate() {
            for (n, database) in app.databases.iter().enumerate() {
                match at.checked_sub(app.spec.transactions(database.left)) {
                    None => return Some((a, n)),
                    Some(rest) => at = rest,
                }
            }
        }
        None
    }

    /// Runs one inserting transaction; returns bytes of records.
    fn insert(&mut self, app: usize, n: usize) -> Result<u64, LabError> {
        let spec = &self.apps[app].spec;
        let (mean, batch) = (spec.record.max(2), spec.batch);
        let database = &mut self.apps[app].databases[n];
        let mut bytes = 0;
        database.db.execute_batch("BEGIN")?;
        for _ in 0..batch {
            let mut record = vec![0; (mean / 2 + self.rng.below(mean)) as usize];
            self.rng.fill(&mut record);
            let key = self.rng.next_u64() as i64;
            database.rows += 1;
            let mut insert = database.db.prepare_cached("INSERT INTO records VALUES (?1, ?2, ?3)")?;
            insert.execute(params![database.rows as i64, key, record])?;
            bytes += record.len() as u64;
            database.left = database.left.saturating_sub(stored(record.len() as u64));
        }
        database.db.execute_batch("COMMIT")?;
        Ok(bytes)
    }

    fn picture(&mut self, bench: &Bench, app: usize) -> Result<(), LabError> {
        let mean = self.how.picture_kib.max(1) * 1024;
        let (bytes, seed) = (mean / 2 + self.rng.below(mean), self.seed ^ self.rng.next_u64());
        let app = &mut self.apps[app];
        app.pictures += 1;
        let bytes = bytes.next_multiple_of(BLOCK as u64);
        write_new(&**bench.volume()?, app.cache, &format!("{}.jpg", app.pictures), bytes, seed, false)
    }

    /// Runs `deeds` operations: half look up records, a third update one, the others insert. Returns bytes of records.
    pub fn use_them(&mut self, deeds: u64, recorder: &mut Recorder<'_>) -> Result<u64, LabError> {
        let all: Vec<(usize, usize)> = (0..self.apps.len())
            .flat_map(|a| (0..self.apps[a].databases.len()).map(move |n| (a, n)))
            .filter(|(a, n)| self.apps[*a].databases[*n].rows > 0)
            .collect();
        let mut bytes = 0;
        for _ in 0..deeds {
            if all.is_empty() {
                break;
            }
            let (app, n) = all[self.rng.index(all.len())];
            let deed = self.rng.below(6);
            if deed == 5 {
                bytes += self.insert(app, n)?;
                recorder.step()?;
                continue;
            }
            let mean = self.apps[app].spec.record.max(2);
            let database = &self.apps[app].databases[n];
            let id = 1 + self.rng.below(database.rows);
            if deed < 3 {
                let (by, from) = match self.apps[app].spec.index {
                    true => ("key", self.rng.next_u64() as i64),
                    false => ("id", id as i64),
                };
                let sql = format!("SELECT key, record FROM records WHERE {by} >= ?1 ORDER BY {by} LIMIT 8");
                let mut look = database.db.prepare_cached(&sql)?;
                let found = look.query_map(params![from], |r| Ok(r.get_ref(1)?.as_blob().map_or(0, <[u8]>::len)))?;
                for length in found {
                    bytes += length? as u64;
                }
            } else {
                let mut record = vec![0; (mean / 2 + self.rng.below(mean)) as usize];
                self.rng.fill(&mut record);
                let mut change = database.db.prepare_cached("UPDATE records SET record = ?2 WHERE id = ?1")?;
                change.execute(params![id as i64, record])?;
                bytes += record.len() as u64;
            }
            recorder.step()?;
        }
        Ok(bytes)
    }

    /// Reads every table of an application's first database whole. Returns bytes and number of records.
    pub fn scan(&self, package: &str) -> Result<(u64, u64), LabError> {
        let app = self.apps.iter().find(|a| a.spec.package == package).and_then(|a| a.databases.first());
        let Some(database) = app else {
            return Err(LabError::parameters(format!("scan: no application {package} has a database")));
        };
        let sums =
            "SELECT total(length(record)), count(*), total(length(CAST(record AS TEXT))) FROM records NOT INDEXED";
        let row = |r: &rusqlite::Row<'_>| Ok((r.get::<_, f64>(0)? as u64, r.get::<_, i64>(1)? as u64));
        Ok(database.db.query_row(sums, [], row)?)
    }
}

/// A record's size in a database, with its key in table and index.
fn stored(record: u64) -> u64 {
    record + 40
}

fn connect(name: &str, journal: Journal, index: bool, disk: &Registered) -> Result<Connection, LabError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags_and_vfs(name, flags, disk.name())?;
    if journal == Journal::Wal {
        // The index of the log stays in memory. It is never written to the device, on Android either.
        db.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(()))?;
    }
    let wanted = journal.word();
    let mode: String = db.pragma_update_and_check(None, "journal_mode", wanted, |r| r.get(0))?;
    if mode != wanted {
        return Err(LabError::parameters(format!("journal: SQLite chose {mode} for {wanted}")));
    }
    db.pragma_update(None, "synchronous", "full")?;
    db.pragma_update(None, "cache_size", -2000)?;
    db.pragma_update_and_check(None, "journal_size_limit", 524_288, |_| Ok(()))?;
    db.execute_batch("CREATE TABLE IF NOT EXISTS records (id INTEGER PRIMARY KEY, key INTEGER, record BLOB NOT NULL)")?;
    if index {
        db.execute_batch("CREATE INDEX IF NOT EXISTS by_key ON records (key)")?;
    }
    Ok(db)
}
