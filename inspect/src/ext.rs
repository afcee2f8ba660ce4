//! How are the files of an ext2, ext3 or ext4 image laid out, and which blocks are in use?
//!
//! This is the only module that uses `rust-fs-ext4`, which reads superblock, groups, inodes, extent trees and
//! directories, and replays a journal in memory; another library could replace it here. Directories are walked from the
//! root without recursion, each of them at most once. The number of reads is limited: a crafted extent tree that
//! contains its own blocks ends with an error, not in years. Nothing is written.
//!
//! The library's blocks may be smaller or larger than 4 KiB. Extents are counted in its blocks; addresses and free
//! space in blocks of 4 KiB, and a partly used block counts as used.
//!
//! Left out: encrypted names, which need a key to be listed; free space of volumes with clusters (`bigalloc`).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{BlockDevice, Lba};
use format::{BLOCK, Ino};
use fs_ext4::block_io::BlockDevice as TheirDevice;
use fs_ext4::dir::DirBlockIter;
use fs_ext4::inode::Inode;
use fs_ext4::{Error, Filesystem, extent, indirect};

use crate::begin::TAG;
use crate::class::Class;
use crate::file::{self, Extent};
use crate::inode::Kind;
use crate::space::Space;
use crate::tables::Sit;
use crate::{File, InspectError, Options, Progress};

/// The root directory's inode.
const ROOT: u32 = 2;
/// Longest path, in bytes.
const LONGEST: usize = 4096;
/// Feature bits tested here.
const BIGALLOC: u32 = 0x200;
const FILETYPE: u32 = 0x2;
const HAS_JOURNAL: u32 = 0x4;
/// Flag of a group whose bitmap has not been written yet.
const BLOCK_UNINIT: u16 = 0x2;
const EXTENTS: u32 = 0x0008_0000;
const INLINE: u32 = 0x1000_0000;
const ENCRYPTED: u32 = 0x800;
/// Read limit for mounting: a journal of 4 GiB.
const MOUNTING: u64 = 1 << 22;

/// Contents of an image.
pub struct Tree {
    /// `ext2`, `ext3` or `ext4`.
    pub kind: &'static str,
    /// Regular files.
    pub files: Vec<File>,
    /// Their paths, in the same order.
    pub paths: Vec<Vec<u8>>,
    /// Directories.
    pub dirs: u64,
    /// Blocks in use, in segments of 2 MiB; `None` if unknown.
    pub segments: Option<(Sit, Space)>,
    /// Size of the file system in bytes.
    pub bytes: u64,
    /// Free bytes according to the superblock.
    pub free_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// What could not be read.
    pub damage: Vec<String>,
}

/// A read-only device for the library, with a limit on further reads.
struct Lent {
    dev: Arc<dyn BlockDevice>,
    left: AtomicU64,
}

impl Lent {
    fn allow(&self, reads: u64) {
        self.left.store(reads, Ordering::Relaxed);
    }
}

impl TheirDevice for Lent {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fs_ext4::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.size_bytes());
        let end = end.ok_or(Error::Corrupt("an address after the end"))?;
        let less = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        less.map_err(|_| Error::Corrupt("more blocks than it can have"))?;
        let (from, to) = (offset / BLOCK as u64, end.div_ceil(BLOCK as u64));
        let mut whole = vec![0; (to - from) as usize * BLOCK];
        let read = self.dev.read(Lba(from), &mut whole, TAG);
        read.map_err(|e| Error::Io(std::io::Error::other(e.to_string())))?;
        let skip = (offset % BLOCK as u64) as usize;
        buf.copy_from_slice(&whole[skip..skip + buf.len()]);
        Ok(())
    }
    fn size_bytes(&self) -> u64 {
        self.dev.blocks() * BLOCK as u64
    }
}

/// True if the superblock's magic number matches.
pub fn is_ext(dev: &dyn BlockDevice) -> bool {
    let mut first = vec![0; BLOCK];
    dev.blocks() > 1 && dev.read(Lba(0), &mut first, TAG).is_ok() && first[1080..1082] == [0x53, 0xEF]
}

