//! How large is each area, and how much space is reserved?
//!
//! The arithmetic of `mkfs.f2fs` 1.15, found from its images: the reserve is computed in floating
//! point with the candidates added up step by step, since their rounding errors show in the result.

use format::nat::NAT_ENTRIES;
use format::sit::SIT_ENTRIES;
use format::superblock::Features;
use format::{BLOCK, BLOCKS_PER_SEG, SegNo};

use super::{MkfsError, Options};

/// Most blocks of a volume: addresses have 32 bits, and the last two have special meanings. Whole segments, so 16 TiB
/// less one segment.
pub const MAX_BLOCKS: u64 = (1 << 32) - BLOCKS_PER_SEG as u64;

/// Logs that write at the same time, each in its own segment.
const LOGS: u32 = 6;
/// Bytes between the fixed part of a checkpoint block and its checksum, for version bitmaps.
const BITMAP_ROOM: u64 = 3900;
/// Bytes of bitmap for one NAT segment: at least this much is left next to the SIT's bitmap.
const ONE_NAT_SEGMENT: u64 = 64;
/// With a large NAT bitmap: percentage of blocks that may be nodes.
const NODE_PERCENT: u64 = 20;

/// The position of each area, in blocks and segments.
#[derive(Debug, Clone, PartialEq)]
pub struct Geometry {
    /// Blocks of the volume.
    pub block_count: u64,
    /// First block of segment 0, where the checkpoint area begins.
    pub segment0: u32,
    /// Segments from segment 0 on.
    pub segment_count: u32,
    /// Segments of the SIT, both copies.
    pub sit_segs: u32,
    /// Segments of the NAT, both copies.
    pub nat_segs: u32,
    /// Segments of the SSA.
    pub ssa_segs: u32,
    /// Segments of the main area.
    pub main_segs: u32,
    /// First block of the main area.
    pub main: u32,
    /// Segments in a section.
    pub segs_per_sec: u32,
    /// Sections in a zone.
    pub secs_per_zone: u32,
    /// Blocks in each checkpoint pack for version bitmaps that do not fit in its first block.
    pub cp_payload: u32,
    /// Percent of the main area reserved, chosen or best.
    pub overprovision: f64,
    /// Segments reserved for cleaning only.
    pub reserved_segs: u32,
    /// Segments that users cannot use, including the reserved ones.
    pub overprov_segs: u32,
    /// First segment of each log, indexed by [`format::sit::LogType`].
    pub logs: [SegNo; LOGS as usize],
}

impl Geometry {
    /// Plans a volume of `blocks` blocks; blocks beyond [`MAX_BLOCKS`] are unused.
    ///
    /// # Errors
    /// [`MkfsError::TooSmall`] with the smallest size that works, [`MkfsError::Impossible`] if none does.
    pub fn plan(blocks: u64, opts: &Options) -> Result<Self, MkfsError> {
        let blocks = blocks.min(MAX_BLOCKS);
        Self::try_plan(blocks, opts).map_or_else(|| Err(too_small(blocks, opts)), Ok)
    }

    /// `None` if an area does not fit.
    fn try_plan(blocks: u64, opts: &Options) -> Option<Self> {
        let seg = u64::from(BLOCKS_PER_SEG);
        let per_zone = opts.segs_per_sec.checked_mul(opts.secs_per_zone)?;
        let zone_blocks = u64::from(per_zone) * seg;
        // Both superblocks come first, then whole zones.
        let segment0 = 2u64.next_multiple_of(zone_blocks);
        let zones = blocks.checked_sub(segment0)? / zone_blocks;
        let segment_count = u32::try_from(zones * u64::from(per_zone)).ok()?;

        let segs_for = |blocks: u64| u32::try_from(blocks.div_ceil(seg)).ok();
        let sit = segs_for(u64::from(segment_count).div_ceil(SIT_ENTRIES.into()))?;
        let left = u64::from(segment_count.checked_sub(2 + 2 * sit)?) * seg;
        let nat_wanted = segs_for(left.div_ceil(NAT_ENTRIES.into()))?;
        let sit_bitmap = u64::from(sit) * seg / 8;
        let (nat, cp_payload) = if opts.large_nat_bitmap {
            let nat = (u64::from(nat_wanted) * NODE_PERCENT / 100).max(1);
            let excess = (sit_bitmap + nat * seg / 8).saturating_sub(BITMAP_ROOM);
            (nat, excess.div_ceil(BLOCK as u64))
        } else {
            let beside = sit_bitmap <= BITMAP_ROOM - ONE_NAT_SEGMENT;
            let room = BITMAP_ROOM - if beside { sit_bitmap } else { 0 };
            let payload = if beside { 0 } else { sit_bitmap.div_ceil(BLOCK as u64) };
            (u64::from(nat_wanted).min(room * 8 / seg), payload)
        };
        let nat = u32::try_from(nat).ok()?;
        let tables = 2 + 2 * sit + 2 * nat;
        let ssa = segs_for(u64::from(segment_count.checked_sub(tables)?) + 1)?;
        // The main area begins with a zone; the SSA takes the slack.
        let meta = (tables + ssa).checked_next_multiple_of(per_zone)?;
        let main_segs = segment_count.checked_sub(meta)?;
        let main_segs = main_segs - main_segs % opts.segs_per_sec;
        let (overprovision, reserved_segs) = reserve(main_segs, opts)?;
        let share = f64::from(main_segs - reserved_segs) * overprovision / 100.0;
        let overprov_segs = reserved_segs + share as u32;

        let logs = log_starts(main_segs / per_zone, per_zone);
        let last = logs.iter().map(|s| s.0).max()?;
        let user = main_segs.checked_sub(overprov_segs)?;
        let geometry = Geometry {
            block_count: blocks,
            segment0: u32::try_from(segment0).ok()?,
            segment_count,
            sit_segs: 2 * sit,
            nat_segs: 2 * nat,
            ssa_segs: meta - tables,
            main_segs,
            main: u32::try_from(segment0 + u64::from(meta) * seg).ok()?,
            segs_per_sec: opts.segs_per_sec,
            secs_per_zone: opts.secs_per_zone,
            cp_payload: u32::try_from(cp_payload).ok()?,
            overprovision,
            reserved_segs,
            overprov_segs,
            logs,
        };
        let fits = user > 0 && last < main_segs && opts.secs_per_zone <= main_segs / opts.segs_per_sec;
        fits.then_some(geometry)
    }

