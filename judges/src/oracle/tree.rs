//! The contents of a directory tree as a canonical text.
//!
//! One line per path: the result of `lstat`, the symlink's target, the extended attributes, a hash of the contents.
//! [`of_host`] reads any directory mounted on the host (the `treelist` program does it inside another kernel),
//! [`of_vfs`] any [`vfs::FileSystem`] in process; equal trees give equal texts, and [`difference`] shows where two
//! differ.
//!
//! Left out: holes (a hole and zeroes are the same contents), access and change times, inode numbers; by default also
//! sizes of directories and space used, which differ between file systems.

use std::collections::BTreeMap;
use std::fmt::Write as _;

mod host;
mod in_process;

pub use host::of_host;
pub use in_process::of_vfs;

/// Optional items, which not every file system has in common.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sizes of directories: equal only between readers of one image.
    pub directory_sizes: bool,
    /// Space used, in units of 512 bytes: equal only between readers of one image.
    pub blocks: bool,
    /// Leave modification times out: without explicit times they are the current time.
    pub ignore_times: bool,
}

impl Listing {
    /// Everything: for two readers of one image.
    pub fn of_one_image() -> Self {
        Listing { directory_sizes: true, blocks: true, ignore_times: false }
    }
}

/// Size of the pieces that are hashed, or skipped if zero.
const PIECE: usize = 4096;
/// The contents of a skipped piece.
static ZEROES: [u8; PIECE] = [0; PIECE];
/// Files up to this size are read in full; of longer ones only data ranges reported by the file system.
const READ_IN_FULL: u64 = 4 << 20;

/// The information on one path.
#[derive(Debug)]
struct Node {
    kind: vfs::FileKind,
    perm: u16,
    uid: u32,
    gid: u32,
    nlink: u64,
    size: u64,
    blocks512: u64,
    mtime: (i64, u32),
    rdev: (u32, u32),
    /// For symlinks.
    target: Option<Vec<u8>>,
    /// For regular files.
    hash: Option<String>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The text so far, and the first path of each inode with several names.
struct Writer {
    what: Listing,
    text: String,
    first_names: BTreeMap<u64, String>,
}

impl Writer {
    fn new(what: Listing) -> Self {
        Writer { what, text: String::new(), first_names: BTreeMap::new() }
    }

    /// True if an inode with several names was already written, so that its contents need not be read again.
    fn seen(&self, ino: u64) -> bool {
        self.first_names.contains_key(&ino)
    }

    fn line(&mut self, path: &[u8], ino: u64, node: &Node) {
        let path = escaped(path);
        let directory = node.kind == vfs::FileKind::Directory;
        let _ = write!(
            self.text,
            "{path} {} {:04o} {}:{} nlink={}",
            kind_name(node.kind),
            node.perm,
            node.uid,
            node.gid,
            node.nlink
        );
        if !directory || self.what.directory_sizes {
            let _ = write!(self.text, " size={}", node.size);
        }
        if self.what.blocks {
            let _ = write!(self.text, " blocks={}", node.blocks512);
        }
        if !self.what.ignore_times {
            let _ = write!(self.text, " mtime={}.{:09}", node.mtime.0, node.mtime.1);
        }
        if matches!(node.kind, vfs::FileKind::CharDevice | vfs::FileKind::BlockDevice) {
            let _ = write!(self.text, " rdev={}:{}", node.rdev.0, node.rdev.1);
        }
        if let Some(target) = &node.target {
            let _ = write!(self.text, " target={}", escaped(target));
        }
        if let Some(hash) = &node.hash {
            let _ = write!(self.text, " hash={hash}");
        }
        for (name, value) in &node.xattrs {
            let _ = write!(self.text, " {}={}", escaped(name), shown_value(value));
        }
        if !directory && node.nlink > 1 {
            match self.first_names.get(&ino) {
                Some(first) => {
                    let _ = write!(self.text, " same-as={first}");
                }
                None => {
                    self.first_names.insert(ino, path);
                }
            }
        }
        self.text.push('\n');
    }
}

fn kind_name(kind: vfs::FileKind) -> &'static str {
    match kind {
        vfs::FileKind::Regular => "file",
        vfs::FileKind::Directory => "dir",
        vfs::FileKind::Symlink => "symlink",
        vfs::FileKind::CharDevice => "char",
        vfs::FileKind::BlockDevice => "block",
        vfs::FileKind::Fifo => "fifo",
        vfs::FileKind::Socket => "socket",
    }
}

