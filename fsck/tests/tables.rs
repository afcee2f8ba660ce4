//! Damage to the superblock, the checkpoint and the tables is found, named and repaired.

use format::checkpoint::CpFlags;
use format::sit::LogType;
use format::{BLOCK, BlockAddr, Ino, Nid, SegNo, bits, nat, node, orphan, summary};
use fsck::{Class, FindingKind as K, FsckError, RepairError, Severity, Total};
use zerocopy::FromBytes;

use crate::rig::{self, FEATURES, Volume, volume};

#[test]
fn an_untouched_volume_is_clean_and_repair_writes_nothing() {
    for features in [&[][..], FEATURES] {
        let v = volume(features);
        let report = v.check();
        assert!(report.is_clean() && report.clean_unmount, "{report}");
        assert_eq!(report.counts.blocks, v.cp.valid_blocks);
        assert!(report.counts.files > 400 && report.counts.dirs >= 4);
        let before = v.dev.fork();
        let done = fsck::repair(&v.dev, &fsck::Options::default()).unwrap();
        assert_eq!((done.checkpoints, done.actions.len()), (0, 0));
        assert!(v.dev.same_as(&before));
    }
}

#[test]
fn progress_ends_at_its_total() {
    let last = std::cell::Cell::new((0, 1));
    let v = volume(&[]);
    let progress = |done, of| last.set((done, of));
    fsck::check(&v.dev, &fsck::Options { progress: &progress, ..fsck::Options::default() }).unwrap();
    assert_eq!(last.get(), (v.cp.valid_blocks, v.cp.valid_blocks));
}

#[test]
fn a_device_of_zeroes_is_no_volume() {
    let dev = device::Memory::new(1000);
    assert!(matches!(fsck::check(&dev, &fsck::Options::default()), Err(FsckError::NotF2fs { .. })));
}

#[test]
fn a_volume_with_both_superblocks_damaged_is_named_as_such() {
    let v = volume(&[]);
    for copy in 0..2 {
        v.edit_sb(copy, |r| r.main_blkaddr = 7.into());
    }
    let result = fsck::check(&v.dev, &fsck::Options::default());
    assert!(matches!(result, Err(FsckError::Superblock(_))), "{result:?}");
}

#[test]
fn an_unknown_kind_of_volume_is_refused_by_name_and_a_read_only_one_is_checked() {
    let checked = |feature: u32| {
        let v = volume(&[]);
        for copy in 0..2 {
            v.edit_sb(copy, |r| r.feature = feature.into());
        }
        fsck::check(&v.dev, &fsck::Options::default())
    };
    let packed = checked(0x1_0000);
    assert!(matches!(&packed, Err(FsckError::Unsupported { what }) if what.contains("packed_ssa")), "{packed:?}");
    assert!(checked(0x0002).unwrap().findings.is_empty());
    assert!(checked(0x4000).unwrap().findings.is_empty());
}

#[test]
fn a_damaged_superblock_copy_is_written_from_the_other() {
    for copy in 0..2u8 {
        let v = volume(FEATURES);
        let good = v.read(BlockAddr(0));
        v.edit(BlockAddr(copy.into()), |b| b[1024 + 2000] ^= 1);
        v.finds_and_repairs(|k| matches!(k, K::SuperblockBad { copy: c, .. } if *c == copy));
        assert_eq!(v.read(BlockAddr(copy.into()))[1024..], good[1024..]);
    }
}

#[test]
fn superblock_copies_that_differ_are_a_warning() {
    let v = volume(&[]);
    v.edit_sb(1, |r| r.volume_name[0] = 65.into());
    let report = v.finds(|k| matches!(k, K::SuperblockCopiesDiffer { offset: 124 }));
    assert!(report.is_clean());
    v.repairs();
    assert!(v.check().findings.iter().all(|f| f.severity < Severity::Warning));
}

