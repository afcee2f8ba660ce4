//! How is a directory listed, with and without attributes?
//!
//! `READDIRPLUS` returns attributes and a reference with every name. The names are collected first and then looked up
//! one by one, because a file system may lock its directory while it lists.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fuser::{Generation, ReplyDirectory, ReplyDirectoryPlus};
use vfs::{Error, FileKind, FileSystem, Flow, Ino, Result};

use crate::attr::{Numbers, bare, file_type};

/// Names looked up per step of a listing with attributes: enough for the 4 KiB that the C library requests (a name
/// takes at least 160 bytes there), and few enough that little is looked up in vain.
const STEP: usize = 32;

/// Lists names only.
pub(crate) fn plain(
    fs: &dyn FileSystem,
    numbers: Numbers,
    ino: Ino,
    cookie: u64,
    reply: &mut ReplyDirectory,
) -> Result<()> {
    fs.readdir(ino, cookie, &mut |entry| {
        let full =
            reply.add(numbers.to_fuse(entry.ino), entry.next, file_type(entry.kind), OsStr::from_bytes(entry.name));
        if full { Flow::Stop } else { Flow::Continue }
    })
}

struct Name {
    ino: Ino,
    kind: FileKind,
    name: Vec<u8>,
    next: u64,
}

/// Forgets that the kernel will send without holding a reference; see [`with_attributes`].
#[derive(Default)]
pub(crate) struct Ungranted {
    any: AtomicUsize,
    by_ino: Mutex<BTreeMap<u64, u64>>,
}

impl Ungranted {
    fn add(&self, ino: Ino) {
        let mut by_ino = self.by_ino.lock().unwrap_or_else(PoisonError::into_inner);
        *by_ino.entry(ino.0).or_default() += 1;
        self.any.store(by_ino.len(), Ordering::Release);
    }
    /// How many of `count` forgets are for references that were granted.
    pub(crate) fn granted(&self, ino: Ino, count: u64) -> u64 {
        if self.any.load(Ordering::Acquire) == 0 {
            return count;
        }
        let mut by_ino = self.by_ino.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(owed) = by_ino.get_mut(&ino.0) else {
            return count;
        };
        let swallowed = count.min(*owed);
        *owed -= swallowed;
        if *owed == 0 {
            by_ino.remove(&ino.0);
        }
        self.any.store(by_ino.len(), Ordering::Release);
        count - swallowed
    }
}

/// Lists names with attributes, taking a reference for each name except `.` and `..`.
///
/// A name whose inode cannot be read must still be listed, or files could not be rescued from a damaged directory. It
/// is sent with an impossible size: the kernel then shows the name, keeps no inode, and sends one forget for a
/// reference that it does not have; `ungranted` counts it. `kept` is how long the kernel may keep an inode's name and
/// attributes.
pub(crate) fn with_attributes(
    fs: &dyn FileSystem,
    (numbers, ungranted): (Numbers, &Ungranted),
    (ino, cookie): (Ino, u64),
    kept: impl Fn(Ino) -> Duration,
    reply: &mut ReplyDirectoryPlus,
) -> Result<()> {
    let mut cookie = cookie;
    let mut names: Vec<Name> = Vec::with_capacity(STEP);
    let mut sent = false;
    loop {
        names.clear();
        let listed = fs.readdir(ino, cookie, &mut |entry| {
            if names.len() == STEP {
                return Flow::Stop;
            }
            names.push(Name { ino: entry.ino, kind: entry.kind, name: entry.name.to_vec(), next: entry.next });
            Flow::Continue
        });
        match listed {
            Ok(()) => {}
            // The names collected so far are sent; the error comes with the next request.
            Err(_) if sent => return Ok(()),
            Err(error) => return Err(error),
        }
        let last = names.len() < STEP;
        for name in &names {
            cookie = name.next;
            let os_name = OsStr::from_bytes(&name.name);
            if name.name == b"." || name.name == b".." {
                // The kernel takes no reference here and uses only number and type.
                let bare = bare(numbers.to_fuse(name.ino), name.kind, 0);
                if reply.add(bare.ino, name.next, os_name, &Duration::ZERO, &bare, Generation(0)) {
                    return Ok(());
                }
                sent = true;
                continue;
            }
            match fs.lookup(ino, &name.name) {
                Ok(entry) => {
                    let attr = numbers.attr(&entry.attr);
                    let generation = Generation(u64::from(entry.attr.generation));
                    let ttl = kept(entry.attr.ino);
                    if reply.add(attr.ino, name.next, os_name, &ttl, &attr, generation) {
                        fs.forget(entry.attr.ino, 1);
                        return Ok(());
                    }
                }
                // Removed since it was listed.
                Err(Error::NotFound) => continue,
                Err(_) => {
                    let bare = bare(numbers.to_fuse(name.ino), name.kind, u64::MAX);
                    ungranted.add(name.ino);
                    let none = Duration::ZERO;
                    if reply.add(bare.ino, name.next, os_name, &none, &bare, Generation(0)) {
                        ungranted.granted(name.ino, 1);
                        return Ok(());
                    }
                }
            }
            sent = true;
        }
        if last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forget_without_a_reference_is_swallowed_once() {
        let ungranted = Ungranted::default();
        assert_eq!(ungranted.granted(Ino(7), 2), 2);
        ungranted.add(Ino(7));
        ungranted.add(Ino(7));
        assert_eq!(ungranted.granted(Ino(8), 1), 1);
        assert_eq!(ungranted.granted(Ino(7), 1), 0);
        assert_eq!(ungranted.granted(Ino(7), 3), 2);
        assert_eq!(ungranted.granted(Ino(7), 1), 1);
    }
}
