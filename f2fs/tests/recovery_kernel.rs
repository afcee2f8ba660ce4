//! Linux replays fsyncs of JouleFS, and JouleFS those of Linux.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Access, FileDevice, Loss, Memory};
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use judges::oracle::kernel::{Ending, Kernel};
use judges::oracle::tools::assert_fsck_clean;
use vfs::{DirEntry, FileSystem, Flow, Ino};

use crate::log_rig::*;

#[test]
fn linux_replays_what_we_synced() {
    for options in [Options::default(), Options::modern()] {
        let dev = power_cut(&formatted(128, &options));
        let vol = mount(dev.clone());
        let root = vol.root();
        let old = new_file(&vol, root, "old");
        write(&vol, old, 0, &pattern(1, 7 << 20));
        vol.sync().unwrap();
        write(&vol, old, 2 << 20, b"rewritten");
        write(&vol, old, 7 << 20, &pattern(2, 20_000));
        vol.fsync(old, false).unwrap();
        for k in 0..6u64 {
            let f = new_file(&vol, root, &format!("new{k}"));
            write(&vol, f, 0, &pattern(k, 1 + (900_000 * k) as usize));
            vol.setxattr(f, b"user.k", &[b'0' + k as u8], vfs::XattrFlags::empty()).unwrap();
            vol.fsync(f, k % 2 == 0).unwrap();
        }
        assert!(vol.counters.fast_fsyncs.load(Relaxed) >= 7);
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        dev.image(Loss::AllLost).save(&image).unwrap();
        let names = ["old", "new0", "new1", "new2", "new3", "new4", "new5"];
        let run = Kernel::new().run(&image, "cp old new? $OUT/").expect_ok();
        run.assert_no_f2fs_complaints();
        for name in names {
            let expected = read_all(&vol, find(&vol, name).unwrap());
            assert!(std::fs::read(run.out().join(name)).unwrap() == expected, "{name}");
        }
        assert_fsck_clean(&image);
        // JouleFS reads Linux's result.
        let dev = Arc::new(Memory::load(&image).unwrap());
        assert_clean(&*dev, "after Linux");
        let vol = mount(dev);
        for k in 0..6u8 {
            let f = find(&vol, &format!("new{k}")).unwrap();
            assert_eq!(vol.getxattr(f, b"user.k").unwrap(), [b'0' + k]);
        }
    }
}

#[test]
fn we_replay_what_linux_synced() {
    for options in [Options::default(), Options::modern()] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        formatted(128, &options).save(&image).unwrap();
        let script = "
            dd if=/dev/urandom of=old bs=1M count=6 2>/dev/null; mkdir d; echo x >gone; sync
            for i in 1 2 3 4 5; do
                dd if=/dev/urandom of=new$i bs=100k count=$((i * 9)) conv=fsync 2>/dev/null
            done
            dd if=/dev/urandom of=old bs=4k count=3 seek=700 conv=notrunc,fsync 2>/dev/null
            dd if=/dev/urandom of=old bs=4k count=30 seek=2000 conv=notrunc,fsync 2>/dev/null
            echo tiny >tiny; sync tiny
            echo inside >d/inside; sync d/inside
            truncate -s 5000 new3; echo end >>new3; sync new3
            for f in old new1 new2 new3 new4 new5 tiny d/inside; do cat $f >$OUT/$(basename $f); done
            echo unsynced >unsynced
        ";
        let run = Kernel::new().ending(Ending::Cut).run(&image, script).expect_ok();
        let before = FileDevice::open(&image, Access::ReadOnly).unwrap();
        assert_clean(&before, "as Linux left it");
        drop(before);
        recovered(&Memory::load(&image).unwrap(), |vol| {
            for name in ["old", "new1", "new2", "new3", "new4", "new5", "tiny"] {
                let expected = std::fs::read(run.out().join(name)).unwrap();
                let found = find(vol, name).unwrap_or_else(|| panic!("{name} was synced and is gone"));
                assert!(read_all(vol, found) == expected, "{name}");
            }
        });
        let dev = Arc::new(Memory::load(&image).unwrap());
        mount(dev.clone()).unmount().unwrap();
        assert_tools_clean(&dev);
    }
}

/// The only directory in the root whose name has this prefix.
fn beside(vol: &Volume, name: &str) -> Option<Ino> {
    let mut found = Vec::new();
    let list = |e: DirEntry<'_>| {
        if e.name.starts_with(format!("{name}.").as_bytes()) {
            found.push(String::from_utf8(e.name.to_vec()).unwrap());
        }
        Flow::Continue
    };
    vol.readdir(vol.root(), 0, &mut { list }).unwrap();
    assert!(found.len() < 2, "{found:?}");
    found.first().and_then(|name| find(vol, name))
}

/// Linux promises such names with nodes alone; its own recovery frees the directories and loses their contents.
#[test]
fn files_linux_synced_under_names_of_directories_are_there_and_so_is_what_the_directories_held() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    formatted(128, &Options::default()).save(&image).unwrap();
    let script = "
        mkdir empty full moved into; echo inside >full/f; mkdir moved/below; echo inside >moved/below/f; sync
        rmdir empty; echo new >empty; sync empty
        rm -r full; echo new >full; sync full
        mv moved elsewhere; echo new >moved; sync moved
        mv into away; echo new >into; sync into; echo inside >away/f; sync away/f
    ";
    Kernel::new().ending(Ending::Cut).run(&image, script).expect_ok();
    let image = Memory::load(&image).unwrap();
    recovered(&image, |vol| {
        for name in ["empty", "full", "moved", "into"] {
            let found = find(vol, name).unwrap_or_else(|| panic!("{name} was synced and is gone"));
            assert!(read_all(vol, found) == b"new\n", "{name}");
        }
        assert_eq!(beside(vol, "empty"), None);
        for (name, below) in [("full", None), ("moved", Some("below")), ("into", None)] {
            let mut dir = beside(vol, name).unwrap_or_else(|| panic!("what {name} held is gone"));
            if let Some(below) = below {
                dir = vol.lookup(dir, below.as_bytes()).unwrap().attr.ino;
            }
            let f = vol.lookup(dir, b"f").unwrap().attr.ino;
            assert!(read_all(vol, f) == b"inside\n", "in {name}");
        }
    });
    let dev = Arc::new(image.fork());
    mount(dev.clone()).unmount().unwrap();
    assert_tools_clean(&dev);
}
