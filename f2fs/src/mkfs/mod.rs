//! How is an empty volume created?
//!
//! [`format()`] lays out a volume on any block device: the geometry and the reserve of `mkfs.f2fs` 1.15, its feature
//! bits, its defaults. With the same identity, time and checkpoint version the two tools write the same bytes, except
//! the version text in the superblock.
//!
//! On a zoned device the main area's zones are reset first, and each log's first blocks are written in order.
//!
//! Left out: volumes over several devices (so the first zones must be conventional), zones with a capacity below their
//! size, block sizes other than 4 KiB, and filling the volume with files.

mod error;
mod geometry;
mod options;
mod tables;
mod tree;

use device::{BLOCK, BlockDevice, Clock, Lba, Tag};
use format::superblock::{Features, SuperBlock};
use format::{BLOCKS_PER_SEG, Block, BlockAddr};

pub use error::MkfsError;
pub use geometry::{Geometry, MAX_BLOCKS};
pub use options::{COLD_EXTENSIONS, HOT_EXTENSIONS, Options};

use tree::FirstTree;

/// The tag of every operation: cause 14, creating the file system.
const TAG: Tag = Tag { cause: 14, owner: 0 };

/// Bytes of zeroes per write.
const CHUNK: usize = 4 << 20;

/// The result of [`format()`].
#[derive(Debug, Clone)]
pub struct Summary {
    /// The position of each area, and the reserved space.
    pub geometry: Geometry,
    /// The volume's identity, given or drawn.
    pub uuid: [u8; 16],
    /// Feature bits.
    pub features: Features,
    /// Blocks available to users, including those in use.
    pub user_blocks: u64,
    /// Blocks in use.
    pub used_blocks: u64,
    /// Version of the first checkpoint.
    pub checkpoint_version: u64,
}

/// Creates an empty F2FS volume on all of `dev` (or on its first [`Options::blocks`]).
///
/// Old superblocks are erased first and new ones written last, each before a flush: an interrupted format leaves a
/// device that no program takes for a volume.
///
/// # Errors
/// [`MkfsError`] names the option, the feature or the size that does not fit, before anything is
/// written; [`MkfsError::Device`] if the device fails.
pub fn format(dev: &dyn BlockDevice, clock: &dyn Clock, opts: &Options) -> Result<Summary, MkfsError> {
    opts.check()?;
    let available = dev.blocks();
    let blocks = opts.blocks.unwrap_or(available);
    if blocks > available {
        return Err(MkfsError::PastEnd { asked: blocks, available });
    }
    let geometry = Geometry::plan(blocks, opts)?;
    let uuid = match opts.uuid {
        Some(uuid) => uuid,
        None => device::rng::uuid(device::rng::entropy()?),
    };
    let version = match opts.checkpoint_version {
        Some(v) => v,
        None => drawn_version(device::rng::entropy()?),
    };

    let sb_block = tables::superblock(&geometry, &uuid, opts);
    let sb = SuperBlock::check(&sb_block)?;
    crate::segment::zones::check(dev, &sb).map_err(MkfsError::Zones)?;
    let now = clock.now().secs.cast_unsigned();
    let first = FirstTree::grow(&sb, geometry.logs, opts, now);
    let pack = tables::pack(&sb, &geometry, opts, &first, version.into());

    let out = Writer { dev };
    if !opts.assume_zeroed {
        // From here until the new superblocks are written, the device holds no volume. The blocks before segment 0 may
        // carry another file system's signature.
        out.zero(0, u64::from(BLOCKS_PER_SEG.min(sb.cp.0)))?;
        dev.flush(TAG)?;
        if opts.discard {
            dev.discard(Lba(0), blocks, TAG)?;
        }
        // A discarded block does not always read as zeroes.
        out.zero_tables(&sb, &first)?;
    }
    out.reset_zones(&sb)?;
    for (n, nat) in first.nat_blocks() {
        out.write(sb.nat_block(n, false), &nat)?;
    }
    let mut blocks: Vec<_> = first.blocks.iter().collect();
    if dev.zones().is_some() {
        blocks.sort_by_key(|(addr, _)| *addr);
    }
    for (addr, block) in blocks {
        out.write(*addr, block)?;
    }
    out.write_all(sb.cp, &pack.first)?;
    if let Some((at, bits)) = &pack.nat_bits {
        out.write_all(sb.cp.plus(*at), bits)?;
    }
    out.write_all(sb.cp.plus(BLOCKS_PER_SEG), &pack.second)?;
    dev.flush(TAG)?;
    out.write(BlockAddr(1), &sb_block)?;
    out.write(BlockAddr(0), &sb_block)?;
    dev.flush(TAG)?;

    Ok(Summary {
        uuid,
        features: sb.features,
        user_blocks: pack.checkpoint.user_blocks,
        used_blocks: pack.checkpoint.valid_blocks,
        checkpoint_version: pack.checkpoint.version,
        geometry,
    })
}

