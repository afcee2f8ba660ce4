//! Does a mount begin and end as it should?

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use joulefs_fuse::MountError;
use joulefs_fuse::unmount::{Ending, UnmountError, mounted_at, unmount};
use judges::memfs::MemFs;
use rustix::process::{Signal, getpid, kill_process};

use crate::support::{can_mount, mount, mount_any, options};

/// Signals reach every listening mount of this process, so tests that send signals run one at a time.
static SIGNALS: Mutex<()> = Mutex::new(());

#[test]
fn the_kernel_lists_source_and_type_while_it_is_mounted() {
    let mut options = options(true);
    options.fsname = "/some where,odd\\named".to_owned();
    let Some(m) = mount(1 << 20, &options) else {
        return;
    };
    let dir = m.dir.path().canonicalize().unwrap();
    let listed = mounted_at(&dir).unwrap().unwrap();
    assert_eq!(listed.kind, "fuse.memfs");
    assert_eq!(listed.source, Path::new("/some where,odd\\named"));
    m.end();
    assert_eq!(mounted_at(&dir).unwrap(), None);
}

#[test]
fn fusermount_ends_the_mount_and_unmounts_the_file_system() {
    let Some(m) = mount(1 << 20, &options(true)) else {
        return;
    };
    fs::write(m.path("a"), "text").unwrap();
    let status = Command::new("fusermount3").arg("-u").arg(m.dir.path()).status();
    let Ok(status) = status else {
        return testlog::missing("fusermount3: apt-get install fuse3");
    };
    assert!(status.success());
    m.mounted.wait().unwrap();
    assert!(m.fs.ended());
}

#[test]
fn a_signal_ends_the_mount() {
    let _turn = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let Some(mut m) = mount(1 << 20, &options(true)) else {
            return;
        };
        m.mounted.unmount_on_signals().unwrap();
        kill_process(getpid(), signal).unwrap();
        m.mounted.wait().unwrap();
        assert!(m.fs.ended());
        assert_eq!(mounted_at(&m.dir.path().canonicalize().unwrap()).unwrap(), None);
    }
}

#[test]
fn a_mount_in_use_survives_an_unmount_and_yields_to_two_signals() {
    let _turn = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut m) = mount(1 << 20, &options(true)) else {
        return;
    };
    m.mounted.unmount_on_signals().unwrap();
    let open = File::create(m.path("open")).unwrap();
    assert_eq!(m.mounted.unmount().unwrap_err().raw_os_error(), Some(libc::EBUSY));
    let error = unmount(m.dir.path(), "fuse.memfs", Ending::within(Duration::ZERO), |_| ()).unwrap_err();
    assert!(matches!(error, UnmountError::Busy { .. }), "{error}");
    kill_process(getpid(), Signal::TERM).unwrap();
    // When the name is gone, the first signal has been handled.
    let dir = m.dir.path().canonicalize().unwrap();
    let waiter = std::thread::spawn(move || m.mounted.wait());
    while mounted_at(&dir).unwrap().is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!m.fs.ended());
    kill_process(getpid(), Signal::TERM).unwrap();
    waiter.join().unwrap().unwrap();
    assert!(m.fs.ended());
    drop(open);
}

#[test]
fn users_who_leave_after_a_signal_let_the_mount_end_by_itself() {
    let _turn = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut m) = mount(1 << 20, &options(true)) else {
        return;
    };
    m.mounted.unmount_on_signals().unwrap();
    let open = File::create(m.path("open")).unwrap();
    kill_process(getpid(), Signal::TERM).unwrap();
    let dir = m.dir.path().canonicalize().unwrap();
    let waiter = std::thread::spawn(move || m.mounted.wait());
    while mounted_at(&dir).unwrap().is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::io::Write::write_all(&mut &open, b"still works").unwrap();
    drop(open);
    waiter.join().unwrap().unwrap();
    assert!(m.fs.ended());
}

/// The kernel may be delivering the release of a file while it closes the connection.
#[test]
fn releases_under_way_at_the_end_are_no_failure() {
    let _turn = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..50 {
        let Some(mut m) = mount(1 << 20, &options(true)) else {
            return;
        };
        m.mounted.unmount_on_signals().unwrap();
        let open: Vec<File> = (0..8).map(|n| File::create(m.path(&n.to_string())).unwrap()).collect();
        kill_process(getpid(), Signal::TERM).unwrap();
        let dir = m.dir.path().canonicalize().unwrap();
        let waiter = std::thread::spawn(move || m.mounted.wait());
        while mounted_at(&dir).unwrap().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let closing: Vec<_> = open.into_iter().map(|file| std::thread::spawn(move || drop(file))).collect();
        for thread in closing {
            thread.join().unwrap();
        }
        waiter.join().unwrap().unwrap();
        assert!(m.fs.ended());
    }
}