#[test]
fn unknown_feature_bits_are_noted_and_never_repaired() {
    let v = volume(&[]);
    for copy in 0..2 {
        v.edit_sb(copy, |r| r.feature = 0x4000_0000.into());
    }
    assert!(v.finds(|k| matches!(k, K::UnknownFeatures { bits: 0x4000_0000 })).is_clean());
    v.edit_cp(|cp| cp.valid_node_count = 1.into());
    let result = fsck::repair(&v.dev, &fsck::Options::default());
    assert!(matches!(result, Err(RepairError::NotRepairable { .. })), "{result:?}");
}

#[test]
fn a_device_shorter_than_its_volume_is_found_and_refused() {
    let v = volume(&[]);
    let short = device::Memory::new(u64::from(v.sb.main.0) + 100);
    for at in 0..u64::from(v.sb.main.0) {
        let block = v.read(BlockAddr(at as u32));
        device::BlockDevice::write(&short, device::Lba(at), &block, device::Tag::default()).unwrap();
    }
    let report = fsck::check(&short, &fsck::Options::default()).unwrap();
    assert!(report.errors().any(|k| matches!(k, K::DeviceTooSmall { .. })), "{report}");
    assert!(fsck::repair(&short, &fsck::Options::default()).is_err());
}

#[test]
fn a_torn_checkpoint_is_ignored_and_its_pack_rewritten() {
    let v = volume(&[]);
    let other = if v.pack == v.sb.cp { v.sb.cp.plus(512) } else { v.sb.cp };
    v.edit(other, |b| b[200] ^= 4);
    assert!(v.finds(|k| matches!(k, K::PackBad { .. })).is_clean());
    assert_eq!(v.repairs().checkpoints, 1);
    assert!(v.check().findings.iter().all(|f| f.severity < Severity::Warning), "{}", v.check());
}

#[test]
fn a_pack_whose_tail_is_another_version_is_torn() {
    let v = volume(&[]);
    let other = if v.pack == v.sb.cp { v.sb.cp.plus(512) } else { v.sb.cp };
    // The head of a newer checkpoint, with a tail left from the previous use of the pack.
    let mut head = v.read(v.pack);
    let mut tail = head;
    for (block, version) in [(&mut head, v.cp.version + 5), (&mut tail, v.cp.version - 1)] {
        block[..8].copy_from_slice(&version.to_le_bytes());
        let sum = format::crc::crc32(format::crc::SEED, &block[..4092]);
        block[4092..].copy_from_slice(&sum.to_le_bytes());
    }
    v.write(other, &head);
    v.write(other.plus(v.cp.pack_blocks - 1), &tail);
    let report = v.finds(|k| matches!(k, K::PackTorn { .. }));
    assert!(report.is_clean() && report.version == v.cp.version);
    v.repairs();
}

#[test]
fn without_a_valid_checkpoint_there_is_nothing_to_check_or_repair() {
    let v = volume(&[]);
    for pack in [v.sb.cp, v.sb.cp.plus(512)] {
        v.edit(pack, |b| b[200] ^= 4);
    }
    v.finds(|k| matches!(k, K::NoCheckpoint));
    assert!(matches!(fsck::repair(&v.dev, &fsck::Options::default()), Err(RepairError::NotRepairable { .. })));
}

#[test]
fn error_marks_of_linux_are_a_warning_and_cleared() {
    let v = volume(&[]);
    v.edit_cp(|cp| cp.ckpt_flags = (cp.ckpt_flags.get() | 0x10).into());
    assert!(v.finds(|k| matches!(k, K::ErrorFlags { .. })).is_clean());
    v.repairs();
    assert!(v.check().findings.iter().all(|f| !matches!(f.kind, K::ErrorFlags { .. })));
}

#[test]
fn a_checkpoint_that_stopped_half_way_through_a_resize_is_refused() {
    let v = volume(&[]);
    v.edit_cp(|cp| {
        cp.ckpt_flags = (cp.ckpt_flags.get() | 0x4000).into();
        cp.valid_node_count = 1.into();
        cp.valid_inode_count = 1.into();
    });
    let result = fsck::repair(&v.dev, &fsck::Options::default());
    assert!(matches!(result, Err(RepairError::Flags { flags: CpFlags::RESIZEFS })), "{result:?}");
}

