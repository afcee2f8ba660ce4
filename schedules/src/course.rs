//! Which operations run in which threads, on which volume, and what fails?
//!
//! All of it is drawn from a seed. Operations refer to files by small numbers, so a course stays valid when a part of
//! it is removed; names are few, so that threads conflict.

use std::fmt;

use device::{Op as Request, Rng};

use crate::mounting;

/// Bytes of a cell, the unit of all contents here: a device writes it atomically.
pub const CELL: u64 = 512;

/// A directory: the root, or one of those on a new volume ([`Dir::PLACES`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dir(pub u8);

impl Dir {
    /// Location of each on a new volume: parent and name. The root is 0.
    pub const PLACES: [(u8, Name); 3] = [(0, Name(4)), (0, Name(5)), (1, Name(4))];
    /// Number of directories.
    pub const COUNT: u8 = 1 + Self::PLACES.len() as u8;
}

/// One of a few names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub u8);

impl Name {
    /// Number of names.
    pub const COUNT: u8 = 6;

    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        match self.0 {
            // A volume with deltas treats this as a database's journal.
            1 => b"b-journal".to_vec(),
            3 => vec![b'n'; 255],
            n => vec![b'a' + n],
        }
    }

    /// Parses the bytes; `None` for a name that no course creates.
    pub fn of(bytes: &[u8]) -> Option<Name> {
        (0..Self::COUNT).map(Name).find(|n| n.bytes() == bytes)
    }
}

/// A name in a directory.
pub type Place = (Dir, Name);

/// A mode of `fallocate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Range {
    /// Punches a hole.
    Punch,
    /// Allocates blocks.
    Reserve,
    /// Zeroes the range.
    Zero,
    /// Removes the range and shifts the rest.
    Collapse,
    /// Inserts a range.
    Insert,
}

/// One operation. Numbers of contents are cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the call of its name.
pub enum Op {
    /// Creates and writes a file; syncs it if the last field is true.
    Create(Place, u64, bool),
    Mkdir(Place),
    Link(Place, Place),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place, Flavour),
    /// From this cell, this many.
    Write(Place, u64, u64),
    Read(Place, u64, u64),
    Truncate(Place, u64),
    Allocate(Place, Range, u64, u64),
    Stat(Place),
    List(Dir),
    SetAttribute(Place, u8, u16),
    GetAttribute(Place, u8),
    /// True for data only.
    Fsync(Place, bool),
    FsyncDir(Dir),
    /// Creates a file, syncs it and its directory, removes it, and syncs the directory.
    Journal(Place),
    Sync,
    /// After this many seconds.
    Tick(u64),
    /// This many blocks at a time.
    Clean(usize),
    /// Removes a file of the crowd.
    Thin(u64),
    /// Creates a file, marks it as compressed, and writes it; syncs it if the last field is true.
    CreateCompressed(Place, u64, bool),
    /// Makes a file compressed (true) or plain.
    Compress(Place, bool),
    /// Releases the space saved by packing.
    Release(Place),
    /// Reserves that space again.
    Retake(Place),
    /// Packs clusters (true) or unpacks them.
    Repack(Place, bool),
    /// Defragments a file from this block on.
    Defragment(Place, u64),
}

/// The kind of rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Replaces an existing target.
    Plain,
    /// Refuses to replace.
    NoReplace,
    /// Exchanges both names.
    Exchange,
}

/// The injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// Power fails at this write request; the seed decides whether unflushed writes are lost, kept or torn.
    Cut(u64, u64),
    /// From this request on, this many of a kind fail; if the volume cannot be unmounted then, power fails with this
    /// seed.
    Fault(Request, u64, u64, u64),
}

/// Which files are compressed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compressing {
    /// Linux's name of the algorithm.
    pub algorithm: &'static str,
    /// Blocks of a cluster, as a power of two.
    pub log_cluster: u32,
    /// Every new file, not only those marked.
    pub all: bool,
    /// Clusters are packed only on request.
    pub by_user: bool,
}

impl Compressing {
    /// Cells of a cluster.
    pub fn cells(self) -> u64 {
        8 << self.log_cluster
    }
}