    /// Blocks available to users.
    pub fn user_blocks(&self) -> u64 {
        u64::from(self.main_segs - self.overprov_segs) * u64::from(BLOCKS_PER_SEG)
    }
}

/// Segments that cleaning needs at `percent` overprovisioning: to free one section it moves `100 / percent` others,
/// twice over, and every log needs a section.
fn reserved(percent: f64, segs_per_sec: u32) -> f64 {
    (2.0 * (100.0 / percent + 1.0) + f64::from(LOGS)) * f64::from(segs_per_sec)
}

/// The given percentage, or the one that leaves users most space, with its reserved segments.
fn reserve(main_segs: u32, opts: &Options) -> Option<(f64, u32)> {
    let main = f64::from(main_segs);
    let percent = match opts.overprovision {
        Some(p) => p,
        None => {
            let (start, end, step) = if main_segs < 256 { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
            let (mut best, mut most, mut candidate) = (None, 0.0, start);
            while candidate <= end {
                let r = reserved(candidate, opts.segs_per_sec);
                let share = (main - r) * candidate / 100.0;
                let left = main - r - share;
                if share >= 0.0 && left > most {
                    (best, most) = (Some(candidate), left);
                }
                candidate += step;
            }
            best?
        }
    };
    let reserved = reserved(percent, opts.segs_per_sec) as u32;
    (main_segs.checked_sub(LOGS)? >= reserved).then_some((percent, reserved))
}

/// Where the logs begin: nodes and hot data in the first four zones, cold data at the end of the
/// first quarter, warm data at the end of the first half.
fn log_starts(zones: u32, per_zone: u32) -> [SegNo; LOGS as usize] {
    let last_of = |zones: u32| zones.saturating_sub(1);
    let hot_data = 3;
    let cold_data = last_of(zones / 4).max(hot_data + 1);
    let warm_data = last_of(zones / 2).max(cold_data + 1);
    [hot_data, warm_data, cold_data, 0, 1, 2].map(|zone| SegNo(zone.saturating_mul(per_zone)))
}

/// Finds the smallest size that works, zone by zone.
fn too_small(blocks: u64, opts: &Options) -> MkfsError {
    let zone = u64::from(opts.segs_per_sec) * u64::from(opts.secs_per_zone) * u64::from(BLOCKS_PER_SEG);
    let mut low = blocks / zone;
    let mut step = 1;
    let works = |zones: u64| Geometry::try_plan(zones * zone, opts).is_some();
    // Above a size that works all larger ones do, except a few where a table grows by a segment.
    while !works(low + step) {
        low += step;
        step *= 2;
        if (low + step) * zone > MAX_BLOCKS {
            return MkfsError::Impossible { reserve: "the reserve these options ask for" };
        }
    }
    let mut high = low + step;
    while high - low > 1 {
        let mid = low + (high - low) / 2;
        if works(mid) { high = mid } else { low = mid }
    }
    MkfsError::TooSmall { blocks, minimum: high * zone }
}

/// Bytes of extra attributes in every inode of a volume: up to the last field that its features need.
pub(super) fn extra_isize(features: Features) -> u16 {
    use format::inode::extra_end;
    let end = [
        (Features::COMPRESSION, extra_end::COMPRESS),
        (Features::INODE_CRTIME, extra_end::CRTIME),
        (Features::INODE_CHECKSUM, extra_end::CHECKSUM),
        (Features::PRJQUOTA, extra_end::PROJID),
        (Features::EXTRA_ATTR, extra_end::INLINE_XATTR_SIZE),
    ];
    let bytes = end.iter().find(|(bit, _)| features.contains(*bit)).map_or(0, |(_, end)| *end);
    bytes as u16
}
