//! Does a background mount report its state to its parent correctly?
//!
//! The background process is this test program, run again with a single test that serves.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use joulefs_fuse::daemon::{DaemonError, ready, start};
use joulefs_fuse::run_until_unmounted;
use joulefs_fuse::unmount::{Ending, mounted_at, unmount};
use judges::memfs::MemFs;

use crate::support::{can_mount, options};

const DIR: &str = "JOULEFS_TEST_SERVE_ON";

/// Not a test by itself: serves the parent's directory.
#[test]
fn serve_for_the_other_tests() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let fs = Arc::new(MemFs::new(1 << 20));
    let served = run_until_unmounted(fs, Path::new(&dir), &options(true), || ready().unwrap());
    if let Err(error) = served {
        eprintln!("{error}");
        std::process::exit(7);
    }
}

fn serving(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "serve_for_the_other_tests", "--nocapture"]).env(DIR, dir);
    command
}

#[test]
fn the_parent_returns_when_the_mount_can_be_used_and_the_child_lives_on() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let id = start(serving(dir.path()), |_| ()).unwrap();
    assert!(mounted_at(&dir.path().canonicalize().unwrap()).unwrap().is_some());
    fs::write(dir.path().join("file"), "text").unwrap();
    let process = Path::new("/proc").join(id.to_string());
    // It has left our directory and terminal, and has none of our files open.
    assert_eq!(fs::read_link(process.join("cwd")).unwrap(), Path::new("/"));
    for stream in ["0", "1", "2"] {
        let target = fs::read_link(process.join("fd").join(stream)).unwrap();
        assert_eq!(target, Path::new("/dev/null"));
    }
    unmount(dir.path(), "fuse.memfs", Ending::within(Duration::ZERO), |_| ()).unwrap();
    // It is still our child, so it becomes a zombie when it ends.
    let ended = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        fs::read_to_string(process.join("stat")).is_ok_and(|stat| stat.contains(") Z "))
    });
    assert!(ended, "process {id} lives on");
}

#[test]
fn a_mount_that_fails_in_the_background_fails_in_the_foreground() {
    let error = start(serving(Path::new("/no/such/place")), |_| ()).unwrap_err();
    let DaemonError::Failed { status, text } = error else { panic!("{error}") };
    assert_eq!(status.code(), Some(7));
    assert_eq!(text, "/no/such/place: no such directory to mount on; make it first (mkdir /no/such/place)");
}