/// How the volume is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mounting {
    /// Maximum number of clean cached nodes.
    pub node_cache: usize,
    /// Maximum of dirty contents, in blocks.
    pub dirty_limit: usize,
    /// Maximum number of cached directory blocks.
    pub dir_cache: usize,
    /// Seconds until writeback.
    pub writeback_after: u64,
    /// Seconds until a checkpoint.
    pub checkpoint_after: u64,
    /// Stores small contents in inodes.
    pub inline: bool,
    /// Stores small updates in inodes, on a volume that may have deltas.
    pub delta: bool,
    /// Stores them only in delta nodes: the files here are small, and would otherwise fit in their inodes.
    pub delta_nodes: bool,
    /// Compresses files, on a volume that may have compressed files.
    pub compress: Option<Compressing>,
    /// Background cleaning is urgent.
    pub hurry: bool,
    /// The volume is large enough for logs to write free segments: on a smaller one, defragmentation is refused.
    pub roomy: bool,
    /// Preallocates blocks for databases and journals, which one of the names matches.
    pub prealloc: bool,
    /// New files created before the threads start and used by none: with about 64 dirty nodes, every change must write
    /// nodes first.
    pub crowd: u64,
}

/// The file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Type {
    /// F2FS.
    #[default]
    F2fs,
    /// ScherlFS.
    Scherlfs,
}

/// A case: determines everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The file system.
    pub of: Type,
    /// Seed of operations, volume and faults.
    pub seed: u64,
    /// Seed of the thread order, if different.
    pub schedule: Option<u64>,
    /// Run only these operations, numbered across all threads; none: all.
    pub only: Option<Vec<usize>>,
}

impl Case {
    /// The case of a seed, on F2FS.
    pub fn new(seed: u64) -> Self {
        Case::on(Type::F2fs, seed)
    }

    /// The case of a seed, on this file system.
    pub fn on(of: Type, seed: u64) -> Self {
        Case { of, seed, schedule: None, only: None }
    }

    /// The seed of the schedule.
    pub fn schedule_seed(&self) -> u64 {
        self.schedule.unwrap_or(self.seed)
    }
}

/// The arguments that reproduce the case.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        if self.of == Type::Scherlfs {
            f.write_str(" --type scherlfs")?;
        }
        if let Some(schedule) = self.schedule {
            write!(f, " --schedule {schedule}")?;
        }
        if let Some(only) = &self.only {
            let list: Vec<String> = only.iter().map(usize::to_string).collect();
            write!(f, " --only {}", list.join(","))?;
        }
        Ok(())
    }
}

/// Everything that the seed determines except the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Course {
    /// Numbered operations, by thread.
    pub threads: Vec<Vec<(usize, Op)>>,
    /// Mount options for F2FS.
    pub mounting: Mounting,
    /// Mount options for ScherlFS.
    pub scherlfs: Option<mounting::Mounting>,
    /// The injected fault.
    pub trouble: Trouble,
}

impl Course {
    /// The course of a case.
    pub fn of(case: &Case) -> Course {
        let mut rng = Rng::new(case.seed);
        let (mut shape, mut asked, mut kind, mut packing) = (rng.split(), rng.split(), rng.split(), rng.split());
        let mut together = rng.split();
        let scherlfs = (case.of == Type::Scherlfs).then(|| mounting::Mounting::draw(&mut rng.split()));
        let mut mounting = Mounting {
            node_cache: *pick(&mut shape, &[16, 64, 64, 8192]),
            dirty_limit: *pick(&mut shape, &[16, 64, 8192]),
            dir_cache: *pick(&mut shape, &[4, 4096]),
            writeback_after: *pick(&mut shape, &[0, 0, 5]),
            checkpoint_after: *pick(&mut shape, &[0, 20, 60]),
            inline: shape.chance(2, 3),
            delta: kind.chance(1, 3),
            delta_nodes: false,
            compress: packing.chance(1, 4).then(|| compressing(&mut packing)),
            hurry: shape.chance(1, 2),
            roomy: false,
            prealloc: false,
            crowd: if shape.chance(1, 2) { 58 + shape.below(8) } else { 0 },
        };
        let trouble = match shape.below(10) {
            0..5 => Trouble::None,
            5..8 => Trouble::Cut(1 + shape.below(20), shape.next_u64()),
            _ => {
                let (request, most) =
                    *pick(&mut shape, &[(Request::Read, 30), (Request::Write, 20), (Request::Flush, 6)]);
                Trouble::Fault(request, 1 + shape.below(most), 1 + shape.below(3), shape.next_u64())
            }
        };
        let threads = 2 + shape.below(3);
        let each = 3 + shape.below(8);
        let mut number = 0;
        let mut threads: Vec<Vec<(usize, Op)>> = (0..threads)
            .map(|_| {
                let role = *pick(&mut asked, &ROLES);
                (0..each)
                    .map(|_| {
                        number += 1;
                        let op = match scherlfs.map_or(mounting.crowd, |m| m.crowd) {
                            crowd @ 1.. if asked.chance(1, 4) => Op::Thin(asked.below(crowd)),
                            _ => operation(&mut asked, role),
                        };
                        (number - 1, op)
                    })
                    .collect()
            })
            .collect();
        if scherlfs.is_some() {
            // Exclude features that only F2FS has.
            (mounting.delta, mounting.compress) = (false, None);
        } else if together.chance(1, 3) {
            // When cleaning is urgent, logs fill holes even if there is enough space.
            (mounting.roomy, mounting.hurry) = (true, false);
            mounting.prealloc = together.chance(1, 2);
        }
        if mounting.delta {
            threads.iter_mut().for_each(|ops| nudge(&mut kind, ops));
            mounting.delta_nodes = kind.chance(1, 2);
        }
        if let Some(how) = mounting.compress {
            threads.iter_mut().for_each(|ops| squeeze(&mut packing, how, ops));
        }
        if mounting.roomy {
            threads.iter_mut().for_each(|ops| gather(&mut together, ops));
        }
        if let Some(only) = &case.only {
            threads.iter_mut().for_each(|t| t.retain(|(n, _)| only.contains(n)));
        }
        Course { threads, mounting, scherlfs, trouble }
    }

