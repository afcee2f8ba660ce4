//! How is a mount ended from outside, without losing data?
//!
//! `umount(8)` of a plain `fuse` mount returns while the serving process may still be writing its last checkpoint, and
//! does not report whether that succeeds. So [`unmount`] first makes the process write everything durably, through its
//! socket ([`crate::socket`]). If that fails the mount stays, with all its data. Otherwise it is detached, and the
//! process sends a final report when it ends.
//!
//! The mount's source, in the kernel's list, is the image. The serving process holds an advisory lock (`flock`) on the
//! image while it uses it, and releases it after the final report. [`unmount`] also waits for that lock (for the end of
//! the process if the image has got another name), so that the image can be used immediately.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::socket::{Client, LastWord, Reply, Request, SocketError, Status};

/// How long a busy unmount is retried: `df`, a shell's prompt or an indexer use a mount for a moment.
const MOMENT: Duration = Duration::from_secs(1);

/// Retry interval for a lock or a busy mount.
const ROUND: Duration = Duration::from_millis(5);

/// Why an unmount failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// No JouleFS mount is at this directory.
    #[error("{dir}: not a {kind} mount", dir = dir.display())]
    NotMounted {
        /// The directory.
        dir: PathBuf,
        /// The type of mount expected, like `fuse.joulefs`.
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
        /// Its error.
        error: io::Error,
    },
    /// Not unmounted: data in memory cannot be made durable.
    #[error(
        "{dir}: not unmounted: {what} cannot be made durable: {why}; fix that (is the host full?) and run: joulefs ctl \
         {dir} retry; or copy it elsewhere: joulefs ctl {dir} save NEW_DIR; or lose it: joulefs unmount \
         --give-up-unwritten {dir}",
        dir = dir.display()
    )]
    NotDurable {
        /// The directory.
        dir: PathBuf,
        /// What would be lost.
        what: String,
        /// The reason.
        why: String,
    },
    /// Not unmounted: the whole volume would go with its process.
    #[error(
        "{dir}: not unmounted: {why}; the whole volume is gone once it is unmounted: copy it elsewhere: joulefs ctl {dir} save NEW_DIR; or lose it: joulefs unmount --give-up-unwritten {dir}",
        dir = dir.display()
    )]
    Doomed {
        /// The directory.
        dir: PathBuf,
        /// Why.
        why: String,
    },
    /// Not unmounted: the serving process does not report whether everything is durable.
    #[error("{dir}: not unmounted: {error}", dir = dir.display())]
    Unheard {
        /// The directory.
        dir: PathBuf,
        /// The error.
        error: SocketError,
    },
    /// Unmounted, and the last checkpoint failed.
    #[error("{dir}: unmounted, but {what} is lost: {why}", dir = dir.display())]
    Lost {
        /// The directory.
        dir: PathBuf,
        /// What is lost.
        what: String,
        /// The reason.
        why: String,
    },
    /// Unmounted, and the volume is consistent, but something else failed.
    #[error("{dir}: unmounted and consistent, but: {why}", dir = dir.display())]
    Amiss {
        /// The directory.
        dir: PathBuf,
        /// What failed.
        why: String,
    },
    /// Unmounted, but the serving process was gone, or ended without a final report.
    #[error(
        "{dir}: unmounted, but its process has ended without writing the last checkpoint: {image} holds what was durable by then, as after a power cut",
        dir = dir.display(), image = image.display()
    )]
    Died {
        /// The directory.
        dir: PathBuf,
        /// The image.
        image: PathBuf,
    },
    /// Unmounted, but the serving process did not release the image in time.
    #[error("{image}: still being written after {seconds} s; its process is still running", image = image.display())]
    StillWriting {
        /// The image.
        image: PathBuf,
        /// Time waited, in seconds.
        seconds: u64,
    },
}

/// One line of the kernel's mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedAt {
    /// The directory.
    pub dir: PathBuf,
    /// The file system's type, like `fuse.joulefs`.
    pub kind: String,
    /// The source: for JouleFS, the image.
    pub source: PathBuf,
    /// Major and minor number of the mount's anonymous device.
    pub device: (u32, u32),
}

