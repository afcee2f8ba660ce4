//! Copies out of an image are bounded, whatever the image claims: holes stay holes, no more is written than the volume
//! can hold, and the host keeps space free.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use format::inode::{self, Division, RawInode};
use format::superblock::SuperBlock;
use format::{BLOCK, Block, node};

use crate::program::said;
use crate::room::Room;

/// Limit of what a command may write to a file: an unbounded copy fails instead of filling the disk.
const MOST: u64 = 400 << 20;

fn joulefs(args: &[&str]) -> Output {
    let script = format!("ulimit -f {}; exec \"$0\" \"$@\"", MOST / 1024);
    Command::new("bash").args(["-c", &script, env!("CARGO_BIN_EXE_joulefs")]).args(args).output().unwrap()
}

/// The same without that limit, which also applies to a file's length.
fn unlimited(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_joulefs")).args(args).output().unwrap()
}

fn done(args: &[&str]) {
    let out = unlimited(args);
    assert!(out.status.success(), "joulefs {args:?}: {}", said(&out));
}

/// Changes the inodes of all files with a name, and updates their checksums.
fn forge(image: &str, name: &[u8], change: impl Fn(&mut RawInode, Division)) {
    let mut bytes = fs::read(image).unwrap();
    let sb = SuperBlock::check(<&Block>::try_from(&bytes[..BLOCK]).unwrap()).unwrap();
    let mut hit = 0;
    for block in bytes.as_chunks_mut::<BLOCK>().0 {
        let f = node::footer(block);
        if f.nid == f.ino.nid() && f.nid.0 > 3 && RawInode::of(block).name().starts_with(name) {
            let raw = RawInode::of_mut(block);
            let division = raw.divide(sb.features).unwrap();
            change(raw, division);
            inode::seal(sb.features, inode::checksum_seed(&sb.uuid), block);
            hit += 1;
        }
    }
    assert!(hit > 0, "no inode of that name");
    fs::write(image, bytes).unwrap();
}

fn image_of(room: &Room, files: impl IntoIterator<Item = (String, Vec<u8>)>) -> String {
    image_with(room, "64M", files)
}

fn image_with(room: &Room, size: &str, files: impl IntoIterator<Item = (String, Vec<u8>)>) -> String {
    let tree = room.path("in");
    fs::create_dir_all(&tree).unwrap();
    for (name, contents) in files {
        fs::write(tree.join(name), contents).unwrap();
    }
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", size]);
    done(&["cp", "-r", &room.text("in"), &format!("{image}:/")]);
    image
}

/// Disk usage of a file or tree in bytes.
fn taken(path: &Path) -> u64 {
    let m = fs::symlink_metadata(path).unwrap();
    let below = if m.is_dir() { fs::read_dir(path).unwrap().map(|e| taken(&e.unwrap().path())).sum() } else { 0 };
    m.blocks() * 512 + below
}

/// No partial files are left next to the copy.
fn assert_tidy(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with('.'), "{name} was left");
    }
}

#[test]
fn an_inline_file_that_claims_terabytes_is_refused_by_name_and_nothing_is_written() {
    let room = Room::new();
    let image = image_of(&room, [("victim".into(), b"small".to_vec()), ("other".into(), b"other".to_vec())]);
    forge(&image, b"victim", |raw, _| raw.i_size = (5u64 << 40).into());
    let out = joulefs(&["cp", "-r", &format!("{image}:/in"), &room.text("out")]);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("/in/victim: ") && said(&out).contains("inode "), "{}", said(&out));
    assert!(said(&out).contains("5497558138880"), "{}", said(&out));
    assert_eq!(fs::read(room.path("out/other")).unwrap(), b"other");
    assert!(!room.path("out/victim").exists());
    assert_tidy(&room.path("out"));
    for json in [false, true] {
        let mut args = vec!["cat"];
        args.extend(json.then_some("--json"));
        let place = format!("{image}:/in/victim");
        args.push(&place);
        let out = joulefs(&args);
        assert_eq!(out.status.code(), Some(1));
        assert!(out.stdout.len() < 1000, "{} bytes", out.stdout.len());
    }
    joulefs(&["rescue", &image, &room.text("rescued")]);
    assert!(taken(&room.path("rescued")) < 1 << 20);
}

