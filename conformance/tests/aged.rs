//! An aged volume is correct: Linux mounts it and finds every file, and `fsck.f2fs` finds no errors.
//! `lab/tests/aging.rs` checks ScherlFS.

use std::sync::Arc;

use device::Fingerprint;
use judges::oracle::tree::{Listing, assert_same, of_vfs};
use sim::aging::{self, Recipe};
use volume::{Kind, MountOptions, Mounted};

use crate::rig::*;

/// Ages a volume in memory and saves it as an image.
fn aged(recipe: &str, bytes: u64, image: &std::path::Path) -> String {
    let (dev, mounted) = prepared(Kind::F2fs, recipe, bytes);
    let tree = list_of(&*mounted.volume());
    mounted.volume().unmount().expect("unmounts");
    dev.save(image).expect("is saved");
    tree
}

fn prepared(kind: Kind, recipe: &str, bytes: u64) -> (Arc<Fingerprint>, Mounted) {
    let dev = Arc::new(Fingerprint::new(bytes / 4096));
    let chain = Recipe::chain(recipe).expect("a built-in recipe");
    let mounted = aging::prepare(kind, dev.clone(), aging::clock(), MountOptions::default(), &chain, 11);
    (dev, mounted.unwrap_or_else(|e| panic!("{kind}, {recipe}: {e}")))
}

/// Everything except the inode map, which belongs to the checkpoint.
fn list_of(volume: &dyn vfs::FileSystem) -> String {
    let all = of_vfs(volume, Listing::of_one_image()).unwrap_or_else(|e| panic!("cannot list: {e}"));
    all.lines().filter(|line| !line.contains(".ifile ")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn linux_mounts_an_aged_volume_and_finds_every_byte() {
    let recipes: &[&str] =
        if deep() { &["full-fragmented", "phone-year", "full", "large-and-small"] } else { &["full-fragmented"] };
    for recipe in recipes {
        let work = work_dir();
        let image = work.path().join("volume.img");
        let ours = aged(recipe, 1024 * MIB, &image);
        assert_clean(&image);
        let run = kernel().run(&image, &format!("{TREELIST} >$OUT/tree")).expect_ok();
        assert!(run.complaints().is_empty(), "{recipe}: {:?}\n{}", run.complaints(), run.describe());
        assert_same(("ours", &ours), ("Linux", &printed(run.out(), "tree")));
        assert_clean(&image);
    }
}

#[test]
fn every_recipe_satisfies_their_fsck() {
    for (recipe, _) in aging::recipe::BUILT_IN {
        let work = work_dir();
        let image = work.path().join("volume.img");
        aged(recipe, 512 * MIB, &image);
        assert_clean(&image);
    }
}
