//! Do `chattr` and `lsattr` work on a mount, and are the flags enforced?

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use f2fs::mkfs::Options;
use judges::oracle::tools::locate;
use rustix::fs::XattrFlags;

use crate::rig::again;
use crate::rig::*;

const EPERM: i32 = 1;

fn chattr(how: &str, path: &Path) -> bool {
    Command::new(locate("chattr", "e2fsprogs")).arg(how).arg(path).status().expect("runs").success()
}

/// The flags of a file or directory, without the dashes.
fn lsattr(path: &Path) -> String {
    let out = Command::new(locate("lsattr", "e2fsprogs")).args(["-d", "-p"]).arg(path).output().expect("runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    let mut words = text.split_whitespace();
    let project = words.next().expect("a project").to_owned();
    format!("{project} {}", words.next().expect("flags").replace('-', ""))
}

#[track_caller]
fn refused<T>(result: Result<T>) {
    assert_eq!(result.err().and_then(|e| e.raw_os_error()), Some(EPERM));
}

/// Writes through the kernel's cache, which may report an error only at writeback, and with direct I/O.
fn write_both_ways(path: &Path, at: u64) -> [Result<()>; 2] {
    [0, rustix::fs::OFlags::DIRECT.bits() as i32].map(|flags| {
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        file.write_all_at(&[b'!'; 4096], at)?;
        file.sync_all()
    })
}

#[track_caller]
fn assert_sealed(path: &Path) {
    let file = File::open(path).expect("opened");
    refused(fs::remove_file(path));
    refused(fs::rename(path, path.with_extension("moved")));
    refused(fs::hard_link(path, path.with_extension("link")));
    refused(fs::set_permissions(path, Permissions::from_mode(0o777)));
    refused(std::os::unix::fs::chown(path, Some(1), Some(1)));
    refused(rustix::fs::setxattr(path, "user.x", b"1", XattrFlags::empty()).map_err(Into::into));
    refused(OpenOptions::new().write(true).truncate(true).open(path));
    refused(OpenOptions::new().write(true).open(path).and_then(|f| f.set_len(1)));
    drop(file);
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("read")
}

#[test]
fn flags_are_set_shown_and_kept() {
    let mount = OnFuse::new(64, &Options::modern());
    let (file, dir) = (mount.path("file"), mount.path("dir"));
    fs::write(&file, "text").expect("written");
    fs::create_dir(&dir).expect("made");
    assert_eq!((lsattr(&file), lsattr(&dir)), ("0 ".to_owned(), "0 ".to_owned()));
    assert!(chattr("+dA", &file) && chattr("+P", &dir));
    let changed = fs::metadata(&file).expect("stat").ctime();
    assert!(changed > 0);
    let mount = again(mount);
    assert_eq!((lsattr(&file), lsattr(&dir)), ("0 dA".to_owned(), "0 P".to_owned()));
    // Synchronous writing is not implemented, so the flag is refused.
    assert!(!chattr("+S", &file) && !chattr("+c", &file));
    assert_eq!(lsattr(&file), "0 dA");
    assert!(chattr("-d", &file));
    assert_eq!(lsattr(&file), "0 A");
    mount.end();
}

#[test]
fn a_flag_that_is_set_changes_the_change_time_for_good() {
    let mount = OnFuse::new(64, &Options::modern());
    let changed = |path: &Path| fs::metadata(path).map(|m| (m.ctime(), m.ctime_nsec())).expect("metadata");
    let file = mount.path("file");
    fs::write(&file, "text").expect("written");
    let before = changed(&file);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(chattr("+A", &file));
    // The kernel shows its cached change time of a file until it evicts the file; since 6.18 that can be requested.
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let can_be_asked = (numbers.next(), numbers.next()) >= (Some(6), Some(18));
    if can_be_asked {
        let shows = |_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            changed(&file) > before
        };
        assert!((0..250).any(shows), "the change time of before is still shown");
    } else {
        testlog::kernel_lacks("FUSE_NOTIFY_PRUNE (Linux 6.18)");
    }
    let shown = changed(&file);
    let mount = again(mount);
    let kept = changed(&mount.path("file"));
    assert!(kept > before && (shown == kept || !can_be_asked), "{before:?} {shown:?} {kept:?}");
    mount.end();
}

#[test]
fn an_immutable_file_is_not_changed_by_anybody() {
    let mount = OnFuse::new(64, &Options::default());
    let path = mount.path("file");
    // Not synced: what the kernel has cached when the file is sealed belongs to the file.
    fs::write(&path, "text").expect("written");
    let before = OpenOptions::new().write(true).open(&path).expect("opened");
    assert!(chattr("+i", &path));
    assert_sealed(&path);
    for result in write_both_ways(&path, 0) {
        refused(result);
    }
    refused(OpenOptions::new().write(true).open(&path));
    refused(rustix::fs::fallocate(&before, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 8192).map_err(Into::into));
    drop(before);
    let mount = again(mount);
    assert_eq!((text(&path), lsattr(&path)), ("text".to_owned(), "0 i".to_owned()));
    assert_sealed(&path);
    assert!(chattr("-i", &path));
    fs::write(&path, "other").expect("written");
    fs::remove_file(&path).expect("removed");
    mount.end();
}

