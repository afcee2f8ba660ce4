//! Whatever an image holds, there is an answer: a typed error or success, soon, and no panic.
//!
//! `JOULEFS_DEEP=1` flips a million bits; `JOULEFS_REPLAY=<volume>:<n>` does one case again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use device::{Access, BLOCK, BlockDevice, DeviceError, Lba, Memory, OpenError, Rng, Tag};
use f2fs::{MountError, MountOptions, Volume, fsck, mkfs};
use joulefs_conformance::damage::{BLOCKS, Targets, clock, volume};
use vfs::{Caller, FileKind, FileSystem, Flow, Ino, NewNode, RenameFlags, WriteFlags, XattrFlags};

/// Entries a walk looks at: more than the volume has, fewer than a cycle of directories offers.
const WALK: usize = 1000;
/// A case that takes longer is endless.
const PATIENCE: Duration = Duration::from_secs(20);

/// Takes no write, and remembers that one was tried.
struct Sealed {
    below: Memory,
    touched: AtomicBool,
}

impl Sealed {
    fn refuse(&self, op: &'static str) -> device::Result<()> {
        self.touched.store(true, Relaxed);
        Err(DeviceError::ReadOnly { op })
    }
}

impl BlockDevice for Sealed {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.below.read(at, buf, tag)
    }
    fn write(&self, _: Lba, _: &[u8], _: Tag) -> device::Result<()> {
        self.refuse("write")
    }
    fn flush(&self, _: Tag) -> device::Result<()> {
        Ok(())
    }
    fn discard(&self, _: Lba, _: u64, _: Tag) -> device::Result<()> {
        self.refuse("discard")
    }
}

fn look_at(vol: &Volume, ino: Ino) {
    let Ok(attr) = vol.getattr(ino) else { return };
    let mut buf = [0; 2 * BLOCK];
    match attr.kind {
        FileKind::Symlink => drop(vol.readlink(ino)),
        FileKind::Regular => {
            for at in [0, 4000 * BLOCK as u64, attr.size.saturating_sub(100)] {
                drop(vol.read(ino, at, &mut buf));
            }
        }
        _ => {}
    }
    for name in vol.listxattr(ino).unwrap_or_default() {
        drop(vol.getxattr(ino, &name));
    }
}

fn walk(vol: &Volume) {
    let mut dirs = vec![vol.root()];
    let mut seen = 0;
    while let Some(dir) = dirs.pop() {
        look_at(vol, dir);
        let mut entries = Vec::new();
        let _ = vol.readdir(dir, 0, &mut |e| {
            seen += 1;
            if e.name != b"." && e.name != b".." {
                entries.push(e.name.to_vec());
            }
            if seen < WALK { Flow::Continue } else { Flow::Stop }
        });
        for name in entries {
            let Ok(entry) = vol.lookup(dir, &name) else { continue };
            look_at(vol, entry.attr.ino);
            if entry.attr.kind == FileKind::Directory && seen < WALK {
                dirs.push(entry.attr.ino);
            }
            vol.forget(entry.attr.ino, 1);
        }
    }
}

/// Changes of every kind. Each may fail; the next is tried all the same.
fn change(vol: &Volume) {
    let (root, me) = (vol.root(), Caller::default());
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
    if let Ok(made) = vol.mknod(me, root, b"new", &new) {
        let ino = made.attr.ino;
        let _ = vol.write(ino, 0, &[1; 3 * BLOCK], WriteFlags::empty());
        let _ = vol.setxattr(ino, b"user.x", b"y", XattrFlags::empty());
        let _ = vol.fsync(ino, false);
        let _ = vol.rename(me, (root, b"new"), (root, b"entry_blocks"), RenameFlags::empty());
    }
    let _ = vol.mkdir(me, root, b"newdir", 0o755, 0);
    if let Ok(sparse) = vol.lookup(root, b"entry_sparse") {
        let _ = vol.write(sparse.attr.ino, 1000 * BLOCK as u64, &[2; 100], WriteFlags::empty());
        let _ = vol.unlink(root, b"entry_sparse");
        vol.forget(sparse.attr.ino, 1);
    }
    if let Ok(many) = vol.lookup(root, b"entry_many") {
        let _ = vol.unlink(many.attr.ino, b"entry_number_7");
        let _ = vol.rmdir(root, b"entry_many");
    }
    let _ = vol.unlink(root, b"entry_long_symlink");
    let _ = vol.sync();
    let _ = vol.tick();
    let _ = vol.unmount();
}

/// Does everything with a damaged image. True if it could be mounted for writing.
fn endure(image: &Memory) -> bool {
    let sealed = Arc::new(Sealed { below: image.fork(), touched: AtomicBool::new(false) });
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    if let Ok(vol) = Volume::mount(sealed.clone(), clock(), options) {
        walk(&vol);
        let _ = vol.unmount();
    }
    assert!(!sealed.touched.load(Relaxed), "a read-only mount wrote");
    let writable = Volume::mount(Arc::new(image.fork()), clock(), MountOptions::default());
    if let Ok(vol) = &writable {
        change(vol);
    }
    let _ = fsck::check(image, &fsck::Options::default());
    writable.is_ok()
}