/// Odd and below 2^31. Nodes of an earlier volume on this device carry another version, so they are never replayed; the
/// upper half of the footer's version stays free for the checkpoint's checksum.
fn drawn_version(bytes: [u8; 16]) -> u32 {
    let [a, b, c, d, ..] = bytes;
    u32::from_le_bytes([a, b, c, d]) >> 1 | 1
}

struct Writer<'a> {
    dev: &'a dyn BlockDevice,
}

impl Writer<'_> {
    fn write(&self, at: BlockAddr, block: &Block) -> Result<(), MkfsError> {
        Ok(self.dev.write(Lba(at.0.into()), block, TAG)?)
    }

    fn write_all(&self, at: BlockAddr, blocks: &[Block]) -> Result<(), MkfsError> {
        Ok(self.dev.write(Lba(at.0.into()), blocks.as_flattened(), TAG)?)
    }

    fn zero(&self, mut at: u64, mut blocks: u64) -> Result<(), MkfsError> {
        let zeroes = vec![0; CHUNK.min(blocks as usize * BLOCK)];
        while blocks > 0 {
            let n = blocks.min((CHUNK / BLOCK) as u64);
            self.dev.write(Lba(at), &zeroes[..n as usize * BLOCK], TAG)?;
            at += n;
            blocks -= n;
        }
        Ok(())
    }

    /// Resets the zones of the main area, if the device has zones.
    fn reset_zones(&self, sb: &SuperBlock) -> Result<(), MkfsError> {
        let Some(zones) = self.dev.zones() else { return Ok(()) };
        let first = u64::from(sb.main.0) / zones.zone_blocks();
        for zone in first..first + u64::from(sb.sections()) {
            let begin = zone * zones.zone_blocks();
            if zones.pointer(zone).is_some_and(|pointer| pointer.0 != begin) {
                zones.reset(zone, TAG)?;
            }
        }
        Ok(())
    }

    /// Zeroes both checkpoint packs, the valid copies of SIT and NAT, and the first segment of the warm node log, where
    /// roll-forward looks for nodes to replay.
    fn zero_tables(&self, sb: &SuperBlock, first: &FirstTree) -> Result<(), MkfsError> {
        self.zero(sb.cp.0.into(), 2 * u64::from(BLOCKS_PER_SEG))?;
        self.zero(sb.sit.0.into(), sb.sit_blocks().into())?;
        for n in (0..sb.nat_blocks()).step_by(BLOCKS_PER_SEG as usize) {
            self.zero(sb.nat_block(n, false).0.into(), BLOCKS_PER_SEG.into())?;
        }
        if self.dev.zones().is_some() {
            // Already reset with the others.
            return Ok(());
        }
        // In later segments, roll-forward recognizes nodes of an earlier volume by their checkpoint version.
        self.zero(first.warm_node_head.0.into(), BLOCKS_PER_SEG.into())
    }
}

const _: () = assert!(BLOCK == format::BLOCK);
