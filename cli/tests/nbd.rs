//! Standard NBD clients work with a metered disk, and the ledger has all their requests.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::room::Room;
use crate::theirs;
use crate::typed::{done, joulefs, misused, refused};

const MIB: u64 = 1 << 20;

/// A program's standard output and standard error.
#[track_caller]
fn both(command: &mut Command, package: &str) -> (String, String) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}: install the Debian package {package}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{command:?}: {}{}", text(&out.stdout), text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

#[track_caller]
fn ran(command: &mut Command, package: &str) -> String {
    both(command, package).0
}

/// Polls until `look` returns a value.
#[track_caller]
fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        if let Some(seen) = look() {
            return seen;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not in ten seconds");
}

/// A process that is terminated on drop, if still running.
struct Running(Pid);

impl Running {
    fn new(number: u64) -> Self {
        Running(Pid::from_raw(i32::try_from(number).unwrap()).unwrap())
    }
    fn end(self) {
        kill_process(self.0, Signal::TERM).unwrap();
        std::mem::forget(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// A server in the foreground.
struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn start(room: &Room, more: &[&str]) -> Self {
        let socket = room.path("socket");
        let child = Command::new(env!("CARGO_BIN_EXE_joulefs"))
            .args(["device", "--nbd", &format!("unix:{}", socket.display()), "-f", "--json"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        soon("a socket", || UnixStream::connect(&socket).ok());
        Server { child, uri: format!("nbd+unix:///?socket={}", socket.display()) }
    }

    /// Ends it and returns its ledger, after checking that all its sums agree.
    fn end(mut self) -> Value {
        Running::new(self.child.id().into()).end();
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        let ledger: Value = serde_json::from_str(&text).unwrap();
        let sum = |of: &Value, field: Option<&str>| -> u64 {
            let amount = |v: &Value| field.map_or(v, |f| &v[f]).as_u64().unwrap();
            of.as_object().unwrap().values().map(amount).sum()
        };
        let total = ledger["total_pj"].as_u64().unwrap();
        assert!(total > 0);
        assert_eq!(sum(&ledger["components_pj"], None), total);
        assert_eq!(sum(&ledger["operations"], Some("pj")), total);
        ledger
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Number of operations of one kind on the device, and their bytes.
fn asked(ledger: &Value, operation: &str) -> (u64, u64) {
    let of = |field: &str| ledger["operations"][operation][field].as_u64().unwrap_or(0);
    (of("count"), of("bytes"))
}

/// A file of bytes that do not compress, do not repeat and are not zero.
fn noise(path: &Path, bytes: u64) {
    let mut state = 1_u64;
    let words = (0..bytes / 8).flat_map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state | 1).to_le_bytes()
    });
    fs::write(path, words.collect::<Vec<u8>>()).unwrap();
}

/// The requests in QEMU's trace: command, flags, offset and length.
fn sent(trace: &str) -> Vec<(String, u32, u64, u64)> {
    let requests = trace.lines().filter(|line| line.contains("nbd_send_request"));
    requests
        .map(|line| {
            let field =
                |name: &str| line.split_once(&format!(".{name} = ")).unwrap().1.split([',', ' ']).next().unwrap();
            let command = line.split_once('(').unwrap().1.split_once(')').unwrap().0;
            let flags = u32::from_str_radix(field("flags").trim_start_matches("0x"), 16).unwrap();
            (command.to_owned(), flags, field("from").parse().unwrap(), field("len").parse().unwrap())
        })
        .collect()
}

#[test]
fn what_qemu_asks_is_on_the_ledger() {
    const FUA: u32 = 1;
    const NO_HOLE: u32 = 2;
    let room = Room::new();
    let server = Server::start(&room, &["--size", "64M"]);
    let io = |how: &[&str], commands: &[&str]| {
        let mut qemu = Command::new("qemu-io");
        qemu.args(["-f", "raw", "-d", "unmap", "-T", "nbd_send_request"]).args(how);
        qemu.args(commands.iter().flat_map(|c| ["-c", c]));
        let (said, trace) = both(qemu.arg(&server.uri), "qemu-utils");
        assert!(!said.contains("failed"), "{said}");
        sent(&trace)
    };
    let mut all = io(
        &["-t", "writeback"],
        &[
            "write -P 7 0 64k",
            "write -f -P 8 64k 4k",
            "write -z 128k 8k",
            "write -z -u 256k 8k",
            "discard 512k 64k",
            "flush",
            "read -P 7 0 64k",
            "read -P 8 64k 4k",
            "write -P 9 1000 24",
            "read -P 7 0 1000",
            "read -P 9 1000 24",
            "read -P 0 512k 64k",
        ],
    );
    let through = io(&["-t", "writethrough"], &["write -P 1 1M 4k", "write -P 2 1028k 8k"]);
    assert_eq!(through.iter().filter(|(command, flags, ..)| command == "write" && *flags == FUA).count(), 2);
    all.extend(through);

    let [mut reads, mut writes, mut flushes, mut discards] = [0, 0, 0, 0];
    for (command, flags, from, len) in &all {
        match command.as_str() {
            "read" => reads += 1,
            "write" => writes += 1,
            "write zeroes" if flags & NO_HOLE != 0 => writes += 1,
            "write zeroes" | "trim" => discards += 1,
            "flush" => flushes += 1,
            "disconnect" => {}
            other => panic!("{other}"),
        }
        flushes += u64::from(flags & FUA);
        // A partial block needs a read of the whole block.
        reads += u64::from(command == "write" && (from % 4096, len % 4096) != (0, 0));
    }
    // QEMU flushes once more when it ends, hence two that were not typed.
    assert_eq!([reads, writes, flushes, discards], [6, 6, 6, 2], "{all:?}");
    let ledger = server.end();
    let block = 4096;
    assert_eq!(asked(&ledger, "read"), (reads, (16 + 1 + 1 + 1 + 1 + 16) * block));
    assert_eq!(asked(&ledger, "write"), (writes, (16 + 1 + 2 + 1 + 1 + 2) * block));
    assert_eq!(asked(&ledger, "discard"), (discards, (2 + 16) * block));
    assert_eq!(asked(&ledger, "flush").0, flushes);
}

#[test]
fn nbdcopy_gets_back_what_it_brought() {
    let room = Room::new();
    let server = Server::start(&room, &["--size", "16M", "--profile", "microdrive"]);
    noise(&room.path("in"), 16 * MIB);
    let copy = |how: &[&str], from: &str, to: &str| {
        ran(Command::new("nbdcopy").args(how).args([from, to]), "libnbd-bin");
    };
    copy(&["--flush", "--connections=1"], &room.text("in"), &server.uri);
    // Over several connections at once.
    copy(&["--connections=4", "--threads=4"], &server.uri, &room.text("out"));
    assert!(fs::read(room.path("in")).unwrap() == fs::read(room.path("out")).unwrap());

    let said = ran(Command::new("nbdinfo").args(["--json", &server.uri]), "libnbd-bin");
    let info: Value = serde_json::from_str(&said).unwrap();
    let export = &info["exports"][0];
    assert_eq!((&export["export-name"], &export["export-size"]), (&"".into(), &(16 * MIB).into()));
    for can in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn"] {
        assert_eq!(export[can], true, "{can}");
    }
    assert_eq!(export["is_read_only"], false);
    let ledger = server.end();
    // nbdcopy requests 256 KiB at a time; nbdinfo reads the start to guess the contents.
    let requests = 16 * MIB / (256 << 10);
    assert_eq!(asked(&ledger, "write"), (requests, 16 * MIB));
    assert_eq!(asked(&ledger, "read").0, requests + 1);
    assert_eq!(asked(&ledger, "flush").0, 1);
    assert_eq!(ledger["profile"], "microdrive");
}

#[test]
fn fio_finds_what_it_wrote_and_counts_as_the_ledger_does() {
    let room = Room::new();
    let server = Server::start(&room, &["--size", "16M"]);
    let fio = |what: &[&str]| {
        let mut fio = Command::new("fio");
        fio.current_dir(room.path("")).args(["--name=w", "--ioengine=nbd", "--output-format=json", "--output=said"]);
        ran(fio.arg(format!("--uri={}", server.uri)).args(what), "fio");
        let said: Value = serde_json::from_str(&fs::read_to_string(room.path("said")).unwrap()).unwrap();
        let job = &said["jobs"][0];
        assert_eq!(job["error"], 0, "{said}");
        ["read", "write", "sync", "trim"].map(|what| job[what]["total_ios"].as_u64().unwrap())
    };
    let verified = fio(&["--rw=randwrite", "--bs=4k", "--size=8M", "--iodepth=8", "--fsync=32", "--verify=crc32c"]);
    assert_eq!((verified[0], verified[1]), (2048, 2048));
    // A sector is smaller than a block: the block is read first.
    let sectors = fio(&["--rw=write", "--bs=512", "--size=64k", "--verify=md5"]);
    assert_eq!(sectors, [128, 128, 0, 0]);
    let trimmed = fio(&["--rw=randtrim", "--bs=64k", "--size=4M"]);
    let ledger = server.end();
    let all = [0, 1, 2, 3].map(|n| verified[n] + sectors[n] + trimmed[n]);
    assert_eq!(asked(&ledger, "read").0, all[0] + 128);
    assert_eq!(asked(&ledger, "write").0, all[1]);
    assert_eq!(asked(&ledger, "flush").0, all[2]);
    assert_eq!(asked(&ledger, "discard"), (64, 4 * MIB));
    assert_eq!(trimmed[3], 64);
}

#[test]
fn a_volume_goes_through_it_and_stays_whole() {
    let room = Room::new();
    let (volume, tree, image) = (room.text("volume"), room.text("tree"), room.text("image"));
    done(&["mkfs", &volume, "--size", "64M"]);
    fs::create_dir(&tree).unwrap();
    noise(&room.path("tree/noise"), 5 * MIB);
    done(&["cp", "-r", &tree, &format!("{volume}:/")]);
    let (recording, table) = (room.text("recording"), room.text("ledger"));
    let kept = ["--size", "64M", "--image", &image, "--record", &recording, "--ledger", &table];
    let server = Server::start(&room, &kept);
    let convert = |from: &str, to: &str, how: &[&str]| {
        let mut qemu = Command::new("qemu-img");
        ran(qemu.args(["convert", "-f", "raw", "-O", "raw"]).args(how).args([from, to]), "qemu-utils");
    };
    convert(&volume, &server.uri, &["-n"]);
    convert(&server.uri, &room.text("back"), &[]);
    assert!(fs::read(&volume).unwrap() == fs::read(room.path("back")).unwrap());
    let ledger = server.end();

    assert!(fs::read(&volume).unwrap() == fs::read(&image).unwrap());
    theirs::assert_clean(&image);
    assert!(done(&["cat", &format!("{image}:/tree/noise")]).len() > 4 << 20);
    let table = fs::read_to_string(table).unwrap();
    assert!(table.contains("kirin9000-ufs31") && table.contains("write"), "{table}");
    let again = done(&["replay", &recording, "--profile", "kirin9000-ufs31", "--json"]);
    let again: Value = serde_json::from_str(&again).unwrap();
    let all: u64 = ["read", "write", "flush", "discard"].into_iter().map(|what| asked(&ledger, what).0).sum();
    assert_eq!(again["replay"]["requests"], all, "every request was recorded");
    assert_eq!(again["model"]["blocks_written"].as_u64().unwrap() * 4096, asked(&ledger, "write").1);
}

#[test]
fn in_the_background_it_keeps_its_ledger_and_ends_by_a_signal() {
    let room = Room::new();
    let (place, ledger) = (format!("unix:{}", room.text("socket")), room.text("ledger.json"));
    let start = ["device", "--nbd", &place, "--size", "64M", "--ledger", &ledger];
    let started = || {
        let said: Value = serde_json::from_str(&done(&[&start[..], &["--json"]].concat())).unwrap();
        (Running::new(said["process"].as_u64().unwrap()), said["uri"].as_str().unwrap().to_owned())
    };
    let gone = || soon("the socket's end", || (!room.path("socket").exists()).then_some(()));
    let (process, uri) = started();
    refused(&start, &["socket", "listens"]);
    ran(Command::new("qemu-io").args(["-f", "raw", "-c", "write 0 4k", &uri]), "qemu-utils");
    let now = soon("a flush on the ledger", || {
        let now: Value = serde_json::from_str(&fs::read_to_string(&ledger).unwrap()).expect("a whole ledger");
        (asked(&now, "flush").0 > 0).then_some(now)
    });
    assert_eq!(asked(&now, "write"), (1, 4096));
    process.end();
    gone();

    // A killed server leaves a socket, which the next one replaces.
    let (process, _) = started();
    drop(process);
    soon("nobody at the socket", || UnixStream::connect(room.path("socket")).err());
    assert!(room.path("socket").exists());
    let said = done(&start);
    let process = Running::new(said.trim().rsplit(' ').next().unwrap().parse().unwrap());
    assert!(said.contains(&uri), "{said}");
    process.end();
    gone();
}

#[test]
fn a_port_will_do() {
    let room = Room::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = format!("tcp:127.0.0.1:{port}");
    let said = done(&["device", "--nbd", &place, "--size", "1M", "--ledger", &room.text("ledger.json"), "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let process = Running::new(said["process"].as_u64().unwrap());
    noise(&room.path("in"), MIB);
    let uri = said["uri"].as_str().unwrap();
    assert_eq!(uri, format!("nbd://127.0.0.1:{port}"));
    for (from, to) in [(&room.text("in")[..], uri), (uri, &room.text("out"))] {
        ran(Command::new("nbdcopy").args([from, to]), "libnbd-bin");
    }
    assert!(fs::read(room.path("in")).unwrap() == fs::read(room.path("out")).unwrap());
    process.end();
}

#[test]
fn a_server_that_cannot_be_is_refused_and_leaves_nothing() {
    let room = Room::new();
    let place = format!("unix:{}", room.text("socket"));
    misused(&["device", "--nbd", &place], &["--size"]);
    misused(&["device", "--nbd", &place, "--size", "1M", "-f", "--profile", "nothing"], &["nothing"]);
    refused(&["device", "--nbd", &place, "--size", "1M", "--ledger", "/no/such/ledger"], &["/no/such/ledger"]);
    assert!(!room.path("socket").exists());
    for wrong in [&["--nbd", "nowhere"][..], &["--nbd", "tcp:host"], &["--nbd", &place, &room.text("")], &[]] {
        let r = joulefs(&[&["device", "--size", "1M"], wrong].concat());
        assert_eq!(r.code, 2, "{wrong:?}: {}{}", r.out, r.err);
    }
}
