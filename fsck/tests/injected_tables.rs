//! One field of superblock, checkpoint, SIT or SSA is set to a wrong value (the same fields as in f2fs-tools'
//! `inject.f2fs`): either it is found and repaired so that both checkers are satisfied, or no program relies on it
//! and both are satisfied immediately.
//!
//! Totals, types and maps of these tables have tests of their own (`tables`).

use format::checkpoint::RawCheckpoint;
use format::superblock::RawSuperBlock;
use fsck::FindingKind as K;
use judges::oracle::tools::assert_fsck_clean;

use crate::rig::{Volume, volume};

/// Injects; the finding must match `found`, and only the field itself may be lost.
#[track_caller]
fn injected(what: &str, inject: impl Fn(&Volume), found: impl Fn(&K) -> bool) {
    let v = volume(&[]);
    let files = v.check().counts.files;
    inject(&v);
    let report = v.check();
    assert!(report.findings.iter().any(|f| found(&f.kind)), "{what} is not found:\n{report}");
    v.repairs();
    assert_eq!(v.check().counts.files, files, "{what}: a file came or went");
}

/// Injects; neither checker finds an error.
#[track_caller]
fn harmless(what: &str, inject: impl Fn(&Volume)) {
    let v = volume(&[]);
    inject(&v);
    let report = v.check();
    assert!(report.is_clean(), "{what}:\n{report}");
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    v.dev.save(&image).unwrap();
    assert_fsck_clean(&image);
}

#[test]
fn fields_of_one_superblock() {
    type Set = fn(&mut RawSuperBlock);
    let cases: [(&str, Set); 3] = [
        ("magic", |r| r.magic = 0x1234_5678.into()),
        ("feature", |r| r.feature = 0x0000_0001.into()),
        ("s_errors", |r| r.s_errors[3] = 0x40),
    ];
    for (what, set) in cases {
        for copy in 0..2 {
            let v = volume(&[]);
            v.edit_sb(copy, set);
            let report = v.check();
            assert!(
                report
                    .findings
                    .iter()
                    .any(|f| matches!(f.kind, K::SuperblockBad { .. } | K::SuperblockCopiesDiffer { .. })),
                "{what} of copy {copy}:\n{report}"
            );
            v.repairs();
            assert_eq!(v.read(format::BlockAddr(0))[1024..], v.read(format::BlockAddr(1))[1024..], "{what}");
        }
    }
}

/// Linux records there why it stopped; after a check the record may be cleared.
#[test]
fn marks_of_errors_in_both_superblocks() {
    harmless("s_stop_reason", |v| (0..2).for_each(|c| v.edit_sb(c, |r| r.s_stop_reason[1] = 3)));
    harmless("s_errors", |v| (0..2).for_each(|c| v.edit_sb(c, |r| r.s_errors[0] = 2)));
}

#[test]
fn fields_of_the_checkpoint() {
    type Set = fn(&mut RawCheckpoint);
    let cases: [(&str, Set); 2] = [
        ("cur_node_blkoff", |cp| cp.cur_node_blkoff[1] = 0.into()),
        ("cur_data_blkoff", |cp| cp.cur_data_blkoff[1] = 0.into()),
    ];
    for (what, set) in cases {
        injected(what, |v| v.edit_cp(set), |k| matches!(k, K::LogBlockTaken { .. }));
    }
    // Linux refuses a pack whose logs share a segment; one of them gets a new one.
    let cases: [(&str, Set); 2] = [
        ("cur_node_segno", |cp| cp.cur_node_segno[0] = cp.cur_data_segno[1]),
        ("cur_data_segno", |cp| cp.cur_data_segno[0] = cp.cur_node_segno[1]),
    ];
    for (what, set) in cases {
        injected(what, |v| v.edit_cp(set), |k| matches!(k, K::CheckpointField { .. }));
    }
    harmless("elapsed_time", |v| v.edit_cp(|cp| cp.elapsed_time = u64::MAX.into()));
    harmless("next_free_nid", |v| v.edit_cp(|cp| cp.next_free_nid = 5.into()));
}

/// The current pack is the newest valid one: with a wrong version or checksum it is the other.
#[test]
fn a_pack_with_a_wrong_checksum_or_version_is_not_the_one_that_counts() {
    let other = |v: &Volume| if v.pack == v.sb.cp { v.sb.cp.plus(512) } else { v.sb.cp };
    let v = volume(&[]);
    // sload.f2fs leaves one pack: the other becomes a copy that is one version older.
    for i in 0..v.cp.pack_blocks {
        let block = v.read(v.pack.plus(i));
        v.write(other(&v).plus(i), &block);
    }
    for at in [other(&v), other(&v).plus(v.cp.pack_blocks - 1)] {
        v.edit(at, |b| {
            b[..8].copy_from_slice(&(v.cp.version - 1).to_le_bytes());
            let sum = format::crc::crc32(format::crc::SEED, &b[..4092]);
            b[4092..].copy_from_slice(&sum.to_le_bytes());
        });
    }
    v.edit(v.pack, |b| b[4092] ^= 1);
    let report = v.finds(|k| matches!(k, K::PackBad { .. }));
    assert_eq!(report.version, v.cp.version - 1);
    v.repairs();
}

/// A file block in a segment without a log, so that its summary is in the SSA.
fn settled(v: &Volume) -> format::BlockAddr {
    let ino = v.ino("big");
    let node = format::inode::RawInode::of(&v.node(ino.nid())).nid(0);
    let block = v.node(node);
    (0..1018)
        .map(|i| format::BlockAddr(format::node::word(&block, i)))
        .find(|a| v.sb.locate(*a).is_some_and(|(s, _)| v.cp.logs.iter().all(|l| l.seg != s)))
        .expect("a large file passes segments")
}

#[test]
fn fields_of_the_sit_and_the_ssa() {
    let wrong = |k: &K| matches!(k, K::SummaryWrong { .. });
    injected("ssa nid", |v| v.edit_ssa(settled(v), |s| s.nid = format::Nid(3)), wrong);
    injected("ssa nid outside", |v| v.edit_ssa(settled(v), |s| s.nid = format::Nid(u32::MAX)), wrong);
    injected("ssa version", |v| v.edit_ssa(settled(v), |s| s.version ^= 0x55), wrong);
    injected("ssa ofs_in_node", |v| v.edit_ssa(settled(v), |s| s.slot = 5000), wrong);
    let seg = |v: &Volume| v.sb.locate(settled(v)).unwrap().0;
    injected(
        "sit vblocks of 1023",
        |v| v.edit_sit(seg(v), |e| e.vblocks = (e.vblocks.get() | 0x3FF).into()),
        |k| matches!(k, K::SitCountMismatch { .. }),
    );
    injected(
        "sit valid_map",
        |v| v.edit_sit(seg(v), |e| e.valid_map = [0; 64]),
        |k| matches!(k, K::SitMissing { .. } | K::SitCountMismatch { .. }),
    );
    harmless("sit mtime", |v| v.edit_sit(seg(v), |e| e.mtime = u64::MAX.into()));
}