/// Options of an unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// Time limit for the serving process.
    pub patience: Duration,
    /// Unmount even if data in memory cannot be made durable and is lost.
    pub give_up: bool,
}

impl Ending {
    /// The default, which loses nothing.
    pub fn within(patience: Duration) -> Self {
        Ending { patience, give_up: false }
    }
}

/// Result of an unmount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmounted {
    /// The mount.
    pub mount: MountedAt,
    /// Another directory where the same file system is still mounted.
    pub elsewhere: Option<PathBuf>,
    /// The final report; `None` if it is mounted elsewhere, or had no socket.
    pub word: Option<LastWord>,
}

/// Events during an unmount, for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Between {
    /// The kernel could not hand over all written data. The writing programs got the error at close or sync.
    Refused(String),
    /// Everything is durable, but the final report cannot be received here.
    Unheard,
    /// The last checkpoint failed and is being retried.
    Failing {
        /// The image.
        image: PathBuf,
        /// The state.
        status: Status,
    },
}

/// All mounts visible to this process, oldest first.
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

/// Detaches the mount at `dir` from the tree. `lazy` succeeds even while it is in use: the name disappears now, the
/// mount when its last user ends. Falls back to `fusermount3` if this user may not unmount directly.
pub(crate) fn detach(dir: &Path, lazy: bool) -> io::Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    match rustix::mount::unmount(dir, flags) {
        Err(Errno::PERM) => by_fusermount(dir, lazy),
        done => Ok(done?),
    }
}

/// Detaches the mount at `dir`; retries for a moment if a process uses it.
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

/// The canonical path of the directory. A mount whose process died cannot be entered, but its parent can.
fn absolute(dir: &Path) -> io::Result<PathBuf> {
    dir.canonicalize().or_else(|error| match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => Ok(std::env::current_dir()?.join(name)),
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Err(error),
    })
}

/// Ends the mount of `kind` (like `fuse.joulefs`) at `dir`. If everything can be made durable, it is detached, and when
/// this returns its process has written the last checkpoint and released the image; otherwise it stays.
///
/// If the source is not a file, there is no image to wait for. If the file system is also mounted elsewhere (`mount
/// --bind`), it lives on there, and nothing waits for it.
pub fn unmount(
    dir: &Path,
    kind: &str,
    ending: Ending,
    mut heard: impl FnMut(&Between),
) -> Result<Unmounted, UnmountError> {
    let refused = |error| UnmountError::Refused { dir: dir.to_owned(), error };
    let absolute = absolute(dir).map_err(refused)?;
    let mount = mounted_at(&absolute)
        .map_err(refused)?
        .filter(|m| m.kind == kind)
        .ok_or_else(|| UnmountError::NotMounted { dir: dir.to_owned(), kind: kind.to_owned() })?;
    let elsewhere = elsewhere(&mount).map_err(refused)?;
    let died = || UnmountError::Died { dir: dir.to_owned(), image: mount.source.clone() };
    let unheard = |error| UnmountError::Unheard { dir: dir.to_owned(), error };
    let waiting = match elsewhere {
        Some(_) => None,
        None => match Client::of_mount(&absolute) {
            Ok(client) => Some(make_durable(dir, &absolute, client, ending, &mut heard)?),
            Err(SocketError::Nobody) => None,
            Err(SocketError::Elsewhere) => {
                // The socket is out of reach, so the mount itself is synced.
                let synced = write_back(&absolute).and_then(|()| File::open(&absolute)?.sync_all());
                if let Err(e) = synced
                    && !ending.give_up
                {
                    let what = "everything since the last checkpoint".to_owned();
                    return Err(UnmountError::NotDurable { dir: dir.to_owned(), what, why: e.to_string() });
                }
                heard(&Between::Unheard);
                None
            }
            Err(SocketError::Io(e)) if e.raw_os_error() == Some(libc::ENOTCONN) => {
                detach_soon(&absolute).map_err(refused)?;
                return Err(died());
            }
            Err(error) => return Err(unheard(error)),
        },
    };
    detach_soon(&absolute).map_err(|error| {
        if error.raw_os_error() == Some(libc::EBUSY) {
            UnmountError::Busy { dir: dir.to_owned() }
        } else {
            refused(error)
        }
    })?;
    if elsewhere.is_some() {
        return Ok(Unmounted { mount, elsewhere, word: None });
    }
    let still_writing =
        || UnmountError::StillWriting { image: mount.source.clone(), seconds: ending.patience.as_secs() };
    let process = waiting.as_ref().and_then(Client::process);
    let word = match waiting.map(|client| last_word(client, &mount.source, ending, &mut heard)).transpose() {
        Ok(word) => word,
        Err(SocketError::Late { .. }) => return Err(still_writing()),
        Err(_) => return Err(died()),
    };
    let released = wait_released(&mount.source, ending.patience).unwrap_or_else(|_| {
        // The image has another name now, whose lock cannot be waited for: the process releases it when it ends.
        !mount.source.is_absolute() || process.is_none_or(|process| has_ended(&process, ending.patience))
    });
    if !released {
        return Err(still_writing());
    }
    match &word {
        Some(LastWord { lost: Some(why), .. }) => {
            let what = word.as_ref().map(LastWord::what_is_lost).unwrap_or_default();
            Err(UnmountError::Lost { dir: dir.to_owned(), what, why: why.clone() })
        }
        Some(LastWord { amiss: Some(why), .. }) => Err(UnmountError::Amiss { dir: dir.to_owned(), why: why.clone() }),
        _ => Ok(Unmounted { mount, elsewhere, word }),
    }
}

