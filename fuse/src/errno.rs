//! Which error number does a program get for a [`vfs::Error`]? The only such table.

use vfs::{Error, Ino};

/// The Linux error number of `error`.
///
/// Where the kernel's F2FS differs from the wording of `errno(3)`, F2FS wins: a contradiction in the image is
/// `EUCLEAN`, a missing encryption key `ENOKEY`.
pub fn errno(error: &Error) -> i32 {
    match error {
        Error::NotFound => libc::ENOENT,
        Error::Exists => libc::EEXIST,
        Error::NotDirectory => libc::ENOTDIR,
        Error::IsDirectory => libc::EISDIR,
        Error::NotEmpty => libc::ENOTEMPTY,
        Error::NameTooLong => libc::ENAMETOOLONG,
        Error::Invalid(_) => libc::EINVAL,
        Error::NotPermitted(_) => libc::EPERM,
        Error::OtherProject => libc::EXDEV,
        Error::TooManyLinks => libc::EMLINK,
        Error::TooBig => libc::EFBIG,
        Error::NoAttribute => libc::ENODATA,
        Error::AttributeTooLarge => libc::E2BIG,
        Error::Range => libc::ERANGE,
        Error::PastEnd => libc::ENXIO,
        Error::Busy(_) => libc::EBUSY,
        Error::Stale => libc::ESTALE,
        Error::Unsupported(_) => libc::EOPNOTSUPP,
        Error::ReadOnly => libc::EROFS,
        Error::NoKey => libc::ENOKEY,
        Error::NoSpace => libc::ENOSPC,
        Error::Corrupt(_) => libc::EUCLEAN,
        Error::Device(_) => libc::EIO,
        // Variants of `vfs::Error` missing in this table are I/O errors.
        _ => libc::EIO,
    }
}

/// True if the cause is outside this program and its caller: such errors are logged, because the error number alone
/// does not show what is broken.
pub fn is_fault(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Device(_))
}

pub(crate) fn reply(error: &Error) -> fuser::Errno {
    fuser::Errno::from_i32(errno(error))
}

/// The error number for the reply; a fault of the image or the device is also logged, with its text.
pub(crate) fn failed(what: &str, ino: Ino, error: &Error) -> fuser::Errno {
    if is_fault(error) {
        log::error!("{what}, inode {}: {error}", ino.0);
    }
    reply(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every variant with its Linux error number.
    fn table() -> Vec<(Error, i32)> {
        vec![
            (Error::NotFound, 2),
            (Error::Exists, 17),
            (Error::NotDirectory, 20),
            (Error::IsDirectory, 21),
            (Error::NotEmpty, 39),
            (Error::NameTooLong, 36),
            (Error::Invalid("x"), 22),
            (Error::NotPermitted("x"), 1),
            (Error::OtherProject, 18),
            (Error::TooManyLinks, 31),
            (Error::TooBig, 27),
            (Error::NoAttribute, 61),
            (Error::AttributeTooLarge, 7),
            (Error::Range, 34),
            (Error::PastEnd, 6),
            (Error::Busy("x"), 16),
            (Error::Stale, 116),
            (Error::Unsupported("x".into()), 95),
            (Error::ReadOnly, 30),
            (Error::NoKey, 126),
            (Error::NoSpace, 28),
            (Error::Corrupt("x".into()), 117),
            (Error::Device("x".into()), 5),
        ]
    }

    #[test]
    fn every_error_has_its_linux_number() {
        for (error, number) in table() {
            assert_eq!(errno(&error), number, "{error:?}");
            assert_eq!(reply(&error).code(), number, "{error:?}");
        }
    }

    #[test]
    fn no_two_causes_share_a_number() {
        let mut numbers: Vec<i32> = table().iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), table().len());
    }

    #[test]
    fn only_a_broken_image_or_device_is_a_fault() {
        let faults: Vec<_> = table().into_iter().filter(|(e, _)| is_fault(e)).map(|(_, n)| n).collect();
        assert_eq!(faults, [117, 5]);
    }
}
