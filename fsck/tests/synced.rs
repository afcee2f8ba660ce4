//! Files fsynced after the last checkpoint are part of the volume, whichever system wrote that checkpoint.

use std::sync::Arc;

use device::{Memory, Time, VirtualClock};
use f2fs::MountOptions;
use format::inode::RawInode;
use format::node::{self, Footer};
use format::sit::LogType;
use format::{BlockAddr, dentry};
use fsck::{Action, FindingKind as K, Options, RepairError};
use judges::oracle::kernel::{Ending, Kernel};
use vfs::FileSystem;

use crate::rig::{Volume, volume};

const SCRIPT: &str = "echo promised >synced; sync synced; dd if=/dev/zero of=new bs=4k count=9 conv=fsync 2>/dev/null";

/// A volume on which Linux fsynced two new files and then lost power.
fn synced() -> Volume {
    cut_after(SCRIPT)
}

fn cut_after(script: &str) -> Volume {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    volume(&[]).dev.save(&image).unwrap();
    Kernel::new().ending(Ending::Cut).run(&image, script).expect_ok();
    Volume::of(Memory::load(&image).unwrap())
}

/// The nodes written after the checkpoint.
fn chain(v: &Volume) -> Vec<BlockAddr> {
    let head = v.cp.logs[LogType::WarmNode.index()];
    let mut at = v.sb.seg_start(head.seg).plus(u32::from(head.next));
    let mut out = Vec::new();
    while node::footer(&v.read(at)).cp_ver as u32 == v.cp.version as u32 {
        out.push(at);
        at = node::footer(&v.read(at)).next;
    }
    out
}

const GIVE_UP: Options<'_> = Options { progress: &|_, _| {}, give_up_synced: true, older_checkpoint: false };

