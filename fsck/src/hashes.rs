//! Which hash does a directory store for a name, and which names are equal in it?
//!
//! Most directories hash a name's bytes. A casefolded one hashes the folded name. One that is also encrypted hashes
//! it under a key that is not on the volume.

use format::casefold::Sought;
use format::hash::name_hash;
use format::inode::{Advise, InodeFlags, RawInode};
use format::superblock::Features;

/// How the names of a directory are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hashing {
    /// The bytes of the name.
    Bytes,
    /// The folded name.
    Folded,
    /// The folded name under a key.
    Keyed,
}

impl Hashing {
    /// How a directory hashes.
    pub fn for_dir(dir: &RawInode, features: Features) -> Self {
        let folded = features.contains(Features::CASEFOLD) && dir.flags().contains(InodeFlags::CASEFOLD);
        let encrypted = features.contains(Features::ENCRYPT) && dir.advise().contains(Advise::ENCRYPT);
        match (folded, encrypted) {
            (false, _) => Hashing::Bytes,
            (true, false) => Hashing::Folded,
            (true, true) => Hashing::Keyed,
        }
    }

    /// The hash of a name; `None` if that needs the key.
    pub fn hash(self, name: &[u8]) -> Option<u32> {
        match self {
            _ if matches!(name, b"." | b"..") => Some(name_hash(name)),
            Hashing::Bytes => Some(name_hash(name)),
            Hashing::Folded => Some(Sought::new(name).hash),
            Hashing::Keyed => None,
        }
    }

    /// A test for entries with the same name.
    pub fn same<'n>(self, name: &'n [u8]) -> impl Fn(&[u8]) -> bool + 'n {
        let sought = (self == Hashing::Folded).then(|| Sought::new(name));
        move |entry| match &sought {
            Some(sought) => sought.is(entry),
            None => entry == name,
        }
    }
}
