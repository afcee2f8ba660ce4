//! Where was the volume, and what were its parameters, judging by nodes alone?
//!
//! There are two unknowns: the byte at which the volume's grid of blocks begins (its phase), and the address of the
//! first of these blocks. Every node that a log wrote records the next block of its log, which is nearly always the
//! adjacent one: a node found `d` blocks into the grid with next address `n` votes for `n - 1 - d` as the address
//! of block 0. For nodes without a next address (`sload.f2fs` writes such) directories help: the entry `.` in a
//! directory's first block gives the directory's inode number, and that inode gives the address of its first block.
//! A superblock, if one is left, votes too. The phase and the address with most votes win.
//!
//! An image stored in a file of the volume votes too, but for only one place among many, unless it fills most of
//! the volume.
//!
//! The same sample gives the seed of the inode checksums, and the features that change the division of an inode.
//! Both are the same in the whole volume, so the majority of its inodes decides.
//!
//! If the caller knows the place ([`at`]), only nodes count that vote for it or for none: other volumes in the
//! image have other seeds and features.

use format::inode::{self, Inline, InodeFlags, RawInode, extra_end};
use format::superblock::{DELTA_MAGIC, Features, MAGIC, SuperBlock};
use format::{BLOCK, Block, BlockAddr, dentry};
use rustc_hash::FxHashMap;

use crate::sign::{Sign, checksum_seed};
use crate::window::{SECTOR, Window};
use crate::{BLOCKS_AT_ONCE, Progress, RescueError};

/// Possible starts of a volume's grid within a block.
const PHASES: usize = BLOCK / SECTOR as usize;
/// Votes for one place that end the search.
const ENOUGH: u32 = 512;
/// Inodes needed to trust their majority.
const ENOUGH_INODES: u32 = 64;
/// Blocks sampled before fewer inodes suffice.
const SAMPLE: u64 = 1 << 18;
/// Entries of each table of votes: the majority place is among the first.
const MOST_VOTES: usize = 1 << 16;

/// Properties of the whole volume.
#[derive(Debug, Clone)]
pub struct Place {
    /// Byte of the image at which the block grid begins.
    pub phase: u64,
    /// Address of the first block there.
    pub first: i64,
    /// Number of nodes and directories that agree.
    pub votes: u32,
    /// Features that change how inodes are read.
    pub features: Features,
    /// The seed of inode checksums, if inodes have checksums.
    pub seed: Option<u32>,
    /// Blocks of the volume according to a superblock.
    pub block_count: Option<u64>,
    /// A matching superblock.
    pub superblock: Option<Box<SuperBlock>>,
}

impl Place {
    /// The volume's first byte in the image; negative if it lies before the image.
    pub fn volume_at(&self) -> i64 {
        self.phase as i64 - self.first * BLOCK as i64
    }
}

/// The votes for one phase.
#[derive(Default)]
struct Votes {
    places: FxHashMap<i64, u32>,
    seeds: FxHashMap<u32, u32>,
    inodes: u32,
    summed: u32,
    /// Number of inodes whose inline attributes have a size of their own, among those with inline attributes.
    flexible: u32,
    with_xattrs: u32,
    compressed: u32,
    /// A given address of block 0, which nodes must not contradict.
    given: Option<i64>,
    /// First blocks of directories, by directory, and their addresses in inodes: each waits for the other.
    dots: FxHashMap<u32, u64>,
    firsts: FxHashMap<u32, u32>,
    superblocks: Vec<(u64, Box<SuperBlock>)>,
}

fn count<K: std::hash::Hash + Eq>(votes: &mut FxHashMap<K, u32>, key: K, by: u32) {
    if votes.len() < MOST_VOTES || votes.contains_key(&key) {
        *votes.entry(key).or_default() += by;
    }
}

fn winner<K: Copy + Ord>(votes: &FxHashMap<K, u32>) -> Option<(K, u32)> {
    votes.iter().map(|(k, n)| (*k, *n)).max_by_key(|(k, n)| (*n, std::cmp::Reverse(*k)))
}

