//! Which hash does a directory keep for a name, and when are two names the same there?
//!
//! Most directories hash a name's bytes. A casefolded one hashes the folded name. One that is encrypted as well hashes
//! it under a key that the volume does not hold.

use format::casefold::Sought;
use format::hash::name_hash;
use format::inode::{Advise, InodeFlags, RawInode};
use format::superblock::Features;

/// How the names of a directory are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hashing {
    /// As they are.
    Bytes,
    /// Folded.
    Folded,
    /// Folded, and under a key.
    Keyed,
}

impl Hashing {
    /// How a directory does it.
    pub fn of(dir: &RawInode, features: Features) -> Self {
        let folded = features.contains(Features::CASEFOLD) && dir.flags().contains(InodeFlags::CASEFOLD);
        let encrypted = features.contains(Features::ENCRYPT) && dir.advise().contains(Advise::ENCRYPT);
        match (folded, encrypted) {
            (false, _) => Hashing::Bytes,
            (true, false) => Hashing::Folded,
            (true, true) => Hashing::Keyed,
        }
    }

    /// The hash of a name; `None` if it takes the key.
    pub fn hash(self, name: &[u8]) -> Option<u32> {
        match self {
            _ if matches!(name, b"." | b"..") => Some(name_hash(name)),
            Hashing::Bytes => Some(name_hash(name)),
            Hashing::Folded => Some(Sought::new(name).hash),
            Hashing::Keyed => None,
        }
    }

    /// A test for entries that are this name.
    pub fn same<'n>(self, name: &'n [u8]) -> impl Fn(&[u8]) -> bool + 'n {
        let sought = (self == Hashing::Folded).then(|| Sought::new(name));
        move |entry| match &sought {
            Some(sought) => sought.is(entry),
            None => entry == name,
        }
    }
}
