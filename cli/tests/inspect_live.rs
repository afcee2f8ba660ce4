//! Inside a running Linux, `joulefs inspect` reports the same about a mounted directory as about its image afterwards,
//! and the printed script works there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use judges::oracle::kernel::{Kernel, KernelRun, ZEROES};
use judges::oracle::linux::Linux;
use judges::oracle::tools::{Mkfs, locate};
use serde_json::Value;

/// Files that grow alternately.
const GROW: &str = r#"
mkdir -p data/com.example.chat
chat="data/com.example.chat/it's a \$(name).db"
for i in $(seq 0 39); do
    echo "5 $((i * 5)) $chat"; echo "sync - $chat"
    echo "3 $((i * 3)) other"; echo "sync - other"
    echo "2 0 small$i"
done | zeroes
rm $(seq -f small%g 0 2 39)
sync
sync
"#;

fn kernel() -> Kernel {
    let kernel = Kernel::new().program("joulefs", env!("CARGO_BIN_EXE_joulefs"));
    let kernel = kernel.program("filefrag", locate("filefrag", "e2fsprogs"));
    kernel.program("e4defrag", locate("e4defrag", "e2fsprogs")).program("f2fs_io", locate("f2fs_io", "f2fs-tools"))
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(text)))
}

fn of_image(image: &Path) -> Value {
    let mut ran = Command::new(env!("CARGO_BIN_EXE_joulefs"));
    ran.args(["--json", "inspect"]).arg(image).args(["--worst", "100", "--extents"]);
    json(&ran.output().unwrap().stdout)
}

fn out(run: &KernelRun, name: &str) -> Vec<u8> {
    fs::read(run.out().join(name)).unwrap()
}

/// Extents by file name and position.
fn extents(report: &Value) -> Vec<(String, Value)> {
    let end = |f: &Value| f["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let mut all: Vec<_> =
        report["worst"].as_array().unwrap().iter().map(|f| (end(f), f["extent_list"].clone())).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

const LOOK: &str = "joulefs --json inspect $PWD --whole --worst 100 --extents > $OUT/live\n";

/// Inspects a volume without pending writes (mounted read-only): reading a directory changes its access time, and ext4
/// reserves blocks for growing files.
fn looked_at(kind: &str, image: &Path) -> (Value, Value) {
    let mount = |how: &str| format!("mount -t {kind} {how} /dev/$DISK $MNT; cd $MNT\n");
    let script = format!("{ZEROES}{}{GROW}cd /; umount $MNT\n{}{LOOK}cd /; umount $MNT\n", mount(""), mount("-o ro"));
    let run = kernel().fs_type(kind).without_mount().run(image, &script).expect_ok();
    (json(&out(&run, "live")), of_image(image))
}

#[test]
fn a_mounted_f2fs_tells_the_segments_that_its_image_has() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("v.img");
    Mkfs::with_features([] as [&str; 0]).format(&image, 128 << 20).unwrap();
    let (live, still) = looked_at("f2fs", &image);
    assert_eq!(live["file_system"], "f2fs");
    assert!(live["space"].is_object(), "{live:#}");
    for name in ["segments", "free_segments", "valid_blocks", "mean_f", "free_pieces", "partly_valid_segments_by_tenth"]
    {
        assert_eq!(live["space"][name], still["space"][name], "{name}");
    }
    for log in 0..6 {
        for name in ["segments", "full_segments", "valid_blocks", "mean_f"] {
            assert_eq!(live["space"]["logs"][log][name], still["space"]["logs"][log][name], "{log} {name}");
        }
    }
    let (ours, theirs) = (extents(&live), extents(&still));
    assert!(ours.len() >= 2 && ours == theirs, "{ours:?}\n{theirs:?}");
}

#[test]
fn a_mounted_ext4_tells_the_free_space_that_its_image_has() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("v.img");
    fs::File::create(&image).unwrap().set_len(200 << 20).unwrap();
    let made =
        Command::new(locate("mke2fs", "e2fsprogs")).args(["-q", "-t", "ext4", "-b", "4096"]).arg(&image).status();
    assert!(made.unwrap().success());
    let (live, still) = looked_at("ext4", &image);
    assert_eq!(live["file_system"], "ext4");
    for name in ["segments", "valid_blocks", "free_pieces"] {
        assert_eq!(live["space"][name], still["space"][name], "{name}");
    }
    assert_eq!(extents(&live), extents(&still));
    assert_eq!(live["all"]["extents"], still["all"]["extents"]);
}

