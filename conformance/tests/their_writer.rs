//! Their writer, our reader: we read volumes made by `mkfs.f2fs`, `sload.f2fs` and Linux as Linux reads them.

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::{Access, BlockDevice, FileDevice, Lba, Memory, Tag};
use judges::churn::acknowledged_content;
use judges::oracle::kernel::Ending;
use judges::oracle::tools::{Mkfs, Sload, fsck};
use judges::oracle::tree::assert_same;
use judges::zoo::{Size, on_path, plan};
use sha2::{Digest, Sha256};
use vfs::{FileKind, FileSystem};

use crate::rig::*;

/// Linux's listing of an image, read-only.
fn listed_by_linux(image: &Path) -> String {
    let script = format!("{TREELIST} >$OUT/tree");
    let run = kernel().read_only().run(image, &script).expect_ok();
    printed(run.out(), "tree")
}

#[test]
fn what_sload_put_there_reads_as_linux_reads_it() {
    let work = work_dir();
    let tree = work.path().join("tree");
    std::fs::create_dir(&tree).expect("a directory");
    on_path::perform(&tree, &plan(11, Size::Small)).expect("the zoo on the host");
    // sload.f2fs 1.15 exits silently at a socket, writes the zeroes of holes until the volume is full, and counts one
    // block for a symlink that takes two.
    std::fs::remove_dir_all(tree.join("sparse")).expect("removed");
    std::fs::remove_file(tree.join("nodes/socket")).expect("removed");
    for entry in std::fs::read_dir(tree.join("nodes")).expect("listed") {
        let path = entry.expect("an entry").path();
        if std::fs::read_link(&path).is_ok_and(|target| target.as_os_str().len() > 3000) {
            std::fs::remove_file(path).expect("removed");
        }
    }
    let [default, modern, quota, _runs_out_of_room_with_large_sections] = their_formats();
    for (name, mut mkfs) in [default, modern, quota] {
        // With flexible inline attributes, version 1.15 puts addresses in the place of attributes.
        mkfs.features.retain(|feature| feature != "flexible_inline_xattr");
        let image = work.path().join("volume.img");
        mkfs.format(&image, 160 * MIB).expect("mkfs.f2fs formats");
        let sload = Sload { preserve_owner: true, ..Sload::default() };
        // It omits some inodes' checksums; its own final check repairs them and makes it fail. Only its result counts.
        let filled = sload.fill(&image, &tree);
        assert!(filled.is_ok() || fsck(&image).clean(), "{filled:?}");
        let ours = list(&mount_ro(&image));
        assert!(ours.lines().count() > 1000, "{name}: {} lines", ours.lines().count());
        assert_same((name, &ours), ("Linux", &listed_by_linux(&image)));
    }
}

/// An image that Linux filled with the zoo, and Linux's listing of it.
fn zoo_by_linux(dir: &Path, mkfs: &Mkfs, mib: u64, size: &str) -> (PathBuf, String) {
    let image = dir.join("volume.img");
    mkfs.format(&image, mib * MIB).expect("mkfs.f2fs formats");
    // Listed by a second boot: the first one's caches would hide what it wrote.
    kernel().run(&image, &format!("zoo . 12 {size}")).expect_ok();
    let linux = listed_by_linux(&image);
    (image, linux)
}

#[test]
fn what_linux_wrote_reads_as_linux_reads_it() {
    for (name, mkfs) in their_formats() {
        let work = work_dir();
        let (image, linux) = zoo_by_linux(work.path(), &mkfs, 160, "small");
        assert_same((name, &list(&mount_ro(&image))), ("Linux", &linux));
        // Mounting for writing without changes has no visible effect.
        let volume = mount_rw(&image);
        assert_same((name, &list(&volume)), ("Linux", &linux));
        unmount(volume);
        assert_clean(&image);
        assert_same((name, &listed_by_linux(&image)), ("Linux before", &linux));
    }
}

#[test]
fn a_directory_of_fifty_thousand_names_reads_as_linux_reads_it() {
    let work = work_dir();
    let (image, linux) = zoo_by_linux(work.path(), &Mkfs::default(), 512, "full");
    assert!(linux.lines().count() > 50_000);
    assert_same(("ours", &list(&mount_ro(&image))), ("Linux", &linux));
}

