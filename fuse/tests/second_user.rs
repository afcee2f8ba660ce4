//! What may a user do who is neither the owner nor root?

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Mount, mount, options};

/// A user without rights.
const OTHER: u32 = 1000;
/// A program that prints its user.
const ID: &str = "/usr/bin/id";

/// Runs `test` on a mount open to all users, with and without the writeback cache.
fn both(test: impl Fn(&Mount)) {
    if !rustix::process::geteuid().is_root() {
        return testlog::missing("root, to become another user");
    }
    for writeback in [true, false] {
        let Some(m) = mount(16 << 20, &options(writeback)) else { return };
        test(&m);
        m.end();
    }
}

fn as_other(program: &Path, args: &[&str]) -> Output {
    let id = OTHER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program).args(args);
    command.output().expect("setpriv runs (package util-linux)")
}

fn must(out: &Output) {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// A file owned by root that all users may write and execute, with these bits.
fn program(m: &Mount, mode: u32) -> std::path::PathBuf {
    let path = m.path("program");
    fs::write(&path, fs::read(ID).unwrap()).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    // The kernel now has the mode in its cache.
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
    path
}

fn effective(path: &Path, what: &str) -> String {
    // A child forked by another test keeps this one's open files for a moment, and a program that is open for writing
    // cannot be run.
    let busy = |out: &Output| String::from_utf8_lossy(&out.stderr).contains("Text file busy");
    let mut out = as_other(path, &[what]);
    for _ in 0..200 {
        if !busy(&out) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        out = as_other(path, &[what]);
    }
    must(&out);
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_program_overwritten_by_another_user_no_longer_runs_as_its_owner() {
    both(|m| {
        for direct in [false, true] {
            let path = program(m, 0o6777);
            assert_eq!((effective(&path, "-u"), effective(&path, "-g")), ("0".to_owned(), "0".to_owned()));
            let of = format!("of={}", path.display());
            let flags = if direct { "oflag=direct" } else { "oflag=nonblock" };
            let input = format!("if={ID}");
            must(&as_other(Path::new("dd"), &[&input, &of, flags, "conv=notrunc", "bs=4096", "count=1"]));
            // The attributes are not read in between: execution must not rely on the cached mode.
            assert_eq!(effective(&path, "-u"), OTHER.to_string(), "direct: {direct}");
            assert_eq!(effective(&path, "-g"), OTHER.to_string(), "direct: {direct}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
            fs::remove_file(&path).unwrap();
        }
    });
}

#[test]
fn a_program_truncated_or_allocated_by_another_user_no_longer_runs_as_its_owner() {
    both(|m| {
        let allocate = ["", "-n", "-p", "-z"].map(|how| ("fallocate", vec![how, "-o", "16777216", "-l", "4096"]));
        let truncate = ("truncate", vec!["-s", "+1"]);
        for (tool, args) in allocate.into_iter().chain([truncate]) {
            let path = program(m, 0o6777);
            let args: Vec<&str> = args.into_iter().filter(|a| !a.is_empty()).chain(path.to_str()).collect();
            must(&as_other(Path::new(tool), &args));
            assert_eq!(effective(&path, "-u"), OTHER.to_string(), "{tool} {args:?}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{tool} {args:?}");
            fs::remove_file(&path).unwrap();
        }
    });
}

#[test]
fn files_written_and_allocated_by_root_keep_their_bits() {
    both(|m| {
        let path = program(m, 0o6755);
        let file = fs::File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &fs::read(ID).unwrap()[..4096], 0).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 1 << 20, 4096).unwrap();
        drop(file);
        assert_eq!(effective(&path, "-u"), "0");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6755);
    });
}
