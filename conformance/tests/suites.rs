//! External test suites and programs, on a real mount of our volume.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use f2fs::mkfs::Options;
use judges::oracle::tools::locate;

use crate::rig::*;

/// Path of a suite installed by `cargo install`: in `PATH`, among cargo's programs, or below the workspace.
fn suite(name: &str) -> PathBuf {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(home.map(|home| home.join("bin")))
        .chain([tools])
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("`{name}` is needed by this test: cargo install {name}"))
}

/// The output of a program that must succeed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(80)..].join("\n");
    assert!(output.status.success(), "{command:?}: {}\n{end}", output.status);
    text
}

/// Tests that pjdfstest may fail, and why. It must pass all others.
const EXCLUDED: [(&str, &str); 0] = [];

#[test]
fn pjdfstest_passes() {
    pjdfstest(OnFuse::new(256, &Options::modern()));
}

#[test]
fn pjdfstest_passes_on_scherlfs() {
    pjdfstest(OnFuse::scherlfs(256));
}

fn pjdfstest(mount: OnFuse) {
    let config = mount.work.path().join("pjdfstest.toml");
    let excluded: Vec<String> = EXCLUDED.iter().map(|(name, _)| format!("{name:?}")).collect();
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutimensat = {{}}\nutime_now = {{}}\n\
         [settings]\nnaptime = 0.01\nallow_remount = false\nexpected_failures = [{}]\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n",
        excluded.join(", ")
    );
    std::fs::write(&config, text).expect("a configuration");
    let other = work_dir();
    let root = mount.path("pjd");
    std::fs::create_dir(&root).expect("a directory");
    // The tests also run as other users, who must be able to pass the parent directories.
    for dir in [mount.work.path(), other.path()] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir, open).expect("permissions");
    }
    let mut command = Command::new(suite("pjdfstest"));
    command.arg("-c").arg(&config).arg("-p").arg(&root).arg("-s").arg(other.path());
    let text = run(&mut command);
    let passed = text.lines().filter(|l| l.trim_end().ends_with(" ok")).count();
    assert!(passed > 300, "only {passed} tests passed:\n{text}");
    mount.end();
}

/// Every kind of operation that Linux passes to a FUSE file system, except `posix_fallocate`: the program sometimes
/// calls it with length 0, which POSIX allows every file system to refuse, and then gives up.
const FSX: &str = "flen = 300000\n[opsize]\nmax = 20000\nmin = 1\n\
    [weights]\nclose_open = 0.5\ninvalidate = 0.2\nmapread = 1\nmapwrite = 1\nread = 1\nwrite = 1\n\
    truncate = 1\nfsync = 0.05\nfdatasync = 0.05\npunch_hole = 1\nsendfile = 0.2\n\
    posix_fadvise = 0.2\ncopy_file_range = 0.5\n";

/// Collapsing, inserting and zeroing ranges is refused by the kernel or unknown to the program; other tests compare
/// these with a model without FUSE.
#[test]
fn fsx_finds_every_byte_where_it_was_put() {
    fsx(OnFuse::new(128, &Options::default()), if deep() { 2000 } else { 30 });
}

#[test]
fn fsx_finds_every_byte_where_it_was_put_on_scherlfs() {
    fsx(OnFuse::scherlfs(128), if deep() { 2000 } else { 15 });
}