/// Linux mounts it, so nothing is lost: a check at boot must not stop there.
#[test]
fn a_volume_that_repair_refuses_is_left_as_it_is_if_it_has_no_errors() {
    type Refuse = fn(&Volume);
    let cases: [Refuse; 2] = [
        |v| v.edit_cp(|cp| cp.ckpt_flags = (cp.ckpt_flags.get() | 0x4000).into()),
        |v| (0..2).for_each(|copy| v.edit_sb(copy, |r| r.feature = 0x4000_0000.into())),
    ];
    for refuse in cases {
        let v = volume(&[]);
        v.edit_sb(1, |r| r.volume_name[0] = 65.into());
        refuse(&v);
        let before = v.dev.fork();
        let done = fsck::repair(&v.dev, &fsck::Options::default()).unwrap();
        assert!(done.after.findings.iter().any(|f| matches!(f.kind, K::SuperblockCopiesDiffer { .. })));
        assert!(done.actions.is_empty() && v.dev.same_as(&before));
    }
}

#[test]
fn a_refused_repair_writes_no_superblock_either() {
    let v = volume(&[]);
    v.edit_sb(1, |r| r.volume_name[0] = 65.into());
    v.edit_cp(|cp| {
        cp.ckpt_flags = (cp.ckpt_flags.get() | 0x4000).into();
        cp.valid_node_count = 1.into();
        cp.valid_inode_count = 1.into();
    });
    let before = v.dev.fork();
    assert!(matches!(fsck::repair(&v.dev, &fsck::Options::default()), Err(RepairError::Flags { .. })));
    assert!(v.dev.same_as(&before));
}

#[test]
fn error_marks_stay_until_the_last_round_of_a_repair() {
    let v = volume(&[]);
    v.edit_cp(|cp| cp.ckpt_flags = (cp.ckpt_flags.get() | 0x10).into());
    v.edit_inode(v.ino("mid"), |raw| raw.i_blocks = 77.into());
    assert_eq!(v.repairs().checkpoints, 2);
    let after = Volume::of(v.dev);
    assert!(!after.cp.flags.contains(CpFlags::FSCK));
    let other = if after.pack == after.sb.cp { after.sb.cp.plus(512) } else { after.sb.cp };
    let before = format::checkpoint::RawCheckpoint::read_from_prefix(&after.read(other)[..]).unwrap().0;
    assert_eq!(before.checkpoint_ver.get() + 1, after.cp.version);
    assert!(before.ckpt_flags.get() & 0x10 != 0);
}

#[test]
fn each_total_of_the_checkpoint_is_compared_with_what_is_counted() {
    type Change = fn(&mut format::checkpoint::RawCheckpoint);
    let cases: [(Total, Change); 4] = [
        (Total::ValidBlocks, |cp| cp.valid_block_count = (cp.valid_block_count.get() + 1).into()),
        (Total::ValidNodes, |cp| cp.valid_node_count = (cp.valid_node_count.get() + 1).into()),
        (Total::ValidInodes, |cp| cp.valid_inode_count = (cp.valid_inode_count.get() - 1).into()),
        (Total::FreeSegments, |cp| cp.free_segment_count = (cp.free_segment_count.get() - 1).into()),
    ];
    for (which, change) in cases {
        let v = volume(&[]);
        v.edit_cp(change);
        v.finds_and_repairs(|k| matches!(k, K::TotalWrong { total, .. } if *total == which));
    }
}

#[test]
fn nat_bits_that_lie_are_found() {
    let v = volume(&[]);
    assert!(v.cp.flags.contains(CpFlags::NAT_BITS));
    let at = v.pack.plus(512 - (8 + v.sb.nat_blocks() / 4).div_ceil(BLOCK as u32));
    v.edit(at, |b| b[8 + 3] ^= 1);
    v.finds_and_repairs(|k| matches!(k, K::NatBitsWrong { block: 24, .. }));
}