/// Number of inodes that [`read`] will visit, for a progress bar: the superblock's count without reserved inodes.
pub fn steps(dev: &dyn BlockDevice) -> u64 {
    let mut first = vec![0; BLOCK];
    if !is_ext(dev) || dev.read(Lba(0), &mut first, TAG).is_err() {
        return 0;
    }
    let word = |at: usize| first[1024 + at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let (inodes, free, revision, first_own) = (word(0x00), word(0x10), word(0x4c), word(0x54));
    // Reserved inodes are in use from the beginning; of them only the root is visited.
    let reserved = if revision == 0 { 10 } else { first_own.saturating_sub(1) };
    u64::from(inodes.saturating_sub(free).saturating_sub(reserved)) + 1
}

/// Number of cases of one kind, and the first of them.
#[derive(Default)]
struct Cases(u64, String);

impl Cases {
    fn add(&mut self, first: impl fmt::Display) {
        self.0 += 1;
        if self.0 == 1 {
            self.1 = first.to_string();
        }
    }
}

struct Reader<'d> {
    fs: Filesystem,
    lent: &'d Lent,
    unit: u64,
}

/// A file's block map, in the library's blocks.
#[derive(Default)]
struct Map {
    extents: Vec<Extent>,
    reserved: u64,
}

impl Map {
    fn take(&mut self, from: u64, addr: u64, blocks: u64) {
        match self.extents.last_mut() {
            Some(e) if e.from + e.blocks == from && e.addr + e.blocks == addr => e.blocks += blocks,
            _ => self.extents.push(Extent { from, addr, blocks }),
        }
    }
}

impl Reader<'_> {
    /// Maps an inode's blocks. An inode of `n` sectors has at most `n` blocks of any kind.
    fn map(&self, inode: &Inode) -> fs_ext4::Result<Map> {
        let mut out = Map::default();
        let blocks = inode.blocks.saturating_mul(512).div_ceil(self.unit).min(self.fs.sb.blocks_count);
        self.lent.allow(blocks.saturating_add(64));
        if inode.flags & EXTENTS != 0 {
            let mut all = extent::collect_all(&inode.block, &*self.fs.dev, self.fs.sb.block_size())?;
            all.sort_by_key(|e| e.logical_block);
            for e in all {
                let (from, addr, len) = (u64::from(e.logical_block), e.physical_block, u64::from(e.length));
                if addr.checked_add(len).is_none_or(|end| end > self.fs.sb.blocks_count) {
                    return Err(Error::Corrupt("an extent after the end"));
                }
                if e.uninitialized {
                    out.reserved += len;
                } else {
                    out.take(from, addr, len);
                }
            }
        } else {
            // Search until all of the inode's blocks are found; holes do not count.
            let mut cache = indirect::IndirectCache::new();
            let size = inode.size.div_ceil(self.unit);
            self.lent.allow(blocks.saturating_mul(4).saturating_add(64));
            let (mut found, mut holes) = (0, 0_u64);
            for logical in 0..size {
                if found >= blocks || holes > 1 << 24 {
                    break;
                }
                let at = indirect::lookup(&inode.block, &*self.fs.dev, self.fs.sb.block_size(), logical, &mut cache)?;
                match at {
                    Some(addr) if addr < self.fs.sb.blocks_count => {
                        out.take(logical, addr, 1);
                        found += 1;
                    }
                    Some(_) => return Err(Error::Corrupt("a block after the end")),
                    None => holes += 1,
                }
            }
        }
        Ok(out)
    }

    /// Entries of a directory.
    fn names(&self, ino: u32, inode: &Inode) -> fs_ext4::Result<Vec<(u32, Vec<u8>)>> {
        let mut out = Vec::new();
        if inode.flags & INLINE != 0 {
            self.lent.allow(64);
            let all = self.fs.read_dir_ino(ino)?;
            out.extend(all.into_iter().map(|e| (e.inode, e.name)));
            return Ok(out);
        }
        let map = self.map(inode)?;
        let has_type = self.fs.sb.feature_incompat & FILETYPE != 0;
        let mut block = vec![0; self.unit as usize];
        let size = inode.size.div_ceil(self.unit);
        for e in map.extents {
            for n in (0..e.blocks).filter(|n| e.from + n < size) {
                self.lent.allow(1);
                self.fs.dev.read_at((e.addr + n) * self.unit, &mut block)?;
                for entry in DirBlockIter::new(&block, has_type) {
                    let entry = entry?;
                    out.push((entry.inode, entry.name));
                }
            }
        }
        Ok(out)
    }

    /// Which blocks of 4 KiB are in use, by bitmaps, plus metadata of groups whose bitmaps have not been written yet.
    fn used(&self) -> fs_ext4::Result<Sit> {
        let (sb, unit) = (&self.fs.sb, self.unit);
        let blocks = sb.blocks_count.saturating_mul(unit).div_ceil(BLOCK as u64);
        let mut out = Sit::of_blocks(blocks).ok_or(Error::Corrupt("more than 2^32 blocks"))?;
        let mut mark = |first: u64, count: u64| {
            if count == 0 {
                return;
            }
            let end = first.saturating_add(count).saturating_mul(unit).div_ceil(BLOCK as u64);
            out.fill(first.saturating_mul(unit) / BLOCK as u64, end);
        };
        // Blocks before the first group: the boot block.
        mark(0, sb.first_data_block.into());
        let table = (u64::from(sb.inodes_per_group) * u64::from(sb.inode_size)).div_ceil(unit);
        let mut bits = vec![0; unit as usize];
        for (g, group) in self.fs.groups.iter().enumerate() {
            let start = u64::from(sb.first_data_block) + g as u64 * u64::from(sb.blocks_per_group);
            let count = sb.blocks_count.saturating_sub(start).min(sb.blocks_per_group.into());
            if group.flags & BLOCK_UNINIT != 0 {
                mark(start, sb.group_head_metadata_blocks(g as u64).min(count));
            } else {
                self.lent.allow(1);
                self.fs.dev.read_at(group.block_bitmap.saturating_mul(unit), &mut bits)?;
                for n in (0..count).filter(|n| bits.get(*n as usize / 8).is_some_and(|b| b >> (n % 8) & 1 == 1)) {
                    mark(start + n, 1);
                }
            }
            for (first, count) in [(group.block_bitmap, 1), (group.inode_bitmap, 1), (group.inode_table, table)] {
                mark(first.min(sb.blocks_count), count);
            }
        }
        Ok(out)
    }
}

