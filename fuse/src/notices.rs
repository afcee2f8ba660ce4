//! Which notifications must the kernel get without a request?
//!
//! With the writeback cache the kernel holds writes that this process has not seen. Without notifications, some
//! requests would be answered wrongly, or handled too early:
//!
//! * *Where is data, where are holes?* The kernel forwards `SEEK_DATA` and `SEEK_HOLE` without writing its cache back
//!   first, so a file that is still being written would look like one hole, and `cp` would copy zeroes. So before the
//!   answer, an invalidation of the file's pages makes the kernel write the changed ones. This causes `WRITE` requests,
//!   so a thread that serves no requests sends it.
//! * *May this file change?* Before a file becomes immutable, the kernel's data for it is written back in the same way.
//! * *What does it hold?* If a page is refused at writeback, the kernel's pages of the file are declared stale at the
//!   next tick, so that it shows the stored data again.
//! * *How many blocks does it take?* The kernel learns this at close, not at writeback. The attributes of files written
//!   from the cache are declared stale at the next tick.
//! * *May it be written?* See [`crate::admission`].
//! * *How long is it?* The kernel extends a file when a program writes, and does not shorten it when the data could not
//!   be stored; it reads the size again only after it has forgotten the file. So such a file is forgotten through a
//!   notification when no program has it open (Linux 6.18 and later; older kernels forget it at their own time).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Errno, INodeNo, Notifier};
use rustc_hash::FxHashSet;
use vfs::{FileSystem, Ino};

use crate::admission::Admission;
use crate::attr::Numbers;

const SHARDS: usize = 16;

/// Time from the kernel's `RELEASE` to the end of the close.
const CLOSING: Duration = Duration::from_micros(200);

/// `FUSE_NOTIFY_PRUNE` of the protocol, which `fuser` 0.18 lacks.
const PRUNE: u32 = 9;

/// The channel for notifications, and the pending ones.
pub(crate) struct Notices {
    numbers: Numbers,
    pub(crate) admission: Admission,
    notifier: OnceLock<Notifier>,
    /// The connection itself, for messages that `fuser` lacks.
    device: OnceLock<OwnedFd>,
    stale: [Mutex<FxHashSet<u64>>; SHARDS],
    /// Files with cached pages that were refused.
    refused: Mutex<FxHashSet<u64>>,
    /// Files whose change time was changed here.
    changed: Mutex<FxHashSet<u64>>,
}

impl Notices {
    pub(crate) fn new(fs: &dyn FileSystem) -> Self {
        let capacity = fs.statfs().map_or(0, |s| s.blocks.saturating_mul(s.block_size.into()));
        Notices {
            numbers: Numbers::new(fs.root()),
            admission: Admission::new(capacity),
            notifier: OnceLock::new(),
            device: OnceLock::new(),
            stale: Default::default(),
            refused: Mutex::default(),
            changed: Mutex::default(),
        }
    }

    /// Called once, when the connection exists and before requests are served.
    pub(crate) fn connect(&self, notifier: Notifier, device: OwnedFd) {
        // There is one session per value, so this cannot fail.
        let _ = self.notifier.set(notifier);
        let _ = self.device.set(device);
    }

    /// Makes the kernel forget a file that no program has open. Must not be called by a thread that serves requests.
    pub(crate) fn forget_unused(&self, ino: INodeNo) {
        let Some(device) = self.device.get() else { return };
        let mut message = [0_u8; 40];
        let words = [40_u32, PRUNE, 0, 0, 1, 0, 0, 0];
        for (to, word) in message.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        message[32..].copy_from_slice(&ino.0.to_ne_bytes());
        // Kernels that do not know it return an error. Any other error means that the mount is ending.
        let _ = rustix::io::write(device, &message);
    }

    /// A page came from the kernel's cache: the file may take more blocks than the kernel thinks.
    pub(crate) fn written_back(&self, ino: INodeNo) {
        let shard = &self.stale[(ino.0 % SHARDS as u64) as usize];
        // The set is consistent after every statement, even if another thread panicked.
        shard.lock().unwrap_or_else(PoisonError::into_inner).insert(ino.0);
    }

