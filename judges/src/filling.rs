//! Does a writer that fills a mounted volume get an error in time, and is all acknowledged data kept?
//!
//! Tests any mount through its path alone, and therefore through the kernel's cache.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How a file fills the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `write(2)`, 1 MiB each.
    Buffered,
    /// `write(2)` with `O_APPEND`, 10,000 bytes each.
    Appended,
    /// One page per MiB.
    Sparse,
    /// Pages of a mapping over a hole, with an `msync` per MiB.
    Mapped,
}

/// All of them.
pub const WAYS: [Way; 4] = [Way::Buffered, Way::Appended, Way::Sparse, Way::Mapped];

/// How many bytes too early or too late a writer may get the error.
const TOLERANCE: u64 = 16 << 20;
/// Distance of the writes of [`Way::Sparse`].
const STRIDE: u64 = 1 << 20;

impl Way {
    fn piece(self) -> usize {
        match self {
            Way::Buffered | Way::Mapped => 1 << 20,
            Way::Appended => 10_000,
            Way::Sparse => 4096,
        }
    }
}

/// A file that was written until the volume was full.
struct Filled {
    path: PathBuf,
    file: File,
    /// Bytes acknowledged.
    taken: u64,
    /// End of these bytes.
    end: u64,
    error: io::Error,
}

/// The bytes from `at`, different for each file.
fn pattern(seed: u8, at: u64, into: &mut [u8]) {
    for (byte, at) in into.iter_mut().zip(at..) {
        *byte = (at / 509) as u8 ^ (at % 251) as u8 ^ seed | 1;
    }
}

fn available(root: &Path) -> u64 {
    let s = rustix::fs::statvfs(root).expect("statvfs");
    s.f_bavail * s.f_frsize
}

/// Writes until an error, at most `most` bytes.
fn write_until_full(path: &Path, seed: u8, way: Way, most: u64) -> Filled {
    let mut options = OpenOptions::new();
    options.read(true).create_new(true);
    if way == Way::Appended {
        options.append(true)
    } else {
        options.write(true)
    };
    let mut file = options.open(path).expect("a new file");
    let mut piece = vec![0; way.piece()];
    let (mut taken, mut end) = (0, 0);
    let error = loop {
        assert!(taken < most, "{way:?}: {taken} bytes were taken, and nobody said that there is no room");
        let at = if way == Way::Sparse { taken / 4096 * STRIDE } else { taken };
        pattern(seed, at, &mut piece);
        let written = if way == Way::Sparse { file.write_at(&piece, at) } else { file.write(&piece) };
        match written {
            Ok(n) => (taken, end) = (taken + n as u64, at + n as u64),
            Err(error) => break error,
        }
    };
    Filled { path: path.to_owned(), file, taken, end, error }
}

/// The same through a mapping, in Python: Rust needs unsafe code for it.
fn map_until_full(path: &Path, seed: u8, most: u64) -> Filled {
    let program = "import mmap, os, sys
path, piece, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
file = os.open(path, os.O_RDWR)
os.ftruncate(file, most)
map = mmap.mmap(file, most)
for at in range(0, most, piece):
    map[at:at + piece] = open(sys.argv[4], 'rb').read()
    try:
        map.flush(at, piece)
    except OSError as error:
        print(at, error.errno)
        sys.stdout.flush()
        os._exit(0)
print(most, 0)";
    File::create_new(path).expect("a new file");
    let mut piece = vec![0; Way::Mapped.piece()];
    pattern(seed, 0, &mut piece);
    let source = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(source.path(), &piece).expect("written");
    let numbers = [piece.len() as u64, most].map(|n| n.to_string());
    let mut command = Command::new("python3");
    let out = command.args(["-c", program]).arg(path).args(&numbers).arg(source.path()).output();
    let out = out.expect("python3 runs");
    let said = String::from_utf8_lossy(&out.stdout);
    let words: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [taken, number] = words[..] else { panic!("{said}{}", String::from_utf8_lossy(&out.stderr)) };
    let file = OpenOptions::new().read(true).write(true).open(path).expect("opened");
    Filled { path: path.to_owned(), file, taken, end: most, error: io::Error::from_raw_os_error(number as i32) }
}

