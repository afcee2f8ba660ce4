//! `joulefs` commands: files are copied in and out unchanged, and errors are one clear line.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::room::Room;
use crate::theirs;
use crate::typed::{done, joulefs, misused, refused};

fn volume(room: &Room) -> String {
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "64M", "--features", "modern"]);
    image
}

fn assert_fsck_clean(image: &str) {
    done(&["fsck", image]);
    theirs::assert_clean(image);
}

fn same_file(a: &Path, b: &Path) {
    let (x, y) = (fs::symlink_metadata(a).unwrap(), fs::symlink_metadata(b).unwrap());
    assert_eq!(x.mode(), y.mode(), "{a:?}");
    assert_eq!((x.mtime(), x.mtime_nsec()), (y.mtime(), y.mtime_nsec()), "{a:?}");
    assert_eq!(x.nlink() > 1, y.nlink() > 1, "{a:?}");
    if x.is_symlink() {
        assert_eq!(fs::read_link(a).unwrap(), fs::read_link(b).unwrap());
    } else if x.is_file() {
        assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{a:?}");
    }
}

#[test]
fn a_tree_that_goes_in_comes_out_the_same() {
    let room = Room::new();
    let tree = room.path("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    fs::write(tree.join("small"), b"hello").unwrap();
    fs::write(tree.join("sub/large"), vec![0xA5; 3_000_001]).unwrap();
    fs::write(tree.join("sub/deep/empty"), b"").unwrap();
    fs::hard_link(tree.join("small"), tree.join("sub/linked")).unwrap();
    symlink("../small", tree.join("sub/arrow")).unwrap();
    fs::set_permissions(tree.join("small"), fs::Permissions::from_mode(0o640)).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(300 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"far", 200 << 20).unwrap();
    drop(sparse);

    let image = volume(&room);
    done(&["cp", "-r", &room.text("tree"), &format!("{image}:/")]);
    assert_fsck_clean(&image);
    done(&["cp", "-r", &format!("{image}:/tree"), &room.text("back")]);
    for name in ["small", "sub/large", "sub/deep/empty", "sub/linked", "sub/arrow", "sparse", "sub"] {
        same_file(&tree.join(name), &room.path("back").join(name));
    }
    let (a, b) = (room.path("back/small"), room.path("back/sub/linked"));
    assert_eq!(fs::metadata(a).unwrap().ino(), fs::metadata(b).unwrap().ino());
    let blocks = fs::metadata(room.path("back/sparse")).unwrap().blocks();
    assert!(blocks < 1000, "the hole was filled: {blocks} sectors");
}

#[test]
fn names_inside_an_image_are_made_moved_and_removed() {
    let room = Room::new();
    let image = volume(&room);
    let at = |p: &str| format!("{image}:{p}");
    done(&["mkdir", "-p", &at("/a/b/c")]);
    fs::write(room.path("f"), b"text\n").unwrap();
    done(&["cp", &room.text("f"), &at("/a/b")]);
    done(&["mv", &at("/a/b/f"), &at("/a/g")]);
    assert_eq!(done(&["cat", &at("/a/g")]), "text\n");
    assert_eq!(done(&["ls", &at("/a")]), "b\ng\n");
    refused(&["rm", &at("/a")], &["/a", "directory"]);
    refused(&["mkdir", &at("/a")], &["/a", "exists"]);
    refused(&["cat", &at("/nothing")], &["/nothing", "no such file"]);
    done(&["rm", "-r", &at("/a")]);
    assert!(!done(&["ls", &at("/")]).contains('a'));
    assert_fsck_clean(&image);
}

#[test]
fn what_is_no_volume_is_refused_in_one_line() {
    let room = Room::new();
    fs::write(room.path("text"), vec![b'x'; 1 << 20]).unwrap();
    fs::write(room.path("empty"), b"").unwrap();
    for command in ["info", "fsck"] {
        refused(&[command, &room.text("text")], &["text", "not an F2FS volume"]);
        refused(&[command, &room.text("missing")], &["missing"]);
        refused(&[command, &room.text("empty")], &["empty"]);
        refused(&[command, &room.text(".")], &["directory"]);
    }
    misused(&["ls", "/plain/path"], &["/plain/path", "IMAGE:/path"]);
    misused(&["mkfs", &room.text("new.img")], &["--size"]);
    misused(&["mkfs", &room.text("tiny.img"), "--size", "1M"], &["--size 1M"]);
    assert!(!room.path("tiny.img").exists(), "a format that failed leaves no file");
    refused(&["mkfs", &room.text("text")], &["text", "--force"]);
}

#[test]
fn an_image_in_use_is_refused() {
    let room = Room::new();
    let image = volume(&room);
    let held = device::FileDevice::open(&image, device::Access::ReadWrite).unwrap();
    refused(&["mkdir", &format!("{image}:/x")], &["v.img"]);
    refused(&["mkfs", "--force", &image], &["v.img"]);
    drop(held);
    done(&["mkdir", &format!("{image}:/x")]);
}

#[test]
fn machines_get_json() {
    let room = Room::new();
    let image = volume(&room);
    fs::write(room.path("f"), b"12345").unwrap();
    let copied = done(&["--json", "cp", &room.text("f"), &format!("{image}:/f")]);
    let v: serde_json::Value = serde_json::from_str(&copied).unwrap();
    assert_eq!((v["files"].as_u64(), v["bytes"].as_u64()), (Some(1), Some(5)));
    assert!(v["written"]["blocks_written_total"].as_u64().unwrap() > 0);
    let list: serde_json::Value = serde_json::from_str(&done(&["ls", "--json", &format!("{image}:/")])).unwrap();
    let f = list.as_array().unwrap().iter().find(|e| e["name"] == "f").unwrap();
    assert_eq!(f["size"], 5);
    let info: serde_json::Value = serde_json::from_str(&done(&["info", "--json", &image])).unwrap();
    assert_eq!(info["clean_unmount"], true);
    let fsck: serde_json::Value = serde_json::from_str(&done(&["fsck", "--json", &image])).unwrap();
    assert_eq!(fsck["errors"], 0);
    let r = joulefs(&["--json", "info", &room.text("missing")]);
    assert_eq!(r.code, 1);
    assert!(serde_json::from_str::<serde_json::Value>(&r.out).unwrap()["error"].is_string());
}

#[test]
fn a_damaged_volume_is_found_and_repaired() {
    use std::os::unix::fs::FileExt;
    let room = Room::new();
    let image = volume(&room);
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    let r = joulefs(&["fsck", &image]);
    assert_eq!(r.code, 4, "{}{}", r.out, r.err);
    let r = joulefs(&["fsck", "--repair", &image]);
    assert_eq!(r.code, 1, "{}{}", r.out, r.err);
    assert_fsck_clean(&image);
}

#[test]
fn every_command_explains_itself_with_an_example() {
    for c in ["mkfs", "mount", "unmount", "fsck", "info", "ls", "cat", "cp", "rm", "mkdir", "mv"] {
        let text = done(&[c, "--help"]);
        assert!(text.contains("Example"), "{c}");
        assert!(text.contains("Usage: joulefs"), "{c}");
    }
}

#[test]
fn what_a_file_carries_beside_its_contents_comes_back() {
    let room = Room::new();
    let file = room.path("f");
    fs::write(&file, b"x").unwrap();
    let set = Command::new("setfattr").args(["-n", "user.colour", "-v", "blue"]).arg(&file).output();
    assert!(set.expect("setfattr is needed: install the Debian package attr").status.success());
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_times(
            fs::FileTimes::new()
                .set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_007, 123_456_789)),
        )
        .unwrap();
    let image = volume(&room);
    done(&["cp", &room.text("f"), &format!("{image}:/")]);
    done(&["cp", &format!("{image}:/f"), &room.text("back")]);
    same_file(&file, &room.path("back"));
    let get =
        Command::new("getfattr").args(["--only-values", "-n", "user.colour"]).arg(room.path("back")).output().unwrap();
    assert_eq!(get.stdout, b"blue");
}

