//! Is an Android sparse image a whole volume, or a piece of a split one?
//!
//! Blocks that a sparse image does not store ("don't care") read as zeroes, which is right for free blocks and wrong
//! for all others. `simg2simg` splits an image into pieces, each with the size of the whole and without the blocks of
//! the other pieces; pieces in one directory are read together. So before a volume is read from a sparse image, every
//! block in use must be stored: its superblock, checkpoint, tables, and the blocks in use according to the SIT. On
//! ScherlFS, reading a missing block fails. Left out: other file systems, of which `inspect` reads the tables.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use device::{Access, BlockDevice, Opened, SparseImage, open_any};
use format::superblock::SuperBlock;
use format::{BLOCKS_PER_SEG, BlockAddr, bits};
use inspect::{Findings, Progress, begin, tables};
use volume::Kind;

use crate::output;

/// Opens any image but a zoned disk; refuses a sparse image that lacks blocks of its volume.
pub fn open(path: &Path, access: Access) -> Result<Arc<dyn BlockDevice>, String> {
    let mut image = match open_any(path, access).map_err(|e| e.to_string())? {
        Opened::File(file) => return Ok(Arc::new(file)),
        Opened::Sparse(image) => image,
    };
    match look(&image) {
        Seen::Whole => {}
        Seen::Unknown => image.refuse_absent(),
        Seen::Lacks(what) => return Err(refusal(path, &image, &what)),
    }
    Ok(Arc::new(image))
}

/// Like [`open`], for rescuing files: reading missing blocks of a sparse image fails.
pub fn open_ruin(path: &Path) -> Result<Arc<dyn BlockDevice>, String> {
    let mut image = match open_any(path, Access::ReadOnly).map_err(|e| e.to_string())? {
        Opened::File(file) => return Ok(Arc::new(file)),
        Opened::Sparse(image) => image,
    };
    match look(&image) {
        Seen::Whole => {}
        Seen::Unknown => image.refuse_absent(),
        Seen::Lacks(what) => {
            output::warn(&refusal(path, &image, &what));
            image.refuse_absent();
        }
    }
    Ok(Arc::new(image))
}

fn refusal(path: &Path, image: &SparseImage, what: &str) -> String {
    let read = match image.pieces() {
        1 => "a piece of a split Android sparse image, or a damaged one".to_owned(),
        n => format!("{n} pieces of a split Android sparse image, and not all"),
    };
    format!(
        "{}: {read}: {what}. Put all pieces into one directory, named by number (x.0, x.1, ...), and give one of them; \
         or join them: simg2img PIECE... whole.img",
        path.display()
    )
}

/// The state of a sparse image.
enum Seen {
    Whole,
    /// The blocks in use are unknown.
    Unknown,
    /// A needed block is missing.
    Lacks(String),
}

fn look(image: &SparseImage) -> Seen {
    let absent: Vec<Range<u64>> = image.absent().collect();
    if absent.is_empty() {
        return Seen::Whole;
    }
    let lacks = |block: u64| {
        let next = absent.partition_point(|range| range.end <= block);
        absent.get(next).is_some_and(|range| range.contains(&block))
    };
    let mut found = Findings::default();
    let Ok(sb) = begin::superblock(image, &mut found) else {
        return match volume::probe(image) {
            Some(Kind::ScherlFs) => Seen::Unknown,
            _ if lacks(0) => Seen::Lacks("its first block is missing".to_owned()),
            // Other file systems omit tables that were never written, and read them as zeroes.
            _ => Seen::Whole,
        };
    };
    let Some(pack) = begin::pack(image, &sb, &mut found) else {
        let packs = u64::from(sb.cp.0);
        return match lacks(packs) || lacks(packs + u64::from(BLOCKS_PER_SEG)) {
            true => Seen::Lacks("its checkpoint is missing".to_owned()),
            // Damaged, but not by splitting.
            false => Seen::Unknown,
        };
    };
    let cp = &pack.checkpoint;
    let table = |blocks: u32, at: &dyn Fn(u32) -> BlockAddr| (0..blocks).find(|n| lacks(at(*n).0.into()));
    let sit_blocks = sb.main_segs.div_ceil(format::sit::SIT_ENTRIES);
    if table(sit_blocks, &|n| sb.sit_block(n, bits::msb_test(&cp.sit_bitmap, n as usize))).is_some() {
        return Seen::Lacks("a part of its SIT is missing".to_owned());
    }
    if table(sb.nat_blocks(), &|n| sb.nat_block(n, bits::msb_test(&cp.nat_bitmap, n as usize))).is_some() {
        return Seen::Lacks("a part of its NAT is missing".to_owned());
    }
    let Ok((sit, _)) = tables::read(image, &sb, &pack, &mut found, &mut Progress::new(&mut |_| true)) else {
        return Seen::Unknown;
    };
    match missing(&absent, &sb, &sit) {
        (0, _) => Seen::Whole,
        (count, first) => {
            Seen::Lacks(format!("{count} blocks that the volume uses are missing, the first is block {first}"))
        }
    }
}

/// The number of missing blocks that are in use, and the first of them.
fn missing(absent: &[Range<u64>], sb: &SuperBlock, sit: &tables::Sit) -> (u64, u64) {
    let (mut count, mut first) = (0, 0);
    let (main, end) =
        (u64::from(sb.main.0), u64::from(sb.main.0) + u64::from(sb.main_segs) * u64::from(BLOCKS_PER_SEG));
    for range in absent {
        let mut at = range.start.max(main);
        while at < range.end.min(end) {
            let located = u32::try_from(at).ok().and_then(|at| sb.locate(BlockAddr(at)));
            let Some((seg, offset)) = located else { break };
            let segment = sit.segment(seg);
            if segment.valid == 0 {
                at += u64::from(BLOCKS_PER_SEG) - u64::from(offset);
                continue;
            }
            if segment.has(offset) {
                first = if count == 0 { at } else { first };
                count += 1;
            }
            at += 1;
        }
    }
    (count, first)
}