#[test]
fn what_linux_synced_before_a_cut_is_recovered_as_linux_recovers_it() {
    let rounds = if deep() { 20 } else { 2 };
    for round in 0..rounds {
        let formats = their_formats();
        let (name, mkfs) = &formats[round as usize % formats.len()];
        let work = work_dir();
        let image = work.path().join("volume.img");
        mkfs.format(&image, 200 * MIB).expect("mkfs.f2fs formats");
        let after = Duration::from_millis(700 + 170 * round);
        let cut = kernel().ending(Ending::CutAfter(after)).run(&image, "churn acknowledge . $OUT");
        assert!(cut.ok(), "{}", cut.describe());
        let acknowledged = (0_u64..).find(|i| !cut.out().join(format!("ack-{i}")).is_dir()).unwrap_or(0);
        assert!(acknowledged > 3, "{}", cut.describe());

        let read_only = mount_ro(&image);
        let before = std::fs::read(&image).expect("the image");
        let recovered = without_directory_times(&list(&read_only));
        for i in 0..acknowledged {
            let path = format!("new/{}/made-{i}", i % 40);
            let content = read_path(&*read_only, &path);
            assert!(content == acknowledged_content(i), "{name}: {path} was synced and is not as it was");
            let old = read_path(&*read_only, &format!("old/{}", i % 40));
            let line = format!("again {i}\n");
            let found = old.windows(line.len()).any(|w| w == line.as_bytes());
            assert!(found, "{name}: old/{} was synced and lacks {line}", i % 40);
        }
        drop(read_only);
        assert!(before == std::fs::read(&image).expect("the image"), "a read-only mount wrote");

        // Linux on a copy, we on the original: both recover the same tree.
        let copy = work.path().join("copy.img");
        std::fs::copy(&image, &copy).expect("a copy");
        kernel().run(&copy, "true").expect_ok();
        let linux = without_directory_times(&listed_by_linux(&copy));
        assert_same((name, &recovered), ("Linux", &linux));
        let volume = mount_rw(&image);
        assert_same((name, &without_directory_times(&list(&volume))), ("read-only", &recovered));
        unmount(volume);
        assert_clean(&image);
        let linux = without_directory_times(&listed_by_linux(&image));
        assert_same(("Linux after our recovery", &linux), ("ours", &recovered));
    }
}

/// A file's content, by its path.
fn read_path(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let mut ino = fs.root();
    for name in path.split('/') {
        let entry = fs.lookup(ino, name.as_bytes()).unwrap_or_else(|e| panic!("{path}: {e}"));
        ino = entry.attr.ino;
    }
    let size = fs.getattr(ino).unwrap_or_else(|e| panic!("{path}: {e}")).size;
    let mut content = vec![0; size as usize];
    let n = fs.read(ino, 0, &mut content).unwrap_or_else(|e| panic!("{path}: {e}"));
    content.truncate(n);
    content
}

/// A volume with two checkpoints: the image, the tree at the first, the tree at the second.
fn two_checkpoints(dir: &Path) -> (PathBuf, String, String) {
    let image = dir.join("volume.img");
    Mkfs::default().format(&image, 160 * MIB).expect("mkfs.f2fs formats");
    let script = format!(
        "zoo . 13 small; sync; {TREELIST} >$OUT/first; echo more >more; mv more evenmore; sync; {TREELIST} >$OUT/second"
    );
    // Cut, because Linux writes two checkpoints when it unmounts.
    let run = kernel().ending(Ending::Cut).run(&image, &script).expect_ok();
    (image, printed(run.out(), "first"), printed(run.out(), "second"))
}

fn block(memory: &Memory, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    memory.read(Lba(at), &mut bytes, Tag::default()).expect("read");
    bytes
}

