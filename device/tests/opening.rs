//! Images that are in use, missing, forbidden or of the wrong kind are rejected with a one-line error.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use device::{Access, BLOCK, BlockDevice, FileDevice, Lba, OpenError, Tag, open_image};

const TAG: Tag = Tag { cause: 0, owner: 0 };

fn made(path: &Path, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_writer_is_alone_and_readers_share() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    made(&path, 1 << 20);
    let open = |access| FileDevice::open(&path, access);
    let locked = |r: Result<FileDevice, OpenError>| match r {
        Err(OpenError::Locked { by, .. }) => by,
        other => panic!("{other:?}"),
    };
    let writer = open(Access::ReadWrite).unwrap();
    locked(open(Access::ReadWrite));
    locked(open(Access::ReadOnly));
    locked(FileDevice::create(&path, 4096));
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20, "a refused creation emptied the file");
    drop(writer);
    let (_a, _b) = (open(Access::ReadOnly).unwrap(), open(Access::ReadOnly).unwrap());
    locked(open(Access::ReadWrite));
}

/// A process that holds the lock until its input ends.
fn lock_elsewhere(path: &Path) -> Child {
    let mut child = Command::new("flock")
        .args(["--no-fork".as_ref(), path.as_os_str(), "sh".as_ref(), "-c".as_ref(), "echo; read x".as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    child
}

#[test]
fn the_refusal_names_the_process_that_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    made(&path, 1 << 20);
    let mut child = lock_elsewhere(&path);
    let refusal = FileDevice::open(&path, Access::ReadWrite).unwrap_err().to_string();
    assert!(refusal.contains(&format!("process {}", child.id())) || refusal.contains("another process"), "{refusal}");
    assert!(!refusal.contains('\n') && refusal.contains("image"), "{refusal}");
    drop(child.stdin.take());
    child.wait().unwrap();
    FileDevice::open(&path, Access::ReadWrite).unwrap();
}

#[test]
fn what_is_no_image_is_refused_by_kind() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| open_image(path, Access::ReadOnly).map(|_| ()).unwrap_err();
    assert!(matches!(open(&dir.path().join("nothing")), OpenError::NotFound { .. }));
    assert!(matches!(open(dir.path()), OpenError::IsDirectory { .. }));
    assert!(matches!(open(Path::new("/dev/null")), OpenError::NotADisk { .. }));
    let small = dir.path().join("small");
    made(&small, 4095);
    assert!(matches!(open(&small), OpenError::TooSmall { bytes: 4095, .. }));
    made(&small, 3);
    assert!(matches!(open(&small), OpenError::TooSmall { bytes: 3, .. }));
    assert!(matches!(open(&small.join("below")), OpenError::NotFound { .. }));
    assert!(matches!(FileDevice::create(dir.path(), 1 << 20), Err(OpenError::IsDirectory { .. })));
    assert!(matches!(FileDevice::create(small, 100), Err(OpenError::TooSmall { bytes: 100, .. })));
}

#[test]
fn a_forbidden_image_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    made(&path, 1 << 20);
    // File modes do not stop root, but immutable files do.
    let root = fs::metadata(&path).unwrap().uid() == 0;
    let immutable = |flag| Command::new("chattr").arg(flag).arg(&path).status().is_ok_and(|status| status.success());
    if !root {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    } else if !immutable("+i") {
        return testlog::missing("a host file system for temporary files that knows `chattr +i`");
    }
    let writing = FileDevice::open(&path, Access::ReadWrite);
    let reading = FileDevice::open(&path, Access::ReadOnly);
    if root {
        immutable("-i");
    }
    assert!(matches!(writing, Err(OpenError::PermissionDenied { .. })), "{writing:?}");
    assert!(reading.is_ok(), "{reading:?}");
}

#[test]
fn a_read_only_image_takes_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, vec![7; 3 * BLOCK + 100]).unwrap();
    let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert_eq!((device.blocks(), device.read_only()), (3, true));
    assert!(device.write(Lba(0), &[0; BLOCK], TAG).is_err());
    assert!(device.write_gather(Lba(0), &[&[0; BLOCK]], TAG).is_err());
    assert!(device.discard(Lba(0), 1, TAG).is_err() && device.flush(TAG).is_err());
    assert_eq!(fs::read(&path).unwrap(), vec![7; 3 * BLOCK + 100]);
}

#[test]
fn discarding_gives_the_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = FileDevice::create(&path, 4 << 20).unwrap();
    device.write(Lba(0), &vec![1; 4 << 20], TAG).unwrap();
    device.flush(TAG).unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    device.discard(Lba(16), 512, TAG).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), 4 << 20);
    assert!(meta.blocks() + 3000 < before, "{} of {before} sectors left", meta.blocks());
}

#[test]
fn more_parts_than_the_host_takes_at_once_are_written_whole() {
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::create(dir.path().join("image"), 3000 * BLOCK as u64).unwrap();
    let blocks: Vec<Vec<u8>> = (0..2500u32).map(|i| vec![(i % 251) as u8; BLOCK]).collect();
    let mut parts: Vec<&[u8]> = blocks.iter().map(|b| &b[..]).collect();
    parts.insert(7, &[]);
    device.write_gather(Lba(100), &parts, TAG).unwrap();
    let mut all = vec![0; 2500 * BLOCK];
    device.read(Lba(100), &mut all, TAG).unwrap();
    assert!(all == blocks.concat());
}

