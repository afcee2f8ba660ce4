//! How do `chattr` and `lsattr` work through FUSE?
//!
//! The kernel turns `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`, `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR` into `IOCTL`
//! requests after checking the caller (the owner; for immutable and append-only `CAP_LINUX_IMMUTABLE`). Kernels before
//! 5.13 check nothing, so the same checks are made here, with the super-user in place of the capability.
//!
//! The file system enforces the flags. With the writeback cache the kernel accepts writes before the file system sees
//! them. So when a file becomes immutable or append-only, the kernel's data is written first, and later writes through
//! open handles are announced ([`crate::admission`]).

use fuser::{Errno, ReplyIoctl, Request};
use rustix::ioctl::{Opcode, opcode};
use vfs::{Error, FileFlags, FileSystem, Flags, Ino, Result};

use crate::errno::failed;
use crate::operations::Adapter;

/// `struct fsxattr`: flags, extent size, extents, project, extent size for copies, padding; 32 bits each.
type Extended = [u8; 28];
const PROJECT: std::ops::Range<usize> = 12..16;

const GET_FLAGS: Opcode = opcode::read::<std::ffi::c_long>(b'f', 1);
const SET_FLAGS: Opcode = opcode::write::<std::ffi::c_long>(b'f', 2);
const GET_EXTENDED: Opcode = opcode::read::<Extended>(b'X', 31);
const SET_EXTENDED: Opcode = opcode::write::<Extended>(b'X', 32);

/// Flags of both forms, with their bits in the extended one (`FS_XFLAG_*`).
const BOTH: [(FileFlags, u32); 6] = [
    (FileFlags::IMMUTABLE, 0x8),
    (FileFlags::APPEND, 0x10),
    (FileFlags::SYNC, 0x20),
    (FileFlags::NOATIME, 0x40),
    (FileFlags::NODUMP, 0x80),
    (FileFlags::PROJINHERIT, 0x200),
];
const SEALS: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

/// The request.
enum Asked {
    Flags,
    Extended,
    Set(FileFlags, Option<u32>),
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn extended(now: Flags) -> Extended {
    let mut data = Extended::default();
    let bits = BOTH.iter().filter(|(flag, _)| now.flags.contains(*flag)).map(|(_, bit)| bit).sum::<u32>();
    data[..4].copy_from_slice(&bits.to_ne_bytes());
    data[PROJECT].copy_from_slice(&now.project.to_ne_bytes());
    data
}

/// The flags after applying those that the extended form has.
fn from_extended(now: FileFlags, bits: u32) -> FileFlags {
    let mut flags = now;
    for (flag, bit) in BOTH {
        flags.set(flag, bits & bit != 0);
    }
    flags
}

/// `None` for requests of other types, and for truncated ones.
fn asked(command: u32, data: &[u8], now: FileFlags) -> Option<Asked> {
    Some(match command {
        GET_FLAGS => Asked::Flags,
        GET_EXTENDED => Asked::Extended,
        SET_FLAGS => Asked::Set(FileFlags::from_bits_retain(word(data, 0)?), None),
        SET_EXTENDED => Asked::Set(from_extended(now, word(data, 0)?), Some(word(data, PROJECT.start)?)),
        _ => return None,
    })
}

impl Adapter {
    pub(crate) fn flags_ioctl(&self, req: &Request, ino: Ino, command: u32, data: &[u8], reply: ReplyIoctl) {
        if ![GET_FLAGS, SET_FLAGS, GET_EXTENDED, SET_EXTENDED].contains(&command) {
            return reply.error(Errno::ENOTTY);
        }
        let now = match self.fs.flags(ino) {
            Ok(now) => now,
            Err(error) => return reply.error(failed("ioctl", ino, &error)),
        };
        match asked(command, data, now.flags) {
            None => reply.error(Errno::EINVAL),
            Some(Asked::Flags) => reply.ioctl(0, &now.flags.bits().to_ne_bytes()),
            Some(Asked::Extended) => reply.ioctl(0, &extended(now)),
            Some(Asked::Set(flags, project)) => {
                if let Err(error) = self.may_set(req, ino, now, flags, project) {
                    return reply.error(failed("ioctl", ino, &error));
                }
                let sealing = (flags - now.flags).intersects(SEALS);
                let watching = sealing && self.waiting.is_some();
                let (notices, numbers) = (self.notices.clone(), self.numbers);
                let set = move |asked: std::result::Result<&dyn FileSystem, Errno>| {
                    let done = asked
                        .and_then(|fs| fs.set_flags(ino, flags, project).map_err(|error| failed("ioctl", ino, &error)));
                    if done.is_ok() {
                        if watching {
                            notices.admission.watch(ino);
                        }
                        // The kernel does not notice the new change time by itself. The caller holds the inode.
                        notices.attributes_changed(numbers.to_fuse(ino));
                        notices.change_time_changed(ino);
                    }
                    match done {
                        Ok(()) => reply.ioctl(0, &[]),
                        Err(error) => reply.error(error),
                    }
                };
                if sealing { self.after_writeback(ino, 0, set) } else { set(Ok(&*self.fs)) }
            }
        }
    }

    fn may_set(&self, req: &Request, ino: Ino, now: Flags, flags: FileFlags, project: Option<u32>) -> Result<()> {
        if req.uid() == 0 {
            return Ok(());
        }
        if self.fs.getattr(ino)?.uid != req.uid() || project.is_some_and(|p| p != now.project) {
            return Err(Error::NotPermitted("flags are the owner's"));
        }
        if (flags ^ now.flags).intersects(SEALS) {
            return Err(Error::NotPermitted("immutable and append-only are the super-user's"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_linux() {
        let numbers = [GET_FLAGS, SET_FLAGS, GET_EXTENDED, SET_EXTENDED];
        assert_eq!(numbers, [0x8008_6601, 0x4008_6602, 0x801c_581f, 0x401c_5820]);
    }

    #[test]
    fn the_extended_form_keeps_the_flags_it_has_no_word_for() {
        let now = FileFlags::VERITY | FileFlags::IMMUTABLE;
        assert_eq!(from_extended(now, 0x40), FileFlags::VERITY | FileFlags::NOATIME);
        let data = extended(Flags { flags: now, project: 7 });
        assert_eq!((word(&data, 0), word(&data, PROJECT.start)), (Some(0x8), Some(7)));
    }

    #[test]
    fn a_truncated_request_is_ignored() {
        assert!(asked(SET_FLAGS, &[0; 3], FileFlags::empty()).is_none());
        assert!(asked(SET_EXTENDED, &[0; 15], FileFlags::empty()).is_none());
    }
}
