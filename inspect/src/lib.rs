//! What state is this volume in, what does it cost, and what would help?
//!
//! A scanning reader of F2FS: tables first, then the segments of nodes in address order ([`scan`]). It opens no
//! directory and follows no indirect node. So it shares only the format with the file system and its checker, and tests
//! compare its counts with theirs. Each step answers one question:
//!
//! * [`begin`]: which superblock and which checkpoint are valid?
//! * [`tables`]: which blocks are in use, and where is each node?
//! * [`scan`], [`inode`], [`piece`]: which nodes are alive, and what do they record?
//! * [`mod@file`]: how is a file laid out?
//! * [`names`], [`class`]: what is its path, which kind of file is it, and which application owns it?
//! * [`space`]: how full, how old, how fragmented are the segments?
//! * [`price`]: what does it cost to read a file?
//! * [`verdict`]: what would defragmentation cost, and when has it paid off?
//! * [`advice`]: which actions would help?
//! * [`treatment`]: which blocks of one file are worth moving, for which reads?
//!
//! [`ext`] reads images of ext2, ext3 and ext4 with a library; the other steps are shared.
//!
//! Damage is no error: [`Volume::findings`] lists what could not be read.
//!
//! Left out on purpose: files fsynced after the checkpoint; writing; whether a volume is consistent.
#![forbid(unsafe_code)]

pub mod advice;
pub mod begin;
pub mod class;
pub mod ext;
pub mod file;
mod finding;
pub mod inode;
pub mod names;
pub mod piece;
pub mod price;
pub mod scan;
pub mod space;
pub mod tables;
pub mod treatment;
pub mod verdict;

use device::BlockDevice;
use format::checkpoint::Checkpoint;
use format::superblock::SuperBlock;
use format::{BLOCKS_PER_SEG, FormatError, Ino};

use class::Class;
use file::{Extents, Layout};
pub use finding::{Finding, Findings};
use inode::{Draft, Kind};
use piece::Piece;
use space::Space;
use tables::Sit;

/// Why a volume cannot be inspected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The device holds no F2FS volume.
    #[error("not an F2FS volume")]
    NotF2fs,
    /// Both copies of the superblock are damaged, or its geometry is not supported.
    #[error("{0}; `joulefs rescue` looks for files without a superblock")]
    Superblock(FormatError),
    /// The volume uses an unsupported feature.
    #[error("not supported: {what}")]
    Unsupported {
        /// The feature.
        what: String,
    },
    /// The caller stopped the run.
    #[error("interrupted")]
    Interrupted,
}

/// Reports progress to the caller, who may stop the run.
pub struct Progress<'p> {
    tell: &'p mut dyn FnMut(u64) -> bool,
}

impl<'p> Progress<'p> {
    /// `tell` receives the number of blocks done since its last call, and returns whether to go on.
    pub fn new(tell: &'p mut dyn FnMut(u64) -> bool) -> Self {
        Progress { tell }
    }
    fn step(&mut self, blocks: u64) -> Result<(), InspectError> {
        if (self.tell)(blocks) { Ok(()) } else { Err(InspectError::Interrupted) }
    }
}

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Largest read request, in blocks.
    pub window: u64,
    /// Whether to keep the extents of every file.
    pub extents: bool,
}

impl Default for Options {
    /// Requests of 512 KiB.
    fn default() -> Self {
        Options { window: 128, extents: false }
    }
}

