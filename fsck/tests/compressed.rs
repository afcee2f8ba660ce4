//! Files compressed by Linux pass the check, a repair of other damage leaves them unchanged, and deleting them
//! frees their blocks.

use std::path::Path;
use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Tag, Time, VirtualClock};
use f2fs::{MountOptions, Volume};
use format::BLOCK;
use format::inode::{InodeFlags, RawInode};
use fsck::FindingKind as K;
use judges::oracle::tools::assert_fsck_clean;
use sha2::{Digest, Sha256};
use vfs::{FileKind, FileSystem, Flow};

use crate::rig;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/fixtures").join(name)
}

fn image() -> Memory {
    let packed = std::fs::read(fixture("compressed.img.zst")).expect("the fixture");
    let mut bytes = vec![0; 56 << 20];
    ruzstd::decoding::FrameDecoder::new().decode_all(&packed, &mut bytes).expect("its image");
    let dev = Memory::new((bytes.len() / BLOCK) as u64);
    dev.write(Lba(0), &bytes, Tag::default()).expect("room");
    dev
}

fn mount(dev: Arc<Memory>) -> Arc<Volume> {
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    Volume::mount(dev, clock, MountOptions::default()).expect("a sound volume")
}

/// A regular file.
struct Found {
    path: String,
    dir: vfs::Ino,
    name: Vec<u8>,
    attr: vfs::Attr,
}

/// Every regular file below a directory.
fn files(vol: &Volume, dir: vfs::Ino, path: &str) -> Vec<Found> {
    let mut names = Vec::new();
    vol.readdir(dir, 0, &mut |e| {
        names.push(e.name.to_vec());
        Flow::Continue
    })
    .expect("readable");
    let mut out = Vec::new();
    for name in names.into_iter().filter(|n| n != b"." && n != b"..") {
        let attr = vol.lookup(dir, &name).expect("there").attr;
        let path = format!("{path}{}", name.escape_ascii());
        match attr.kind {
            FileKind::Directory => out.extend(files(vol, attr.ino, &format!("{path}/"))),
            FileKind::Regular => out.push(Found { path, dir, name, attr }),
            _ => {}
        }
        vol.forget(attr.ino, 1);
    }
    out
}

fn clean_for_all(dev: &Memory) {
    let report = fsck::check(dev, &fsck::Options::default()).expect("a volume");
    assert!(report.is_clean(), "{report}");
    let dir = tempfile::tempdir().expect("a directory");
    dev.save(dir.path().join("image")).expect("room");
    assert_fsck_clean(&dir.path().join("image"));
}

#[test]
fn a_volume_linux_compressed_is_clean() {
    let report = fsck::check(&image(), &fsck::Options::default()).expect("a volume");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_repair_leaves_compressed_files_as_they_are() {
    let v = rig::Volume::of(image());
    let root = v.sb.root;
    v.edit_inode(root, |r| r.i_links = 77.into());
    v.finds_and_repairs(|k| matches!(k, K::LinksWrong { ino, .. } if *ino == root));
    let sums = std::fs::read_to_string(fixture("compressed.sha256")).expect("the sums");
    let vol = mount(Arc::new(v.dev.fork()));
    let files = files(&vol, vol.root(), "");
    for Found { path, attr, .. } in &files {
        let mut bytes = vec![0; attr.size as usize];
        let n = vol.read(attr.ino, 0, &mut bytes).expect("readable");
        assert_eq!(n, bytes.len());
        let sum: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        assert!(sums.lines().any(|l| l == format!("{sum}  {path}")), "{path} is changed");
    }
    assert_eq!(files.len(), sums.lines().count());
}

#[test]
fn a_cluster_of_impossible_size_is_found_and_its_bit_turned_back() {
    let v = rig::Volume::of(image());
    let vol = mount(Arc::new(v.dev.fork()));
    let inos = files(&vol, vol.root(), "").into_iter().map(|f| format::Ino(f.attr.ino.0 as u32));
    let compressed = |ino: &format::Ino| RawInode::of(&v.node(ino.nid())).flags().contains(InodeFlags::COMPRESS);
    let ino = inos.into_iter().find(compressed).expect("the fixture has some");
    let at = v.nat(ino.nid()).addr;
    v.edit(at, |b| RawInode::of_mut(b).extra_mut().expect("extra attributes").i_log_cluster_size ^= 0x40);
    v.finds_and_repairs(|k| matches!(k, K::InodeBad { ino: bad, .. } if *bad == ino));
}

#[test]
fn deleting_what_linux_compressed_gives_back_what_it_took() {
    let dev = Arc::new(image());
    let before = fsck::check(&*dev, &fsck::Options::default()).expect("a volume").counts.blocks;
    let vol = mount(dev.clone());
    let files = files(&vol, vol.root(), "");
    for f in &files {
        vol.unlink(f.dir, &f.name).unwrap_or_else(|e| panic!("{}: {e}", f.path));
    }
    vol.unmount().expect("unmounted");
    assert!(files.len() > 50);
    clean_for_all(&dev);
    let after = fsck::check(&*dev, &fsck::Options::default()).expect("a volume").counts.blocks;
    assert!(after < before / 10, "{after} of {before} blocks are left");
}
