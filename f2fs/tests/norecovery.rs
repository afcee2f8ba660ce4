//! A damaged volume that was not unmounted can still be read, and used again if its owner discards changes fsynced
//! since the last checkpoint.

use std::sync::Arc;

use device::{BlockDevice, Lba, Loss, Memory, Tag};
use format::superblock::SuperBlock;
use format::{inode, node};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountError, MountOptions, RollForward, Volume};
use judges::damage::block;
use vfs::{Error, FileSystem};

use crate::log_rig::*;

/// A volume after a power cut that followed an fsync of `f`. If `damaged`, the inode of `f` in the checkpoint is
/// damaged. `g` is intact.
fn cut(damaged: bool) -> Memory {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let (f, g) = (new_file(&vol, vol.root(), "f"), new_file(&vol, vol.root(), "g"));
    write(&vol, f, 0, &pattern(1, 20_000));
    write(&vol, g, 0, &pattern(2, 20_000));
    vol.sync().unwrap();
    let durable = dev.image(Loss::AllLost);
    // More blocks than an fsync overwrites in place.
    write(&vol, f, 0, &pattern(3, 80_000));
    vol.fsync(f, false).unwrap();
    let image = dev.image(Loss::AllKept);
    if damaged {
        let sb = SuperBlock::check(&block(&image, 0)).unwrap();
        let seed = inode::checksum_seed(&sb.uuid);
        for at in u64::from(sb.main.0)..image.blocks() {
            let bytes = block(&durable, at);
            if node::footer(&bytes).nid.0 == f.0 as u32 && inode::verify_checksum(sb.features, seed, &bytes).is_ok() {
                image.write(Lba(at), &[0x5A; 4096], Tag::default()).unwrap();
            }
        }
    }
    image
}

fn mounted(dev: Arc<dyn BlockDevice>, roll_forward: RollForward) -> Result<Arc<Volume>, MountError> {
    Volume::mount(dev, clock(), MountOptions { roll_forward, ..MountOptions::default() })
}

#[test]
fn what_cannot_be_replayed_is_said_with_the_way_around_it() {
    for read_only in [false, true] {
        let options = MountOptions { read_only, ..MountOptions::default() };
        match Volume::mount(Arc::new(cut(true)), clock(), options) {
            Err(e @ MountError::RollForward(_)) => assert!(e.to_string().contains("norecovery"), "{e}"),
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("mounted"),
        }
    }
}

#[test]
fn norecovery_reads_the_volume_as_of_its_last_checkpoint_and_writes_nothing() {
    for damaged in [false, true] {
        let image = Arc::new(cut(damaged));
        let before = image.fork();
        let vol = mounted(image.clone(), RollForward::Leave).unwrap();
        assert!(vol.read_only());
        assert!(read_all(&vol, find(&vol, "g").unwrap()) == pattern(2, 20_000));
        if !damaged {
            assert!(read_all(&vol, find(&vol, "f").unwrap()) == pattern(1, 20_000));
        }
        assert_eq!(vol.unlink(vol.root(), b"g"), Err(Error::ReadOnly));
        vol.sync().unwrap();
        vol.tick().unwrap();
        vol.unmount().unwrap();
        assert!(image.same_as(&before), "something was written");
    }
    // Synced changes are not lost by it.
    let image = Arc::new(cut(false));
    mounted(image.clone(), RollForward::Leave).unwrap().unmount().unwrap();
    recovered(&image, |vol| assert!(read_all(vol, find(vol, "f").unwrap()) == pattern(3, 80_000)));
}

#[test]
fn a_volume_that_gave_its_synced_contents_up_goes_on_from_its_checkpoint() {
    for damaged in [false, true] {
        let dev = Arc::new(cut(damaged));
        let vol = mounted(dev.clone(), RollForward::GiveUp).unwrap();
        assert!(read_all(&vol, find(&vol, "g").unwrap()) == pattern(2, 20_000));
        let new = new_file(&vol, vol.root(), "new");
        write(&vol, new, 0, &pattern(4, 30_000));
        vol.fsync(new, false).unwrap();
        vol.unmount().unwrap();
        // Later mounts do not find the discarded changes.
        let vol = mount(dev.clone());
        assert!(read_all(&vol, find(&vol, "new").unwrap()) == pattern(4, 30_000));
        if !damaged {
            assert!(read_all(&vol, find(&vol, "f").unwrap()) == pattern(1, 20_000));
            vol.unmount().unwrap();
            assert_clean(&*dev, "went on");
            assert_tools_clean(&dev);
        }
    }
}