/// The text of an error.
fn error_text(e: &Error) -> String {
    format!("{e}").trim_end_matches('.').to_owned()
}

/// Reads an image.
///
/// # Errors
/// If it is not a supported file system of this family, or the caller stops it. Damage is no error.
pub fn read(dev: Arc<dyn BlockDevice>, options: &Options, progress: &mut Progress<'_>) -> Result<Tree, InspectError> {
    let lent = Arc::new(Lent { dev, left: AtomicU64::new(MOUNTING) });
    let failed =
        |e: Error| InspectError::Unsupported { what: format!("this ext2, ext3 or ext4 volume: {}", error_text(&e)) };
    let fs = Filesystem::mount(lent.clone()).map_err(failed)?;
    let unit = u64::from(fs.sb.block_size());
    let reader = Reader { fs, lent: &lent, unit };
    let sb = &reader.fs.sb;
    let has = |compat: u32| sb.feature_compat & compat != 0;
    let kind = match () {
        () if sb.feature_incompat & 0x40 != 0 => "ext4",
        () if has(HAS_JOURNAL) => "ext3",
        () => "ext2",
    };
    let mut out = Tree {
        kind,
        files: Vec::new(),
        paths: Vec::new(),
        dirs: 0,
        segments: None,
        bytes: sb.blocks_count.saturating_mul(unit),
        free_bytes: sb.free_blocks_count.saturating_mul(unit),
        inodes: u64::from(sb.inodes_count.saturating_sub(sb.free_inodes_count)),
        damage: Vec::new(),
    };
    let (mut inodes, mut maps, mut listings, mut locked) = Default::default();
    walk(&reader, options, progress, &mut out, [&mut inodes, &mut maps, &mut listings, &mut locked])?;
    for (cases, what) in [
        (&inodes, "inodes cannot be read"),
        (&maps, "files have an unreadable block map: they are listed without blocks"),
        (&listings, "directories cannot be read completely: files in them may be missing"),
        (&locked, "directories are encrypted: files in them are missing"),
    ] {
        if cases.0 > 0 {
            out.damage.push(format!("{} {what}, the first is {}", cases.0, cases.1));
        }
    }
    if sb.feature_ro_compat & BIGALLOC == 0 {
        match reader.used() {
            Ok(sit) => {
                let space = Space::from_sit(&sit, 0);
                out.segments = Some((sit, space));
            }
            Err(e) => out.damage.push(format!("cannot tell which blocks are in use: {}", error_text(&e))),
        }
    }
    Ok(out)
}

