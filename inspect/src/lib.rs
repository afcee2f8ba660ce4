//! What state is this volume in, what does it cost, and what would help?
//!
//! A reader of F2FS that scans: tables first, then the segments of nodes in address order ([`scan`]). It opens no
//! directory and follows no indirect node, so it shares nothing with the file system and its checker but the meaning of
//! bytes, and counts must agree with theirs. Each step is one question:
//!
//! * [`begin`]: which superblock and which checkpoint count?
//! * [`tables`]: which blocks are in use, and where is each node?
//! * [`scan`], [`inode`], [`piece`]: which nodes are alive, and what do they say?
//! * [`mod@file`]: how does a file lie?
//! * [`names`], [`class`]: what is it called, what is it, whose is it?
//! * [`space`]: how full, how old, how torn are the segments?
//! * [`price`]: what does it cost to read a file?
//! * [`verdict`]: what would defragmentation cost, and when is it earned back?
//! * [`advice`]: what would help?
//! * [`treatment`]: which blocks of one file are worth moving, for whom?
//!
//! [`ext`] reads images of ext2, ext3 and ext4 by a library, and has the rest in common.
//!
//! Damage is no error: [`Volume::findings`] says what could not be known.
//!
//! Left out on purpose: what `fsync` wrote after the checkpoint; writing; whether a volume is sound.
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

/// Why nothing can be said of a volume.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The device holds something else.
    #[error("not an F2FS volume")]
    NotF2fs,
    /// An F2FS superblock that is damaged in both copies, or of a shape not understood.
    #[error("{0}; `joulefs rescue` looks for files without a superblock")]
    Superblock(FormatError),
    /// An F2FS volume of a kind that is not understood.
    #[error("not supported: {what}")]
    Unsupported {
        /// Which kind.
        what: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Reports to the caller how many blocks are done, and asks it whether to go on.
pub struct Progress<'p> {
    tell: &'p mut dyn FnMut(u64) -> bool,
}

impl<'p> Progress<'p> {
    /// `tell` gets the blocks done since it was last called, and answers whether to go on.
    pub fn new(tell: &'p mut dyn FnMut(u64) -> bool) -> Self {
        Progress { tell }
    }
    fn step(&mut self, blocks: u64) -> Result<(), InspectError> {
        if (self.tell)(blocks) { Ok(()) } else { Err(InspectError::Interrupted) }
    }
}

/// How to look.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Blocks that one request of a reader asks for at most.
    pub window: u64,
    /// Keep the extents of every file.
    pub extents: bool,
}

impl Default for Options {
    /// Requests of 512 KiB.
    fn default() -> Self {
        Options { window: 128, extents: false }
    }
}

/// A file, or anything else that has an inode.
#[derive(Debug, Clone)]
pub struct File {
    /// Its inode.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// What class its name puts it in.
    pub class: Class,
    /// Its parent, as it recorded it.
    pub parent: Ino,
    /// Its name, as it recorded it.
    pub name: Box<[u8]>,
    /// False if its name or parent may have changed since.
    pub name_is_sure: bool,
    /// True if its name is ciphertext.
    pub name_is_encrypted: bool,
    /// Bytes.
    pub size: u64,
    /// Names it has; none: deleted while open.
    pub links: u32,
    /// Last change of contents: nanoseconds since 1970.
    pub mtime_ns: i64,
    /// True if its contents are in the inode.
    pub inline: bool,
    /// True if it is stored in compressed clusters.
    pub compressed: bool,
    /// True if the room that compression saved was given back: marks of clusters count as no blocks then.
    pub released: bool,
    /// Bytes that deltas may still take in the inode, 8 for each beside its payload.
    pub delta_room: u16,
    /// Deltas it has, in the inode and in delta nodes.
    pub deltas: u32,
    /// False if something about it is damaged, so that the rest may be wrong.
    pub lawful: bool,
    /// How it lies.
    pub layout: Layout,
    /// Its extents, if they were asked for.
    pub extents: Vec<file::Extent>,
}

impl File {
    /// Blocks that count for it as used: nodes, contents, reserved ones.
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

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Directories.
    pub dirs: u64,
    /// Everything else that has an inode.
    pub files: u64,
    /// Nodes, inodes among them.
    pub nodes: u64,
    /// Blocks in use: nodes, contents, reserved ones.
    pub blocks: u64,
}

/// What a volume is like.
pub struct Volume {
    /// Its superblock.
    pub superblock: SuperBlock,
    /// The checkpoint that counts. Without one the rest is empty.
    pub checkpoint: Option<Checkpoint>,
    /// Everything with an inode, in order of inode number.
    pub files: Vec<File>,
    /// What was counted.
    pub counts: Counts,
    /// Its segments, each.
    pub segments: Sit,
    /// Its segments, counted.
    pub space: Space,
    /// What could not be known, or does not agree.
    pub findings: Vec<Finding>,
}

impl Volume {
    /// Reads a volume as of its last checkpoint.
    ///
    /// # Errors
    /// [`InspectError`], if there is none. Damage is no error.
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
            // Nodes of inodes that are not there belong to no file.
            blocks: nodes + files.iter().map(|f| f.used() - u64::from(f.layout.nodes)).sum::<u64>(),
        };
        let cp = pack.checkpoint;
        let space = Space::of(&sit, cp.elapsed);
        let totals = [
            ("blocks in use", cp.valid_blocks, counts.blocks),
            ("nodes", cp.valid_nodes.into(), counts.nodes),
            ("inodes", cp.valid_inodes.into(), counts.dirs + counts.files),
        ];
        // Each is a finding of its own.
        let mut findings = found.into_vec();
        let differ = totals.into_iter().filter(|(_, stored, counted)| stored != counted);
        findings.extend(differ.map(|(what, stored, counted)| Finding::Total { what, stored, counted }));
        Ok(Volume { superblock, checkpoint: Some(cp), files, counts, segments: sit, space, findings })
    }

    /// The path of one of its files.
    pub fn path(&self, file: &File) -> names::Path {
        names::path(&self.files, self.superblock.root, file)
    }

    /// Blocks that the scan goes over, for a progress bar.
    pub fn steps(dev: &dyn BlockDevice) -> u64 {
        let Ok(sb) = begin::superblock(dev, &mut Findings::default()) else { return 0 };
        let sit = sb.main_segs.div_ceil(format::sit::SIT_ENTRIES);
        u64::from(sb.main_segs) * u64::from(BLOCKS_PER_SEG) + u64::from(sit) + u64::from(sb.nat_blocks())
    }
}

/// Puts together what nodes said of each file.
fn files(sb: &SuperBlock, sit: &Sit, mut scanned: scan::Scanned, options: &Options, found: &mut Findings) -> Vec<File> {
    scanned.inodes.sort_unstable_by_key(|d| d.ino);
    scanned.pieces.sort_unstable();
    scanned.deltas.sort_unstable();
    // Of several entries for a block one counts.
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

/// Says whose nodes have no inode.
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
        class: Class::of(&draft.name),
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