/// For file systems that preallocate after a file's end, or never overwrite in place: files of one directory that grow
/// in turns, then scattered blocks rewritten.
const TEAR: &str = r#"
cd data/com.example.chat
for i in $(seq 40 79); do for f in *.db beside; do echo "5 $((i * 5)) $f"; echo "sync - $f"; done; done | zeroes
for i in $(seq 0 3 390); do for f in *.db; do echo "1 $i $f"; echo "sync - $f"; done; done | zeroes
sync
cd ../..
"#;

/// Runs the script as printed; it leaves the files in fewer extents.
fn treated(kernel: Kernel, kind: &str, command: &str, image: &Path) {
    // MNT is the mount point in the guest; a directory's script has whole paths.
    let script = format!(
        "{ZEROES}{GROW}{TEAR}{LOOK}joulefs inspect $PWD --whole --worst 100 --script > $OUT/script
        bash $OUT/script > $OUT/said 2>&1; sync
        joulefs --json inspect $PWD --whole --worst 100 > $OUT/after\n"
    );
    let run = kernel.fs_type(kind).run(image, &script).expect_ok();
    let (before, after) = (json(&out(&run, "live")), json(&out(&run, "after")));
    let excess = |report: &Value| report["verdict"]["excess_extents_of_all"].as_u64().unwrap();
    let said = String::from_utf8_lossy(&out(&run, "said")).into_owned();
    let script = String::from_utf8(out(&run, "script")).unwrap();
    assert!(script.lines().any(|l| l.starts_with(command) && l.contains("it'\\''s a $(name).db'")), "{script}");
    assert_eq!(before["file_system"], kind);
    assert!(excess(&before) > 8, "{kind}: {before:#}");
    assert!(
        excess(&after) * 4 <= excess(&before),
        "{kind}: {} excess extents before, {} after\n{script}\n{said}",
        excess(&before),
        excess(&after)
    );
}

#[test]
fn the_script_of_a_mounted_f2fs_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("v.img");
    Mkfs::with_features([] as [&str; 0]).format(&image, 128 << 20).unwrap();
    treated(kernel(), "f2fs", "f2fs_io defrag_file 0 ", &image);
}

/// An image of `mib` MiB created by a program.
fn made(dir: &Path, mib: u64, program: &str, package: &str, options: &[&str]) -> PathBuf {
    let image = dir.join("v.img");
    fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
    let made = Command::new(locate(program, package)).args(options).arg(&image).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    image
}

#[test]
fn the_script_of_a_mounted_ext4_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(dir.path(), 200, "mke2fs", "e2fsprogs", &["-q", "-t", "ext4", "-b", "4096"]);
    treated(kernel(), "ext4", "e4defrag ", &image);
}

/// Debian's user-mode-linux has neither XFS nor Btrfs.
fn with_all(kernel: Kernel) -> Option<Kernel> {
    match Linux::complete() {
        Ok(linux) => Some(kernel.linux(linux)),
        Err(why) => {
            testlog::missing(why);
            None
        }
    }
}

#[test]
fn the_script_of_a_mounted_xfs_does_what_it_says() {
    let Some(kernel) = with_all(kernel()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let image = made(dir.path(), 400, "mkfs.xfs", "xfsprogs", &["-q"]);
    // Otherwise XFS preallocates after each file's end.
    let kernel = kernel.mount_options("allocsize=4k").program("xfs_fsr", locate("xfs_fsr", "xfsdump"));
    treated(kernel, "xfs", "xfs_fsr ", &image);
}

#[test]
fn the_script_of_a_mounted_btrfs_does_what_it_says() {
    let Some(kernel) = with_all(kernel()) else { return };
    let dir = tempfile::tempdir().unwrap();
    locate("mkfs.btrfs", "btrfs-progs");
    let image = made(dir.path(), 400, concat!(env!("CARGO_MANIFEST_DIR"), "/../judges/mkfs.btrfs"), "btrfs-progs", &[]);
    treated(
        kernel.program("btrfs", locate("btrfs", "btrfs-progs")),
        "btrfs",
        "btrfs filesystem defragment -- ",
        &image,
    );
}
