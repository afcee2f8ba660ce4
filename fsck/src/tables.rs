//! Do the tables match the walk?

use device::Lba;
use format::bits;
use format::checkpoint::{CpFlags, LogHead};
use format::nat::{NAT_ENTRIES, NatEntry};
use format::sit::LogType;
use format::{BLOCK, BLOCKS_PER_SEG, BlockAddr, Nid, SegNo};

use super::chain::Chain;
use super::load::{Image, log_type};
use super::packs::pack_start;
use super::report::{Class, FindingKind as K, Report, Total};
use super::walk::Walked;
use super::{FsckError, TAG};

/// Numbers of Linux's internal inodes for nodes and metadata, which have no block. Their NAT entries record
/// themselves as inode, and block 1.
pub const RESERVED: [Nid; 2] = [Nid(1), Nid(2)];

/// Compares SIT, NAT, summaries, logs and totals with the reached blocks.
pub fn compare(img: &Image<'_>, walked: &Walked, report: &mut Report) -> Result<(), FsckError> {
    let free = segments(img, walked, report)?;
    logs(img, walked, report);
    nat(img, walked, report)?;
    for nid in RESERVED {
        let NatEntry { ino, addr, .. } = img.nat(nid)?;
        if (ino, addr) != (nid.as_ino(), BlockAddr(1)) {
            report.add(K::NatReserved { nid, ino, addr });
        }
    }
    let inodes = walked.counts.dirs + walked.counts.files;
    let totals = [
        (Total::ValidBlocks, img.cp.valid_blocks, walked.counts.blocks),
        (Total::ValidNodes, img.cp.valid_nodes.into(), walked.counts.nodes),
        (Total::ValidInodes, img.cp.valid_inodes.into(), inodes),
        (Total::FreeSegments, img.cp.free_segs.into(), free),
    ];
    for (total, stored, counted) in totals {
        if stored != counted {
            report.add(K::TotalWrong { total, stored, counted });
        }
    }
    if img.cp.flags.intersects(CpFlags::ERROR | CpFlags::FSCK) {
        let flags = img.cp.flags & (CpFlags::ERROR | CpFlags::FSCK);
        report.add(K::ErrorFlags { pack: img.pack, flags });
    }
    nat_bits(img, report)?;
    Chain::read(img)?.report(report);
    Ok(())
}

/// Checks SIT entries and summary footers; returns the number of free segments.
fn segments(img: &Image<'_>, walked: &Walked, report: &mut Report) -> Result<u64, FsckError> {
    let mut free = 0;
    for segment in (0..img.sb.main_segs).map(SegNo) {
        let stored = img.segment(segment);
        let reached = walked.reached.segment(segment);
        let log = img.log_of(segment);
        free += u64::from(log.is_none() && reached.iter().all(|&b| b == 0));
        let counted = bits::count(&stored.map) as u16;
        if counted != stored.valid {
            report.add(K::SitCountMismatch { segment, stored: stored.valid, counted });
        }
        let kind = log_type(stored.kind);
        if kind.is_none() {
            report.add(K::SitTypeBad { segment, stored: stored.kind });
        }
        let mut differ = |more: &[u8], less: &[u8], missing: bool| {
            let extra = |i: &u16| bits::msb_test(more, usize::from(*i)) && !bits::msb_test(less, usize::from(*i));
            let mut all = (0..BLOCKS_PER_SEG as u16).filter(extra);
            if let Some(first) = all.next() {
                let first = img.sb.seg_start(segment).plus(u32::from(first));
                let count = 1 + all.count() as u16;
                report.add(if missing {
                    K::SitMissing { segment, first, count }
                } else {
                    K::SitSurplus { segment, first, count }
                });
            }
        };
        if stored.map != reached {
            differ(&reached, &stored.map, true);
            differ(&stored.map, &reached, false);
        }
        let Some(&holds) = walked.classes.get(&segment) else { continue };
        if let Some(stored) = kind
            && holds != class(stored)
        {
            report.add(K::SitClassWrong { segment, stored, holds });
        }
        if let Some(block) = img.summary_block(segment)? {
            let stored = block[4091];
            if stored != u8::from(holds == Class::Node) {
                report.add(K::SummaryKindWrong { segment, stored, holds });
            }
        }
    }
    Ok(free)
}

