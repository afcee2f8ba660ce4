//! How is a mount ended from outside, and how does one know that it is over?
//!
//! `umount(8)` of a plain `fuse` mount returns while the serving process may still be writing its last
//! checkpoint. The convention here: the mount's source, as the kernel lists it, is the image; the
//! serving process holds an advisory lock (`flock`) on the image as long as it uses it, and gives it up
//! only after the checkpoint. Waiting for that lock is waiting for the end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// How long a mount that is in use is tried again: `df`, a shell's prompt or an indexer hold one for a moment.
const MOMENT: Duration = Duration::from_secs(1);

/// How often a lock, or a mount in use, is tried.
const ROUND: Duration = Duration::from_millis(5);

/// Why a mount could not be ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// Nothing of ours is mounted there.
    #[error("{dir}: not a {kind} mount", dir = dir.display())]
    NotMounted {
        /// The directory.
        dir: PathBuf,
        /// The kind of mount looked for, as `fuse.joulefs`.
        kind: String,
    },
    /// A process uses a file or a directory in it.
    #[error("{dir}: in use; close its files and leave its directories first", dir = dir.display())]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// The kernel or `fusermount3` refused.
    #[error("{dir}: cannot unmount: {error}", dir = dir.display())]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// Unmounted, but the serving process did not let go of the image in time.
    #[error("{image}: still being written after {seconds} s; its process has not finished", image = image.display())]
    StillWriting {
        /// The image.
        image: PathBuf,
        /// How long was waited, in seconds.
        seconds: u64,
    },
}

/// One line of the kernel's table of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedAt {
    /// The directory.
    pub dir: PathBuf,
    /// The file system's type, as `fuse.joulefs`.
    pub kind: String,
    /// What is mounted: for us, the image.
    pub source: PathBuf,
    /// Major and minor number of the mount's anonymous device.
    pub device: (u32, u32),
}

/// What has been unmounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmounted {
    /// Where it was, and what.
    pub mount: MountedAt,
    /// A directory at which the same file system is still mounted.
    pub elsewhere: Option<PathBuf>,
}

/// Every mount this process can see, oldest first.
pub fn mounts() -> io::Result<Vec<MountedAt>> {
    Ok(fs::read("/proc/self/mountinfo")?.split(|&b| b == b'\n').filter_map(parse).collect())
}

/// The topmost mount at exactly `dir`, if any.
pub fn mounted_at(dir: &Path) -> io::Result<Option<MountedAt>> {
    Ok(mounts()?.into_iter().rev().find(|m| m.dir == dir))
}

/// Parses a line of `/proc/self/mountinfo` (format: proc(5)).
fn parse(line: &[u8]) -> Option<MountedAt> {
    let mut fields = line.split(|&b| b == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = (device.0.parse().ok()?, device.1.parse().ok()?);
    let dir = unescape(fields.nth(1)?);
    let mut fields = fields.skip_while(|f| *f != b"-").skip(1);
    let kind = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let source = unescape(fields.next()?);
    Some(MountedAt { dir, kind, source, device })
}

/// Undoes the kernel's `\ooo` for blanks, newlines and backslashes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                plain.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = after;
            }
            _ => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

/// Takes the mount at `dir` out of the tree. `lazy` succeeds even while it is in use: the name goes
/// now, the mount when its last user does. Falls back to `fusermount3` where only that may.
pub(crate) fn detach(dir: &Path, lazy: bool) -> io::Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    match rustix::mount::unmount(dir, flags) {
        Err(Errno::PERM) => by_fusermount(dir, lazy),
        done => Ok(done?),
    }
}

/// Takes the mount at `dir` out of the tree, for which it waits a moment while a process uses it.
fn detach_soon(dir: &Path) -> io::Result<()> {
    let mut rounds = MOMENT.as_nanos() / ROUND.as_nanos();
    loop {
        match detach(dir, false) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && rounds > 0 => rounds -= 1,
            done => return done,
        }
        std::thread::sleep(ROUND);
    }
}

