//! SQLite on a mount with deltas, during power cuts: the database is intact and has every transaction reported as
//! committed. As in SQLite's own crash tests, a process writes, power fails at some write or after the process is
//! killed, and the result is opened again.
//!
//! A transaction's number determines all its writes, so the database after a cut is compared with one made in memory.
//! `synchronous=EXTRA` syncs the directory of a deleted journal; without it, SQLite promises only that the database is
//! intact.
//!
//! The timing of a process's writes is not reproducible; a failure names what was cut. `JOULEFS_DEEP=1` cuts twenty
//! times as often.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Loss, Memory, PowerCut, RealClock, Rng};
use f2fs::mkfs::Options;
use f2fs::{MountOptions, Volume};
use judges::oracle::tools::locate;
use vfs::FileSystem;

use crate::rig::*;

/// Transactions of one writer.
const TRANSACTIONS: u64 = 60;
/// Rows before the first transaction.
const ROWS: u64 = 1200;

/// The initial contents.
fn begin(journal: &str) -> String {
    format!(
        "PRAGMA journal_mode={journal};\n\
         CREATE TABLE seq(n INT); INSERT INTO seq VALUES(0);\n\
         CREATE TABLE settings(name TEXT PRIMARY KEY, value INT);\n\
         CREATE TABLE msg(id INTEGER PRIMARY KEY, at INT, seen INT, body TEXT);\n\
         CREATE INDEX by_time ON msg(at, seen);\n\
         WITH RECURSIVE i(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM i WHERE k < {ROWS})\n\
         INSERT INTO msg SELECT k, k * 7919 % 100003, 0, printf('%d says %.*c', k, k * 31 % 300, 'x') FROM i;\n\
         INSERT INTO settings VALUES('theme', 1), ('volume', 5), ('last', 0);\n"
    )
}

/// One transaction.
fn transaction(n: u64) -> String {
    let id = n * 397 % ROWS + 1;
    let mut sql =
        format!("BEGIN IMMEDIATE; UPDATE seq SET n = {n}; UPDATE msg SET seen = {n}, at = at + 1 WHERE id = {id};\n");
    sql += &match n % 4 {
        0 => format!("INSERT INTO msg(at, seen, body) VALUES({}, 0, printf('%.*c', {}, 'n'));", n * 31, n * 97 % 6000),
        1 => format!("UPDATE settings SET value = {n} WHERE name = 'volume';"),
        2 => format!("DELETE FROM msg WHERE id = {}; UPDATE msg SET body = 'gone' WHERE id = {};", id + 3, id + 4),
        _ => "UPDATE settings SET value = value + 1 WHERE name IN ('theme', 'last');".to_string(),
    };
    sql + "\nCOMMIT;\n"
}

/// The expected contents after `transactions` transactions.
fn expected(transactions: u64) -> String {
    let script: String = (1..=transactions).map(transaction).collect();
    let mut child = spawned(Command::new(locate("sqlite3", "sqlite3")).arg(":memory:"));
    tell(&mut child, &(begin("memory") + &script + LOOK));
    let out = child.wait_with_output().expect("sqlite3 ends");
    String::from_utf8_lossy(&out.stdout).trim_start_matches("memory\n").to_owned()
}

const LOOK: &str = "PRAGMA integrity_check; SELECT n FROM seq; SELECT * FROM settings ORDER BY name;\n\
                    SELECT * FROM msg ORDER BY id; SELECT id FROM msg ORDER BY at, seen, id;\n";

