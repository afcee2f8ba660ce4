//! The power is cut at every write to the disk, the index, the stage and the keep; each retains an arbitrary part
//! of its last writes. A mount with them then returns the same names and contents as one without them, and fsynced
//! files exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BLOCK, BlockDevice, Lba, Loss, Memory, PowerCut, Tag, VirtualClock};
use scherlfs::{Beside, MountOptions, Sync, Volume, index_blocks, keep_blocks};
use vfs::{FileSystem, WriteFlags};

use crate::support::{ME, STAGE, all_of, mount, new_file, read_only, settle, without_index, write};

/// Blocks of the volume. The log passes many times over what [`BALLAST`] leaves of it.
const BLOCKS: u64 = 480;
/// Bytes of a permanent file.
const BALLAST: usize = 250 * 4096;
const ROUNDS: usize = 40;
/// Cached blocks of contents: fewer than there are.
const SLOTS: u64 = 100;

/// A device whose power cut is shared by all devices.
struct Together {
    own: Arc<PowerCut>,
    all: Vec<Arc<PowerCut>>,
}

impl Together {
    fn after<T>(&self, out: T) -> T {
        if self.own.is_cut() {
            self.all.iter().for_each(|d| d.cut());
        }
        out
    }
}

impl BlockDevice for Together {
    fn blocks(&self) -> u64 {
        self.own.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.own.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        self.after(self.own.write(at, data, tag))
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> device::Result<()> {
        self.after(self.own.write_gather(at, parts, tag))
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.own.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.own.discard(at, blocks, tag)
    }
}

/// Disk, index, stage, keep.
struct Disks([Arc<PowerCut>; 4]);

impl Disks {
    fn new(images: [Memory; 4]) -> Self {
        Disks(images.map(|image| Arc::new(PowerCut::new(image))))
    }
    fn part(&self, n: usize) -> Arc<dyn BlockDevice> {
        Arc::new(Together { own: self.0[n].clone(), all: self.0.to_vec() })
    }
    fn mount(&self, sync: Sync) -> vfs::Result<Volume> {
        let beside = Beside {
            index: Some(self.part(1)),
            stage: Some(self.part(2)),
            keep: Some(self.part(3)),
            ..Beside::default()
        };
        let options = MountOptions { sync, dirty: 22, checkpoint_blocks: 150, beside, ..MountOptions::default() };
        Volume::mount(self.part(0), Arc::new(VirtualClock::default()), options)
    }
    fn image(&self, losses: [Loss; 4]) -> [Memory; 4] {
        [0, 1, 2, 3].map(|n| self.0[n].image(losses[n]))
    }
}

/// Files at a time.
const LIVE: usize = 6;

fn contents(n: usize) -> Vec<u8> {
    vec![n as u8 + 1; 3000 * (n % 8) + 1]
}

/// Calls that fill the whole volume, with a remount in the middle; returns the number of files created before the
/// last completed sync, and whether the power stayed on.
fn course(disks: &Disks, sync: Sync) -> (usize, bool) {
    let mut synced = 0;
    let mut go = || -> vfs::Result<()> {
        let mut volume = disks.mount(sync)?;
        // Little is free, so that blocks freed by a checkpoint are reused before the next.
        let ballast = write(&volume, "ballast", &vec![7; BALLAST])?;
        volume.forget(ballast, 1);
        volume.sync()?;
        for n in 0..ROUNDS {
            settle_if_powered(&volume)?;
            let root = volume.root();
            let dir = volume.mkdir(ME, root, format!("d{n}").as_bytes(), 0o755, 0)?.attr.ino;
            let link = volume.symlink(ME, dir, b"link", format!("to-{n}").as_bytes())?.attr.ino;
            volume.forget(link, 1);
            let ino = write(&volume, &format!("f{n}"), &contents(n))?;
            if n % 2 == 0 {
                volume.fsync(ino, false)?;
                synced = n + 1;
            }
            volume.forget(ino, 1);
            // Blocks of metadata become contents, and vice versa.
            let short = volume.mknod(ME, dir, b"short", &new_file())?.attr.ino;
            volume.write(short, 0, &[9; 30_000], WriteFlags::empty())?;
            volume.unlink(dir, b"short")?;
            volume.forget(short, 1);
            if let Some(old) = n.checked_sub(LIVE) {
                volume.unlink(root, format!("f{old}").as_bytes())?;
                let dir = volume.lookup(root, format!("d{old}").as_bytes())?.attr.ino;
                volume.unlink(dir, b"link")?;
                volume.rmdir(root, format!("d{old}").as_bytes())?;
                volume.forget(dir, 2);
            }
            if n == ROUNDS / 2 {
                volume.unmount()?;
                drop(volume);
                volume = disks.mount(sync)?;
            }
        }
        volume.unmount()
    };
    let whole = go().is_ok();
    (synced, whole)
}

fn settle_if_powered(volume: &Volume) -> vfs::Result<()> {
    while volume.tick()? < std::time::Duration::from_secs(1) {}
    Ok(())
}

/// Contents of all files in the root.
fn contents_of(volume: &Volume) -> BTreeMap<String, Vec<u8>> {
    let names = all_of(volume).into_keys().filter_map(|path| path.strip_prefix("/f").map(|n| format!("f{n}")));
    let read = |name: String| {
        let attr = volume.lookup(volume.root(), name.as_bytes()).unwrap().attr;
        let mut bytes = vec![0; attr.size as usize];
        volume.read(attr.ino, 0, &mut bytes).unwrap();
        volume.forget(attr.ino, 1);
        (name, bytes)
    };
    names.map(read).collect()
}

fn judge(images: [Memory; 4], synced: usize, place: &str) {
    let disks = Disks::new(images);
    // The disk alone is a valid volume.
    let alone: Arc<dyn BlockDevice> = Arc::new(disks.0[0].image(Loss::AllKept));
    without_index(&alone);
    // All of it goes through the index, which is also searched for single blocks of contents.
    let volume = disks.mount(Sync::Fsync).unwrap_or_else(|e| panic!("{place}: {e}"));
    let mut names = all_of(&volume);
    for n in synced.saturating_sub(2)..synced {
        let attr =
            volume.lookup(volume.root(), format!("f{n}").as_bytes()).unwrap_or_else(|e| panic!("{place}: f{n}: {e}"));
        let mut bytes = vec![0; attr.attr.size as usize];
        volume.read(attr.attr.ino, 0, &mut bytes).unwrap();
        assert!(bytes == contents(n), "{place}: f{n}");
    }
    let held = contents_of(&volume);
    // The disk without the index now matches the answers with it.
    let now: Arc<dyn BlockDevice> = Arc::new(disks.0[0].image(Loss::AllKept));
    let mut expected = without_index(&now);
    let alone = mount(now, read_only());
    assert!(held == contents_of(&alone), "{place}: contents");
    assert!(contents_of(&volume) == held, "{place}: contents, read again");
    names.remove("df");
    expected.remove("df");
    assert_eq!(names, expected, "{place}");
    settle(&volume);
    names = all_of(&volume);
    names.remove("df");
    assert_eq!(names, expected, "{place}, filled");
    // Data written over blocks that the index may still have reads back correctly.
    let after = write(&volume, "after", &[]).unwrap();
    let part = |n: u8| vec![n + 100; BLOCK];
    for n in 0..90 {
        volume.write(after, u64::from(n) * BLOCK as u64, &part(n), WriteFlags::empty()).unwrap();
    }
    volume.sync().unwrap();
    for n in 0..90 {
        let mut bytes = vec![0; BLOCK];
        volume.read(after, u64::from(n) * BLOCK as u64, &mut bytes).unwrap();
        assert!(bytes == part(n), "{place}: block {n} of what was written since");
    }
    volume.unlink(volume.root(), b"after").unwrap();
    volume.forget(after, 1);
    volume.unmount().unwrap();
    assert_eq!(all_of(&disks.mount(Sync::Burst).unwrap()).len(), expected.len() + 1, "{place}, mounted again");
}

fn every_cut(sync: Sync) {
    let fresh = || {
        let disk = Arc::new(Memory::new(BLOCKS));
        scherlfs::make::format(disk.clone(), &VirtualClock::default(), &scherlfs::make::Options::default()).unwrap();
        Disks::new([
            disk.fork(),
            Memory::new(index_blocks(BLOCKS).unwrap()),
            Memory::new(STAGE),
            Memory::new(keep_blocks(SLOTS).unwrap()),
        ])
    };
    let whole = fresh();
    assert!(course(&whole, sync).1);
    let mut images = 0;
    for device in 0..4 {
        let writes = whole.0[device].write_count();
        // Each write to the disk; writes that fill the index are much alike, so only some of them.
        let step = (writes / [90, 40, 40, 40][device]).max(1);
        for cut in (1..=writes).step_by(step as usize) {
            let disks = fresh();
            disks.0[device].cut_after(cut);
            let (synced, _) = course(&disks, sync);
            let all = Loss::PLAIN.into_iter().chain([Loss::Random(cut), Loss::LastTorn(3)]);
            for (n, loss) in all.enumerate() {
                let others = [Loss::AllKept, Loss::AllLost, Loss::Random(cut + n as u64)][n % 3];
                let mut losses = [others; 4];
                losses[device] = loss;
                judge(disks.image(losses), synced, &format!("device {device}, write {cut} of {writes}, {losses:?}"));
                images += 1;
            }
        }
    }
    println!("{images} images");
    assert!(images > 500, "{images}");
}

#[test]
fn with_fsyncs_on_the_disk_the_index_says_what_the_disk_says() {
    every_cut(Sync::Fsync);
}

#[test]
fn with_fsyncs_on_the_stage_they_are_there_and_the_index_says_what_the_disk_says() {
    every_cut(Sync::Burst);
}
