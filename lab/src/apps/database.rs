//! What do applications do to their databases?
//!
//! Schemas and transactions like those of messaging, mail, timelines, caches and settings, executed by SQLite itself on
//! a [`Tape`]. Each transaction results from one action of a user or the network. Settings are Android's: pages of 4
//! KiB, a cache of 2,000 KiB, a checkpoint of the log every 100 pages, a journal truncated at 512 KiB.

use std::sync::Arc;

use rusqlite::{Connection, OpenFlags, params};
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::FileSystem;

use super::tape::Tape;
use super::text::Writer;
use crate::error::LabError;
use crate::sqlite_disk::{Directory, Habits, ONE_AT_A_TIME, Registered, SyncsDirectory};
use device::Rng;

/// SQLite's journal mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Journal {
    /// A write-ahead log.
    Wal,
    /// A journal that is deleted.
    Delete,
    /// A journal that is truncated.
    Truncate,
    /// A journal that is kept and marked invalid.
    Persist,
    /// A journal in memory: SQLite's remaining calls are those for a disk with atomic batch writes.
    Memory,
}

impl Journal {
    /// The value of SQLite's `journal_mode`.
    pub fn word(self) -> &'static str {
        match self {
            Journal::Wal => "wal",
            Journal::Delete => "delete",
            Journal::Truncate => "truncate",
            Journal::Persist => "persist",
            Journal::Memory => "memory",
        }
    }
}

/// What a database is for; this determines its transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Messages and a list of conversations: messages arrive, are deleted, are read.
    Chat,
    /// Mail: a message's text, its labels, and the state of its folder.
    Mail,
    /// Records from a service: twenty arrive, the twenty oldest are deleted, some are liked.
    Timeline,
    /// Index of a cache: when each entry was last used.
    Cache,
    /// Counters, dates and flags by name.
    Settings,
    /// People, with rows to look up names and numbers.
    Contacts,
}

/// A stored record: readable text and as many bytes of identifiers and compressed data.
fn packed(text: &str, rng: &mut Rng) -> Vec<u8> {
    let mut record = text.as_bytes().to_vec();
    let mut rest = vec![0; 40 + record.len()];
    rng.fill(&mut rest);
    record.append(&mut rest);
    record
}

/// A database that an application keeps open.
pub struct Database {
    db: Connection,
    // Must be dropped after the connection.
    _disk: Registered,
    purpose: Purpose,
    rows: i64,
    /// The application's clock, in seconds.
    now: i64,
}

const CHATS: u64 = 40;
const KEYS: u64 = 120;

impl Database {
    /// Creates a database with this many rows.
    pub fn make(
        tape: &Tape,
        name: &str,
        purpose: Purpose,
        journal: Journal,
        rows: u64,
        seed: u64,
        (writer, rng): (&Writer, &mut Rng),
    ) -> Result<Self, LabError> {
        let habits = Habits { directory: SyncsDirectory::Fsync, syncs_deletions: false };
        let disk = Registered::new(Box::new(tape.clone()), seed, habits)?;
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
        db.pragma_update(None, "temp_store", "memory")?;
        db.pragma_update_and_check(None, "wal_autocheckpoint", 100, |_| Ok(()))?;
        db.pragma_update_and_check(None, "journal_size_limit", 524_288, |_| Ok(()))?;
        db.execute_batch(purpose.schema())?;
        let mut database = Database { db, _disk: disk, purpose, rows: 0, now: 1_700_000_000 };
        database.db.execute_batch("BEGIN")?;
        for _ in 0..rows {
            database.insert(writer, rng)?;
        }
        if purpose == Purpose::Chat {
            for peer in 0..CHATS {
                let (text, date) = (writer.message(rng), database.now);
                database.db.execute(
                    "INSERT INTO dialogs VALUES (?1, ?2, 0, ?3, ?4, ?5, 0)",
                    params![peer as i64, writer.words(rng, 2), date, rows as i64, text],
                )?;
            }
        }
        if !matches!(purpose, Purpose::Cache | Purpose::Contacts) {
            for n in 0..KEYS {
                let value = rng.below(1 << 30) as i64;
                database.db.execute("INSERT INTO settings VALUES (?1, ?2)", params![format!("setting_{n}"), value])?;
            }
        }
        database.db.execute_batch("COMMIT")?;
        Ok(database)
    }

