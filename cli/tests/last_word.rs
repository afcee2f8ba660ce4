//! Does the user who unmounts learn that the last checkpoint failed, and is any data lost then?
//!
//! The image is on its own ext4, where `chattr +i` makes every write to it fail until `chattr -i`: a disk that fails
//! and is repaired.
#![allow(clippy::disallowed_methods, reason = "the daemon and the kernel live in real time")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::room::Room;
use crate::typed::{KINDS, contents, done, joulefs, misused, refused};

/// The error if the image cannot be written.
const WHY: &str = "Operation not permitted";

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).status().unwrap_or_else(|e| panic!("{program}: {e}")).success()
}

/// False, with a message, if the test cannot run here.
fn can() -> bool {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        testlog::missing("root and /dev/fuse, for a mount whose image lies on an ext4 of its own");
        return false;
    }
    if !Path::new("/sys/fs/ext4").exists() {
        testlog::kernel_lacks("ext4");
        return false;
    }
    true
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Incompressible bytes, unique per seed.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 32);
    let mut at = *blake3::hash(&seed.to_le_bytes()).as_bytes();
    while out.len() < len {
        at = *blake3::hash(&at).as_bytes();
        out.extend_from_slice(&at);
    }
    out.truncate(len);
    out
}

/// A mounted volume whose image can be made unwritable.
struct Mount {
    room: Room,
    kind: &'static str,
}

impl Mount {
    /// Contains `before`, durable, and `dir/after`, not durable.
    fn new(kind: &'static str, options: &str, more: &[&str]) -> Mount {
        let room = Room::new();
        let (disk, host) = (room.text("disk"), room.text("host"));
        fs::set_permissions(room.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        File::create(&disk).unwrap().set_len(192 << 20).unwrap();
        assert!(run("mkfs.ext4", &["-q", "-m", "0", &disk]));
        fs::create_dir(&host).unwrap();
        fs::create_dir(room.path("mnt")).unwrap();
        assert!(run("mount", &["-o", "loop", &disk, &host]));
        let m = Mount { room, kind };
        done(&["mkfs", &m.image(), "--size", "64M", "--type", kind]);
        let options = format!("log={},{options}", m.room.text("log"));
        done(&[&["mount", &m.image(), &m.dir(), "-o", options.trim_end_matches(',')], more].concat());
        fs::write(m.path("before"), bytes(1, 200_000)).unwrap();
        m.sync();
        m
    }

    fn dirty(&self) {
        fs::create_dir(self.path("dir")).unwrap();
        fs::write(self.path("dir/after"), bytes(2, 300_000)).unwrap();
    }

    fn sync(&self) {
        done(&["ctl", &self.dir(), "retry"]);
    }

    fn image(&self) -> String {
        self.room.text("host/v.img")
    }

    fn dir(&self) -> String {
        self.room.text("mnt")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.room.path("mnt").join(name)
    }

    fn freeze(&self) {
        assert!(run("chattr", &["+i", &self.image()]));
    }

    fn thaw(&self) {
        assert!(run("chattr", &["-i", &self.image()]));
    }

    fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mounts").unwrap().contains(&self.dir())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.room.path("log")).unwrap()
    }

    fn process(&self) -> Option<i32> {
        let table = fs::read_to_string("/proc/locks").unwrap();
        let inode = format!(":{} ", fs::metadata(self.image()).unwrap().ino());
        let device = fs::metadata(self.image()).unwrap().dev();
        let device = format!("{:02x}:{:02x}", rustix::fs::major(device), rustix::fs::minor(device));
        let line = table.lines().find(|l| l.contains("FLOCK") && l.contains(&format!("{device}{inode}")))?;
        line.split_whitespace().nth(4)?.parse().ok()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let process = self.process().and_then(rustix::process::Pid::from_raw).expect("a process has the image");
        rustix::process::kill_process(process, signal).unwrap();
    }

    fn stat(&self, place: &str) -> Value {
        serde_json::from_str(&done(&["--json", "ctl", place, "stat"])).unwrap()
    }

    fn holds(&self, name: &str, written: &[u8]) {
        let there = contents(&format!("{}:/{name}", self.image()));
        assert!(there.as_deref() == Some(written), "{}: {name} is not what was written", self.kind);
    }

