//! Invalid values are rejected with an error that names the field; boundary values are accepted.

use format::checkpoint::{Checkpoint, CpFlags};
use format::nat::NatEntry;
use format::sit::{LogType, RawSitEntry, SitEntry};
use format::superblock::{Features, RawSuperBlock, SuperBlock};
use format::{BlockAddr, FormatError, Ino, Nid, SegNo, crc, orphan, summary};

use crate::drivers;

fn superblock(change: impl FnOnce(&mut RawSuperBlock)) -> Result<SuperBlock, FormatError> {
    let mut block = drivers::lawful_superblock();
    let mut raw = RawSuperBlock::of(&block).clone();
    change(&mut raw);
    raw.store(&mut block);
    SuperBlock::check(&block)
}

#[track_caller]
fn refused<T>(got: Result<T, FormatError>, want: &str) {
    match got {
        Err(FormatError::Field { field, .. }) => assert_eq!(field, want),
        Err(e) => panic!("{want}: {e}"),
        Ok(_) => panic!("{want} was accepted"),
    }
}

#[test]
fn a_superblock_with_one_wrong_field_is_refused_by_the_name_of_that_field() {
    assert!(superblock(|_| ()).is_ok());
    refused(superblock(|r| r.magic = 0.into()), "magic");
    refused(superblock(|r| r.checksum_offset = 3064.into()), "checksum_offset");
    refused(superblock(|r| r.log_blocksize = 14.into()), "log_blocksize");
    refused(superblock(|r| r.log_blocks_per_seg = 10.into()), "log_blocks_per_seg");
    refused(superblock(|r| r.log_sectorsize = 13.into()), "log_sectorsize");
    refused(superblock(|r| r.log_sectors_per_block = 2.into()), "log_sectors_per_block");
    refused(superblock(|r| r.segment_count = 8.into()), "segment_count");
    refused(superblock(|r| r.segment_count = 8_388_609.into()), "segment_count");
    refused(superblock(|r| r.block_count = (63 * 512 - 1).into()), "segment_count");
    refused(superblock(|r| r.segs_per_sec = 0.into()), "segs_per_sec");
    refused(superblock(|r| r.section_count = 55.into()), "section_count");
    refused(superblock(|r| r.secs_per_zone = 57.into()), "secs_per_zone");
    refused(superblock(|r| r.cp_blkaddr = 1024.into()), "cp_blkaddr");
    refused(superblock(|r| r.segment_count_ckpt = 4.into()), "segment_count_ckpt");
    refused(superblock(|r| r.sit_blkaddr = 1535.into()), "sit_blkaddr");
    refused(superblock(|r| r.nat_blkaddr = 0.into()), "nat_blkaddr");
    refused(superblock(|r| r.ssa_blkaddr = u32::MAX.into()), "ssa_blkaddr");
    refused(superblock(|r| r.main_blkaddr = 4608.into()), "main_blkaddr");
    refused(superblock(|r| r.cp_payload = 504.into()), "cp_payload");
    refused(superblock(|r| r.root_ino = 4.into()), "root_ino");
    refused(superblock(|r| r.node_ino = 0.into()), "node_ino");
    refused(superblock(|r| r.meta_ino = 0.into()), "meta_ino");
    refused(superblock(|r| r.hot_ext_count = 65), "extension_count");
    refused(superblock(|r| r.extension_count = u32::MAX.into()), "extension_count");
}

#[test]
fn a_superblock_with_a_wrong_checksum_is_refused_only_where_it_has_one() {
    let mut block = drivers::lawful_superblock();
    block[4095] ^= 1;
    assert!(matches!(SuperBlock::check(&block), Err(FormatError::Checksum { .. })));
    let mut raw = RawSuperBlock::of(&block).clone();
    raw.feature = Features::empty().bits().into();
    raw.store(&mut block);
    assert!(SuperBlock::check(&block).is_ok());
}

#[test]
fn unknown_features_are_kept_and_named_by_their_bit() {
    let sb = superblock(|r| r.feature = 0x4000_0008.into()).unwrap();
    assert_eq!(sb.features.names(), ["extra_attr", "bit 0x40000000"]);
}

fn lawful() -> (SuperBlock, Checkpoint) {
    let sb = superblock(|_| ()).unwrap();
    let cp = Checkpoint::check(&sb, &drivers::lawful_checkpoint()).unwrap();
    (sb, cp)
}

fn checkpoint(change: impl FnOnce(&mut Checkpoint)) -> Result<Checkpoint, FormatError> {
    let (sb, mut cp) = lawful();
    change(&mut cp);
    Checkpoint::check(&sb, &cp.encode(&sb))
}

#[test]
fn a_checkpoint_with_one_wrong_field_is_refused_by_the_name_of_that_field() {
    refused(checkpoint(|c| c.user_blocks = 0), "user_block_count");
    refused(checkpoint(|c| c.user_blocks = 56 * 512), "user_block_count");
    refused(checkpoint(|c| c.valid_blocks = 20_001), "valid_block_count");
    refused(checkpoint(|c| c.valid_nodes = 101), "valid_node_count");
    refused(checkpoint(|c| c.valid_inodes = 11), "valid_inode_count");
    refused(checkpoint(|c| c.overprov_segs = 0), "overprov_segment_count");
    refused(checkpoint(|c| c.reserved_segs = 0), "rsvd_segment_count");
    refused(checkpoint(|c| c.logs[4].seg = SegNo(56)), "cur_segno");
    refused(checkpoint(|c| c.logs[5].seg = c.logs[0].seg), "cur_segno");
    refused(checkpoint(|c| c.logs[2].next = 512), "cur_blkoff");
    refused(checkpoint(|c| c.pack_blocks = 2), "cp_pack_total_block_count");
    refused(checkpoint(|c| c.pack_blocks = 513), "cp_pack_total_block_count");
    refused(checkpoint(|c| c.start_sum = 0), "cp_pack_start_sum");
    refused(checkpoint(|c| c.start_sum = 6), "cp_pack_start_sum");
    assert!(checkpoint(|c| c.logs[2].next = 511).is_ok());
}