fn by_fusermount(dir: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(dir);
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if text.contains("busy") {
        return Err(Errno::BUSY.into());
    }
    Err(io::Error::other(text))
}

/// The directory's one name. A mount whose process died cannot be entered, but its parent can.
fn absolute(dir: &Path) -> io::Result<PathBuf> {
    dir.canonicalize().or_else(|error| match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => Ok(std::env::current_dir()?.join(name)),
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Err(error),
    })
}

/// Ends the mount of `kind` (as `fuse.joulefs`) at `dir` and waits until its process has written the
/// last checkpoint and released the image, at most `patience`.
///
/// A source that is not a file is not waited for: there is no image. Nor is a file system that is mounted
/// elsewhere too (`mount --bind`): it lives on there.
pub fn unmount(dir: &Path, kind: &str, patience: Duration) -> Result<Unmounted, UnmountError> {
    let refused = |error| UnmountError::Refused { dir: dir.to_owned(), error };
    let absolute = absolute(dir).map_err(refused)?;
    let mount = mounted_at(&absolute)
        .map_err(refused)?
        .filter(|m| m.kind == kind)
        .ok_or_else(|| UnmountError::NotMounted { dir: dir.to_owned(), kind: kind.to_owned() })?;
    detach_soon(&absolute).map_err(|error| {
        if error.raw_os_error() == Some(libc::EBUSY) {
            UnmountError::Busy { dir: dir.to_owned() }
        } else {
            refused(error)
        }
    })?;
    let elsewhere = mounts().map_err(refused)?.into_iter().rev().find(|m| m.device == mount.device).map(|m| m.dir);
    if elsewhere.is_some() {
        return Ok(Unmounted { mount, elsewhere });
    }
    match wait_released(&mount.source, patience) {
        Ok(false) => Err(UnmountError::StillWriting { image: mount.source, seconds: patience.as_secs() }),
        Ok(true) | Err(_) => Ok(Unmounted { mount, elsewhere }),
    }
}

/// Waits until no process holds the lock on `image`, at most `patience`. False if one still does.
///
/// # Errors
/// If `image` cannot be opened, so that nothing can be said about its lock.
pub fn wait_released(image: &Path, patience: Duration) -> io::Result<bool> {
    if image.as_os_str().as_bytes().first() != Some(&b'/') {
        return Err(io::Error::new(io::ErrorKind::NotFound, "not the path of an image"));
    }
    let file = File::open(image)?;
    let mut rounds = patience.as_nanos() / ROUND.as_nanos();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if rounds == 0 {
            return Ok(false);
        }
        rounds -= 1;
        std::thread::sleep(ROUND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_understood_with_blanks_and_optional_fields() {
        let line =
            b"36 35 0:42 / /mnt/a\\040b\\134c rw,noatime master:1 shared:2 - fuse.joulefs /img\\0401 rw,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!(mount.dir, Path::new("/mnt/a b\\c"));
        assert_eq!(mount.kind, "fuse.joulefs");
        assert_eq!(mount.source, Path::new("/img 1"));
        assert_eq!(mount.device, (0, 42));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 0:42 / /mnt rw"), None);
    }

    #[test]
    fn proc_is_mounted_somewhere_known() {
        assert!(mounted_at(Path::new("/proc")).unwrap().is_some());
    }

    #[test]
    fn waiting_for_a_lock_ends_when_it_is_released_or_patience_does() {
        let path = std::env::temp_dir().join(format!("joulefs-lock-{}", std::process::id()));
        let holder = File::create(&path).unwrap();
        rustix::fs::flock(&holder, FlockOperation::LockExclusive).unwrap();
        assert!(!wait_released(&path, Duration::from_millis(20)).unwrap());
        let waiter = {
            let path = path.clone();
            std::thread::spawn(move || wait_released(&path, Duration::from_secs(20)))
        };
        drop(holder);
        assert!(waiter.join().unwrap().unwrap());
        fs::remove_file(&path).unwrap();
    }
}
