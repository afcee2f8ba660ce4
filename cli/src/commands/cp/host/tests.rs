//! What the host's side of a copy leaves to nobody else.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn item(kind: FileKind) -> Item {
    let time = Timestamp { sec: 1, nsec: 0 };
    Item {
        kind,
        perm: 0o666,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        size: 3,
        atime: time,
        mtime: time,
        rdev: DeviceNumber::default(),
        identity: None,
        target: b"elsewhere".to_vec(),
        xattrs: Vec::new(),
        amiss: None,
    }
}

#[test]
fn nobody_else_can_open_a_copy_before_it_has_its_owner_and_mode() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("file");
    let mut made = Host.make(at.as_os_str().as_bytes(), &item(FileKind::Regular)).unwrap();
    made.write_at(0, b"new").unwrap();
    let there: Vec<_> = fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    made.finish(&item(FileKind::Regular)).unwrap();
    made.place().unwrap();
    assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o7777, 0o666);
    let below = dir.path().join("below");
    Host.make_directory(below.as_os_str().as_bytes()).unwrap();
    assert_eq!(fs::metadata(below).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn a_file_that_is_there_stays_until_its_copy_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let at = file.as_os_str().as_bytes();
    fs::write(&file, "old").unwrap();
    for kind in [FileKind::Regular, FileKind::Symlink, FileKind::Fifo] {
        drop(Host.make(at, &item(kind)).unwrap());
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
    Host.make(at, &item(FileKind::Symlink)).unwrap().place().unwrap();
    assert_eq!(fs::read_link(&file).unwrap(), Path::new("elsewhere"));
}

#[test]
fn a_second_name_replaces_what_is_there_and_not_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    fs::write(&one, "one").unwrap();
    fs::write(&two, "two").unwrap();
    for _ in 0..2 {
        Host.link(one.as_os_str().as_bytes(), two.as_os_str().as_bytes()).unwrap();
        assert_eq!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

/// What lies in a directory under a name of ours.
fn made_in(dir: &Path) -> PathBuf {
    let ours = |p: &PathBuf| p.file_name().unwrap().as_bytes().starts_with(b".joulefs-");
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).find(ours).unwrap()
}

/// The one who gets a file may put a link in its place before it has its mode.
#[test]
fn a_link_put_in_the_place_of_a_file_being_made_gives_nothing_to_what_it_leads_to() {
    for kind in [FileKind::Regular, FileKind::Fifo, FileKind::Symlink] {
        let dir = tempfile::tempdir().unwrap();
        let (program, at) = (dir.path().join("program"), dir.path().join("file"));
        fs::write(&program, "root's").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let before = fs::metadata(&program).unwrap();
        let mut item = item(kind);
        item.perm = 0o4755;
        let mut made = Host.make(at.as_os_str().as_bytes(), &item).unwrap();
        let there = made_in(dir.path());
        fs::rename(&there, dir.path().join("aside")).unwrap();
        std::os::unix::fs::symlink(&program, &there).unwrap();
        made.finish(&item).unwrap();
        let after = fs::metadata(&program).unwrap();
        assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()), "{kind:?}");
    }
}

#[test]
fn a_link_put_in_the_place_of_a_directory_gives_nothing_to_what_it_leads_to() {
    let dir = tempfile::tempdir().unwrap();
    let (below, at) = (dir.path().join("roots"), dir.path().join("dir"));
    fs::create_dir(&below).unwrap();
    fs::set_permissions(&below, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&below, &at).unwrap();
    assert!(Host.finish(at.as_os_str().as_bytes(), &item(FileKind::Directory)).is_err());
    assert_eq!(fs::metadata(&below).unwrap().mode() & 0o7777, 0o700);
}
