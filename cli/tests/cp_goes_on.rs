//! `joulefs cp` reports a file that cannot be copied, and copies the rest.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Output;

use format::node;
use format::{BLOCK, Block};

use crate::program::run;
use crate::room::Room;
use crate::typed::done;

fn lines(out: &Output) -> Vec<String> {
    String::from_utf8_lossy(&out.stderr).lines().map(str::to_owned).collect()
}

/// An image of the tree `in`: a directory of ten files, with another directory in the middle.
fn image(room: &Room) -> String {
    let tree = room.path("in");
    fs::create_dir_all(tree.join("dir/name_5x")).unwrap();
    for n in 0..10 {
        fs::write(tree.join(format!("dir/name_{n}")), vec![n; 10_000]).unwrap();
    }
    fs::write(tree.join("dir/name_5x/below"), b"below").unwrap();
    fs::write(tree.join("last"), b"last").unwrap();
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    image
}

/// Changes every inode block that records `name`.
fn damage(image: &str, name: &[u8], change: impl Fn(&mut Block)) {
    let mut bytes = fs::read(image).unwrap();
    let mut hit = 0;
    for block in bytes.as_chunks_mut::<BLOCK>().0 {
        let f = node::footer(block);
        let raw = format::inode::RawInode::of(block);
        if f.nid == f.ino.nid() && f.nid.0 > 3 && raw.name() == name {
            change(block);
            hit += 1;
        }
    }
    assert!(hit > 0, "no inode of that name");
    fs::write(image, bytes).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let mut out: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    out.sort();
    out
}

