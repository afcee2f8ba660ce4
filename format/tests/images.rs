//! Volumes written by `mkfs.f2fs` and `sload.f2fs` are decoded, and encoded again bit for bit.

use format::checkpoint::{Checkpoint, CpFlags};
use format::dentry::{self, Layout};
use format::inode::{self, Inline, RawInode};
use format::nat_bits::{self, NatBits, Usage};
use format::sit::{self, LogType, SitEntry};
use format::summary::{self, Summary, SummaryKind};
use format::superblock::{Features, SuperBlock};
use format::{BLOCK, Block, BlockAddr, Nid, SegNo, bits, hash, nat, node};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use crate::image::{self, Image, Images};

fn images() -> &'static [Image] {
    static IMAGES: OnceLock<Images> = OnceLock::new();
    &IMAGES.get_or_init(image::make).all
}

#[test]
fn both_superblocks_are_stored_again_bit_for_bit() {
    for image in images() {
        for copy in 0..2 {
            let block = image.block(BlockAddr(copy));
            let sb = SuperBlock::check(&block).unwrap();
            let mut again = [0; BLOCK];
            again[..1024].copy_from_slice(&block[..1024]);
            sb.raw.store(&mut again);
            assert!(again == block, "{}, copy {copy}", image.name);
        }
    }
}

#[test]
fn both_checkpoints_of_every_volume_are_encoded_again_bit_for_bit() {
    for image in images() {
        for (at, cp) in image.packs() {
            let head: Vec<u8> = (0..=image.sb.cp_payload).flat_map(|i| image.block(at.plus(i))).collect();
            assert!(cp.clone().encode(&image.sb) == head, "{}, pack at {at}", image.name);
            let tail = image.block(at.plus(cp.pack_blocks - 1));
            assert!(tail[..] == head[..BLOCK], "{}: the tail is the head again", image.name);
        }
    }
}

/// Encodes a normal summary block from its decoded contents.
fn again(block: &Block) -> Block {
    let mut out = [0; BLOCK];
    for i in 0..summary::SUMMARY_ENTRIES {
        summary::put(&mut out, i, summary::get(block, i));
    }
    summary::journal_mut(&mut out).copy_from_slice(summary::journal(block));
    summary::set_kind(&mut out, summary::kind(block).expect("data or node"));
    out
}

fn entries_of(cp: &Checkpoint, log: LogType) -> usize {
    let head = cp.logs[log.index()];
    if head.threaded { 512 } else { usize::from(head.next) }
}

#[test]
fn summaries_and_journals_of_every_pack_are_encoded_again_bit_for_bit() {
    let mut compact = 0;
    for image in images() {
        for (at, cp) in image.packs() {
            let (nat, sit) = image.journals(at, &cp);
            let nats = summary::nat_journal(&nat).unwrap();
            let sits = summary::sit_journal(&sit).unwrap();
            let (nat, sit): ([u8; 507], [u8; 507]) = (nat.try_into().unwrap(), sit.try_into().unwrap());
            // Linux and the tools leave stale entries behind the count; they are not compared.
            let live = |n: usize, of: usize| 2 + n * of;
            let our_nat = summary::encode_nat_journal(&nats);
            let our_sit = summary::encode_sit_journal(&sits);
            assert_eq!(our_nat[..live(nats.len(), 13)], nat[..live(nats.len(), 13)]);
            assert_eq!(our_sit[..live(sits.len(), 78)], sit[..live(sits.len(), 78)]);
            for (_, entry) in &sits {
                assert_eq!(SitEntry::check(entry).unwrap().to_raw(), *entry);
            }

            let sums: Vec<Block> = (cp.start_sum..cp.pack_blocks - 1).map(|i| image.block(at.plus(i))).collect();
            let data: usize = LogType::ALL[..3].iter().map(|&log| entries_of(&cp, log)).sum();
            let nodes = if cp.flags.contains(CpFlags::COMPACT_SUM) {
                compact += 1;
                let blocks = summary::compact_blocks(data);
                let entries: Vec<Summary> = (0..data).map(|n| summary::compact_get(&sums, n).unwrap()).collect();
                let ours = summary::encode_compact(&nat, &sit, entries.into_iter());
                assert!(ours == sums[..blocks], "{}: compact summaries", image.name);
                blocks
            } else {
                3
            };
            assert_eq!(sums.len(), nodes + 3, "{}: three node summaries after a clean end", image.name);
            for (i, block) in sums.iter().enumerate().skip(if nodes == 3 { 0 } else { nodes }) {
                assert!(again(block) == *block, "{}: summary {i}", image.name);
                let kind = if i < nodes { SummaryKind::Data } else { SummaryKind::Node };
                assert_eq!(summary::kind(block), Some(kind), "{}: summary {i}", image.name);
            }
        }
    }
    assert!(compact > 0, "no volume had compact summaries");
}

