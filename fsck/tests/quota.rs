//! Quota files from other tools pass the check; structural damage to them is named.

use device::Memory;
use format::checkpoint::CpFlags;
use format::{BlockAddr, Ino};
use fsck::{FindingKind as K, QuotaFault as F};
use judges::oracle::kernel::Kernel;

use crate::rig::{FEATURES, Volume, volume};

fn faults(v: &Volume) -> Vec<F> {
    let of = |k: &K| if let K::QuotaFileBad { fault, .. } = k { Some(*fault) } else { None };
    v.check().findings.iter().filter_map(|f| of(&f.kind)).collect()
}

fn blocks(v: &Volume, ino: Ino) -> Vec<BlockAddr> {
    (0..v.division(ino).direct_slots()).map(|i| v.addr(ino, i)).take_while(|a| a.is_real()).collect()
}

#[test]
fn quota_files_that_mkfs_and_linux_wrote_are_sound() {
    let v = volume(FEATURES);
    assert!(v.sb.quota_inos.iter().all(|ino| ino.0 != 0));
    assert_eq!(faults(&v), []);
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    v.dev.save(&image).unwrap();
    let script = "for id in 1 300 70000 20000000 4294967294; do echo x >of_$id; chown $id:$id of_$id; done";
    Kernel::new().mount_options("usrquota,grpquota").run(&image, script).expect_ok();
    let v = Volume::of(Memory::load(&image).unwrap());
    assert_eq!(faults(&v), []);
}

#[test]
fn damage_to_a_quota_file_is_named() {
    let user = volume(FEATURES).sb.quota_inos[0];
    // In blocks of 1 KiB: the header is block 0, the tree's root 1, below it 2 to 4 for identity 0; 5 has entries.
    let cases: [(usize, [u8; 4], F); 6] = [
        (0, [1, 2, 3, 4], F::Header { magic: 0x0403_0201, version: 1 }),
        (20, [255, 0, 0, 0], F::Blocks { blocks: 255, room: 6 }),
        (24, [99, 0, 0, 0], F::FreeBlock { block: 99, blocks: 6 }),
        (1024, [77, 0, 0, 0], F::Reference { to: 77, blocks: 6 }),
        (2048, [1, 0, 0, 0], F::Twice { block: 1 }),
        (5 * 1024 + 16, [9, 0, 0, 0], F::Entry { id: 0, block: 5 }),
    ];
    for (at, bytes, fault) in cases {
        let v = volume(FEATURES);
        let block = blocks(&v, user)[at / 4096];
        v.edit(block, |b| b[at % 4096..][..4].copy_from_slice(&bytes));
        assert_eq!(faults(&v), [fault]);
        assert!(v.check().is_clean(), "Linux mounts such a volume, and leaves quotas off");
        // Nothing here recreates the file, and no round of repair waits for that.
        let before = v.dev.fork();
        assert!(fsck::repair(&v.dev, &fsck::Options::default()).unwrap().actions.is_empty());
        assert!(v.dev.same_as(&before));
    }
}

#[test]
fn a_tree_that_goes_round_in_a_quota_file_ends() {
    let v = volume(FEATURES);
    let user = v.sb.quota_inos[0];
    let block = blocks(&v, user)[0];
    let all_lead_to = |to: u32| {
        v.edit(block, |b| (0..256).for_each(|i| b[1024 + i * 4..][..4].copy_from_slice(&to.to_le_bytes())));
    };
    // Without detection of repeated blocks this is 256 to the power of 4 entries.
    all_lead_to(1);
    assert_eq!(faults(&v), [F::Twice { block: 1 }]);
    all_lead_to(2);
    assert!(matches!(faults(&v)[..], [F::Entry { block: 5, .. } | F::Twice { block: 2 }]));
}

#[test]
fn quotas_stay_trusted_after_a_repair_that_changes_no_usage() {
    type Damage = fn(&Volume);
    let torn: Damage = |v| {
        let other = if v.pack == v.sb.cp { v.sb.cp.plus(512) } else { v.sb.cp };
        v.edit(other, |b| b[0] ^= 1);
    };
    let parent: Damage = |v| v.edit_inode(v.ino("mid"), |raw| raw.i_pino = 77.into());
    let blocks: Damage = |v| v.edit_inode(v.ino("mid"), |raw| raw.i_blocks = 77.into());
    for (what, damage, counted_anew) in
        [("a torn pack", torn, false), ("a wrong parent", parent, false), ("a wrong i_blocks", blocks, true)]
    {
        let v = volume(FEATURES);
        damage(&v);
        assert!(v.repairs().checkpoints > 0, "{what}");
        let flags = Volume::of(v.dev).cp.flags;
        assert_eq!(flags.contains(CpFlags::QUOTA_NEED_FSCK), counted_anew, "{what}: {flags:?}");
    }
}