/// A file, directory or other inode.
#[derive(Debug, Clone)]
pub struct File {
    /// Inode number.
    pub ino: Ino,
    /// Its type.
    pub kind: Kind,
    /// Class, by its name.
    pub class: Class,
    /// Parent, as recorded in the inode.
    pub parent: Ino,
    /// Name, as recorded in the inode.
    pub name: Box<[u8]>,
    /// False if the file may have been renamed or moved since.
    pub name_is_sure: bool,
    /// True if the name is encrypted.
    pub name_is_encrypted: bool,
    /// Bytes.
    pub size: u64,
    /// Link count; 0: deleted while open.
    pub links: u32,
    /// Last change of contents: nanoseconds since 1970.
    pub mtime_ns: i64,
    /// True if the contents are in the inode.
    pub inline: bool,
    /// True if the contents are stored in compressed clusters.
    pub compressed: bool,
    /// True if the space that compression saved was released: cluster marks then do not count as blocks.
    pub released: bool,
    /// Free bytes for deltas in the inode; each delta takes 8 bytes in addition to its payload.
    pub delta_room: u16,
    /// Deltas in the inode and in delta nodes.
    pub deltas: u32,
    /// False if anything is damaged, so that the rest may be wrong.
    pub lawful: bool,
    /// Its layout.
    pub layout: Layout,
    /// Its extents, if [`Options::extents`] is set.
    pub extents: Vec<file::Extent>,
}

impl File {
    /// Used blocks: nodes, contents, reserved ones.
    pub fn used(&self) -> u64 {
        let marks = if self.released { 0 } else { self.layout.marks };
        u64::from(self.layout.nodes) + self.layout.blocks + self.layout.reserved + marks
    }
    /// Extents beyond the fewest.
    pub fn excess(&self) -> u64 {
        u64::from(self.layout.extents.saturating_sub(self.layout.min_extents))
    }
    /// The degree of fragmentation; `None` without an extent.
    pub fn dof(&self) -> Option<f64> {
        (self.layout.min_extents > 0).then(|| f64::from(self.layout.extents) / f64::from(self.layout.min_extents))
    }
}

/// Totals of the scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Directories.
    pub dirs: u64,
    /// All other inodes.
    pub files: u64,
    /// Nodes, inodes among them.
    pub nodes: u64,
    /// Blocks in use: nodes, contents, reserved ones.
    pub blocks: u64,
}

/// The state of a volume.
pub struct Volume {
    /// Its superblock.
    pub superblock: SuperBlock,
    /// The valid checkpoint. Without one, the fields below are empty.
    pub checkpoint: Option<Checkpoint>,
    /// All inodes, ordered by number.
    pub files: Vec<File>,
    /// Totals.
    pub counts: Counts,
    /// The table of its segments.
    pub segments: Sit,
    /// Its free and used space.
    pub space: Space,
    /// What could not be read, or contradicts the rest.
    pub findings: Vec<Finding>,
}

impl Volume {
    /// Reads a volume as of its last checkpoint.
    ///
    /// # Errors
    /// [`InspectError`], if there is no supported volume. Damage is no error.
    pub fn read(dev: &dyn BlockDevice, options: &Options, progress: &mut Progress<'_>) -> Result<Self, InspectError> {
        let mut found = Findings::default();
        let superblock = begin::superblock(dev, &mut found)?;
        let Some(pack) = begin::pack(dev, &superblock, &mut found) else {
            let (files, counts, space) = Default::default();
            let (segments, findings) = (Sit::new(0), found.into_vec());
            return Ok(Volume { superblock, checkpoint: None, files, counts, segments, space, findings });
        };
        let (sit, nat) = tables::read(dev, &superblock, &pack, &mut found, progress)?;
        let scanned = scan::scan(dev, &superblock, (&sit, &nat), &mut found, progress)?;
        drop(nat);
        let nodes = scanned.nodes;
        let files = files(&superblock, &sit, scanned, options, &mut found);
        let dirs = files.iter().filter(|f| f.kind == Kind::Directory).count() as u64;
        let counts = Counts {
            dirs,
            files: files.len() as u64 - dirs,
            nodes,
            // Nodes whose inode is missing belong to no file.
            blocks: nodes + files.iter().map(|f| f.used() - u64::from(f.layout.nodes)).sum::<u64>(),
        };
        let cp = pack.checkpoint;
        let space = Space::from_sit(&sit, cp.elapsed);
        let totals = [
            ("blocks in use", cp.valid_blocks, counts.blocks),
            ("nodes", cp.valid_nodes.into(), counts.nodes),
            ("inodes", cp.valid_inodes.into(), counts.dirs + counts.files),
        ];
        // Each contradiction is a separate finding.
        let mut findings = found.into_vec();
        let differ = totals.into_iter().filter(|(_, stored, counted)| stored != counted);
        findings.extend(differ.map(|(what, stored, counted)| Finding::Total { what, stored, counted }));
        Ok(Volume { superblock, checkpoint: Some(cp), files, counts, segments: sit, space, findings })
    }

