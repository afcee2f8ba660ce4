//! The cost of fsync for a file that was renamed, or had several names, before the mount.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Loss, Memory, PowerCut};
use format::inode::{Advise, RawInode};
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use judges::delta_nodes::Places;
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::assert_fsck_clean;
use vfs::{FileSystem, Ino};

use crate::log_rig::rename;
use crate::log_rig::*;

/// A volume after these changes, unmounted.
fn left(changes: impl FnOnce(&Volume)) -> Memory {
    let dev = Arc::new(formatted(64, &Options::modern()));
    let vol = mount(dev.clone());
    changes(&vol);
    vol.unmount().unwrap();
    assert_tools_clean(&dev);
    dev.fork()
}

fn renamed_over() -> Memory {
    left(|vol| {
        write(vol, new_file(vol, vol.root(), "db"), 0, &pattern(1, 50_000));
        let new = new_file(vol, vol.root(), "db-new");
        write(vol, new, 0, &pattern(2, 60_000));
        vol.fsync(new, false).unwrap();
        rename(vol, "db-new", "db");
    })
}

/// How many of these fsyncs, each after a change, write a checkpoint.
fn checkpoints(vol: &Volume, ino: Ino, fsyncs: u64) -> u64 {
    let before = vol.counters.slow_fsyncs.load(Relaxed);
    for n in 0..fsyncs {
        write(vol, ino, n * 4096, &pattern(n, 5000));
        vol.fsync(ino, n % 2 == 1).unwrap();
    }
    vol.counters.slow_fsyncs.load(Relaxed) - before
}

fn judge_by_linux(dev: &PowerCut, vol: &Volume, name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    dev.image(Loss::AllLost).save(&image).unwrap();
    let run = Kernel::new().run(&image, &format!("cp {name} $OUT/; ls -I lost+found >$OUT/names")).expect_ok();
    run.assert_no_f2fs_complaints();
    assert!(std::fs::read(run.out().join(name)).unwrap() == read_all(vol, find(vol, name).unwrap()));
    assert_eq!(std::fs::read_to_string(run.out().join("names")).unwrap().trim(), name);
    assert_fsck_clean(&image);
}

#[test]
fn a_file_renamed_over_another_before_the_mount_needs_no_checkpoint() {
    let dev = power_cut(&renamed_over());
    let vol = mount(dev.clone());
    let db = find(&vol, "db").unwrap();
    assert_eq!(checkpoints(&vol, db, 4), 0);
    let want = read_all(&vol, db);
    for loss in Loss::PLAIN {
        recovered(&dev.image(loss), |vol| {
            assert!(read_all(vol, find(vol, "db").unwrap()) == want, "{loss}");
            assert!(find(vol, "db-new").is_none());
        });
    }
    assert_tools_clean(&dev.image(Loss::AllLost));
    judge_by_linux(&dev, &vol, "db");
    // The mark is removed permanently.
    vol.unmount().unwrap();
    let vol = mount(dev.clone());
    let db = find(&vol, "db").unwrap();
    assert_eq!(checkpoints(&vol, db, 4), 0);
}

#[test]
fn a_name_that_the_checkpoint_does_not_have_still_needs_one() {
    // Each leaves one file with one name, which roll-forward could not restore.
    let cases: [(&str, fn(&Volume)); 4] = [
        ("renamed", |vol| rename(vol, "db", "moved")),
        ("renamed, and had two names", |vol| {
            rename(vol, "db", "moved");
            vol.link(find(vol, "moved").unwrap(), vol.root(), b"second").unwrap();
            vol.unlink(vol.root(), b"second").unwrap();
        }),
        ("linked, and its first name removed", |vol| {
            vol.link(find(vol, "db").unwrap(), vol.root(), b"moved").unwrap();
            vol.unlink(vol.root(), b"db").unwrap();
        }),
        ("renamed over one just made", |vol| {
            vol.fsync(new_file(vol, vol.root(), "moved"), false).unwrap();
            rename(vol, "db", "moved");
        }),
    ];
    for (case, change) in cases {
        let dev = power_cut(&renamed_over());
        let vol = mount(dev.clone());
        change(&vol);
        let db = find(&vol, "moved").unwrap();
        assert_eq!(checkpoints(&vol, db, 1), 1, "{case}");
        let want = read_all(&vol, db);
        recovered(&dev.image(Loss::AllLost), |vol| {
            assert!(read_all(vol, find(vol, "moved").expect(case)) == want, "{case}");
            assert!(find(vol, "db").is_none(), "{case}");
        });
        // The checkpoint has the name: at most one more is needed to find that out.
        assert_eq!(checkpoints(&vol, db, 5), 0, "{case}");
        judge_by_linux(&dev, &vol, "moved");
    }
}

#[test]
fn a_mark_whose_name_leads_elsewhere_stays() {
    // The recorded name now belongs to another file.
    let base = left(|vol| {
        let f = new_file(vol, vol.root(), "f");
        vol.link(f, vol.root(), b"g").unwrap();
        vol.unlink(vol.root(), b"f").unwrap();
        new_file(vol, vol.root(), "f");
    });
    let f = |vol: &Volume| Ino(find(vol, "g").unwrap().0);
    let ino = f(&mount_copy(&base));
    // Without a lookup its name is unknown.
    let vol = mount(Arc::new(base.fork()));
    assert_eq!(checkpoints(&vol, ino, 3), 3);
    assert_eq!(f(&vol), ino);
    assert_eq!(checkpoints(&vol, ino, 3), 0, "seen under its name");
    vol.unmount().unwrap();
    // Two names stay two names.
    let vol = mount(Arc::new(base.fork()));
    vol.link(f(&vol), vol.root(), b"h").unwrap();
    assert_eq!(checkpoints(&vol, ino, 3), 3);
}

#[test]
fn a_file_that_linux_renamed_over_another_needs_no_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    formatted(64, &Options::modern()).save(&image).unwrap();
    let script = "dd if=/dev/urandom of=db bs=4k count=9 2>/dev/null
        dd if=/dev/urandom of=new bs=4k count=12 2>/dev/null; sync; mv new db";
    Kernel::new().run(&image, script).expect_ok();
    let dev = power_cut(&Memory::load(&image).unwrap());
    let vol = mount(dev.clone());
    let db = find(&vol, "db").unwrap();
    let left = dev.image(Loss::AllLost);
    let block = Places::of(&left).node(&left, format::Nid(db.0 as u32));
    let raw = RawInode::of(&block);
    assert_eq!(
        (raw.advise().contains(Advise::LOST_PINO), raw.name()),
        (true, &b"new"[..]),
        "Linux leaves the old name"
    );
    assert_eq!(checkpoints(&vol, db, 4), 0);
    judge_by_linux(&dev, &vol, "db");
}
