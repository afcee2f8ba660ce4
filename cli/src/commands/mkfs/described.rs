//! A tree of the host as an image shall have it: owners, modes, labels and times as lists and options say, everything else as it is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use vfs::Timestamp;

use super::labels::Labels;
use super::owners::{Owned, Owners};
use crate::commands::cp::{Glance, Item, Out, Reader, Source};

/// The attribute that SELinux reads.
pub const LABEL: &[u8] = b"security.selinux";

/// What is said of the tree.
#[derive(Default)]
pub struct Description {
    pub owners: Option<Owners>,
    pub labels: Option<Labels>,
    pub time: Option<Timestamp>,
    /// Where the image will be mounted: how paths in both lists begin. `/`, or without one at its end.
    pub mount_point: Vec<u8>,
}

/// A tree below a directory of another source.
pub struct Described<'s> {
    pub inner: &'s (dyn Source + Sync),
    /// That directory, as the other source names it.
    pub root: Vec<u8>,
    pub description: &'s Description,
    /// Of files with several names (by device and inode): under which one was met first, and what the list of owners says of it.
    names: Mutex<HashMap<(u64, u64), (Vec<u8>, Owned)>>,
}

impl Description {
    /// A path below the root of the image as both lists have it.
    pub fn path(&self, below: &[u8]) -> Vec<u8> {
        let above = self.mount_point.strip_suffix(b"/").unwrap_or(&self.mount_point);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        match (above.is_empty(), below.is_empty()) {
            (false, true) => above.to_vec(),
            _ => [above, b"/", below].concat(),
        }
    }

    /// Makes something what both lists say of it. Fails if the list of owners does not know it.
    pub fn apply(&self, below: &[u8], item: &mut Item) -> Out<()> {
        let path = self.path(below);
        if let Some(owners) = &self.owners {
            let owned = owners.of(&path);
            let owned = owned.ok_or_else(|| format!("{}: not in --fs-config", String::from_utf8_lossy(&path)))?;
            (item.uid, item.gid) = (owned.uid, owned.gid);
            // A symlink has no mode of its own.
            if item.kind != vfs::FileKind::Symlink {
                item.perm = owned.perm;
            }
            item.xattrs.retain(|(name, _)| name != b"security.capability");
            item.xattrs.extend(owned.attribute());
        }
        if let Some(labels) = &self.labels {
            // Those that the tree has on this machine are this machine's.
            item.xattrs.retain(|(name, _)| name != LABEL);
            item.xattrs.extend(labels.of(&path, item.kind).map(|label| (LABEL.to_vec(), label.to_vec())));
        }
        if let Some(time) = self.time {
            (item.atime, item.mtime) = (time, time);
        }
        Ok(())
    }
}

impl<'s> Described<'s> {
    pub fn new(inner: &'s (dyn Source + Sync), root: Vec<u8>, description: &'s Description) -> Self {
        Described { inner, root, description, names: Mutex::default() }
    }

    /// Refuses a file with several names of which the list of owners says different things: which of them holds for a set-id
    /// program is no matter of the order in which names are met.
    fn check_names_agree(&self, at: &[u8], item: &Item) -> Out<()> {
        let (Some(file), Some(owners)) = (item.identity, &self.description.owners) else { return Ok(()) };
        let path = self.description.path(at);
        let Some(owned) = owners.of(&path) else { return Ok(()) };
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, said) = names.entry(file).or_insert_with(|| (path.clone(), owned.clone()));
        if said == owned {
            return Ok(());
        }
        let [one, other] = [&*first, &path].map(|p| String::from_utf8_lossy(p));
        Err(format!("{one} and {other} are the same file, but have different entries in --fs-config"))
    }

    fn there(&self, at: &[u8]) -> Vec<u8> {
        match at.strip_prefix(b"/").unwrap_or(at) {
            b"" => self.root.clone(),
            below => [&self.root, &b"/"[..], below].concat(),
        }
    }
}

impl Source for Described<'_> {
    fn glance(&self, at: &[u8]) -> Out<Glance> {
        self.inner.glance(&self.there(at))
    }
    fn item(&self, at: &[u8]) -> Out<Item> {
        let mut item = self.inner.item(&self.there(at))?;
        self.description.apply(at, &mut item)?;
        self.check_names_agree(at, &item)?;
        Ok(item)
    }
    fn names(&self, at: &[u8]) -> (Vec<Vec<u8>>, Out<()>) {
        self.inner.names(&self.there(at))
    }
    fn open<'s>(&'s self, at: &[u8]) -> Out<Box<dyn Reader + 's>> {
        self.inner.open(&self.there(at))
    }
    fn holds(&self) -> Option<u64> {
        self.inner.holds()
    }
    fn names_directories_once(&self) -> bool {
        self.inner.names_directories_once()
    }
}
