//! Does a volume satisfy the invariants before a checkpoint?

use crate::checkpoint::Checkpoints;
use crate::error::Result;
use crate::invariant::Violation;

impl Checkpoints {
    /// Refuses a checkpoint that contradicts itself. All nodes are written, and no other thread makes changes.
    pub(super) fn check_invariants(&self) -> Result<()> {
        let seg = self.logs.seg.lock();
        if let Some(violation) = &seg.violated {
            return Err(violation.clone().into());
        }
        let kept = seg.table.sums();
        if cfg!(debug_assertions) {
            let anew = seg.table.sums_anew();
            if kept != anew {
                return Err(Violation::Sums { kept, anew }.into());
            }
        }
        let (nodes, blocks, room) =
            (u64::from(self.nodes.space.nodes()), self.nodes.space.valid_blocks(), self.nodes.space.user_blocks());
        if self.sound.nodes && nodes != kept.nodes {
            return Err(Violation::Nodes { counted: nodes, valid: kept.nodes }.into());
        }
        let (valid, unwritten) = (kept.total(), self.nodes.space.unwritten());
        if self.sound.blocks && (valid.checked_add_signed(unwritten) != Some(blocks) || unwritten < 0 || blocks > room)
        {
            return Err(Violation::Blocks { counted: blocks, valid, unwritten, room }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::volume::Volume;
    use device::{BlockDevice, Memory, Time, VirtualClock};
    use format::sit::LogType;
    use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode, WriteFlags};

    use super::*;
    use crate::error::Error;

    struct Rig {
        dev: Arc<Memory>,
        clock: Arc<VirtualClock>,
        vol: Arc<Volume>,
    }

    impl Rig {
        fn new() -> Rig {
            let dev = Arc::new(Memory::new(64 * 256));
            let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
            crate::mkfs::format(&*dev, &*clock, &crate::mkfs::Options::default()).unwrap();
            let vol = Volume::mount(dev.clone(), clock.clone(), crate::MountOptions::default()).unwrap();
            let rig = Rig { dev, clock, vol };
            rig.file("before");
            rig.vol.sync().unwrap();
            rig
        }
        fn file(&self, name: &str) {
            let vol = &self.vol;
            let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
            let made = vol.mknod(Caller { uid: 0, gid: 0 }, vol.root(), name.as_bytes(), &new).unwrap();
            vol.write(made.attr.ino, 0, &[7; 100_000], WriteFlags::empty()).unwrap();
        }
        /// Breaks something after a change; returns what stopped the checkpoint that followed.
        fn broken(&self, how: impl FnOnce(&Volume)) -> Violation {
            self.file("after");
            how(&self.vol);
            let stopped = self.vol.cleaning.checkpoint(crate::pack::Reason::Running).unwrap_err();
            let Error::Violated(violation) = stopped else { panic!("{stopped}") };
            // All later operations fail, even the unmount checkpoint.
            let refused = self.vol.unlink(self.vol.root(), b"before").unwrap_err();
            assert!(matches!(refused, vfs::Error::Device(_)), "{refused}");
            assert!(self.vol.unmount().is_err());
            // A mount reads the last checkpoint.
            let vol = Volume::mount(self.dev.clone(), self.clock.clone(), crate::MountOptions::default()).unwrap();
            assert!(vol.lookup(vol.root(), b"before").is_ok());
            assert!(matches!(vol.lookup(vol.root(), b"after"), Err(vfs::Error::NotFound)));
            vol.unmount().unwrap();
            let report = fsck::check(&*self.dev, &fsck::Options::default()).unwrap();
            assert!(report.is_clean(), "{:?}", report.errors().take(4).collect::<Vec<_>>());
            violation
        }
    }

    #[test]
    fn a_node_count_that_is_not_that_of_the_segment_table_stops_the_checkpoint() {
        let one_too_few = Rig::new().broken(|vol| {
            vol.nodes.space.give_node(false);
            vol.nodes.space.take(1).unwrap();
        });
        assert!(matches!(one_too_few, Violation::Nodes { counted, valid } if counted + 1 == valid), "{one_too_few}");
        let one_too_many = Rig::new().broken(|vol| vol.nodes.space.take_node(false).unwrap());
        assert!(matches!(one_too_many, Violation::Nodes { counted, valid } if counted == valid + 1), "{one_too_many}");
    }

    #[test]
    fn a_block_count_that_is_not_that_of_the_segment_table_and_of_reserved_slots_stops_the_checkpoint() {
        let reserve = |vol: &Volume| {
            let f = vol.lookup(vol.root(), b"before").unwrap().attr.ino;
            let what = vfs::Allocate::Reserve { keep_size: true };
            vol.fallocate(f, what, 1 << 20, 100 * 4096).unwrap();
        };
        let missing = Rig::new().broken(|vol| vol.nodes.space.give(10));
        assert!(matches!(missing, Violation::Blocks { counted, valid, .. } if counted < valid), "{missing}");
        // Fewer than valid and reserved blocks together, but more than valid blocks.
        let too_few = Rig::new().broken(|vol| {
            reserve(vol);
            vol.nodes.space.give(1);
        });
        let one = |counted: u64, valid: u64, unwritten: i64| (valid + unwritten as u64).abs_diff(counted) == 1;
        assert!(
            matches!(too_few, Violation::Blocks { counted, valid, unwritten: n @ 100, .. } if one(counted, valid, n)),
            "{too_few}"
        );
        let too_many = Rig::new().broken(|vol| vol.nodes.space.take(1).unwrap());
        assert!(
            matches!(too_many, Violation::Blocks { counted, valid, unwritten: n, .. } if one(counted, valid, n)),
            "{too_many}"
        );
    }

    #[test]
    fn a_block_that_the_last_checkpoint_holds_is_not_handed_out_and_no_pack_follows() {
        let found = Rig::new().broken(|vol| {
            let mut seg = vol.logs.seg.lock();
            let log = &seg.logs[LogType::WarmData.index()];
            let (at, next) = (log.seg, log.next);
            seg.table.hold(at, next);
            let out = seg.allocate(LogType::WarmData, format::summary::Summary::default(), format::BlockAddr::NULL, 1);
            assert!(matches!(out, Err(Error::Violated(Violation::Held { .. }))));
        });
        assert!(matches!(found, Violation::Held { .. }), "{found}");
    }

    #[test]
    fn counts_that_were_wrong_at_mount_are_left_to_fsck() {
        let rig = Rig::new();
        rig.vol.unmount().unwrap();
        let (mut cp, second) = {
            let pack = rig.vol.ctx.cp.read();
            (pack.checkpoint.clone(), pack.second)
        };
        cp.valid_nodes += 1;
        let sb = rig.vol.superblock();
        let head = cp.encode(sb);
        let first = sb.cp.plus(if second { 512 } else { 0 });
        for at in [first, first.plus(cp.pack_blocks - 1)] {
            rig.dev.write(device::Lba(at.0.into()), &head[..4096], crate::cause::Cause::Checkpoint.tag()).unwrap();
        }
        let vol = Volume::mount(rig.dev.clone(), rig.clock.clone(), crate::MountOptions::default()).unwrap();
        assert!(!vol.checkpoints.sound.nodes);
        vol.unlink(vol.root(), b"before").unwrap();
        vol.sync().unwrap();
    }

    /// Such a block is counted but not valid: the mount of a damaged volume starts with that difference.
    #[test]
    fn a_block_that_is_not_valid_fails_the_change_that_frees_it_and_not_the_checkpoint() {
        let rig = Rig::new();
        let vol = &rig.vol;
        let f = vol.lookup(vol.root(), b"before").unwrap().attr.ino;
        let inode = vol.names.outer(f).unwrap();
        let third = vol.nodes.addr_of(&inode.node, 2).unwrap();
        vol.logs.seg.lock().invalidate(third, 0).unwrap();
        vol.nodes.space.unwritten_by(1);
        let reserve = vfs::Allocate::Reserve { keep_size: true };
        vol.fallocate(f, reserve, 40 * 4096, 5 * 4096).unwrap();
        let cut = vol.setattr(f, &vfs::SetAttr { size: Some(0), ..vfs::SetAttr::default() });
        assert!(matches!(cut, Err(vfs::Error::Corrupt(_))), "{cut:?}");
        rig.file("after");
        vol.sync().unwrap();
    }

    #[test]
    fn files_that_linux_compressed_are_deleted_with_the_room_that_their_clusters_hold() {
        let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/fixtures/compressed.img.zst");
        let mut bytes = vec![0; 56 << 20];
        ruzstd::decoding::FrameDecoder::new().decode_all(&std::fs::read(packed).unwrap(), &mut bytes).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, &bytes).unwrap();
        let dev = Arc::new(Memory::load(&path).unwrap());
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        let vol = Volume::mount(dev.clone(), clock, crate::MountOptions::default()).unwrap();
        let unwritten = vol.nodes.space.unwritten();
        let (mut deleted, mut dirs) = (0, vec![vol.root()]);
        while let Some(at) = dirs.pop() {
            let mut names = Vec::new();
            vol.readdir(at, 0, &mut |e| {
                names.push(e.name.to_vec());
                vfs::Flow::Continue
            })
            .unwrap();
            for name in names.iter().filter(|n| *n != b"." && *n != b"..") {
                let attr = vol.lookup(at, name).unwrap().attr;
                if attr.kind == FileKind::Directory {
                    dirs.push(attr.ino);
                    continue;
                }
                vol.forget(attr.ino, 1);
                if vol.unlink(at, name).is_ok() {
                    deleted += 1;
                    vol.sync().unwrap();
                }
            }
        }
        assert!(
            deleted > 10 && vol.nodes.space.unwritten() < unwritten,
            "{deleted} files, {unwritten} unwritten before"
        );
        crate::rig::judge(&dev, &vol);
    }
}
