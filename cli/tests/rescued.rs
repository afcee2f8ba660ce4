//! `joulefs rescue`: what is recovered from images of which everything except the main area was destroyed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use format::inode::{self, RawInode};
use format::superblock::SuperBlock;
use format::{BLOCK, Block, node};
use serde_json::Value;

use crate::program::run;
use crate::room::Room;
use crate::typed::done;

fn bytes(seed: u32, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(2_654_435_761) | 1;
    let step = |_| {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x as u8
    };
    (0..len).map(step).collect()
}

/// The files of a tree by path: kind, mode, times, and contents or target.
fn listing(tree: &Path) -> BTreeMap<String, String> {
    fn walk(top: &Path, dir: &Path, out: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let m = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            let holds = if m.is_dir() {
                walk(top, &path, out);
                String::new()
            } else if m.is_symlink() {
                format!("{:?}", fs::read_link(&path).unwrap())
            } else {
                let held = fs::read(&path).unwrap();
                let sum = held.iter().fold(7u64, |s, &b| s.wrapping_mul(1_099_511_628_211).wrapping_add(b.into()));
                format!("{} bytes {sum:x}", held.len())
            };
            let times = if m.is_dir() { String::new() } else { format!("{}.{}", m.mtime(), m.mtime_nsec()) };
            out.insert(name, format!("{:o} {times} {holds}", m.mode()));
        }
    }
    let mut out = BTreeMap::new();
    walk(tree, tree, &mut out);
    out
}

/// Files of every shape.
fn plant(tree: &Path) {
    fs::create_dir_all(tree.join("many")).unwrap();
    fs::create_dir_all(tree.join("deep/er/still")).unwrap();
    for n in 0..400u32 {
        fs::write(tree.join(format!("many/a_rather_long_name_of_a_file_{n}")), bytes(n, 37 * n as usize)).unwrap();
    }
    fs::write(tree.join("large"), bytes(1, 9_000_001)).unwrap();
    fs::write(tree.join("deep/er/still/small"), b"inside its inode").unwrap();
    fs::write(tree.join("empty"), b"").unwrap();
    symlink("deep/er/still/small", tree.join("arrow")).unwrap();
    symlink("x".repeat(3900), tree.join("long_arrow")).unwrap();
    fs::hard_link(tree.join("large"), tree.join("deep/large_too")).unwrap();
    let holes = File::create(tree.join("holes")).unwrap();
    holes.write_all_at(&bytes(5, 5000), 40 << 20).unwrap();
    holes.set_len(90 << 20).unwrap();
    fs::set_permissions(tree.join("deep/er/still/small"), fs::Permissions::from_mode(0o4711)).unwrap();
    rustix::fs::lsetxattr(tree.join("empty"), "user.long", &[7; 3000], rustix::fs::XattrFlags::empty()).unwrap();
}

/// Zeroes everything before the main area.
fn wipe(image: &Path) {
    let mut all = fs::read(image).unwrap();
    let sb = SuperBlock::check(<&Block>::try_from(&all[..BLOCK]).unwrap()).unwrap();
    all[..sb.main.0 as usize * BLOCK].fill(0);
    fs::write(image, all).unwrap();
}

fn report(args: &[&str]) -> (Option<i32>, Value) {
    let mut all = vec!["--json", "rescue"];
    all.extend(args);
    let out = run(&all);
    let text = String::from_utf8_lossy(&out.stdout);
    let said = serde_json::from_str(&text).unwrap_or_else(|e| {
        panic!("{e}: {text} {}", String::from_utf8_lossy(&out.stderr));
    });
    (out.status.code(), said)
}

/// The files of a report with one state, by path.
fn paths(said: &Value, state: &str) -> Vec<String> {
    let files = said["files"].as_array().unwrap().iter().filter(|f| f["state"] == state && f["directory"] == false);
    files.map(|f| f["path"].as_str().unwrap().to_owned()).collect()
}