    /// All files are present, and the volume is clean.
    fn is_whole(&self) {
        self.holds("before", &bytes(1, 200_000));
        self.holds("dir/after", &bytes(2, 300_000));
        assert!(done(&["fsck", &self.image()]).contains("clean"));
    }

    /// All durable files are present, and nothing else.
    fn is_as_of_its_last_checkpoint(&self) {
        self.holds("before", &bytes(1, 200_000));
        refused(&["cat", &format!("{}:/dir/after", self.image())], &["dir/after"]);
        assert!(done(&["fsck", &self.image()]).contains("clean"));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("chattr", &["-i", &self.image()]);
        if self.is_mounted() {
            joulefs(&["unmount", "--give-up-unwritten", &self.dir()]);
        }
        if std::thread::panicking() {
            println!("{}", fs::read_to_string(self.room.path("log")).unwrap_or_default());
        }
        if self.is_mounted() {
            run("umount", &["-l", &self.dir()]);
        }
        if self.process().is_some() {
            self.signal(rustix::process::Signal::KILL);
        }
        run("umount", &["-l", &self.room.text("host")]);
    }
}

#[test]
fn an_unmount_that_would_lose_something_leaves_the_mount_says_why_and_what_helps() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind, "", &[]);
        m.dirty();
        m.freeze();
        let dir = m.dir();
        let next = ["retry", "save", "--give-up-unwritten"];
        refused(&["unmount", &dir], &[&["not unmounted", WHY, &dir], &next[..]].concat());
        let failed = joulefs(&["--json", "unmount", &dir]);
        let said: Value = serde_json::from_str(&failed.out).unwrap();
        assert!(failed.code == 1 && said["error"].as_str().unwrap().contains(WHY), "{said}");
        assert!(m.is_mounted());
        assert_eq!(fs::read(m.path("dir/after")).unwrap(), bytes(2, 300_000), "it is read from memory");
        refused(&["ctl", &dir, "retry"], &["is not durable", WHY, "save"]);
        assert_eq!(m.stat(&dir)["state"], "failed");
        assert!(m.stat(&dir)["state_reason"].as_str().unwrap().contains(WHY), "{}", m.stat(&dir));
        assert!(m.stat(&m.image())["mounted"].as_str() == Some(&dir));
        assert!(m.log().contains(WHY), "{}", m.log());
        m.thaw();
        done(&["ctl", &dir, "retry"]);
        assert_eq!(m.stat(&dir)["state"], "ok");
        fs::write(m.path("later"), bytes(3, 100_000)).unwrap();
        done(&["unmount", &dir]);
        assert!(!m.is_mounted() && m.process().is_none());
        m.is_whole();
        m.holds("later", &bytes(3, 100_000));
    }
}

#[test]
fn after_a_plain_umount_the_process_keeps_what_it_could_not_write_and_says_so_until_it_can() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind, "retry=50", &[]);
        m.dirty();
        m.freeze();
        assert!(run("umount", &[&m.dir()]));
        until("the failure is known", || joulefs(&["--json", "ctl", &m.image(), "stat"]).out.contains("retrying_s"));
        let image = m.image();
        let process = m.process().unwrap().to_string();
        for command in
            [&["ls", &format!("{image}:/")][..], &["mount", &image, &m.dir()], &["cat", &format!("{image}:/before")]]
        {
            refused(command, &["unmounted, but process", &process, WHY, "retry", "save"]);
        }
        let stat = m.stat(&image);
        assert!(stat["last_checkpoint_failed"].as_str().unwrap().contains(WHY), "{stat}");
        assert!(stat["retrying_s"].as_u64().unwrap() <= 50 && stat["mounted"].is_null(), "{stat}");
        refused(&["ctl", &image, "retry"], &[WHY, "is not durable"]);
        let out = m.room.text("out");
        assert!(done(&["ctl", &image, "save", &out]).contains("copied to"));
        assert_eq!(fs::read(m.room.path("out/dir/after")).unwrap(), bytes(2, 300_000));
        m.thaw();
        done(&["ctl", &image, "retry"]);
        until("the image is released", || m.process().is_none());
        m.is_whole();
        let log = m.log();
        assert!(
            log.contains("the last checkpoint failed") && log.contains("the last checkpoint succeeded after"),
            "{log}"
        );
        refused(&["ctl", &image, "retry"], &["not mounted, and no process"]);
    }
}

