//! Which operations run on a volume and on the plain tree?
//!
//! Operations refer to objects by small indexes, so a sequence stays valid when a part of it is removed. Files without
//! a name remain known until the next remount.

use vfs::{Allocate, FileKind, Moving};

/// An object: an index into all existing ones, wrapped around.
#[derive(Debug, Clone, Copy)]
pub struct Which(pub u8);
/// A directory, wrapped around; the last few mean any object.
#[derive(Debug, Clone, Copy)]
pub struct Dir(pub u8);
/// One of a few names, short and long, wrapped around.
#[derive(Debug, Clone, Copy)]
pub struct Name(pub u8);

impl Name {
    /// The name's bytes.
    pub fn bytes(self) -> Vec<u8> {
        match self.0 % 16 {
            14 => vec![b'n'; 255],
            15 => vec![b'm'; 256],
            n => [b'a' + n].repeat(1 + usize::from(n) * 3),
        }
    }
}

/// One operation.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // Each is the call of its name.
pub enum Op {
    Create(Dir, Name, FileKind, u16),
    Mkdir(Dir, Name, u16),
    Symlink(Dir, Name, u16),
    Link(Which, Dir, Name),
    Unlink(Dir, Name),
    Rmdir(Dir, Name),
    Rename(Dir, Name, Dir, Name, u32),
    Write(Which, u64, u32, u8),
    /// Changes a few existing bytes.
    Nudge(Which, u64, u8, u8),
    Truncate(Which, u64),
    Allocate(Which, Allocate, u64, u64),
    Read(Which, u64, u32),
    Seek(Which, u64),
    SetAttribute(Which, u8, u16),
    RemoveAttribute(Which, u8),
    Chmod(Which, u16),
    Fsync(Which, bool),
    /// From this block on.
    Defragment(Which, u64, Moving),
    Sync,
    Tick,
    List(Dir),
    Remount,
}
