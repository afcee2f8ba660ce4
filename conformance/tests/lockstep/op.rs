//! What can be asked of a volume and of the plain tree?
//!
//! Operations name things by small indexes into what exists, so that a sequence stays meaningful
//! when a part of it is taken away. Files without a name stay known until the next remount.

use vfs::{Allocate, FileKind, Moving};

/// Which object: an index into all there are, wrapped around.
#[derive(Debug, Clone, Copy)]
pub struct Which(pub u8);
/// Which directory, wrapped around; the last few mean any object.
#[derive(Debug, Clone, Copy)]
pub struct Dir(pub u8);
/// Which of a few names, short and long, wrapped around.
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
    /// A few bytes of those that are there.
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