/// Another directory where the mount's file system is mounted.
fn elsewhere(mount: &MountedAt) -> io::Result<Option<PathBuf>> {
    Ok(mounts()?.into_iter().rev().find(|m| m.device == mount.device && m.dir != mount.dir).map(|m| m.dir))
}

/// Makes everything durable, and returns a connection that will receive the final report.
fn make_durable(
    dir: &Path,
    absolute: &Path,
    client: Client,
    ending: Ending,
    heard: &mut impl FnMut(&Between),
) -> Result<Client, UnmountError> {
    let unheard = |error| UnmountError::Unheard { dir: dir.to_owned(), error };
    if let Err(error) = write_back(absolute) {
        heard(&Between::Refused(error.to_string()));
    }
    let answer = client.patience(ending.patience).ask(&Request::Retry, None).map_err(unheard)?;
    match answer {
        _ if ending.give_up => {}
        Reply::Failed(status) => {
            let (what, why) = (status.not_durable(), status.failed.unwrap_or_default());
            return Err(UnmountError::NotDurable { dir: dir.to_owned(), what, why });
        }
        Reply::Durable(Status { doomed: Some(why), .. }) => {
            return Err(UnmountError::Doomed { dir: dir.to_owned(), why });
        }
        _ => {}
    }
    // Before the detach: afterwards the process may be gone before it can answer.
    let mut waiting = Client::of_mount(absolute).map_err(unheard)?.patience(ending.patience);
    waiting.ask(&Request::Wait { give_up: ending.give_up }, None).map_err(unheard)?;
    Ok(waiting.patience(ending.patience))
}

/// Makes the kernel write back its data for the files below a mount's directory. If this user may not open the
/// directory, the unmount does the same.
pub fn write_back(dir: &Path) -> io::Result<()> {
    match File::open(dir) {
        Ok(dir) => Ok(rustix::fs::syncfs(dir)?),
        Err(_) => Ok(()),
    }
}

fn last_word(
    mut client: Client,
    image: &Path,
    ending: Ending,
    heard: &mut impl FnMut(&Between),
) -> Result<LastWord, SocketError> {
    loop {
        match client.next()? {
            Reply::LastWord(word) => return Ok(word),
            Reply::Failing(status) => {
                client.wait_for(ending.patience + Duration::from_secs(status.retrying_s.unwrap_or(0)));
                heard(&Between::Failing { image: image.to_owned(), status });
            }
            _ => {}
        }
    }
}

/// Waits until a process has ended, at most `patience`. False if it has not.
fn has_ended(process: &OwnedFd, patience: Duration) -> bool {
    let timeout = Timespec::try_from(patience).ok();
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    !matches!(rustix::event::poll(&mut ended, timeout.as_ref()), Ok(0))
}

/// Waits until no process holds the lock on `image`, at most `patience`. False if one still does.
///
/// # Errors
/// If `image` cannot be opened, so that the state of its lock is unknown.
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