/// Operations that must succeed on a full volume; `overwrites`: overwriting, too.
fn judge_a_full_file(filled: &mut Filled, seed: u8, way: Way, overwrites: bool) {
    let file = &mut filled.file;
    for _ in 0..3 {
        let size = file.metadata().expect("fstat on a full volume").len();
        assert_eq!(file.seek(SeekFrom::End(0)).expect("SEEK_END on a full volume"), size);
        assert_eq!(file.read(&mut [0; 4096]).expect("a read at the end on a full volume"), 0);
        file.seek(SeekFrom::Start(0)).expect("back");
        file.read_exact(&mut [0; 4096]).expect("a read on a full volume");
    }
    if overwrites && way != Way::Appended && filled.taken > 0 {
        let mut piece = vec![0; 4096];
        pattern(seed, 0, &mut piece);
        // Lost data, if any, is reported once, to processes that had the file open.
        let _ = file.sync_data();
        let file = OpenOptions::new().write(true).open(&filled.path).expect("opened on a full volume");
        for _ in 0..3 {
            let written = file.write_all_at(&piece, 0).and_then(|()| file.sync_data());
            written.unwrap_or_else(|e| panic!("{way:?}: an overwrite on a full volume: {e}"));
        }
    }
}

/// Asserts that the data before `end` is present.
pub fn judge_contents(path: &Path, seed: u8, way: Way, end: u64) {
    let mut file = File::open(path).expect("opened");
    let (mut at, step) = (0, if way == Way::Sparse { STRIDE } else { way.piece() as u64 });
    let (mut found, mut expected) = (vec![0; way.piece()], vec![0; way.piece()]);
    while at < end {
        let length = (end - at).min(way.piece() as u64) as usize;
        file.seek(SeekFrom::Start(at)).expect("sought");
        file.read_exact(&mut found[..length]).expect("read");
        pattern(seed, if way == Way::Mapped { 0 } else { at }, &mut expected[..length]);
        assert!(found[..length] == expected[..length], "{way:?}: {} differs after byte {at}", path.display());
        at += step;
    }
}