    /// The path of one of its files.
    pub fn path(&self, file: &File) -> names::Path {
        names::path(&self.files, self.superblock.root, file)
    }

    /// Blocks that the scan will read, for a progress bar.
    pub fn steps(dev: &dyn BlockDevice) -> u64 {
        let Ok(sb) = begin::superblock(dev, &mut Findings::default()) else { return 0 };
        let sit = sb.main_segs.div_ceil(format::sit::SIT_ENTRIES);
        u64::from(sb.main_segs) * u64::from(BLOCKS_PER_SEG) + u64::from(sit) + u64::from(sb.nat_blocks())
    }
}

/// Combines what nodes record about each file.
fn files(sb: &SuperBlock, sit: &Sit, mut scanned: scan::Scanned, options: &Options, found: &mut Findings) -> Vec<File> {
    scanned.inodes.sort_unstable_by_key(|d| d.ino);
    scanned.pieces.sort_unstable();
    scanned.deltas.sort_unstable();
    // Count each block once, even with several delta entries.
    scanned.deltas.dedup();
    let (mut pieces, mut deltas) = (&scanned.pieces[..], &scanned.deltas[..]);
    let mut out = Vec::with_capacity(scanned.inodes.len());
    for mut draft in scanned.inodes {
        let ino = draft.ino;
        let (orphaned, rest) = pieces.split_at(pieces.partition_point(|p| p.ino < ino.0));
        no_inode(orphaned, found);
        let (own, rest) = rest.split_at(rest.partition_point(|p| p.ino == ino.0));
        pieces = rest;
        deltas = &deltas[deltas.partition_point(|(of, _)| *of < ino)..];
        let in_nodes = deltas.partition_point(|(of, _)| *of == ino);
        deltas = &deltas[in_nodes..];
        let mut all = std::mem::take(&mut draft.own);
        all.extend_from_slice(own);
        let extents = file::extents(&draft, &all);
        let layout = file::layout(sb, sit, &extents, options.window);
        out.push(whole(draft, layout, extents, in_nodes as u32, options, found));
    }
    no_inode(pieces, found);
    out
}

/// Reports nodes whose inode is missing.
fn no_inode(pieces: &[Piece], found: &mut Findings) {
    for p in pieces.iter().filter(|p| p.number == piece::NODE) {
        found.add(Finding::NoInode { count: 1, ino: Ino(p.ino) });
    }
}

fn whole(
    draft: Draft,
    layout: Layout,
    extents: Extents,
    in_nodes: u32,
    options: &Options,
    found: &mut Findings,
) -> File {
    let mut file = File {
        ino: draft.ino,
        kind: draft.kind,
        class: Class::from_name(&draft.name),
        parent: draft.parent,
        name: draft.name,
        name_is_sure: draft.name_is_sure,
        name_is_encrypted: draft.name_is_encrypted,
        size: draft.size,
        links: draft.links,
        mtime_ns: draft.mtime_ns,
        inline: draft.inline,
        compressed: draft.log_cluster.is_some(),
        released: draft.released,
        delta_room: draft.delta_room,
        deltas: u32::from(draft.deltas) + in_nodes,
        lawful: draft.lawful,
        layout,
        extents: if options.extents { extents.all } else { Vec::new() },
    };
    if file.layout.outside > 0 {
        let (count, ino, addr) = (1, file.ino, format::BlockAddr(file.layout.outside_at));
        found.add(Finding::Outside { count, ino, addr });
        file.lawful = false;
    }
    if draft.shape.is_some() && file.used() != draft.i_blocks {
        let (ino, stored, counted) = (file.ino, draft.i_blocks, file.used());
        found.add(Finding::Blocks { count: 1, ino, stored, counted });
        file.lawful = false;
    }
    file
}