fn put(memory: &Memory, at: u64, bytes: &[u8]) {
    memory.write(Lba(at), bytes, Tag::default()).expect("written");
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[test]
fn either_superblock_and_either_pack_may_be_lost() {
    let work = work_dir();
    let (image, first, second) = two_checkpoints(work.path());
    let whole = Memory::load(&image).expect("loaded");
    assert_same(("ours", &list_memory(whole.fork())), ("Linux", &second));

    for copy in [0, 1] {
        let hurt = whole.fork();
        put(&hurt, copy, &[0xa5; 4096]);
        assert_same(("without a superblock", &list_memory(hurt)), ("Linux", &second));
    }

    // `cp_blkaddr` is at byte 76 of the superblock, which starts 1024 bytes into its block.
    let cp = u64::from(word(&block(&whole, 0), 1024 + 76));
    let packs = [cp, cp + 512];
    let version = |at: u64| word(&block(&whole, at), 0);
    let (older, newer) =
        if version(packs[0]) < version(packs[1]) { (packs[0], packs[1]) } else { (packs[1], packs[0]) };
    let without_newer = whole.fork();
    put(&without_newer, newer, &[0; 4096]);
    assert_same(("older pack", &list_memory(without_newer)), ("Linux at its time", &first));
    let without_older = whole.fork();
    put(&without_older, older, &[0xff; 4096]);
    assert_same(("newer pack", &list_memory(without_older)), ("Linux", &second));

    // A pack without its tail is as invalid as one without a head.
    let torn = whole.fork();
    let blocks = u64::from(word(&block(&whole, newer), 136));
    assert!((3..512).contains(&blocks), "{blocks} blocks in a pack");
    put(&torn, newer + blocks - 1, &[0; 4096]);
    assert_same(("torn pack", &list_memory(torn)), ("Linux at its time", &first));

    // Two packs of one version, as an interrupted repair leaves them.
    let twins = whole.fork();
    for i in 0..blocks {
        put(&twins, older + i, &block(&whole, newer + i));
    }
    assert_same(("twins", &list_memory(twins)), ("Linux", &second));

    let neither = whole.fork();
    for at in packs {
        put(&neither, at, &[0; 4096]);
    }
    let e = mount_device(Arc::new(neither), true).err().expect("nothing to mount");
    assert!(matches!(e, f2fs::MountError::NoCheckpoint { .. }), "{e}");
}

/// Writes an image in Android's sparse format: omits runs of zero blocks, and encodes runs of one word as fills.
fn write_simg(image: &Path, simg: &Path) -> std::io::Result<()> {
    let bytes = std::fs::read(image)?;
    let kind = |b: &[u8]| match b.chunks(4).all(|w| w == &b[..4]) {
        true if b[..4] == [0; 4] => (0xcac3_u16, [0; 4]),
        true => (0xcac2, [b[0], b[1], b[2], b[3]]),
        false => (0xcac1, [0; 4]),
    };
    let mut chunks = Vec::new();
    let mut count = 0_u32;
    let blocks: Vec<&[u8]> = bytes.chunks(4096).collect();
    for run in blocks.chunk_by(|a, b| kind(a) == kind(b)) {
        let (tag, fill) = kind(run[0]);
        let body: Vec<u8> = match tag {
            0xcac1 => run.concat(),
            0xcac2 => fill.to_vec(),
            _ => Vec::new(),
        };
        chunks.write_all(&tag.to_le_bytes())?;
        chunks.write_all(&[0; 2])?;
        chunks.write_all(&(run.len() as u32).to_le_bytes())?;
        chunks.write_all(&(12 + body.len() as u32).to_le_bytes())?;
        chunks.write_all(&body)?;
        count += 1;
    }
    let mut out = std::fs::File::create(simg)?;
    out.write_all(&0xed26_ff3a_u32.to_le_bytes())?;
    for half in [1_u16, 0, 28, 12] {
        out.write_all(&half.to_le_bytes())?;
    }
    for n in [4096, blocks.len() as u32, count, 0] {
        out.write_all(&n.to_le_bytes())?;
    }
    out.write_all(&chunks)
}

#[test]
fn an_android_sparse_image_reads_as_the_image_it_stands_for() {
    let work = work_dir();
    let (image, linux) = zoo_by_linux(work.path(), &their_formats()[1].1, 160, "small");
    let simg = work.path().join("volume.simg");
    write_simg(&image, &simg).expect("a sparse image");
    assert!(simg.metadata().expect("there").len() < image.metadata().expect("there").len());
    assert_same(("ours", &list(&mount_ro(&simg))), ("Linux", &linux));
    let refused = device::open_image(&simg, Access::ReadWrite).err().expect("refused");
    assert!(refused.to_string().contains("simg2img"), "{refused}");
}

/// Every regular file below `ino`: path and SHA-256.
fn hashes(fs: &dyn FileSystem, ino: vfs::Ino, path: &str, out: &mut Vec<(String, String)>) {
    let mut names = Vec::new();
    fs.readdir(ino, 0, &mut |e| {
        names.push((String::from_utf8_lossy(e.name).into_owned(), e.kind));
        vfs::Flow::Continue
    })
    .unwrap_or_else(|e| panic!("{path}: {e}"));
    for (name, kind) in names.into_iter().filter(|(n, _)| n != "." && n != "..") {
        let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        let entry = fs.lookup(ino, name.as_bytes()).unwrap_or_else(|e| panic!("{below}: {e}"));
        match kind {
            FileKind::Directory => hashes(fs, entry.attr.ino, &below, out),
            FileKind::Regular => {
                let hash = Sha256::digest(read_path(fs, &below));
                out.push((below, hash.iter().map(|b| format!("{b:02x}")).collect()));
            }
            _ => {}
        }
        fs.forget(entry.attr.ino, 1);
    }
}

#[test]
fn files_that_linux_compressed_read_as_linux_read_them() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let work = work_dir();
    let image = work.path().join("compressed.img");
    let packed = std::fs::File::open(fixtures.join("compressed.img.zst")).expect("the fixture");
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(packed).expect("zstd").read_to_end(&mut bytes).expect("its image");
    std::fs::write(&image, bytes).expect("written");
    let sums = std::fs::read_to_string(fixtures.join("compressed.sha256")).expect("the sums");
    let expected: Vec<(&str, &str)> =
        sums.lines().filter_map(|l| l.split_once("  ")).map(|(sum, path)| (path, sum)).collect();
    assert!(expected.len() > 50);
    let read_only = mount_ro(&image);
    let volume_rw = FileDevice::open(&image, Access::ReadWrite).map(|_| ());
    assert!(volume_rw.is_err(), "an image somebody reads is not written to");
    let mut found = Vec::new();
    hashes(&*read_only, read_only.root(), "", &mut found);
    for (path, sum) in expected {
        let ours = found.iter().find(|(p, _)| p == path).map(|(_, s)| s.as_str());
        assert_eq!(ours, Some(sum), "{path}");
    }
}
