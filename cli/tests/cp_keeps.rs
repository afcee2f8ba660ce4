//! `joulefs cp` keeps everything about a file, into an image, out of it and between two: kind, mode, owner, device
//! number, times, attributes, access lists, links, contents and holes.
//!
//! Owners, device nodes, file capabilities and system attributes need root; other tests cover the rest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps, XattrFlags};

use crate::room::Room;
use crate::theirs;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn joulefs(args: &[&str]) {
    let out = Command::new(env!("CARGO_BIN_EXE_joulefs")).args(args).output().unwrap();
    assert!(out.status.success(), "joulefs {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An access list as programs see it: tag, permissions and, for a named user or group, its ID.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(if matches!(tag, 2 | 8) { *id } else { u32::MAX }.to_le_bytes());
    }
    out
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|e| panic!("{name} of {}: {e}", path.display()));
}

/// A tree with one of everything.
fn plant(tree: &Path) {
    fs::create_dir_all(tree.join("dir/below")).unwrap();
    fs::write(tree.join("plain"), b"contents").unwrap();
    fs::write(tree.join("empty"), b"").unwrap();
    fs::write(tree.join("dir/large"), (0..2_000_001_u32).map(|i| (i % 253) as u8).collect::<Vec<_>>()).unwrap();
    fs::hard_link(tree.join("plain"), tree.join("dir/plain_too")).unwrap();
    symlink("dir/large", tree.join("arrow")).unwrap();
    symlink("no/such/place", tree.join("dir/nowhere")).unwrap();
    fs::hard_link(tree.join("arrow"), tree.join("dir/arrow_too")).unwrap();
    // Data between holes, a hole at the end, holes only.
    let holes = File::create(tree.join("holes")).unwrap();
    holes.write_all_at(&[1; 8192], 40 << 20).unwrap();
    holes.write_all_at(&[2; 4096], 90 << 20).unwrap();
    holes.write_all_at(&[3; 10], (120 << 20) + 4096).unwrap();
    holes.set_len(200 << 20).unwrap();
    File::create(tree.join("nothing_but_hole")).unwrap().set_len((5 << 20) + 17).unwrap();
    rustix::fs::mknodat(CWD, tree.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    drop(std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap());

    set(&tree.join("plain"), "user.colour", b"blue");
    set(&tree.join("plain"), "user.empty", b"");
    set(&tree.join("plain"), "user.long", &[7; 2000]);
    set(&tree.join("dir"), "user.of_a_directory", &[0, 255, 10]);
    let access = list(&[(1, 6, 0), (2, 7, 1234), (4, 4, 0), (8, 1, 77), (16, 5, 0), (32, 0, 0)]);
    let default = list(&[(1, 7, 0), (2, 5, 4321), (4, 0, 0), (16, 5, 0), (32, 1, 0)]);
    fs::write(tree.join("listed"), b"who may read this").unwrap();
    set(&tree.join("listed"), ACCESS, &access);
    set(&tree.join("dir"), ACCESS, &list(&[(1, 7, 0), (4, 1, 0), (8, 6, 4_000_000), (16, 7, 0), (32, 0, 0)]));
    set(&tree.join("dir"), DEFAULT, &default);
    // Created after the list, so that they inherit nothing from their directory.
    fs::create_dir(tree.join("inheriting")).unwrap();
    set(&tree.join("inheriting"), DEFAULT, &default);
    fs::write(tree.join("inheriting/child"), b"with a list of its own").unwrap();
    fs::write(tree.join("inheriting/bare"), b"without").unwrap();
    rustix::fs::lremovexattr(tree.join("inheriting/bare"), ACCESS).unwrap();

    let mode = |name: &str, mode| fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    mode("plain", 0o604);
    mode("empty", 0o400);
    mode("inheriting", 0o1777);
    mode("dir/below", 0o2710);
    if is_root() {
        as_root(tree);
    }
    mode("dir/large", 0o6755);
}

fn as_root(tree: &Path) {
    let node = |name: &str, kind, major, minor| {
        let (mode, number) = (Mode::from_raw_mode(0o620), rustix::fs::makedev(major, minor));
        rustix::fs::mknodat(CWD, tree.join(name), kind, mode, number).unwrap();
    };
    node("null", FileType::CharacterDevice, 1, 3);
    node("far_device", FileType::CharacterDevice, 259, 70_000);
    node("disk", FileType::BlockDevice, 8, 17);
    for (name, uid, gid) in [
        ("plain", 1000, 1001),
        ("dir", 70_000, 4_000_000_000),
        ("dir/large", 1, 2),
        ("arrow", 65_534, 3),
        ("pipe", 4, 5),
        ("null", 6, 7),
    ] {
        lchown(tree.join(name), Some(uid), Some(gid)).unwrap();
    }
    set(&tree.join("arrow"), "trusted.of_a_link", b"yes");
    set(&tree.join("null"), "trusted.of_a_device", b"yes");
    // CAP_NET_BIND_SERVICE, as setcap writes it.
    let capability: Vec<u8> = [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
    set(&tree.join("empty"), "security.capability", &capability);
}

/// Times before 1970, after 2038 and with all nanosecond digits; deepest first, since hard links share them.
fn set_times(tree: &Path, names: &[PathBuf]) {
    for (n, name) in (0_i64..).zip(names) {
        let at = |sec, nsec| Timespec { tv_sec: sec, tv_nsec: nsec };
        let times = Timestamps {
            last_access: at(1_500_000_000 + n * 1_000, n),
            last_modification: at([-5_000, 5_000_000_000, 1_234_567_890][n as usize % 3] + n, 999_999_999 - n),
        };
        rustix::fs::utimensat(CWD, tree.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// Names below a directory, the directory itself last.
fn names(tree: &Path) -> Vec<PathBuf> {
    fn below(tree: &Path, at: &Path, out: &mut Vec<PathBuf>) {
        let mut entries: Vec<_> = fs::read_dir(tree.join(at)).unwrap().map(|e| e.unwrap()).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for e in entries {
            let name = at.join(e.file_name());
            if e.file_type().unwrap().is_dir() {
                below(tree, &name, out);
            }
            out.push(name);
        }
    }
    let mut out = Vec::new();
    below(tree, Path::new(""), &mut out);
    out.push(PathBuf::new());
    out
}

#[derive(Debug, PartialEq, Eq)]
struct Times {
    accessed: (i64, i64),
    modified: (i64, i64),
}

#[derive(Debug, PartialEq, Eq)]
struct Kept {
    mode: u32,
    owner: (u32, u32),
    device: u64,
    size: u64,
    links: u64,
    /// The first name of the same file.
    same_as: PathBuf,
    target: Option<PathBuf>,
    attributes: BTreeMap<String, Vec<u8>>,
    /// Start, end and hash of each range of data.
    data: Vec<(u64, u64, u64)>,
}

fn times(tree: &Path, names: &[PathBuf]) -> Vec<Times> {
    let of = |name| {
        let m = fs::symlink_metadata(tree.join(name)).unwrap();
        Times { accessed: (m.atime(), m.atime_nsec()), modified: (m.mtime(), m.mtime_nsec()) }
    };
    names.iter().map(of).collect()
}

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut list = vec![0; 65_536];
    let n = rustix::fs::llistxattr(path, &mut list[..]).unwrap();
    let names = list[..n].split(|b| *b == 0).filter(|name| !name.is_empty());
    let value = |name| {
        let mut value = vec![0; 65_536];
        let n = rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value[..]).unwrap();
        value[..n].to_vec()
    };
    names.map(|name| (String::from_utf8(name.to_vec()).unwrap(), value(name))).collect()
}

fn data(path: &Path) -> Vec<(u64, u64, u64)> {
    let file = File::open(path).unwrap();
    let (mut at, mut out) = (0, Vec::new());
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        let mut bytes = vec![0; (at - start) as usize];
        file.read_exact_at(&mut bytes, start).unwrap();
        let mut hash = DefaultHasher::new();
        bytes.hash(&mut hash);
        out.push((start, at, hash.finish()));
    }
    out
}

fn kept(tree: &Path, names: &[PathBuf]) -> Vec<Kept> {
    let mut first = BTreeMap::new();
    let mut of = |name: &PathBuf| {
        let path = tree.join(name);
        let m = fs::symlink_metadata(&path).unwrap();
        Kept {
            mode: m.mode(),
            owner: (m.uid(), m.gid()),
            device: m.rdev(),
            size: if m.is_dir() { 0 } else { m.size() },
            links: if m.is_dir() { 0 } else { m.nlink() },
            same_as: first.entry(m.ino()).or_insert_with(|| name.clone()).clone(),
            target: m.is_symlink().then(|| fs::read_link(&path).unwrap()),
            attributes: attributes(&path),
            data: if m.is_file() { data(&path) } else { Vec::new() },
        }
    };
    names.iter().map(&mut of).collect()
}

fn volume(room: &Room, name: &str) -> String {
    let image = room.text(name);
    joulefs(&["mkfs", &image, "--size", "64M"]);
    image
}

fn assert_sound(image: &str) {
    joulefs(&["fsck", image]);
    theirs::assert_clean(image);
}

#[test]
fn everything_comes_back_from_one_image_and_from_a_copy_of_it_in_another() {
    let room = Room::new();
    let tree = room.path("tree");
    plant(&tree);
    let all = names(&tree);
    let expected = kept(&tree, &all);
    assert!(expected.iter().any(|k| k.data.len() == 3), "this file system keeps no holes");
    set_times(&tree, &all);
    let expected_times = times(&tree, &all);

    let (one, other) = (volume(&room, "one.img"), volume(&room, "other.img"));
    joulefs(&["cp", "-r", &room.text("tree"), &format!("{one}:/")]);
    joulefs(&["cp", "-r", &format!("{one}:/tree"), &format!("{other}:/again")]);
    joulefs(&["cp", "-r", &format!("{one}:/tree"), &room.text("from_one")]);
    joulefs(&["cp", "-r", &format!("{other}:/again"), &room.text("from_other")]);
    for ((name, now), before) in all.iter().zip(times(&tree, &all)).zip(&expected_times) {
        // The host updates the access time of a followed symlink, for every program.
        let noted = tree.join(name).is_symlink();
        assert!(noted || now == *before, "{} was changed by reading it: {now:?}", name.display());
    }
    for image in [&one, &other] {
        assert_sound(image);
    }
    for copy in ["from_one", "from_other"] {
        let copy = room.path(copy);
        let found_times = times(&copy, &all);
        assert_eq!(names(&copy), all);
        for ((name, expected), found) in all.iter().zip(&expected).zip(kept(&copy, &all)) {
            assert_eq!(&found, expected, "{} in {}", name.display(), copy.display());
        }
        for ((name, expected), found) in all.iter().zip(&expected_times).zip(found_times) {
            assert_eq!(&found, expected, "{} in {}", name.display(), copy.display());
        }
    }
}

/// A directory with a default list, and a file to copy without a list.
fn list_in_the_way(room: &Room) -> PathBuf {
    let dir = room.path("listed");
    fs::create_dir(&dir).unwrap();
    set(&dir, DEFAULT, &list(&[(1, 7, 0), (2, 7, 4321), (4, 7, 0), (16, 7, 0), (32, 7, 0)]));
    fs::create_dir_all(room.path("bare/dir")).unwrap();
    fs::write(room.path("bare/file"), b"x").unwrap();
    fs::set_permissions(room.path("bare/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(room.path("bare/dir"), fs::Permissions::from_mode(0o750)).unwrap();
    dir
}

fn assert_bare(room: &Room, copy: &Path) {
    for name in ["file", "dir"] {
        let (from, to) = (room.path("bare").join(name), copy.join(name));
        assert_eq!(attributes(&to), BTreeMap::new(), "{}", to.display());
        let mode = |path| fs::symlink_metadata(path).unwrap().mode();
        assert_eq!(mode(&to), mode(&from), "{}", to.display());
    }
}

#[test]
fn a_copy_on_the_host_takes_no_list_from_the_directory_it_comes_into() {
    let room = Room::new();
    let dir = list_in_the_way(&room);
    let image = volume(&room, "v.img");
    joulefs(&["cp", "-r", &room.text("bare"), &format!("{image}:/")]);
    joulefs(&["cp", "-r", &format!("{image}:/bare"), &dir.display().to_string()]);
    assert_bare(&room, &dir.join("bare"));
}

#[test]
fn a_copy_in_an_image_takes_no_list_from_the_directory_it_comes_into() {
    let room = Room::new();
    list_in_the_way(&room);
    let image = volume(&room, "v.img");
    joulefs(&["cp", "-r", &room.text("listed"), &format!("{image}:/")]);
    joulefs(&["cp", "-r", &room.text("bare"), &format!("{image}:/listed")]);
    joulefs(&["cp", "-r", &format!("{image}:/listed/bare"), &room.text("back")]);
    assert_bare(&room, &room.path("back"));
    assert_sound(&image);
}

#[test]
fn a_file_that_is_copied_over_another_has_nothing_of_it() {
    let room = Room::new();
    let image = volume(&room, "v.img");
    let file = |name: &str, bytes: &[u8]| fs::write(room.path(name), bytes).unwrap();
    file("old", &[1; 50_000]);
    set(&room.path("old"), "user.old", b"yes");
    set(&room.path("old"), ACCESS, &list(&[(1, 6, 0), (2, 7, 1234), (4, 4, 0), (16, 7, 0), (32, 0, 0)]));
    file("new", b"short");
    fs::set_permissions(room.path("new"), fs::Permissions::from_mode(0o600)).unwrap();
    let inside = format!("{image}:/file");
    joulefs(&["cp", &room.text("old"), &inside]);
    joulefs(&["cp", &room.text("new"), &inside]);
    fs::copy(room.path("old"), room.path("back")).unwrap();
    set(&room.path("back"), "user.old", b"yes");
    joulefs(&["cp", &inside, &room.text("back")]);
    let of = |name| kept(&room.path(""), &[PathBuf::from(name)]).remove(0);
    assert_eq!(of("back"), Kept { same_as: "back".into(), ..of("new") });
    assert_sound(&image);
}

/// Run by an ordinary user, who cannot change owners.
#[test]
fn a_copy_with_another_owner_is_not_set_uid() {
    if !is_root() {
        return testlog::missing("root, to become another user");
    }
    use std::os::unix::process::CommandExt;
    let room = Room::new();
    let nobody = 65_534;
    let tree = room.path("in");
    fs::create_dir(&tree).unwrap();
    for (name, owner) in [("roots", 0), ("own", nobody)] {
        fs::write(tree.join(name), b"a program").unwrap();
        lchown(tree.join(name), Some(owner), Some(owner)).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o6755)).unwrap();
    }
    let image = room.path("v.img").display().to_string();
    joulefs(&["mkfs", &image, "--size", "64M"]);
    joulefs(&["cp", "-r", &tree.display().to_string(), &format!("{image}:/")]);
    let (out, mine) = (room.path("out"), room.path("mine.img"));
    fs::create_dir(&out).unwrap();
    lchown(&out, Some(nobody), Some(nobody)).unwrap();
    fs::set_permissions(room.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    joulefs(&["mkfs", &mine.display().to_string(), "--size", "64M"]);
    lchown(&mine, Some(nobody), Some(nobody)).unwrap();
    // At a place where `nobody` may execute it. Copied by another process: a concurrently forked child of another test
    // would inherit a writable descriptor, and a program open for writing cannot be executed.
    let program = room.path("joulefs");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_joulefs")).arg(&program).status().unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = |from: &str, to: &str| {
        let done = Command::new(&program).args(["cp", "-r", from, to]).uid(nobody).gid(nobody).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    copy(&format!("{image}:/in"), &out.display().to_string());
    let mode = |name: &str| fs::metadata(out.join("in").join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("roots"), mode("own")), (0o755, 0o6755));
    // Into an image as well.
    copy(&tree.display().to_string(), &format!("{}:/", mine.display()));
    let listing = ["ls", "-l", &format!("{}:/in", mine.display())];
    let listed = Command::new(env!("CARGO_BIN_EXE_joulefs")).args(listing).output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line =
        |name: &str| text.lines().find(|l| l.ends_with(name)).unwrap_or_else(|| panic!("{name}: {text}")).to_owned();
    assert!(line("roots").starts_with("-rwxr-xr-x") && line("own").starts_with("-rwsr-sr-x"), "{text}");
}
