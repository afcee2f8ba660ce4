//! Entries that are taken out of directories, and findings that are refused: what all repairs of names share.

use format::Ino;

use super::edit::Editor;
use super::{Action, RepairError, Session};
use crate::report::{DentryPlace, FindingKind as K, Name};

type Done = Result<(), RepairError>;

/// Nothing is known that would mend this.
pub(super) fn refuse(kind: &K) -> Done {
    Err(RepairError::NotRepairable { finding: Box::new(kind.clone()) })
}

/// Takes a name out of its directory.
pub(super) fn remove(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    place: DentryPlace,
    name: &Name,
    ino: Option<Ino>,
) -> Done {
    if e.remove_entry(place)? {
        session.lost_names.insert((place.dir, name.0.clone()));
        let ino = ino.unwrap_or(Ino(0));
        session.actions.push(Action::EntryRemoved { dir: place.dir, name: name.clone(), ino });
    }
    Ok(())
}