/// Inserts an orphan block into the pack by moving its summaries.
fn with_orphans(v: &rig::Volume, block: &format::Block) {
    let n = v.cp.pack_blocks;
    for i in (v.cp.start_sum..n).rev() {
        let b = v.read(v.pack.plus(i));
        v.write(v.pack.plus(i + 1), &b);
    }
    v.write(v.pack.plus(v.cp.start_sum), block);
    // The head first, then the tail at its new place.
    let change = |b: &mut format::Block| {
        let put = |b: &mut format::Block, at: usize, x: u32| b[at..at + 4].copy_from_slice(&x.to_le_bytes());
        put(b, 132, (v.cp.flags | CpFlags::ORPHAN).bits());
        put(b, 136, n + 1);
        put(b, 140, v.cp.start_sum + 1);
        let sum = format::crc::crc32(format::crc::SEED, &b[..4092]);
        b[4092..].copy_from_slice(&sum.to_le_bytes());
    };
    v.edit(v.pack, change);
    let head = v.read(v.pack);
    v.write(v.pack.plus(n), &head);
}

#[test]
fn an_orphan_that_has_a_name_is_taken_off_the_list() {
    let v = volume(&[]);
    let ino = v.ino("tiny");
    with_orphans(&v, &orphan::encode(&[ino])[0]);
    v.finds_and_repairs(|k| matches!(k, K::OrphanHasName { ino: i } if *i == ino));
}

#[test]
fn an_orphan_with_links_is_no_orphan_and_goes_to_lost_found() {
    let v = volume(&[]);
    let ino = v.ino("tiny");
    let (block, slot, _) = v.entry(v.sb.root, "tiny");
    v.edit(block, |b| format::dentry::remove(&format::dentry::Layout::BLOCK, b, slot));
    with_orphans(&v, &orphan::encode(&[ino])[0]);
    let done = v.finds_and_repairs(|k| matches!(k, K::OrphanHasLinks { ino: i, links: 1 } if *i == ino));
    assert!(done.actions.contains(&fsck::Action::Adopted { ino }), "{:?}", done.actions);
    assert_eq!(v.check().counts.files, done.before.counts.files);
}

#[test]
fn a_listed_orphan_is_lawful() {
    let v = volume(&[]);
    let ino = v.ino("tiny");
    let (block, slot, _) = v.entry(v.sb.root, "tiny");
    v.edit(block, |b| format::dentry::remove(&format::dentry::Layout::BLOCK, b, slot));
    v.edit_inode(ino, |raw| raw.i_links = 0.into());
    with_orphans(&v, &orphan::encode(&[ino])[0]);
    let report = v.check();
    assert!(report.is_clean() && report.counts.orphans == 1, "{report}");
}

#[test]
fn an_orphan_block_that_counts_too_many_is_found() {
    let v = volume(&[]);
    let mut block = orphan::encode(&[Ino(9)])[0];
    block[4088..4092].copy_from_slice(&2000u32.to_le_bytes());
    with_orphans(&v, &block);
    v.finds_and_repairs(|k| matches!(k, K::OrphanBlockBad { .. }));
}

#[test]
fn an_orphan_that_is_no_node_is_dropped_from_the_list() {
    let v = volume(&[]);
    with_orphans(&v, &orphan::encode(&[Ino(50_000)])[0]);
    v.finds_and_repairs(|k| matches!(k, K::NodeUnusable { nid: Nid(50_000), .. }));
}

#[test]
fn a_journal_that_counts_too_many_is_found() {
    for (offset, nat) in [(0, true), (507, false)] {
        let v = volume(&[]);
        let at = v.first_summary();
        let compact = v.cp.flags.contains(CpFlags::COMPACT_SUM);
        let (at, offset) = match (compact, nat) {
            (true, _) => (at, offset),
            (false, true) => (at, 3584),
            (false, false) => (at.plus(2), 3584),
        };
        v.edit(at, |b| b[offset..offset + 2].fill(0xFF));
        v.finds_and_repairs(|k| match k {
            K::NatJournalBad { .. } => nat,
            K::SitJournalBad { .. } => !nat,
            _ => false,
        });
    }
}

