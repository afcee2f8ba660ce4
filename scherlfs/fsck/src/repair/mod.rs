//! Can a damaged volume be made whole without losing what can be read?
//!
//! What the volume still says of itself is read ([`known`]), a version of every inode is found ([`gather`]), each block gets one
//! owner, each file a name ([`names`]), and all of that becomes a checkpoint ([`mod@write`]) in blocks that nobody needs. Its
//! superblock comes last: who is cut off before it repairs the volume that there was. What one flipped bit broke is
//! turned back ([`crate::unflip`]).
//!
//! Left out: contents of files, which have no checksum of their own.

mod action;
mod dirs;
mod file;
mod gather;
mod known;
mod names;
mod scan;
mod write;

use device::{BlockDevice, DeviceError, Lba, Tag};
use scherlfs_format::chain::{Header, Kind};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, FIRST, Seq};

pub use action::{Action, What};

use crate::{Disk, Report, check};

/// Why a volume was not repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// Nothing on the device looks like a volume.
    #[error("there is no superblock, and no inode in any block")]
    NoVolume,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device takes no writes.
    #[error("the device is read-only")]
    ReadOnly,
    /// There are not as many free blocks as the repaired volume needs beside what it has.
    #[error("no free blocks are left to repair into")]
    NoSpace,
    /// What was repaired is not whole. The volume is as repaired as it could be.
    #[error("{} errors are left: {}", after.findings.len(), after.findings.first().map(ToString::to_string).unwrap_or_default())]
    Left {
        /// The volume as it is.
        after: Box<Report>,
        /// What was done.
        actions: Vec<Action>,
    },
}

/// What a repair did.
#[derive(Debug, Clone)]
pub struct Repaired {
    /// The volume before.
    pub before: Report,
    /// The volume after: without findings and notes.
    pub after: Report,
    /// What was done, in order.
    pub actions: Vec<Action>,
}

/// Blocks at the beginning of a device in which inodes are looked for to tell what it was.
const LOOK: u64 = 4096;

/// All inodes of the volume, looked for once and only if somebody asks.
pub(crate) struct Searched<'p> {
    scan: Option<scan::Scan>,
    /// A superblock says that this transaction, and all before it, were whole.
    settled: Seq,
    /// The volume's secret, if a superblock says it.
    secret: Option<u64>,
    progress: &'p dyn Fn(u64, u64),
}

impl Searched<'_> {
    fn scan(&mut self, disk: &Disk<'_>) -> &scan::Scan {
        self.scan.get_or_insert_with(|| {
            let mut scan = scan::Scan::of(disk, self.secret, self.progress);
            scan.drop_torn(disk, self.settled);
            scan
        })
    }
}

/// Repairs a volume. A whole one is not written to. `progress` is told of blocks done and in all where all of them are read.
///
/// # Errors
/// [`RepairError`]. Only with [`RepairError::Left`] and after an error of the device something may have been written; a volume
/// that was cut off in the middle is repaired by repairing it again.
pub fn repair(dev: &dyn BlockDevice, progress: &dyn Fn(u64, u64)) -> Result<Repaired, RepairError> {
    let before = check(dev);
    if before.is_clean() && before.notes.is_empty() {
        return Ok(Repaired { after: before.clone(), before, actions: Vec::new() });
    }
    if dev.read_only() {
        return Err(RepairError::ReadOnly);
    }
    let mut actions = action::Log::default();
    let mut searched = Searched { scan: None, settled: Seq(0), secret: None, progress };
    let (disk, known) = known::read(dev, !before.is_clean(), &mut searched, &mut actions)?;
    if before.is_clean() && stands(&disk, &known.sb) {
        // Only a copy of the superblock is torn, and it was not that of a newer state.
        actions = action::Log::default();
        restore(&disk, &known.sb, &mut actions)?;
    } else {
        let mut gathered = gather::gather(&disk, &known, &mut searched, &mut actions);
        gather::divide(&disk, &known, &mut gathered.files, &mut actions);
        let mended = names::mend(&disk, gathered, &known.orphans, &mut actions);
        write::checkpoint(&disk, &known, &mended.files)?;
        for action in &mut actions.0 {
            if let Some(ino) = action.ino.filter(|_| action.path.is_none()) {
                action.path = names::path(&mended.names, ino);
            }
        }
    }
    let after = check(dev);
    let mut actions = actions.0;
    if actions.is_empty() {
        actions.push(Action { ino: None, path: None, what: What::Counted });
    }
    if after.is_clean() {
        return Ok(Repaired { before, after, actions });
    }
    Err(RepairError::Left { after: Box::new(after), actions })
}

/// Whether a device without a superblock seems to have been a volume: an inode is among its first blocks.
pub fn seems(dev: &dyn BlockDevice) -> bool {
    let disk = Disk { dev, blocks: dev.blocks().min(LOOK) };
    let inode = |at| disk.read(Addr(at)).is_ok_and(|b| Header::expect(&b, Kind::Inode).is_ok());
    (FIRST..disk.blocks).any(inode)
}

/// Whether a superblock is what one of the copies says.
fn stands(disk: &Disk<'_>, sb: &Superblock) -> bool {
    let read = |at| disk.read(Addr(at)).ok().and_then(|b| Superblock::read(&b).ok());
    [0, 1].into_iter().filter_map(read).any(|copy| copy == *sb)
}

/// Writes the copy that cannot be read from the other.
fn restore(disk: &Disk<'_>, sb: &Superblock, actions: &mut action::Log) -> Result<(), RepairError> {
    for at in [0, 1].map(Addr) {
        let right = disk.read(at).is_ok_and(|b| Superblock::read(&b).is_ok());
        if !right {
            disk.dev.write(Lba(at.0), &sb.write()[..], Tag::default())?;
            disk.dev.flush(Tag::default())?;
            actions.volume(What::Superblock { at });
        }
    }
    Ok(())
}

const _: () = assert!(BLOCK == device::BLOCK);
