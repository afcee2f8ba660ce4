//! The results of writes on an almost full volume, and the contents afterwards: exactly the accepted bytes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use device::{BlockDevice, Lba, Memory, Tag};
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use vfs::{Error, FileSystem, Ino, WriteFlags};

use crate::log_rig::*;

const MIB: usize = 1 << 20;

/// A device with slow flushes, so that many threads wait for a checkpoint and continue at the same time.
struct Slow(Memory);

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Slow(formatted(96, &Options::default())))
    }
}

impl BlockDevice for Slow {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.0.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        self.0.write(at, data, tag)
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        std::thread::sleep(Duration::from_millis(20));
        self.0.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.0.discard(at, blocks, tag)
    }
}

/// A file and the bytes that writes accepted.
struct Taken {
    ino: Ino,
    bytes: Vec<u8>,
}

impl Taken {
    fn new(vol: &Volume, name: &str) -> Self {
        Taken { ino: new_file(vol, vol.root(), name), bytes: Vec::new() }
    }

    /// Writes once; false if nothing was accepted.
    fn write(&mut self, vol: &Volume, at: usize, data: &[u8], flags: WriteFlags) -> bool {
        match vol.write(self.ino, at as u64, data, flags) {
            Ok(n) => {
                self.bytes.resize(self.bytes.len().max(at + n), 0);
                self.bytes[at..at + n].copy_from_slice(&data[..n]);
                true
            }
            Err(Error::NoSpace) => false,
            Err(e) => panic!("{e}"),
        }
    }
}

/// One thread for each file.
fn at_once(vol: &Volume, files: &mut [Taken], work: impl Fn(&Volume, usize, &mut Taken) + Sync) {
    let start = Barrier::new(files.len());
    std::thread::scope(|s| {
        for (i, file) in files.iter_mut().enumerate() {
            let (start, work) = (&start, &work);
            s.spawn(move || {
                start.wait();
                work(vol, i, file);
            });
        }
    });
}

/// Exactly the accepted bytes are in the files, now and after a mount.
fn judge(dev: &Arc<Slow>, vol: &Volume, files: &[Taken]) {
    let whole = |vol: &Volume| files.iter().all(|f| read_all(vol, f.ino) == f.bytes);
    assert!(whole(vol), "at once");
    vol.sync().unwrap();
    assert!(whole(vol), "synced");
    vol.unmount().unwrap();
    assert_clean(&dev.0, "after unmount");
    assert!(whole(&mount(dev.clone())), "after a mount");
}

/// A file's blocks were reserved when they were first written.
#[test]
fn many_who_overwrite_at_once_on_a_full_volume_are_never_refused_nor_are_refused_bytes_kept() {
    const WRITERS: usize = 32;
    let dev = Slow::new();
    let vol = mount(dev.clone());
    let each = (vol.statfs().unwrap().blocks_free as usize * 4096 / MIB - 1) / WRITERS * MIB;
    let mut files: Vec<Taken> = (0..WRITERS).map(|i| Taken::new(&vol, &format!("f{i}"))).collect();
    for (i, file) in files.iter_mut().enumerate() {
        assert!(file.write(&vol, 0, &pattern(i as u64, each), WriteFlags::empty()));
        assert_eq!(file.bytes.len(), each);
    }
    vol.sync().unwrap();
    let refused = AtomicUsize::new(0);
    at_once(&vol, &mut files, |vol, i, file| {
        for round in 0..30 {
            let data = pattern((i as u64) << 32 | round, MIB);
            if !file.write(vol, round as usize * MIB % each, &data, WriteFlags::FROM_CACHE) {
                refused.fetch_add(1, Relaxed);
            }
        }
    });
    judge(&dev, &vol, &files);
    assert_eq!(refused.into_inner(), 0);
}

#[test]
fn many_who_fill_a_volume_at_once_find_what_they_were_told_was_taken_and_no_more() {
    for flags in [WriteFlags::FROM_CACHE, WriteFlags::empty()] {
        let dev = Slow::new();
        let vol = mount(dev.clone());
        let mut files: Vec<Taken> = (0..32).map(|i| Taken::new(&vol, &format!("f{i}"))).collect();
        at_once(&vol, &mut files, |vol, i, file| {
            for n in 0.. {
                let data = pattern((i as u64) << 32 | n, 3 * MIB / 2);
                if !file.write(vol, file.bytes.len().next_multiple_of(4096), &data, flags) {
                    break;
                }
            }
        });
        assert!(vol.statfs().unwrap().blocks_free < 64, "{flags:?}: full");
        judge(&dev, &vol, &files);
    }
}