#[test]
fn journal_entries_outside_the_tables_are_found() {
    let v = volume(&[]);
    let compact = v.cp.flags.contains(CpFlags::COMPACT_SUM);
    let nat_at = if compact { 0 } else { 3584 };
    let journal = summary::encode_nat_journal(&[(Nid(u32::MAX), nat::NatEntry::default())]);
    v.edit(v.first_summary(), |b| b[nat_at..nat_at + 507].copy_from_slice(&journal));
    v.finds_and_repairs(|k| matches!(k, K::NatJournalNid { nid: Nid(u32::MAX) }));

    let v = volume(&[]);
    let (at, offset) = if compact { (v.first_summary(), 507) } else { (v.first_summary().plus(2), 3584) };
    let raw = v.sit(SegNo(0)).to_raw();
    let journal = summary::encode_sit_journal(&[(SegNo(99_999), raw)]);
    v.edit(at, |b| b[offset..offset + 507].copy_from_slice(&journal));
    v.finds_and_repairs(|k| matches!(k, K::SitJournalSegment { segment: SegNo(99_999) }));
}

#[test]
fn a_nat_entry_of_the_wrong_inode_is_found() {
    let v = volume(&[]);
    let ino = v.ino("mid");
    v.edit_nat(ino.nid(), |e| e.ino = Ino(77));
    v.finds_and_repairs(
        |k| matches!(k, K::NatInoWrong { nid, stored: Ino(77), is } if *nid == ino.nid() && *is == ino),
    );
}

#[test]
fn a_nat_entry_nothing_leads_to_is_dropped_if_nothing_is_there() {
    let v = volume(&[]);
    let addr = v.sb.seg_start(v.free_segment());
    v.edit_nat(Nid(5000), |e| *e = nat::NatEntry { version: 3, ino: Ino(5000), addr });
    let done = v.finds_and_repairs(|k| matches!(k, K::Unreachable { nid: Nid(5000), .. }));
    assert!(done.actions.contains(&fsck::Action::NodeDropped { nid: Nid(5000), ino: Ino(5000) }));
    assert_eq!(rig::Volume::of(v.dev.fork()).nat(Nid(5000)).version, 4, "a new life has a new version");
}

#[test]
fn node_zero_must_not_be_anywhere() {
    let v = volume(&[]);
    v.edit_nat(Nid(0), |e| e.addr = BlockAddr(4));
    v.finds_and_repairs(|k| matches!(k, K::Unreachable { nid: Nid(0), addr: BlockAddr(4), .. }));
}

#[test]
fn each_lie_of_a_sit_entry_is_found() {
    let v = volume(&[]);
    let data = v.sb.locate(v.addr(v.ino("mid"), 0)).unwrap().0;
    v.edit_sit(data, |e| e.vblocks = (e.vblocks.get() + 1).into());
    v.finds_and_repairs(|k| matches!(k, K::SitCountMismatch { segment, .. } if *segment == data));

    let v = volume(&[]);
    v.edit_sit(data, |e| e.vblocks = (e.vblocks.get() | 9 << 10).into());
    v.finds_and_repairs(|k| matches!(k, K::SitTypeBad { segment, .. } if *segment == data));

    let v = volume(&[]);
    let node = v.sb.locate(v.nat(v.ino("mid").nid()).addr).unwrap().0;
    v.edit_sit(node, |e| e.vblocks = (e.vblocks.get() & 0x3FF).into());
    v.finds_and_repairs(
        |k| matches!(k, K::SitClassWrong { segment, stored: LogType::HotData, holds: Class::Node } if *segment == node),
    );

    let v = volume(&[]);
    let (seg, off) = v.sb.locate(v.addr(v.ino("mid"), 3)).unwrap();
    v.edit_sit(seg, |e| {
        bits::msb_put(&mut e.valid_map, off.into(), false);
        e.vblocks = (e.vblocks.get() - 1).into();
    });
    v.finds_and_repairs(|k| matches!(k, K::SitMissing { segment, count: 1, .. } if *segment == seg));

    let v = volume(&[]);
    let free = v.free_segment();
    v.edit_sit(free, |e| {
        bits::msb_put(&mut e.valid_map, 100, true);
        e.vblocks = (e.vblocks.get() + 1).into();
    });
    let first = v.sb.seg_start(free).plus(100);
    v.finds_and_repairs(|k| *k == K::SitSurplus { segment: free, first, count: 1 });
}