/// The directory that has this block as its first.
fn dot_of(block: &Block) -> Option<u32> {
    if block[0] & 3 != 3 {
        return None;
    }
    let dot = dentry::at(&dentry::Layout::BLOCK, block, 0)?;
    let up = dentry::at(&dentry::Layout::BLOCK, block, 1)?;
    (dot.name == b"." && up.name == b".." && dot.kind == 2).then_some(dot.ino)
}

impl Votes {
    fn block(&mut self, index: u64, block: &Block) {
        if let Some(ino) = dot_of(block) {
            if let Some(addr) = self.firsts.get(&ino) {
                count(&mut self.places, i64::from(*addr) - index as i64, 1);
            }
            if self.dots.len() < MOST_VOTES {
                self.dots.insert(ino, index);
            }
            return;
        }
        if let Some(sign) = Sign::read(block) {
            let says = i64::from(sign.next.0) - 1 - index as i64;
            if sign.next.is_real() && self.given.is_some_and(|given| given != says) {
                return;
            }
            if sign.next.is_real() {
                count(&mut self.places, says, 1);
            }
            if sign.is_inode() {
                self.inode(sign.ino.0, block);
            }
        } else if [MAGIC, DELTA_MAGIC].iter().any(|magic| block[1024..1028] == magic.to_le_bytes())
            && self.superblocks.len() < 16
            && let Ok(sb) = SuperBlock::check(block)
        {
            self.superblocks.push((index, Box::new(sb)));
        }
    }

    fn inode(&mut self, ino: u32, block: &Block) {
        let raw = RawInode::of(block);
        self.inodes += 1;
        if let Some(extra) = raw.extra() {
            // A volume with one fixed size leaves the field empty.
            let with_xattrs = raw.inline().contains(Inline::XATTR);
            self.with_xattrs += u32::from(with_xattrs);
            self.flexible += u32::from(with_xattrs && extra.i_inline_xattr_size.get() != 0);
            let cluster = raw.extra_isize() >= extra_end::COMPRESS && (2..=8).contains(&extra.i_log_cluster_size);
            self.compressed += u32::from(cluster && raw.flags().contains(InodeFlags::COMPRESS));
        }
        if let Some(seed) = checksum_seed(block) {
            self.summed += 1;
            count(&mut self.seeds, seed, 1);
        }
        let first = BlockAddr(raw.i_addr[(raw.extra_isize() as usize / 4).min(9)].get());
        if raw.i_mode.get() & 0o170_000 == 0o040_000 && raw.i_inline & 4 == 0 && first.is_real() {
            if let Some(index) = self.dots.get(&ino) {
                count(&mut self.places, i64::from(first.0) - *index as i64, 1);
            }
            if self.firsts.len() < MOST_VOTES {
                self.firsts.insert(ino, first.0);
            }
        }
    }

    fn votes(&self) -> u32 {
        winner(&self.places).map_or(0, |(_, n)| n)
    }

    fn place(mut self, phase: u64) -> Option<Place> {
        for (index, _) in &self.superblocks {
            // One copy is in block 0, the other in block 1.
            for copy in [0, 1] {
                let at = copy - *index as i64;
                let known = self.places.contains_key(&at);
                count(&mut self.places, at, u32::from(known) + u32::from(copy == 0));
            }
        }
        let (first, votes) = match self.given {
            Some(first) => (first, self.places.get(&first).copied().unwrap_or(0)),
            None => winner(&self.places)?,
        };
        let fits = |(index, _): &(u64, _)| matches!(*index as i64 + first, 0 | 1);
        let superblock = self.superblocks.into_iter().find(fits).map(|(_, sb)| sb);
        let seed = winner(&self.seeds).filter(|(_, n)| *n > 1 && n * 2 > self.summed).map(|(seed, _)| seed);
        // Without enough consistent inodes, the seed is computed from the superblock.
        let of_superblock = superblock.as_ref().filter(|sb| sb.features.contains(Features::INODE_CHECKSUM));
        let seed = seed.or(of_superblock.map(|sb| inode::checksum_seed(&sb.uuid)).filter(|_| self.summed == 0));
        let features = superblock.as_ref().map_or_else(
            || {
                let mut features = Features::EXTRA_ATTR | Features::COMPRESSION;
                features.set(Features::FLEXIBLE_INLINE_XATTR, self.flexible * 2 > self.with_xattrs);
                features.set(Features::INODE_CHECKSUM, seed.is_some());
                features
            },
            |sb| sb.features,
        );
        // A settled volume still holds older versions of inodes with deltas, and a check protects each delta.
        let features = if seed.is_some() { features | Features::DELTA } else { features - Features::DELTA };
        let block_count = superblock.as_ref().map(|sb| sb.block_count);
        Some(Place { phase, first, votes, features, seed, block_count, superblock })
    }
}