#[test]
fn dropping_a_mount_unmounts_it() {
    let Some(m) = mount(1 << 20, &options(true)) else {
        return;
    };
    drop(m.mounted);
    assert!(m.fs.ended());
    assert_eq!(fs::read_dir(m.dir.path()).unwrap().count(), 0);
}

#[test]
fn unmounting_waits_until_the_image_is_released() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    let lock = image.reopen().unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut options = options(true);
    options.fsname = image.path().to_str().unwrap().to_owned();
    let fs = Arc::new(MemFs::new(1 << 20));
    let mounted = mount_any(fs.clone(), dir.path(), &options);
    let server = std::thread::spawn(move || {
        mounted.wait().unwrap();
        // Simulates the last checkpoint of a slow device.
        std::thread::sleep(Duration::from_millis(100));
        drop(lock);
    });
    unmount(dir.path(), "fuse.memfs", Ending::within(Duration::from_secs(30)), |_| ()).unwrap();
    assert!(fs.ended());
    let free = rustix::fs::flock(image.as_file(), rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert_eq!(free, Ok(()));
    server.join().unwrap();
}

#[test]
fn unmounting_a_directory_without_a_mount_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = unmount(dir.path(), "fuse.memfs", Ending::within(Duration::ZERO), |_| ()).unwrap_err();
    assert!(matches!(error, UnmountError::NotMounted { .. }), "{error}");
    let error = unmount(Path::new("/proc"), "fuse.memfs", Ending::within(Duration::ZERO), |_| ()).unwrap_err();
    assert!(matches!(error, UnmountError::NotMounted { .. }), "{error}");
}

#[test]
fn background_work_gets_its_turns() {
    let Some(m) = mount(1 << 20, &options(true)) else {
        return;
    };
    std::thread::sleep(Duration::from_millis(2500));
    let ticks = m.fs.ticks();
    assert!((1..=3).contains(&ticks), "{ticks} turns in 2.5 s");
    m.end();
}

#[test]
fn a_bad_place_to_mount_on_is_named() {
    let fs = Arc::new(MemFs::new(1 << 20));
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = options(true);
    let error = joulefs_fuse::mount(fs.clone(), file.path(), &options).err().unwrap();
    assert!(matches!(error, MountError::NotADirectory { .. }), "{error}");
    let error = joulefs_fuse::mount(fs, Path::new("/no/such/place"), &options).err().unwrap();
    assert_eq!(
        error.to_string(),
        "/no/such/place: no such directory to mount on; make it first (mkdir /no/such/place)"
    );
}

#[test]
fn a_read_only_mount_refuses_writing() {
    let mut options = options(true);
    options.read_only = true;
    let Some(m) = mount(1 << 20, &options) else {
        return;
    };
    let error = File::create(m.path("a")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    m.end();
}

#[test]
fn unmounting_a_second_place_of_a_mount_does_not_wait_for_the_first() {
    let Some(m) = mount(1 << 20, &options(true)) else {
        return;
    };
    let second = tempfile::tempdir().unwrap();
    match rustix::mount::mount_bind(m.dir.path(), second.path()) {
        Err(rustix::io::Errno::PERM) => return testlog::missing("root, to mount a directory in a second place"),
        done => done.unwrap(),
    }
    let open = File::create(m.path("open")).unwrap();
    let done = unmount(second.path(), "fuse.memfs", Ending::within(Duration::ZERO), |_| ()).unwrap();
    assert_eq!(done.elsewhere, Some(m.dir.path().canonicalize().unwrap()));
    assert!(!m.fs.ended());
    drop(open);
    m.end();
}

#[test]
fn a_mount_that_is_briefly_busy_can_be_unmounted() {
    for _ in 0..20 {
        let Some(m) = mount(1 << 20, &options(true)) else {
            return;
        };
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = rustix::fs::statvfs(m.dir.path());
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            std::thread::sleep(Duration::from_millis(2));
            let ended = unmount(m.dir.path(), "fuse.memfs", Ending::within(Duration::ZERO), |_| ());
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            ended.unwrap();
        });
        m.mounted.wait().unwrap();
    }
}