#[test]
fn a_disk_that_is_mended_in_time_loses_nothing_though_nobody_asks() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind, "retry=50", &[]);
        m.dirty();
        m.freeze();
        assert!(run("umount", &[&m.dir()]));
        until("the failure is logged", || m.log().contains("the last checkpoint failed"));
        m.thaw();
        until("the image is released", || m.process().is_none());
        m.is_whole();
    }
}

#[test]
fn what_is_lost_in_the_end_is_said_in_the_log() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind, "retry=2", &[]);
        m.dirty();
        m.freeze();
        assert!(run("umount", &[&m.dir()]));
        until("the image is released", || m.process().is_none());
        let log = m.log();
        let last = log.lines().last().unwrap();
        assert!(last.contains("ERROR") && last.contains(WHY) && last.contains("is lost"), "{log}");
        assert!(log.chars().all(|c| c == '\n' || !c.is_control()));
        m.thaw();
        m.is_as_of_its_last_checkpoint();
    }
}

#[test]
fn who_gives_up_what_is_unwritten_is_told_what_was_lost() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind, "retry=50", &[]);
        m.dirty();
        m.freeze();
        let begun = Instant::now();
        refused(&["unmount", "--give-up-unwritten", &m.dir()], &["unmounted, but everything since", "is lost", WHY]);
        assert!(begun.elapsed() < Duration::from_secs(20), "it is not tried again");
        assert!(!m.is_mounted() && m.process().is_none());
        m.thaw();
        m.is_as_of_its_last_checkpoint();
        // Without a loss, nothing must be given up.
        done(&["mount", &m.image(), &m.dir()]);
        m.dirty();
        done(&["unmount", "--give-up-unwritten", &m.dir()]);
        m.is_whole();
    }
}

#[test]
fn a_signal_unmounts_and_a_second_one_ends_the_attempts() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind, "retry=1000", &[]);
        m.dirty();
        m.freeze();
        m.signal(rustix::process::Signal::TERM);
        until("the failure is logged", || m.log().contains("the last checkpoint failed"));
        assert!(!m.is_mounted() && m.process().is_some());
        m.signal(rustix::process::Signal::TERM);
        until("the image is released", || m.process().is_none());
        assert!(m.log().lines().last().unwrap().contains("is lost"), "{}", m.log());
    }
}

#[test]
fn a_process_that_was_killed_has_no_last_word_which_is_said() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind, "", &[]);
        m.dirty();
        m.signal(rustix::process::Signal::KILL);
        until("it is gone", || m.process().is_none());
        refused(&["unmount", &m.dir()], &["unmounted, but its process has ended", "as after a power cut", "v.img"]);
        assert!(!m.is_mounted());
        m.holds("before", &bytes(1, 200_000));
    }
}

/// Everything about a tree that a copy preserves.
fn tree(at: &Path) -> Vec<String> {
    let list = format!(
        "cd {} && find . ! -name .ifile -printf '%p %y %m %s %T@ %l %n\\n' | grep -v '^\\. ' | sort",
        at.display()
    );
    let out = Command::new("sh").args(["-c", &list]).output().unwrap();
    assert!(out.status.success());
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter(|line| !line.contains(" d ") || !line.contains("lost+found"))
        .map(size_of_directories)
        .collect()
}

/// A directory's size depends on the file system.
fn size_of_directories(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    if words[1] == "d" {
        (words[3], words[6]) = ("-", "-");
    }
    words.join(" ")
}