#[test]
fn a_torn_or_short_checkpoint_is_refused() {
    let (sb, mut cp) = lawful();
    let mut bytes = cp.encode(&sb);
    assert!(matches!(Checkpoint::check(&sb, &bytes[..4095]), Err(FormatError::Short { .. })));
    bytes[700] ^= 1;
    assert!(matches!(Checkpoint::check(&sb, &bytes), Err(FormatError::Checksum { .. })));
}

#[test]
fn the_three_places_of_the_version_bitmaps_are_read_as_written() {
    let (sb, mut plain) = lawful();
    let payload = superblock(|r| r.cp_payload = 1.into()).unwrap();
    for (i, b) in plain.sit_bitmap.iter_mut().chain(&mut plain.nat_bitmap).enumerate() {
        *b = (i * 7) as u8;
    }
    let mut large = plain.clone();
    large.flags |= CpFlags::LARGE_NAT_BITMAP;
    let mut beside = plain.clone();
    beside.start_sum = 2;
    // Plain: SIT, NAT. Large: checksum, NAT, SIT. Payload: NAT here, SIT in the next block.
    for (sb, mut cp, sit_at, nat_at) in [(&sb, plain, 192, 256), (&sb, large, 260, 196), (&payload, beside, 4096, 192)]
    {
        let bytes = cp.encode(sb);
        assert_eq!(bytes[sit_at..sit_at + 64], cp.sit_bitmap);
        assert_eq!(bytes[nat_at..nat_at + 64], cp.nat_bitmap);
        assert_eq!(Checkpoint::check(sb, &bytes).as_ref(), Ok(&cp));
    }
}

#[test]
fn a_sit_entry_must_count_its_map() {
    let raw = |vblocks: u16, ones: usize| {
        let mut map = [0; 64];
        (0..ones).for_each(|i| map[i / 8] |= 0x80 >> (i % 8));
        RawSitEntry { vblocks: vblocks.into(), valid_map: map, mtime: 9.into() }
    };
    for (log, n) in LogType::ALL.into_iter().zip([0, 1, 100, 511, 512, 7]) {
        let entry = SitEntry::check(&raw((log as u16) << 10 | n, n.into())).unwrap();
        assert_eq!((entry.log, entry.valid, entry.mtime), (log, n, 9));
    }
    refused(SitEntry::check(&raw(6 << 10, 0)), "type");
    refused(SitEntry::check(&raw(513, 512)), "vblocks");
    refused(SitEntry::check(&raw(5, 4)), "vblocks");
}

#[test]
fn journals_hold_38_nodes_or_6_segments_and_claim_no_more() {
    let nat = |i: u32| (Nid(i), NatEntry { version: 1, ino: Ino(i), addr: BlockAddr(i + 1) });
    let nats: Vec<_> = (0..39).map(nat).collect();
    let journal = summary::encode_nat_journal(&nats);
    assert_eq!(summary::nat_journal(&journal).unwrap(), nats[..38]);
    let sit = |i: u32| (SegNo(i), RawSitEntry { vblocks: 0.into(), valid_map: [0; 64], mtime: u64::from(i).into() });
    let sits: Vec<_> = (0..7).map(sit).collect();
    let journal = summary::encode_sit_journal(&sits);
    assert_eq!(summary::sit_journal(&journal).unwrap(), sits[..6]);

    let mut journal = [0; 507];
    journal[0] = 38;
    assert!(summary::nat_journal(&journal).is_ok());
    refused(summary::sit_journal(&journal), "n_sits");
    journal[0] = 39;
    refused(summary::nat_journal(&journal), "n_nats");
    assert!(matches!(summary::nat_journal(&journal[..506]), Err(FormatError::Short { .. })));
}

#[test]
fn orphans_fill_blocks_of_1020_and_a_block_claims_no_more() {
    for n in [0u32, 1, 1020, 1021, 3000] {
        let inos: Vec<Ino> = (10..10 + n).map(Ino).collect();
        let blocks = orphan::encode(&inos);
        assert_eq!(blocks.len() as u32, n.div_ceil(1020));
        let read: Vec<Ino> = blocks.iter().flat_map(|b| orphan::parse(b).unwrap()).collect();
        assert_eq!(read, inos);
        for (i, block) in blocks.iter().enumerate() {
            let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
            assert_eq!((half(4084), half(4086)), (i as u16 + 1, blocks.len() as u16));
        }
    }
    let mut block = orphan::encode(&[Ino(5)])[0];
    block[4088..4092].copy_from_slice(&1021u32.to_le_bytes());
    refused(orphan::parse(&block), "entry_count");
}

#[test]
fn the_checksum_is_crc_32_without_its_inversions() {
    // The standard CRC-32 of "123456789" is 0xCBF43926: all ones before, inverted after.
    assert_eq!(!crc::crc32(!0, b"123456789"), 0xCBF4_3926);
    assert_eq!(crc::crc32(0, b""), 0);
    assert_eq!(crc::crc32(crc::crc32(1, b"1234"), b"56789"), crc::crc32(1, b"123456789"));
}
