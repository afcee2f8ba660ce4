//! How does a directory compare and hash names, and which spelling does it store?
//!
//! Most directories identify a name by its bytes. In a casefolded directory, names that fold to the same bytes are one
//! name, and the entry keeps the spelling it was created with, even when a rename points it at another inode. In an
//! encrypted directory an entry's bytes are ciphertext, and callers pass [`crate::no_key`]'s encoded form.
//!
//! Roll-forward and the account of names ([`crate::fsync`]) compare the spelling, because that is what an inode
//! records.

use std::borrow::Cow;

use format::Ino;
use format::casefold::{self, Sought};
use format::dentry::{self, Layout};
use format::hash::name_hash;
use format::inode::{Advise, InodeFlags, RawInode};
use format::superblock::Features;
use vfs::FileKind;

use super::spot::Spot;
use crate::dir::Names;
use crate::error::{Error, Result};
use crate::inode::{Content, Inode};
use crate::promises::{Sighting, is_unsure};

/// How the names of a directory are compared and hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// As they are.
    Plain,
    /// Folded.
    Folded,
    /// As they are (ciphertext).
    Encrypted,
    /// Ciphertext, hashed with a key that is not on the volume.
    Keyed,
}

impl Naming {
    /// The naming of a directory.
    pub(crate) fn of(dir: &RawInode, features: Features) -> Self {
        let folded = features.contains(Features::CASEFOLD) && dir.flags().contains(InodeFlags::CASEFOLD);
        match (folded, dir.advise().contains(Advise::ENCRYPT)) {
            (false, false) => Naming::Plain,
            (true, false) => Naming::Folded,
            (false, true) => Naming::Encrypted,
            (true, true) => Naming::Keyed,
        }
    }

    /// True if names are ciphertext.
    pub(crate) fn is_encrypted(self) -> bool {
        matches!(self, Naming::Encrypted | Naming::Keyed)
    }

    /// The hash of a name with this spelling. For a keyed directory the entry can only be found by a search of all
    /// entries.
    pub(crate) fn hash(self, name: &[u8]) -> u32 {
        match self {
            Naming::Folded => Sought::new(name).hash,
            Naming::Plain | Naming::Encrypted | Naming::Keyed => name_hash(name),
        }
    }
}

impl Names {
    /// How a directory compares and hashes names.
    pub(crate) fn naming(&self, dir: &Inode) -> Naming {
        dir.node.inode(|r| Naming::of(r, self.ctx.sb.features))
    }

    /// The bytes of an entry that was found as `name`.
    pub(crate) fn spelled<'n>(
        &self,
        dir: &Inode,
        content: &Content,
        spot: Spot,
        name: &'n [u8],
    ) -> Result<Cow<'n, [u8]>> {
        if self.naming(dir) == Naming::Plain {
            return Ok(Cow::Borrowed(name));
        }
        let there = match spot {
            Spot::Inline { slot } => {
                let bytes = dir.node.read();
                let area = &bytes[self.inline_dir_area(RawInode::of(&bytes))?];
                dentry::at(&Layout::inline(area.len()), area, slot).map(|d| d.name.to_vec())
            }
            Spot::Block { index, slot } => content
                .dir
                .get(&index)
                .and_then(|b| dentry::at(&Layout::BLOCK, b.bytes(), slot).map(|d| d.name.to_vec())),
        };
        there
            .map(Cow::Owned)
            .ok_or_else(|| Error::corrupt(format_args!("directory {}: an entry vanished while in use", dir.ino)))
    }

    /// Records in the account of names that a name with this spelling now leads to another inode, or to none. The
    /// caller holds the directory's lock.
    pub(super) fn note_bound(&self, dir: &Inode, name: &[u8], was: Option<Ino>, now: Option<Ino>) {
        let folded = if self.naming(dir) == Naming::Folded { casefold::fold(name) } else { None };
        let mut names = self.promises.names.lock();
        if let Some(folded) = folded {
            names.spelled(dir.ino, &folded, name);
        }
        names.bound(dir.ino, name, was, now);
    }

    /// Records that a file was found under a name. The caller holds the directory's lock.
    pub(crate) fn note_sighting(&self, inode: &Inode, dir: &Inode, name: &[u8]) {
        let is_news = |r: &RawInode| is_unsure(r) && (r.i_pino.get(), r.name()) != (dir.ino.0, name);
        if self.naming(dir) != Naming::Plain {
            return; // the entry may have another spelling
        }
        if inode.kind == FileKind::Regular && !self.ctx.is_read_only() && inode.node.inode(is_news) {
            self.promises.sighted(inode.ino, Sighting { dir: dir.ino, name: name.into() });
        }
    }
}
