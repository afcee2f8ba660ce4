//! Linux mounts volumes created by JouleFS, fills them, and leaves them valid.

use device::{FileDevice, RealClock};
use format::superblock::Features;
use joulefs_f2fs::mkfs::{self, Options};
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::assert_fsck_clean;

const MIB: u64 = 1 << 20;

/// Directories of every depth, small and large files, links, attributes, deletions.
const WORK: &str = "
    mkdir -p a/b/c/d && ls -la . >/dev/null
    for i in 0 1 2 3 4 5 6 7 8 9; do for k in 0 1 2 3 4 5 6 7 8 9; do echo $i$k >a/f$i$k; done; done
    dd if=/dev/urandom of=a/b/big bs=64k count=40 conv=fsync 2>/dev/null
    ln a/b/big big2; ln -s a/b link; rm a/f1* a/f3*; sync
    dd if=/dev/zero of=big2 bs=4k count=5 seek=7 conv=notrunc,fsync 2>/dev/null
    test $(ls a | wc -l) = 81; test $(cat a/f77) = 77; stat -f .
";

fn linux_fills(bytes: u64, opts: &Options) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("ours.img");
    {
        let dev = FileDevice::create(&image, bytes).expect("an image file");
        let opts = Options { assume_zeroed: true, ..opts.clone() };
        mkfs::format(&dev, &RealClock::new(), &opts).expect("a volume");
    }
    // Segments of a large volume fill much of the kernel's memory; quotas need modules before the mount.
    let script = format!(
        "load quota_tree quota_v2
         mount -t f2fs /dev/$DISK $MNT; cd $MNT
         {WORK}
         cd /; umount $MNT"
    );
    let run = Kernel::new().memory_mib(1536).without_mount().run(&image, &script).expect_ok();
    run.assert_no_f2fs_complaints();
    assert_fsck_clean(&image);
}

#[test]
fn linux_fills_the_smallest_volume() {
    linux_fills(52 * MIB, &Options::default());
}

#[test]
fn linux_fills_a_modern_volume() {
    linux_fills(64 * MIB, &Options::modern());
}

#[test]
fn linux_fills_a_volume_with_quota_files() {
    let features = Options::modern().features | Features::PRJQUOTA | Features::QUOTA_INO | Features::VERITY;
    let opts = Options { features, root_owner: (1000, 70_000), ..Options::default() };
    linux_fills(64 * MIB, &opts);
}

#[test]
fn linux_fills_a_volume_of_large_sections() {
    let opts = Options { segs_per_sec: 4, secs_per_zone: 2, ..Options::default() };
    linux_fills(512 * MIB, &opts);
}

#[test]
fn linux_fills_a_volume_whose_bitmaps_pass_the_checkpoint_block() {
    linux_fills(4 << 40, &Options::modern());
}

#[test]
fn linux_fills_a_volume_with_a_large_nat_bitmap() {
    linux_fills(1 << 40, &Options { large_nat_bitmap: true, ..Options::default() });
}
