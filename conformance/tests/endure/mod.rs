//! Uses an image in every way: there must be an answer, soon, without a panic.
// Each test program uses only part of it.
#![allow(dead_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use device::{BLOCK, BlockDevice, DeviceError, Lba, Memory, Tag};
use f2fs::{MountOptions, Volume};
use judges::damage::clock;
use vfs::{Caller, FileKind, FileSystem, Flow, Ino, NewNode, RenameFlags, WriteFlags, XattrFlags};

/// Maximum entries of a walk: more than the volume has, fewer than a cycle of directories has.
const WALK: usize = 1000;
/// A case that takes longer counts as endless.
const PATIENCE: Duration = Duration::from_secs(20);

/// Refuses writes, and remembers that one was tried.
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

/// Tries changes of every kind. A failure does not stop the next.
pub fn change(vol: &Volume) {
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

/// Does everything with a damaged image. Returns whether it could be mounted for writing.
pub fn endure(image: &Memory) -> bool {
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

/// Runs a case and returns its result; `Err` has the panic's message.
pub fn case<T>(image: &Memory, judge: impl Fn(&Memory) -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(|| judge(image))).map_err(|p| {
        let text = p.downcast_ref::<String>().map(String::as_str);
        text.or(p.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_string()
    })
}

/// Runs `judge` on `cases` of `make` in a separate thread with a watchdog. Returns the number accepted, and the names
/// and messages of those that failed.
pub fn watched<F, J>(cases: Vec<u64>, make: F, judge: J) -> (usize, Vec<String>)
where
    F: Fn(u64) -> (Memory, String) + Send + 'static,
    J: Fn(&Memory, &str) -> bool + Send + 'static,
{
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for n in cases {
            let (image, name) = make(n);
            let said = |image: &Memory| judge(image, &name);
            if tell.send((name.clone(), None)).is_err() || tell.send((String::new(), Some(case(&image, said)))).is_err()
            {
                return;
            }
        }
    });
    let (mut said, mut failed, mut name) = (0, Vec::new(), String::new());
    loop {
        match told.recv_timeout(PATIENCE) {
            Ok((next, None)) => name = next,
            Ok((_, Some(Ok(yes)))) => said += usize::from(yes),
            Ok((_, Some(Err(what)))) => {
                failed.push(format!("{name}: {what}"));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return (said, failed),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                failed.push(format!("{name}: no end after {PATIENCE:?}"));
                return (said, failed);
            }
        }
    }
}

/// Returns the number of accepted cases.
pub fn all_end_well((said, failed): (usize, Vec<String>)) -> usize {
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
    said
}
