//! Do a program's operations on a mount reach the file system correctly?

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, RenameFlags, XattrFlags};
use rustix::io::Errno;
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode};

use crate::support::{Mount, mount, options};

/// Runs `test` on a mount with and on one without the kernel's writeback cache.
fn both(test: impl Fn(&Mount)) {
    for writeback in [true, false] {
        let Some(m) = mount(64 << 20, &options(writeback)) else {
            return;
        };
        test(&m);
        m.end();
    }
}

fn number(result: std::io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

#[test]
fn data_is_read_back_at_every_size_and_offset() {
    both(|m| {
        let pattern: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
        for size in [0, 1, 4095, 4096, 4097, 1 << 20, 3_000_000] {
            let path = m.path("file");
            fs::write(&path, &pattern[..size]).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), size as u64);
            assert!(fs::read(&path).unwrap() == pattern[..size], "{size} bytes");
        }
        let file = OpenOptions::new().read(true).write(true).open(m.path("file")).unwrap();
        file.write_all_at(b"xyz", 1_048_575).unwrap();
        file.sync_all().unwrap();
        let mut back = [0; 5];
        file.read_exact_at(&mut back, 1_048_574).unwrap();
        assert_eq!(back[1..4], *b"xyz");
        assert_eq!(back[0], pattern[1_048_574]);
        assert_eq!(back[4], pattern[1_048_578]);
    });
}

#[test]
fn truncating_at_open_and_later_cuts_and_extends_with_zeroes() {
    both(|m| {
        let path = m.path("file");
        fs::write(&path, [7; 10_000]).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(100).unwrap();
        file.set_len(200).unwrap();
        let mut expected = vec![7; 100];
        expected.resize(200, 0);
        assert_eq!(fs::read(&path).unwrap(), expected);
        File::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    });
}

#[test]
fn a_directory_of_a_thousand_lists_each_name_once_with_its_kind() {
    both(|m| {
        let mut expected = BTreeMap::new();
        for i in 0..1000 {
            let name = format!("{i}-{}", "n".repeat(i % 200));
            match i % 3 {
                0 => drop(File::create(m.path(&name)).unwrap()),
                1 => fs::create_dir(m.path(&name)).unwrap(),
                _ => symlink("target", m.path(&name)).unwrap(),
            }
            expected.insert(name, i % 3);
        }
        let mut listed = BTreeMap::new();
        for entry in fs::read_dir(m.dir.path()).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            let kind = if kind.is_file() {
                0
            } else if kind.is_dir() {
                1
            } else {
                2
            };
            let name = entry.file_name().into_string().unwrap();
            assert_eq!(entry.metadata().unwrap().ino(), std::os::unix::fs::DirEntryExt::ino(&entry));
            assert_eq!(listed.insert(name, kind), None);
        }
        assert_eq!(listed, expected);
        // While the directory is being emptied, each name is still listed once.
        for entry in fs::read_dir(m.dir.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
        }
        assert_eq!(fs::read_dir(m.dir.path()).unwrap().count(), 0);
    });
}

