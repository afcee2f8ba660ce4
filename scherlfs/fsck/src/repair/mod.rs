//! Repairs a damaged volume without losing readable data.
//!
//! It reads the volume's own records ([`known`]), finds a version of every inode ([`gather`]), gives each block one
//! owner and each file a name ([`names`]), and writes all of that as a checkpoint ([`mod@write`]) to unneeded
//! blocks. The superblock is written last: after an earlier interruption the old volume is repaired again. Damage
//! by one flipped bit is reversed ([`crate::unflip`]).
//!
//! Left out: file contents, which have no checksum of their own.

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
    /// The device is read-only.
    #[error("the device is read-only")]
    ReadOnly,
    /// The repaired volume needs more free blocks than there are.
    #[error("no free blocks are left to repair into")]
    NoSpace,
    /// Faults remain after the repair, which did all it could.
    #[error("{} errors are left: {}", after.findings.len(), after.findings.first().map(ToString::to_string).unwrap_or_default())]
    Left {
        /// The report after the repair.
        after: Box<Report>,
        /// Actions, in order.
        actions: Vec<Action>,
    },
}

/// Result of a repair.
#[derive(Debug, Clone)]
pub struct Repaired {
    /// The report before the repair.
    pub before: Report,
    /// The report after it, without findings and notes.
    pub after: Report,
    /// Actions, in order.
    pub actions: Vec<Action>,
}

/// Blocks at the beginning of a device that are searched for inodes to identify it.
const LOOK: u64 = 4096;

/// All inodes of the volume, searched on first use.
pub(crate) struct Searched<'p> {
    scan: Option<scan::Scan>,
    /// This transaction and all before it were complete according to a superblock.
    settled: Seq,
    /// The volume's secret, if known from a superblock.
    secret: Option<u64>,
    progress: &'p dyn Fn(u64, u64),
}

impl Searched<'_> {
    fn scan(&mut self, disk: &Disk<'_>) -> &scan::Scan {
        self.scan.get_or_insert_with(|| {
            let mut scan = scan::Scan::run(disk, self.secret, self.progress);
            scan.drop_torn(disk, self.settled);
            scan
        })
    }
}

/// Repairs a volume. A valid one is not written to. `progress` receives completed and total blocks during a full
/// scan.
///
/// # Errors
/// [`RepairError`]. Only with [`RepairError::Left`] and after a device error something may have been
/// written. After an interruption repair the volume again.
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
        // Only a superblock copy is torn, and it was not that of a newer state.
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

/// True if a device without a superblock appears to hold a volume: an inode is among its first blocks.
pub fn seems(dev: &dyn BlockDevice) -> bool {
    let disk = Disk { dev, blocks: dev.blocks().min(LOOK) };
    let inode = |at| disk.read(Addr(at)).is_ok_and(|b| Header::expect(&b, Kind::Inode).is_ok());
    (FIRST..disk.blocks).any(inode)
}

/// True if a superblock equals one of the copies.
fn stands(disk: &Disk<'_>, sb: &Superblock) -> bool {
    let read = |at| disk.read(Addr(at)).ok().and_then(|b| Superblock::read(&b).ok());
    [0, 1].into_iter().filter_map(read).any(|copy| copy == *sb)
}

/// Rewrites the unreadable copy from the other.
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
