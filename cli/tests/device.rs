//! A metered disk holds other file systems, reports their cost, and its recording can be replayed. What QEMU and fio
//! ask of it is on its ledger.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::parsed;
use crate::room::Room;
use crate::typed::{misused, refused};

fn ran(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {said}");
    out
}

fn joulefs(args: &[&str]) -> String {
    let out = ran(Command::new(env!("CARGO_BIN_EXE_joulefs")).args(args));
    String::from_utf8(out.stdout).unwrap()
}

fn sum(of: &Value, field: &str) -> u64 {
    of.as_object().unwrap().values().map(|v| if field.is_empty() { v } else { &v[field] }.as_u64().unwrap()).sum()
}

/// Unmounts even if the test fails.
struct Mounted<'d>(&'d Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").args(["-uz"]).arg(self.0).output();
    }
}

#[test]
fn ext4_on_a_metered_disk_is_whole_and_every_joule_is_in_each_account() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name);
    let text = |name: &str| at(name).display().to_string();
    fs::create_dir(at("device")).unwrap();
    fs::create_dir(at("mnt")).unwrap();
    let (device, image, recording) = (text("device"), text("image"), text("recording"));
    let how = ["--profile", "kirin9000-ufs31", "--size", "256M", "--image", &image, "--record", &recording];
    joulefs(&[&["device", &device], &how[..]].concat());
    let _device = Mounted(&at("device"));
    let disk = at("device/disk");

    ran(Command::new("mkfs.ext4").arg("-q").arg(&disk));
    // In the foreground: it writes its last blocks and closes the disk after the unmount, and then ends.
    let mut fuse2fs =
        Command::new("fuse2fs").arg("-f").arg(&disk).arg(at("mnt")).args(["-o", "rw,fakeroot"]).spawn().unwrap();
    let device_of = |path: &Path| fs::metadata(path).unwrap().dev();
    while device_of(&at("mnt")) == device_of(room.path()) {
        assert_eq!(fuse2fs.try_wait().unwrap(), None, "fuse2fs ended");
        thread::sleep(Duration::from_millis(10));
    }
    {
        let _ext4 = Mounted(&at("mnt"));
        for i in 0..20u8 {
            fs::write(at("mnt").join(format!("f{i}")), vec![i; 70_000]).unwrap();
        }
        assert_eq!(fs::read(at("mnt/f7")).unwrap(), vec![7; 70_000]);
    }
    assert!(fuse2fs.wait().unwrap().success());
    ran(Command::new("e2fsck").arg("-fn").arg(&disk));

    let l = parsed(&fs::read_to_string(at("device/ledger.json")).unwrap());
    let total = l["total_pj"].as_u64().unwrap();
    assert!(total > 0);
    assert_eq!(sum(&l["components_pj"], ""), total);
    assert_eq!(sum(&l["parts_pj"], ""), total);
    assert_eq!(sum(&l["operations"], "pj"), total);
    assert!(l["operations"]["flush"]["count"].as_u64().unwrap() > 0, "an fsync is a flush");
    assert!(l["operations"]["discard"]["count"].as_u64().unwrap() > 0, "a punched hole is a discard");
    joulefs(&["unmount", &device]);

    ran(Command::new("e2fsck").arg("-fn").arg(&image));
    let again = || joulefs(&["replay", &recording, "--profile", "kirin9000-ufs31", "--json"]);
    let first = again();
    assert_eq!(first, again(), "a replay in virtual time repeats to the last picojoule");
    let first = parsed(&first);
    assert!(sum(&first["causes"], "pj") > 0);
    let requests: u64 = ["read", "write", "flush", "discard"].map(|what| asked(&l, what).0).iter().sum();
    assert_eq!(first["replay"]["requests"], requests, "every request was recorded");
    assert_eq!(first["model"]["blocks_written"].as_u64().unwrap() * 4096, asked(&l, "write").1);
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

/// A device in the foreground.
struct Device {
    child: Child,
    disk: String,
}

