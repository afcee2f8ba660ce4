//! One function for each structure. It takes any bytes, performs all operations of the file system on them, and
//! checks the invariants: no panic, no read outside, and what was decoded is encoded again identically. Used by the
//! tests and by the fuzzer.

mod deltas;

use format::acl::Acl;
use format::checkpoint::{self, CHECKSUM_OFFSET, Checkpoint};
use format::dentry::{self, Layout};
use format::inode::{self, RawInode};
use format::nat_bits::{self, NatBits};
use format::sit::{self, SitEntry};
use format::superblock::{Features, MAGIC, RawSuperBlock, SuperBlock};
use format::{BLOCK, Block, BlockAddr, Ino, Nid, SegNo, crc, hash, nat, node, orphan, summary, xattr};

pub use deltas::{delta_nodes, zones};

/// A driver with its name.
pub type Driver = (&'static str, fn(&[u8]));

/// Every driver.
pub const ALL: [Driver; 14] = [
    ("superblock", superblock),
    ("checkpoint", checkpoint),
    ("tables", tables),
    ("summaries", summaries),
    ("nodes", nodes),
    ("inodes", inodes),
    ("zones", zones),
    ("delta_nodes", delta_nodes),
    ("directories", directories),
    ("names", names),
    ("orphans", orphans),
    ("xattrs", xattrs),
    ("acls", acls),
    ("nat_bits", bits_of_nat),
];

/// Numbers that tend to reveal arithmetic errors.
const WILD: [u32; 8] = [0, 1, 511, 512, 1018, 0x7FFF_FFFF, 0xFFFF_FFFE, u32::MAX];

/// The bytes as a block: truncated or padded with zeros.
fn block(bytes: &[u8]) -> Block {
    let mut out = [0; BLOCK];
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    out
}

/// Applies bytes as changes to a valid structure: each three bytes are a position and a value. Whole random blocks
/// rarely pass the first check of a magic.
fn change(lawful: &mut [u8], changes: &[u8]) {
    for c in changes.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([c[0], c[1]])) % lawful.len();
        lawful[at] = c[2];
    }
}

/// A superblock of 128 MiB as `mkfs.f2fs` lays it out.
pub fn lawful_superblock() -> Block {
    let mut out = [0; BLOCK];
    let mut raw = RawSuperBlock::of(&out).clone();
    raw.magic = MAGIC.into();
    raw.log_sectorsize = 9.into();
    raw.log_sectors_per_block = 3.into();
    raw.log_blocksize = 12.into();
    raw.log_blocks_per_seg = 9.into();
    raw.segs_per_sec = 1.into();
    raw.secs_per_zone = 1.into();
    raw.checksum_offset = 3068.into();
    raw.block_count = 32_768.into();
    raw.section_count = 56.into();
    raw.segment_count = 63.into();
    raw.segment_count_ckpt = 2.into();
    raw.segment_count_sit = 2.into();
    raw.segment_count_nat = 2.into();
    raw.segment_count_ssa = 1.into();
    raw.segment_count_main = 56.into();
    for (field, at) in [
        (&mut raw.segment0_blkaddr, 512),
        (&mut raw.cp_blkaddr, 512),
        (&mut raw.sit_blkaddr, 1536),
        (&mut raw.nat_blkaddr, 2560),
        (&mut raw.ssa_blkaddr, 3584),
        (&mut raw.main_blkaddr, 4096),
        (&mut raw.root_ino, 3),
        (&mut raw.node_ino, 1),
        (&mut raw.meta_ino, 2),
    ] {
        *field = at.into();
    }
    raw.feature = (Features::SB_CHKSUM | Features::EXTRA_ATTR | Features::INODE_CHECKSUM).bits().into();
    raw.store(&mut out);
    out
}

fn lawful() -> SuperBlock {
    SuperBlock::check(&lawful_superblock()).expect("lawful")
}