    /// Maximum steps per operation, as measured, rounded up.
    pub fn steps_per_operation(&self) -> u64 {
        if self.scherlfs.is_some() { 30 } else { 60 }
    }

    /// Total number of operations.
    pub fn operations(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }
}

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.index(from.len())]
}

/// The main activity of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Writer,
    Fsyncer,
    Namer,
    Reader,
    Keeper,
    /// Creates, renames and removes files and makes each durable, like mail servers and databases.
    Spooler,
}

const ROLES: [Role; 10] = [
    Role::Writer,
    Role::Writer,
    Role::Fsyncer,
    Role::Fsyncer,
    Role::Namer,
    Role::Namer,
    Role::Reader,
    Role::Keeper,
    Role::Spooler,
    Role::Spooler,
];

fn operation(rng: &mut Rng, role: Role) -> Op {
    // One operation in four is of another role.
    let role = if rng.chance(1, 4) { *pick(rng, &ROLES) } else { role };
    let dir = |rng: &mut Rng| Dir(rng.below(Dir::COUNT.into()) as u8);
    let place = |rng: &mut Rng| {
        let dir = if rng.chance(1, 2) { Dir(0) } else { dir(rng) };
        (dir, Name(rng.below(Name::COUNT.into()) as u8))
    };
    let at = place(rng);
    match role {
        Role::Writer => match rng.below(12) {
            0..3 => Op::Create(at, 1 + length(rng), false),
            3..8 => Op::Write(at, offset(rng), 1 + length(rng)),
            8..10 => Op::Truncate(at, if rng.chance(1, 3) { 0 } else { offset(rng) }),
            10 => Op::SetAttribute(at, rng.below(2) as u8, *pick(rng, &[10, 300, 1500])),
            _ => {
                let range = *pick(rng, &[Range::Punch, Range::Reserve, Range::Zero, Range::Collapse, Range::Insert]);
                Op::Allocate(at, range, rng.below(6) * 8, (1 + rng.below(5)) * 8)
            }
        },
        Role::Fsyncer => match rng.below(10) {
            0..3 => Op::Create(at, 1 + length(rng), true),
            3..5 => Op::Write(at, offset(rng), 1 + length(rng)),
            5..9 => Op::Fsync(at, rng.chance(1, 3)),
            _ => Op::FsyncDir(dir(rng)),
        },
        Role::Namer => match rng.below(12) {
            0..2 => Op::Create(at, 0, false),
            2 => Op::Mkdir(at),
            3 => Op::Link(at, place(rng)),
            4..7 => Op::Unlink(at),
            7 => Op::Rmdir(at),
            _ => {
                let flavour = *pick(rng, &[Flavour::Plain, Flavour::Plain, Flavour::NoReplace, Flavour::Exchange]);
                Op::Rename(at, place(rng), flavour)
            }
        },
        Role::Spooler => match rng.below(12) {
            0..4 => Op::Create(at, rng.below(12), rng.chance(3, 4)),
            4..6 => Op::Unlink(at),
            6..8 => Op::Rename(at, place(rng), Flavour::Plain),
            8 => Op::Fsync(at, rng.chance(1, 2)),
            9 => Op::Journal(at),
            _ => Op::FsyncDir(at.0),
        },
        Role::Reader => match rng.below(6) {
            0..3 => Op::Read(at, offset(rng), 1 + length(rng)),
            3 => Op::Stat(at),
            4 => Op::List(dir(rng)),
            _ => Op::GetAttribute(at, rng.below(2) as u8),
        },
        Role::Keeper => match rng.below(6) {
            0..3 => Op::Tick(*pick(rng, &[0, 1, 30, 100])),
            3 => Op::Sync,
            _ => Op::Clean(1 + rng.index(64)),
        },
    }
}

