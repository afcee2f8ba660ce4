//! Where in a file is data, and where are holes?

use fuser::ReplyLseek;
use vfs::{Error, FileSystem, Ino, Seek};

use crate::errno::failed;

/// A seek request and its reply.
pub(crate) struct SeekJob {
    pub(crate) ino: Ino,
    pub(crate) offset: u64,
    pub(crate) what: Seek,
    pub(crate) reply: ReplyLseek,
}

impl SeekJob {
    /// Answers `SEEK_DATA` and `SEEK_HOLE` from the file system's current state.
    pub(crate) fn answer(self, fs: &dyn FileSystem) {
        let found = fs
            .seek(self.ino, self.offset, self.what)
            .and_then(|found| i64::try_from(found).map_err(|_| Error::PastEnd));
        match found {
            Ok(offset) => self.reply.offset(offset),
            Err(error) => self.reply.error(failed("lseek", self.ino, &error)),
        }
    }
}
