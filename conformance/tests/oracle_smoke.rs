//! Tests the checkers themselves: they accept good images, detect bad ones, and agree with each other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use judges::memfs::MemFs;
use judges::oracle::kernel::{Ended, Ending, Kernel};
use judges::oracle::tools::{self, Mkfs, Sload, assert_fsck_clean, fsck};
use judges::oracle::tree::{Listing, assert_same, difference, of_host, of_vfs};
use judges::zoo::{Size, in_process, on_path, plan};

const MIB: u64 = 1 << 20;

/// A new image of `mib` MiB in a directory that is removed with the first value.
fn image(mib: u64, mkfs: &Mkfs) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("volume.img");
    mkfs.format(&image, mib * MIB).expect("mkfs.f2fs formats");
    (dir, image)
}

fn kernel() -> Kernel {
    Kernel::new().program("treelist", env!("CARGO_BIN_EXE_treelist")).program("zoo", env!("CARGO_BIN_EXE_zoo"))
}

fn listing(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_kernel_holds_the_zoo_and_every_judge_is_content() {
    let (dir, image) = image(160, &Mkfs::default());
    let run =
        kernel().run(&image, "zoo . 1 small; treelist . >$OUT/in-kernel; cat /proc/mounts | grep $MNT").expect_ok();
    run.assert_no_f2fs_complaints();
    assert!(run.stdout.contains("f2fs"), "{}", run.stdout);
    let verdict = assert_fsck_clean(&image);
    assert!(verdict.unmounted(), "{:?}", verdict.checkpoint_state);

    // The same plan on the host's own file system gives the same tree.
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).expect("a directory");
    on_path::perform(&tree, &plan(1, Size::Small)).expect("the zoo on the host");
    let on_host = of_host(&tree, Listing::default()).expect("a listing");
    let in_kernel = listing(&run.out().join("in-kernel"));
    assert!(in_kernel.lines().count() > 1000);
    assert_same(("kernel", &in_kernel), ("host", &on_host));
}

/// Without the lines about access lists that [`MemFs`] handles more simply than Linux: inherited ones, and those
/// equivalent to the mode.
fn without_fine_points_of_acls(listing: &str) -> String {
    let fine = |l: &&str| !l.starts_with("/acl/default/") && !l.starts_with("/acl/no-more-than-a-mode ");
    listing.lines().filter(fine).map(|l| format!("{l}\n")).collect()
}

#[test]
fn the_zoo_in_process_is_the_zoo_by_system_calls() {
    let plan = plan(7, Size::Small);
    let memory = MemFs::new(1 << 40);
    in_process::perform(&memory, &plan).expect("the zoo in memory");
    let in_memory = of_vfs(&memory, Listing::default()).expect("a listing");
    let dir = tempfile::tempdir().expect("a temporary directory");
    on_path::perform(dir.path(), &plan).expect("the zoo on the host");
    let on_host = of_host(dir.path(), Listing::default()).expect("a listing");
    assert_same(("memory", &without_fine_points_of_acls(&in_memory)), ("host", &without_fine_points_of_acls(&on_host)));
}

#[test]
fn what_was_synced_before_a_cut_is_recovered_and_fsck_sees_no_clean_unmount() {
    let (_dir, image) = image(100, &Mkfs::default());
    let script = "echo old >kept; sync; echo new >>kept; echo more >fsynced; sync kept fsynced";
    let run = kernel().ending(Ending::Cut).run(&image, script).expect_ok();
    assert!(!run.unmounted);
    let verdict = fsck(&image);
    assert!(!verdict.unmounted(), "{}", verdict.output);

    let run = kernel().run(&image, "cat kept fsynced").expect_ok();
    assert_eq!(run.stdout, "old\nnew\nmore\n");
    assert!(run.log.iter().any(|l| l.text.contains("recover_")), "{}", run.describe());
    assert!(assert_fsck_clean(&image).unmounted());
}

#[test]
fn a_cut_in_the_middle_of_a_script_ends_it_there() {
    let (_dir, image) = image(64, &Mkfs::default());
    let script = "echo a >a; sync a; mkdir $OUT/acknowledged; sleep 60";
    let after = Duration::from_secs(1);
    let run = kernel().ending(Ending::CutAfter(after)).run(&image, script).expect_ok();
    assert_eq!((run.ended, run.script), (Ended::Cut, None));
    assert!(run.out().join("acknowledged").is_dir());
    let run = kernel().run(&image, "cat a").expect_ok();
    assert_eq!(run.stdout, "a\n");
}

#[test]
fn a_script_that_fails_or_hangs_and_an_image_that_is_none_are_not_ok() {
    let (dir, image) = image(64, &Mkfs::default());
    let run = kernel().run(&image, "false; echo not reached");
    assert!(!run.ok() && run.mounted && run.unmounted);
    assert_eq!((run.script, run.stdout.as_str()), (Some(1), ""));

    let run = kernel().timeout(Duration::from_secs(5)).run(&image, "sleep 1000");
    assert_eq!((run.ok(), run.ended), (false, Ended::TimedOut));

    let zeroes = dir.path().join("zeroes");
    std::fs::write(&zeroes, vec![0; 1 << 20]).expect("a file");
    let run = kernel().run(&zeroes, "true");
    assert!(!run.ok() && !run.mounted);
    assert!(!run.complaints().is_empty(), "{}", run.describe());
}

