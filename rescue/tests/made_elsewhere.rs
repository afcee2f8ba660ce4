//! Volumes that Linux made and filled are recovered from their main area as they are when mounted.

use std::path::Path;
use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Tag};
use format::BLOCK;
use joulefs_rescue::Options;
use judges::oracle::kernel::{Ending, Kernel};
use judges::oracle::tools::Mkfs;

use crate::rig::{self, found, held, mount_to_read, search, wipe};

fn fixture(name: &str) -> Memory {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/fixtures").join(name);
    let mut bytes = vec![0; 64 << 20];
    let packed = std::fs::read(packed).unwrap();
    let n = ruzstd::decoding::FrameDecoder::new().decode_all(&packed, &mut bytes).unwrap();
    let dev = Memory::new((n / BLOCK) as u64);
    dev.write(Lba(0), &bytes[..n], Tag::default()).unwrap();
    dev
}

/// The tree of the ruined volume equals that of the intact one.
fn comes_back(dev: Memory) -> usize {
    let whole = held(&mount_to_read(Arc::new(dev.fork())));
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    let found = found(&rescue);
    let names = |l: &rig::Listed| l.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&whole), names(&found));
    for (path, is) in &whole {
        assert!(found[path] == *is, "{path}");
    }
    whole.len()
}

#[test]
fn what_linux_compressed_comes_back() {
    assert!(comes_back(fixture("compressed.img.zst")) > 50);
}

#[test]
fn what_linux_put_into_casefolded_directories_comes_back() {
    assert!(comes_back(fixture("casefold.img.zst")) > 700);
}

const SCRIPT: &str = "mkdir -p many deep/er; i=0; while [ $i -lt 300 ]; do echo $i >many/name_$i; i=$((i+1)); done
    dd if=/dev/urandom of=large bs=64k count=90 2>/dev/null; ln large deep/er/also; ln -s ../large deep/link
    dd if=/dev/urandom of=holes bs=4k seek=5000 count=3 2>/dev/null; mknod deep/null c 1 3; mknod deep/disk b 259 4000
    mkfifo deep/pipe; chown 12:34 many/name_7; chmod 4750 many/name_8; sync
    rm many/name_1*; mv many/name_20 deep/moved; dd if=/dev/urandom of=large bs=4k seek=3 count=40 conv=notrunc,fsync 2>/dev/null";

#[test]
fn what_linux_wrote_and_unmounted_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let features = ["extra_attr", "inode_checksum", "sb_checksum", "flexible_inline_xattr", "inode_crtime"];
    for features in [&[][..], &features] {
        Mkfs::with_features(features.iter().copied()).format(&image, 128 << 20).unwrap();
        Kernel::new().run(&image, SCRIPT).expect_ok();
        assert!(comes_back(Memory::load(&image).unwrap()) > 190);
        std::fs::remove_file(&image).unwrap();
    }
}

/// Nothing was replayed yet: a mount of the intact volume replays, rescue takes the newest nodes.
#[test]
fn what_linux_synced_before_the_power_was_cut_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    Mkfs::default().format(&image, 128 << 20).unwrap();
    Kernel::new().run(&image, SCRIPT).expect_ok();
    let synced = "dd if=/dev/urandom of=large bs=4k seek=9 count=70 conv=notrunc,fsync 2>/dev/null
        echo changed >many/name_30; sync many/name_30";
    Kernel::new().ending(Ending::Cut).run(&image, synced).expect_ok();
    let dev = Memory::load(&image).unwrap();
    let whole = held(&mount_to_read(Arc::new(dev.fork())));
    assert_eq!(whole["/many/name_30"].3, b"changed\n");
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    let found = found(&rescue);
    assert!(found == whole);
}
