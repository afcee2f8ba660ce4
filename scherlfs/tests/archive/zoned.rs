//! Which operations of ScherlFS are valid on a host-managed zoned disk?
//!
//! The superblocks are in the conventional zone. The log begins there and continues through the zones in address
//! order, each write where the previous one ended. That is valid until the log reaches the end of the volume and
//! threads through holes. A volume that only grows does not reach that point.
//!
//! [`course`] is the judge of anything that frees whole zones: it goes round the volume any number of times.

use std::sync::Arc;

use device::{BlockDevice, Lba, Loss, Memory, PowerCut, Tag, VirtualClock, Zoned, Zones};
use scherlfs::{MountOptions, Volume, make};
use vfs::{FileSystem, WriteFlags};

use crate::support::{ME, all_of, new_file};

/// Blocks per zone and per segment.
const ZONE: u64 = 64;
const BLOCKS: u64 = 40 * ZONE;

fn formatted<D: BlockDevice>(disk: D) -> Arc<Zoned<D>> {
    let disk = Arc::new(Zoned::new(disk, ZONE, 1));
    let options = make::Options { segment_blocks: ZONE as u32, ..make::Options::default() };
    make::format(disk.clone(), &VirtualClock::default(), &options).unwrap();
    disk
}

fn mount(disk: Arc<dyn BlockDevice>, options: &MountOptions) -> vfs::Result<Volume> {
    Volume::mount(disk, Arc::new(VirtualClock::default()), options.clone())
}

/// Writes files of ten blocks, syncs each, and keeps the last `kept` of them, until `rounds` times the volume's
/// size is written; remounts in between. Returns the number of written blocks at the first failed call, if any.
fn course(disk: &Arc<Zoned<Memory>>, options: &MountOptions, kept: u64, rounds: f64) -> Result<(), (u64, vfs::Error)> {
    let (files, mut n) = ((BLOCKS as f64 * rounds / 10.0) as u64, 0);
    while n < files {
        let mut go = || -> vfs::Result<()> {
            let volume = mount(disk.clone(), options)?;
            while n < files && n % 40 < 39 {
                let ino = volume.mknod(ME, volume.root(), format!("{n}").as_bytes(), &new_file())?.attr.ino;
                volume.write(ino, 0, &[n as u8; 40_960], WriteFlags::empty())?;
                volume.fsync(ino, false)?;
                volume.forget(ino, 1);
                if let Some(old) = n.checked_sub(kept) {
                    volume.unlink(volume.root(), format!("{old}").as_bytes())?;
                }
                n += 1;
            }
            n += 1;
            volume.unmount()
        };
        go().map_err(|e| (n * 10, e))?;
    }
    Ok(())
}

#[test]
fn what_is_only_added_is_lawful() {
    let disk = formatted(Memory::new(BLOCKS));
    course(&disk, &MountOptions::default(), u64::MAX, 0.6).unwrap();
    let volume = mount(disk.clone(), &MountOptions { read_only: true, ..MountOptions::default() }).unwrap();
    assert!(all_of(&volume).len() > 100);
    assert!(disk.pointer(20) > Some(Lba(20 * ZONE)), "the log has passed twenty zones");
}

#[test]
fn a_log_that_comes_round_is_refused_as_long_as_it_threads() {
    let disk = formatted(Memory::new(BLOCKS));
    // Files are removed while others are written, so there is room, but not in whole consecutive zones.
    let (written, why) = course(&disk, &MountOptions::default(), 40, 3.0).expect_err("it is not lawful");
    assert!((BLOCKS / 2..BLOCKS).contains(&written), "{written} blocks of contents of {BLOCKS}");
    assert!(why.to_string().contains("write pointer"), "{why}");
}

#[test]
fn a_torn_end_of_the_log_leaves_a_pointer_that_the_next_mount_does_not_meet() {
    let power = Arc::new(PowerCut::new(Memory::new(BLOCKS)));
    let disk = formatted(power.clone());
    let volume = mount(disk, &MountOptions::default()).unwrap();
    let ino = volume.mknod(ME, volume.root(), b"f", &new_file()).unwrap().attr.ino;
    volume.write(ino, 0, &[1; 400_000], WriteFlags::empty()).unwrap();
    // The request is torn: a part of the transaction is on the medium, and is ignored.
    power.cut_after(power.write_count() + 3);
    assert!(volume.fsync(ino, false).is_err());
    drop(volume);
    let image = power.image(Loss::AllKept);
    // The medium's write pointers are behind the accepted blocks.
    let disk = Arc::new(Zoned::new(image.fork(), ZONE, 1));
    let mut end = 0;
    image.each_piece(|at, bytes| end = end.max(at.0 + (bytes.len() / device::BLOCK) as u64));
    for zone in 1..=end / ZONE {
        let upto = ((zone + 1) * ZONE).min(end);
        let mut bytes = vec![0; (upto - zone * ZONE) as usize * device::BLOCK];
        image.read(Lba(zone * ZONE), &mut bytes, Tag::default()).unwrap();
        disk.write(Lba(zone * ZONE), &bytes, Tag::default()).unwrap();
    }
    let go_on = || -> vfs::Result<()> {
        let volume = mount(disk, &MountOptions::default())?;
        let ino = volume.mknod(ME, volume.root(), b"g", &new_file())?.attr.ino;
        volume.write(ino, 0, &[1; 400_000], WriteFlags::empty())?;
        volume.fsync(ino, false)
    };
    let why = go_on().expect_err("the log's end is before the pointer").to_string();
    assert!(why.contains("write pointer"), "{why}");
}
