//! A phone's volume: encrypted, casefolded and sealed files, changed by Linux and by us in turn.
//!
//! The volumes are made by `mkfs.f2fs -g android`, with case folding and compression. The same scripts run on Linux's
//! mount and on ours, and must print the same ([`FOLDED`], [`LOCKED`]). After we move files that Linux encrypted, Linux
//! reads them with the key; files sealed by fs-verity still verify.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use f2fs::gc::settings::Settings;
use f2fs::{MountError, MountOptions, Volume};
use judges::oracle::kernel::{Ending, Kernel, KernelRun};
use judges::oracle::linux::Linux;
use judges::oracle::tools::{Mkfs, locate};
use judges::oracle::tree::assert_same;
use vfs::{FileSystem, Ino, WriteFlags};

use crate::rig::*;

const PRELUDE: &str = include_str!("prelude.pl");
const FOLDED: &str = include_str!("folded.pl");
const LOCKED: &str = include_str!("locked.pl");
const FILL: &str = include_str!("fill.sh");

/// A kernel with Unicode and fs-verity; without one, prints a message and returns `None`.
fn linux() -> Option<Kernel> {
    match Linux::complete() {
        Ok(linux) => Some(equipped(Kernel::of(linux))),
        Err(why) => {
            testlog::missing(why);
            None
        }
    }
}

/// An image as Android makes it.
fn phone(work: &Path) -> PathBuf {
    let image = work.join("phone.img");
    let mkfs = Mkfs {
        extra: ["-g", "android", "-C", "utf8"].map(String::from).to_vec(),
        ..Mkfs::with_features(["casefold", "compression"])
    };
    mkfs.format(&image, 256 * MIB).expect("mkfs.f2fs formats");
    image
}

/// An encrypted tree made by a kernel that has the ciphers, and its printed checksums; if the kernel lacks them, prints
/// a message and returns `None`.
fn filled(work: &Path) -> Option<(Kernel, PathBuf, String)> {
    let kernel = linux()?;
    let image = phone(work);
    let run = kernel
        .run(&image, &format!("{FILL}\nif ! key >/dev/null 2>$OUT/why; then exit 7; fi\nfill; sums . >$OUT/sums"));
    if run.script == Some(7) {
        testlog::missing(format_args!("a kernel that can encrypt: {}", printed(run.out(), "why").trim()));
        return None;
    }
    let run = run.expect_ok();
    let sums = printed(run.out(), "sums");
    Some((kernel, image, sums))
}

/// Checksums of what Linux reads with the key.
fn sums(kernel: &Kernel, image: &Path, what: &str) -> String {
    let run = kernel.run(image, &format!("{FILL}\nkey >/dev/null; sums {what} >$OUT/sums")).expect_ok();
    assert_no_complaints(&run);
    printed(run.out(), "sums")
}

/// The kernel finds no errors; that quotas must be counted is stated by the volume itself.
#[track_caller]
fn assert_no_complaints(run: &KernelRun) {
    let about_quota = |line: &&str| !line.contains("quota file may be corrupted, skip loading it");
    let complaints: Vec<&str> = run.complaints().into_iter().filter(about_quota).collect();
    assert!(complaints.is_empty(), "{complaints:?}\n{}", run.describe());
}

fn on_linux(kernel: &Kernel, image: &Path, script: &str) -> String {
    let run = kernel
        .run(image, &format!("cat >$TMPDIR/s.pl <<'END'\n{PRELUDE}\n{script}\nEND\nperl $TMPDIR/s.pl $MNT"))
        .expect_ok();
    assert_no_complaints(&run);
    run.stdout.clone()
}

