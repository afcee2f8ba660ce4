//! A split sparse image is read from all its pieces, or refused: missing blocks are not read as zeroes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::{run, said};
use crate::room::Room;

/// A tree of files without zeroes, its sparse image, and that image split into `NAME.0`, `NAME.1`, ...; returns the
/// number of pieces.
fn split(room: &Room, name: &str, most: u32) -> usize {
    let tree = room.path("in");
    fs::create_dir_all(&tree).unwrap();
    for n in 0..20u32 {
        let contents: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(n + 3) >> 3 | 1) as u8).collect();
        fs::write(tree.join(format!("file{n}")), contents).unwrap();
    }
    let image = room.text("sparse.img");
    let out = run(&["mkfs", &image, "--from", &room.text("in"), "--sparse"]);
    assert!(out.status.success(), "{}", said(&out));
    let tool = Command::new("simg2simg").args([&image, &room.text(name), &most.to_string()]).output();
    let tool = tool.expect("simg2simg is needed: install the Debian package android-sdk-libsparse-utils");
    assert!(tool.status.success(), "{}", said(&tool));
    let pieces = (0..).take_while(|n| room.path(&format!("{name}.{n}")).exists()).count();
    assert!(pieces >= 2, "{pieces} pieces");
    pieces
}

fn assert_same(room: &Room, copy: &Path) {
    for n in 0..20 {
        let name = format!("file{n}");
        assert!(fs::read(room.path("in").join(&name)).unwrap() == fs::read(copy.join(&name)).unwrap(), "{name}");
    }
}

#[test]
fn pieces_beside_each_other_are_one_image_whichever_is_named() {
    let room = Room::new();
    let pieces = split(&room, "system.img", 1 << 20);
    for n in [0, 1, pieces / 2, pieces - 1] {
        let piece = room.text(&format!("system.img.{n}"));
        let out = run(&["fsck", &piece]);
        assert!(out.status.success(), "{}", said(&out));
        let copy = room.path(&format!("out{n}"));
        let out = run(&["cp", "-r", &format!("{piece}:/"), copy.to_str().unwrap()]);
        assert!(out.status.success(), "{}", said(&out));
        assert_same(&room, &copy);
    }
    // Named like fastboot's pieces.
    for n in 0..pieces {
        fs::rename(room.path(&format!("system.img.{n}")), room.path(&format!("super.img_sparsechunk{}", n + 1)))
            .unwrap();
    }
    let copy = room.path("renamed");
    let first = format!("{}:/", room.text("super.img_sparsechunk1"));
    let out = run(&["cp", "-r", &first, copy.to_str().unwrap()]);
    assert!(out.status.success(), "{}", said(&out));
    assert_same(&room, &copy);
}

#[test]
fn a_piece_alone_is_refused_by_every_command_and_the_next_step_is_named() {
    let room = Room::new();
    let pieces = split(&room, "p", 1 << 20);
    for n in 0..pieces {
        fs::rename(room.path(&format!("p.{n}")), room.path(&format!("piece {n} of p"))).unwrap();
    }
    fs::create_dir(room.path("out")).unwrap();
    let out_dir = room.text("out");
    for n in [0, 1, pieces - 1] {
        let piece = room.text(&format!("piece {n} of p"));
        let (root, file) = (format!("{piece}:/"), format!("{piece}:/file19"));
        let commands: [&[&str]; 7] = [
            &["fsck", &piece],
            &["info", &piece],
            &["inspect", &piece],
            &["ls", &root],
            &["du", &root],
            &["cp", "-r", &root, &out_dir],
            &["cat", &file],
        ];
        for args in commands {
            let out = run(args);
            assert!(!out.status.success(), "{args:?}");
            assert!(said(&out).contains("piece of a split Android sparse image"), "{args:?}: {}", said(&out));
            assert!(said(&out).contains("simg2img PIECE... whole.img"), "{args:?}: {}", said(&out));
            assert!(out.stdout.is_empty(), "{args:?}");
        }
    }
    assert_eq!(fs::read_dir(room.path("out")).unwrap().count(), 0);
}

#[test]
fn a_missing_piece_is_missed_and_rescue_makes_no_zeroes_of_it() {
    let room = Room::new();
    let pieces = split(&room, "p", 1 << 20);
    fs::remove_file(room.path(&format!("p.{}", pieces - 1))).unwrap();
    let out = run(&["fsck", &room.text("p.0")]);
    assert_eq!(out.status.code(), Some(8), "{}", said(&out));
    assert!(said(&out).contains(&format!("{} pieces", pieces - 1)), "{}", said(&out));
    let out = run(&["rescue", &room.text("p.0"), &room.text("rescued")]);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    let mut whole = 0;
    for n in 0..20 {
        let copy = room.path(&format!("rescued/file{n}"));
        if copy.exists() {
            assert!(fs::read(copy).unwrap() == fs::read(room.path(&format!("in/file{n}"))).unwrap(), "file{n}");
            whole += 1;
        }
    }
    assert!((1..20).contains(&whole), "{whole} files came back");
}

#[test]
fn a_whole_image_is_read_alone_though_its_neighbour_has_the_next_number() {
    let room = Room::new();
    split(&room, "p", 64 << 20 >> 4);
    fs::copy(room.path("sparse.img"), room.path("disk.0")).unwrap();
    fs::copy(room.path("sparse.img"), room.path("disk.1")).unwrap();
    let out = run(&["fsck", &room.text("disk.0")]);
    assert!(out.status.success(), "{}", said(&out));
    let out = run(&["cp", "-r", &format!("{}:/", room.text("disk.1")), &room.text("out")]);
    assert!(out.status.success(), "{}", said(&out));
    assert_same(&room, &room.path("out"));
}