/// A lawful checkpoint of [`lawful_superblock`].
pub fn lawful_checkpoint() -> Vec<u8> {
    let sb = lawful();
    let mut cp = Checkpoint {
        version: 7,
        user_blocks: 20_000,
        valid_blocks: 100,
        reserved_segs: 10,
        overprov_segs: 16,
        free_segs: 50,
        logs: Default::default(),
        flags: checkpoint::CpFlags::UMOUNT | checkpoint::CpFlags::COMPACT_SUM,
        pack_blocks: 6,
        start_sum: 1,
        valid_nodes: 10,
        valid_inodes: 5,
        next_free_nid: 30,
        elapsed: 1,
        sit_bitmap: vec![0; sb.sit_bitmap_bytes()],
        nat_bitmap: vec![0; sb.nat_bitmap_bytes()],
        crc: 0,
    };
    for (i, log) in cp.logs.iter_mut().enumerate() {
        log.seg = SegNo(i as u32);
    }
    cp.encode(&sb)
}

/// The superblock: raw bytes, and changes to a valid one with a correct checksum.
pub fn superblock(bytes: &[u8]) {
    let _ = SuperBlock::check(&block(bytes));
    let mut changed = lawful_superblock();
    change(&mut changed[format::superblock::OFFSET..], bytes);
    let raw = RawSuperBlock::of(&changed).clone();
    raw.store(&mut changed);
    let Ok(sb) = SuperBlock::check(&changed) else { return };
    let mut again = changed;
    sb.raw.store(&mut again);
    assert!(again == changed);
    for n in WILD {
        let seg = SegNo(n);
        let (start, ssa) = (sb.seg_start(seg), sb.ssa_block(seg));
        if n < sb.main_segs {
            assert_eq!(sb.locate(start), Some((seg, 0)));
            assert!(ssa >= sb.ssa && (ssa < sb.main || sb.ssa_segs == 0));
        } else {
            assert_eq!(sb.locate(start), None);
        }
        let _ = (sb.section_of(seg), sb.locate(BlockAddr(n)));
        for second in [false, true] {
            let (sit, nat) = (sb.sit_block(n, second), sb.nat_block(n, second));
            assert!(n >= sb.sit_blocks() || (sit >= sb.sit && sit < sb.nat));
            assert!(n >= sb.nat_blocks() || (nat >= sb.nat && (nat < sb.ssa || sb.ssa_segs == 0)));
        }
    }
    let _ = (sb.sections(), sb.max_nid(), sb.sit_bitmap_bytes(), sb.nat_bitmap_bytes());
    let _ = (sb.features.names(), nat_bits::offset(sb.nat_blocks()));
}

