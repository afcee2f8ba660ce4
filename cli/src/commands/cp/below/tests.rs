//! A copy on the host exposes nothing to other users.

use std::os::unix::fs::PermissionsExt;

use std::fs;

use super::super::descent::OPEN;
use super::*;

fn below(dir: &tempfile::TempDir) -> Below {
    Below::open(dir.path()).unwrap()
}

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
        rdev: vfs::DeviceNumber::default(),
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
    let sink = below(&dir);
    let mut made = sink.make(b"/file", &item(FileKind::Regular)).unwrap();
    made.write_at(0, b"new").unwrap();
    let there: Vec<_> = fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    made.finish(&item(FileKind::Regular)).unwrap();
    made.place().unwrap();
    assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o7777, 0o666);
    sink.make_directory(b"/below").unwrap();
    assert_eq!(fs::metadata(dir.path().join("below")).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn a_file_that_is_there_stays_until_its_copy_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let sink = below(&dir);
    fs::write(&file, "old").unwrap();
    for kind in [FileKind::Regular, FileKind::Symlink, FileKind::Fifo] {
        drop(sink.make(b"/file", &item(kind)).unwrap());
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
    sink.make(b"/file", &item(FileKind::Symlink)).unwrap().place().unwrap();
    assert_eq!(fs::read_link(&file).unwrap(), Path::new("elsewhere"));
}

#[test]
fn a_second_name_replaces_what_is_there_and_not_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    fs::write(&one, "one").unwrap();
    fs::write(&two, "two").unwrap();
    for _ in 0..2 {
        below(&dir).link(b"/one", b"/two").unwrap();
        assert_eq!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

/// The temporary file in a directory.
fn made_in(dir: &Path) -> PathBuf {
    let ours = |p: &PathBuf| p.file_name().unwrap().as_bytes().starts_with(b".joulefs-");
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).find(ours).unwrap()
}

/// The new owner of a file may put a link in its place before its mode is set.
#[test]
fn a_link_put_in_the_place_of_a_file_being_made_gives_nothing_to_what_it_leads_to() {
    for kind in [FileKind::Regular, FileKind::Fifo, FileKind::Symlink] {
        let dir = tempfile::tempdir().unwrap();
        let (program, sink) = (dir.path().join("program"), below(&dir));
        fs::write(&program, "root's").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let before = fs::metadata(&program).unwrap();
        let mut item = item(kind);
        item.perm = 0o4755;
        let mut made = sink.make(b"/file", &item).unwrap();
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
    let roots = dir.path().join("roots");
    fs::create_dir(&roots).unwrap();
    fs::set_permissions(&roots, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&roots, dir.path().join("dir")).unwrap();
    let sink = below(&dir);
    assert!(sink.finish(b"/dir", &item(FileKind::Directory)).is_err());
    assert!(sink.make_directory(b"/dir").is_err());
    assert!(sink.make(b"/dir/file", &item(FileKind::Regular)).is_err());
    fs::write(roots.join("secret"), "root's").unwrap();
    assert!(sink.link(b"/dir/secret", b"/secret").is_err());
    assert_eq!(fs::metadata(&roots).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 1);
}

/// The top directory is no longer open when the copy returns to it.
#[test]
fn a_directory_high_above_a_deep_one_is_not_followed_either_if_a_link_took_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (sink, roots) = (below(&dir), dir.path().join("roots"));
    fs::create_dir(&roots).unwrap();
    let mut at = Vec::new();
    for n in 0..OPEN + 5 {
        at.extend_from_slice(format!("/{n}").as_bytes());
        sink.make_directory(&at).unwrap();
    }
    sink.make(&[&at[..], b"/file"].concat(), &item(FileKind::Regular)).unwrap().place().unwrap();
    sink.make(b"/0/file", &item(FileKind::Regular)).unwrap().place().unwrap();
    assert!(dir.path().join("0/file").exists());
    sink.make(&[&at[..], b"/another"].concat(), &item(FileKind::Regular)).unwrap().place().unwrap();
    fs::rename(dir.path().join("0"), dir.path().join("aside")).unwrap();
    std::os::unix::fs::symlink(&roots, dir.path().join("0")).unwrap();
    // The file is created in the original directory, or the copy fails.
    let _ = sink.make(b"/0/file", &item(FileKind::Regular));
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 0);
}

#[test]
fn no_name_leads_out_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("at");
    fs::create_dir(&at).unwrap();
    let sink = Below::open(&at).unwrap();
    for path in [&b"/../out"[..], b"/..", b"/x/../../out"] {
        assert!(sink.make(path, &item(FileKind::Regular)).is_err());
        assert!(sink.make_directory(path).is_err());
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