    fn insert(&mut self, writer: &Writer, rng: &mut Rng) -> Result<(), LabError> {
        self.rows += 1;
        self.now += 1 + rng.below(90) as i64;
        let (id, now) = (self.rows, self.now);
        match self.purpose {
            Purpose::Chat => {
                let mut insert = self.db.prepare_cached("INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
                let (peer, out) = (rng.below(CHATS) as i64, rng.chance(1, 2));
                insert.execute(params![id, peer, now, 0, out, packed(&writer.message(rng), rng)])?;
            }
            Purpose::Mail => {
                let most = if rng.chance(1, 4) { 600 } else { 120 };
                let length = 60 + rng.below(most);
                let (subject, body) = (writer.words(rng, 20), packed(&writer.words(rng, length / 4), rng));
                let from = format!("{}@{}.example", writer.word(rng), writer.word(rng));
                let mut insert = self.db.prepare_cached("INSERT INTO mail VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
                insert.execute(params![id, rng.below(12) as i64, now, from, subject, body, 0])?;
            }
            Purpose::Timeline => {
                let length = 600 + rng.index(1400);
                let record = packed(&writer.json(rng, length / 2), rng);
                let mut insert = self.db.prepare_cached("INSERT INTO statuses VALUES (?1, ?2, ?3, ?4, ?5)")?;
                insert.execute(params![id, rng.below(2000) as i64, now, 0, record])?;
            }
            Purpose::Cache => {
                let key = writer.key(rng, 32);
                let mut insert = self.db.prepare_cached("INSERT INTO entries VALUES (?1, ?2, ?3, ?4, ?5)")?;
                insert.execute(params![id, key, rng.below(1 << 19) as i64, now, 0])?;
            }
            Purpose::Contacts => {
                let (first, last) = (writer.word(rng).to_owned(), writer.word(rng).to_owned());
                let name = format!("{first} {last}");
                let number = format!("+49{:010}", rng.below(10_000_000_000));
                let mut person =
                    self.db.prepare_cached("INSERT INTO raw_contacts VALUES (?1, 1, 1, 1, 0, ?2, ?2, ?1)")?;
                person.execute(params![id, name])?;
                let mut shown = self.db.prepare_cached("INSERT INTO contacts VALUES (?1, ?1, ?2, 0, 0, ?3)")?;
                shown.execute(params![id, writer.key(rng, 24), now])?;
                let mut data = self.db.prepare_cached("INSERT INTO data VALUES (?1, ?2, ?3, 1, 0, ?4, ?5, ?6)")?;
                data.execute(params![2 * id, 1, id, name, first, last])?;
                data.execute(params![2 * id + 1, 2, id, number, 2, number])?;
                let mut lookup = self.db.prepare_cached("INSERT INTO name_lookup VALUES (?1, ?2, ?3, ?4)")?;
                for (kind, found) in [(0, &name), (1, &first), (2, &last)] {
                    lookup.execute(params![2 * id, id, found.to_lowercase(), kind])?;
                }
                let mut numbers = self.db.prepare_cached("INSERT INTO phone_lookup VALUES (?1, ?2, ?3, ?4)")?;
                numbers.execute(params![2 * id + 1, id, number, &number[number.len() - 7..]])?;
            }
            Purpose::Settings => {}
        }
        Ok(())
    }

    fn recent(&self, rng: &mut Rng) -> i64 {
        // Recent rows are read more often.
        let back = (self.rows as f64).powf(rng.unit()) as i64;
        (self.rows - back).max(1)
    }

    fn set(&self, name: u64, value: i64) -> Result<(), LabError> {
        let mut set = self.db.prepare_cached("UPDATE settings SET value = ?2 WHERE name = ?1")?;
        set.execute(params![format!("setting_{name}"), value])?;
        Ok(())
    }

    /// The connection.
    pub(super) fn connection(&self) -> &Connection {
        &self.db
    }

    /// Inserts something new.
    pub fn arrives(&mut self, writer: &Writer, rng: &mut Rng) -> Result<(), LabError> {
        self.db.execute_batch("BEGIN")?;
        match self.purpose {
            Purpose::Chat => {
                self.insert(writer, rng)?;
                let (chat, text) = (rng.below(6) as i64, writer.message(rng));
                let mut list = self.db.prepare_cached(
                    "UPDATE dialogs SET unread = unread + 1, date = ?2, last = ?3, preview = ?4 WHERE peer = ?1",
                )?;
                list.execute(params![chat, self.now, self.rows, text])?;
                drop(list);
                self.set(0, self.rows)?;
            }
            Purpose::Mail => {
                self.insert(writer, rng)?;
                self.set(rng.below(3), self.now)?;
            }
            Purpose::Timeline => {
                for _ in 0..20 {
                    self.insert(writer, rng)?;
                }
                self.db.execute("DELETE FROM statuses WHERE id <= ?1", params![self.rows - 400])?;
                self.set(1, self.now)?;
            }
            Purpose::Cache => {
                self.insert(writer, rng)?;
                self.db.execute("DELETE FROM entries WHERE id = ?1", params![self.rows - 1500])?;
            }
            Purpose::Contacts => self.insert(writer, rng)?,
            Purpose::Settings => self.set(rng.below(KEYS), self.now)?,
        }
        self.db.execute_batch("COMMIT")?;
        Ok(())
    }

    /// Changes an existing row a little: marks it read, liked or used.
    pub fn changes(&mut self, rng: &mut Rng) -> Result<(), LabError> {
        self.now += 1 + rng.below(20) as i64;
        let (id, now) = (self.recent(rng), self.now);
        match self.purpose {
            Purpose::Chat => {
                self.db.execute_batch("BEGIN")?;
                self.db.execute("UPDATE messages SET state = state + 1 WHERE id = ?1", params![id])?;
                let chat = rng.below(6) as i64;
                self.db.execute("UPDATE dialogs SET unread = 0, read_at = ?2 WHERE peer = ?1", params![chat, now])?;
                self.db.execute_batch("COMMIT")?;
            }
            Purpose::Mail => {
                self.db.execute("UPDATE mail SET state = state + 1 WHERE id = ?1", params![id])?;
            }
            Purpose::Timeline => {
                self.db.execute("UPDATE statuses SET likes = likes + 1 WHERE id = ?1", params![id])?;
            }
            Purpose::Cache => {
                self.db.execute("UPDATE entries SET used = ?2, hits = hits + 1 WHERE id = ?1", params![id, now])?;
            }
            Purpose::Contacts => {
                self.db.execute("UPDATE contacts SET times = times + 1, seen = ?2 WHERE id = ?1", params![id, now])?;
            }
            Purpose::Settings => self.set(rng.below(KEYS), now)?,
        }
        Ok(())
    }
}

impl Purpose {
    fn schema(self) -> &'static str {
        const SETTINGS: &str = "CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER)";
        match self {
            Purpose::Chat => {
                "CREATE TABLE messages (id INTEGER PRIMARY KEY, peer INTEGER, date INTEGER, state INTEGER, out INTEGER, \
                 text TEXT); CREATE INDEX by_peer ON messages (peer, date); CREATE INDEX by_state ON messages (state, \
                 peer); CREATE TABLE dialogs (peer INTEGER PRIMARY KEY, title TEXT, unread INTEGER, date INTEGER, last \
                 INTEGER, preview TEXT, read_at INTEGER); CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER)"
            }
            Purpose::Mail => {
                "CREATE TABLE mail (id INTEGER PRIMARY KEY, folder INTEGER, date INTEGER, sender TEXT, subject TEXT, \
                 body TEXT, state INTEGER); CREATE INDEX by_folder ON mail (folder, date); \
                 CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER)"
            }
            Purpose::Timeline => {
                "CREATE TABLE statuses (id INTEGER PRIMARY KEY, author INTEGER, date INTEGER, likes INTEGER, record \
                 TEXT); CREATE INDEX by_author ON statuses (author); \
                 CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER)"
            }
            Purpose::Cache => {
                "CREATE TABLE entries (id INTEGER PRIMARY KEY, key TEXT, size INTEGER, used INTEGER, hits INTEGER); \
                 CREATE INDEX by_key ON entries (key)"
            }
            Purpose::Contacts => {
                "CREATE TABLE raw_contacts (id INTEGER PRIMARY KEY, account INTEGER, version INTEGER, dirty INTEGER, \
                 deleted INTEGER, name TEXT, sort_key TEXT, contact INTEGER); \
                 CREATE INDEX by_contact ON raw_contacts (contact); CREATE INDEX by_sort_key ON raw_contacts (sort_key); \
                 CREATE TABLE contacts (id INTEGER PRIMARY KEY, raw INTEGER, lookup TEXT, starred INTEGER, times INTEGER, \
                 seen INTEGER); CREATE INDEX by_raw ON contacts (raw); \
                 CREATE TABLE data (id INTEGER PRIMARY KEY, kind INTEGER, raw INTEGER, first INTEGER, version INTEGER, \
                 data1 TEXT, data2 TEXT, data3 TEXT); CREATE INDEX by_raw_data ON data (raw); \
                 CREATE INDEX by_kind ON data (kind, data1); \
                 CREATE TABLE name_lookup (data INTEGER, raw INTEGER, found TEXT, kind INTEGER, \
                 PRIMARY KEY (data, raw, found, kind)); CREATE INDEX by_found ON name_lookup (found, kind, raw); \
                 CREATE TABLE phone_lookup (data INTEGER PRIMARY KEY, raw INTEGER, number TEXT, last_digits TEXT); \
                 CREATE INDEX by_number ON phone_lookup (number, raw); \
                 CREATE INDEX by_last_digits ON phone_lookup (last_digits, raw)"
            }
            Purpose::Settings => SETTINGS,
        }
    }
}

/// Summary of a database: its tables with their row counts, and checksums.
pub(super) fn summary(db: &Connection) -> Result<String, LabError> {
    let mut tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")?;
    let tables: Vec<String> = tables.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut text = String::new();
    for table in tables {
        let of = |what: &str| db.query_row(&format!("SELECT {what} FROM {table}"), [], |row| row.get::<_, i64>(0));
        text += &format!("{table} {} ", of("count(*)")?);
        if table == "settings" {
            text += &format!("sum {} ", of("CAST(total(value) AS INTEGER) % 1000000007")?);
        }
    }
    Ok(text)
}

/// Lets SQLite check that a database on a volume is intact and has the expected contents.
pub fn check(files: Arc<dyn FileSystem>, name: &str, expected: &str) -> Result<(), LabError> {
    let _alone = ONE_AT_A_TIME.lock();
    let damaged = |what: String| Err(LabError::Damaged { file: name.into(), what });
    let disk = Registered::new(
        Box::new(Directory::root(files)),
        1,
        Habits { directory: SyncsDirectory::Fsync, syncs_deletions: false },
    )?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags_and_vfs(name, flags, disk.name())?;
    db.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(()))?;
    let verdict: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if verdict != "ok" {
        return damaged(verdict);
    }
    let found = summary(&db)?;
    if found == expected { Ok(()) } else { damaged(format!("it holds {found}and not {expected}")) }
}
