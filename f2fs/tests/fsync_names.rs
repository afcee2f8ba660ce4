//! A new file's fsync must keep its own name without affecting files that gave the name up.
//!
//! Roll-forward puts a synced new file under its name in the tree of the last checkpoint. The owner of that name there
//! may have moved, by a change not yet in a checkpoint; it must not be treated as deleted.

use std::sync::atomic::Ordering::Relaxed;

use device::{Loss, PowerCut};
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use vfs::{FileSystem, Ino, RenameFlags};

use crate::log_rig::rename;
use crate::log_rig::*;

const OLD: [u8; 9000] = [1; 9000];
const NEW: [u8; 5000] = [2; 5000];

/// A volume with a durable file `a` and a durable directory `d` with a file in it; `change` gives up one of the names;
/// then a new file takes the name and is synced. The image has nothing more.
fn name_taken_over(name: &str, change: impl Fn(&Volume, Ino)) -> device::Memory {
    let dev: std::sync::Arc<PowerCut> = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let root = vol.root();
    let a = new_file(&vol, root, "a");
    write(&vol, a, 0, &OLD);
    vol.forget(a, 1);
    let d = vol.mkdir(ROOT, root, b"d", 0o755, 0).unwrap().attr.ino;
    let inside = new_file(&vol, d, "inside");
    write(&vol, inside, 0, &OLD);
    vol.forget(inside, 1);
    vol.sync().unwrap();
    change(&vol, root);
    let new = new_file(&vol, root, name);
    write(&vol, new, 0, &NEW);
    vol.fsync(new, false).unwrap();
    dev.image(Loss::AllLost)
}

fn contents(vol: &Volume, name: &str) -> Option<Vec<u8>> {
    find(vol, name).map(|ino| read_all(vol, ino))
}

#[test]
fn a_file_that_lives_on_under_a_second_name_is_not_displaced_from_its_first() {
    let image = name_taken_over("a", |vol, root| {
        let a = find(vol, "a").unwrap();
        vol.link(a, root, b"b").unwrap();
        vol.unlink(root, b"a").unwrap();
        vol.forget(a, 2);
    });
    recovered(&image, |vol| {
        assert!(contents(vol, "a").expect("the synced file") == NEW);
        assert!(contents(vol, "b").expect("the file that had a name all the time") == OLD);
    });
}

#[test]
fn nor_is_one_that_was_moved_and_then_got_a_second_name() {
    let image = name_taken_over("a", |vol, root| {
        rename(vol, "a", "b");
        let a = find(vol, "b").unwrap();
        vol.link(a, root, b"c").unwrap();
        vol.forget(a, 2);
    });
    recovered(&image, |vol| {
        assert!(contents(vol, "a").expect("the synced file") == NEW);
        assert!(contents(vol, "b").expect("the moved file") == OLD);
    });
}

#[test]
fn a_synced_file_under_the_old_name_of_a_moved_directory_is_there_and_so_is_the_directory() {
    let image = name_taken_over("d", |vol, _| rename(vol, "d", "e"));
    recovered(&image, |vol| {
        assert!(contents(vol, "d").expect("the synced file") == NEW);
        let e = find(vol, "e").expect("the moved directory");
        assert!(vol.lookup(e, b"inside").is_ok());
    });
}

#[test]
fn a_synced_file_under_the_name_of_a_removed_directory_is_there() {
    let image = name_taken_over("d", |vol, root| {
        let d = find(vol, "d").unwrap();
        vol.unlink(d, b"inside").unwrap();
        vol.forget(d, 2);
        vol.rmdir(root, b"d").unwrap();
    });
    recovered(&image, |vol| assert!(contents(vol, "d").expect("the synced file") == NEW));
}

#[test]
fn a_synced_file_under_the_name_of_a_directory_that_another_replaced_and_left_is_there() {
    let image = name_taken_over("d", |vol, root| {
        let d = find(vol, "d").unwrap();
        vol.unlink(d, b"inside").unwrap();
        vol.forget(d, 2);
        vol.mkdir(ROOT, root, b"other", 0o755, 0).unwrap();
        rename(vol, "other", "d");
        vol.rmdir(root, b"d").unwrap();
    });
    recovered(&image, |vol| assert!(contents(vol, "d").expect("the synced file") == NEW));
}

#[test]
fn a_new_files_fsync_is_a_checkpoint_only_under_a_name_that_was_given_up_in_its_directory() {
    for (place, name, checkpoints) in [("root", "a", 1), ("root", "x", 1), ("root", "gone", 1), ("root", "y", 1)]
        .into_iter()
        .chain([("root", "new", 0), ("d", "a", 0), ("d", "gone", 0), ("d", "e", 1), ("root", "e", 0)])
    {
        let dev = power_cut(&formatted(64, &Options::default()));
        let vol = mount(dev.clone());
        let root = vol.root();
        let d = vol.mkdir(ROOT, root, b"d", 0o755, 0).unwrap().attr.ino;
        vol.mkdir(ROOT, d, b"e", 0o755, 0).unwrap();
        vol.mkdir(ROOT, root, b"gone", 0o755, 0).unwrap();
        for name in ["a", "x", "y"] {
            write(&vol, new_file(&vol, root, name), 0, &OLD);
        }
        vol.sync().unwrap();
        // `a` and `d/e` move, `x` and `y` exchange names and are removed, `gone` is removed.
        rename(&vol, "a", "b");
        vol.rename(ROOT, (d, b"e"), (root, b"f"), RenameFlags::empty()).unwrap();
        vol.rename(ROOT, (root, b"x"), (root, b"y"), RenameFlags::EXCHANGE).unwrap();
        rename(&vol, "x", "z");
        rename(&vol, "y", "w");
        vol.rmdir(root, b"gone").unwrap();
        let before = vol.counters.checkpoints.load(Relaxed);
        let dir = if place == "d" { d } else { root };
        let new = new_file(&vol, dir, name);
        write(&vol, new, 0, &NEW);
        vol.fsync(new, false).unwrap();
        let written = vol.counters.checkpoints.load(Relaxed) - before;
        assert_eq!(written, checkpoints, "{name} in {place}");
        recovered(&dev.image(Loss::AllLost), |vol| {
            let dir = if place == "d" { find(vol, "d").unwrap() } else { vol.root() };
            let new = vol.lookup(dir, name.as_bytes()).unwrap().attr.ino;
            assert!(read_all(vol, new) == NEW, "{name} in {place}");
            let old = if written == 0 { ["a", "x", "y"] } else { ["b", "z", "w"] };
            assert!(old.iter().all(|old| contents(vol, old).unwrap() == OLD), "{name} in {place}");
        });
    }
}