#[test]
fn every_block_of_the_node_table_is_encoded_again_bit_for_bit() {
    for image in images() {
        for n in 0..image.sb.nat_blocks() {
            for second in [false, true] {
                let block = image.block(image.sb.nat_block(n, second));
                let mut again = [0; BLOCK];
                for i in 0..nat::NAT_ENTRIES as usize {
                    nat::put(&mut again, i, nat::get(&block, i));
                }
                assert!(again == block, "{}: NAT block {n}", image.name);
            }
        }
    }
}

#[test]
fn every_block_of_the_segment_table_is_encoded_again_bit_for_bit() {
    for image in images() {
        for n in 0..image.sb.sit_blocks() {
            for second in [false, true] {
                let block = image.block(image.sb.sit_block(n, second));
                let mut again = [0; BLOCK];
                for i in 0..sit::SIT_ENTRIES as usize {
                    let entry = SitEntry::check(&sit::get(&block, i)).unwrap();
                    sit::put(&mut again, i, &entry.to_raw());
                }
                assert!(again == block, "{}: SIT block {n}", image.name);
            }
        }
    }
}

#[test]
fn every_node_is_found_by_its_number_and_its_footer_and_checksum_are_ours_too() {
    for image in images() {
        let seed = inode::checksum_seed(&image.sb.uuid);
        let mut inodes = 0;
        for (nid, entry) in image.nodes() {
            let block = image.block(entry.addr);
            let footer = node::footer(&block);
            assert_eq!((footer.nid, footer.ino), (nid, entry.ino), "{}", image.name);
            let mut again = block;
            again[node::FOOTER..].fill(0);
            node::set_footer(&mut again, &footer);
            assert!(again == block, "{}: footer of {nid}", image.name);
            if footer.offset != 0 {
                let mut again = [0; BLOCK];
                for i in 0..node::ADDRS_PER_BLOCK as usize {
                    node::set_word(&mut again, i, node::word(&block, i));
                }
                node::set_footer(&mut again, &footer);
                assert!(again == block, "{}: node {nid}", image.name);
                continue;
            }
            inodes += 1;
            RawInode::of(&block).divide(image.sb.features).unwrap();
            inode::verify_checksum(image.sb.features, seed, &block).unwrap();
            assert_eq!(
                inode::has_checksum(image.sb.features, RawInode::of(&block)),
                image.sb.features.contains(Features::INODE_CHECKSUM),
            );
            let mut again = block;
            inode::seal(image.sb.features, seed, &mut again);
            assert!(again == block, "{}: checksum of inode {nid}", image.name);
        }
        assert_eq!(inodes, image.cp.valid_inodes, "{}", image.name);
        assert_eq!(image.nodes().len() as u32, image.cp.valid_nodes, "{}", image.name);
    }
}

/// Names of a directory with their inode numbers; each must have our hash, be in its bucket, and be found by
/// lookup.
fn names(image: &Image, nodes: &BTreeMap<Nid, nat::NatEntry>, dir: Nid) -> BTreeMap<Vec<u8>, u32> {
    let block = image.block(nodes[&dir].addr);
    let raw = RawInode::of(&block);
    let mut out = BTreeMap::new();
    let mut area = |layout: &Layout, bytes: &[u8], index: Option<u64>| {
        for d in dentry::entries(layout, bytes, 0) {
            assert_eq!(d.hash, hash::name_hash(d.name), "{}: {:?}", image.name, d.name);
            assert_eq!(dentry::find(layout, bytes, d.name, d.hash), Some(d));
            if let (Some(index), false) = (index, d.hash == 0) {
                let depth = raw.i_current_depth.get();
                let there = (0..depth).any(|l| dentry::bucket(l, raw.i_dir_level, d.hash).contains(&index));
                assert!(there, "{}: {:?} in block {index}", image.name, d.name);
            }
            out.insert(d.name.to_vec(), d.ino);
        }
    };
    if raw.inline().contains(Inline::DENTRY) {
        let bytes = &block[raw.divide(image.sb.features).unwrap().inline_area()];
        area(&Layout::inline(bytes.len()), bytes, None);
    } else {
        for (index, addr) in image.map(nodes, &block).into_iter().enumerate() {
            if addr.is_real() {
                area(&Layout::BLOCK, &image.block(addr), Some(index as u64));
            }
        }
    }
    out
}

#[test]
fn names_of_every_length_have_our_hash_and_lie_where_we_look() {
    for image in images() {
        let nodes = image.nodes();
        let root = names(image, &nodes, image.sb.root.nid());
        assert_eq!(root[&b".."[..]], image.sb.root.0, "{}", image.name);
        let many = names(image, &nodes, Nid(root[&b"many"[..]]));
        let want: BTreeSet<Vec<u8>> = (0..image::NAMES).map(|i| image::name(i).into_bytes()).collect();
        let mut got: BTreeSet<Vec<u8>> = many.into_keys().collect();
        assert!(got.remove(&b"."[..]) && got.remove(&b".."[..]), "{}", image.name);
        assert!(got == want, "{}: {} names", image.name, got.len());
        assert_eq!(names(image, &nodes, Nid(root[&b"dir3"[..]])).len(), 3);
    }
}

