//! `joulefs fsck --repair`: what it repairs, what it refuses, and its messages.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use format::superblock::SuperBlock;
use format::{BLOCK, Block};

use crate::program::run;
use crate::room::Room;

fn code(out: &Output) -> Option<i32> {
    out.status.code()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned()
}

fn made(room: &Room, features: &str) -> String {
    let image = room.text("v.img");
    let out = run(&["mkfs", &image, "--size", "64M", "--features", features]);
    assert!(out.status.success(), "{}", said(&out));
    image
}

#[test]
fn a_superblock_copy_that_differs_is_restored_though_nothing_else_is_wrong() {
    let room = Room::new();
    // With a checksum, it would be an invalid superblock.
    let image = made(&room, "none");
    // The last byte of the hot extensions: both copies stay valid.
    let file = fs::File::options().read(true).write(true).open(&image).unwrap();
    file.write_all_at(b"x", (BLOCK + format::superblock::OFFSET + 1100) as u64).unwrap();
    let found = run(&["fsck", &image]);
    assert!(code(&found) == Some(0) && said(&found).contains("superblock copies differ"), "{}", said(&found));
    let out = run(&["fsck", "--repair", &image]);
    assert!(code(&out) == Some(1) && said(&out).contains("superblock copy 1 restored"), "{}", said(&out));
    let again = run(&["fsck", "--repair", &image]);
    assert!(code(&again) == Some(0) && !said(&again).contains("differ"), "{}", said(&again));
}

#[test]
fn a_torn_checkpoint_pack_is_written_anew_though_nothing_else_is_wrong() {
    let room = Room::new();
    let image = made(&room, "modern");
    let tree = room.path("in");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), b"contents").unwrap();
    assert!(run(&["cp", "-r", &room.text("in"), &format!("{image}:/")]).status.success());
    let all = fs::read(&image).unwrap();
    let sb = SuperBlock::check(<&Block>::try_from(&all[..BLOCK]).unwrap()).unwrap();
    let version = |pack: usize| {
        let at = (sb.cp.0 as usize + 512 * pack) * BLOCK;
        u64::from_le_bytes(all[at..at + 8].try_into().unwrap())
    };
    let older = usize::from(version(0) > version(1));
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(b"torn", ((sb.cp.0 as usize + 512 * older) * BLOCK) as u64).unwrap();
    let found = run(&["fsck", &image]);
    assert!(code(&found) == Some(0) && said(&found).contains("checkpoint pack"), "{}", said(&found));
    assert_eq!(code(&run(&["fsck", "--repair", &image])), Some(1));
    let again = run(&["fsck", &image]);
    assert!(code(&again) == Some(0) && !said(&again).contains("checkpoint pack"), "{}", said(&again));
    assert_eq!(run(&["cat", &format!("{image}:/in/file")]).stdout, b"contents");
}