/// An image of 64 MiB with many files that all share one block.
fn multiplied(room: &Room) -> String {
    let image = image_of(room, (0..30).map(|n| (format!("bomb{n}"), vec![7; 4 * BLOCK])));
    forge(&image, b"bomb", |raw, division| {
        let addr = raw.addr(division, 0);
        (0..800).for_each(|n| raw.set_addr(division, n, addr));
        raw.i_size = (800 * BLOCK as u64).into();
    });
    image
}

#[test]
fn files_that_claim_more_contents_than_the_volume_has_are_copied_only_if_asked_for() {
    let room = Room::new();
    let image = multiplied(&room);
    let out = joulefs(&["cp", "-r", &format!("{image}:/in"), &room.text("out")]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(said(&out).lines().count(), 1, "{}", said(&out));
    assert!(said(&out).contains("/in/bomb") && said(&out).contains("64.00 MiB"), "{}", said(&out));
    assert!(said(&out).contains("--really") && said(&out).contains("joulefs fsck"), "{}", said(&out));
    assert!(taken(&room.path("out")) <= 65 << 20, "{}", taken(&room.path("out")));
    assert_tidy(&room.path("out"));
    // Directories are finished, and files are complete.
    let mode = |name: &str| fs::metadata(room.path(name)).unwrap().mode();
    assert_eq!(mode("out"), mode("in"));
    for entry in fs::read_dir(room.path("out")).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().len(), 800 * BLOCK as u64);
    }
    done(&["cp", "--really", "-r", &format!("{image}:/in"), &room.text("all")]);
    assert_eq!(fs::read_dir(room.path("all")).unwrap().count(), 30);
    // Into another image, and with rescue.
    done(&["mkfs", &room.text("w.img"), "--size", "256M"]);
    let out = joulefs(&["cp", "-r", &format!("{image}:/in"), &format!("{}:/", room.text("w.img"))]);
    assert!(out.status.code() == Some(1) && said(&out).contains("--really"), "{}", said(&out));
    joulefs(&["rescue", "--doubtful", &image, &room.text("rescued")]);
    assert!(taken(&room.path("rescued")) <= 65 << 20);
}

