//! What is the path of an inode, according to what inodes record?
//!
//! An inode records its own name and its parent, so no directory is opened. Linux does not update the name when a file
//! is renamed over another, and records only one of several names: such a path is marked as unsure.

use std::borrow::Cow;

use format::Ino;

use crate::File;
use crate::inode::Kind;

/// Deepest path, in directories: this also ends a cycle of parents.
const DEEPEST: usize = 256;

/// A path, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// From the volume's root, beginning with `/`, as bytes; `?` stands for an unknown part.
    pub bytes: Vec<u8>,
    /// False if the file or a directory above it may have been renamed.
    pub is_sure: bool,
}

impl Path {
    /// As UTF-8, for people and JSON.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// A printable name: the first sixteen bytes of an encrypted name, in hexadecimal.
fn shown(file: &File) -> Vec<u8> {
    if file.name_is_encrypted {
        let digits: String = file.name.iter().take(16).map(|b| format!("{b:02x}")).collect();
        return format!("<encrypted {digits}>").into_bytes();
    }
    // No valid name contains a slash or a zero.
    file.name.iter().map(|&b| if b == b'/' || b == 0 { b'?' } else { b }).collect()
}

/// The path of a file among `files`, which are ordered by inode number.
pub fn path(files: &[File], root: Ino, file: &File) -> Path {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let (mut at, mut is_sure, mut whole) = (file, true, false);
    for _ in 0..DEEPEST {
        if at.ino == root {
            whole = true;
            break;
        }
        is_sure &= at.name_is_sure && !at.name.is_empty();
        names.push(if at.name.is_empty() { format!("<inode {}>", at.ino).into_bytes() } else { shown(at) });
        let above = files.binary_search_by_key(&at.parent, |f| f.ino).ok().map(|i| &files[i]);
        match above.filter(|f| f.kind == Kind::Directory && f.ino != at.ino) {
            Some(parent) => at = parent,
            None => break,
        }
    }
    let mut bytes = Vec::new();
    if !whole {
        bytes.extend_from_slice(b"/?");
    }
    for name in names.iter().rev() {
        bytes.push(b'/');
        bytes.extend_from_slice(name);
    }
    if bytes.is_empty() {
        bytes.push(b'/');
    }
    Path { bytes, is_sure: is_sure && whole }
}
