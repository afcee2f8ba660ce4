//! How do programs make several writes to a file durable at once?
//!
//! With the `ioctl`s of Linux's F2FS, which SQLite uses instead of a journal: start, commit, abort, and the feature
//! bits that announce them. Changes need a descriptor open for writing, and the owner or the super-user. The descriptor
//! that starts a set owns it; closing it drops the set.
//!
//! The kernel's cache holds writes that this process has not seen. It is written back before a start, so that earlier
//! writes do not belong to the set, and before a commit or an abort, so that all later ones do. After a set is dropped
//! the kernel's pages are dropped too. With the writeback cache the kernel keeps a size that grew in a dropped set until
//! it forgets the file, which it is made to do after the last close.

use fuser::{Errno, FileHandle, ReplyIoctl, Request};
use rustix::ioctl::{Opcode, opcode};
use vfs::{FileSystem, Ino};

use crate::admission::READER;
use crate::errno::failed;
use crate::notices::Job;
use crate::operations::Adapter;

const START: Opcode = opcode::none(0xF5, 1);
const COMMIT: Opcode = opcode::none(0xF5, 2);
const ABORT: Opcode = opcode::none(0xF5, 5);
const FEATURES: Opcode = opcode::read::<u32>(0xF5, 12);

impl Adapter {
    /// True if `command` is one of these.
    pub(crate) fn is_atomic(command: u32) -> bool {
        [START, COMMIT, ABORT, FEATURES].contains(&command)
    }

    pub(crate) fn atomic_ioctl(&self, req: &Request, ino: Ino, handle: FileHandle, command: u32, reply: ReplyIoctl) {
        if command == FEATURES {
            return match self.fs.feature_bits() {
                Ok(bits) => reply.ioctl(0, &bits.to_ne_bytes()),
                Err(_) => reply.error(Errno::ENOTTY),
            };
        }
        if handle == READER {
            return reply.error(Errno::EBADF);
        }
        match self.fs.getattr(ino) {
            Ok(attr) if req.uid() == 0 || attr.uid == req.uid() => {}
            // As in Linux.
            Ok(_) => return reply.error(Errno::EACCES),
            Err(error) => return reply.error(failed("ioctl", ino, &error)),
        }
        let (notices, numbers) = (self.notices.clone(), self.numbers);
        let act = move |asked: std::result::Result<&dyn FileSystem, Errno>| {
            let (done, dropped) = match (asked, command) {
                (Err(error), _) => (Err(error), false),
                (Ok(fs), START) => (fs.start_atomic(ino, handle.0).map_err(|e| failed("ioctl", ino, &e)), false),
                (Ok(fs), COMMIT) => {
                    let done = fs.commit_atomic(ino, handle.0);
                    let dropped = done.as_ref().is_err_and(|e| !matches!(e, vfs::Error::Busy(_)));
                    (done.map_err(|e| failed("ioctl", ino, &e)), dropped)
                }
                (Ok(fs), _) => match fs.abort_atomic(ino, handle.0) {
                    Ok(dropped) => (Ok(()), dropped),
                    Err(e) => (Err(failed("ioctl", ino, &e)), false),
                },
            };
            if dropped {
                notices.set_dropped(numbers.to_fuse(ino));
                notices.change_time_changed(ino);
            }
            match done {
                Ok(()) => reply.ioctl(0, &[]),
                Err(error) => reply.error(error),
            }
        };
        if self.waiting.is_some() {
            self.after_writeback(ino, 0, act);
        } else {
            // Dropping the kernel's pages may wait for a request, so no serving thread may do it.
            let fs = self.fs.clone();
            std::thread::spawn(move || act(Ok(&*fs)));
        }
    }

    /// Drops the set of a handle that is closed.
    pub(crate) fn drop_set_of(&self, ino: Ino, handle: FileHandle) {
        if handle == READER || !matches!(self.fs.abort_atomic(ino, handle.0), Ok(true)) {
            return;
        }
        self.notices.change_time_changed(ino);
        match &self.waiting {
            Some(_) => self.soon(Job::SetDropped(ino)),
            None => {
                let (notices, ino) = (self.notices.clone(), self.numbers.to_fuse(ino));
                std::thread::spawn(move || notices.set_dropped(ino));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_linux() {
        assert_eq!([START, COMMIT, ABORT, FEATURES], [0xf501, 0xf502, 0xf505, 0x8004_f50c]);
    }
}