#[test]
fn holes_stay_holes_and_cost_nothing() {
    let room = Room::new();
    let sparse = File::create(room.path("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(b"in the midst", 1 << 39).unwrap();
    let image = image_of(&room, [("before".into(), b"before".to_vec())]);
    done(&["cp", &room.text("sparse"), &format!("{image}:/")]);
    let whole = |name: &str| {
        let m = fs::metadata(room.path(name)).unwrap();
        let mut middle = [0; 12];
        File::open(room.path(name)).unwrap().read_exact_at(&mut middle, 1 << 39).unwrap();
        assert_eq!((m.len(), &middle), (1 << 40, b"in the midst"), "{name}");
        assert!(m.blocks() * 512 < 1 << 20, "{name} takes {} KiB", m.blocks() / 2);
    };
    done(&["cp", &format!("{image}:/sparse"), &room.text("copy")]);
    whole("copy");
    let out = unlimited(&["rescue", &image, &room.text("rescued")]);
    assert!(room.path("rescued/sparse").exists(), "{}", said(&out));
    whole("rescued/sparse");
    // Standard output is a file that is written further.
    let cat = |args: &[&str], out: File| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulefs"));
        command.arg("cat").args(args).stdout(out).stderr(Stdio::piped()).output().unwrap()
    };
    let out = File::create(room.path("cat")).unwrap();
    let places = [format!("{image}:/in/before"), format!("{image}:/sparse"), format!("{image}:/in/before")];
    let ran = cat(&places.each_ref().map(|p| &**p), out.try_clone().unwrap());
    assert!(ran.status.success(), "{}", said(&ran));
    std::io::Write::write_all(&mut &out, b"next").unwrap();
    let m = fs::metadata(room.path("cat")).unwrap();
    assert_eq!(m.len(), (1 << 40) + 16);
    assert!(m.blocks() * 512 < 1 << 20);
    let mut end = [0; 10];
    File::open(room.path("cat")).unwrap().read_exact_at(&mut end, (1 << 40) + 6).unwrap();
    assert_eq!(&end, b"beforenext");
    // If holes are impossible, such a file is refused: no zeros are written.
    let append = File::options().append(true).create(true).open(room.path("appended")).unwrap();
    let ran = cat(&[&places[1]], append);
    assert_eq!((ran.status.code(), fs::metadata(room.path("appended")).unwrap().len()), (Some(1), 0));
    let piped = unlimited(&["cat", &places[1]]);
    assert_eq!((piped.status.code(), piped.stdout.len()), (Some(1), 0));
    assert!(said(&piped).contains("1.00 TiB") && said(&piped).contains("--really"), "{}", said(&piped));
}

#[test]
fn cat_writes_no_more_than_the_volume_holds_and_leaves_no_part_of_it() {
    let room = Room::new();
    let image = image_of(&room, [("bomb".into(), vec![7; 4 * BLOCK])]);
    let before = fs::read(&image).unwrap();
    // A file of more than 64 MiB that maps one block, through its own direct nodes.
    done(&["cp", &grown(&room), &format!("{image}:/in/bomb")]);
    assert_ne!(fs::read(&image).unwrap(), before);
    let mut bytes = fs::read(&image).unwrap();
    let mut addr = None;
    for block in bytes.as_chunks_mut::<BLOCK>().0 {
        let f = node::footer(block);
        let is_node = f.nid != f.ino.nid() && (4..64).contains(&f.ino.0) && (4..64).contains(&f.nid.0);
        // Node numbers are small here, addresses are not.
        if is_node && let Some(found) = (0..1018).map(|n| node::word(block, n)).find(|word| *word > 512) {
            let first = *addr.get_or_insert(found);
            (0..1018).for_each(|n| block[n * 4..n * 4 + 4].copy_from_slice(&first.to_le_bytes()));
        }
    }
    assert!(addr.is_some(), "no direct node was found");
    fs::write(&image, bytes).unwrap();
    let out = File::create(room.path("out")).unwrap();
    let script = format!("ulimit -f {}; exec \"$0\" \"$@\"", MOST / 1024);
    let place = format!("{image}:/in/bomb");
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_joulefs"), "cat", &place]);
    let ran = command.stdout(out).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(said(&ran).contains("--really"), "{}", said(&ran));
    assert_eq!(fs::metadata(room.path("out")).unwrap().len(), 0);
}

/// A file with a block for each of thirty direct nodes.
fn grown(room: &Room) -> String {
    let file = File::create(room.path("grown")).unwrap();
    for n in 0..30u64 {
        // The first block of each direct node, with and without inline attributes in the inode.
        file.write_all_at(&[9; BLOCK], (873 + n * 1018) * BLOCK as u64).unwrap();
        file.write_all_at(&[9; BLOCK], (923 + n * 1018) * BLOCK as u64).unwrap();
    }
    file.set_len((1000 + 30 * 1018) * BLOCK as u64).unwrap();
    room.text("grown")
}

#[test]
fn the_host_keeps_room_and_the_file_that_does_not_fit_is_named() {
    let room = Room::new();
    let image = image_with(&room, "128M", (0..12).map(|n| (format!("file{n:02}"), vec![n as u8 + 1; 3 << 20])));
    let script = r#"
        set -e
        mount -t tmpfs -o size=20M none "$2"
        code=0
        "$0" "${@:3}" cp -r "$1:/in" "$2/out" 2> "$2/said" || code=$?
        echo "code $code"
        cat "$2/said"
        echo "free $(stat -f -c '%a %S' "$2")"
        ls -A "$2/out"
        for file in "$2"/out/*; do cmp "$file" "${1%/v.img}/in/${file##*/}" || echo "torn $file"; done
        cat "$1" | head -c 1000000 > /dev/null
        code=0; "$0" cat "$1:/in/file00" "$1:/in/file01" > "$2/cat" 2>> "$2/said" || code=$?
        echo "cat $code $(stat -c %s "$2/cat")"
    "#;
    let mount = room.path("mnt");
    fs::create_dir(&mount).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "bash", "-c", script, env!("CARGO_BIN_EXE_joulefs"), &image]);
    let out = command.arg(&mount).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", said(&out));
    assert!(text.contains("code 1\n"), "{text}");
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("joulefs: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains("/out/file0") && lines[0].contains("host's file system"), "{text}");
    let free = text.lines().find_map(|l| l.strip_prefix("free ")).unwrap();
    let (blocks, size) = free.split_once(' ').unwrap();
    let free = blocks.parse::<u64>().unwrap() * size.parse::<u64>().unwrap();
    assert!((100 << 10..4 << 20).contains(&free), "{free} bytes are free: {text}");
    assert!(!text.contains("torn") && text.contains("file00") && !text.contains(".joulefs"), "{text}");
    assert!(text.contains("cat 1 0\n"), "{text}");
}