/// Linux writes no checkpoint at mount: its first fsynced nodes follow the checkpoint of the previous unmount.
#[test]
fn repair_does_not_destroy_what_linux_synced_before_its_first_checkpoint() {
    let v = synced();
    let report = v.finds(|k| matches!(k, K::NeedsRecovery { .. }));
    assert!(report.clean_unmount, "Linux wrote a checkpoint: this is about one that an unmount wrote");
    // Unrelated damage.
    v.edit_inode(v.ino("mid"), |raw| raw.i_blocks = 77.into());
    let before = v.dev.fork();
    let refused = fsck::repair(&v.dev, &fsck::Options::default());
    assert!(matches!(refused, Err(RepairError::NeedsRecovery { .. })), "{refused:?}");
    assert!(v.dev.same_as(&before));
    // A mount replays the chain; then the repair can proceed.
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

#[test]
fn what_was_synced_is_named_with_its_path_and_blocks() {
    let v = synced();
    let report = v.check();
    let synced = report.findings.iter().filter_map(|f| match &f.kind {
        K::Synced(s) => Some((s.path.as_ref().unwrap().to_string(), s.nodes, s.blocks)),
        _ => None,
    });
    // The contents of the first are inside its inode.
    assert_eq!(synced.collect::<Vec<_>>(), [("\"/synced\"".into(), 1, 0), ("\"/new\"".into(), 1, 9)]);
    assert!(report.is_clean());
    assert_eq!(chain(&v).len(), 2);
}

#[test]
fn a_damaged_volume_is_repaired_if_what_was_synced_is_given_up() {
    let v = synced();
    let damaged = v.ino("mid");
    v.edit_inode(damaged, |raw| raw.i_blocks = 77.into());
    let done = fsck::repair(&v.dev, &GIVE_UP).unwrap();
    let given_up = |a: &&Action| matches!(a, Action::SyncedGivenUp(_));
    assert_eq!(done.actions.iter().filter(given_up).count(), 2, "{:?}", done.actions);
    assert!(done.actions.iter().any(|a| a.to_string().contains("i_blocks is 77")), "{:?}", done.actions);
    let v = Volume::of(v.dev);
    let after = v.check();
    assert!(after.findings.is_empty(), "{after}");
    v.repairs();
}

#[test]
fn the_first_checkpoint_of_a_repair_that_gives_up_the_chain_does_nothing_else() {
    let v = synced();
    v.edit_inode(v.ino("mid"), |raw| raw.i_blocks = 77.into());
    let done = fsck::repair(&v.dev, &GIVE_UP).unwrap();
    // Otherwise a power cut in the middle would replay the chain over blocks that the repair has used.
    assert!(matches!(done.actions[..2], [Action::SyncedGivenUp(_), Action::SyncedGivenUp(_)]));
    assert!(done.checkpoints >= 2);
    assert_eq!(Volume::of(v.dev).cp.version, v.cp.version + u64::from(done.checkpoints));
}

/// If memory is short, Linux writes nodes without an fsync mark. Roll-forward skips them.
#[test]
fn nodes_that_no_fsync_asked_for_do_not_stop_a_repair() {
    let v = synced();
    for at in chain(&v) {
        v.edit(at, |block| {
            let f = node::footer(block);
            node::set_footer(block, &Footer { fsync: false, dentry: false, ..f });
        });
    }
    v.edit_inode(v.ino("mid"), |raw| raw.i_blocks = 77.into());
    let report = v.finds_and_repairs(|k| matches!(k, K::UnsyncedNodes { nodes: 2 })).before;
    assert!(!report.findings.iter().any(|f| matches!(f.kind, K::NeedsRecovery { .. } | K::Synced(_))), "{report}");
}

#[test]
fn a_torn_pack_is_no_reason_to_give_up_what_was_synced() {
    for options in [Options::default(), GIVE_UP] {
        let v = synced();
        let other = if v.pack == v.sb.cp { v.sb.cp.plus(512) } else { v.sb.cp };
        v.edit(other, |b| b[0] ^= 1);
        v.finds(|k| matches!(k, K::PackBad { .. }));
        let before = v.dev.fork();
        let done = fsck::repair(&v.dev, &options).unwrap();
        assert!(done.actions.is_empty() && v.dev.same_as(&before), "{:?}", done.actions);
    }
}

#[test]
fn what_was_synced_is_not_given_up_for_damage_that_repair_refuses() {
    let v = cut_after("echo file >lost+found; sync; echo promised >synced; sync synced");
    assert_eq!(chain(&v).len(), 1);
    // An unnamed file with an invalid parent must go to lost+found, which is not a directory.
    let (at, slot, nameless) = v.entry(v.ino("many"), "file_number_5");
    let tiny = v.ino("tiny");
    v.edit_inode(nameless, |raw| raw.i_pino = tiny.0.into());
    v.edit(at, |b| dentry::remove(&dentry::Layout::BLOCK, b, slot));
    let before = v.dev.fork();
    let refused = fsck::repair(&v.dev, &GIVE_UP);
    assert!(matches!(refused, Err(RepairError::LostFoundFull)), "{refused:?}");
    assert!(v.dev.same_as(&before), "the chain is gone, and nothing is mended");
}

#[test]
fn a_path_longer_than_linux_takes_is_not_put_together() {
    let v = synced();
    let many = v.ino("many");
    let above: Vec<_> = (0..17).map(|n| v.entry(many, &format!("file_number_{n}")).2).collect();
    for (n, ino) in above.iter().enumerate() {
        let parent = above.get(n + 1).copied().unwrap_or(v.sb.root);
        v.edit_inode(*ino, |raw| {
            raw.i_pino = parent.0.into();
            raw.i_namelen = 255.into();
            raw.i_name.fill(b'x');
        });
    }
    v.edit(chain(&v)[0], |b| RawInode::of_mut(b).i_pino = above[0].0.into());
    let path = |ino| {
        let of = |k: &K| if let K::Synced(s) = k { (s.ino == ino).then(|| s.path.clone()) } else { None };
        v.check().findings.iter().find_map(|f| of(&f.kind)).unwrap()
    };
    let ino = node::footer(&v.read(chain(&v)[0])).ino;
    assert!(path(ino).is_none());
    // One name fewer.
    v.edit(chain(&v)[0], |b| RawInode::of_mut(b).i_pino = above[2].0.into());
    assert!(path(ino).is_some());
}