/// A damaged volume with a file synced after the last checkpoint.
fn damaged_and_unclean(room: &Room) -> String {
    let image = made(room, "modern");
    let disk = device::open_image(Path::new(&image), device::Access::ReadWrite).unwrap();
    let options = f2fs::MountOptions::default();
    let vol = f2fs::Volume::mount(disk, Arc::new(device::RealClock::new()), options).unwrap();
    let fs: &dyn vfs::FileSystem = &*vol;
    let new = vfs::NewNode { kind: vfs::FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
    let make = |name: &[u8]| {
        let ino = fs.mknod(vfs::Caller::default(), fs.root(), name, &new).unwrap().attr.ino;
        fs.write(ino, 0, &[7; 50_000], vfs::WriteFlags::empty()).unwrap();
        ino
    };
    make(b"kept");
    fs.sync().unwrap();
    let promised = make(b"promised");
    fs.fsync(promised, false).unwrap();
    let cut = room.text("cut.img");
    fs::copy(&image, &cut).unwrap();
    drop(vol);
    // A SIT bit without an owner.
    let all = fs::read(&cut).unwrap();
    let sb = SuperBlock::check(<&Block>::try_from(&all[..BLOCK]).unwrap()).unwrap();
    let file = fs::File::options().write(true).open(&cut).unwrap();
    for second in [false, true] {
        let at = u64::from(sb.sit_block(0, second).0) * BLOCK as u64 + 20 * 74;
        file.write_all_at(&[1, 0, 0x80], at).unwrap();
    }
    cut
}

#[test]
fn a_refusal_to_lose_what_was_synced_says_what_it_is_how_to_save_and_how_to_go_on() {
    let room = Room::new();
    let image = damaged_and_unclean(&room);
    let listed = run(&["fsck", &image]);
    assert!(code(&listed) == Some(4) && said(&listed).contains("\"/promised\""), "{}", said(&listed));
    let before = fs::read(&image).unwrap();
    let out = run(&["fsck", "--repair", &image]);
    let text = said(&out);
    assert_eq!((code(&out), text.lines().count()), (Some(8), 1), "{text}");
    for word in ["--give-up-synced", "--norecovery", "Mount the volume", "1 files were fsynced"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(before == fs::read(&image).unwrap(), "a refused repair wrote");
    let saved = run(&["cp", "-r", "--norecovery", &format!("{image}:/"), &room.text("saved")]);
    assert!(saved.status.success() && fs::read(room.path("saved/kept")).unwrap() == [7; 50_000], "{}", said(&saved));
    let out = run(&["fsck", "--repair", "--give-up-synced", &image]);
    assert!(code(&out) == Some(1) && said(&out).contains("discarded: synced after"), "{}", said(&out));
    let after = run(&["fsck", &image]);
    assert!(code(&after) == Some(0) && !said(&after).contains("synced"), "{}", said(&after));
    assert_eq!(run(&["cat", &format!("{image}:/kept")]).stdout, [7; 50_000]);
}

#[test]
fn a_repair_that_stops_says_what_it_did_before() {
    let room = Room::new();
    let image = damaged_and_unclean(&room);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(b"x", (BLOCK + format::superblock::OFFSET + 1100) as u64).unwrap();
    let copy = room.text("copy.img");
    fs::copy(&image, &copy).unwrap();
    let out = run(&["fsck", "--repair", &image]);
    let text = said(&out);
    assert_eq!((code(&out), text.lines().count()), (Some(8), 2), "{text}");
    assert!(text.contains("repaired: superblock copy 1 restored") && text.contains("--give-up-synced"), "{text}");
    let out = run(&["--json", "fsck", "--repair", &copy]);
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((code(&out), &said["repaired"]), (Some(8), &serde_json::json!(["superblock copy 1 restored"])));
    assert!(said["error"].as_str().unwrap().contains("--give-up-synced"), "{said}");
}

/// A volume whose newest checkpoint includes `late` and has a wrong count with valid checksums; the previous one has
/// only `early`.
fn newest_is_wrong(room: &Room) -> String {
    let image = made(room, "modern");
    for name in ["early", "late"] {
        fs::write(room.path(name), [7; 50_000]).unwrap();
        let out = run(&["cp", &room.text(name), &format!("{image}:/{name}")]);
        assert!(out.status.success(), "{}", said(&out));
    }
    let mut all = fs::read(&image).unwrap();
    let sb = SuperBlock::check(<&Block>::try_from(&all[..BLOCK]).unwrap()).unwrap();
    let start = |pack: usize| (sb.cp.0 as usize + 512 * pack) * BLOCK;
    let head = |all: &[u8], pack: usize| <Block>::try_from(&all[start(pack)..][..BLOCK]).unwrap();
    let version = |pack: usize| format::checkpoint::version(&head(&all, pack)).unwrap_or(0);
    let newest = usize::from(version(1) > version(0));
    let mut bytes = head(&all, newest);
    let blocks = format::checkpoint::pack_blocks(&bytes).unwrap() as usize;
    // The number of user blocks, set below the number in use.
    bytes[8..16].copy_from_slice(&5_u64.to_le_bytes());
    let sum = format::crc::crc32(format::crc::SEED, &bytes[..BLOCK - 4]);
    bytes[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
    for at in [0, blocks - 1] {
        all[start(newest) + at * BLOCK..][..BLOCK].copy_from_slice(&bytes);
    }
    fs::write(&image, &all).unwrap();
    image
}

#[test]
fn a_newest_checkpoint_that_is_wrong_is_never_passed_over_in_silence() {
    let room = Room::new();
    let image = newest_is_wrong(&room);
    let (root, dir, out) = (format!("{image}:/"), room.text("m"), room.text("out"));
    fs::create_dir(&dir).unwrap();
    let commands: [&[&str]; 7] = [
        &["ls", &root],
        &["tree", &root],
        &["stat", &root],
        &["info", &image],
        &["df", &image],
        &["cp", "-r", &root, &out],
        &["mount", &image, &dir],
    ];
    for command in commands {
        let out = run(command);
        let text = said(&out);
        for word in ["valid_block_count", "joulefs fsck --repair", "joulefs rescue", "--checkpoint older"] {
            assert!(!out.status.success() && text.contains(word), "{command:?}: {text}");
        }
    }
    assert_eq!(code(&run(&["fsck", &image])), Some(4));
    // The older one is used only on request, and then nothing is written.
    let before = fs::read(&image).unwrap();
    let older = run(&["ls", "--checkpoint", "older", &root]);
    assert!(
        older.status.success() && said(&older).contains("early") && !said(&older).contains("late"),
        "{}",
        said(&older)
    );
    let read = run(&["cat", "--checkpoint", "older", &format!("{root}early")]);
    assert_eq!(read.stdout, [7; 50_000]);
    let checked = run(&["fsck", "--checkpoint", "older", &image]);
    assert_eq!(code(&checked), Some(0), "{}", said(&checked));
    assert!(before == fs::read(&image).unwrap(), "reading wrote");
    // A repair keeps everything; a repair with the older checkpoint makes that one current.
    let kept = room.text("kept.img");
    fs::copy(&image, &kept).unwrap();
    assert_eq!(code(&run(&["fsck", "--repair", &kept])), Some(1));
    assert_eq!(run(&["cat", &format!("{kept}:/late")]).stdout, [7; 50_000]);
    judges::oracle::tools::assert_fsck_clean(Path::new(&kept));
    let out = run(&["fsck", "--repair", "--checkpoint", "older", &image]);
    assert!(code(&out) == Some(1) && said(&out).contains("discarded"), "{}", said(&out));
    let listed = run(&["ls", &root]);
    assert!(listed.status.success() && said(&listed).contains("early") && !said(&listed).contains("late"));
    judges::oracle::tools::assert_fsck_clean(Path::new(&image));
}

#[test]
fn where_nothing_can_be_repaired_rescue_is_named() {
    let room = Room::new();
    let image = made(&room, "modern");
    let all = fs::read(&image).unwrap();
    let sb = SuperBlock::check(<&Block>::try_from(&all[..BLOCK]).unwrap()).unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    (0..2).for_each(|pack| file.write_all_at(b"torn", ((sb.cp.0 as usize + 512 * pack) * BLOCK) as u64).unwrap());
    let dir = room.text("m");
    fs::create_dir(&dir).unwrap();
    let root = format!("{image}:/");
    let commands: [&[&str]; 4] =
        [&["ls", &root], &["mount", &image, &dir], &["fsck", &image], &["fsck", "--repair", &image]];
    for command in commands {
        let out = run(command);
        assert!(!out.status.success() && said(&out).contains("joulefs rescue"), "{command:?}: {}", said(&out));
    }
}
