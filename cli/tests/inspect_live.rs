//! Inside a running Linux `joulefs inspect` tells of a mounted directory what it tells of the image afterwards, and the
//! script that it prints does there what it says.

use std::fs;
use std::path::Path;
use std::process::Command;

use joulefs_conformance::oracle::kernel::{Kernel, KernelRun};
use joulefs_conformance::oracle::tools::{Mkfs, locate};
use serde_json::Value;

/// Files that grow side by side.
const GROW: &str = r#"
zeroes() { dd if=/dev/zero of="$1" bs=4k count=$2 seek=$3 conv=notrunc 2>/dev/null; }
mkdir -p data/com.example.chat
for i in $(seq 0 39); do
    zeroes "data/com.example.chat/it's a \$(name).db" 5 $((i * 5)); sync data/com.example.chat/*.db
    zeroes other 3 $((i * 3)); sync other
    zeroes small$i 2 0
done
for i in $(seq 0 2 39); do rm small$i; done
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

/// Extents by the end of the path, and by where they lie.
fn extents(report: &Value) -> Vec<(String, Value)> {
    let end = |f: &Value| f["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let mut all: Vec<_> =
        report["worst"].as_array().unwrap().iter().map(|f| (end(f), f["extent_list"].clone())).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

const LOOK: &str = "joulefs --json inspect $PWD --whole --worst 100 --extents > $OUT/live\n";

/// Looks at a volume that nothing is about to be written to: reading a directory changes its time, and ext4 holds blocks
/// for files that grow.
fn looked_at(kind: &str, image: &Path) -> (Value, Value) {
    let mount = |how: &str| format!("mount -t {kind} {how} /dev/ubdb $MNT; cd $MNT\n");
    let script = format!("{}{GROW}cd /; umount $MNT\n{}{LOOK}cd /; umount $MNT\n", mount(""), mount("-o ro"));
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

/// The script is run as it was printed, and leaves the files in fewer extents.
fn treated(kind: &str, image: &Path) {
    // MNT is where the guest has the volume; a directory's script names whole paths.
    let script = format!(
        "{GROW}{LOOK}joulefs inspect $PWD --whole --worst 100 --script > $OUT/script
        bash $OUT/script > $OUT/said 2>&1; sync
        joulefs --json inspect $PWD --whole --worst 100 > $OUT/after\n"
    );
    let run = kernel().fs_type(kind).run(image, &script).expect_ok();
    let (before, after) = (json(&out(&run, "live")), json(&out(&run, "after")));
    let excess = |report: &Value| report["verdict"]["excess_extents_of_all"].as_u64().unwrap();
    let said = String::from_utf8_lossy(&out(&run, "said")).into_owned();
    let script = String::from_utf8(out(&run, "script")).unwrap();
    assert!(script.contains("it'\\''s a $(name).db'"), "{script}");
    assert!(excess(&before) > 20 || kind == "ext4", "{before:#}");
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
    treated("f2fs", &image);
}
