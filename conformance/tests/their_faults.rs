//! Their writer when its own memory, tables or disk fail: we read the result as Linux reads it, and both checkers agree
//! on whether it has errors.
//!
//! Linux injects its own faults (`inject_rate` and `inject_type` below `/sys/fs/f2fs`). Only the kernel that
//! `scripts/install-tools kernel` builds can do that: without it the test is skipped with a message.

use judges::oracle::kernel::{Ending, Kernel};
use judges::oracle::linux::Linux;
use judges::oracle::tools::{Mkfs, fsck};
use judges::oracle::tree;

use crate::rig::*;

/// Names and bits of the faults (`enum` of faults in Linux 6.12's `f2fs.h`), and their rate: one call in this many.
const FAULTS: [(&str, u32, u32); 9] = [
    ("allocating memory", 0x0000_8003, 60),
    ("page cache", 0x0000_000c, 60),
    ("node numbers", 1 << 5, 8),
    ("orphans", 1 << 6, 4),
    ("blocks", 1 << 7, 20),
    ("evicting inodes", 1 << 9, 5),
    ("reading", 1 << 11, 10),
    ("checkpoints", 1 << 12, 3),
    ("writing", 1 << 14, 40),
];

/// Creates, changes, renames and removes files; a failure does not stop the next operation.
const WORK: &str = r#"
    try() { "$@" >/dev/null 2>&1 || true; }
    try mkdir a b c; i=0
    while [ $i -lt 120 ]; do
        try dd if=/dev/urandom of=a/$i bs=1500 count=$((i % 9 + 1))
        try mkdir b/$i; try ln a/$i b/$i/again; try ln -s a/$i c/$i
        [ $((i % 4)) = 0 ] && try mv a/$i c/moved$i
        [ $((i % 5)) = 0 ] && try rm -r b/$((i / 2))
        [ $((i % 6)) = 0 ] && try truncate -s $((i * 700)) a/$((i / 3))
        [ $((i % 10)) = 0 ] && try dd if=/dev/zero of=a/large bs=4096 seek=$((i * 40)) count=20 conv=notrunc,fsync
        [ $((i % 25)) = 0 ] && try sync && echo 3 >/proc/sys/vm/drop_caches
        [ $((i % 12)) = 0 ] && try cat a/* c/*
        i=$((i + 1))
    done
"#;

/// The result of one fault.
fn judge(name: &str, bits: u32, rate: u32, linux: &Linux) -> Result<String, String> {
    let work = work_dir();
    let image = work.path().join("volume.img");
    Mkfs::default().format(&image, 100 * MIB).map_err(|e| e.to_string())?;
    let before = "mkdir kept; echo kept > kept/file; sync\n";
    let inject = format!(
        "{before}echo {bits} >/sys/fs/f2fs/$DISK/inject_type; echo {rate} >/sys/fs/f2fs/$DISK/inject_rate\n{WORK}"
    );
    let told = Kernel::of(linux.clone()).ending(Ending::Cut).run(&image, &inject);
    if !told.ok() {
        return Err(told.describe());
    }
    let injected = told.log.iter().filter(|line| line.text.contains("inject ")).count();
    if injected == 0 {
        return Err("nothing was injected".into());
    }

    // Linux's own listing, by a kernel without faults.
    let theirs = work.path().join("theirs.img");
    std::fs::copy(&image, &theirs).map_err(|e| e.to_string())?;
    let listing = Kernel::of(linux.clone())
        .program("treelist", env!("CARGO_BIN_EXE_treelist"))
        .run(&theirs, &format!("{TREELIST} >$OUT/tree"));
    let (ours, verdict) = (our_fsck(&image), fsck(&image));
    let sound = (ours.is_clean(), verdict.clean());
    if listing.ok() && sound == (true, true) {
        let linux = printed(listing.out(), "tree");
        let mounted =
            mount_device(std::sync::Arc::new(device::Memory::load(&image).map_err(|e| e.to_string())?), false);
        let ours = list(&*mounted.map_err(|e| format!("Linux mounts it, we do not: {e}"))?);
        let [ours, linux] = [&ours, &linux].map(|text| without_directory_times(text));
        if let Some(how) = tree::difference(("ours", &ours), ("Linux", &linux), 5) {
            return Err(how);
        }
    }
    if sound.0 != sound.1 {
        return Err(format!("our fsck: {ours}\nfsck.f2fs: {}", verdict.output));
    }
    if !sound.0 {
        let dev = device::FileDevice::open(&image, device::Access::ReadWrite).map_err(|e| e.to_string())?;
        ::fsck::repair(&dev, &::fsck::Options::default()).map_err(|e| format!("no repair: {e}\n{ours}"))?;
        if !fsck(&image).clean() {
            return Err(format!("after our repair: {}", fsck(&image).output));
        }
    }
    Ok(format!("{name}: {injected} faults, sound: {}, mounted by Linux: {}", sound.0, listing.ok()))
}

#[test]
fn what_linux_leaves_when_it_is_refused_something_reads_as_linux_reads_it() {
    let linux = match Linux::failing() {
        Ok(linux) => linux,
        Err(why) => return testlog::missing(why),
    };
    let mut failed = Vec::new();
    let results = two_at_a_time(&FAULTS, |(name, bits, rate)| judge(name, *bits, *rate, &linux));
    for ((name, ..), result) in FAULTS.iter().zip(results) {
        match result {
            Ok(what) => println!("{what}"),
            Err(what) => failed.push(format!("{name}: {what}")),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
