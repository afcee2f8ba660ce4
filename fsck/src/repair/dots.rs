//! How do `.` and `..` of a directory come back, and what if its first block is another directory's?

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

/// Has a directory's `.` or `..` stand in its first block, once, and lead where it must.
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
        // What the inode records may be wrong, too.
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
        // Those in other blocks came with a block that is another directory's.
        for other in e.areas(dir)?.into_iter().filter(|other| *other != area) {
            put_dot(e, dir, other, which, None)?;
        }
    }
    if !put_dot(e, dir, area, which, Some(to))? {
        // A full block without them: its first name makes way, and the inode is then found without one.
        let Some((layout, bytes)) = e.area(dir, area)? else { return refuse(kind) };
        let first = dentry::entries(&layout, &bytes, 0).find(|d| !matches!(d.name, b"." | b".."));
        let Some((slot, name, ino)) = first.map(|d| (d.slot, Name(d.name.to_vec()), Ino(d.ino))) else {
            return refuse(kind);
        };
        remove(e, session, DentryPlace { dir, area, slot }, &name, Some(ino))?;
        put_dot(e, dir, area, which, Some(to))?;
    }
    Ok(())
}

/// Has `.` or `..` stand in an area once and lead there, or not stand there at all. False if there is no room for it.
fn put_dot(e: &mut Editor<'_, '_>, dir: Ino, area: Area, which: &str, to: Option<Ino>) -> Result<bool, FsckError> {
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