/// The checkpoint: raw bytes, and changes to a valid one with a correct checksum.
pub fn checkpoint(bytes: &[u8]) {
    let sb = lawful();
    let _ = (Checkpoint::check(&sb, bytes), checkpoint::version(&block(bytes)));
    let mut changed = lawful_checkpoint();
    change(&mut changed, bytes);
    let at = CHECKSUM_OFFSET as usize;
    let sum = crc::crc32(crc::SEED, &changed[..at]);
    changed[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    let Ok(cp) = Checkpoint::check(&sb, &changed) else { return };
    for log in cp.logs {
        assert!(log.seg.0 < sb.main_segs && log.next < 512);
    }
    assert!(cp.valid_inodes <= cp.valid_nodes && u64::from(cp.valid_nodes) <= cp.valid_blocks);
    // Unnamed bytes (unused logs, the gap behind the bitmaps) are not kept; the rest is.
    let again = Checkpoint::check(&sb, &cp.clone().encode(&sb)).expect("ours");
    assert_eq!(Checkpoint { crc: cp.crc, ..again }, cp);
}

/// Blocks of the segment and node tables.
pub fn tables(bytes: &[u8]) {
    let b = block(bytes);
    let (mut sits, mut nats) = ([0; BLOCK], [0; BLOCK]);
    for i in 0..sit::SIT_ENTRIES as usize {
        let raw = sit::get(&b, i);
        if let Ok(entry) = SitEntry::check(&raw) {
            assert!(entry.valid <= 512 && entry.to_raw() == raw);
        }
        sit::put(&mut sits, i, &raw);
    }
    for i in 0..nat::NAT_ENTRIES as usize {
        nat::put(&mut nats, i, nat::get(&b, i));
    }
    assert!(sits[..55 * 74] == b[..55 * 74] && nats[..455 * 9] == b[..455 * 9]);
    for i in WILD.map(|i| i as usize).into_iter().chain([usize::MAX]) {
        let (raw, entry) = (sit::get(&b, i), nat::get(&b, i));
        sit::put(&mut sits, i, &raw);
        nat::put(&mut nats, i, entry);
        let _ = nat::position(Nid(i as u32));
    }
}

/// Summaries and their journals, normal and compact.
pub fn summaries(bytes: &[u8]) {
    let b = block(bytes);
    let mut again = b;
    for i in (0..summary::SUMMARY_ENTRIES).chain([512, 4096, usize::MAX]) {
        summary::put(&mut again, i, summary::get(&b, i));
    }
    assert!(again == b);
    if let Some(kind) = summary::kind(&b) {
        summary::set_kind(&mut again, kind);
    }
    for journal in [summary::journal(&b), &b[..summary::JOURNAL_BYTES], bytes] {
        if let Ok(nats) = summary::nat_journal(journal) {
            let ours = summary::encode_nat_journal(&nats);
            assert_eq!(ours[..2 + 13 * nats.len()], journal[..2 + 13 * nats.len()]);
        }
        if let Ok(sits) = summary::sit_journal(journal) {
            let ours = summary::encode_sit_journal(&sits);
            assert_eq!(ours[..2 + 78 * sits.len()], journal[..2 + 78 * sits.len()]);
        }
        let _ = summary::kbytes_written(journal);
    }
    let blocks = [b, again, b];
    let _ = summary::compact_journals(&blocks);
    for n in (0..2000).step_by(7).chain([usize::MAX]) {
        assert_eq!(summary::compact_get(&blocks, n).is_some(), n < 439 + 2 * 584);
    }
}

/// Direct and indirect nodes, footers, paths through the tree.
pub fn nodes(bytes: &[u8]) {
    let b = block(bytes);
    let mut again = [0; BLOCK];
    for i in (0..node::ADDRS_PER_BLOCK as usize).chain([1018, 4096, usize::MAX]) {
        node::set_word(&mut again, i, node::word(&b, i));
    }
    let footer = node::footer(&b);
    node::set_footer(&mut again, &footer);
    assert!(again == b);
    let _ = (node::kind_of(footer.offset), footer.nid.as_ino(), footer.next.is_real());
    let index = u64::from_le_bytes(*b.first_chunk().expect("a block has 8 bytes"));
    for index in [index, index & 0xFFFF, index & 0xFFFF_FFFF] {
        for direct in [0, 1, 923, u32::MAX] {
            if let Some(p) = node::path(index, direct) {
                assert!(p.depth <= 3 && (1..=p.depth).all(|d| p.slots[d] < 1018));
                assert!(index < node::max_blocks(direct));
            }
        }
    }
}

/// Inodes: their division, addresses, checksum, inline directory and inline xattrs.
pub fn inodes(bytes: &[u8]) {
    let b = block(bytes);
    let raw = RawInode::of(&b);
    let _ = (raw.inline(), raw.advise(), raw.flags(), raw.name(), raw.extra(), raw.extra_isize());
    for features in [Features::empty(), Features::all(), Features::EXTRA_ATTR | Features::INODE_CHECKSUM] {
        let mut sealed = b;
        inode::seal(features, 7, &mut sealed);
        assert_eq!(inode::verify_checksum(features, 7, &sealed), Ok(()));
        let _ = inode::verify_checksum(features, 7, &b);
        let Ok(d) = raw.divide(features) else { continue };
        if let Ok(shape) = raw.shape(features) {
            assert!(shape.direct_slots <= d.direct_slots() && shape.path(shape.max_blocks()).is_none());
        }
        assert!(d.inline_area().end <= d.xattr_area().start && d.xattr_area().end <= 4052);
        let mut again = b;
        for slot in (0..d.direct_slots()).chain(WILD) {
            // Setting another block would drop a delta of the slot.
            match d.zone {
                0 => RawInode::of_mut(&mut again).set_addr(d, slot, raw.addr(d, slot)),
                _ => RawInode::of_mut(&mut again).move_addr(d, slot, raw.addr(d, slot)),
            }
        }
        assert!(again == b);
        area(&Layout::inline(d.inline_area().len()), &b[d.inline_area()]);
        let _ = xattr::entries(&b[d.xattr_area()]);
    }
    for k in [0, 4, 5, usize::MAX] {
        let _ = raw.nid(k);
    }
}

fn area(l: &Layout, bytes: &[u8]) {
    for i in (0..l.slots).chain([l.slots, l.slots + 1]) {
        let _ = dentry::at(l, bytes, i);
    }
    let mut end = 0;
    for d in dentry::entries(l, bytes, 0) {
        assert!(d.slot >= end && (1..=255).contains(&d.name.len()));
        end = d.slot + dentry::slots_for(d.name.len());
        let found = dentry::find(l, bytes, d.name, d.hash).expect("listed, so found");
        assert_eq!(found.name, d.name);
    }
    assert!(end <= l.slots);
    for n in [0, 1, 2, 32, 214, 1000] {
        let Some(slot) = dentry::free_run(l, bytes, n) else { continue };
        let mut changed = bytes.to_vec();
        let name = &[b'n'; 255][..(n * 8).min(255)];
        if dentry::slots_for(name.len()) == n {
            dentry::insert(l, &mut changed, slot, name, 5, 6, 1);
            assert_eq!(dentry::at(l, &changed, slot).map(|d| d.name), Some(name));
            dentry::redirect(l, &mut changed, slot, 8, 2);
            dentry::remove(l, &mut changed, slot);
            assert_eq!(dentry::at(l, &changed, slot), None);
        }
    }
    let mut changed = bytes.to_vec();
    for i in (0..l.slots).chain([usize::MAX / 16]) {
        dentry::redirect(l, &mut changed, i, 1, 1);
        dentry::remove(l, &mut changed, i);
    }
    assert_eq!(dentry::entries(l, &changed, 0).count(), 0);
    let _ = dentry::is_empty(l, bytes);
}

/// Directory blocks, inline directories of any size, and areas shorter than they claim.
pub fn directories(bytes: &[u8]) {
    area(&Layout::BLOCK, &block(bytes));
    area(&Layout::inline(bytes.len().min(BLOCK)), &bytes[..bytes.len().min(BLOCK)]);
    let l = Layout::BLOCK;
    for i in 0..l.slots {
        let _ = dentry::at(&l, bytes, i);
    }
    let _ = (dentry::find(&l, bytes, b"a", 0), dentry::free_run(&l, bytes, 1), dentry::is_empty(&l, bytes));
}

/// Names and the buckets of their hashes.
pub fn names(bytes: &[u8]) {
    let h = hash::name_hash(bytes);
    for level in WILD {
        for dir_level in [0, 1, 62, 255] {
            let bucket = dentry::bucket(level, dir_level, h);
            assert_eq!(bucket.end - bucket.start, dentry::bucket_blocks(level));
        }
    }
    if let Some((index, rest)) = xattr::split_name(bytes) {
        assert_eq!(xattr::full_name(index, rest).as_deref(), Some(bytes));
    }
    if let Some((&index, rest)) = bytes.split_first()
        && let Some(full) = xattr::full_name(index, rest)
        && rest.len() <= xattr::NAME_MAX
    {
        assert_eq!(xattr::split_name(&full), Some((index, rest)));
    }
}

/// Orphan blocks, and the inode numbers in the bytes.
pub fn orphans(bytes: &[u8]) {
    if let Ok(inos) = orphan::parse(&block(bytes)) {
        assert!(inos.len() <= orphan::ORPHANS_PER_BLOCK);
    }
    let inos: Vec<Ino> = bytes.as_chunks().0.iter().map(|b| Ino(u32::from_le_bytes(*b))).collect();
    let read: Vec<Ino> = orphan::encode(&inos).iter().flat_map(|b| orphan::parse(b).expect("ours")).collect();
    assert_eq!(read, inos);
}

/// Xattr lists of any bytes, without and with a valid header.
pub fn xattrs(bytes: &[u8]) {
    let mut headed = xattr::encode(&[], xattr::HEADER + 4).expect("room for a header");
    headed.truncate(xattr::HEADER);
    headed.extend_from_slice(bytes);
    for area in [bytes, &headed] {
        let Ok(entries) = xattr::entries(area) else {
            assert!(xattr::set(area, 1, b"x", None, 4272).is_err());
            continue;
        };
        assert!(xattr::used(area).expect("readable") <= area.len());
        for e in &entries {
            assert!(xattr::get(area, e.index, e.name).expect("readable").is_some());
        }
        let Some(set) = xattr::set(area, 1, b"x", Some(b"value"), area.len() + 64).expect("readable") else {
            assert!(entries.iter().any(|e| e.index == 0), "only lawless entries do not fit");
            continue;
        };
        assert_eq!(xattr::get(&set, 1, b"x"), Ok(Some(&b"value"[..])));
        let others = |area: &[xattr::XattrRef<'_>]| -> Vec<(u8, Vec<u8>, Vec<u8>)> {
            let all = area.iter().filter(|e| (e.index, e.name) != (1, b"x"));
            all.map(|e| (e.index, e.name.to_vec(), e.value.to_vec())).collect()
        };
        assert_eq!(others(&xattr::entries(&set).expect("ours")), others(&entries));
    }
}

/// Access control lists in both forms.
pub fn acls(bytes: &[u8]) {
    for (acl, disk) in [(Acl::from_wire(bytes), false), (Acl::from_disk(bytes), true)] {
        let Ok(mut acl) = acl else { continue };
        if disk {
            assert_eq!(acl.to_disk(), bytes);
        }
        assert_eq!(Acl::from_disk(&acl.to_disk()).as_ref(), Ok(&acl));
        assert_eq!(Acl::from_wire(&acl.to_wire()).as_ref(), Ok(&acl));
        let valid = acl.valid().is_ok();
        let (mode, minimal) = acl.equivalent_mode();
        assert!(mode <= 0o777);
        let mut made = acl.clone();
        let (kept, still) = made.create_masq(0o100_640);
        assert_eq!((kept & !0o777, kept & !0o640 & 0o777, still), (0o100_000, 0, minimal));
        if valid {
            assert_eq!((made.valid(), made.equivalent_mode().0), (Ok(()), kept & 0o777));
        }
        acl.chmod(0o751);
        assert!(!valid || acl.equivalent_mode().0 == 0o751);
        let _ = acl.to_string();
    }
    let _ = (format::acl::to_disk(bytes), format::acl::from_disk(bytes));
}

/// nat_bits with any tag and with the right one.
pub fn bits_of_nat(bytes: &[u8]) {
    let sb = lawful();
    let _ = NatBits::check(&sb, 5, bytes);
    let mut tagged = 5u64.to_le_bytes().to_vec();
    tagged.extend_from_slice(bytes);
    if let Ok(bits) = NatBits::check(&sb, 5, &tagged) {
        let len = 8 + 2 * sb.nat_bitmap_bytes();
        assert!(bits.encode(5).as_flattened()[..len] == tagged[..len]);
        for n in WILD {
            let mut same = bits.clone();
            same.set(n, bits.usage(n));
            assert_eq!(same, bits);
        }
    }
}
