//! How are `.` and `..` of a directory restored, and what if its first block belongs to another directory?

use format::dentry;
use format::inode::{Inline, RawInode};
use format::{BLOCK, Ino};

use super::edit::Editor;
use super::entries::{refuse, remove};
use super::rescue::Unreached;
use super::{Action, RepairError, Session};
use crate::FsckError;
use crate::kind::DIR;
use crate::report::{Area, DentryPlace, DotFault, FindingKind as K, Name};

type Done = Result<(), RepairError>;

/// Ensures that `.` or `..` is in the first block of a directory, only once, and leads to the right inode.
#[allow(clippy::too_many_arguments)] // the parts of one finding
pub fn mend(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    unreached: &mut Unreached,
    kind: &K,
    dir: Ino,
    which: &str,
    fault: DotFault,
) -> Done {
    let Some(block) = e.peek(dir.nid())? else { return Ok(()) };
    let raw = RawInode::of(&block);
    let inline = raw.inline().contains(Inline::DENTRY);
    let area = if inline { Area::Inline } else { Area::Block(0) };
    let parent = Ino(raw.i_pino.get());
    let to = match (which, fault) {
        (".", _) => dir,
        _ if dir == e.img.sb.root => dir,
        // The parent recorded in the inode may be wrong, too.
        _ => e.parents.get(&dir).copied().unwrap_or(parent),
    };
    if e.area(dir, area)?.is_none() && !inline {
        let Some((at, _)) = e.slot(dir, 0)? else { return refuse(kind) };
        if let Some(addr) = unreached.data(at) {
            e.set_slot(at, addr)?;
            session.actions.push(Action::DataFound { at, addr });
            return Ok(());
        }
        e.data.insert((dir, 0), Box::new([0; BLOCK]));
    }
    if fault != DotFault::Missing {
        // Entries in other blocks came with a block of another directory.
        for other in e.areas(dir)?.into_iter().filter(|other| *other != area) {
            set_dot(e, dir, other, which, None)?;
        }
    }
    if !set_dot(e, dir, area, which, Some(to))? {
        // A full block without them: its first name is removed, and its inode is then found as unnamed.
        let Some((layout, bytes)) = e.area(dir, area)? else { return refuse(kind) };
        let first = dentry::entries(&layout, &bytes, 0).find(|d| !matches!(d.name, b"." | b".."));
        let Some((slot, name, ino)) = first.map(|d| (d.slot, Name(d.name.to_vec()), Ino(d.ino))) else {
            return refuse(kind);
        };
        remove(e, session, DentryPlace { dir, area, slot }, &name, Some(ino))?;
        set_dot(e, dir, area, which, Some(to))?;
    }
    Ok(())
}

/// Ensures that `.` or `..` is in an area only once and leads to `to`, or is absent for `None`. False if there is
/// no room.
fn set_dot(e: &mut Editor<'_, '_>, dir: Ino, area: Area, which: &str, to: Option<Ino>) -> Result<bool, FsckError> {
    let (name, mut placed) = (which.as_bytes(), true);
    e.change_area(dir, area, |l, bytes| {
        let slots: Vec<usize> = dentry::entries(l, bytes, 0).filter(|d| d.name == name).map(|d| d.slot).collect();
        let keep = usize::from(to.is_some());
        slots.iter().skip(keep).for_each(|slot| dentry::remove(l, bytes, *slot));
        match (to, slots.first()) {
            (Some(to), Some(first)) => dentry::redirect(l, bytes, *first, to.0, DIR),
            (Some(to), None) => match dentry::free_run(l, bytes, 1) {
                Some(slot) => dentry::insert(l, bytes, slot, name, 0, to.0, DIR),
                None => placed = false,
            },
            (None, _) => {}
        }
    })?;
    Ok(placed)
}