fn spawned(command: &mut Command) -> Child {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

fn tell(child: &mut Child, script: &str) {
    // A writer whose power failed no longer reads.
    let _ = child.stdin.take().expect("piped").write_all(script.as_bytes());
}

/// The contents of a database, which must be intact.
fn looked(database: &Path) -> Result<String, String> {
    let mut child = spawned(Command::new(locate("sqlite3", "sqlite3")).arg("-bail").arg(database));
    tell(&mut child, LOOK);
    let out = child.wait_with_output().map_err(|e| e.to_string())?;
    let (said, wrong) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !wrong.is_empty() || !out.status.success() || !said.starts_with("ok\n") {
        return Err(format!("SQLite: {} {wrong}", said.lines().take(5).collect::<Vec<_>>().join("; ")));
    }
    Ok(said.into_owned())
}

/// A mounted volume with deltas and a power switch, and a database on it.
struct Mounted {
    work: tempfile::TempDir,
    dev: Arc<PowerCut>,
    vol: Arc<Volume>,
    mounted: fuse::Mounted,
}

impl Mounted {
    fn new(image: &Memory) -> Self {
        let work = work_dir();
        let root = work.path().join("mnt");
        std::fs::create_dir(&root).expect("a directory to mount on");
        let dev = Arc::new(PowerCut::new(image.fork()));
        let vol = Volume::mount(dev.clone(), Arc::new(RealClock::new()), MountOptions::default()).expect("mounts");
        let options = fuse::MountOptions { fsname: root.display().to_string(), ..fuse::MountOptions::default() };
        let mounted = fuse::mount(vol.clone(), &root, &options).unwrap_or_else(|e| panic!("{e}"));
        Mounted { work, dev, vol, mounted }
    }

    fn database(&self) -> std::path::PathBuf {
        self.work.path().join("mnt/chat.db")
    }

    /// A process that writes, and prints the number of each commit.
    fn writer(&self, transactions: u64) -> Child {
        let mut command = Command::new(locate("stdbuf", "coreutils"));
        command.arg("-oL").arg(locate("sqlite3", "sqlite3")).arg("-bail").arg(self.database());
        let mut child = spawned(&mut command);
        let script: String = (1..=transactions).map(|n| transaction(n) + &format!("SELECT 'done', {n};\n")).collect();
        tell(&mut child, &("PRAGMA synchronous=EXTRA; PRAGMA wal_autocheckpoint=30;\n".to_owned() + &script));
        child
    }

    /// Returns the number of deltas made. Power may be off.
    fn end(self) -> u64 {
        let mut tries = 0;
        while let Err(e) = self.mounted.unmount() {
            tries += 1;
            assert!(tries < 1000, "{e}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let ended = self.mounted.wait();
        assert!(ended.is_ok() || self.dev.is_cut(), "{ended:?}");
        self.vol.counters.deltas.load(Relaxed)
    }
}

/// Reads a writer's output to its end, or to commit `until`; returns the last transaction reported as committed, 0 if
/// none.
fn heard(said: &mut BufReader<ChildStdout>, until: u64) -> u64 {
    let mut last = 0;
    for line in said.lines().map_while(Result::ok) {
        if let Some(n) = line.strip_prefix("done|") {
            last = n.parse().expect("a number");
            if last >= until {
                break;
            }
        }
    }
    last
}

fn heard_to_the_end(child: &mut Child) -> u64 {
    let done = heard(&mut child.stdout.take().map(BufReader::new).expect("piped"), u64::MAX);
    let _ = child.wait();
    done
}

/// A volume with the initial database.
fn prepared(journal: &str) -> Memory {
    let dev = Memory::new(64 * 256);
    let options = Options { assume_zeroed: true, ..Options::modern() };
    f2fs::mkfs::format(&dev, &RealClock::new(), &options).expect("formats");
    f2fs::settle::unsettle(&dev).expect("may hold deltas");
    let mounted = Mounted::new(&dev);
    let mut child = spawned(Command::new(locate("sqlite3", "sqlite3")).arg("-bail").arg(mounted.database()));
    tell(&mut child, &begin(journal));
    let out = child.wait_with_output().expect("sqlite3 ends");
    assert_eq!((out.status.success(), String::from_utf8_lossy(&out.stdout).trim()), (true, journal), "{out:?}");
    let dev = mounted.dev.clone();
    mounted.end();
    dev.image(Loss::AllKept)
}

/// Checks the result of a cut: recovers, and opens the database again. It has all committed transactions, and at most
/// one more.
fn judge(image: Memory, done: u64) -> Result<(), String> {
    let dev = Arc::new(image);
    let check = |when: &str| {
        let report = fsck::check(&*dev, &fsck::Options::default()).map_err(|e| format!("{when}: {e}"))?;
        if report.is_clean() { Ok(()) } else { Err(format!("fsck {when}: {report}")) }
    };
    check("before recovery")?;
    let vol = mount_device(dev.clone(), false).map_err(|e| e.to_string())?;
    let host = work_dir();
    for name in ["chat.db", "chat.db-journal", "chat.db-wal"] {
        let Ok(e) = vol.lookup(vol.root(), name.as_bytes()) else { continue };
        let mut bytes = vec![0; e.attr.size as usize];
        vol.read(e.attr.ino, 0, &mut bytes).map_err(|e| format!("{name}: {e}"))?;
        vol.forget(e.attr.ino, 1);
        std::fs::write(host.path().join(name), bytes).map_err(|e| e.to_string())?;
    }
    vol.unmount().map_err(|e| e.to_string())?;
    check("after recovery")?;
    holds(&host.path().join("chat.db"), done)
}

fn holds(database: &Path, done: u64) -> Result<(), String> {
    let found = looked(database)?;
    let Some(n) = found.lines().nth(1).and_then(|n| n.parse::<u64>().ok()) else {
        return Err("no number of transactions".into());
    };
    if !(done..=done + 1).contains(&n) {
        return Err(format!("transaction {done} was committed, and {n} are there"));
    }
    if found == expected(n) { Ok(()) } else { Err(format!("not what {n} transactions make")) }
}

/// Cuts writers at some writes, and kills others; returns the number of deltas.
fn survive(journal: &str, seed: u64) -> u64 {
    let image = prepared(journal);
    let mut rng = Rng::new(seed);
    let times = if deep() { 500 } else { 25 };
    let mut failures = Vec::new();
    let whole = Mounted::new(&image);
    let mut child = whole.writer(TRANSACTIONS);
    assert_eq!(heard_to_the_end(&mut child), TRANSACTIONS, "{:?}", child.wait_with_output());
    if let Err(e) = holds(&whole.database(), TRANSACTIONS) {
        failures.push(format!("without a cut: {e}"));
    }
    let writes = whole.dev.write_count();
    let mut deltas = whole.end();
    for k in 0..times {
        let write = 1 + (k * writes + rng.below(writes)) / times;
        let mounted = Mounted::new(&image);
        mounted.dev.cut_after(write);
        let mut child = mounted.writer(TRANSACTIONS);
        let done = heard_to_the_end(&mut child);
        for loss in [Loss::AllLost, Loss::AllKept, Loss::Random(rng.below(1000))] {
            let verdict = judge(mounted.dev.image(loss), done);
            failures.extend(verdict.err().map(|e| format!("{journal}: cut at write {write} of {writes}, {loss}: {e}")));
        }
        deltas += mounted.end();
    }
    for _ in 0..times / 2 {
        let mounted = Mounted::new(&image);
        let mut child = mounted.writer(TRANSACTIONS);
        let mut said = child.stdout.take().map(BufReader::new).expect("piped");
        let before = heard(&mut said, 1 + rng.below(TRANSACTIONS - 1));
        child.kill().expect("killed");
        let _ = child.wait();
        let after = mounted.dev.image(Loss::AllLost);
        let done = before.max(heard(&mut said, u64::MAX));
        let here = holds(&mounted.database(), done).map_err(|e| format!("on the mount: {e}"));
        let verdict = here.and_then(|()| judge(after, done));
        failures.extend(verdict.err().map(|e| format!("{journal}: killed after {done}: {e}")));
        deltas += mounted.end();
    }
    println!("{journal}: {writes} writes, {deltas} deltas");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    deltas
}

#[test]
fn a_database_keeps_every_committed_transaction_with_each_rollback_journal() {
    for (seed, journal) in ["delete", "truncate", "persist"].into_iter().enumerate() {
        assert!(survive(journal, seed as u64) > 50, "{journal}: hardly any page became a delta");
    }
}

#[test]
fn a_database_keeps_every_committed_transaction_with_a_write_ahead_log() {
    assert!(survive("wal", 7) > 0, "no page became a delta");
}

/// The checks detect a missing transaction, an extra one, and a changed page.
#[test]
fn a_database_that_lost_a_transaction_or_a_page_is_found_out() {
    let dir = work_dir();
    let database = dir.path().join("chat.db");
    let mut child = spawned(Command::new(locate("sqlite3", "sqlite3")).arg(&database));
    tell(&mut child, &(begin("delete") + &(1..=9).map(transaction).collect::<String>()));
    assert!(child.wait().expect("sqlite3 ends").success());
    assert_eq!(holds(&database, 9), Ok(()));
    assert_eq!(holds(&database, 8), Ok(()), "it may have been committed and not reported");
    assert!(holds(&database, 10).is_err() && holds(&database, 7).is_err());
    let mut bytes = std::fs::read(&database).expect("reads");
    let at = bytes.windows(4).position(|w| w == b"gone").expect("a row");
    bytes[at] = b'd';
    std::fs::write(&database, &bytes).expect("writes");
    assert!(holds(&database, 9).is_err(), "a row is another");
    let middle = bytes.len() / 8192 * 4096;
    bytes[middle..middle + 4096].fill(0);
    std::fs::write(&database, &bytes).expect("writes");
    assert!(holds(&database, 9).is_err(), "a page is gone");
}