/// Runs a case: whether it could be mounted; `Err` has the panic's message.
fn case(image: &Memory) -> Result<bool, String> {
    catch_unwind(AssertUnwindSafe(|| endure(image))).map_err(|p| {
        let text = p.downcast_ref::<String>().map(String::as_str);
        text.or(p.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_string()
    })
}

/// Runs `cases` of `make` in a thread of their own, watched. How many could be mounted for writing, and
/// the names and messages of those that failed.
fn watched<F>(cases: Vec<u64>, make: F) -> (usize, Vec<String>)
where
    F: Fn(u64) -> (Memory, String) + Send + 'static,
{
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for n in cases {
            let (image, name) = make(n);
            if tell.send((name, None)).is_err() || tell.send((String::new(), Some(case(&image)))).is_err() {
                return;
            }
        }
    });
    let (mut mounted, mut failed, mut name) = (0, Vec::new(), String::new());
    loop {
        match told.recv_timeout(PATIENCE) {
            Ok((next, None)) => name = next,
            Ok((_, Some(Ok(writable)))) => mounted += usize::from(writable),
            Ok((_, Some(Err(what)))) => failed.push(format!("{name}: {what}")),
            Err(mpsc::RecvTimeoutError::Disconnected) => return (mounted, failed),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                failed.push(format!("{name}: no end after {PATIENCE:?}"));
                return (mounted, failed);
            }
        }
    }
}

/// Gives the number of cases that could be mounted for writing.
fn all_end_well((mounted, failed): (usize, Vec<String>)) -> usize {
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
    mounted
}

fn flips(seed: u64, options: &mkfs::Options) {
    let deep = std::env::var_os("JOULEFS_DEEP").is_some();
    let count = if deep { 500_000 } else { 5_000 };
    let mut cases: Vec<u64> = (0..count).collect();
    if let Ok(replay) = std::env::var("JOULEFS_REPLAY") {
        let (volume, n) = replay.split_once(':').expect("JOULEFS_REPLAY=<volume>:<n>");
        cases.clear();
        if volume == seed.to_string() {
            cases.push(n.parse().expect("a number"));
        }
    }
    let base = volume(options);
    let targets = Targets::of(&base);
    let all = cases.len();
    let mounted = all_end_well(watched(cases, move |n| {
        let image = base.fork();
        let place = targets.flip(&image, &mut Rng::new(seed << 32 | n));
        (image, format!("flip:{seed}:{n} ({place})"))
    }));
    println!("{mounted} of {all} could be mounted for writing");
    assert!(all < 100 || mounted > all / 2, "only {mounted} of {all} were damaged behind the mount");
}

#[test]
fn a_flipped_bit_on_a_plain_volume_is_survived() {
    flips(1, &mkfs::Options::default());
}

#[test]
fn a_flipped_bit_on_a_volume_with_modern_features_is_survived() {
    flips(2, &mkfs::Options::modern());
}

#[test]
fn a_zeroed_metadata_block_is_survived() {
    for options in [mkfs::Options::default(), mkfs::Options::modern()] {
        let base = volume(&options);
        let places: Vec<_> = Targets::of(&base).all().collect();
        all_end_well(watched((0..places.len() as u64).collect(), move |n| {
            let (kind, at) = places[n as usize];
            let image = base.fork();
            image.write(Lba(at), &[0; BLOCK], Tag::default()).unwrap();
            (image, format!("zero:{at} ({kind})"))
        }));
    }
}

#[test]
fn an_image_cut_short_is_refused_with_its_size() {
    let base = volume(&mkfs::Options::default());
    for blocks in [0, 1, 2, 512, 1024, 3000, BLOCKS / 2, BLOCKS - 512] {
        let short = Memory::new(blocks);
        for at in 0..blocks {
            let bytes = joulefs_conformance::damage::block(&base, at);
            short.write(Lba(at), &*bytes, Tag::default()).unwrap();
        }
        let image = Arc::new(short);
        for read_only in [false, true] {
            let options = MountOptions { read_only, ..MountOptions::default() };
            let refused = Volume::mount(image.clone(), clock(), options);
            assert!(matches!(refused, Err(MountError::CutShort { image, .. }) if image == blocks), "{blocks}");
        }
        case(&image).unwrap();
    }
}

#[test]
fn what_holds_no_volume_is_refused_by_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let open = |name: &str| device::open_image(path(name), Access::ReadOnly);
    assert!(matches!(open("missing"), Err(OpenError::NotFound { .. })));
    assert!(device::open_image(dir.path(), Access::ReadOnly).is_err());
    std::fs::write(path("empty"), b"").unwrap();
    if let Ok(dev) = open("empty") {
        assert!(matches!(Volume::mount(dev, clock(), MountOptions::default()), Err(MountError::CutShort { .. })));
    }
    let mut noise = vec![0; 1 << 20];
    Rng::new(9).fill(&mut noise);
    std::fs::write(path("noise"), &noise).unwrap();
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let refused = Volume::mount(open("noise").unwrap(), clock(), options);
    assert!(matches!(refused, Err(MountError::NotF2fs { .. })));
}
