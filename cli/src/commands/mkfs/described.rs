//! A tree of the host as it will be in the image: lists and options replace owners, modes, labels and times; everything
//! else is kept.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use vfs::Timestamp;

use super::labels::Labels;
use super::owners::{Owned, Owners};
use crate::commands::cp::{Glance, Item, Out, Reader, Source};

/// The attribute that SELinux reads.
pub const LABEL: &[u8] = b"security.selinux";

/// Lists and options that change the tree.
#[derive(Default)]
pub struct Description {
    pub owners: Option<Owners>,
    pub labels: Option<Labels>,
    pub time: Option<Timestamp>,
    /// Mount point of the image, the prefix of paths in both lists: `/`, or a path without trailing slash.
    pub mount_point: Vec<u8>,
}

/// A directory tree of another source, with changes.
pub struct Described<'s> {
    pub inner: &'s (dyn Source + Sync),
    /// That directory's path in the other source.
    pub root: Vec<u8>,
    pub description: &'s Description,
    /// For hard-linked files (by device and inode): the first name met, and its entry in the list of owners.
    names: Mutex<HashMap<(u64, u64), (Vec<u8>, Owned)>>,
}

impl Description {
    /// The path in both lists of a file below the image's root.
    pub fn path(&self, below: &[u8]) -> Vec<u8> {
        let above = self.mount_point.strip_suffix(b"/").unwrap_or(&self.mount_point);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        match (above.is_empty(), below.is_empty()) {
            (false, true) => above.to_vec(),
            _ => [above, b"/", below].concat(),
        }
    }

    /// Applies both lists to an item. Fails if the list of owners has no entry for it.
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
            // The labels on this machine do not apply to the image.
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

    /// Refuses a hard-linked file with conflicting entries in the list of owners: the order of names must not decide
    /// which one applies to a set-id program.
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
