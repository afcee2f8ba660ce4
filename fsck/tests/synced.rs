//! What was synced after the last checkpoint is part of the volume, whoever wrote that checkpoint.

mod rig;

use std::sync::Arc;

use device::{Memory, Time, VirtualClock};
use f2fs::MountOptions;
use fsck::{FindingKind as K, RepairError};
use joulefs_conformance::oracle::kernel::{Ending, Kernel};
use rig::{Volume, volume};
use vfs::FileSystem;

/// Linux writes no checkpoint when it mounts: what it syncs first follows the checkpoint of the unmount
/// before.
#[test]
fn repair_does_not_destroy_what_linux_synced_before_its_first_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    volume(&[]).dev.save(&image).unwrap();
    let script = "echo promised >synced; sync synced; dd if=/dev/zero of=new bs=4k count=9 conv=fsync 2>/dev/null";
    Kernel::new().ending(Ending::Cut).run(&image, script).expect_ok();
    let v = Volume::of(Memory::load(&image).unwrap());
    let report = v.finds(|k| matches!(k, K::NeedsRecovery { .. }));
    assert!(report.clean_unmount, "Linux wrote a checkpoint: this is about one that an unmount wrote");
    // Damage that has nothing to do with it.
    v.edit_inode(v.ino("mid"), |raw| raw.i_blocks = 77.into());
    let before = v.dev.fork();
    let refused = fsck::repair(&v.dev, &fsck::Options::default());
    assert!(matches!(refused, Err(RepairError::NeedsRecovery { .. })), "{refused:?}");
    assert!(v.dev.same_as(&before));
    // A mount replays it, then there is nothing in the way of the repair.
    let dev = Arc::new(v.dev);
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    let vol = f2fs::Volume::mount(dev.clone(), clock, MountOptions::default()).unwrap();
    let synced = vol.lookup(vol.root(), b"synced").expect("replayed").attr.ino;
    let mut bytes = [0; 9];
    vol.read(synced, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"promised\n");
    vol.unmount().unwrap();
    drop(vol);
    let v = Volume::of(Arc::into_inner(dev).unwrap());
    v.finds_and_repairs(|k| matches!(k, K::BlocksWrong { .. }));
    let v = Volume::of(v.dev);
    assert!(v.entry(v.sb.root, "synced").2.0 > 0);
}
