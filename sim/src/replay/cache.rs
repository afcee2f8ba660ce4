//! Where are aged volumes kept for the next command?
//!
//! A directory has a file for each key: a checksum, and then the contents, compressed. A file is written under another
//! name and renamed, so that it is whole whichever processes write it, or are killed. One that is damaged counts as
//! missing. When the directory grows over its limit, the files that were not used for longest are removed. A directory
//! that cannot be written is not used: a cache never makes a command fail. Left out: what the key of a volume is
//! ([`super::pasts`]).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Bytes of the checksum.
const SUM: usize = blake3::OUT_LEN;

/// Distinguishes the unfinished files of one process.
static UNFINISHED: AtomicU64 = AtomicU64::new(0);

/// A cache.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The directory; it is created if missing.
    pub directory: PathBuf,
    /// Maximum size of its files in bytes.
    pub limit: u64,
}

impl Cache {
    /// What is kept for a key, as `read` reads it; `None` if there is nothing, or if it is damaged.
    pub(super) fn get<T>(&self, key: &str, read: impl FnOnce(&mut dyn Read) -> io::Result<T>) -> Option<T> {
        let path = self.directory.join(key);
        let all = fs::read(&path).ok()?;
        let (sum, contents) = all.split_first_chunk::<SUM>()?;
        if blake3::hash(contents).as_bytes() != sum {
            return None;
        }
        let found = read(&mut zstd::Decoder::with_buffer(contents).ok()?).ok()?;
        // Fails in a directory of another user; then the file only seems older than it is.
        let _ = File::options().append(true).open(&path).and_then(|file| file.set_modified(now()));
        Some(found)
    }

    /// Keeps what `write` writes, and removes other files if there are too many.
    pub(super) fn put(&self, key: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        // Without this file the next command makes it again.
        let _ = self.try_put(key, write);
    }

    fn try_put(&self, key: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut out = zstd::Encoder::new(vec![0; SUM], 1)?;
        write(&mut out)?;
        let mut all = out.finish()?;
        if all.len() as u64 > self.limit {
            return Ok(());
        }
        let sum = blake3::hash(&all[SUM..]);
        all[..SUM].copy_from_slice(sum.as_bytes());
        fs::create_dir_all(&self.directory)?;
        let number = UNFINISHED.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.directory.join(format!(".{key}-{}-{number}", std::process::id()));
        let done = fs::write(&unfinished, &all).and_then(|()| fs::rename(&unfinished, self.directory.join(key)));
        if done.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        done?;
        self.shrink()
    }

    /// Removes the files that were not used for longest, until the others are within the limit.
    fn shrink(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            // Another process may have removed it.
            let Ok((path, about)) = entry.and_then(|e| Ok((e.path(), e.metadata()?))) else { continue };
            if about.is_file() && is_ours(&path) {
                files.push((about.modified()?, about.len(), path));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in files {
            if total <= self.limit {
                break;
            }
            let _ = fs::remove_file(path);
            total -= bytes;
        }
        Ok(())
    }
}

/// True for the files that a cache makes: it removes no others.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let key = name.strip_prefix('.').unwrap_or(name).split('-').next().unwrap_or_default();
    key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit())
}

#[allow(clippy::disallowed_methods, reason = "when a file of this machine was used is no result")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(n: u64) -> String {
        format!("{n:032x}")
    }

    fn put(cache: &Cache, n: u64, bytes: &[u8]) {
        cache.put(&key(n), |out| out.write_all(bytes));
    }

    fn get(cache: &Cache, n: u64) -> Option<Vec<u8>> {
        cache.get(&key(n), |from| {
            let mut all = Vec::new();
            from.read_to_end(&mut all).map(|_| all)
        })
    }

    #[test]
    fn what_was_put_is_found_and_a_file_with_a_changed_bit_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache { directory: dir.path().join("new/aged"), limit: 1 << 20 };
        assert_eq!(get(&cache, 1), None);
        put(&cache, 1, b"once");
        assert_eq!(get(&cache, 1).unwrap(), b"once");
        let path = cache.directory.join(key(1));
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 4;
            fs::write(&path, changed).unwrap();
            assert_eq!(get(&cache, 1), None, "byte {at}");
        }
        fs::write(&path, &whole[..9]).unwrap();
        assert_eq!(get(&cache, 1), None);
        put(&cache, 1, b"again");
        assert_eq!(get(&cache, 1).unwrap(), b"again");
        assert_eq!(fs::read_dir(&cache.directory).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn the_file_that_was_not_used_for_longest_is_removed_first_and_no_foreign_one() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache { directory: dir.path().to_owned(), limit: 3000 };
        fs::write(dir.path().join("notes.txt"), [0; 5000]).unwrap();
        let mut rng = device::Rng::new(1);
        let mut bytes = [0; 900];
        for n in 1..=3 {
            rng.fill(&mut bytes);
            put(&cache, n, &bytes);
            let file = File::options().append(true).open(dir.path().join(key(n))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(n)).unwrap();
        }
        assert!(get(&cache, 1).is_some(), "a use makes it the newest");
        put(&cache, 4, &bytes);
        let there = [1, 2, 3, 4].map(|n| get(&cache, n).is_some());
        assert_eq!(there, [true, false, true, true]);
        assert!(dir.path().join("notes.txt").exists());
        put(&cache, 5, &(0..9000).map(|_| rng.below(256) as u8).collect::<Vec<_>>());
        assert!(get(&cache, 5).is_none() && get(&cache, 1).is_some(), "one larger than the limit is not kept");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let cache = Cache { directory: dir.path().join("file/aged"), limit: 3000 };
        put(&cache, 1, b"x");
        assert_eq!(get(&cache, 1), None);
    }
}
