//! Which frames of a flame graph does an owner of a ledger stand for?

use device::energy::Ledger;
use sim::flame::{self, Depth, Flame, Place};
use sim::labels::{Cause, NO_PROCESS, Words};
use trace::askers::{KERNEL, WRITEBACK};
use trace::{Names, Process};
use vfs::{FileKind, Look, Owner, Volume};

/// Files of a volume, by their final paths; deleted files by their last ones.
pub fn of_volume(ledger: &Ledger, depth: Depth, volume: &dyn Volume) -> Flame {
    let words = Words::of(volume);
    let place = &mut |owner| match volume.owner_of(owner, Look::Everywhere) {
        Owner::Volume => Place::unnamed(&words.rest),
        Owner::Path(path) => {
            // An unreadable inode has no known kind and is shown as a file.
            let is_directory = volume.getattr(vfs::Ino(owner)).is_ok_and(|a| a.kind == FileKind::Directory);
            Place::path(&path, "", is_directory)
        }
        Owner::Deleted(Some(path)) => Place::path(&path, "<deleted> ", false),
        Owner::Deleted(None) => Place::unnamed(&format!("<deleted inode {owner}>")),
        Owner::Unnamed => Place::unnamed(&format!("<inode {owner}>")),
    };
    Flame::from_ledger(ledger, depth, flame::Words { place, nobody: &words.rest, cause: &|n| words.cause(n) })
}

/// Processes of a recording of a block device.
pub fn of_processes(ledger: &Ledger, depth: Depth, names: &Names) -> Flame {
    let place = &mut |owner: u64| match u32::try_from(owner.saturating_sub(1)).map(|p| names.name(Process(p))) {
        Ok("") | Err(_) => Place::unnamed("<process not known>"),
        // These are not process names: `joulefs top` puts them in place of one.
        Ok(ours @ (WRITEBACK | KERNEL)) => Place::unnamed(ours),
        Ok(name) => Place::named(name.as_bytes()),
    };
    let cause = &|n: u8| Cause::of_requests(n).text;
    Flame::from_ledger(ledger, depth, flame::Words { place, nobody: NO_PROCESS, cause })
}

/// Inodes of a recording of a device, which has no names.
pub fn of_inodes(ledger: &Ledger, depth: Depth, cause: &dyn Fn(u8) -> String) -> Flame {
    let place = &mut |owner| Place::unnamed(&format!("<inode {owner}>"));
    Flame::from_ledger(ledger, depth, flame::Words { place, nobody: "<no file>", cause })
}