#[test]
fn a_damaged_inode_in_the_middle_costs_its_own_file_and_no_other() {
    let room = Room::new();
    let image = image(&room);
    damage(&image, b"name_4", |block| block.fill(0xa5));
    let out = run(&["cp", "-r", &format!("{image}:/"), &room.text("out")]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(lines(&out).len(), 1, "{:?}", lines(&out));
    assert!(lines(&out)[0].starts_with(&format!("joulefs: {image}:/in/dir/name_4: ")), "{:?}", lines(&out));
    let dir = room.path("out/in/dir");
    let rest: Vec<_> = (0..10).filter(|n| *n != 4).collect();
    for n in rest {
        assert_eq!(fs::read(dir.join(format!("name_{n}"))).unwrap(), vec![n; 10_000]);
    }
    assert_eq!(fs::read(dir.join("name_5x/below")).unwrap(), b"below");
    assert_eq!(fs::read(room.path("out/in/last")).unwrap(), b"last");
    assert!(!names(&dir).contains(&"name_4".into()), "half a file was left");
    // Directories are finished: they have the original times.
    let there = |name: &str| fs::metadata(room.path(name)).unwrap().mtime_nsec();
    assert_eq!(there("in/dir"), there("out/in/dir"));
}

/// Points the second of a file's three blocks outside the volume.
fn lose_second_block(image: &str, name: &[u8]) {
    damage(image, name, |block| {
        let raw = format::inode::RawInode::of_mut(block);
        let first = raw.i_addr.iter().position(|a| a.get() > 512).unwrap();
        raw.i_addr[first + 1] = 0x0fff_ffff.into();
    });
}

#[test]
fn a_file_whose_contents_cannot_all_be_read_is_not_there_at_all() {
    let room = Room::new();
    let image = image(&room);
    lose_second_block(&image, b"name_7");
    let out = run(&["--json", "cp", "-r", &format!("{image}:/"), &room.text("out")]);
    assert_eq!(out.status.code(), Some(1));
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let failed = said["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "{said}");
    assert!(failed[0].as_str().unwrap().starts_with(&format!("{image}:/in/dir/name_7: ")), "{said}");
    assert_eq!(names(&room.path("out/in/dir")).len(), 10);
    assert!(!room.path("out/in/dir/name_7").exists());
}

#[test]
fn a_file_that_is_there_stays_if_its_copy_cannot_be_made() {
    let room = Room::new();
    let image = image(&room);
    lose_second_block(&image, b"name_7");
    fs::create_dir_all(room.path("out/dir")).unwrap();
    for n in [6, 7] {
        fs::write(room.path(&format!("out/dir/name_{n}")), b"from before").unwrap();
    }
    let out = run(&["cp", "-r", &format!("{image}:/in/dir"), &room.text("out")]);
    assert_eq!((out.status.code(), lines(&out).len()), (Some(1), 1), "{:?}", lines(&out));
    assert_eq!(fs::read(room.path("out/dir/name_6")).unwrap(), vec![6; 10_000]);
    assert_eq!(fs::read(room.path("out/dir/name_7")).unwrap(), b"from before");
    assert_eq!(names(&room.path("out/dir")).len(), 11, "something was left beside them");
}

#[test]
fn a_directory_whose_attributes_cannot_be_read_is_copied_with_all_below_it() {
    let room = Room::new();
    let image = image(&room);
    let all = fs::read(&image).unwrap();
    let sb = format::superblock::SuperBlock::check(<&Block>::try_from(&all[..BLOCK]).unwrap()).unwrap();
    damage(&image, b"dir", |block| {
        // A missing node.
        format::inode::RawInode::of_mut(block).i_xattr_nid = 999.into();
        format::inode::seal(sb.features, format::inode::checksum_seed(&sb.uuid), block);
    });
    let out = run(&["cp", "-r", &format!("{image}:/"), &room.text("out")]);
    assert_eq!((out.status.code(), lines(&out).len()), (Some(1), 1), "{:?}", lines(&out));
    assert!(lines(&out)[0].contains("/in/dir: copied without its extended attributes: "), "{:?}", lines(&out));
    assert_eq!(names(&room.path("out/in/dir")).len(), 11);
    assert_eq!(fs::read(room.path("out/in/dir/name_5x/below")).unwrap(), b"below");
    // The unreadable attributes may include an access list: only the owner gets access.
    assert_eq!(fs::metadata(room.path("out/in/dir")).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(room.path("out/in")).unwrap().mode() & 0o777, 0o755);
}

#[test]
fn a_directory_that_cannot_be_read_costs_what_is_below_it() {
    let room = Room::new();
    let image = image(&room);
    damage(&image, b"name_5x", |block| block.fill(0xa5));
    let out = run(&["cp", "-r", &format!("{image}:/in"), &room.text("out")]);
    assert_eq!((out.status.code(), lines(&out).len()), (Some(1), 1), "{:?}", lines(&out));
    assert_eq!(names(&room.path("out/dir")).len(), 10);
    assert!(!room.path("out/dir/name_5x").exists(), "an empty directory was left for one that was not read");
}

#[test]
fn one_source_that_is_not_there_does_not_keep_the_others_back() {
    let room = Room::new();
    let image = image(&room);
    fs::create_dir(room.path("out")).unwrap();
    let at = |name: &str| format!("{image}:/in/{name}");
    let out = run(&["cp", &at("dir/name_1"), &at("missing"), &at("dir"), &at("last"), &room.text("out")]);
    let said = lines(&out);
    assert_eq!((out.status.code(), said.len()), (Some(1), 2), "{said:?}");
    assert!(said[0].contains("missing: ") && said[1].contains("is a directory"), "{said:?}");
    assert_eq!(names(&room.path("out")), ["last", "name_1"]);
}

#[test]
fn what_a_volume_has_no_room_for_is_named_and_the_rest_is_there() {
    let room = Room::new();
    let image = room.text("v.img");
    let tree = room.path("in");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("b_large"), vec![1; 80 << 20]).unwrap();
    fs::write(tree.join("a"), b"a").unwrap();
    fs::write(tree.join("c"), b"c").unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    let out = run(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    assert_eq!((out.status.code(), lines(&out).len()), (Some(1), 1), "{:?}", lines(&out));
    assert!(lines(&out)[0].contains("b_large"), "{:?}", lines(&out));
    let list = run(&["ls", &format!("{image}:/in")]);
    assert_eq!(String::from_utf8_lossy(&list.stdout), "a\nc\n");
}

/// A volume with a tree encrypted by Linux (`conformance/fixtures`).
fn phone(room: &Room) -> String {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/fixtures/phone.img.zst");
    let mut bytes = vec![0; 128 << 20];
    let n = ruzstd::decoding::FrameDecoder::new().decode_all(&fs::read(packed).unwrap(), &mut bytes).unwrap();
    fs::write(room.path("phone.img"), &bytes[..n]).unwrap();
    room.text("phone.img")
}

#[test]
fn files_whose_key_is_missing_are_named_and_the_rest_is_copied() {
    let room = Room::new();
    let image = phone(&room);
    fs::write(room.path("plain"), b"plain").unwrap();
    done(&["cp", &room.text("plain"), &format!("{image}:/")]);
    let out = run(&["cp", "-r", &format!("{image}:/"), &room.text("out")]);
    assert_eq!(out.status.code(), Some(1));
    let said = lines(&out);
    let of_files =
        said.iter().filter(|line| line.contains("/enc/") && line.contains("required key not available")).count();
    assert!(of_files > 20, "{said:#?}");
    assert_eq!(fs::read(room.path("out/plain")).unwrap(), b"plain");
    assert_eq!(fs::read(room.path("out/sealed")).unwrap().len(), 30_000);
    // No ciphertext and no partial file is left.
    let mut left = vec![room.path("out/enc")];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            assert!(!kind.is_file(), "{:?}", entry.path());
            left.extend(kind.is_dir().then(|| entry.path()));
        }
    }
    let enc = names(&room.path("out/enc"));
    let file = said.iter().find_map(|line| line.split(": ").find(|part| part.contains("/enc/"))).unwrap().to_owned();
    let out = run(&["cat", &file]);
    assert!(
        out.stdout.is_empty() && !out.status.success() && lines(&out)[0].contains("required key"),
        "{enc:?} {out:?}"
    );
}
