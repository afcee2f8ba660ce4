//! Do contents and times stay correct where both the kernel and the file system keep them?

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::{Mount, mount, options};

fn both(test: impl Fn(&Mount)) {
    for writeback in [true, false] {
        let Some(m) = mount(64 << 20, &options(writeback)) else { return };
        test(&m);
        m.end();
    }
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn a_file_written_after_another_was_made_never_looks_older() {
    both(|m| {
        let (written, made) = (m.path("written"), m.path("made"));
        let mut wrong = 0;
        for _ in 0..2000 {
            File::create(&written).unwrap();
            File::create(&made).unwrap();
            OpenOptions::new().append(true).open(&written).unwrap().write_all(b"x").unwrap();
            wrong += u32::from(modified(&written) < modified(&made));
            fs::remove_file(&written).unwrap();
            fs::remove_file(&made).unwrap();
        }
        assert_eq!(wrong, 0, "of 2000");
    });
}

#[test]
fn a_file_made_after_another_was_written_looks_older_by_less_than_a_tick() {
    /// At 100 Hz, the slowest kernel setting.
    const TICK: Duration = Duration::from_millis(10);
    both(|m| {
        let (written, made) = (m.path("written"), m.path("made"));
        let mut wrong = 0;
        for _ in 0..2000 {
            fs::write(&written, "x").unwrap();
            File::create(&made).unwrap();
            wrong += u32::from(modified(&made) + TICK < modified(&written));
            fs::remove_file(&written).unwrap();
            fs::remove_file(&made).unwrap();
        }
        assert_eq!(wrong, 0, "of 2000");
    });
}

/// Drops the kernel's cached pages of a file. It is opened for writing, since opening it to read would be noted as its
/// first reading after the change.
fn forget_pages(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn the_first_reading_after_a_change_is_noted_and_the_next_is_not() {
    both(|m| {
        let path = m.path("file");
        fs::write(&path, "text").unwrap();
        symlink("file", m.path("link")).unwrap();
        fs::create_dir(m.path("dir")).unwrap();
        forget_pages(&path);
        let before = ["file", "link", "dir"].map(|name| fs::symlink_metadata(m.path(name)).unwrap());
        let read = || {
            std::thread::sleep(Duration::from_millis(50));
            forget_pages(&path);
            fs::read(&path).unwrap();
            fs::read_link(m.path("link")).unwrap();
            fs::read_dir(m.path("dir")).unwrap().count();
            ["file", "link", "dir"].map(|name| fs::symlink_metadata(m.path(name)).unwrap())
        };
        let after = read();
        for (before, after) in before.iter().zip(&after) {
            assert!(after.accessed().unwrap() > before.accessed().unwrap(), "{before:?} {after:?}");
            assert_eq!(after.modified().unwrap(), before.modified().unwrap());
            assert_eq!((after.ctime(), after.ctime_nsec()), (before.ctime(), before.ctime_nsec()));
        }
        for (first, second) in after.iter().zip(&read()) {
            assert_eq!(second.accessed().unwrap(), first.accessed().unwrap());
        }
    });
}

#[test]
fn reads_from_the_kernels_cache_count_as_of_the_open() {
    both(|m| {
        let path = m.path("file");
        let accessed = || fs::metadata(&path).unwrap().accessed().unwrap();
        let read = |flags: rustix::fs::OFlags| {
            std::thread::sleep(Duration::from_millis(50));
            let mut file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&path).unwrap();
            file.read_to_end(&mut Vec::new()).unwrap();
        };
        // The kernel caches written data.
        fs::write(&path, "text").unwrap();
        let written = accessed();
        read(rustix::fs::OFlags::NOATIME);
        assert_eq!(accessed(), written);
        read(rustix::fs::OFlags::empty());
        let first = accessed();
        assert!(first > written);
        read(rustix::fs::OFlags::empty());
        assert_eq!(accessed(), first);
    });
}

#[test]
fn noatime_keeps_access_times_still() {
    for writeback in [true, false] {
        let mut options = options(writeback);
        options.noatime = true;
        let Some(m) = mount(1 << 20, &options) else { return };
        let path = m.path("file");
        fs::write(&path, "text").unwrap();
        forget_pages(&path);
        let before = fs::metadata(&path).unwrap().accessed().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        fs::read(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().accessed().unwrap(), before);
        m.end();
    }
}

#[test]
fn asynchronous_direct_writes_are_read_back_through_the_cache() {
    const SIZE: usize = 1 << 20;
    both(|m| {
        let path = m.path("file");
        fs::write(&path, vec![0; SIZE]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        // Reads meanwhile are answered before the running write.
        m.fs.slow_writes(Duration::from_millis(5));
        for round in 1..=2_u8 {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let file = File::open(&path).unwrap();
                    let mut block = vec![0; 64 << 10];
                    while !done.load(Ordering::Relaxed) {
                        for at in (0..SIZE).step_by(block.len()) {
                            file.read_exact_at(&mut block, at as u64).unwrap();
                        }
                    }
                });
                let out = Command::new("fio")
                    .args(["--name=w", "--ioengine=libaio", "--direct=1", "--rw=write", "--bs=16k", "--iodepth=16"])
                    .args(["--overwrite=1", &format!("--size={SIZE}"), &format!("--buffer_pattern=0x{round:02x}")])
                    .arg(format!("--filename={}", path.display()))
                    .output();
                done.store(true, Ordering::Relaxed);
                let out = out.expect("fio runs (package fio)");
                assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            });
            let found = fs::read(&path).unwrap();
            let stale = found.iter().filter(|&&byte| byte != round).count();
            assert_eq!(stale, 0, "bytes of round {round} that the cache does not show");
        }
    });
}
