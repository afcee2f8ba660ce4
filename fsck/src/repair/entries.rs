//! Removing directory entries and rejecting findings: shared by all repairs of names.

use format::Ino;

use super::edit::Editor;
use super::{Action, RepairError, Session};
use crate::report::{DentryPlace, FindingKind as K, Name};

type Done = Result<(), RepairError>;

/// No repair is known for this finding.
pub(super) fn refuse(kind: &K) -> Done {
    Err(RepairError::NotRepairable { finding: Box::new(kind.clone()) })
}

/// Removes a name from its directory.
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