impl Device {
    fn start(room: &Room, more: &[&str]) -> Self {
        fs::create_dir(room.path("device")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_joulefs"))
            .args(["device", &room.text("device"), "-f", "--json"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        soon("a disk", || room.path("device/disk").exists().then_some(()));
        Device { child, disk: room.text("device/disk") }
    }

    /// Ends it by a signal and returns its ledger, after checking that all its sums agree.
    fn end(mut self) -> Value {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        let l = parsed(&text);
        let total = l["total_pj"].as_u64().unwrap();
        assert!(total > 0);
        assert_eq!(sum(&l["components_pj"], ""), total);
        assert_eq!(sum(&l["operations"], "pj"), total);
        l
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Already gone, unless the test failed.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// Number of operations of one kind on the device, and their bytes.
fn asked(ledger: &Value, operation: &str) -> (u64, u64) {
    let of = |field: &str| ledger["operations"][operation][field].as_u64().unwrap_or(0);
    (of("count"), of("bytes"))
}

/// The requests in the output of strace: their kind on the device, offset and length.
fn sent(trace: &str) -> Vec<(&'static str, u64, u64)> {
    let calls = trace.lines().filter(|line| !line.starts_with("+++")).map(|line| {
        let (call, rest) = line.split_once('(').unwrap_or_else(|| panic!("{line}"));
        let arguments = rest.rsplit_once(" = ").unwrap_or_else(|| panic!("{line}")).0.trim_end().trim_end_matches(')');
        let number = |from_the_end: usize| arguments.rsplit(", ").nth(from_the_end).unwrap().parse().unwrap();
        match call {
            "fdatasync" | "fsync" => ("flush", 0, 0),
            "fallocate" if arguments.contains("PUNCH_HOLE") => ("discard", number(1), number(0)),
            "fallocate" if arguments.contains("ZERO_RANGE") => ("write", number(1), number(0)),
            "pread64" => ("read", number(0), number(1)),
            "pwrite64" => ("write", number(0), number(1)),
            _ => panic!("{line}"),
        }
    });
    calls.collect()
}

#[test]
fn what_qemu_asks_is_on_the_ledger() {
    let room = Room::new();
    let device = Device::start(&room, &["--size", "64M"]);
    let io = |how: &[&str], commands: &[&str]| {
        let mut qemu = Command::new("strace");
        // A file for each thread: no call is divided.
        qemu.args(["-ff", "-s", "0", "-e", "trace=pread64,pwrite64,fdatasync,fsync,fallocate", "-P", &device.disk]);
        qemu.args(["-o", &room.text("trace"), "qemu-io", "-f", "raw", "-d", "unmap"]).args(how);
        let said = ran(qemu.args(commands.iter().flat_map(|c| ["-c", c])).arg(&device.disk));
        assert!(!String::from_utf8_lossy(&said.stdout).contains("failed"), "{said:?}");
        let of_threads = fs::read_dir(room.path("")).unwrap().map(|entry| entry.unwrap().path());
        let of_threads: Vec<_> =
            of_threads.filter(|path| path.file_stem().is_some_and(|name| name == "trace")).collect();
        let trace: String = of_threads.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        of_threads.iter().for_each(|path| fs::remove_file(path).unwrap());
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
    all.extend(io(&["-t", "writethrough"], &["write -P 1 1M 4k", "write -P 2 1028k 8k"]));
    let of = |what: &str| all.iter().filter(|(call, ..)| *call == what).count() as u64;
    // A partial block needs a read of the whole block.
    let parts = all.iter().filter(|(call, from, len)| *call == "write" && (from % 4096, len % 4096) != (0, 0)).count();
    let [reads, writes, flushes, discards] = [of("read") + parts as u64, of("write"), of("flush"), of("discard")];
    // QEMU flushes once more when it ends, unless each write was followed by a flush.
    assert_eq!([reads, writes, flushes, discards], [6, 6, 5, 2], "{all:?}");
    let ledger = device.end();
    let block = 4096;
    assert_eq!(asked(&ledger, "read"), (reads, (16 + 1 + 1 + 1 + 1 + 16) * block));
    assert_eq!(asked(&ledger, "write"), (writes, (16 + 1 + 2 + 1 + 1 + 2) * block));
    assert_eq!(asked(&ledger, "discard"), (discards, (2 + 16) * block));
    assert_eq!(asked(&ledger, "flush").0, flushes);
}

#[test]
fn fio_finds_what_it_wrote_and_counts_as_the_ledger_does() {
    let room = Room::new();
    let device = Device::start(&room, &["--size", "16M", "--ledger", &room.text("kept.json")]);
    let fio = |engine: &str, what: &[&str]| {
        let mut fio = Command::new("fio");
        fio.current_dir(room.path("")).args(["--name=w", "--output-format=json", "--output=said"]);
        ran(fio.args([format!("--ioengine={engine}"), format!("--filename={}", device.disk)]).args(what));
        let said = parsed(&fs::read_to_string(room.path("said")).unwrap());
        let job = &said["jobs"][0];
        assert_eq!(job["error"], 0, "{said}");
        ["read", "write", "sync", "trim"].map(|what| job[what]["total_ios"].as_u64().unwrap())
    };
    let verified = fio("psync", &["--rw=randwrite", "--bs=4k", "--size=8M", "--fsync=32", "--verify=crc32c"]);
    assert_eq!((verified[0], verified[1]), (2048, 2048));
    // A sector is smaller than a block: the block is read first.
    let sectors = fio("psync", &["--rw=write", "--bs=512", "--size=64k", "--verify=md5"]);
    assert_eq!(sectors, [128, 128, 0, 0]);
    let trimmed = fio("falloc", &["--rw=randtrim", "--bs=64k", "--size=4M"]);
    // The kept ledger follows within a second or so.
    soon("the trims on the kept ledger", || {
        let kept = parsed(&fs::read_to_string(room.path("kept.json")).unwrap());
        (asked(&kept, "discard").0 == 64).then_some(())
    });
    let ledger = device.end();
    let all = [0, 1, 2, 3].map(|n| verified[n] + sectors[n] + trimmed[n]);
    assert_eq!(asked(&ledger, "read").0, all[0] + 128);
    assert_eq!(asked(&ledger, "write").0, all[1]);
    assert_eq!(asked(&ledger, "flush").0, all[2]);
    assert_eq!(asked(&ledger, "discard"), (64, 4 << 20));
    assert_eq!(trimmed[3], 64);
}

#[test]
fn a_disk_that_cannot_be_is_refused_in_one_line() {
    let room = Room::new();
    let dir = room.text("");
    misused(&["device", &dir, "--profile", "kirin9000-ufs31"], &["--size"]);
    misused(&["device", &dir, "--profile", "nothing", "--size", "1G"], &["nothing"]);
    misused(&["device", &dir, "--profile", "kirin9000-ufs31", "--size", "much"], &["much"]);
    refused(&["device", "/no/such/dir", "--profile", "kirin9000-ufs31", "--size", "64M"], &["/no/such/dir"]);
    refused(&["device", &dir, "--size", "1M", "--ledger", "/no/such/ledger"], &["/no/such/ledger"]);
    assert_eq!(crate::typed::joulefs(&["device", "--size", "1M"]).code, 2);
    fs::write(room.path("file"), b"no recording at all").unwrap();
    refused(&["replay", &room.text("file"), "--profile", "microdrive"], &["file"]);
}
