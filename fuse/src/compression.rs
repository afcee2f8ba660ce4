//! How do programs control F2FS compression through FUSE?
//!
//! With the `ioctl`s of Linux's F2FS: read how many blocks compression saves, release and reserve that space, get and
//! set a file's algorithm, and compress or decompress existing contents. Changes need the owner or the super-user.
//! `chattr +c` is in [`crate::chattr`].

use fuser::{Errno, ReplyIoctl, Request};
use rustix::ioctl::{Opcode, opcode};
use vfs::{Error, FileSystem, Ino, Result};

use crate::errno::failed;
use crate::operations::Adapter;

/// `struct f2fs_comp_option`: algorithm, log2 of the cluster size in blocks.
type Choice = [u8; 2];

const SAVED: Opcode = opcode::read::<u64>(0xF5, 17);
const RELEASE: Opcode = opcode::read::<u64>(0xF5, 18);
const RESERVE: Opcode = opcode::read::<u64>(0xF5, 19);
const GET_CHOICE: Opcode = opcode::read::<Choice>(0xF5, 21);
const SET_CHOICE: Opcode = opcode::write::<Choice>(0xF5, 22);
const UNPACK: Opcode = opcode::none(0xF5, 23);
const PACK: Opcode = opcode::none(0xF5, 24);

/// The request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Saved,
    Release,
    Reserve,
    Choice,
    Choose(u8, u8),
    Pack(bool),
}

/// `None` for requests of other types, and for truncated ones.
fn asked(command: Opcode, data: &[u8]) -> Option<Asked> {
    Some(match command {
        SAVED => Asked::Saved,
        RELEASE => Asked::Release,
        RESERVE => Asked::Reserve,
        GET_CHOICE => Asked::Choice,
        SET_CHOICE => data.first_chunk::<2>().map(|[algorithm, log]| Asked::Choose(*algorithm, *log))?,
        UNPACK => Asked::Pack(false),
        PACK => Asked::Pack(true),
        _ => return None,
    })
}

fn answer(fs: &dyn FileSystem, ino: Ino, asked: Asked) -> Result<Vec<u8>> {
    let known = || fs.compression(ino)?.ok_or(Error::Invalid("the file is not a compressed one"));
    let number = |n: u64| n.to_ne_bytes().to_vec();
    Ok(match asked {
        Asked::Saved => number(known()?.saved),
        Asked::Release => number(fs.release_saved(ino)?),
        Asked::Reserve => number(fs.reserve_saved(ino)?),
        Asked::Choice => known().map(|c| vec![c.algorithm, c.log_cluster])?,
        Asked::Choose(algorithm, log) => fs.set_compression(ino, algorithm, log).map(|()| Vec::new())?,
        Asked::Pack(packed) => fs.repack(ino, packed).map(|()| Vec::new())?,
    })
}

impl Adapter {
    /// True if `command` is one of these.
    pub(crate) fn is_of_compression(command: u32) -> bool {
        [SAVED, RELEASE, RESERVE, GET_CHOICE, SET_CHOICE, UNPACK, PACK].contains(&command)
    }

    pub(crate) fn compression_ioctl(&self, req: &Request, ino: Ino, command: u32, data: &[u8], reply: ReplyIoctl) {
        let Some(asked) = asked(command, data) else { return reply.error(Errno::EINVAL) };
        let changes = !matches!(asked, Asked::Saved | Asked::Choice);
        if changes && req.uid() != 0 && self.fs.getattr(ino).is_ok_and(|attr| attr.uid != req.uid()) {
            return reply.error(failed("ioctl", ino, &Error::NotPermitted("compressed files are the owner's")));
        }
        let done = move |fs: std::result::Result<&dyn FileSystem, Errno>| {
            let answer = fs.and_then(|fs| answer(fs, ino, asked).map_err(|error| failed("ioctl", ino, &error)));
            match answer {
                Ok(bytes) => reply.ioctl(0, &bytes),
                Err(error) => reply.error(error),
            }
        };
        // The kernel's data is part of the file.
        if changes { self.after_writeback(ino, 0, done) } else { done(Ok(&*self.fs)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_linux() {
        let numbers = [SAVED, RELEASE, RESERVE, GET_CHOICE, SET_CHOICE, UNPACK, PACK];
        let linux = [0x8008_f511, 0x8008_f512, 0x8008_f513, 0x8002_f515, 0x4002_f516, 0xf517, 0xf518];
        assert_eq!(numbers, linux);
    }

    #[test]
    fn a_truncated_request_is_ignored() {
        assert_eq!(asked(SET_CHOICE, &[2]), None);
        assert_eq!(asked(SET_CHOICE, &[2, 4]), Some(Asked::Choose(2, 4)));
        assert_eq!(asked(0x1234, &[0; 8]), None);
    }
}
