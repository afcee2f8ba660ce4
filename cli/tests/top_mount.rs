//! `joulefs top DIR`: what a JouleFS mount spends, by cause and by file, while mounted. It equals the mount's own
//! ledger, to the picojoule.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

/// A volume on a real mount, unmounted at the end of the test.
struct Mount {
    room: Room,
    /// Its process number.
    process: Cell<u64>,
}

impl Mount {
    fn new(options: &[&str]) -> Mount {
        let mount = Mount { room: Room::new(), process: Cell::new(0) };
        fs::create_dir(mount.room.path("mnt")).unwrap();
        done(&["mkfs", &mount.room.text("v.img"), "--size", "128M"]);
        mount.mount(options);
        mount
    }
    fn mount(&self, options: &[&str]) {
        let said = done(&[&["--json", "mount", &self.room.text("v.img"), &self.dir()], options].concat());
        self.process.set(serde_json::from_str::<Value>(&said).unwrap()["process"].as_u64().unwrap());
    }
    fn metered(profile: &str) -> Mount {
        let mount = Mount { room: Room::new(), process: Cell::new(0) };
        fs::create_dir(mount.room.path("mnt")).unwrap();
        done(&["mkfs", &mount.room.text("v.img"), "--size", "128M"]);
        mount.mount_metered(profile, &[]);
        mount
    }
    fn mount_metered(&self, profile: &str, options: &[&str]) {
        let ledger = self.room.text("ledger.json");
        // Data is written when the test requests it.
        let metered = ["--profile", profile, "--ledger", &ledger, "--by-file", "1000", "-o", "commit=0"];
        self.mount(&[&metered, options].concat());
    }
    fn dir(&self) -> String {
        self.room.text("mnt")
    }
    fn unmount(&self) {
        done(&["unmount", &self.dir()]);
        // The final ledger is written when the volume is closed.
        let process = format!("/proc/{}/stat", self.process.get());
        let lives = || fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z "));
        let mut left = 1500;
        while lives() {
            left -= 1;
            assert!(left > 0, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    /// The mount's ledger.
    fn ledger(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.room.path("ledger.json")).unwrap()).unwrap()
    }
    fn write(&self, name: &str, bytes: usize) {
        let mut file = File::create(self.room.path("mnt").join(name)).unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        file.sync_all().unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = joulefs(&["unmount", &self.dir()]);
    }
}

/// A running `top`, read line by line.
struct Top {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Top {
    fn start(args: &[&str]) -> Top {
        let mut child = Command::new(env!("CARGO_BIN_EXE_joulefs"))
            .args([&["--json", "top"], args].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Top { child, lines }
    }
    fn line(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().expect("a line more").unwrap()).unwrap()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pj(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// The only mount in a line, after checking that every account adds up.
#[track_caller]
fn mount_of(line: &Value) -> &Value {
    let mount = &line["mounts"][0];
    for what in ["pj", "since_pj"] {
        let total = pj(&mount[what]);
        for list in ["causes", "files"] {
            let sum: u64 = mount[list].as_array().unwrap().iter().map(|r| pj(&r[what])).sum();
            assert_eq!(sum, total, "{list}, {what}");
        }
    }
    for (all, what) in [("components_pj", "pj"), ("since_components_pj", "since_pj")] {
        let sum: u64 = mount[all].as_object().unwrap().values().map(pj).sum();
        assert_eq!(sum, pj(&mount[what]), "{all}");
    }
    mount
}

fn rows(list: &Value, key: &str, value: &str) -> BTreeMap<String, u64> {
    let rows = list.as_array().unwrap();
    rows.iter().map(|r| (r[key].as_str().unwrap().to_owned(), pj(&r[value]))).collect()
}

/// A mount's account equals its ledger.
#[track_caller]
fn is_ledger(mount: &Value, ledger: &Value) {
    assert_eq!(mount["pj"], ledger["total_pj"]);
    assert_eq!(mount["components_pj"], ledger["components_pj"]);
    let of_ledger: BTreeMap<String, u64> =
        ledger["causes"].as_object().unwrap().iter().map(|(n, v)| (n.clone(), pj(&v["pj"]))).collect();
    assert_eq!(rows(&mount["causes"], "cause", "pj"), of_ledger);
    let by_inode = |list: &Value, key: &str| -> BTreeMap<u64, u64> {
        let rows = list.as_array().unwrap().iter().filter(|r| r["inode"].is_u64());
        rows.map(|r| (pj(&r["inode"]), pj(&r[key]))).collect()
    };
    assert_eq!(by_inode(&mount["files"], "pj"), by_inode(&ledger["files"], "pj"));
}

#[test]
fn what_was_spent_is_what_the_ledger_says_at_unmount_to_the_picojoule() {
    for profile in ["kirin9000-ufs31", "galaxy-nexus-emmc"] {
        let m = Mount::metered(profile);
        let mut top = Top::start(&[&m.dir(), "--delay", "0.3", "--rows", "1000"]);
        // Starts before anything is written.
        top.line();
        m.write("one", 300_000);
        fs::create_dir(m.room.path("mnt/dir")).unwrap();
        m.write("dir/two", 50_000);
        m.write("gone", 9000);
        fs::remove_file(m.room.path("mnt/gone")).unwrap();
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let (mut joules, mut seconds, mut first) = (0.0, 0.0, None);
        for _ in 0..4 {
            let line = top.line();
            let mount = mount_of(&line);
            first.get_or_insert(pj(&mount["pj"]) - pj(&mount["since_pj"]));
            for (file, since) in rows(&mount["files"], "file", "since_pj") {
                *sums.entry(file).or_default() += since;
            }
            let interval = line["interval_ns"].as_u64().unwrap() as f64 / 1e9;
            joules += line["power_uw"].as_u64().unwrap() as f64 / 1e6 * interval;
            seconds += interval;
        }
        let line = top.line();
        let mount = mount_of(&line);
        // Refreshes add up, by file, too.
        let expected = (pj(&mount["pj"]) - pj(&mount["since_pj"]) - first.unwrap()) as f64 / 1e12;
        // Powers are whole microwatts.
        assert!((joules - expected).abs() < 1e-6 * seconds, "{joules} J in refreshes, {expected} J in all");
        let files = rows(&mount["files"], "file", "pj");
        for name in ["/one", "/dir/two", "<deleted> /gone"] {
            assert!(files.get(name).is_some_and(|all| *all >= sums[name] && sums[name] > 0), "{name}: {files:#?}");
        }
        assert!(files["/one"] > files["/dir/two"], "{files:#?}");
        let causes = rows(&mount["causes"], "cause", "pj");
        assert!(causes["user_data"] > 0 && causes.len() > 2, "{causes:#?}");
        drop(top);
        m.unmount();
        // Unmounting wrote a checkpoint, after the last possible query. A read-only mount ends with the state last
        // queried.
        assert!(pj(&m.ledger()["total_pj"]) > pj(&mount["pj"]));
        m.mount_metered(profile, &["-o", "ro"]);
        let mut read = Vec::new();
        File::open(m.room.path("mnt/one")).unwrap().read_to_end(&mut read).unwrap();
        fs::read_dir(m.room.path("mnt/dir")).unwrap().for_each(drop);
        let line: Value = serde_json::from_str(&done(&[
            "--json",
            "top",
            "--mount",
            &m.dir(),
            "--once",
            "--delay",
            "0.3",
            "--rows",
            "1000",
        ]))
        .unwrap();
        m.unmount();
        is_ledger(mount_of(&line), &m.ledger());
        assert!(pj(&line["total_pj"]) > 0 && rows(&mount_of(&line)["files"], "file", "pj").contains_key("/one"));
    }
}

#[test]
fn a_volume_that_is_written_and_then_rests_says_what_its_ledger_says_meanwhile() {
    let m = Mount::metered("kirin9000-ufs31");
    for n in 0..40 {
        m.write(&format!("f{n}"), 5000 * (n + 1));
    }
    for left in (0..25).rev() {
        let line: Value =
            serde_json::from_str(&done(&["--json", "top", &m.dir(), "--once", "--delay", "1.1", "--rows", "1000"]))
                .unwrap();
        let (mount, ledger) = (mount_of(&line).clone(), m.ledger());
        if mount["pj"] == ledger["total_pj"] {
            is_ledger(&mount, &ledger);
            // Few rows are named, and the rest is merged.
            let few: Value =
                serde_json::from_str(&done(&["--json", "top", &m.dir(), "--once", "--delay", "0.1", "--rows", "3"]))
                    .unwrap();
            let files = rows(&mount_of(&few)["files"], "file", "pj");
            assert!(files.keys().any(|name| name.ends_with(" others>")) && files.contains_key("/f39"), "{files:#?}");
            break;
        }
        assert!(left > 0, "it never rests: {line:#}");
    }
}

#[test]
fn it_ends_with_the_mount_and_others_go_on() {
    let (a, b) = (Mount::metered("kirin9000-ufs31"), Mount::metered("microdrive"));
    let mut top = Top::start(&[&a.dir(), &b.dir(), "--delay", "0.2", "--prometheus", "127.0.0.1:0"]);
    let mut said = String::new();
    BufReader::new(top.child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let at = said.trim().split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
    a.write("x", 4096);
    top.line();
    let line = top.line();
    let total: u64 = line["mounts"].as_array().unwrap().iter().map(|m| pj(&m["pj"])).sum();
    assert_eq!(pj(&line["total_pj"]), total);
    let mut client = TcpStream::connect(at).unwrap();
    write!(client, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("cause=\"user_data\",component=\"storage\"") && answer.contains("file=\"/x\""), "{answer}");
    assert!(answer.ends_with("# EOF\n") && answer.contains("joulefs_mount_power_watts{mount="), "{answer}");
    a.unmount();
    let gone = |line: &Value| !line["mounts"][0]["mounted"].as_bool().unwrap();
    let line = std::iter::repeat_with(|| top.line()).take(50).find(gone).expect("it sees the end");
    assert_eq!((pj(&line["mounts"][0]["since_pj"]), &line["mounts"][1]["mounted"]), (0, &Value::Bool(true)));
    assert_eq!(line["ended"], false);
    b.unmount();
    let last = std::iter::repeat_with(|| top.line()).take(50).find(|l| l["ended"] == true);
    assert!(last.is_some() && top.lines.next().is_none() && top.child.wait().unwrap().success());
}

#[test]
fn a_person_sees_causes_and_files_and_what_cannot_be_shown_is_said_in_one_line() {
    let m = Mount::metered("kirin9000-ufs31");
    m.write("a name", 70_000);
    let text = done(&["top", &m.dir(), "--once", "--delay", "0.1"]);
    let words = ["watts", "since", "in all", "user data", "/a name", "storage", "board", "kirin9000-ufs31"];
    words.iter().for_each(|w| assert!(text.contains(w), "no {w} in\n{text}"));
    let plain = Mount::new(&[]);
    refused(&["top", &plain.dir(), "--once"], &["mounted without --profile", "joulefs mount IMAGE DIR --profile"]);
    refused(&["top", &m.room.text("."), "--once"], &["not a JouleFS mount point"]);
    refused(&["top", &m.room.text("none"), "--once"], &["none", "No such file"]);
    misused(&["top", &m.dir(), "--from", "x"], &["--from"]);
    misused(&["top", "--mount", &m.dir(), "--profile", "microdrive"], &["--profile"]);
}

#[test]
fn only_root_and_who_mounted_may_ask_for_which_file_what_was_spent() {
    if !rustix::process::geteuid().is_root() {
        return testlog::missing("root, to become another user");
    }
    let m = Mount::metered("kirin9000-ufs31");
    m.write("secret-name", 4096);
    fs::set_permissions(m.room.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    // Made by another process: a writable descriptor of this one could be inherited by a child of another test.
    let program = m.room.path("joulefs");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_joulefs")).arg(&program).status().unwrap().success());
    let as_nobody = |program: &Path, args: &[&str]| {
        let out = Command::new(program).args(args).uid(65534).gid(65534).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
    };
    let (code, said) = as_nobody(&program, &["top", &m.dir(), "--once"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("only root and the user who mounted the volume") && said.trim_end().lines().count() == 1,
        "{said}"
    );
    assert!(!said.contains("secret-name"));
}
