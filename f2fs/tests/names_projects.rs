//! A directory whose children inherit its project accepts no names from another project: every result is the same as in
//! Linux.

use std::path::Path;
use std::sync::Arc;

use device::{FileDevice, Memory, RealClock};
use format::superblock::Features;
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::{self, Options};
use judges::oracle::kernel::Kernel;
use vfs::{Error, FileSystem, Ino, RenameFlags};

use crate::log_rig::*;

/// `own` passes on project 42, `free` has it too but does not pass it on, the rest belongs to project 0.
const TREE: &str = "
    mkdir own free other; chattr -p 42 own free; chattr +P own
    echo 1 >own/file; echo 1 >own/kept; mkdir -p own/dir own/full/x
    echo 2 >free/file; chattr -p 42 free/file; echo 3 >other/file; mkdir other/dir; echo 4 >other/file2
    echo 5 >own/changed; chattr -p 7 own/changed
";

/// In sequence, each on the tree left by the previous ones.
const OPERATIONS: &str = "
    link other/file own/new
    rename other/file own/new
    rename other/file own/file
    rename other/dir own/new
    rename other/dir own/full
    rename other/dir own/file
    rename other/file own/dir
    link other/file own/file
    exchange other/file own/file
    exchange own/file other/file
    exchange other/dir own/dir
    exchange own/changed other/file
    rename own/changed own/again
    exchange own/changed own/file
    rename own/changed other/changed
    link free/file own/new
    link own/file own/another
    rename free/file own/moved
    rename own/kept other/kept
    exchange own/file other/kept
    link own/file other/linked
    link own/dir other/folder
    rename own/dir other/moved
    rename other/moved own/dir
    rename own/absent own/new
";

/// Runs an operation in Linux and prints the error number.
const ASK: &str = "perl -e '
    my ($op, $from, $to) = @ARGV;
    my $ok = $op eq \"link\" ? link($from, $to) : $op eq \"rename\" ? rename($from, $to)
        : syscall(316, -100, $from, -100, $to, 2) == 0;
    print $ok ? 0 : $! + 0, \"\\n\"' --";

fn operations() -> impl Iterator<Item = &'static str> {
    OPERATIONS.lines().map(str::trim).filter(|l| !l.is_empty())
}

/// Creates the tree in Linux, copies it, and returns the result of every operation.
fn ask_linux(image: &Path) -> (Memory, Vec<i32>) {
    let mut script = format!(
        "load quota_tree quota_v2
         mount -t f2fs /dev/$DISK $MNT; cd $MNT; {TREE}
         cd /; umount $MNT; cat /dev/$DISK >$OUT/copy; mount -t f2fs /dev/$DISK $MNT; cd $MNT\n"
    );
    operations().for_each(|op| script.push_str(&format!("{ASK} {op}\n")));
    script.push_str("cd /; umount $MNT");
    let run = Kernel::new().without_mount().run(image, &script).expect_ok();
    let copy = Memory::load(run.out().join("copy")).unwrap();
    (copy, run.stdout.lines().map(|l| l.parse().unwrap()).collect())
}

fn at(vol: &Volume, path: &'static str) -> (Ino, &'static [u8]) {
    let (dir, name) = path.split_once('/').unwrap();
    (find(vol, dir).unwrap(), name.as_bytes())
}

fn ask_us(vol: &Volume, op: &'static str) -> Result<(), Error> {
    let words: Vec<&str> = op.split(' ').collect();
    let (from, to) = (at(vol, words[1]), at(vol, words[2]));
    match words[0] {
        "link" => {
            let ino = vol.lookup(from.0, from.1)?.attr.ino;
            vol.link(ino, to.0, to.1).map(drop)
        }
        "rename" => vol.rename(ROOT, from, to, RenameFlags::empty()),
        _ => vol.rename(ROOT, from, to, RenameFlags::EXCHANGE),
    }
}

/// The Linux error number for the errors of these operations.
fn number(answer: &Result<(), Error>) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(Error::NotPermitted(_)) => 1,
        Err(Error::NotFound) => 2,
        Err(Error::Exists) => 17,
        Err(Error::OtherProject) => 18,
        Err(Error::NotDirectory) => 20,
        Err(Error::IsDirectory) => 21,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn names_of_another_project_are_refused_where_linux_refuses_them() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    {
        let dev = FileDevice::create(&image, 64 << 20).unwrap();
        let features = Options::modern().features | Features::PRJQUOTA;
        let options = Options { features, assume_zeroed: true, ..Options::default() };
        mkfs::format(&dev, &RealClock::new(), &options).unwrap();
    }
    let (copy, linux) = ask_linux(&image);
    assert!(linux.iter().filter(|n| **n == 18).count() >= 8, "Linux refused too little: {linux:?}");
    assert_eq!(linux.len(), operations().count());
    let dev = Arc::new(copy);
    let vol = mount(dev.clone());
    for (op, linux) in operations().zip(linux) {
        let ours = ask_us(&vol, op);
        assert_eq!(number(&ours), linux, "{op}: {ours:?}");
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
}