#[test]
fn a_copy_that_would_eat_its_own_tail_is_refused() {
    let room = Room::new();
    let image = volume(&room);
    let here = room.text(".");
    refused(&["cp", "-r", &here, &format!("{image}:/")], &["v.img", "being written"]);
    misused(&["cp", "-r", &here, &format!("{here}/copy")], &["IMAGE:/path"]);
    fs::create_dir(room.path("d")).unwrap();
    refused(&["cp", &room.text("d"), &format!("{image}:/")], &["directory", "-r"]);
    assert_fsck_clean(&image);
}

#[test]
fn a_tree_is_not_written_through_a_symlink_that_lay_in_its_way() {
    let room = Room::new();
    let image = volume(&room);
    done(&["mkdir", "-p", &format!("{image}:/tree/sub")]);
    fs::write(room.path("f"), b"x").unwrap();
    done(&["cp", &room.text("f"), &format!("{image}:/tree/sub/f")]);
    fs::create_dir(room.path("elsewhere")).unwrap();
    fs::create_dir_all(room.path("out/tree")).unwrap();
    symlink(room.path("elsewhere"), room.path("out/tree/sub")).unwrap();
    refused(&["cp", "-r", &format!("{image}:/tree"), &room.text("out")], &["sub"]);
    assert_eq!(fs::read_dir(room.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_format_that_cannot_be_done_or_was_not_asked_for_leaves_the_file() {
    let room = Room::new();
    let image = volume(&room);
    let before = fs::read(&image).unwrap();
    refused(&["mkfs", &image], &["v.img", "--force"]);
    refused(&["mkfs", &image, "--size", "64M"], &["v.img", "--force"]);
    misused(&["mkfs", &image, "--force", "--size", "much"], &["--size", "much"]);
    misused(&["mkfs", &image, "--force", "--features", "teleport"], &["teleport", "extra_attr"]);
    assert!(before == fs::read(&image).unwrap());
    // Data far from where file systems begin.
    let far = fs::File::create(room.path("far")).unwrap();
    far.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&far, b"treasure", 30 << 20).unwrap();
    refused(&["mkfs", &room.text("far")], &["far", "--force"]);
    done(&["mkfs", &room.text("far"), "--force"]);
    // Blank: no data to lose.
    fs::File::create(room.path("blank")).unwrap().set_len(64 << 20).unwrap();
    done(&["mkfs", &room.text("blank")]);
    assert_fsck_clean(&room.text("blank"));
}

#[test]
fn wrong_usage_is_not_failure() {
    assert_eq!(joulefs(&["mkfs"]).code, 2);
    assert_eq!(joulefs(&["fly"]).code, 2);
    assert_eq!(joulefs(&["mkdir", "--mode", "9", "a.img:/x"]).code, 2);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let room = Room::new();
    let image = volume(&room);
    let tree = room.path("tree");
    fs::create_dir(&tree).unwrap();
    for i in 0..3000 {
        fs::write(tree.join(format!("a-name-that-is-long-enough-to-fill-the-pipe-{i}")), b"").unwrap();
    }
    done(&["cp", "-r", &room.text("tree"), &format!("{image}:/")]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_joulefs"))
        .args(["ls", "-l", &format!("{image}:/tree")])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn a_forced_format_of_an_impossible_size_leaves_the_file_as_it_was() {
    let room = Room::new();
    fs::write(room.path("kept"), b"precious").unwrap();
    misused(&["mkfs", "--force", "--size", "1M", &room.text("kept")], &["--size 1M"]);
    assert_eq!(fs::read(room.path("kept")).unwrap(), b"precious");
}
