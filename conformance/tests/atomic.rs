//! Atomic writes through a mount: the `ioctl`s of Linux's F2FS, used by programs with a descriptor of their own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use f2fs::mkfs::Options;
use judges::oracle::tools::locate;

use crate::rig::*;

const EBADF: i64 = 9;
const EBUSY: i64 = 16;
const EINVAL: i64 = 22;
const EFBIG: i64 = 27;

/// A process with an open file that follows commands.
struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Program {
    fn new(file: &Path, how: &str) -> Self {
        let mut command = Command::new(locate("perl", "perl"));
        command.args(["-e", include_str!("atomic.pl")]).arg(file).arg(how);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("perl runs");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Program { child, to, from: BufReader::new(from) }
    }

    fn does(&mut self, what: &str) -> i64 {
        writeln!(self.to, "{what}").expect("it listens");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        line.trim().parse().unwrap_or_else(|_| panic!("{what}: {line:?}"))
    }

    fn all_succeed(&mut self, steps: &[&str]) {
        for step in steps {
            assert_eq!(self.does(step), 0, "{step}");
        }
    }

    /// Ends without a further step.
    fn closes(self) {
        let Program { mut child, to, from } = self;
        drop((to, from));
        assert!(child.wait().expect("it ends").success());
    }

    fn is_killed(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("it ends");
    }
}

/// The file, as soon as it is as expected: the kernel passes the end of a program on without waiting.
#[track_caller]
fn soon(path: &Path, expected: &[u8]) {
    for _ in 0..1000 {
        if fs::read(path).expect("read") == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{:?}", fs::read(path).map(|b| (b.len(), b[0])));
}

fn with_file() -> (OnFuse, std::path::PathBuf) {
    let mount = OnFuse::new(64, &Options::modern());
    let path = mount.path("f");
    fs::write(&path, [b'a'; 8192]).expect("written");
    (mount, path)
}

#[test]
fn a_program_writes_several_pages_at_once_and_others_are_busy() {
    let (mount, path) = with_file();
    let (mut one, mut other, mut reader) =
        (Program::new(&path, "w"), Program::new(&path, "w"), Program::new(&path, "r"));
    assert_eq!(reader.does("features") & 4, 4, "atomic writes are announced");
    // Written before the start: an abort does not undo it.
    one.all_succeed(&["write 0 100 98", "start", "write 50 5000 99", "write 9000 10 100"]);
    assert_eq!([reader.does("start"), reader.does("commit")], [EBADF; 2]);
    assert_eq!([other.does("start"), other.does("commit"), other.does("abort")], [EBUSY; 3]);
    one.all_succeed(&["commit", "fdatasync"]);
    let mut new = [vec![b'a'; 8192], vec![0; 808], vec![100; 10]].concat();
    new[..100].fill(98);
    new[50..5050].fill(99);
    assert!(fs::read(&path).expect("read") == new);
    other.all_succeed(&["start", "write 0 3 101", "commit"]);
    new[..3].fill(101);
    for program in [one, other, reader] {
        program.closes();
    }
    let mount = again(mount);
    assert!(fs::read(mount.path("f")).expect("read") == new);
    mount.end();
}

#[test]
fn an_abort_a_close_and_the_end_of_a_killed_program_restore_the_file() {
    let (mount, path) = with_file();
    let old = [b'a'; 8192];
    let begins = || {
        let mut program = Program::new(&path, "w");
        program.all_succeed(&["start", "write 1 6000 98"]);
        program
    };
    let mut aborts = begins();
    assert!(fs::read(&path).expect("read")[1] == b'b', "as in Linux, all descriptors show the set");
    aborts.all_succeed(&["abort"]);
    assert!(fs::read(&path).expect("read") == old);
    aborts.all_succeed(&["start", "write 4096 10 99", "commit"]);
    let mut old = old;
    old[4096..4106].fill(99);
    assert!(fs::read(&path).expect("read") == old);
    aborts.closes();
    begins().closes();
    soon(&path, &old);
    begins().is_killed();
    soon(&path, &old);
    // And growth, whose size the kernel forgets with the file.
    let mut grows = Program::new(&path, "w");
    grows.all_succeed(&["start", "write 8000 20000 98"]);
    assert_eq!(grows.does("size"), 28_000);
    grows.is_killed();
    let mount = again(mount);
    assert!(fs::read(mount.path("f")).expect("read") == old);
    mount.end();
}

#[test]
fn a_set_larger_than_memory_fails_at_its_commit_and_a_directory_has_none() {
    let (mount, path) = with_file();
    let mut program = Program::new(&path, "w");
    // A quarter of the dirty contents allowed on this volume.
    program.all_succeed(&["start", "write 0 4000000 98"]);
    assert_eq!(program.does("commit"), EFBIG);
    program.all_succeed(&["write 0 10 99", "fdatasync"]);
    let found = fs::read(&path).expect("read");
    assert!(found[..10] == [99; 10] && found[10..8192] == [b'a'; 8182]);
    program.closes();
    let dir = mount.path("d");
    fs::create_dir(&dir).expect("made");
    assert!([EBADF, EINVAL].contains(&Program::new(&dir, "r").does("start")));
    mount.end();
}