/// Fills a mounted volume completely with `writers` at a time, and asserts that each gets ENOSPC.
///
/// Returns the files' names and sizes; the files stay. `overwrites`: the file system can overwrite without free space.
pub fn fill(root: &Path, way: Way, writers: u8, overwrites: bool) -> Vec<(PathBuf, u64)> {
    let free = available(root);
    let most = 3 * free + TOLERANCE;
    let mut files: Vec<Filled> = thread::scope(|scope| {
        let start = |n| {
            let path = root.join(format!("{way:?}-{writers}-{n}"));
            scope.spawn(move || match way {
                Way::Mapped => map_until_full(&path, n, most),
                _ => write_until_full(&path, n, way, most),
            })
        };
        let running: Vec<_> = (0..writers).map(start).collect();
        running.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    for filled in &files {
        assert_eq!(filled.error.raw_os_error(), Some(28), "{way:?}: {}, not ENOSPC", filled.error);
    }
    let taken: u64 = files.iter().map(|filled| filled.taken).sum();
    let tolerance = TOLERANCE.max(free / 100);
    assert!(taken <= free + tolerance, "{way:?}, {writers} writers: {taken} bytes were taken, {free} were free");
    let left = available(root);
    assert!(left <= tolerance, "{way:?}, {writers} writers: {left} bytes are left of {free}, {taken} were taken");
    for (seed, filled) in (0..).zip(&mut files) {
        judge_a_full_file(filled, seed, way, overwrites);
    }
    let ends = files.iter().map(|filled| (filled.path.clone(), filled.taken, filled.end)).collect::<Vec<_>>();
    drop(files);
    (0..)
        .zip(ends)
        .map(|(seed, (path, taken, end))| (path.clone(), judge_size(&path, seed, way, (taken, end), writers)))
        .collect()
}

/// The size of a file without open handles, after the kernel reads it from the file system.
fn judge_size(path: &Path, seed: u8, way: Way, (taken, end): (u64, u64), writers: u8) -> u64 {
    // The kernel releases a file shortly after close returns.
    thread::sleep(Duration::from_millis(300));
    let size = fs::metadata(path).expect("stat").len();
    match way {
        Way::Mapped => judge_contents(path, seed, way, taken),
        // A single writer loses nothing.
        _ if writers == 1 => {
            assert_eq!(size, end, "{way:?}: a call said that the bytes before {end} are written");
            judge_contents(path, seed, way, end);
        }
        _ => {
            assert!(size <= end, "{way:?}: {size} bytes, and only {end} were written");
            judge_contents(path, seed, way, size);
        }
    }
    size
}

/// Changes many small files on a full volume, each through its own handle, and asserts that accepted writes are stored
/// and refused ones changed nothing. Restores the volume's state.
pub fn change_small_files_while_full(root: &Path) {
    const FILES: usize = 100;
    let before = available(root);
    let dir = root.join("small");
    fs::create_dir(&dir).expect("made");
    let path = |kind: &str, n: usize| dir.join(format!("{kind}{n}"));
    let old = |n: usize| format!("old contents {n}").into_bytes();
    let new = vec![b'n'; 4000];
    for kind in ["appended", "replaced"] {
        (0..FILES).for_each(|n| fs::write(path(kind, n), old(n)).expect("written"));
    }
    let root_dir = File::open(root).expect("opened");
    // The first call may report losses of an earlier test.
    let _ = rustix::fs::syncfs(&root_dir);
    rustix::fs::syncfs(&root_dir).expect("synced");
    let filled = write_until_full(&root.join("fill"), 1, Way::Buffered, 3 * before + TOLERANCE);
    // Only the result of `write` counts: few programs check `close`.
    let takes = |file: io::Result<File>| file.and_then(|mut file| file.write(&new)).is_ok_and(|n| n == new.len());
    let mut expected: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut refused = 0;
    for n in 0..16 * FILES {
        let made = path("new", n);
        match takes(File::create_new(&made)) {
            true => expected.push((made, new.clone())),
            false => refused += 1,
        }
        if refused > 10 {
            break;
        }
    }
    assert!(refused > 10, "there was room for {} files of 4,000 bytes on a full volume", expected.len());
    for n in 0..FILES {
        let appended = path("appended", n);
        let took = takes(OpenOptions::new().append(true).open(&appended));
        let all = [old(n), if took { new.clone() } else { Vec::new() }].concat();
        expected.push((appended, all));
        let (replaced, other) = (path("replaced", n), path("other", n));
        // Saving like an editor: an incompletely written file replaces nothing.
        let took = takes(File::create_new(&other)) && fs::rename(&other, &replaced).is_ok();
        expected.push((replaced, if took { new.clone() } else { old(n) }));
    }
    let judge = || {
        for (path, contents) in &expected {
            let found = fs::read(path).expect("read");
            assert!(found == *contents, "{}: {} bytes, not {}", path.display(), found.len(), contents.len());
        }
    };
    judge();
    // Read from the volume, not from the kernel's cache.
    thread::sleep(Duration::from_millis(300));
    for (path, _) in &expected {
        let file = File::open(path).expect("opened");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
    }
    judge();
    drop(filled);
    fs::remove_dir_all(&dir).expect("removed from a full volume");
    empty(root, &[(root.join("fill"), 0)], before);
}

/// Removes files and asserts that their space can be reused.
pub fn empty(root: &Path, files: &[(PathBuf, u64)], before: u64) {
    for (path, _) in files {
        fs::remove_file(path).expect("removed from a full volume");
    }
    let back = || available(root) + (1 << 20) >= before;
    let comes_back = || (0..1000).any(|_| back() || (thread::sleep(Duration::from_millis(10)), false).1);
    assert!(comes_back(), "no room came back");
    let path = root.join("after");
    let mut file = File::create_new(&path).expect("a new file");
    for _ in 0..before.min(8 << 20) >> 20 {
        file.write_all(&[7; 1 << 20]).expect("written where room came back");
    }
    file.sync_all().expect("synced");
    drop(file);
    fs::remove_file(path).expect("removed");
    assert!(comes_back(), "no room came back");
}

/// Fills and empties a mounted volume in every way with one and with eight writers; calls `full` each time it is full.
pub fn fill_in_every_way(root: &Path, overwrites: bool, mut full: impl FnMut(&[(PathBuf, u64)])) {
    let before = available(root);
    for way in WAYS {
        for writers in [1, 8] {
            let files = fill(root, way, writers, overwrites);
            full(&files);
            empty(root, &files, before);
        }
    }
}