/// Bytes as text without blanks: printable ASCII unchanged, everything else as `\xNN`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_graphic() && byte != b'\\' && byte != b'=' {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Short values in hex, long ones as length and hash.
fn shown_value(value: &[u8]) -> String {
    if value.len() > 64 {
        return format!("{}-bytes:{}", value.len(), &blake3::hash(value).to_hex()[..32]);
    }
    value.iter().fold(String::from("0x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A hash of contents that treats zeroes and holes alike: zero pieces are skipped, the others are hashed with their
/// offsets.
#[derive(Default)]
struct ContentHash {
    hasher: blake3::Hasher,
}

impl ContentHash {
    /// Adds bytes read at `offset`, a multiple of [`PIECE`]; only the last piece of the file may be shorter.
    fn add(&mut self, offset: u64, bytes: &[u8]) {
        let first = offset / PIECE as u64;
        for (index, piece) in (first..).zip(bytes.chunks(PIECE)) {
            if piece != &ZEROES[..piece.len()] {
                self.hasher.update(&index.to_le_bytes());
                self.hasher.update(piece);
            }
        }
    }
    fn finish(self) -> String {
        self.hasher.finalize().to_hex()[..32].to_string()
    }
}

/// The differences of two listings: the first `most` paths, with both lines each; `None` if they are equal.
pub fn difference(left: (&str, &str), right: (&str, &str), most: usize) -> Option<String> {
    let ((left_name, left), (right_name, right)) = (left, right);
    if left == right {
        return None;
    }
    let by_path = |text: &'_ str| -> BTreeMap<String, String> {
        text.lines()
            .map(|line| line.split_once(' ').unwrap_or((line, "")))
            .map(|(path, rest)| (path.to_string(), rest.to_string()))
            .collect()
    };
    let (a, b) = (by_path(left), by_path(right));
    let paths = a.keys().chain(b.keys()).collect::<std::collections::BTreeSet<_>>();
    let mut differing: Vec<(&String, Option<&String>, Option<&String>)> =
        paths.into_iter().map(|path| (path, a.get(path), b.get(path))).filter(|(_, x, y)| x != y).collect();
    let total = differing.len();
    differing.truncate(most);
    let mut text = format!("{total} paths differ between {left_name} and {right_name}:\n");
    for (path, x, y) in differing {
        let _ = writeln!(text, "{path}");
        match (x, y) {
            (Some(x), Some(y)) => {
                let words = |line: &str| -> Vec<String> { line.split(' ').map(String::from).collect() };
                let (x, y) = (words(x), words(y));
                let only = |mine: &[String], other: &[String]| {
                    let kept: Vec<&str> = mine.iter().filter(|w| !other.contains(w)).map(String::as_str).collect();
                    kept.join(" ")
                };
                let _ = writeln!(text, "    {left_name}: {}", only(&x, &y));
                let _ = writeln!(text, "    {right_name}: {}", only(&y, &x));
            }
            (Some(x), None) => {
                let _ = writeln!(text, "    only {left_name} has it: {x}");
            }
            (None, Some(y)) => {
                let _ = writeln!(text, "    only {right_name} has it: {y}");
            }
            (None, None) => {}
        }
    }
    if total == 0 {
        text.push_str("    the order of the lines differs, or one line is there twice\n");
    }
    Some(text)
}

/// Asserts that two listings are equal.
///
/// # Panics
/// With the first differing paths if they are not.
#[track_caller]
pub fn assert_same(left: (&str, &str), right: (&str, &str)) {
    if let Some(text) = difference(left, right, 20) {
        panic!("{text}");
    }
}