#[test]
fn an_append_only_file_grows_and_keeps_what_it_has() {
    let mount = OnFuse::new(64, &Options::default());
    let path = mount.path("log");
    fs::write(&path, "one\n").expect("written");
    assert!(chattr("+a", &path));
    assert_sealed(&path);
    let append = |line: &str| {
        let mut file = OpenOptions::new().append(true).open(&path)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()
    };
    for line in ["two\n", "three\n"] {
        append(line).expect("appended");
    }
    for result in write_both_ways(&path, 0) {
        refused(result);
    }
    let mount = again(mount);
    assert_eq!(text(&path), "one\ntwo\nthree\n");
    append(&"four\n".repeat(5000)).expect("appended");
    assert_eq!(text(&path).len(), 14 + 25_000);
    let mount = again(mount);
    assert_eq!(text(&path).len(), 14 + 25_000);
    assert_sealed(&path);
    mount.end();
}

#[test]
fn names_in_an_immutable_directory_stay_and_only_root_seals() {
    if !rustix::process::geteuid().is_root() {
        return testlog::missing("root, to set flags and become another user");
    }
    let mount = OnFuse::new(64, &Options::default());
    let dir = mount.path("dir");
    fs::create_dir(&dir).expect("made");
    fs::write(dir.join("file"), "text").expect("written");
    assert!(chattr("+i", &dir));
    refused(File::create(dir.join("new")));
    refused(fs::remove_file(dir.join("file")));
    refused(fs::rename(dir.join("file"), mount.path("file")));
    assert!(chattr("-i", &dir));
    let other = |how: &str, path: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--"]);
        command.arg(locate("chattr", "e2fsprogs")).arg(how).arg(path).status().expect("runs").success()
    };
    let path = mount.path("theirs");
    fs::write(&path, "text").expect("written");
    assert!(!other("+d", &path));
    std::os::unix::fs::chown(&path, Some(1000), Some(1000)).expect("given");
    assert!(other("+d", &path) && !other("+i", &path) && !other("+a", &path));
    assert_eq!(lsattr(&path), "0 d");
    mount.end();
}

/// Perl's output for an ioctl that returns a number, or its error number, negative.
fn ioctl(command: u32, path: &Path) -> i64 {
    let program = "open my $f, '+<', $ARGV[1] or die; my $n = pack('Q', 0); \
                   print ioctl($f, $ARGV[0], $n) ? unpack('Q', $n) : -($! + 0)";
    let out = Command::new("perl").args(["-e", program, &command.to_string()]).arg(path).output().expect("perl runs");
    String::from_utf8_lossy(&out.stdout).trim().parse().expect("a number")
}

#[test]
fn files_of_a_directory_marked_by_chattr_are_compressed_and_their_room_released() {
    const SAVED: u32 = 0x8008_F511;
    const RELEASE: u32 = 0x8008_F512;
    const RESERVE: u32 = 0x8008_F513;
    let features = Options::modern().features | format::superblock::Features::COMPRESSION;
    let mount = OnFuse::new(64, &Options { features, ..Options::modern() });
    let dir = mount.path("dir");
    fs::create_dir(&dir).expect("made");
    assert!(chattr("+c", &dir));
    let (path, words) = (dir.join("words"), "of words there is no end. ".repeat(100_000));
    // Still in the kernel's cache at the ioctl: that belongs to the file.
    fs::write(&path, &words).expect("written");
    assert_eq!((lsattr(&dir), lsattr(&path)), ("0 c".to_owned(), "0 c".to_owned()));
    assert!(!chattr("-c", &path), "it has blocks");
    let released = ioctl(RELEASE, &path);
    assert!(released > 400, "{released}");
    assert_eq!((ioctl(SAVED, &path), ioctl(RELEASE, &path)), (0, -22));
    assert!(text(&path) == words);
    refused(OpenOptions::new().write(true).open(&path).and_then(|f| {
        f.write_all_at(b"x", 5)?;
        f.sync_all()
    }));
    assert_eq!((ioctl(RESERVE, &path), ioctl(SAVED, &path)), (released, released));
    OpenOptions::new().write(true).open(&path).and_then(|f| f.write_all_at(b"x", 5)).expect("written");
    let mount = again(mount);
    assert!(text(&path) == format!("{}x{}", &words[..5], &words[6..]));
    // The ioctls refuse a file that is not compressed.
    fs::write(mount.path("plain"), "text").expect("written");
    assert_eq!((ioctl(SAVED, &mount.path("plain")), ioctl(RELEASE, &mount.path("plain"))), (-22, -22));
    mount.end();
}
