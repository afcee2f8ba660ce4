//! Reads while cleaning moves blocks of other files.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use device::{BlockDevice, Lba, Memory, Tag};
use joulefs_f2fs::Volume;
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::mkfs::Options;
use vfs::FileSystem;

use crate::log_rig::*;

/// A device on which every read for one inode triggers the cleaning of a section, up to a limit.
struct Cleaned {
    inner: Memory,
    vol: OnceLock<Weak<Volume>>,
    owner: AtomicU64,
    reads: AtomicU64,
    cleanings: AtomicU64,
}

impl Cleaned {
    /// Number of reads for `ino` during `reading`, with `cleanings` cleanings in between.
    fn counted(&self, ino: vfs::Ino, reading: impl FnOnce(), cleanings: u64) -> u64 {
        self.cleanings.store(cleanings, Relaxed);
        self.reads.store(0, Relaxed);
        self.owner.store(ino.0, Relaxed);
        reading();
        self.owner.store(u64::MAX, Relaxed);
        self.reads.load(Relaxed)
    }
}

impl BlockDevice for Cleaned {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.inner.read(at, buf, tag)?;
        if tag.cause == Cause::UserData.tag().cause
            && tag.owner == self.owner.load(Relaxed)
            && self.reads.fetch_add(1, Relaxed) < self.cleanings.load(Relaxed)
        {
            let vol = self.vol.get().and_then(Weak::upgrade).unwrap();
            std::thread::spawn(move || assert!(vol.clean_in_foreground().unwrap())).join().unwrap();
        }
        Ok(())
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        self.inner.write(at, data, tag)
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.inner.discard(at, blocks, tag)
    }
}

#[test]
fn a_reader_reads_again_only_if_its_own_blocks_moved() {
    let image = Arc::new(formatted(128, &Options::default()));
    let (vol, read) = (mount(image.clone()), pattern(7, 200 * 4096));
    // Six segments of files, half of which are removed, and one file that stays complete.
    let f = new_file(&vol, vol.root(), "f");
    for round in 0..6 {
        for i in 0..64 {
            let g = new_file(&vol, vol.root(), &format!("g{round}-{i}"));
            write(&vol, g, 0, &pattern(i, 8 * 4096));
        }
        vol.sync().unwrap();
    }
    write(&vol, f, 0, &read);
    vol.sync().unwrap();
    for round in 0..6 {
        (0..64).step_by(2).for_each(|i| vol.unlink(vol.root(), format!("g{round}-{i}").as_bytes()).unwrap());
    }
    vol.unmount().unwrap();
    let inner = image.fork();
    let dev = Arc::new(Cleaned {
        inner,
        vol: OnceLock::new(),
        owner: AtomicU64::new(u64::MAX),
        reads: AtomicU64::new(0),
        cleanings: AtomicU64::new(0),
    });
    let vol = mount(dev.clone());
    dev.vol.set(Arc::downgrade(&vol)).unwrap();
    new_file(&vol, vol.root(), "leaves the clean state");
    let quiet = dev.counted(f, || assert!(read_all(&vol, f) == read), 0);
    assert_eq!(vol.counters.moved_blocks(), 0);
    let busy = dev.counted(f, || assert!(read_all(&vol, f) == read), 4);
    assert!(vol.counters.moved_blocks() > 0, "something was cleaned meanwhile");
    assert_eq!(busy, quiet, "reads of a file none of whose blocks moved");
    vol.unmount().unwrap();
    assert_tools_clean(&dev.inner);
}