#[test]
fn a_read_only_kernel_leaves_the_image_alone() {
    let (_dir, image) = image(64, &Mkfs::default());
    let before = std::fs::read(&image).expect("the image");
    let run = kernel().read_only().run(&image, "ls; if touch x; then exit 1; fi").expect_ok();
    run.assert_no_f2fs_complaints();
    assert!(before == std::fs::read(&image).expect("the image"));
}

#[test]
fn fsck_finds_fault_with_a_wrong_link_count_and_a_void_superblock() {
    let (dir, image) = image(64, &Mkfs::default());
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).expect("a directory");
    std::fs::write(tree.join("file"), vec![1; 10_000]).expect("a file");
    Sload::default().fill(&image, &tree).expect("sload.f2fs");
    assert_fsck_clean(&image);
    let good = std::fs::read(&image).expect("the image");

    // Every block that names the root in its footer (nid and ino 3), including old copies: its link count becomes 9.
    let root = [3_u32.to_le_bytes(), 3_u32.to_le_bytes()].concat();
    let mut bad = good.clone();
    for block in bad.chunks_mut(4096).filter(|block| block[4072..4080] == root) {
        block[12] = 9;
    }
    std::fs::write(&image, &bad).expect("the image");
    let verdict = fsck(&image);
    assert!(!verdict.clean() && verdict.output.exit == Some(4), "{}", verdict.output);
    assert!(verdict.complaints.iter().any(|l| l.contains("i_links: 9")), "{}", verdict.output);

    let mut bad = good;
    bad[1024..1028].fill(0);
    std::fs::write(&image, &bad).expect("the image");
    assert!(!fsck(&image).clean());
    assert!(tools::dump_inode(&image, 3).expect("dump.f2fs").text.contains("i_links"));
}

#[test]
fn what_sload_puts_in_the_kernel_reads() {
    let features = ["extra_attr", "inode_checksum", "sb_checksum", "lost_found"];
    let (dir, image) = image(100, &Mkfs::with_features(features));
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("d")).expect("a directory");
    std::fs::write(tree.join("d/large"), vec![7; 5_000_000]).expect("a file");
    std::fs::write(tree.join("small"), "hello").expect("a file");
    Sload::default().fill(&image, &tree).expect("sload.f2fs");
    assert_fsck_clean(&image);
    let run = kernel().run(&image, "treelist --ignore-times . >$OUT/tree; cat small").expect_ok();
    run.assert_no_f2fs_complaints();
    assert_eq!(run.stdout, "hello");
    let what = Listing { ignore_times: true, ..Listing::default() };
    let loaded = listing(&run.out().join("tree"));
    let (below, original) = (
        |text: &str| {
            text.lines()
                .filter(|l| !l.starts_with("/ ") && !l.starts_with("/lost+found "))
                .map(|l| format!("{l}\n"))
                .collect::<String>()
        },
        of_host(&tree, what).expect("listed"),
    );
    assert_same(("loaded", &below(&loaded)), ("original", &below(&original)));
}

#[test]
fn listings_tell_trees_apart() {
    let make = |change: &dyn Fn(&Path)| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, vec![1; 10_000]).expect("a file");
        std::fs::hard_link(&a, &b).expect("a link");
        change(dir.path());
        of_host(dir.path(), Listing { ignore_times: true, ..Listing::default() }).expect("listed")
    };
    let plain = make(&|_| {});
    assert_eq!(plain, make(&|_| {}));
    let changed = make(&|dir| {
        let mut bytes = vec![1; 10_000];
        bytes[9_999] = 2;
        std::fs::write(dir.join("a"), bytes).expect("a file");
    });
    let text = difference(("one", &plain), ("two", &changed), 9).expect("a difference");
    assert!(text.starts_with("1 paths differ") && text.contains("hash="), "{text}");
    let unlinked = make(&|dir| std::fs::remove_file(dir.join("b")).expect("removed"));
    let text = difference(("one", &plain), ("two", &unlinked), 9).expect("a difference");
    assert!(text.contains("only one has it"), "{text}");
}

#[test]
fn a_second_image_is_there_and_mounting_can_be_left_to_the_script() {
    let (dir, first) = image(64, &Mkfs::default());
    let second = dir.path().join("second.img");
    Mkfs::with_features(["extra_attr", "compression"]).format(&second, 64 * MIB).expect("mkfs.f2fs");
    let script = "mkdir /tmp/two; mount -t f2fs /dev/$DISK2 /tmp/two; mount -t f2fs /dev/$DISK $MNT
        echo both | tee $MNT/f >/tmp/two/f; umount $MNT /tmp/two";
    let run = kernel().without_mount().second_image(&second).run(&first, script).expect_ok();
    run.assert_no_f2fs_complaints();
    for image in [&first, &second] {
        assert_fsck_clean(image);
        assert_eq!(kernel().run(image, "cat f").expect_ok().stdout, "both\n");
    }
}