fn fsx(mount: OnFuse, runs: u64) {
    let config = mount.work.path().join("fsx.toml");
    std::fs::write(&config, FSX).expect("a configuration");
    // Runs of 10,000 operations: the program never unmaps, and each later operation pays for all mappings.
    let program = suite("fsx");
    let next = AtomicU64::new(1);
    let failed = Mutex::new(String::new());
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (next, failed, program, config) = (&next, &failed, &program, &config);
            // Some runs find the previous run's file, others none.
            let (file, records) = (mount.path(&format!("fsx-{worker}")), mount.work.path());
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > runs {
                        return;
                    }
                    let mut command = Command::new(program);
                    command.args(["-q", "-N", "10000", "-S", &seed.to_string()]);
                    command.arg("-f").arg(config).arg("-P").arg(records);
                    if seed % 4 == 0 {
                        let _ = std::fs::remove_file(&file);
                    }
                    let output = command.arg(&file).stdin(Stdio::null()).output();
                    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
                    if !output.status.success() {
                        let said = String::from_utf8_lossy(&output.stderr).into_owned();
                        let lines: Vec<&str> = said.lines().collect();
                        let end = lines[lines.len().saturating_sub(30)..].join("\n");
                        let told = format!("fsx -S {seed}: {}\n{end}\n", output.status);
                        failed.lock().expect("no panic while held").push_str(&told);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic while held");
    assert!(failed.is_empty(), "{failed}");
    mount.end();
}

/// A process of `sqlite3` that runs `script` on a database.
fn sqlite(database: &Path, script: &str) -> Command {
    let mut command = Command::new(locate("sqlite3", "sqlite3"));
    command.args(["-bail", "-cmd", ".timeout 60000"]).arg(database).arg(script);
    command
}

/// Four processes write a table in turn while two read it; every row exists at the end, on this mount and after a
/// remount.
fn concurrent_databases(mount: OnFuse, journal: &str) {
    let database = mount.path("some.db");
    let start =
        format!("PRAGMA journal_mode={journal}; CREATE TABLE t(who INT, n INT, data BLOB, PRIMARY KEY(who, n));");
    assert!(run(&mut sqlite(&database, &start)).contains(journal));
    let (writers, rows) = (4, if deep() { 2000 } else { 150 });
    let mut children: Vec<Child> = (0..writers)
        .map(|who| {
            let mut script = format!("PRAGMA journal_mode={journal}; PRAGMA wal_autocheckpoint=50;\n");
            for n in 0..rows {
                script +=
                    &format!("BEGIN IMMEDIATE; INSERT INTO t VALUES({who}, {n}, randomblob({}));\n", n * 37 % 9000);
                if n % 3 == 2 {
                    script += &format!("UPDATE t SET data = randomblob(500) WHERE who = {who} AND n = {};\n", n - 1);
                }
                script += if n % 10 == 9 {
                    "SAVEPOINT s; DELETE FROM t WHERE n > 5; ROLLBACK TO s; COMMIT;\n"
                } else {
                    "COMMIT;\n"
                };
            }
            spawn(&mut sqlite(&database, &script))
        })
        .collect();
    for _ in 0..2 {
        let script = "SELECT count(*), sum(length(data)) FROM t;\n".repeat(100);
        children.push(spawn(&mut sqlite(&database, &script)));
    }
    for child in children {
        let output = child.wait_with_output().expect("waited");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "sqlite3: {}\n{said}", output.status);
    }
    let judge = "PRAGMA integrity_check; SELECT who, count(*) FROM t GROUP BY who;";
    let expected: String =
        std::iter::once("ok\n".into()).chain((0..writers).map(|who| format!("{who}|{rows}\n"))).collect();
    assert_eq!(run(&mut sqlite(&database, judge)), expected);
    let (work, image) = mount.end();
    let mount = OnFuse::mount(work, image);
    assert_eq!(run(&mut sqlite(&mount.path("some.db"), judge)), expected);
    mount.end();
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

#[test]
fn databases_with_a_write_ahead_log_stay_whole() {
    concurrent_databases(OnFuse::new(128, &Options::modern()), "wal");
}

#[test]
fn databases_with_a_write_ahead_log_stay_whole_on_scherlfs() {
    concurrent_databases(OnFuse::scherlfs(128), "wal");
}

#[test]
fn databases_with_a_rollback_journal_stay_whole() {
    concurrent_databases(OnFuse::new(128, &Options::modern()), "delete");
}

#[test]
fn databases_with_a_rollback_journal_stay_whole_on_scherlfs() {
    concurrent_databases(OnFuse::scherlfs(128), "delete");
}

#[test]
fn fio_reads_back_what_it_wrote() {
    fio_verifies(OnFuse::new(400, &Options::default()));
}

#[test]
fn fio_reads_back_what_it_wrote_on_scherlfs() {
    fio_verifies(OnFuse::scherlfs(400));
}

fn fio_verifies(mount: OnFuse) {
    let fio = locate("fio", "fio");
    let size = if deep() { "120m" } else { "48m" };
    let jobs = [
        ("sequential", vec!["--rw=write", "--bs=1m"]),
        ("random", vec!["--rw=randwrite", "--bs=4k", "--fsync=500"]),
        ("odd", vec!["--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned=1", "--norandommap=0"]),
        ("direct", vec!["--rw=randrw", "--bs=8k", "--direct=1", "--loops=2"]),
        ("two", vec!["--rw=randwrite", "--bs=16k", "--numjobs=2", "--size=24m"]),
    ];
    for (name, how) in jobs {
        let mut command = Command::new(&fio);
        command
            .arg(format!("--name={name}"))
            .arg(format!("--directory={}", mount.root.display()))
            .arg(format!("--size={size}"))
            .args(["--ioengine=psync", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--minimal"])
            .args(how)
            // Its state files belong next to the image, not into the current directory.
            .current_dir(mount.work.path());
        run(&mut command);
    }
    mount.end();
}