#[test]
fn a_copy_of_what_is_not_durable_is_as_the_original_and_goes_nowhere_else() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind, "commit=0", &[]);
        let script = r#"cd "$0" && rm before && mkdir -p a/b && echo one >a/one && ln a/one a/b/two && ln -s ../one a/b/link \
            && chmod 640 a/one && chmod 1777 a/b && touch -d '2020-02-02 02:02:02.123456789' a/one a/b && mkfifo a/pipe \
            && truncate -s 5M a/sparse && printf x | dd of=a/sparse bs=1 seek=3000000 conv=notrunc 2>/dev/null \
            && setfattr -n user.colour -v blue a/one && chown 1234:5678 a/sparse"#;
        assert!(run("sh", &["-c", script, &m.dir()]));
        m.freeze();
        let (out, inside) = (m.room.text("out"), m.path("out").display().to_string());
        refused(&["unmount", &m.dir()], &["not unmounted"]);
        misused(&["ctl", &m.dir(), "save", &inside], &["is inside the mount itself"]);
        misused(&["ctl", &m.dir(), "save", &m.path("a").display().to_string()], &["is inside the mount itself"]);
        misused(&["ctl", &m.dir(), "save"], &["name one directory"]);
        misused(&["ctl", &m.dir(), "save", &m.room.text("host")], &["not empty"]);
        refused(&["ctl", &m.dir(), "save", &m.room.text("no/where")], &["no/where"]);
        refused(&["ctl", &m.room.text("."), "save", &out], &["not a JouleFS mount point"]);
        assert!(!Path::new(&out).exists());
        let said: Value = serde_json::from_str(&done(&["--json", "ctl", &m.dir(), "save", &out])).unwrap();
        assert_eq!(said["saved"]["failed"], serde_json::json!([]), "{said}");
        assert_eq!(tree(&m.room.path("out")), tree(&m.room.path("mnt")));
        assert_eq!(fs::read(m.room.path("out/a/one")).unwrap(), b"one\n");
        let owner = fs::metadata(m.room.path("out/a/sparse")).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (1234, 5678));
        assert!(owner.blocks() * 512 < 1 << 20, "holes stay holes");
        let mut value = [0; 16];
        let n = rustix::fs::getxattr(m.room.path("out/a/one"), "user.colour", &mut value[..]);
        assert!(matches!(n, Ok(4) | Err(rustix::io::Errno::OPNOTSUPP)), "{n:?}");
    }
}

#[test]
fn strangers_are_told_nothing() {
    if !can() {
        return;
    }
    let m = Mount::new("f2fs", "allow_other", &[]);
    let program = m.room.path("joulefs");
    assert!(run("cp", &[env!("CARGO_BIN_EXE_joulefs"), program.to_str().unwrap()]));
    let out = m.room.text("stolen");
    for command in [
        &["ctl", &m.image(), "stat"][..],
        &["ctl", &m.dir(), "retry"],
        &["ctl", &m.dir(), "save", "/tmp/stolen-by-nobody"],
        &["unmount", &m.dir()],
    ] {
        let Output { status, stdout, stderr } =
            Command::new(&program).args(command).uid(65534).gid(65534).output().unwrap();
        let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        assert_eq!(status.code(), Some(1), "{command:?}: {said}");
        assert!(
            said.contains("only root and the user who mounted") || said.contains("not mounted"),
            "{command:?}: {said}"
        );
    }
    assert!(!Path::new(&out).exists() && !Path::new("/tmp/stolen-by-nobody").exists());
    done(&["unmount", &m.dir()]);
}

#[test]
fn the_metrics_and_the_screen_show_a_failed_volume() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let m = Mount::new(kind, "", &["--profile", "kirin9000-ufs31", "--ledger", "/dev/null"]);
        let look = || -> Value {
            serde_json::from_str(&done(&["--json", "top", &m.dir(), "--once", "--delay", "0.1"])).unwrap()
        };
        let ok = look();
        assert!(ok["mounts"][0]["failed"].is_null(), "{ok}");
        m.dirty();
        m.freeze();
        refused(&["unmount", &m.dir()], &["not unmounted"]);
        let failed = look();
        assert!(failed["mounts"][0]["failed"].as_str().unwrap().contains(WHY), "{failed}");
        assert!(done(&["top", &m.dir(), "--once", "--delay", "0.1"]).contains("its last checkpoint failed"));
        let mut top = Command::new(env!("CARGO_BIN_EXE_joulefs"))
            .args(["top", &m.dir(), "--prometheus", "127.0.0.1:0", "--delay", "0.1"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(top.stderr.take().unwrap()), &mut line).unwrap();
        let at = line.trim().split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
        let metrics = || {
            let mut client = std::net::TcpStream::connect(&at).unwrap();
            write!(client, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        };
        until("the metrics are there", || metrics().contains("joulefs_mount_failed{mount="));
        let text = metrics();
        let _ = (top.kill(), top.wait());
        let dir = m.dir();
        assert!(text.contains(&format!("joulefs_mount_failed{{mount=\"{dir}\"}} 1\n")), "{text}");
        assert!(text.contains("joulefs_mount_failure_info{mount=") && text.contains(WHY), "{text}");
        assert!(text.contains("# UNIT joulefs_mount_durable_age_seconds seconds"), "{text}");
        assert!(kind != "f2fs" || text.contains("joulefs_mount_durable_age_seconds{mount="), "{text}");
    }
}