fn on_ours(mount: &OnFuse, script: &str) -> String {
    let out = Command::new(locate("perl", "perl-base"))
        .arg("-e")
        .arg(format!("{PRELUDE}\n{script}"))
        .arg(&mount.root)
        .output()
        .expect("perl runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// `assert_same`, except for the script's own messages.
#[track_caller]
fn assert_answers(ours: &str, linux: &str) {
    let differ = ours.lines().zip(linux.lines()).find(|(a, b)| a != b);
    assert!(
        differ.is_none() && ours.lines().count() == linux.lines().count(),
        "{differ:?}\nours:\n{ours}\nLinux:\n{linux}"
    );
}

#[test]
fn a_folding_directory_answers_as_linux_answers() {
    let Some(kernel) = linux() else { return };
    let (theirs, ours) = (work_dir(), work_dir());
    let image = phone(theirs.path());
    let linux = on_linux(&kernel, &image, FOLDED);
    assert!(linux.lines().count() > 40 && linux.contains("create STRASSE: EEXIST"), "{linux}");
    assert_clean(&image);
    let image = phone(ours.path());
    let mount = OnFuse::mount(ours, image);
    assert_answers(&on_ours(&mount, FOLDED), &linux);
    let (_work, image) = mount.end();
    let mounted = mount_ro(&image);
    let listed = list(&mounted);
    drop(mounted);
    let run = kernel.run(&image, &format!("{TREELIST} >$OUT/tree; cat f/NAME-300 f/soft f/STRASSE")).expect_ok();
    assert_no_complaints(&run);
    assert_same(("ours", &listed), ("Linux", &printed(run.out(), "tree")));
    assert_eq!(run.stdout, "300\nagain\n");
    assert_clean(&image);
}

#[test]
fn a_locked_tree_and_a_sealed_file_answer_as_linux_answers() {
    let theirs = work_dir();
    let Some((kernel, image, _)) = filled(theirs.path()) else { return };
    let ours = work_dir();
    let copy = ours.path().join("copy.img");
    std::fs::copy(&image, &copy).expect("a copy");
    let linux = on_linux(&kernel, &image, LOCKED);
    assert!(linux.contains("create: ENOKEY") && linux.contains("truncate it: EPERM"), "{linux}");
    println!("{linux}");
    let mount = OnFuse::mount(ours, copy);
    assert_answers(&on_ours(&mount, LOCKED), &linux);
    let (_work, copy) = mount.end();
    // Linux reads the remaining files with the key, as on its own volume.
    let rest = sums(&kernel, &copy, ".");
    assert_eq!(rest, sums(&kernel, &image, "."));
    assert!(rest.lines().count() > 15, "{rest}");
    assert_clean(&copy);
}

/// Cleans what the background considers worth cleaning, and moves every file's blocks.
fn move_everything(volume: &Arc<Volume>, files: &[Ino]) -> u64 {
    let settings = Settings { step_blocks: 64, ..volume.cleaning() };
    let mut moved = 0;
    for ino in files {
        let mut at = 0;
        while at < u64::MAX {
            match volume.defragment(*ino, at..u64::MAX, vfs::Moving::Copy) {
                Ok((next, n)) => (at, moved) = (next, moved + n),
                Err(vfs::Error::Invalid(_)) => break,
                Err(e) => panic!("{e}"),
            }
        }
    }
    volume.clean_in_background(&settings).expect("cleaned");
    moved
}

/// Every regular file below a directory.
fn files(volume: &Volume, dir: Ino, out: &mut Vec<Ino>) {
    let mut dirs = Vec::new();
    volume
        .readdir(dir, 0, &mut |e| {
            match e.kind {
                _ if matches!(e.name, b"." | b"..") => {}
                vfs::FileKind::Directory => dirs.push(e.ino),
                vfs::FileKind::Regular => out.push(e.ino),
                _ => {}
            }
            vfs::Flow::Continue
        })
        .expect("listed");
    dirs.iter().for_each(|d| files(volume, *d, out));
}

#[test]
fn what_linux_encrypted_and_sealed_it_reads_after_we_moved_it() {
    let work = work_dir();
    let Some((kernel, image, before)) = filled(work.path()) else { return };
    let volume = mount_rw(&image);
    let mut all = Vec::new();
    files(&volume, volume.root(), &mut all);
    assert!(all.len() > 20);
    // Create and delete large files in between, so that segments become worth cleaning.
    let new = vfs::NewNode { kind: vfs::FileKind::Regular, perm: 0o644, umask: 0, rdev: vfs::DeviceNumber::default() };
    for round in 0..12 {
        let name = format!("filler-{round}");
        let ino = volume.mknod(vfs::Caller::default(), volume.root(), name.as_bytes(), &new).expect("made").attr.ino;
        volume.write(ino, 0, &vec![round; 6 << 20], WriteFlags::empty()).expect("written");
        volume.forget(ino, 1);
        if round > 2 {
            volume.unlink(volume.root(), format!("filler-{}", round - 2).as_bytes()).expect("removed");
        }
        volume.sync().expect("synced");
    }
    let moved = move_everything(&volume, &all);
    assert!(moved > 30, "{moved}");
    unmount(volume);
    let after = sums(&kernel, &image, "enc sealed");
    let same: Vec<&str> = before.lines().filter(|l| !l.contains(" ./filler")).collect();
    let named = |l: &str| l.replace(" ./", " ").replace("  ", " ");
    assert_eq!(after.lines().map(named).collect::<Vec<_>>(), same.iter().map(|l| named(l)).collect::<Vec<_>>());
    assert_clean(&image);
}

/// Every path below a directory.
fn paths_below(volume: &Volume, dir: Ino, path: &str, out: &mut Vec<String>) {
    let mut dirs = Vec::new();
    volume
        .readdir(dir, 0, &mut |e| {
            if !matches!(e.name, b"." | b"..") {
                let path = format!("{path}/{}", String::from_utf8_lossy(e.name));
                if e.kind == vfs::FileKind::Directory {
                    dirs.push((e.ino, path.clone()));
                }
                out.push(path);
            }
            vfs::Flow::Continue
        })
        .expect("listed");
    dirs.iter().for_each(|(dir, path)| paths_below(volume, *dir, path, out));
}

#[test]
fn what_linux_synced_with_the_key_is_recovered_without_it() {
    let work = work_dir();
    let Some((kernel, image, before)) = filled(work.path()) else { return };
    let script = format!(
        "{FILL}\nkey >/dev/null; for d in enc enc/folded enc/many; do for i in 1 2 3; do
             head -c $((i * 9000)) /dev/urandom >$d/New-$i; tool sync $d/New-$i; done; done
         sums enc sealed >$OUT/sums; echo lost >enc/folded/unsynced"
    );
    let run = kernel.clone().ending(Ending::Cut).run(&image, &script).expect_ok();
    let synced = printed(run.out(), "sums");
    assert!(synced.lines().count() == before.lines().count() + 9, "{synced}");
    let copy = work.path().join("copy.img");
    std::fs::copy(&image, &copy).expect("a copy");
    let read_only = mount_ro(&image);
    let seen = list(&read_only);
    drop(read_only);
    let volume = mount_rw(&image);
    assert_same(("read-only", &without_directory_times(&seen)), ("ours", &without_directory_times(&list(&volume))));
    let mut paths = Vec::new();
    paths_below(&volume, volume.root(), "", &mut paths);
    paths.sort();
    unmount(volume);
    // A name shown without the key begins with its hash, which only the inode had.
    let linux = kernel.run(&copy, "find . -mindepth 1 | cut -c 2- | LC_ALL=C sort").expect_ok();
    assert_eq!(paths.join("\n"), linux.stdout.trim_end());
    assert_eq!(sums(&kernel, &image, "enc sealed"), synced);
    let run = kernel
        .run(&image, &format!("{FILL}\nkey >/dev/null; cmp enc/folded/new-3 enc/folded/New-3; ls enc/folded"))
        .expect_ok();
    assert_no_complaints(&run);
    assert_clean(&image);
}

#[test]
fn an_encoding_that_nobody_knows_is_read_and_not_written() {
    let work = work_dir();
    let image = work.path().join("volume.img");
    // Without -C the superblock has no encoding, and Linux refuses the volume.
    Mkfs::with_features(["casefold"]).format(&image, 64 * MIB).expect("mkfs.f2fs formats");
    drop(mount_ro(&image));
    let dev = device::FileDevice::open(&image, device::Access::ReadWrite).expect("opened");
    let refused = Volume::mount(Arc::new(dev), Arc::new(device::RealClock::new()), MountOptions::default());
    assert!(matches!(refused, Err(MountError::CannotWrite { .. })));
}