/// Searches an image for the volume's place.
pub fn find(dev: &dyn device::BlockDevice, progress: &mut Progress<'_>) -> Result<Place, RescueError> {
    let whole = Window::new(dev, 0, 0);
    let mut votes: [Votes; PHASES] = std::array::from_fn(|_| Votes::default());
    let mut buf = vec![0; BLOCKS_AT_ONCE * BLOCK];
    let total = whole.blocks();
    let mut at = 0;
    while at < total {
        // One block more than the step: a block of another phase straddles two.
        let n = (total - at).min(BLOCKS_AT_ONCE as u64) as usize;
        let bytes = &mut buf[..n * BLOCK];
        whole.read_run(at, bytes)?;
        let last = at + n as u64 == total;
        for (phase, votes) in votes.iter_mut().enumerate() {
            let skip = phase * SECTOR as usize;
            let blocks = bytes[skip..].as_chunks::<BLOCK>().0;
            for (k, block) in blocks.iter().take(if last { n } else { n - 1 }).enumerate() {
                votes.block(at + k as u64, block);
            }
        }
        progress.step(n as u64)?;
        at += if last { n as u64 } else { n as u64 - 1 };
        let best = votes.iter().max_by_key(|v| v.votes()).filter(|v| v.votes() >= ENOUGH);
        if best.is_some_and(|v| v.inodes >= ENOUGH_INODES || at >= SAMPLE) {
            break;
        }
    }
    let best = votes.into_iter().enumerate().max_by_key(|(phase, v)| (v.votes(), std::cmp::Reverse(*phase)));
    let superblock = |v: &Votes| !v.superblocks.is_empty();
    // One noise block may look like a node; two consistent ones do not.
    let (phase, votes) = best.filter(|(_, v)| v.votes() > 1 || superblock(v)).ok_or(RescueError::NoVolume)?;
    votes.place(phase as u64 * SECTOR).ok_or(RescueError::NoVolume)
}

/// Parameters of a volume whose first byte in the image is known.
pub fn at(dev: &dyn device::BlockDevice, byte: i64, progress: &mut Progress<'_>) -> Result<Place, RescueError> {
    let (phase, first) = (byte.rem_euclid(BLOCK as i64) as u64, -byte.div_euclid(BLOCK as i64));
    let window = Window::new(dev, phase, first);
    let mut votes = Votes { given: Some(first), ..Votes::default() };
    let mut buf = vec![0; BLOCKS_AT_ONCE * BLOCK];
    let total = window.blocks();
    let begin = u64::try_from(-first).unwrap_or(0);
    let mut at = begin;
    while at < total {
        let n = (total - at).min(BLOCKS_AT_ONCE as u64) as usize;
        let bytes = &mut buf[..n * BLOCK];
        window.read_run(at, bytes)?;
        for (k, block) in bytes.as_chunks::<BLOCK>().0.iter().enumerate() {
            votes.block(at + k as u64, block);
        }
        progress.step(n as u64)?;
        at += n as u64;
        if votes.votes() >= ENOUGH && (votes.inodes >= ENOUGH_INODES || at - begin >= SAMPLE) {
            break;
        }
    }
    if votes.inodes == 0 && votes.votes() == 0 && votes.superblocks.is_empty() {
        return Err(RescueError::NoVolume);
    }
    votes.place(phase).ok_or(RescueError::NoVolume)
}