#[test]
fn data_and_nodes_in_one_segment_are_taken_apart() {
    let v = volume(&[]);
    // An inode moves into a data segment's free block.
    let ino = v.ino("tiny");
    let block = v.node(ino.nid());
    let seg = v.sb.locate(v.addr(v.ino("mid"), 0)).unwrap().0;
    let map = v.sit(seg).map;
    let Some(off) = (0..512).rev().find(|i| !bits::msb_test(&map, *i)) else { panic!("segment is full") };
    let addr = v.sb.seg_start(seg).plus(off as u32);
    v.write(addr, &block);
    v.edit_nat(ino.nid(), |e| e.addr = addr);
    v.finds_and_repairs(|k| matches!(k, K::SitClassWrong { segment, holds: Class::Both, .. } if *segment == seg));
}

/// A file block in a segment without a log, so that its summary is in the SSA.
fn settled(v: &rig::Volume) -> (Nid, BlockAddr) {
    let ino = v.ino("big");
    let node = format::inode::RawInode::of(&v.node(ino.nid())).nid(0);
    let block = v.node(node);
    (0..1018)
        .map(|i| BlockAddr(node::word(&block, i)))
        .find(|a| v.sb.locate(*a).is_some_and(|(s, _)| v.cp.logs.iter().all(|l| l.seg != s)))
        .map(|a| (node, a))
        .expect("a large file passes segments")
}

#[test]
fn summaries_that_name_another_owner_are_found() {
    let v = volume(&[]);
    let (nid, at) = settled(&v);
    v.edit_ssa(at, |s| s.slot ^= 1);
    v.finds_and_repairs(|k| matches!(k, K::SummaryWrong { addr, is, .. } if *addr == at && is.nid == nid));

    let v = volume(&[]);
    let seg = v.sb.locate(at).unwrap().0;
    v.edit(v.sb.ssa_block(seg), |b| b[4091] = 1);
    v.finds_and_repairs(
        |k| matches!(k, K::SummaryKindWrong { segment, stored: 1, holds: Class::Data } if *segment == seg),
    );
}

#[test]
fn a_pack_too_short_for_its_summaries_is_found() {
    let v = volume(&[]);
    v.edit_cp(|cp| {
        let last = cp.cp_pack_total_block_count.get() - 1;
        cp.cp_pack_start_sum = last.into();
    });
    v.finds_and_repairs(|k| matches!(k, K::CheckpointField { .. }));
}

#[test]
fn a_log_whose_segment_is_of_another_type_is_found() {
    let v = volume(&[]);
    let log = LogType::HotData;
    let seg = v.cp.logs[log.index()].seg;
    v.edit_sit(seg, |e| e.vblocks = (e.vblocks.get() & 0x3FF | 2 << 10).into());
    v.finds_and_repairs(|k| matches!(k, K::LogTypeWrong { log: LogType::HotData, stored: LogType::ColdData, .. }));
}

#[test]
fn a_log_about_to_overwrite_a_block_moves_away() {
    let v = volume(&[]);
    let log = LogType::WarmNode;
    let head = v.cp.logs[log.index()];
    assert!(head.next > 0, "something was written there");
    v.edit_cp(|cp| cp.cur_node_blkoff[1] = (cp.cur_node_blkoff[1].get() - 1).into());
    v.finds_and_repairs(|k| matches!(k, K::LogBlockTaken { log: LogType::WarmNode, .. }));
}