/// Replaces half of a thread's operations with small changes of two files; the first creates one of the files.
fn nudge(rng: &mut Rng, ops: &mut [(usize, Op)]) {
    for (k, (_, op)) in ops.iter_mut().enumerate() {
        if k > 0 && rng.chance(1, 2) {
            continue;
        }
        let at = (Dir(0), Name(rng.below(2) as u8));
        *op = match rng.below(8) {
            _ if k == 0 => Op::Create(at, 40 + rng.below(60), true),
            0..2 => Op::Write(at, rng.below(64), 1),
            // Whole pages of a journal, not aligned to its blocks.
            2..4 => Op::Write(at, rng.below(64), 1 + rng.below(24)),
            4..7 => Op::Fsync(at, rng.chance(1, 3)),
            _ => Op::Clean(1 + rng.index(64)),
        };
    }
}

/// Replaces some of a thread's operations with defragmentation of files with a few names.
fn gather(rng: &mut Rng, ops: &mut [(usize, Op)]) {
    for (k, (_, op)) in ops.iter_mut().enumerate() {
        if k > 0 && rng.chance(1, 3) {
            *op = Op::Defragment((Dir(0), Name(rng.below(3) as u8)), rng.below(2) * rng.below(8));
        }
    }
}

fn compressing(rng: &mut Rng) -> Compressing {
    Compressing {
        algorithm: pick::<&str>(rng, &["lz4", "lz4", "lzo", "lzo-rle", "zstd"]),
        log_cluster: *pick(rng, &[2, 2, 2, 3]),
        all: rng.chance(1, 2),
        by_user: rng.chance(1, 6),
    }
}

/// Replaces half of a thread's operations with changes of two files' clusters; the first creates one of the files.
fn squeeze(rng: &mut Rng, how: Compressing, ops: &mut [(usize, Op)]) {
    let cluster = how.cells();
    for (k, (_, op)) in ops.iter_mut().enumerate() {
        if k > 0 && rng.chance(1, 2) {
            continue;
        }
        let at = (Dir(0), Name(rng.below(2) as u8));
        // At a cluster's beginning, or inside it.
        let inside = if rng.chance(1, 2) { 0 } else { rng.below(cluster) };
        let (cell, blocks) = (rng.below(4) * cluster + inside, 1 + rng.below(2 * cluster / 8));
        *op = match rng.below(20) {
            _ if k == 0 => Op::CreateCompressed(at, rng.below(4) * cluster + rng.below(cluster), rng.chance(1, 2)),
            0..4 => Op::Write(at, cell, cluster),
            4..6 => Op::Write(at, cell, 1 + rng.below(2 * cluster)),
            6 => Op::Truncate(at, *pick(rng, &[0, cell, cell, cell / cluster * cluster])),
            7 => Op::Read(at, cell, cluster),
            8..10 => {
                let range = *pick(rng, &[Range::Punch, Range::Punch, Range::Zero, Range::Reserve, Range::Collapse]);
                Op::Allocate(at, range, cell / 8 * 8, blocks * 8)
            }
            10..13 => Op::Fsync(at, rng.chance(1, 3)),
            13..15 => Op::Release(at),
            15..17 => Op::Retake(at),
            17 => Op::Repack(at, rng.chance(1, 2)),
            18 => Op::Compress(at, rng.chance(1, 2)),
            _ => Op::Clean(1 + rng.index(64)),
        };
    }
}

/// Offsets where the layout changes: the end of the inline area, blocks, the end of the inode's own addresses and of
/// the first indirect node's.
fn offset(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0..4 => rng.below(16),
        4..7 => rng.below(6) * 8,
        7 => 873 * 8 + rng.below(60 * 8),
        8 => (923 + 1018) * 8 + rng.below(16),
        _ => (923 + 2 * 1018) * 8 + rng.below(16),
    }
}

fn length(rng: &mut Rng) -> u64 {
    match rng.below(6) {
        0..3 => rng.below(8),
        3..5 => rng.below(40),
        _ => rng.below(200),
    }
}
