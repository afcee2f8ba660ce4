//! Names from images, files and command lines are printed without characters that would move the cursor, set the title,
//! hide a line or change the text direction: for every command, on success and failure, as text and as JSON.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Sets a title and a colour, rings the bell, deletes, changes the direction, and begins a line that looks like an
/// answer.
const NASTY: &str = "n\u{1b}]0;t\u{7}\u{1b}[31m\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\u{200b}\u{2060}\u{feff}\u{2028}\r\u{8}\nSPOOFED: clean";
/// The same in bytes that are not text: an 8-bit CSI.
const BYTES: &[u8] = b"b\x9b31m\xff";

/// Characters that no output may contain.
fn is_hidden(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    let may_be = matches!(c, '\n' | '\t');
    turns || matches!(c, '\u{2028}' | '\u{2029}') || (c.is_control() && !may_be)
}

/// Fails if a text contains hidden characters.
#[track_caller]
fn look(what: &str, text: &[u8]) -> String {
    let text = String::from_utf8(text.to_vec()).unwrap_or_else(|e| panic!("{what}: {e}: {text:?}"));
    assert!(!text.contains(is_hidden), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("SPOOFED")), "{what}: a name ends a line: {text}");
    text
}

/// Runs commands and checks their output.
struct Walk {
    seen: BTreeSet<String>,
    /// How often something nasty was printed escaped, as evidence that the test is effective.
    shown: usize,
}

impl Walk {
    #[track_caller]
    fn ran(&mut self, args: &[&OsStr], code: Option<i32>) -> Output {
        for json in [true, false] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_joulefs"));
            if json {
                command.arg("--json");
            }
            let out = command.args(args).output().unwrap();
            let what = format!("joulefs {args:?} json: {json}");
            let said = [look(&what, &out.stdout), look(&what, &out.stderr)].concat();
            assert!(out.status.code().is_some_and(|code| code != 101), "{what}: {:?} {said}", out.status);
            if !json || code.is_some_and(|code| code != 0) {
                assert!(code.is_none() || out.status.code() == code, "{what}: {:?} {said}", out.status);
            }
            self.shown += usize::from(said.contains("\\x1b") || said.contains("\\u001b"));
            if !json {
                self.seen.insert(args[0].to_str().unwrap().to_owned());
                return out;
            }
        }
        unreachable!()
    }

    /// With any result.
    #[track_caller]
    fn any(&mut self, args: &[&OsStr]) {
        self.ran(args, None);
    }

    #[track_caller]
    fn done(&mut self, args: &[&OsStr]) {
        self.ran(args, Some(0));
    }

    /// Fails with a one-line message.
    #[track_caller]
    fn fails(&mut self, args: &[&OsStr]) {
        let out = self.ran(args, None);
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(!out.status.success(), "{args:?}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    }
}

/// Words of a command line.
macro_rules! words {
    ($($word:expr),* $(,)?) => {
        &[$(AsRef::<OsStr>::as_ref(&$word)),*]
    };
}

/// A place in an image.
fn place(image: &Path, path: impl AsRef<OsStr>) -> OsString {
    let mut out = image.as_os_str().to_owned();
    out.push(":/");
    out.push(path);
    out
}

/// A directory whose own path is nasty, and therefore every message about a file in it.
struct NastyRoom {
    _dir: tempfile::TempDir,
    at: PathBuf,
}

impl NastyRoom {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join(NASTY);
        fs::create_dir(&at).unwrap();
        NastyRoom { _dir: dir, at }
    }
    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.at.join(name)
    }
}

/// A tree with nasty names only.
fn tree(top: &Path) {
    let (name, bytes) = (Path::new(NASTY), Path::new(OsStr::from_bytes(BYTES)));
    fs::create_dir_all(top.join(name).join(bytes)).unwrap();
    fs::write(top.join(name).join("plain"), b"contents").unwrap();
    fs::write(top.join(name).join(NASTY), vec![7; 20_000]).unwrap();
    fs::write(top.join(bytes), vec![8; 20_000]).unwrap();
    symlink(NASTY, top.join("link")).unwrap();
    symlink(NASTY, top.join(name).join("other link")).unwrap();
}

