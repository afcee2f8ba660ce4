//! Common parts of every case, on either file system: the initial files, the final reads, and the input of the checks.

use std::sync::Arc;

use device::{Loss, Memory, Time, VirtualClock};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode, WriteFlags};

use crate::course::{Dir, Trouble};
use crate::durable;
use crate::hand::{Answer, Event, Hand, History};

/// A directory of files that no thread touches, for cleaning to move.
pub(crate) const FILLER: &[u8] = b"lost+found";
pub(crate) const ME: Caller = Caller { uid: 0, gid: 0 };

/// Contents of other disks used by the volume.
#[derive(Default)]
pub(crate) struct Stood {
    pub index: Option<Memory>,
    pub stage: Option<Memory>,
}

/// The result of a schedule.
pub(crate) struct Left {
    pub events: Vec<Event>,
    pub dirs: Vec<u64>,
    pub image: Memory,
    pub spent: Vec<u64>,
    /// Inodes and nodes, if the volume was unmounted and counts them.
    pub unmounted: Option<(u32, u32)>,
    pub deltas: u64,
    pub kept: u64,
    pub together: u64,
    pub moved: u64,
    pub packed: u64,
    pub packed_pages: u64,
    pub cut: bool,
    pub names: [u64; 3],
    pub stood: Stood,
}

impl Left {
    /// For a volume without any of the counted events.
    pub fn of(history: &History, dirs: &[u64], image: Memory, spent: Vec<u64>, cut: bool) -> Left {
        Left {
            events: history.events(),
            dirs: dirs.to_vec(),
            image,
            spent,
            unmounted: None,
            deltas: 0,
            kept: 0,
            together: 0,
            moved: 0,
            packed: 0,
            packed_pages: 0,
            cut,
            names: [0; 3],
            stood: Stood::default(),
        }
    }
}

/// What happens to unflushed writes.
pub(crate) fn loss(trouble: Trouble, unmounted: bool) -> Loss {
    match trouble {
        _ if unmounted => Loss::AllKept,
        Trouble::None => Loss::AllKept,
        Trouble::Cut(_, seed) | Trouble::Fault(.., seed) => match seed % 4 {
            0 => Loss::AllKept,
            1 => Loss::AllLost,
            _ => Loss::Random(seed),
        },
    }
}

pub(crate) fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)))
}

pub(crate) fn fill(vol: &dyn FileSystem) -> vfs::Result<()> {
    let mut dirs = vec![vol.root()];
    for (parent, name) in Dir::PLACES {
        let e = vol.mkdir(ME, dirs[usize::from(parent)], &name.bytes(), 0o700, 0)?;
        dirs.push(e.attr.ino);
    }
    let filler = vol.lookup(vol.root(), FILLER)?.attr.ino;
    let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
    for n in 0..24u8 {
        let e = vol.mknod(ME, filler, &[b'A' + n], &new)?;
        vol.write(e.attr.ino, 0, &vec![n; 32 * 4096], WriteFlags::empty())?;
        vol.fsync(e.attr.ino, false)?;
        vol.forget(e.attr.ino, 1);
    }
    vol.sync()?;
    for n in (0..24u8).filter(|n| n % 2 == 0) {
        vol.unlink(filler, &[b'A' + n])?;
    }
    vol.unmount()
}

/// The name of a file of the crowd.
fn member(n: u64) -> Vec<u8> {
    format!("crowd {n}").into_bytes()
}

pub(crate) fn thin(vol: &dyn FileSystem, n: u64) -> vfs::Result<()> {
    let filler = vol.lookup(vol.root(), FILLER)?.attr.ino;
    let out = vol.unlink(filler, &member(n));
    vol.forget(filler, 1);
    match out {
        Err(vfs::Error::NotFound) => Ok(()),
        out => out,
    }
}

pub(crate) fn crowd(vol: &dyn FileSystem, files: u64) -> vfs::Result<()> {
    let filler = vol.lookup(vol.root(), FILLER)?.attr.ino;
    let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
    for n in 0..files {
        let e = vol.mknod(ME, filler, &member(n), &new)?;
        vol.forget(e.attr.ino, 1);
    }
    vol.forget(filler, 1);
    Ok(())
}

/// Reads everything, as the final calls.
pub(crate) fn look(hand: &Hand<'_>) {
    let mut waiting = vec![hand.dirs[0]];
    while let Some(dir) = waiting.pop() {
        let Answer::Names(names) = hand.list(dir) else { continue };
        for (name, _) in names {
            hand.with_ino(dir, name, |ino, kind| match kind {
                FileKind::Directory => waiting.push(ino),
                _ => {
                    hand.stat(ino);
                    for (first, cells) in durable::WINDOWS {
                        hand.read(ino, first, cells);
                    }
                }
            });
        }
    }
}