    /// A page from the kernel's cache was refused: the cache differs from the file.
    pub(crate) fn refused(&self, ino: INodeNo) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(ino.0);
    }

    /// The change time of a regular file was changed without the kernel. With the writeback cache the kernel keeps its
    /// own until it forgets the file, which a notification triggers after the close.
    pub(crate) fn change_time_changed(&self, ino: Ino) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(ino.0);
    }

    /// Whether the kernel must forget a file that was just closed. Not while it is open for writing: the kernel would
    /// read its attributes again, and an unannounced write could pass.
    pub(crate) fn is_to_be_forgotten(&self, ino: Ino) -> bool {
        if self.admission.is_open(ino) {
            return false;
        }
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino.0) || self.admission.is_cut(ino)
    }

    /// Declares the attributes of all files noted since the last call stale. Must not be called by a thread that serves
    /// requests: the kernel may wait for one first.
    pub(crate) fn refresh(&self) {
        let Some(notifier) = self.notifier.get() else {
            return;
        };
        self.admission.look_again();
        let refused = std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner));
        for ino in refused {
            let _ = notifier.inval_inode(INodeNo(ino), 0, 0);
        }
        for ino in self.admission.cut() {
            self.forget_unused(self.numbers.to_fuse(ino));
        }
        for shard in &self.stale {
            let noted = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            for ino in noted {
                // A negative offset means attributes only. An error means that the mount is ending.
                let _ = notifier.inval_inode(INodeNo(ino), -1, 0);
            }
        }
    }

    /// Declares the attributes of one file stale immediately. A thread that serves requests may call this only while
    /// its caller holds the inode (see [`crate::setid`]).
    pub(crate) fn attributes_changed(&self, ino: INodeNo) {
        if let Some(notifier) = self.notifier.get() {
            // A negative offset means attributes only. An error means that the mount is ending.
            let _ = notifier.inval_inode(ino, -1, 0);
        }
    }

    /// Makes the kernel drop its pages of a file, and its attributes: both may show writes that were dropped. Must not be
    /// called by a thread that serves requests.
    pub(crate) fn set_dropped(&self, ino: INodeNo) {
        // An error means that the mount is ending.
        let _ = self.write_back(ino, 0);
    }

    /// Makes the kernel write back its data for a file from `offset` on.
    fn write_back(&self, ino: INodeNo, offset: i64) -> io::Result<()> {
        self.notifier.get().map_or(Ok(()), |n| n.inval_inode(ino, offset, 0))
    }
}

/// Answers a request, or fails if the file system is gone.
type Answer = Box<dyn FnOnce(Result<&dyn FileSystem, Errno>) + Send>;

/// Work that must not run in the serving threads.
pub(crate) enum Job {
    /// A request that waits until the kernel has written back the file's data from this offset on.
    AfterWriteback(Ino, u64, Answer),
    /// Declare the file's attributes stale, so that its next write is announced.
    Stale(Ino),
    /// Make the kernel forget a file whose size or change time it shows wrongly, when no program has it open for
    /// writing.
    ForgetUnused(Ino),
    /// Make the kernel drop its pages of a file whose uncommitted writes were dropped.
    SetDropped(Ino),
}

/// The next file whose close has ended.
fn due(closing: &mut VecDeque<(Instant, Ino)>) -> Option<(Instant, Ino)> {
    let is_due = closing.front().is_some_and(|(due, _)| *due <= Instant::now());
    is_due.then(|| closing.pop_front()).flatten()
}

/// Starts the thread that runs these jobs; it ends when the sender is dropped.
pub(crate) fn wait_for_cache(
    fs: Arc<dyn FileSystem>,
    numbers: Numbers,
    notices: Arc<Notices>,
) -> io::Result<Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();

    // This thread is not joined, so it must not keep a file system, and its device, past the mount's end.
    let fs = Arc::downgrade(&fs);
    thread::Builder::new().name("fuse-writeback".to_owned()).spawn(move || {
        let mut closing: VecDeque<(Instant, Ino)> = VecDeque::new();
        loop {
            let job = match closing.front() {
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some((due, _)) => jobs.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            while let Some((_, ino)) = due(&mut closing) {
                notices.forget_unused(numbers.to_fuse(ino));
            }
            let (ino, offset, answer) = match job {
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(Job::AfterWriteback(ino, offset, answer)) => (ino, offset, answer),
                Ok(Job::Stale(ino)) => {
                    notices.attributes_changed(numbers.to_fuse(ino));
                    continue;
                }
                Ok(Job::SetDropped(ino)) => {
                    notices.set_dropped(numbers.to_fuse(ino));
                    continue;
                }
                Ok(Job::ForgetUnused(ino)) => {
                    // The kernel drops the name only after this process was notified of the close. Other jobs do not
                    // wait for that.
                    closing.push_back((Instant::now() + CLOSING, ino));
                    continue;
                }
            };
            let written = i64::try_from(offset)
                .map_err(io::Error::other)
                .and_then(|offset| notices.write_back(numbers.to_fuse(ino), offset));
            match (written, fs.upgrade()) {
                (Ok(()), Some(fs)) => answer(Ok(&*fs)),
                (Ok(()), None) => answer(Err(Errno::ENOTCONN)),
                (Err(error), _) => answer(Err(error.into())),
            }
        }
    })?;
    Ok(sender)
}