/// Contents of a log's segments.
pub fn class(log: LogType) -> Class {
    if log.is_node() { Class::Node } else { Class::Data }
}

/// Checks that the next blocks of the logs are free.
fn logs(img: &Image<'_>, walked: &Walked, report: &mut Report) {
    for log in LogType::ALL {
        let head = img.cp.logs[log.index()];
        let segment = head.seg;
        if head == LogHead::NOWHERE {
            continue;
        }
        if let Some(stored) = log_type(img.segment(segment).kind)
            && stored != log
        {
            report.add(K::LogTypeWrong { log, segment, stored });
        }
        let map = img.segment(segment).map;
        let last = if head.threaded { head.next } else { BLOCKS_PER_SEG as u16 - 1 };
        let taken = |o: &u16| bits::msb_test(&map, usize::from(*o)) || walked.reached.has(segment, *o);
        if let Some(o) = (head.next..=last).find(taken) {
            let addr = img.sb.seg_start(segment).plus(u32::from(o));
            report.add(K::LogBlockTaken { log, addr });
        }
    }
}

/// Checks that every node in the NAT was reached.
fn nat(img: &Image<'_>, walked: &Walked, report: &mut Report) -> Result<(), FsckError> {
    for n in 0..img.sb.nat_blocks() {
        for (nid, NatEntry { ino, addr, .. }) in img.nat_live(n)? {
            if !walked.nids.has(nid.0) {
                report.add(K::Unreachable { nid, ino, addr });
            }
        }
    }
    Ok(())
}

/// Number of blocks of nat_bits at the end of a pack's segment.
pub fn nat_bits_blocks(nat_blocks: u32) -> u32 {
    (8 + 2 * (nat_blocks / 8)).div_ceil(BLOCK as u32)
}

/// Used entries of a NAT block; number 0 counts as used.
fn nat_used(img: &Image<'_>, n: u32) -> Result<u32, FsckError> {
    let mut used = img.nat_live(n)?.iter().filter(|(nid, _)| nid.0 != 0).count() as u32;
    if n == 0 {
        used += 1;
        for nid in RESERVED {
            used += u32::from(img.nat(nid)?.addr != BlockAddr::NULL);
        }
    }
    Ok(used)
}

fn nat_bits(img: &Image<'_>, report: &mut Report) -> Result<(), FsckError> {
    if !img.cp.flags.contains(CpFlags::NAT_BITS | CpFlags::UMOUNT) {
        return Ok(());
    }
    let blocks = nat_bits_blocks(img.sb.nat_blocks());
    let Some(back) = BLOCKS_PER_SEG.checked_sub(blocks) else { return Ok(()) };
    let mut stored = vec![0; blocks as usize * BLOCK];
    let at = pack_start(&img.sb, img.pack).plus(back);
    img.dev.read(Lba(u64::from(at.0)), &mut stored, TAG)?;
    let version = img.cp.version | u64::from(img.cp.crc) << 32;
    let (head, maps) = stored.split_at(8);
    if head != version.to_le_bytes() {
        // Bits with another checkpoint's tag: Linux ignores them.
        return Ok(());
    }
    let bytes = img.sb.nat_blocks() as usize / 8;
    let (full, empty) = (&maps[..bytes], &maps[bytes..2 * bytes]);
    for block in 0..img.sb.nat_blocks() {
        let i = block as usize;
        let word = |full: bool, empty: bool| match (full, empty) {
            (true, _) => "full",
            (_, true) => "empty",
            _ => "in use",
        };
        let used = nat_used(img, block)?;
        let marked = word(bits::lsb_test(full, i), bits::lsb_test(empty, i));
        let is = word(used == NAT_ENTRIES, used == 0);
        if marked != is {
            report.add(K::NatBitsWrong { block, marked, is });
        }
    }
    Ok(())
}
