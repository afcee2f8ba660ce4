//! Which calls does a file system receive, as values?

use vfs::{
    Allocate, Caller, DeviceNumber, FileKind, Ino, NewNode, RenameFlags, Seek, SetAttr, Timestamp, WriteFlags,
    XattrFlags,
};

use crate::field::{Broken, Field, Input};

/// Written contents: the bytes if they are recorded or have a meaning to the system, else length and checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// The bytes.
    Given(Vec<u8>),
    /// Length and checksum.
    Of {
        /// Length in bytes.
        len: u64,
        /// CRC-32: equal contents have equal fingerprints.
        fingerprint: u32,
    },
}

impl Contents {
    /// Length and fingerprint of these bytes.
    pub fn fingerprint(bytes: &[u8]) -> Self {
        Contents::Of { len: bytes.len() as u64, fingerprint: crc32fast::hash(bytes) }
    }
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Contents::Given(bytes) => bytes.len() as u64,
            Contents::Of { len, .. } => *len,
        }
    }
    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Field for Contents {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Contents::Given(bytes) => {
                true.encode(out);
                bytes.encode(out);
            }
            Contents::Of { len, fingerprint } => {
                false.encode(out);
                len.encode(out);
                out.extend_from_slice(&fingerprint.to_le_bytes());
            }
        }
    }
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
        if bool::decode(input)? {
            return Vec::decode(input).map(Contents::Given);
        }
        let len = u64::decode(input)?;
        let mut fingerprint = [0; 4];
        fingerprint.copy_from_slice(input.bytes(4)?);
        Ok(Contents::Of { len, fingerprint: u32::from_le_bytes(fingerprint) })
    }
}

/// State of a file before the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldFile {
    /// File type.
    pub kind: FileKind,
    /// Permission bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for a device node.
    pub rdev: DeviceNumber,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in 512-byte units.
    pub blocks512: u64,
    /// Last modification.
    pub mtime: Timestamp,
    /// Target, for a symlink.
    pub target: Vec<u8>,
}

macro_rules! calls {
    ($($code:literal $(#[$doc:meta])* $name:ident { $($field:ident: $t:ty),* },)*) => {
        /// One method of [`vfs::FileSystem`] with its arguments; for its result see
        /// [`Event::answer`](super::Event::answer). A recording with contents also has records of the state before,
        /// which are not calls.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Call {
            $($(#[$doc])* $name { $(#[doc = "As the method's."] $field: $t),* },)*
        }
        impl Call {
            /// The method's code in a recording.
            pub(super) fn code(&self) -> u8 {
                match self { $(Call::$name { .. } => $code,)* }
            }
            /// The method's name.
            pub fn name(&self) -> &'static str {
                match self { $(Call::$name { .. } => stringify!($name),)* }
            }
            pub(super) fn encode(&self, out: &mut Vec<u8>) {
                match self { $(Call::$name { $($field),* } => { $($field.encode(out);)* let _ = &out; })* }
            }
            pub(super) fn decode(code: u8, input: &mut Input<'_>) -> Result<Self, Broken> {
                match code {
                    $($code => Ok(Call::$name { $($field: Field::decode(input)?),* }),)*
                    _ => Err("an unknown call"),
                }
            }
        }
    };
}

/// The first code that occurs only in recordings with contents.
pub(super) const OF_CONTENTS: u8 = 30;

impl Call {
    /// True if this is no call, but a record of the state before.
    pub fn is_of_before(&self) -> bool {
        self.code() >= OF_CONTENTS
    }
    /// The contents written, into a file or an attribute.
    pub(super) fn contents_mut(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Call::Write { contents: Contents::Given(bytes), .. }
            | Call::Setxattr { value: Contents::Given(bytes), .. } => Some(bytes),
            _ => None,
        }
    }
}

calls! {
    0 /// `lookup`; answers the inode.
        Lookup { parent: Ino, name: Vec<u8> },
    1 /// `forget`.
        Forget { ino: Ino, count: u64 },
    2 /// `getattr`; answers the size.
        Getattr { ino: Ino },
    3 /// `setattr`; answers the size.
        Setattr { ino: Ino, set: SetAttr },
    4 /// `readlink`; answers the length.
        Readlink { ino: Ino },
    5 /// `mknod`; answers the inode.
        Mknod { caller: Caller, parent: Ino, name: Vec<u8>, new: NewNode },
    6 /// `mkdir`; answers the inode.
        Mkdir { caller: Caller, parent: Ino, name: Vec<u8>, perm: u16, umask: u16 },
    7 /// `symlink`; answers the inode.
        Symlink { caller: Caller, parent: Ino, name: Vec<u8>, target: Vec<u8> },
    8 /// `link`; answers the inode.
        Link { ino: Ino, parent: Ino, name: Vec<u8> },
    9 /// `unlink`.
        Unlink { parent: Ino, name: Vec<u8> },
    10 /// `rmdir`.
        Rmdir { parent: Ino, name: Vec<u8> },
    11 /// `rename`.
        Rename { caller: Caller, parent: Ino, name: Vec<u8>, to_parent: Ino, to_name: Vec<u8>, flags: RenameFlags },
    12 /// `tmpfile`; answers the inode.
        Tmpfile { caller: Caller, parent: Ino, perm: u16, umask: u16 },
    13 /// `open`.
        Open { ino: Ino, truncate: bool },
    14 /// `release`.
        Release { ino: Ino },
    15 /// `read`; answers how much was read.
        Read { ino: Ino, offset: u64, len: u64 },
    16 /// `write`; answers how much was written.
        Write { ino: Ino, offset: u64, contents: Contents, flags: WriteFlags },
    17 /// `fallocate`.
        Fallocate { ino: Ino, what: Allocate, offset: u64, len: u64 },
    18 /// `seek`; answers the offset.
        Seek { ino: Ino, offset: u64, what: Seek },
    19 /// `readdir`, and how many names its caller took; answers the cookie after the last of them.
        Readdir { ino: Ino, cookie: u64, names: u64 },
    20 /// `fsync`.
        Fsync { ino: Ino, data_only: bool },
    21 /// `fsyncdir`.
        Fsyncdir { ino: Ino, data_only: bool },
    22 /// `sync`.
        Sync {},
    23 /// `getxattr`; answers the length.
        Getxattr { ino: Ino, name: Vec<u8> },
    24 /// `listxattr`; answers how many.
        Listxattr { ino: Ino },
    25 /// `setxattr`.
        Setxattr { ino: Ino, name: Vec<u8>, value: Contents, flags: XattrFlags },
    26 /// `removexattr`.
        Removexattr { ino: Ino, name: Vec<u8> },
    27 /// `statfs`.
        Statfs {},
    28 /// `tick`.
        Tick {},
    29 /// `unmount`.
        Unmount {},
    30 /// No call: the contents of the next record begin with these bytes. [`Events`](super::Events) put them there.
        Part { bytes: Vec<u8> },
    31 /// No call: the next record is the first to find this file, which was there before.
        Was { ino: Ino, was: OldFile },
    32 /// No call: an extended attribute of such a file.
        WasAttribute { ino: Ino, name: Vec<u8>, value: Vec<u8> },
    33 /// No call: what such a file held here, before its first change.
        WasContents { ino: Ino, offset: u64, bytes: Vec<u8> },
}