/// Walks the directories from the root.
fn walk(
    reader: &Reader<'_>,
    options: &Options,
    progress: &mut Progress<'_>,
    out: &mut Tree,
    [inodes, maps, listings, locked]: [&mut Cases; 4],
) -> Result<(), InspectError> {
    let mut seen: HashSet<u32> = HashSet::from([ROOT]);
    let mut waiting: Vec<(u32, Vec<u8>)> = vec![(ROOT, Vec::new())];
    while let Some((ino, path)) = waiting.pop() {
        reader.lent.allow(64);
        let inode = match reader.fs.read_inode_verified(ino) {
            Ok((inode, _)) => inode,
            Err(e) => {
                inodes.add(format_args!("{ino} ({})", error_text(&e)));
                continue;
            }
        };
        progress.step(1)?;
        let depth = path.len();
        if inode.is_dir() {
            out.dirs += 1;
            if inode.flags & ENCRYPTED != 0 {
                locked.add(ino);
                continue;
            }
            let names = reader.names(ino, &inode).unwrap_or_else(|e| {
                listings.add(format_args!("{ino} ({})", error_text(&e)));
                Vec::new()
            });
            for (of, name) in names {
                let is_self = name == b"." || name == b"..";
                if is_self || of == 0 || depth + name.len() > LONGEST || !seen.insert(of) {
                    continue;
                }
                waiting.push((of, [&path[..], b"/", &name[..]].concat()));
            }
        } else if inode.is_file() {
            let is_inline = inode.flags & INLINE != 0;
            let map = if is_inline { Ok(Map::default()) } else { reader.map(&inode) };
            let lawful = map.is_ok();
            let map = map.unwrap_or_else(|e| {
                maps.add(format_args!("{ino} ({})", error_text(&e)));
                Map::default()
            });
            let (number, unit) = (Ino(ino), reader.unit);
            out.files.push(whole((number, lawful, is_inline), &path, &inode, map, unit, options));
            out.paths.push(path);
        }
    }
    Ok(())
}

fn whole(
    (ino, lawful, inline): (Ino, bool, bool),
    path: &[u8],
    inode: &Inode,
    map: Map,
    unit: u64,
    options: &Options,
) -> File {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let mut layout = file::of_extents_in(&map.extents, options.window, unit);
    layout.reserved = map.reserved.saturating_mul(unit).div_ceil(BLOCK as u64);
    let in_blocks = |e: &Extent| {
        let (from, to) = (e.addr * unit / BLOCK as u64, ((e.addr + e.blocks) * unit).div_ceil(BLOCK as u64));
        Extent { from: e.from * unit / BLOCK as u64, addr: from, blocks: to - from }
    };
    File {
        ino,
        kind: Kind::File,
        class: Class::from_name(name),
        parent: Ino(0),
        name: name.into(),
        name_is_sure: true,
        name_is_encrypted: false,
        size: inode.size,
        links: inode.links_count.into(),
        mtime_ns: inode.mtime.saturating_mul(1_000_000_000).saturating_add(inode.mtime_nsec.into()),
        inline,
        compressed: false,
        released: false,
        delta_room: 0,
        deltas: 0,
        lawful,
        extents: if options.extents { map.extents.iter().map(in_blocks).collect() } else { Vec::new() },
        layout,
    }
}