/// The commands that the help lists.
fn commands() -> BTreeSet<String> {
    let out = Command::new(env!("CARGO_BIN_EXE_joulefs")).arg("--help").output().unwrap();
    let help = String::from_utf8(out.stdout).unwrap();
    let lines = help.lines().take_while(|line| *line != "Options:").filter_map(|line| line.strip_prefix("  "));
    let named = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    named.filter_map(|line| line.split_once("  ")).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn no_command_prints_what_a_name_hides() {
    let room = NastyRoom::new();
    let mut walk = Walk { seen: BTreeSet::new(), shown: 0 };
    let nowhere = room.path("nowhere");
    let bytes = OsString::from_vec(BYTES.to_vec());
    tree(&room.path("in"));

    // Volumes of both file systems, with nasty labels and the whole tree.
    let (image, log) = (room.path("v.img"), room.path("log.img"));
    let label = "l\u{1b}[1m\u{9b}\u{202e}\n";
    walk.done(words!["mkfs", image, "--size", "64M", "--label", label, "--force"]);
    walk.done(words!["mkfs", log, "--size", "64M", "--type", "scherlfs", "--label", label, "--force"]);
    walk.fails(words!["mkfs", image, "--size", NASTY]);
    walk.fails(words!["mkfs", image, "--size", "64M", "--label", NASTY.repeat(30)]);
    walk.fails(words!["mkfs", image, "--size", "64M", "--features", NASTY]);
    walk.done(words!["mkfs", room.path("from.img"), "--from", room.path("in"), "--force"]);
    walk.fails(words!["mkfs", room.path("no.img"), "--from", nowhere]);
    for image in [&image, &log] {
        walk.any(words!["cp", "-r", room.path("in"), place(image, "")]);
        walk.done(words!["ls", "-l", "-R", "-a", place(image, "")]);
        walk.done(words!["ls", place(image, "in")]);
        walk.done(words!["tree", place(image, "")]);
        walk.done(words!["du", "-a", place(image, "")]);
        walk.done(words!["stat", place(image, "in/link"), place(image, OsString::from(format!("in/{NASTY}")))]);
        walk.done(words!["df", image]);
        walk.done(words!["info", image]);
        walk.done(words!["fsck", image]);
        walk.any(words!["inspect", image]);
        let page = room.path("page.html");
        walk.any(words!["inspect", "--html", page, image]);
        look("the page of inspect", &fs::read(&page).unwrap());
        walk.any(words!["clean", image, "--dry-run"]);
        walk.any(words!["clean", image, "--worst", "3"]);
        walk.any(words!["undo", image, "--list"]);
        walk.any(words!["undo", place(image, NASTY)]);
        walk.any(words!["settle", image]);
        walk.any(words!["unsettle", image]);
        let odd = place(image, OsString::from(format!("no/{NASTY}")));
        for command in ["ls", "tree", "cat", "stat", "du", "rm", "mkdir"] {
            walk.fails(words![command, odd]);
        }
        walk.fails(words!["cat", place(image, OsString::from(format!("in/{NASTY}")))]);
        walk.fails(words!["cp", odd, room.path("out")]);
        walk.fails(words!["cp", place(image, OsString::from(format!("in/{NASTY}"))), room.path("out")]);
        walk.fails(words!["mv", odd, place(image, &bytes)]);
        walk.fails(words!["rm", place(image, OsString::from(format!("in/{NASTY}")))]);
        walk.any(words!["mkdir", place(image, OsString::from(format!("new{NASTY}")))].as_slice());
        walk.any(words!["mv", place(image, OsString::from(format!("new{NASTY}"))), place(image, &bytes)]);
    }
    walk.done(words!["cp", "-r", place(&image, "in"), room.path("out")]);
    walk.any(words!["rescue", image, room.path("rescued")]);
    walk.any(words!["rescue", "--list", image, room.path("listed")]);
    walk.fails(words!["cp", room.path("in"), room.path("nowhere")]);

    // The same on damaged images, so that findings contain names.
    for (name, from) in [("bad.img", &image), ("badlog.img", &log)] {
        let bad = room.path(name);
        damage(from, &bad);
        walk.any(words!["fsck", bad]);
        for args in [words!["ls", "-l", "-R", place(&bad, "")] as &[&OsStr], words!["du", "-a", place(&bad, "")]] {
            walk.any(args);
        }
        walk.any(words!["tree", place(&bad, "")]);
        walk.any(words!["inspect", bad]);
        walk.any(words!["cp", "-r", place(&bad, ""), room.path(format!("out {name}"))]);
        walk.any(words!["rescue", bad, room.path(format!("rescued {name}"))]);
        walk.any(words!["fsck", "--repair", bad]);
    }

    // Files of other formats.
    let text =
        format!("1 0 open /data/{} O_RDWR|O_CREAT 30\n1 10 pwrite 30 0 4096\n", NASTY.replace(['\n', '\r', '/'], ""));
    fs::write(room.path("calls"), text).unwrap();
    fs::write(room.path("noise"), NASTY).unwrap();
    for file in ["calls", "noise", "nowhere"] {
        let file = room.path(file);
        walk.any(words!["trace", "stat", file]);
        walk.any(words!["trace", "replay", file, "--profile", "microdrive"]);
        walk.any(words!["trace", "replay", file, "--profile", "microdrive", "--by-file", "5"]);
        walk.any(words!["trace", "convert", file, "--to", "joulefs", "-o", room.path("converted")]);
        walk.any(words!["replay", file, "--profile", "microdrive"]);
        walk.any(words!["energy", file]);
        walk.any(words!["energy", "fit", file]);
        walk.any(words!["energy", "diff", file]);
        walk.any(words!["top", "--from", file, "--once"]);
    }
    walk.fails(words!["energy", "show", NASTY]);
    walk.fails(words!["replay", room.path("calls"), "--profile", NASTY]);
    walk.fails(words!["age", "--recipe", NASTY, "--size", "64M", room.path("aged.img")]);
    walk.fails(words!["top", nowhere]);
    walk.fails(words!["device", nowhere, "--size", "64M"]);
    walk.fails(words!["mount", image, nowhere]);
    walk.fails(words!["mount", nowhere, room.path("in")]);
    walk.fails(words!["mount", image, room.path("in"), "-o", NASTY]);
    walk.fails(words!["unmount", room.path("in")]);
    walk.fails(words!["ctl", room.path("in")]);
    // Arguments that no command accepts.
    for command in commands() {
        walk.fails(words![command, "--nothing", NASTY]);
        walk.fails(words![command, format!("--{NASTY}")]);
    }
    for word in [NASTY.into(), bytes] {
        let out = Command::new(env!("CARGO_BIN_EXE_joulefs")).arg(&word).output().unwrap();
        look("a word alone", &out.stdout);
        look("a word alone", &out.stderr);
    }
    assert_eq!(commands().difference(&walk.seen).collect::<Vec<_>>(), Vec::<&String>::new(), "not asked");
    assert!(commands().len() > 20 && walk.shown > 100, "{} commands, {} times", commands().len(), walk.shown);
}

/// A copy of an image with many damaged blocks, and names that lead nowhere.
fn damage(image: &Path, to: &Path) {
    let mut bytes = fs::read(image).unwrap();
    let marked = [b"plain", b"other"].map(|name| &name[..]);
    for block in bytes.as_chunks_mut::<{ format::BLOCK }>().0 {
        let f = format::node::footer(block);
        let is_inode = f.nid == f.ino.nid() && f.nid.0 > 5 && f.nid.0 < 200;
        if is_inode && !marked.contains(&format::inode::RawInode::of(block).name()) && f.nid.0.is_multiple_of(2) {
            block[24..80].fill(0xa5);
        }
    }
    // For the other file system: random changes in some blocks of the log.
    let blocks = bytes.len() / format::BLOCK;
    if !bytes.windows(4).take(8192).any(|w| w == 0xF2F5_2010_u32.to_le_bytes()) {
        for block in (600..blocks).step_by(3) {
            bytes[block * format::BLOCK + 40] ^= 0xff;
        }
    }
    fs::write(to, bytes).unwrap();
}

#[test]
fn a_mounts_ledger_and_what_asks_it_hide_nothing() {
    if !Path::new("/dev/fuse").exists() {
        return testlog::missing("/dev/fuse");
    }
    let room = NastyRoom::new();
    let mut walk = Walk { seen: BTreeSet::new(), shown: 0 };
    let (image, dir) = (room.path("v.img"), room.path("m"));
    fs::create_dir(&dir).unwrap();
    walk.done(words!["mkfs", image, "--size", "64M", "--force"]);
    for ledger in ["ledger.txt", "ledger.json"] {
        let ledger = room.path(ledger);
        // A mount exists only once: it is tested only as text.
        let args = words!["mount", image, dir, "--profile", "kirin9000-ufs31", "--by-file", "20", "--ledger", ledger];
        let mounted = Command::new(env!("CARGO_BIN_EXE_joulefs")).args(args as &[&OsStr]).output().unwrap();
        assert!(mounted.status.success(), "{:?}", String::from_utf8_lossy(&mounted.stderr));
        look("mount", &mounted.stderr);
        fs::write(dir.join(NASTY), vec![1; 100_000]).unwrap();
        fs::File::open(dir.join(NASTY)).unwrap().sync_all().unwrap();
        fs::write(dir.join(OsStr::from_bytes(BYTES)), vec![1; 100_000]).unwrap();
        walk.any(words!["ctl", dir]);
        walk.any(words!["ctl", dir, NASTY]);
        walk.any(words!["df", dir]);
        walk.any(words!["top", dir, "--once"]);
        walk.any(words!["clean", dir, "--dry-run"]);
        walk.any(words!["inspect", dir]);
        let unmounted = Command::new(env!("CARGO_BIN_EXE_joulefs")).arg("unmount").arg(&dir).output().unwrap();
        assert!(unmounted.status.success(), "{:?}", String::from_utf8_lossy(&unmounted.stderr));
        let text = look("ledger", &fs::read(&ledger).unwrap());
        assert!(text.contains("\\x1b") || text.contains("\\u001b"), "the file is not on the ledger: {text}");
    }
    assert!(walk.shown > 0);
}
