//! How are `vfs` types encoded in a recording?

use vfs::{
    Allocate, Caller, DeviceNumber, FileKind, Ino, NewNode, RenameFlags, Seek, SetAttr, SetTime, Timestamp, WriteFlags,
    XattrFlags,
};

use super::call::OldFile;
use crate::field::{Broken, Field, Input};

/// A structure is encoded as its fields in order.
macro_rules! structure {
    ($t:ident { $($field:ident),* $(,)? }) => {
        impl Field for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$field.encode(out);)*
            }
            fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
                Ok($t { $($field: Field::decode(input)?),* })
            }
        }
    };
}

impl Field for Ino {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
        u64::decode(input).map(Ino)
    }
}

structure!(Caller { uid, gid });
structure!(DeviceNumber { major, minor });
structure!(NewNode { kind, perm, umask, rdev });
structure!(Timestamp { sec, nsec });
structure!(OldFile { kind, perm, uid, gid, rdev, size, blocks512, mtime, target });
structure!(SetAttr { perm, uid, gid, size, atime, mtime, ctime, crtime, kill_suid_sgid });

/// A choice among few values is encoded as a byte.
macro_rules! choice {
    ($t:ty { $($n:literal => $value:pat => $make:expr),* $(,)? } else $broken:literal) => {
        impl Field for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                out.push(match self { $($value => $n,)* });
            }
            fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
                match input.byte()? {
                    $($n => Ok($make),)*
                    _ => Err($broken),
                }
            }
        }
    };
}

choice!(FileKind {
    0 => FileKind::Regular => FileKind::Regular,
    1 => FileKind::Directory => FileKind::Directory,
    2 => FileKind::Symlink => FileKind::Symlink,
    3 => FileKind::CharDevice => FileKind::CharDevice,
    4 => FileKind::BlockDevice => FileKind::BlockDevice,
    5 => FileKind::Fifo => FileKind::Fifo,
    6 => FileKind::Socket => FileKind::Socket,
} else "an unknown kind of file");

choice!(Seek {
    0 => Seek::Data => Seek::Data,
    1 => Seek::Hole => Seek::Hole,
} else "an unknown kind of seek");

choice!(Allocate {
    0 => Allocate::Reserve { keep_size: false } => Allocate::Reserve { keep_size: false },
    1 => Allocate::Reserve { keep_size: true } => Allocate::Reserve { keep_size: true },
    2 => Allocate::PunchHole => Allocate::PunchHole,
    3 => Allocate::Zero { keep_size: false } => Allocate::Zero { keep_size: false },
    4 => Allocate::Zero { keep_size: true } => Allocate::Zero { keep_size: true },
    5 => Allocate::Collapse => Allocate::Collapse,
    6 => Allocate::Insert => Allocate::Insert,
} else "an unknown kind of allocation");

impl Field for SetTime {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            SetTime::Now => None,
            SetTime::At(t) => Some(*t),
        }
        .encode(out);
    }
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
        Ok(Option::decode(input)?.map_or(SetTime::Now, SetTime::At))
    }
}

macro_rules! flags {
    ($($t:ty),*) => {$(
        impl Field for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                self.bits().encode(out);
            }
            fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
                <$t>::from_bits(u32::decode(input)?).ok_or("an unknown flag")
            }
        }
    )*};
}
flags!(RenameFlags, WriteFlags, XattrFlags);
