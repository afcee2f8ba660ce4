//! What do the superblock and the checkpoint packs of a new volume contain?

use format::casefold;
use format::checkpoint::{Checkpoint, CpFlags, LogHead};
use format::sit::{LogType, RawSitEntry, SitEntry};
use format::summary::{self, SummaryKind};
use format::superblock::{DELTA_MAGIC, Features, MAGIC, RawSuperBlock, SuperBlock};
use format::{BLOCK, BLOCKS_PER_SEG, Block, SegNo, bits};
use zerocopy::FromZeros;

use super::tree::{self, FirstTree};
use super::{Geometry, Options};

/// The format version: that of `mkfs.f2fs` 1.15.
const MAJOR: u16 = 1;
const MINOR: u16 = 15;
const LOG_SECTOR: u32 = 9;
const LOG_BLOCK: u32 = 12;
const CHECKSUM_AT: u32 = 3068;

/// Blocks 0 and 1.
pub(super) fn superblock(g: &Geometry, uuid: &[u8; 16], opts: &Options) -> Block {
    let mut raw = RawSuperBlock::new_zeroed();
    // Deltas have no feature bit: the magic number shows that they may exist.
    raw.magic = if opts.features.contains(Features::DELTA) { DELTA_MAGIC } else { MAGIC }.into();
    raw.major_ver = MAJOR.into();
    raw.minor_ver = MINOR.into();
    raw.log_sectorsize = LOG_SECTOR.into();
    raw.log_sectors_per_block = (LOG_BLOCK - LOG_SECTOR).into();
    raw.log_blocksize = LOG_BLOCK.into();
    raw.log_blocks_per_seg = BLOCKS_PER_SEG.ilog2().into();
    raw.segs_per_sec = g.segs_per_sec.into();
    raw.secs_per_zone = g.secs_per_zone.into();
    if opts.features.contains(Features::SB_CHKSUM) {
        raw.checksum_offset = CHECKSUM_AT.into();
    }
    raw.block_count = g.block_count.into();
    raw.section_count = (g.main_segs / g.segs_per_sec).into();
    raw.segment_count = g.segment_count.into();
    raw.segment_count_ckpt = 2.into();
    raw.segment_count_sit = g.sit_segs.into();
    raw.segment_count_nat = g.nat_segs.into();
    raw.segment_count_ssa = g.ssa_segs.into();
    raw.segment_count_main = g.main_segs.into();
    raw.segment0_blkaddr = g.segment0.into();
    let mut at = g.segment0;
    for (area, segs) in [
        (&mut raw.cp_blkaddr, 2),
        (&mut raw.sit_blkaddr, g.sit_segs),
        (&mut raw.nat_blkaddr, g.nat_segs),
        (&mut raw.ssa_blkaddr, g.ssa_segs),
    ] {
        *area = at.into();
        at += segs * BLOCKS_PER_SEG;
    }
    raw.main_blkaddr = g.main.into();
    raw.node_ino = 1.into();
    raw.meta_ino = 2.into();
    raw.root_ino = 3.into();
    raw.uuid = *uuid;
    for (unit, c) in raw.volume_name.iter_mut().zip(opts.label.encode_utf16()) {
        *unit = c.into();
    }
    raw.extension_count = (opts.cold_extensions.len() as u32).into();
    raw.hot_ext_count = opts.hot_extensions.len() as u8;
    let listed = opts.cold_extensions.iter().chain(&opts.hot_extensions);
    for (slot, ext) in raw.extension_list.iter_mut().zip(listed) {
        slot[..ext.len()].copy_from_slice(ext.as_bytes());
    }
    raw.cp_payload = g.cp_payload.into();
    let maker = concat!("JouleFS ", env!("CARGO_PKG_VERSION")).as_bytes();
    raw.version[..maker.len()].copy_from_slice(maker);
    raw.init_version[..maker.len()].copy_from_slice(maker);
    raw.feature = opts.volume_features().difference(Features::DELTA).bits().into();
    if opts.features.contains(Features::CASEFOLD) {
        raw.s_encoding = casefold::UTF8_12_1.into();
    }
    raw.qf_ino = tree::quota_inos(opts.features).0.map(Into::into);
    let mut block = [0; BLOCK];
    raw.store(&mut block);
    block
}

/// Both packs.
pub(super) struct Packs {
    /// The contents of the valid pack.
    pub checkpoint: Checkpoint,
    /// Blocks of the valid pack.
    pub first: Vec<Block>,
    /// nat_bits, and their offset in blocks from the pack's start; `None` if they do not fit.
    pub nat_bits: Option<(u32, Vec<Block>)>,
    /// Blocks of the second pack: its version is older than that of any checkpoint, so the first pack is chosen.
    pub second: Vec<Block>,
}