/// Creates a volume from a tree, and changes it until the log has wrapped more than once.
fn aged(room: &Room) -> String {
    let (tree, image) = (room.path("in"), room.text("v.img"));
    plant(&tree);
    done(&["mkfs", &image, "--size", "128M", "--features", "modern"]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    let gone = room.path("gone");
    fs::create_dir(&gone).unwrap();
    for round in 0..4u32 {
        for n in 0..10u32 {
            let name = format!("gone_{round}_{n}");
            fs::write(gone.join(&name), bytes(round * 100 + n, 400_000)).unwrap();
            done(&["cp", &gone.join(&name).display().to_string(), &format!("{image}:/in/many")]);
        }
        let changed = tree.join(format!("many/a_rather_long_name_of_a_file_{round}"));
        fs::write(&changed, bytes(round + 1000, 123_456)).unwrap();
        done(&["cp", &changed.display().to_string(), &format!("{image}:/in/many")]);
        for n in 0..10u32 {
            done(&["rm", &format!("{image}:/in/many/gone_{round}_{n}")]);
        }
    }
    // Both trees are compared, so their directories get the same times.
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    image
}

#[test]
fn every_file_of_an_aged_volume_comes_back_from_its_main_area_alone() {
    let room = Room::new();
    let image = aged(&room);
    wipe(&room.path("v.img"));
    let before = fs::read(&image).unwrap();
    let (code, said) = report(&[&image, &room.text("out")]);
    assert_eq!(listing(&room.path("in")), listing(&room.path("out/in")));
    assert_eq!(code, Some(0), "{:?}", said["failed"]);
    assert_eq!(
        (&said["volume_at"], &said["superblock"], &said["cut_short"]),
        (&0.into(), &false.into(), &false.into())
    );
    assert!(!paths(&said, "living").iter().any(|p| p.contains("gone_")), "a deleted file came back as a living one");
    assert_eq!(paths(&said, "unplaced"), Vec::<String>::new());
    let names: Vec<_> = fs::read_dir(room.path("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!names.iter().any(|n| n.as_bytes().starts_with(b"rescue-")), "{names:?}");
    let mut value = [0; 4000];
    let n = rustix::fs::lgetxattr(room.path("out/in/empty"), "user.long", &mut value).unwrap();
    assert_eq!(value[..n], [7; 3000]);
    let ino = |name: &str| fs::metadata(room.path(name)).unwrap().ino();
    assert_eq!(ino("out/in/large"), ino("out/in/deep/large_too"));
    assert!(fs::metadata(room.path("out/in/holes")).unwrap().blocks() < 1000, "holes became zeroes");
    assert!(before == fs::read(&image).unwrap(), "the image was written");
}

#[test]
fn a_volume_is_found_at_any_sector_of_an_image_whose_begin_is_lost() {
    let room = Room::new();
    let image = room.text("v.img");
    plant(&room.path("in"));
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    wipe(&room.path("v.img"));
    let volume = fs::read(&image).unwrap();
    let sector = 512;
    for at in [sector, 63 * sector, 4096 * 77, (1 << 20) + 3 * sector] {
        let mut moved = bytes(9, at);
        moved.extend_from_slice(&volume);
        fs::write(room.path("moved.img"), moved).unwrap();
        let out = format!("out_{at}");
        let (code, said) = report(&[&room.text("moved.img"), &room.text(&out)]);
        assert_eq!(said["volume_at"], at, "{at}");
        assert_eq!(listing(&room.path("in")), listing(&room.path(&out).join("in")), "{at}");
        assert_eq!(code, Some(0), "{at}");
    }
    // The image does not even contain the start of the volume.
    let cut = 3 * (1 << 20) + 5 * sector;
    fs::write(room.path("moved.img"), &volume[cut..]).unwrap();
    let (code, said) = report(&[&room.text("moved.img"), &room.text("out")]);
    assert_eq!((code, &said["volume_at"]), (Some(0), &(-(cut as i64)).into()));
    assert_eq!(listing(&room.path("in")), listing(&room.path("out/in")));
}

#[test]
fn a_volume_that_sload_filled_comes_back() {
    let room = Room::new();
    let (tree, image) = (room.path("in"), room.text("v.img"));
    plant(&tree);
    File::create(&image).unwrap().set_len(300 << 20).unwrap();
    let tool = |program: &str, args: &[&str]| {
        let out = Command::new(program).args(args).output().expect("f2fs-tools are needed");
        assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
    };
    tool("mkfs.f2fs", &["-q", &image]);
    let out = Command::new("sload.f2fs").args(["-f", &room.text("in"), "-t", "/", &image]).output().unwrap();
    assert!(out.stdout.windows(4).any(|w| w == b"Done"), "{}", String::from_utf8_lossy(&out.stdout));
    // The files created by sload.f2fs, with holes, as copied from the intact volume.
    run(&["cp", "-r", &format!("{image}:/"), &room.text("intact")]);
    wipe(&room.path("v.img"));
    let (_, said) = report(&[&image, &room.text("out")]);
    assert_eq!(listing(&room.path("intact")), listing(&room.path("out")), "{said}");
    assert!(room.path("out/large").exists());
}

#[test]
fn a_volume_that_was_never_unmounted_gives_what_was_synced() {
    let room = Room::new();
    let image = aged(&room);
    let disk = device::open_image(Path::new(&image), device::Access::ReadWrite).unwrap();
    let options = f2fs::MountOptions::default();
    let vol = f2fs::Volume::mount(disk, std::sync::Arc::new(device::RealClock::new()), options).unwrap();
    let fs: &dyn vfs::FileSystem = &*vol;
    let caller = vfs::Caller::default();
    let mut sizes = Vec::new();
    for n in 0..30u32 {
        let new = vfs::NewNode { kind: vfs::FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
        let ino = fs.mknod(caller, fs.root(), format!("synced_{n}").as_bytes(), &new).unwrap().attr.ino;
        for round in 0..5 {
            fs.write(ino, 0, &bytes(n + round, 100_000), vfs::WriteFlags::empty()).unwrap();
            if n < 20 {
                fs.fsync(ino, false).unwrap();
            }
        }
        if n == 10 {
            fs.sync().unwrap();
        }
        sizes.push(ino);
    }
    // After a power cut: data handed to the device, without a checkpoint.
    fs::copy(&image, room.path("cut.img")).unwrap();
    drop(vol);
    wipe(&room.path("cut.img"));
    let (_, said) = report(&[&room.text("cut.img"), &room.text("out"), "--doubtful"]);
    assert_eq!(listing(&room.path("in")), listing(&room.path("out/in")), "{said}");
    for n in 0..=10u32 {
        assert!(fs::read(room.path(&format!("out/synced_{n}"))).unwrap() == bytes(n + 4, 100_000), "synced_{n}");
    }
    // Names in no checkpoint, of files whose inode was synced: complete, but without a directory.
    let loose = paths(&said, "unplaced").into_iter().chain(paths(&said, "deleted")).collect::<Vec<_>>();
    for n in 11..20u32 {
        let name = format!("synced_{n}");
        let path = loose.iter().find(|p| p.ends_with(&format!("-{name}"))).unwrap_or_else(|| panic!("{name}: {said}"));
        assert!(fs::read(room.path("out").join(&path[1..])).unwrap() == bytes(n + 4, 100_000), "{name}");
    }
}

#[test]
fn an_image_cut_short_gives_every_file_whose_blocks_are_left() {
    let room = Room::new();
    let image = aged(&room);
    let intact = fs::read(&image).unwrap();
    wipe(&room.path("v.img"));
    let wiped = fs::read(&image).unwrap();
    let whole = listing(&room.path("in"));
    for cut in [30usize << 20, 44 << 20, 60 << 20] {
        // Files with all blocks present: with intact tables and zeroes for the rest, the volume itself returns them.
        let mut short = intact.clone();
        short[cut..].fill(0);
        fs::write(room.path("short.img"), short).unwrap();
        let (there, out) = (room.path(&format!("there_{cut}")), room.path(&format!("out_{cut}")));
        run(&["cp", "-r", &format!("{}:/", room.text("short.img")), &there.display().to_string()]);
        let there = listing(&there);
        fs::write(room.path("cut.img"), &wiped[..cut]).unwrap();
        let (code, said) = report(&[&room.text("cut.img"), &out.display().to_string()]);
        assert_eq!(code, Some(1));
        assert_eq!(said["cut_short"], true);
        let verdicts = said["files"].as_array().unwrap().iter().map(|f| f["verdict"].as_str().unwrap());
        assert!(verdicts.clone().all(|v| v != "proved"), "proved though something newer may be missing");
        let found = listing(&out);
        let mut expected = 0;
        for (path, what) in whole.iter().filter(|(p, what)| there.get(&format!("in/{p}")) == Some(what)) {
            if what.starts_with('4') {
                continue;
            }
            expected += 1;
            let name = path.rsplit('/').next().unwrap();
            let is = |p: &String| p.ends_with(&format!("/{name}")) || p.ends_with(&format!("-{name}"));
            let mut same = found.iter().filter(|(p, _)| is(p));
            assert!(same.any(|(_, held)| held == what), "{cut}: {path} is all there and did not come back");
        }
        println!("cut at {} MiB: {expected} of {} files are whole, and came back", cut >> 20, whole.len());
    }
}

#[test]
fn deleted_files_are_named_as_such_and_come_only_when_asked_for() {
    let room = Room::new();
    let image = room.text("v.img");
    fs::create_dir_all(room.path("in/dir")).unwrap();
    fs::write(room.path("in/dir/kept"), bytes(1, 50_000)).unwrap();
    fs::write(room.path("in/dir/dropped"), bytes(2, 50_000)).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    done(&["rm", &format!("{image}:/in/dir/dropped")]);
    wipe(&room.path("v.img"));
    let (code, said) = report(&[&image, &room.text("out")]);
    assert_eq!((code, paths(&said, "living")), (Some(0), vec!["/in/dir/kept".to_owned()]));
    let deleted = paths(&said, "deleted");
    assert!(deleted.len() == 1 && deleted[0].ends_with("-dropped"), "{deleted:?}");
    assert!(!room.path("out/rescue-deleted").exists());
    report(&[&image, &room.text("all"), "--doubtful"]);
    assert!(fs::read(room.path("all").join(&deleted[0][1..])).unwrap() == bytes(2, 50_000));
    // After its blocks are reused, it is doubtful.
    let out = run(&["rescue", &image, &room.text("all")]);
    assert_eq!(out.status.code(), Some(2), "a directory that is not empty was taken");
    assert_eq!(String::from_utf8_lossy(&out.stderr).lines().count(), 1);
}

#[test]
fn an_image_inside_a_file_is_contents_and_no_volume() {
    let room = Room::new();
    let image = room.text("v.img");
    let tree = room.path("in");
    fs::create_dir_all(&tree).unwrap();
    done(&["mkfs", &room.text("inner.img"), "--size", "56M"]);
    fs::create_dir(room.path("inner")).unwrap();
    for n in 0..200 {
        fs::write(room.path(&format!("inner/nested_{n}")), bytes(n, 5000)).unwrap();
    }
    done(&["cp", "-r", &room.text("inner"), &format!("{}:/", room.text("inner.img"))]);
    fs::copy(room.path("inner.img"), tree.join("an_image")).unwrap();
    for n in 0..300 {
        fs::write(tree.join(format!("outer_{n}")), bytes(n + 500, 3000)).unwrap();
    }
    done(&["mkfs", &image, "--size", "160M"]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    wipe(&room.path("v.img"));
    let (code, said) = report(&[&image, &room.text("out")]);
    assert_eq!(listing(&tree), listing(&room.path("out/in")));
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.to_string().contains("nested_"), "{said}");
}

#[test]
fn hostile_bytes_end_in_a_report_and_write_nothing_elsewhere() {
    let room = Room::new();
    let image = room.text("v.img");
    fs::create_dir_all(room.path("in/sub")).unwrap();
    fs::write(room.path("in/sub/escape_me"), b"out").unwrap();
    fs::write(room.path("in/sub/plain_one"), bytes(3, 30_000)).unwrap();
    symlink("/tmp", room.path("in/sub/arrow")).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    wipe(&room.path("v.img"));
    let clean = fs::read(&image).unwrap();
    let replace = |from: &[u8], to: &[u8]| {
        let mut all = clean.clone();
        let mut at = 0;
        while let Some(n) = all[at..].windows(from.len()).position(|w| w == from) {
            all[at + n..at + n + from.len()].copy_from_slice(to);
            at += n + from.len();
        }
        fs::write(&image, all).unwrap();
    };
    for (n, evil) in [&b"../../ou"[..], b"../escap", b"/scape_m", b"..\0cape_"].into_iter().enumerate() {
        replace(b"escape_m", evil);
        let (_, said) = report(&[&image, &room.text(&format!("out{n}/a/b")), "--doubtful"]);
        let held = listing(&room.path(&format!("out{n}")));
        assert!(held.keys().all(|p| p == "a" || p.starts_with("a/b")), "{held:?}");
        assert!(said["files"].is_array());
    }
    // Random bit flips in nonempty blocks.
    let used: Vec<usize> = (0..clean.len() / BLOCK).filter(|b| clean[b * BLOCK..][..BLOCK] != [0; BLOCK]).collect();
    for seed in 0..16u32 {
        let mut all = clean.clone();
        for (k, pick) in bytes(seed, 64).chunks(4).enumerate() {
            let pick = u32::from_le_bytes(pick.try_into().unwrap()) as usize;
            let at = used[pick % used.len()] * BLOCK + if k % 2 == 0 { pick / 7 % BLOCK } else { pick / 7 % 400 };
            all[at] ^= 1 << (pick % 8);
        }
        fs::write(&image, all).unwrap();
        let out = run(&["--json", "rescue", &image, &room.text(&format!("flip{seed}")), "--doubtful"]);
        assert!(matches!(out.status.code(), Some(0 | 1)), "{seed}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn an_image_without_a_volume_is_one_line() {
    let room = Room::new();
    fs::write(room.path("noise.img"), bytes(1, 4 << 20)).unwrap();
    let out = run(&["rescue", &room.text("noise.img"), &room.text("out")]);
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.lines().count() == 1 && said.contains("no F2FS volume found"), "{said}");
}

/// Changes every block of the inode that records `name`, and updates checksums.
fn change(image: &str, name: &[u8], change: impl Fn(&mut RawInode)) {
    let mut all = fs::read(image).unwrap();
    let sb = SuperBlock::check(<&Block>::try_from(&all[..BLOCK]).unwrap()).unwrap();
    let mut hit = 0;
    for block in all.as_chunks_mut::<BLOCK>().0 {
        let f = node::footer(block);
        if f.nid == f.ino.nid() && f.nid.0 > 3 && RawInode::of(block).name() == name {
            change(RawInode::of_mut(block));
            inode::seal(sb.features, inode::checksum_seed(&sb.uuid), block);
            hit += 1;
        }
    }
    assert!(hit > 0, "no inode of that name");
    fs::write(image, all).unwrap();
}

#[test]
fn what_lies_below_a_directory_in_doubt_is_likely_and_is_copied() {
    let room = Room::new();
    let image = room.text("v.img");
    fs::create_dir_all(room.path("in/dir/below")).unwrap();
    fs::write(room.path("in/dir/below/file"), bytes(1, 50_000)).unwrap();
    fs::write(room.path("in/beside"), bytes(2, 50_000)).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    // Its attributes are in a missing node.
    change(&image, b"dir", |raw| raw.i_xattr_nid = 9999.into());
    wipe(&room.path("v.img"));
    let (code, said) = report(&[&image, &room.text("out")]);
    assert_eq!(code, Some(1));
    let verdict = |path: &str| {
        let files = said["files"].as_array().unwrap();
        files.iter().find(|f| f["path"] == path).unwrap_or_else(|| panic!("{path}: {said}"))["verdict"].clone()
    };
    assert_eq!(verdict("/in/dir"), "doubtful");
    assert_eq!((verdict("/in/dir/below"), verdict("/in/dir/below/file")), ("likely".into(), "likely".into()));
    assert_eq!((verdict("/in"), verdict("/in/beside")), ("proved".into(), "proved".into()));
    assert!(fs::read(room.path("out/in/dir/below/file")).unwrap() == bytes(1, 50_000), "{said}");
    let failed = said["failed"].as_array().unwrap();
    assert!(failed.len() == 1 && failed[0].as_str().unwrap().contains("without its extended attributes"), "{said}");
    // The unreadable attributes may include an access list: only the owner gets access.
    assert_eq!(fs::metadata(room.path("out/in/dir")).unwrap().mode() & 0o7777, 0o700);
}

#[test]
fn an_inline_file_with_a_size_beyond_its_inode_is_not_copied_as_zeroes() {
    let room = Room::new();
    let image = room.text("v.img");
    fs::create_dir(room.path("in")).unwrap();
    fs::write(room.path("in/small"), b"inside its inode").unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    change(&image, b"small", |raw| raw.i_size = (1u64 << 33).into());
    wipe(&room.path("v.img"));
    let (code, said) = report(&[&image, &room.text("out")]);
    let small = said["files"].as_array().unwrap().iter().find(|f| f["path"] == "/in/small").unwrap();
    assert_eq!((code, &small["verdict"]), (Some(1), &"doubtful".into()), "{said}");
    assert!(!room.path("out/in/small").exists());
    report(&[&image, &room.text("all"), "--doubtful"]);
    let held = fs::read_dir(room.path("all/rescue-doubtful")).unwrap().next().unwrap().unwrap();
    assert!(held.metadata().unwrap().blocks() <= 16, "zeroes were written");
}

/// Only root can make device nodes and give files away.
#[test]
fn device_nodes_and_owners_come_back() {
    if !rustix::process::geteuid().is_root() {
        return testlog::missing("root, to make device nodes and give files away");
    }
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let room = Room::new();
    let (image, tree) = (room.text("v.img"), room.path("in"));
    fs::create_dir(&tree).unwrap();
    let node = |name: &str, kind, dev| mknodat(CWD, tree.join(name), kind, Mode::from_raw_mode(0o640), dev).unwrap();
    node("null", FileType::CharacterDevice, makedev(1, 3));
    node("far", FileType::BlockDevice, makedev(259, 400_000));
    node("pipe", FileType::Fifo, 0);
    fs::write(tree.join("theirs"), b"theirs").unwrap();
    std::os::unix::fs::chown(tree.join("theirs"), Some(1234), Some(4_000_000)).unwrap();
    fs::set_permissions(tree.join("theirs"), fs::Permissions::from_mode(0o6755)).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    wipe(&room.path("v.img"));
    done(&["rescue", &image, &room.text("out")]);
    for name in ["null", "far", "pipe", "theirs"] {
        let of = |top: &str| {
            let m = fs::symlink_metadata(room.path(top).join(name)).unwrap();
            (m.mode(), m.rdev(), m.uid(), m.gid(), m.mtime_nsec())
        };
        assert_eq!(of("in"), of("out/in"), "{name}");
    }
}