#[test]
fn an_unlinked_file_lives_until_its_last_handle_is_closed() {
    both(|m| {
        let free = m.fs.statfs().unwrap().blocks_free;
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("gone")).unwrap();
        file.write_all(&[5; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        fs::remove_file(m.path("gone")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all(&[6; 10]).unwrap();
        let mut back = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut back).unwrap();
        assert!(back[..1 << 20].iter().all(|&b| b == 5));
        assert_eq!(back[1 << 20..], [6; 10]);
        assert!(m.fs.statfs().unwrap().blocks_free < free);
        drop(file);
        // The kernel sends its forget later.
        for _ in 0..2000 {
            if m.fs.statfs().unwrap().blocks_free == free {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the space of a removed file was not given back");
    });
}

#[test]
fn links_and_renames_are_seen_at_once_through_every_name() {
    both(|m| {
        fs::write(m.path("a"), "a").unwrap();
        assert_eq!(fs::metadata(m.path("a")).unwrap().nlink(), 1);
        fs::hard_link(m.path("a"), m.path("b")).unwrap();
        assert_eq!(fs::metadata(m.path("a")).unwrap().nlink(), 2);
        fs::write(m.path("b"), "longer").unwrap();
        assert_eq!(fs::read(m.path("a")).unwrap(), b"longer");
        fs::remove_file(m.path("a")).unwrap();
        assert_eq!(fs::metadata(m.path("b")).unwrap().nlink(), 1);
        assert_eq!(number(fs::metadata(m.path("a"))), Some(libc::ENOENT));

        fs::write(m.path("c"), "c").unwrap();
        let rename = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, m.path(from), CWD, m.path(to), flags);
        assert_eq!(rename("b", "c", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename("b", "c", RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(m.path("b")).unwrap(), b"c");
        assert_eq!(fs::read(m.path("c")).unwrap(), b"longer");
        rename("b", "d", RenameFlags::WHITEOUT).unwrap();
        let whiteout = fs::symlink_metadata(m.path("b")).unwrap();
        assert_eq!((whiteout.mode() & 0o170000, whiteout.rdev()), (0o020000, 0));
        fs::rename(m.path("d"), m.path("c")).unwrap();
        assert_eq!(fs::read(m.path("c")).unwrap(), b"c");
        assert_eq!(number(fs::metadata(m.path("d"))), Some(libc::ENOENT));
    });
}

#[test]
fn errors_arrive_as_the_numbers_programs_know() {
    both(|m| {
        fs::create_dir(m.path("dir")).unwrap();
        fs::write(m.path("dir/file"), "x").unwrap();
        assert_eq!(number(fs::create_dir(m.path("dir"))), Some(libc::EEXIST));
        assert_eq!(number(fs::remove_dir(m.path("dir"))), Some(libc::ENOTEMPTY));
        assert_eq!(number(fs::remove_file(m.path("dir"))), Some(libc::EISDIR));
        assert_eq!(number(fs::read_dir(m.path("dir/file"))), Some(libc::ENOTDIR));
        assert_eq!(number(File::open(m.path("none"))), Some(libc::ENOENT));
        assert_eq!(number(File::open(m.path(&"n".repeat(256)))), Some(libc::ENAMETOOLONG));
        assert_eq!(number(fs::rename(m.path("dir"), m.path("dir/in"))), Some(libc::EINVAL));
        assert_eq!(number(fs::hard_link(m.path("dir"), m.path("d"))), Some(libc::EPERM));
        let temporary = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
        assert_eq!(rustix::fs::open(m.dir.path(), temporary, Mode::RUSR).err(), Some(Errno::OPNOTSUPP));
    });
}

#[test]
fn times_before_1970_and_far_after_keep_their_nanoseconds() {
    both(|m| {
        let file = File::create(m.path("file")).unwrap();
        for time in [
            UNIX_EPOCH - Duration::new(1, 500_000_000),
            UNIX_EPOCH - Duration::new(3_000_000_000, 1),
            UNIX_EPOCH + Duration::new(20_000_000_000, 999_999_999),
        ] {
            file.set_times(FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
            let attr = m.fs.lookup(m.fs.root(), b"file").unwrap().attr;
            m.fs.forget(attr.ino, 1);
            let metadata = fs::metadata(m.path("file")).unwrap();
            assert_eq!(metadata.modified().unwrap(), time);
            assert_eq!(metadata.accessed().unwrap(), time);
            assert_eq!((attr.mtime.sec, i64::from(attr.mtime.nsec)), (metadata.mtime(), metadata.mtime_nsec()));
        }
    });
}

#[test]
fn a_device_node_keeps_its_numbers_and_the_umask_is_obeyed() {
    both(|m| {
        let device = rustix::fs::makedev(259, 0x12345);
        let made = rustix::fs::mknodat(CWD, m.path("node"), FileType::BlockDevice, Mode::RUSR, device);
        if made == Err(Errno::PERM) {
            return testlog::missing("root, to make device nodes");
        }
        made.unwrap();
        assert_eq!(fs::metadata(m.path("node")).unwrap().rdev(), device);
        let script = "umask 027; mkdir d; echo > f; mkfifo p";
        let status = Command::new("sh").args(["-c", script]).current_dir(m.dir.path()).status();
        assert!(status.unwrap().success());
        for (name, mode) in [("d", 0o750), ("f", 0o640), ("p", 0o640)] {
            assert_eq!(fs::metadata(m.path(name)).unwrap().mode() & 0o7777, mode, "{name}");
        }
    });
}

#[test]
fn an_unprivileged_write_clears_suid_and_sgid() {
    if !rustix::process::geteuid().is_root() {
        return testlog::missing("root, to become another user");
    }
    both(|m| {
        fs::set_permissions(m.dir.path(), Permissions::from_mode(0o777)).unwrap();
        let mode = |name: &str| fs::metadata(m.path(name)).unwrap().mode() & 0o7777;
        let fresh = |name: &str| {
            fs::write(m.path(name), "text").unwrap();
            fs::set_permissions(m.path(name), Permissions::from_mode(0o6777)).unwrap();
        };
        let nobody = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(m.dir.path()).uid(65534).gid(65534);
            assert!(command.status().unwrap().success(), "{script}");
        };
        fresh("written");
        nobody("echo more >> written");
        assert_eq!(mode("written"), 0o777);
        fresh("truncated");
        nobody(": > truncated");
        assert_eq!(mode("truncated"), 0o777);
        fresh("by-root");
        fs::write(m.path("by-root"), "by root").unwrap();
        assert_eq!(mode("by-root"), 0o6777);
        fresh("owned");
        std::os::unix::fs::chown(m.path("owned"), Some(65534), None).unwrap();
        assert_eq!(mode("owned"), 0o777);
        fs::create_dir(m.path("dir")).unwrap();
        fs::set_permissions(m.path("dir"), Permissions::from_mode(0o2775)).unwrap();
        std::os::unix::fs::chown(m.path("dir"), Some(65534), None).unwrap();
        assert_eq!(mode("dir"), 0o2775);
    });
}

#[test]
fn attributes_are_sized_listed_replaced_and_removed() {
    both(|m| {
        let path = m.path("file");
        File::create(&path).unwrap();
        let get = |name: &str, size: usize| {
            let mut value = vec![0; size];
            rustix::fs::getxattr(&path, name, &mut value)
        };
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
        assert_eq!(get("user.a", 10), Err(Errno::NODATA));
        set("user.a", b"12345", XattrFlags::CREATE).unwrap();
        assert_eq!(set("user.a", b"1", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(set("user.b", b"1", XattrFlags::REPLACE), Err(Errno::NODATA));
        assert_eq!(rustix::fs::getxattr_query(&path, "user.a"), Ok(5));
        assert_eq!(get("user.a", 4), Err(Errno::RANGE));
        assert_eq!(get("user.a", 10), Ok(5));
        set("user.empty", b"", XattrFlags::empty()).unwrap();
        assert_eq!(get("user.empty", 10), Ok(0));
        let mut names = [0; 64];
        let length = rustix::fs::listxattr(&path, &mut names).unwrap();
        assert_eq!(&names[..length], b"user.a\0user.empty\0");
        rustix::fs::removexattr(&path, "user.a").unwrap();
        assert_eq!(get("user.a", 10), Err(Errno::NODATA));
    });
}

#[test]
fn a_write_takes_file_capabilities_away() {
    // Version 2 of the format, with CAP_CHOWN permitted (capabilities(7)).
    let capability = [0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const NAME: &str = "security.capability";
    both(|m| {
        let path = m.path("file");
        fs::write(&path, "text").unwrap();
        for _ in 0..2 {
            match rustix::fs::setxattr(&path, NAME, &capability, XattrFlags::empty()) {
                Err(Errno::PERM) => return testlog::missing("root, to set capabilities"),
                done => done.unwrap(),
            }
            assert_eq!(rustix::fs::getxattr(&path, NAME, &mut [0; 64]), Ok(20));
            fs::write(&path, "other").unwrap();
            assert_eq!(rustix::fs::getxattr(&path, NAME, &mut [0; 64]), Err(Errno::NODATA));
        }
    });
}

#[test]
fn holes_are_made_and_found() {
    both(|m| {
        let file = File::create_new(m.path("file")).unwrap();
        file.write_all_at(&[9; 3 << 20], 0).unwrap();
        file.sync_all().unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 1 << 20, 1 << 20).unwrap();
        use rustix::fs::SeekFrom::{Data, Hole};
        assert_eq!(rustix::fs::seek(&file, Hole(0)), Ok(1 << 20));
        assert_eq!(rustix::fs::seek(&file, Data(1 << 20)), Ok(2 << 20));
        assert_eq!(rustix::fs::seek(&file, Hole(2 << 20)), Ok(3 << 20));
        assert_eq!(rustix::fs::seek(&file, Data(3 << 20)), Err(Errno::NXIO));
        let back = fs::read(m.path("file")).unwrap();
        assert!(back[..1 << 20].iter().chain(&back[2 << 20..]).all(|&b| b == 9));
        assert!(back[1 << 20..2 << 20].iter().all(|&b| b == 0));
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 4 << 20, 4096).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (4 << 20) + 4096);
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 8 << 20, 4096).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (4 << 20) + 4096);
        let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapse, Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn data_the_kernel_has_not_written_back_yet_is_no_hole() {
    both(|m| {
        use rustix::fs::SeekFrom::{Data, Hole};
        let file = File::create_new(m.path("file")).unwrap();
        file.write_all_at(&[9; 8192], 3 << 20).unwrap();
        assert_eq!(rustix::fs::seek(&file, Data(0)), Ok(3 << 20));
        assert_eq!(rustix::fs::seek(&file, Hole(3 << 20)), Ok((3 << 20) + 8192));
        file.write_all_at(&[9; 100], (3 << 20) + 8192).unwrap();
        assert_eq!(rustix::fs::seek(&file, Hole(3 << 20)), Ok((3 << 20) + 8292));
        // Many at the same time, from more threads than serve the mount.
        std::thread::scope(|scope| {
            for i in 0..16 {
                let path = m.path(&format!("file-{i}"));
                scope.spawn(move || {
                    let file = File::create_new(path).unwrap();
                    for round in 1..20_u64 {
                        file.write_all_at(&[1; 4096], round << 20).unwrap();
                        assert_eq!(rustix::fs::seek(&file, Data((round << 20) - 1)), Ok(round << 20));
                    }
                });
            }
        });
    });
}

#[test]
fn the_blocks_of_a_file_that_stays_open_become_known() {
    both(|m| {
        let file = File::create_new(m.path("file")).unwrap();
        file.write_all_at(&[9; 40_960], 0).unwrap();
        file.metadata().unwrap();
        file.sync_all().unwrap();
        for _ in 0..500 {
            if file.metadata().unwrap().blocks() == 80 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} blocks of 512 bytes", file.metadata().unwrap().blocks());
    });
}

#[test]
fn a_name_whose_inode_cannot_be_read_is_still_listed() {
    both(|m| {
        // Created without the kernel, so that it has none of them cached.
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
        let [_, ino, _] = [b"a", b"b", b"c"].map(|name| {
            let entry = m.fs.mknod(Caller::default(), m.fs.root(), name, &new);
            entry.unwrap().attr.ino
        });
        m.fs.damage(ino).unwrap();
        for _ in 0..3 {
            let listed: Vec<_> = fs::read_dir(m.dir.path())
                .unwrap()
                .map(|entry| {
                    let entry = entry.unwrap();
                    let is_file = entry.file_type().unwrap().is_file();
                    let number = std::os::unix::fs::DirEntryExt::ino(&entry);
                    let name = entry.file_name().into_string().unwrap();
                    (name, is_file, number == ino.0)
                })
                .collect();
            let expected = [("a", false), ("b", true), ("c", false)];
            assert_eq!(listed, expected.map(|(name, b)| (name.to_owned(), true, b)));
        }
        assert_eq!(number(fs::metadata(m.path("b"))), Some(libc::EUCLEAN));
        // The reference from the creation stays, whatever the kernel believes to hold and forgets.
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(m.fs.references(ino), Ok(1));
    });
}