#[test]
fn the_tree_of_a_big_file_leads_to_its_content() {
    let want = image::big();
    for image in images().iter().filter(|i| !i.wrong_map()) {
        let nodes = image.nodes();
        let root = names(image, &nodes, image.sb.root.nid());
        let block = image.block(nodes[&Nid(root[&b"big"[..]])].addr);
        assert_eq!(RawInode::of(&block).i_size.get(), want.len() as u64);
        let map = image.map(&nodes, &block);
        for (i, (addr, want)) in map.into_iter().zip(want.chunks(BLOCK)).enumerate() {
            let same = addr.is_real() && image.block(addr)[..want.len()] == *want;
            assert!(same, "{}: block {i} at {addr}", image.name);
        }
    }
}

#[test]
fn every_valid_block_is_owned_as_its_summary_says() {
    for image in images().iter().filter(|i| !i.sb.features.contains(Features::RO)) {
        let (sb, nodes) = (&image.sb, image.nodes());
        let (_, journal) = image.journals(image.pack, &image.cp);
        let journal: BTreeMap<SegNo, sit::RawSitEntry> = summary::sit_journal(&journal).unwrap().into_iter().collect();
        let mut valid = 0;
        for seg in (0..sb.main_segs).map(SegNo) {
            let n = seg.0 / sit::SIT_ENTRIES;
            let table = image.block(sb.sit_block(n, bits::msb_test(&image.cp.sit_bitmap, n as usize)));
            let stored = sit::get(&table, (seg.0 % sit::SIT_ENTRIES) as usize);
            let entry = SitEntry::check(journal.get(&seg).unwrap_or(&stored)).unwrap();
            valid += u64::from(entry.valid);
            if entry.valid == 0 {
                continue;
            }
            let log = image.cp.logs.iter().position(|l| l.seg == seg);
            assert!(!image.cp.flags.contains(CpFlags::COMPACT_SUM), "sload writes normal summaries");
            let sums = image.block(match log {
                Some(log) => image.pack.plus(image.cp.start_sum + log as u32),
                None => sb.ssa_block(seg),
            });
            let kind = summary::kind(&sums);
            assert_eq!(kind == Some(SummaryKind::Node), entry.log.is_node(), "{}: {seg}", image.name);
            for off in (0..512).filter(|&off| bits::msb_test(&entry.map, off)) {
                let at = sb.seg_start(seg).plus(off as u32);
                assert_eq!(sb.locate(at), Some((seg, off as u16)));
                let owner = summary::get(&sums, off);
                let node = nodes[&owner.nid];
                if kind == Some(SummaryKind::Node) {
                    assert_eq!(node.addr, at, "{}: node {}", image.name, owner.nid);
                    continue;
                }
                let block = image.block(node.addr);
                let slot = if node::footer(&block).offset == 0 {
                    let raw = RawInode::of(&block);
                    raw.addr(raw.divide(sb.features).unwrap(), owner.slot.into())
                } else {
                    BlockAddr(node::word(&block, owner.slot.into()))
                };
                assert_eq!(slot, at, "{}: {owner:?}", image.name);
                assert_eq!(node.version, owner.version, "{}: {owner:?}", image.name);
            }
        }
        assert_eq!(valid, image.cp.valid_blocks, "{}", image.name);
    }
}

#[test]
fn nat_bits_say_what_the_table_holds_and_are_encoded_again_bit_for_bit() {
    let mut seen = 0;
    for image in images().iter().filter(|i| i.cp.flags.contains(CpFlags::NAT_BITS)) {
        seen += 1;
        let sb = &image.sb;
        let at = image.pack.plus(nat_bits::offset(sb.nat_blocks()).unwrap());
        let stored: Vec<Block> = (0..nat_bits::blocks(sb.nat_blocks())).map(|i| image.block(at.plus(i))).collect();
        let tag = nat_bits::tag(image.cp.version, image.cp.crc);
        let read = NatBits::check(sb, tag, stored.as_flattened()).unwrap();
        assert!(read.encode(tag) == stored, "{}", image.name);
        assert!(NatBits::check(sb, tag ^ 1, stored.as_flattened()).is_err(), "{}", image.name);

        let mut used = vec![0; sb.nat_blocks() as usize];
        used[0] = 2; // node and meta inode
        for nid in image.nodes().keys() {
            used[(nid.0 / nat::NAT_ENTRIES) as usize] += 1;
        }
        let mut ours = NatBits::new(sb, Usage::Empty);
        for (n, &used) in used.iter().enumerate() {
            ours.set(n as u32, Usage::classify(n as u32, used));
            assert_eq!(read.usage(n as u32), Usage::classify(n as u32, used), "{}: {n}", image.name);
        }
        assert!(ours == read, "{}", image.name);
    }
    assert!(seen > 0, "no volume had nat_bits");
}
