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
//! * *What does it hold?* If a page is refused when the kernel writes it back, what the kernel holds of the file is
//!   declared stale at the next tick, so that it shows again what is stored.
//! * *How many blocks does it take?* The kernel learns this when it closes a file, not when it writes
//!   pages back. Files written from the cache are noted, and their attributes declared stale at the
//!   next tick.
//! * *May it be written?* See [`crate::admission`].
//! * *How long is it?* The kernel lets a file grow when a program writes, and never shortens it when what was
//!   written could not be stored; it learns the size anew only when it has forgotten the file. So it is asked to
//!   forget such a file once nobody has it open (Linux 6.18 and later; others forget it when they like).

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

/// How long the kernel takes to end closing a file after it said so.
const CLOSING: Duration = Duration::from_micros(200);

/// `FUSE_NOTIFY_PRUNE` of the protocol, which `fuser` 0.18 does not know.
const PRUNE: u32 = 9;

/// The way to speak to the kernel unasked, and what there is to say.
pub(crate) struct Notices {
    numbers: Numbers,
    pub(crate) admission: Admission,
    notifier: OnceLock<Notifier>,
    /// The connection itself, for what `fuser` has no word for.
    device: OnceLock<OwnedFd>,
    stale: [Mutex<FxHashSet<u64>>; SHARDS],
    /// Files of which the kernel holds contents that were refused.
    refused: Mutex<FxHashSet<u64>>,
    /// Files whose change time became another here.
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

    /// Called once, when the connection stands and before requests are served.
    pub(crate) fn connect(&self, notifier: Notifier, device: OwnedFd) {
        // A second connection cannot be: there is one session for each value.
        let _ = self.notifier.set(notifier);
        let _ = self.device.set(device);
    }

    /// Asks the kernel to forget a file that no program has open. Must not be called by a thread that serves requests.
    pub(crate) fn forget_unused(&self, ino: INodeNo) {
        let Some(device) = self.device.get() else { return };
        let mut message = [0_u8; 40];
        let words = [40_u32, PRUNE, 0, 0, 1, 0, 0, 0];
        for (to, word) in message.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        message[32..].copy_from_slice(&ino.0.to_ne_bytes());
        // Refused by kernels that do not know it. An error otherwise means that the mount is ending.
        let _ = rustix::io::write(device, &message);
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

    /// The change time of a regular file became another without the kernel's doing. With the writeback cache it keeps its
    /// own until it forgets the file, which it is asked to once the file is closed.
    pub(crate) fn change_time_changed(&self, ino: Ino) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(ino.0);
    }

    /// Whether the kernel is to forget a file that was just closed: not while somebody may still write to it, as it would
    /// learn its attributes anew, and let a write pass that was to announce itself.
    pub(crate) fn is_to_be_forgotten(&self, ino: Ino) -> bool {
        if self.admission.is_open(ino) {
            return false;
        }
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino.0) || self.admission.is_cut(ino)
    }

    /// Declares the attributes of all files noted since the last call stale. Must not be called by a
    /// thread that serves requests: the kernel may wait for one first.
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

/// What is done apart from serving requests.
pub(crate) enum Job {
    /// A request that has to wait until the kernel has written back what it holds of the file from the offset on.
    AfterWriteback(Ino, u64, Answer),
    /// The file's attributes are stale: the kernel has just learnt them, and its next write is to announce itself.
    Stale(Ino),
    /// The kernel shows another size or change time than the file has, and no program has it open for writing any more.
    ForgetUnused(Ino),
}

/// The next file that has been closed for long enough.
fn due(closing: &mut VecDeque<(Instant, Ino)>) -> Option<(Instant, Ino)> {
    let is_due = closing.front().is_some_and(|(due, _)| *due <= Instant::now());
    is_due.then(|| closing.pop_front()).flatten()
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
                Ok(Job::ForgetUnused(ino)) => {
                    // Closing lets go of the name only after this side was told. Other jobs do not wait for that.
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
