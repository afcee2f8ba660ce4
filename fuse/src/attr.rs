//! How are attributes, times, device numbers and inode numbers encoded in FUSE?

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use vfs::{Attr, DeviceNumber, FileKind, Ino, SetTime, Timestamp};

/// The set-uid bit.
pub(crate) const SUID: u16 = 0o4000;

/// The block size `stat` reports, that of F2FS.
const BLOCK_SIZE: u32 = 4096;

/// FUSE numbers the root 1, a volume may number it differently. The two numbers are swapped, so that every inode has a
/// unique number even if the volume uses 1 for another inode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    root: u64,
}

impl Numbers {
    pub(crate) fn new(root: Ino) -> Self {
        Numbers { root: root.0 }
    }
    fn swap(self, ino: u64) -> u64 {
        match ino {
            n if n == self.root => INodeNo::ROOT.0,
            n if n == INodeNo::ROOT.0 => self.root,
            n => n,
        }
    }
    pub(crate) fn to_fuse(self, ino: Ino) -> INodeNo {
        INodeNo(self.swap(ino.0))
    }
    pub(crate) fn to_vfs(self, ino: INodeNo) -> Ino {
        Ino(self.swap(ino.0))
    }

    pub(crate) fn attr(self, attr: &Attr) -> FileAttr {
        FileAttr {
            ino: self.to_fuse(attr.ino),
            size: attr.size,
            blocks: attr.blocks512,
            atime: to_system(attr.atime),
            mtime: to_system(attr.mtime),
            ctime: to_system(attr.ctime),
            crtime: UNIX_EPOCH,
            kind: file_type(attr.kind),
            perm: attr.perm & 0o7777,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: pack(attr.rdev),
            blksize: BLOCK_SIZE,
            flags: 0,
        }
    }
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

/// Attributes with only number, type and size.
pub(crate) fn bare(ino: INodeNo, kind: FileKind, size: u64) -> FileAttr {
    FileAttr {
        ino,
        size,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: file_type(kind),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

/// A device number as FUSE sends it: the kernel's 32-bit form, low 8 bits of the minor, 12 of the major, then the rest
/// of the minor.
pub(crate) fn pack(rdev: DeviceNumber) -> u32 {
    (rdev.minor & 0xff) | ((rdev.major & 0xfff) << 8) | ((rdev.minor & 0xfff00) << 12)
}

/// The inverse of [`pack`].
pub(crate) fn unpack(rdev: u32) -> DeviceNumber {
    DeviceNumber { major: (rdev >> 8) & 0xfff, minor: (rdev & 0xff) | ((rdev >> 12) & 0xfff00) }
}

fn to_system(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.sec.unsigned_abs());
    let whole = if time.sec >= 0 { UNIX_EPOCH.checked_add(seconds) } else { UNIX_EPOCH.checked_sub(seconds) };
    whole.and_then(|t| t.checked_add(Duration::from_nanos(u64::from(time.nsec)))).unwrap_or(UNIX_EPOCH)
}

/// The kernel's timestamp, restored from `fuser`'s decoding.
///
/// `fuser` 0.18 decodes a time before 1970 as `epoch - (-seconds) - nanoseconds`, although the nanoseconds of a
/// timestamp count forward. The nanoseconds are below a second, so the two parts can still be separated, and this
/// undoes the error exactly.
pub(crate) fn from_system(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX), nsec: after.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            Timestamp { sec: i64::try_from(before.as_secs()).map_or(i64::MIN, |s| -s), nsec: before.subsec_nanos() }
        }
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(from_system(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_one_and_swaps_numbers_with_inode_one() {
        let numbers = Numbers::new(Ino(3));
        assert_eq!(numbers.to_fuse(Ino(3)), INodeNo(1));
        assert_eq!(numbers.to_fuse(Ino(1)), INodeNo(3));
        assert_eq!(numbers.to_fuse(Ino(4)), INodeNo(4));
        for ino in 0..6 {
            assert_eq!(numbers.to_vfs(numbers.to_fuse(Ino(ino))), Ino(ino));
        }
        let numbers = Numbers::new(Ino(1));
        assert_eq!(numbers.to_fuse(Ino(1)), INodeNo(1));
    }

    #[test]
    fn device_numbers_survive_packing_and_match_the_kernel() {
        for (major, minor) in [(0, 0), (1, 3), (8, 255), (8, 256), (0xfff, 0xfffff), (259, 0x12345)] {
            let rdev = DeviceNumber { major, minor };
            assert_eq!(unpack(pack(rdev)), rdev);
        }
        assert_eq!(pack(DeviceNumber { major: 1, minor: 3 }), 0x103);
        assert_eq!(pack(DeviceNumber { major: 8, minor: 0x100 }), 0x0010_0800);
    }

    #[test]
    fn times_after_1970_pass_unchanged() {
        for (sec, nsec) in [(0, 0), (1, 999_999_999), (1 << 40, 5)] {
            let time = Timestamp { sec, nsec };
            assert_eq!(from_system(to_system(time)), time);
        }
    }

    #[test]
    fn a_time_before_1970_is_written_forward_and_read_as_fuser_decodes_it() {
        // -1.5 s is (-2 s, 500 ms): written, it is 1.5 s before the epoch.
        let time = Timestamp { sec: -2, nsec: 500_000_000 };
        assert_eq!(to_system(time), UNIX_EPOCH - Duration::from_millis(1500));
        // Read, fuser hands us epoch - 2 s - 500 ms.
        assert_eq!(from_system(UNIX_EPOCH - Duration::new(2, 500_000_000)), time);
    }

    #[test]
    fn times_out_of_range_do_not_panic() {
        for sec in [i64::MIN, i64::MAX] {
            to_system(Timestamp { sec, nsec: 999_999_999 });
        }
    }
}