pub(super) fn pack(sb: &SuperBlock, g: &Geometry, opts: &Options, first: &FirstTree, version: u64) -> Packs {
    let (nodes, data) = (first.nat.len() as u32, first.data.len() as u32);
    // Head, payload, one block of data summaries, three of node summaries, tail.
    let pack_blocks = 6 + sb.cp_payload;
    let bits_bytes = sb.nat_bitmap_bytes();
    let bits_blocks = (8 + 2 * bits_bytes).div_ceil(BLOCK) as u32;
    let bits_fit = pack_blocks + bits_blocks <= BLOCKS_PER_SEG;
    let mut flags = CpFlags::UMOUNT | CpFlags::COMPACT_SUM;
    flags.set(CpFlags::NAT_BITS, bits_fit);
    flags.set(CpFlags::TRIMMED, opts.discard || opts.assume_zeroed);
    flags.set(CpFlags::LARGE_NAT_BITMAP, opts.large_nat_bitmap);
    let mut logs = g.logs.map(|seg| LogHead { seg, next: 0, threaded: false });
    logs[LogType::HotNode.index()].next = nodes as u16;
    logs[LogType::HotData.index()].next = data as u16;
    let mut checkpoint = Checkpoint {
        version,
        user_blocks: g.user_blocks(),
        valid_blocks: u64::from(nodes + data),
        reserved_segs: g.reserved_segs,
        overprov_segs: g.overprov_segs,
        free_segs: g.main_segs - LogType::ALL.len() as u32,
        logs,
        flags,
        pack_blocks,
        start_sum: 1 + sb.cp_payload,
        valid_nodes: nodes,
        valid_inodes: nodes,
        next_free_nid: first.next_nid(),
        elapsed: 0,
        sit_bitmap: vec![0; sb.sit_bitmap_bytes()],
        nat_bitmap: vec![0; bits_bytes],
        crc: 0,
    };

    let mut older = Checkpoint { version: 0, ..checkpoint.clone() };
    let payload = older.encode(sb);
    let mut second = blocks_of(&payload);
    let tail = second[0];
    second.resize(pack_blocks as usize - 1, [0; BLOCK]);
    second.push(tail);

    let mut pack = blocks_of(&checkpoint.encode(sb));
    let tail = pack[0];
    pack.extend(summary::encode_compact(
        &summary::encode_nat_journal(&first.nat),
        &summary::encode_sit_journal(&sit_entries(g, nodes, data)),
        first.data.iter().copied(),
    ));
    pack.extend(node_summaries(first));
    pack.push(tail);

    let nat_bits = bits_fit.then(|| {
        let bits = nat_bits(sb, first, u64::from(checkpoint.crc) << 32 | version, bits_blocks as usize);
        (BLOCKS_PER_SEG - bits_blocks, bits)
    });
    Packs { checkpoint, first: pack, nat_bits, second }
}

fn blocks_of(bytes: &[u8]) -> Vec<Block> {
    bytes.as_chunks::<BLOCK>().0.to_vec()
}

/// The logs' segments: the two in use, and the types of the others.
fn sit_entries(g: &Geometry, nodes: u32, data: u32) -> Vec<(SegNo, RawSitEntry)> {
    use LogType::{ColdData, ColdNode, HotData, HotNode, WarmData, WarmNode};
    let entry = |log: LogType| {
        let valid = match log {
            HotNode => nodes as u16,
            HotData => data as u16,
            _ => 0,
        };
        let mut map = [0; format::sit::MAP_BYTES];
        for i in 0..usize::from(valid) {
            bits::msb_put(&mut map, i, true);
        }
        (g.logs[log.index()], SitEntry { log, valid, map, mtime: 0 }.to_raw())
    };
    [HotNode, WarmNode, ColdNode, HotData, WarmData, ColdData].map(entry).to_vec()
}

/// Summaries of the hot, warm and cold node logs: only the first log has blocks.
fn node_summaries(first: &FirstTree) -> [Block; 3] {
    let mut blocks = [[0; BLOCK]; 3];
    for block in &mut blocks {
        summary::set_kind(block, SummaryKind::Node);
    }
    for (i, (nid, _)) in first.nat.iter().enumerate() {
        summary::put(&mut blocks[0], i, summary::Summary { nid: *nid, version: 0, slot: 0 });
    }
    blocks
}

/// Two bits for each block of the node table: no entry free (never true here), all entries free.
fn nat_bits(sb: &SuperBlock, first: &FirstTree, tag: u64, blocks: usize) -> Vec<Block> {
    let bytes = sb.nat_bitmap_bytes();
    let mut out = vec![[0u8; BLOCK]; blocks];
    let flat = out.as_flattened_mut();
    flat[..8].copy_from_slice(&tag.to_le_bytes());
    let empty = &mut flat[8 + bytes..8 + 2 * bytes];
    empty.fill(0xFF);
    for (n, _) in first.nat_blocks() {
        bits::lsb_put(empty, n as usize, false);
    }
    out
}