#[test]
fn the_systems_log_hears_of_it() {
    if !can() {
        return;
    }
    let room = Room::new();
    let listener = UnixDatagram::bind(room.path("heard")).unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A private /dev, in which the system log is that socket.
    let script = r#"set -e; cd $1; J=$2; mkdir dev host mnt; truncate -s 192M disk; mkfs.ext4 -q disk; mount -o loop disk host
        mount -t tmpfs dev dev; for f in fuse null zero urandom; do : >dev/$f; mount --bind /dev/$f dev/$f; done
        ln -s $1/heard dev/log; mount --rbind dev /dev
        $J mkfs host/v.img --size 64M >/dev/null; $J mount host/v.img mnt -o retry=1
        echo text >mnt/file; chattr +i host/v.img; umount mnt
        while ! $J ls host/v.img:/ >ls 2>&1; do sleep 0.1; done; chattr -i host/v.img; umount host"#;
    let out = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(room.path("."))
        .arg(env!("CARGO_BIN_EXE_joulefs"))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let mut heard = String::new();
    while !heard.contains("is lost") {
        let mut line = [0; 8192];
        let n = listener.recv(&mut line).unwrap_or_else(|e| panic!("{e}, after: {heard}"));
        heard += &format!("{}\n", String::from_utf8_lossy(&line[..n]));
    }
    // In the format of syslog(3): facility daemon, an error, with the program's name.
    let lines: Vec<&str> =
        heard.lines().filter(|line| line.starts_with("<27>joulefs[") && line.contains(WHY)).collect();
    assert!(lines.iter().any(|line| line.contains("the last checkpoint failed")), "{heard}");
}

#[test]
fn on_a_full_host_what_was_accepted_is_kept_until_there_is_room() {
    if !can() {
        return;
    }
    for kind in KINDS {
        let room = Room::new();
        let (host, dir, source) = (room.text("host"), room.text("mnt"), room.path("source"));
        fs::create_dir(&host).unwrap();
        fs::create_dir(&dir).unwrap();
        fs::write(&source, bytes(4, 8 << 20)).unwrap();
        assert!(run("mount", &["-t", "tmpfs", "-o", "size=40m", "tmpfs", &host]));
        let (image, filler) = (room.text("host/v.img"), room.path("host/filler"));
        done(&["mkfs", &image, "--size", "200M", "--type", kind]);
        done(&["mount", &image, &dir, "-o", &format!("log={}", room.text("log"))]);
        let copy = |name: &str| run("cp", &[source.to_str().unwrap(), &format!("{dir}/{name}")]);
        let mut accepted = vec!["first"];
        assert!(copy("first"));
        let mut full = File::create(&filler).unwrap();
        while full.write_all(&[1; 1 << 16]).is_ok() {}
        drop(full);
        accepted.extend(["second", "third", "fourth"].into_iter().filter(|name| copy(name)));
        let first = joulefs(&["unmount", &dir]);
        if first.code != 0 {
            assert!(
                first.err.contains("not unmounted") && first.err.contains("cannot be made durable"),
                "{}",
                first.err
            );
            fs::remove_file(&filler).unwrap();
            done(&["ctl", &dir, "retry"]);
            done(&["unmount", &dir]);
        }
        for name in &accepted {
            let there = contents(&format!("{image}:/{name}"));
            assert!(there == Some(bytes(4, 8 << 20)), "{kind}: {name} was accepted, and is not there");
        }
        println!("{kind}: accepted {accepted:?}, the first unmount ended with {}", first.code);
        assert!(done(&["fsck", &image]).contains("clean"));
        assert!(run("umount", &[&host]));
    }
}
