//! What must the kernel be told, or made to do, of our own accord?
//!
//! With the writeback cache the kernel holds writes this side has not seen. So some things would be answered
//! wrongly, or done too early:
//!
//! * *Where is data, where are holes?* The kernel passes `SEEK_DATA` and `SEEK_HOLE` on without writing
//!   its cache back first, so a file that is still being written would look like one hole, and `cp`
//!   would copy zeroes. So before such a question is answered, the kernel is told to let go of the
//!   file's pages, which makes it write the changed ones. That takes `WRITE` requests meanwhile,
//!   so it is done by a thread that serves no others.
//! * *May this file change?* A file that becomes immutable first gets what the kernel holds of it, in the same way.
//!   What the kernel takes afterwards is refused when it writes back, and declared stale at the next tick, so
//!   that it shows again what the file holds.
//! * *How many blocks does it take?* The kernel learns this when it closes a file, not when it writes
//!   pages back. Files written from the cache are noted, and their attributes declared stale at the
//!   next tick.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use fuser::{Errno, INodeNo, Notifier};
use rustc_hash::FxHashSet;
use vfs::{FileSystem, Ino};

use crate::attr::Numbers;

const SHARDS: usize = 16;

/// The way to speak to the kernel unasked, and what there is to say.
#[derive(Default)]
pub(crate) struct Notices {
    notifier: OnceLock<Notifier>,
    stale: [Mutex<FxHashSet<u64>>; SHARDS],
    /// Files of which the kernel holds contents that were refused.
    refused: Mutex<FxHashSet<u64>>,
}

impl Notices {
    /// Called once, when the connection stands and before requests are served.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // A second connection cannot be: there is one session for each value.
        let _ = self.notifier.set(notifier);
    }

    /// A page came from the kernel's cache: the file may take more blocks than the kernel thinks.
    pub(crate) fn written_back(&self, ino: INodeNo) {
        let shard = &self.stale[(ino.0 % SHARDS as u64) as usize];
        // A set of numbers is whole after every statement, whoever panicked.
        shard.lock().unwrap_or_else(PoisonError::into_inner).insert(ino.0);
    }

    /// A page from the kernel's cache was refused: what it holds of the file is not what the file holds.
    pub(crate) fn refused(&self, ino: INodeNo) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(ino.0);
    }

    /// Declares the attributes of all files noted since the last call stale. Must not be called by a
    /// thread that serves requests: the kernel may wait for one first.
    pub(crate) fn refresh(&self) {
        let Some(notifier) = self.notifier.get() else {
            return;
        };
        let refused = std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner));
        for ino in refused {
            let _ = notifier.inval_inode(INodeNo(ino), 0, 0);
        }
        for shard in &self.stale {
            let noted = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            for ino in noted {
                // A negative offset means attributes only. An error means that the mount is ending.
                let _ = notifier.inval_inode(INodeNo(ino), -1, 0);
            }
        }
    }

    /// Declares the attributes of one file stale, at once. For a thread that serves requests, only while its
    /// caller holds the inode (see [`crate::setid`]).
    pub(crate) fn attributes_changed(&self, ino: INodeNo) {
        if let Some(notifier) = self.notifier.get() {
            // A negative offset means attributes only. An error means that the mount is ending.
            let _ = notifier.inval_inode(ino, -1, 0);
        }
    }

    /// Makes the kernel write back what it holds of a file from `offset` on.
    fn write_back(&self, ino: INodeNo, offset: i64) -> io::Result<()> {
        self.notifier.get().map_or(Ok(()), |n| n.inval_inode(ino, offset, 0))
    }
}

/// Answers a request, or says why there is no file system to ask.
type Answer = Box<dyn FnOnce(Result<&dyn FileSystem, Errno>) + Send>;

/// A request that has to wait for writeback.
pub(crate) struct Job {
    pub(crate) ino: Ino,
    /// From where on.
    pub(crate) offset: u64,
    pub(crate) answer: Answer,
}

/// Starts the thread that waits and answers; it ends when the sender is dropped.
pub(crate) fn wait_for_cache(
    fs: Arc<dyn FileSystem>,
    numbers: Numbers,
    notices: Arc<Notices>,
) -> io::Result<Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();

    // Nobody waits for this thread: it must not keep a file system, and its device, past the mount's end.
    let fs = Arc::downgrade(&fs);
    thread::Builder::new().name("fuse-writeback".to_owned()).spawn(move || {
        for job in jobs {
            let written = i64::try_from(job.offset)
                .map_err(io::Error::other)
                .and_then(|offset| notices.write_back(numbers.to_fuse(job.ino), offset));
            match (written, fs.upgrade()) {
                (Ok(()), Some(fs)) => (job.answer)(Ok(&*fs)),
                (Ok(()), None) => (job.answer)(Err(Errno::ENOTCONN)),
                (Err(error), _) => (job.answer)(Err(error.into())),
            }
        }
    })?;
    Ok(sender)
}