/// A loop device on a file, detached at the end.
struct Loop(String);

impl Loop {
    fn on(path: &Path, read_only: bool) -> Option<Self> {
        let mut command = Command::new("losetup");
        command.args(["-f", "--show"]);
        if read_only {
            command.arg("-r");
        }
        let out = command.arg(path).output().ok().filter(|out| out.status.success())?;
        Some(Self(String::from_utf8(out.stdout).ok()?.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn an_image_under_a_loop_device_is_refused_and_the_loop_device_itself_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    made(&path, 1 << 20);
    let Some(held) = Loop::on(&path, false) else {
        return testlog::missing("a loop device, for root");
    };
    // Also under another name: the file matters.
    let link = dir.path().join("other name");
    fs::hard_link(&path, &link).unwrap();
    for (name, access) in [(&path, Access::ReadWrite), (&path, Access::ReadOnly), (&link, Access::ReadWrite)] {
        match FileDevice::open(name, access) {
            Err(e @ OpenError::HeldByLoop { .. }) => {
                assert!(e.to_string().contains(&held.0), "{e}")
            }
            other => panic!("{other:?}"),
        }
    }
    let device = FileDevice::open(&held.0, Access::ReadWrite).unwrap();
    assert_eq!(device.blocks(), 256);
    device.write(Lba(255), &[5; BLOCK], TAG).unwrap();
    device.flush(TAG).unwrap();
    device.discard(Lba(0), 16, TAG).unwrap();
    assert!(matches!(FileDevice::open(&held.0, Access::ReadWrite), Err(OpenError::Locked { .. })));
    drop(device);
    drop(held);
    assert_eq!(fs::read(&path).unwrap()[255 * BLOCK..], [5; BLOCK]);
    let frozen = Loop::on(&path, true).unwrap();
    FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert!(matches!(FileDevice::open(&path, Access::ReadWrite), Err(OpenError::HeldByLoop { .. })));
    assert!(matches!(FileDevice::open(&frozen.0, Access::ReadWrite), Err(OpenError::PermissionDenied { .. })));
}

#[test]
fn an_image_that_is_open_is_refused_through_loop_devices_above_it_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    made(&path, 1 << 20);
    let open = FileDevice::open(&path, Access::ReadWrite).unwrap();
    let Some(above) = Loop::on(&path, false) else {
        return testlog::missing("loop devices");
    };
    let refused = |device: &str| {
        for access in [Access::ReadWrite, Access::ReadOnly] {
            match FileDevice::open(device, access) {
                Err(e @ OpenError::BackingLocked { .. }) => {
                    let text = e.to_string();
                    assert!(text.contains("this process") && text.contains(path.to_str().unwrap()), "{text}");
                }
                other => panic!("{device}, {access}: {other:?}"),
            }
        }
    };
    refused(&above.0);
    let higher = Loop::on(Path::new(&above.0), false).unwrap();
    refused(&higher.0);
    // A device below another one is rejected for that reason.
    assert!(FileDevice::open(&above.0, Access::ReadWrite).is_err());
    drop((open, higher));
    // Two devices on one file share its bytes, too.
    let other = Loop::on(&path, false).unwrap();
    let one = FileDevice::open(&above.0, Access::ReadWrite).unwrap();
    assert!(matches!(FileDevice::open(&other.0, Access::ReadWrite), Err(OpenError::BackingLocked { .. })));
    drop(one);
    let readers = [&above.0, &other.0].map(|device| FileDevice::open(device, Access::ReadOnly).unwrap());
    assert!(matches!(FileDevice::open(&other.0, Access::ReadWrite), Err(OpenError::Locked { .. })));
    drop(readers);
    FileDevice::open(&above.0, Access::ReadWrite).unwrap();
}

#[test]
fn a_mounted_block_device_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, at) = (dir.path().join("image"), dir.path().join("mounted here"));
    made(&path, 4 << 20);
    fs::create_dir(&at).unwrap();
    let Some(held) = Loop::on(&path, false) else {
        return testlog::missing("a loop device, for root");
    };
    let ran = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if !ran(Command::new("mkfs.ext4").args(["-q", &held.0])) || !ran(Command::new("mount").arg(&held.0).arg(&at)) {
        return testlog::missing("the right to mount, or mkfs.ext4");
    }
    let refusals = [Access::ReadWrite, Access::ReadOnly].map(|access| FileDevice::open(&held.0, access).unwrap_err());
    assert!(ran(Command::new("umount").arg(&at)));
    for refusal in refusals {
        assert!(matches!(refusal, OpenError::Mounted { .. }), "{refusal}");
        assert!(refusal.to_string().contains("mounted"), "{refusal}");
    }
    FileDevice::open(&held.0, Access::ReadWrite).unwrap();
}
