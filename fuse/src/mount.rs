//! How does a mount begin, run and end?
//!
//! It ends when the kernel drops it (`umount`, `fusermount3 -u`), or when a signal or [`Mounted::unmount`] unmounts it.
//! In every case [`Mounted::wait`] then calls [`FileSystem::unmount`], which leaves a clean checkpoint, before it
//! returns. If that fails, it is retried for a while ([`MountOptions::retry_for`]): the host may get space, and data in
//! memory can be copied elsewhere meanwhile ([`crate::socket`]).

mod last_checkpoint;

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuser::{Config, MountOption, Session, SessionACL};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use vfs::FileSystem;

use crate::dirty_limit;
use crate::features::Caching;
use crate::kept::Kept;
use crate::notices::Notices;
use crate::operations::Adapter;
use crate::shown::{Owner, Shown};
use crate::socket::{ControlSocket, Served};
use crate::unmount;

/// Longest and shortest interval between turns of background work ([`FileSystem::tick`]).
const TICK: Duration = Duration::from_secs(1);
const TICK_AT_LEAST: Duration = Duration::from_millis(1);

/// Time for users of a busy mount to close their files after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// Options of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Refuse all writing. A read-only file system is always mounted read-only.
    pub read_only: bool,
    /// Give access to users other than the mounting one. Default: only if root mounts; for other users `/etc/fuse.conf`
    /// must have `user_allow_other`.
    pub allow_other: bool,
    /// Threads that serve requests, each with its own descriptor. Default 2: more gain nothing for one disk and lower
    /// metadata rates.
    pub threads: usize,
    /// The mount's source in the kernel's tables: the absolute path of the image. Waiting for the end of a mount relies
    /// on it (see [`unmount`]).
    pub fsname: String,
    /// The type that the kernel shows after `fuse.`.
    pub subtype: String,
    /// What the kernel may cache.
    pub caching: Caching,
    /// Allow device nodes.
    pub dev: bool,
    /// Honour suid and sgid bits.
    pub suid: bool,
    /// Allow execution.
    pub exec: bool,
    /// Do not change access times. Otherwise they follow Linux's `relatime`, for the reads that reach this process.
    pub noatime: bool,
    /// Show all files with this owner.
    pub owner: Owner,
    /// How long the kernel may hold writes to open files; unlimited (about 35 seconds in practice) if `None` or if this
    /// process may not control it.
    pub commit: Option<Duration>,
    /// How long a failed last checkpoint is retried, every 2 seconds.
    pub retry_for: Duration,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            allow_other: rustix::process::geteuid().is_root(),
            threads: 2,
            fsname: "joulefs".to_owned(),
            subtype: "joulefs".to_owned(),
            caching: Caching::default(),
            dev: false,
            suid: false,
            exec: true,
            noatime: false,
            owner: Owner::default(),
            commit: None,
            retry_for: Duration::ZERO,
        }
    }
}

impl MountOptions {
    fn config(&self, read_only: bool) -> Config {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(escape(&self.fsname)),
            // A separate kernel option: fuser passes `Subtype` only to fusermount3.
            MountOption::CUSTOM(format!("subtype={}", self.subtype)),
            MountOption::DefaultPermissions,
            if read_only { MountOption::RO } else { MountOption::RW },
            if self.dev { MountOption::Dev } else { MountOption::NoDev },
            if self.suid { MountOption::Suid } else { MountOption::NoSuid },
            if self.exec { MountOption::Exec } else { MountOption::NoExec },
            if self.noatime { MountOption::NoAtime } else { MountOption::Atime },
        ];
        config.acl = if self.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(self.threads.max(1));
        config.clone_fd = self.threads > 1;
        config
    }
}

/// `fusermount3` takes options separated by commas, quoted with `\`; mount(2) takes the name as it is.
fn escape(name: &str) -> String {
    if rustix::process::geteuid().is_root() { name.to_owned() } else { name.replace('\\', "\\\\").replace(',', "\\,") }
}

/// Why a mount failed, or ended with an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The directory to mount on does not exist.
    #[error("{dir}: no such directory to mount on; make it first (mkdir {dir})", dir = dir.display())]
    Missing {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory cannot be accessed.
    #[error("{dir}: {error}", dir = dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The directory is still mounted, but its serving process is gone.
    #[error("{dir}: still mounted, but its process is gone; unmount it first (fusermount3 -u {dir})", dir = dir.display())]
    Dead {
        /// The directory.
        dir: PathBuf,
    },
    /// The mount point is not a directory.
    #[error("{dir}: not a directory", dir = dir.display())]
    NotADirectory {
        /// The path.
        dir: PathBuf,
    },
    /// The kernel has no FUSE.
    #[error(
        "/dev/fuse: {error}; a mount needs FUSE: load the module (modprobe fuse), or start the container with --device /dev/fuse --cap-add SYS_ADMIN; ls, cat, cp and the like need no mount"
    )]
    NoFuse {
        /// Why the device cannot be opened.
        error: io::Error,
    },
    /// This user may not open the device, and `fusermount3` opens it as this user.
    #[error(
        "/dev/fuse: {error}; the user who mounts must be able to open it (as root: chmod 666 /dev/fuse); ls, cat, cp \
         and the like need no mount"
    )]
    NotMine {
        /// Why the device cannot be opened.
        error: io::Error,
    },
    /// The kernel or `fusermount3` refused the mount.
    #[error("{dir}: cannot mount: {error}", dir = dir.display())]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// Its error.
        error: io::Error,
    },
    /// A thread or a signal handler could not be set up.
    #[error("cannot start serving: {error}")]
    Start {
        /// The reason.
        error: io::Error,
    },
    /// The connection to the kernel broke.
    #[error("lost the connection to the kernel: {error}")]
    Session {
        /// The reason.
        error: io::Error,
    },
    /// The last checkpoint failed: the volume is as after a power cut.
    #[error("unmounted, but not cleanly: {0}")]
    Unclean(vfs::Error),
}

enum Event {
    /// The kernel dropped the mount.
    Ended(io::Result<()>),
    /// A user or a signal ends the mount.
    Signal(i32),
    /// A retry made everything durable.
    Retried,
}

/// A mount being served. Dropping it unmounts like a signal.
#[must_use = "dropping it unmounts"]
pub struct Mounted {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    device: (u32, u32),
    events: Receiver<Event>,
    sender: Sender<Event>,
    session: Option<JoinHandle<()>>,
    ticker: Option<(Sender<Turn>, JoinHandle<()>)>,
    signals: Option<(Handle, JoinHandle<()>)>,
    finished: bool,
    socket: Option<Arc<ControlSocket>>,
    retry_for: Duration,
}

/// The absolute mount point for `dir`, if mounting there is possible. For callers with work to do before they mount.
///
/// # Errors
/// The directory is missing, is not a directory, or holds a mount whose process is gone; or this machine has no FUSE.
pub fn place(dir: &Path) -> Result<PathBuf, MountError> {
    let bad = |error: io::Error| {
        let dir = dir.to_owned();
        match error.raw_os_error() {
            Some(libc::ENOTCONN) => MountError::Dead { dir },
            Some(libc::ENOENT) => MountError::Missing { dir },
            _ => MountError::Directory { dir, error },
        }
    };
    if !dir.metadata().map_err(bad)?.is_dir() {
        return Err(MountError::NotADirectory { dir: dir.to_owned() });
    }
    let dir = dir.canonicalize().map_err(bad)?;
    // fusermount3 opens the device itself, so an ordinary user need not be able to.
    match std::fs::metadata("/dev/fuse") {
        Ok(_) => Ok(dir),
        Err(error) => Err(MountError::NoFuse { error }),
    }
}

/// Mounts `fs` on `dir` and serves it from new threads.
///
/// # Errors
/// If this fails, `fs` is not unmounted; that is left to the caller.
pub fn mount(fs: Arc<dyn FileSystem>, dir: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    mount_with(fs, dir, options, None)
}

/// The same, with a control socket.
fn mount_with(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    options: &MountOptions,
    socket: Option<Arc<ControlSocket>>,
) -> Result<Mounted, MountError> {
    let dir = place(dir)?;
    let fs = if options.owner.is_given() { Arc::new(Shown::new(fs, options.owner)) as Arc<dyn FileSystem> } else { fs };
    let read_only = options.read_only || fs.read_only();
    let config = options.config(read_only);
    let start = |error| MountError::Start { error };
    let notices = Arc::new(Notices::new(&*fs));
    let atime = !read_only && !options.noatime;
    let mut adapter = Adapter::new(fs.clone(), options.caching, read_only, atime, notices.clone()).map_err(start)?;
    adapter.socket = socket.as_ref().map(|socket| socket.name().to_owned());
    let refused = |error: io::Error| {
        let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        match opened {
            Err(own) if error.kind() == own.kind() => MountError::NotMine { error },
            _ => MountError::Refused { dir: dir.clone(), error },
        }
    };
    let session = Session::new(adapter, &dir, &config).map_err(refused)?;
    let device = match unmount::mounted_at(&dir) {
        Ok(Some(mount)) => mount.device,
        Ok(None) => (0, 0),
        Err(error) => return Err(MountError::Start { error }),
    };

    notices.connect(session.notifier(), session.as_fd().try_clone_to_owned().map_err(start)?);
    if options.caching == Caching::Writeback {
        notices.admission.kernel_may_hold(dirty_limit::lower(device));
    }
    let (sender, events) = mpsc::channel();
    let ended = sender.clone();
    let session = thread::Builder::new()
        .name("fuse-session".to_owned())
        .spawn(move || {
            // Without a receiver, no caller waits any more.
            let _ = ended.send(Event::Ended(let_go(session.run())));
        })
        .map_err(start)?;
    let mut mounted = Mounted {
        fs,
        dir,
        device,
        events,
        sender,
        session: Some(session),
        ticker: None,
        signals: None,
        finished: false,
        socket,
        retry_for: options.retry_for,
    };
    if let Some(socket) = &mounted.socket {
        let sender = mounted.sender.clone();
        let served = Served {
            fs: mounted.fs.clone(),
            dir: mounted.dir.clone(),
            device: rustix::fs::makedev(device.0, device.1),
            // Without a receiver, the mount has ended.
            poke: Box::new(move || drop(sender.send(Event::Retried))),
        };
        socket.serve(served).map_err(start)?;
    }
    let kept = options.commit.filter(|_| !read_only && options.caching == Caching::Writeback);
    let kept = kept.map(|every| Kept::new(mounted.dir.clone(), device, every));
    mounted.ticker = Some(tick(mounted.fs.clone(), notices, kept).map_err(start)?);
    Ok(mounted)
}

/// The result of a session, with a race at the unmount treated as success.
///
/// Reading `/dev/fuse` returns `ENODEV` after an unmount, which fuser takes as the end. But a read that already holds a
/// request while the kernel shuts the connection down returns `ECONNABORTED`. No caller waits for such a request (the
/// release of the last files), and [`FileSystem::unmount`] follows.
fn let_go(ended: io::Result<()>) -> io::Result<()> {
    match ended {
        Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => Ok(()),
        ended => ended,
    }
}

/// Messages to the background thread.
enum Turn {
    /// A turn is due earlier than planned.
    Now,
    /// No more turns.
    End,
}

/// Gives `fs` turns of background work as often as it wants, at least every [`TICK`], until [`Turn::End`].
fn tick(
    fs: Arc<dyn FileSystem>,
    notices: Arc<Notices>,
    mut kept: Option<Kept>,
) -> io::Result<(Sender<Turn>, JoinHandle<()>)> {
    let (sender, turns) = mpsc::channel();
    let wake = sender.clone();
    // The thread may have ended.
    fs.wake_by(Box::new(move || drop(wake.send(Turn::Now))));
    let thread = thread::Builder::new().name("fuse-tick".to_owned()).spawn(move || {
        let mut last = None;
        let (mut wait, mut refreshed) = (TICK, Instant::now());
        while !matches!(turns.recv_timeout(wait), Ok(Turn::End) | Err(RecvTimeoutError::Disconnected)) {
            if refreshed.elapsed() >= TICK {
                notices.refresh();
                refreshed = Instant::now();
            }
            if let Some(kept) = &mut kept {
                kept.write_when_due();
            }
            let (next, error) = match fs.tick() {
                Ok(next) => (next, None),
                Err(error) => (TICK, Some(error)),
            };
            wait = next.clamp(TICK_AT_LEAST, TICK);
            // Log a lasting fault once, not once per second.
            if let Some(error) = &error
                && last.as_ref() != Some(error)
            {
                log::error!("background work: {error}");
            }
            last = error;
        }
    })?;
    Ok((sender, thread))
}

impl Mounted {
    /// The mount point, absolute.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes SIGINT, SIGTERM and SIGHUP unmount. A second signal, or files kept open for more than 5 seconds, ends the
    /// mount by force: written data is still checkpointed, open files become unusable.
    pub fn unmount_on_signals(&mut self) -> Result<(), MountError> {
        let start = |error| MountError::Start { error };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(start)?;
        let handle = signals.handle();
        let sender = self.sender.clone();
        let thread = thread::Builder::new()
            .name("fuse-signals".to_owned())
            .spawn(move || {
                for signal in &mut signals {
                    if sender.send(Event::Signal(signal)).is_err() {
                        return;
                    }
                }
            })
            .map_err(start)?;
        self.signals = Some((handle, thread));
        Ok(())
    }

    /// Unmounts; [`wait`](Self::wait) then returns soon.
    ///
    /// # Errors
    /// `EBUSY` while a process uses the mount, which stays.
    pub fn unmount(&self) -> io::Result<()> {
        self.detach(false)
    }

    fn detach(&self, lazy: bool) -> io::Result<()> {
        // Another file system may have been mounted over it, or in its place after it ended.
        match unmount::mounted_at(&self.dir)? {
            Some(mount) if mount.device == self.device => unmount::detach(&self.dir, lazy),
            _ => Ok(()),
        }
    }

    /// Waits until the mount has ended, and leaves a clean checkpoint.
    pub fn wait(mut self) -> Result<(), MountError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), MountError> {
        self.finished = true;
        let ended = self.serve_until_end();
        // The order matters: background work must stop before the volume ends.
        if let Some((turns, thread)) = self.ticker.take() {
            let _ = turns.send(Turn::End);
            // A call ends idle-time cleaning after its current step.
            let _ = self.fs.getattr(self.fs.root());
            let _ = thread.join();
        }
        let clean = self.last_checkpoint();
        if let Some((handle, thread)) = self.signals.take() {
            handle.close();
            let _ = thread.join();
        }
        clean.map_err(MountError::Unclean)?;
        ended.map_err(|error| MountError::Session { error })
    }

    /// Returns when the kernel has dropped the mount, or when waiting for it must stop.
    fn serve_until_end(&mut self) -> io::Result<()> {
        let mut asked = false;
        loop {
            let event = if asked {
                self.events.recv_timeout(GRACE)
            } else {
                self.events.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match event {
                Ok(Event::Ended(result)) => {
                    if let Some(session) = self.session.take() {
                        let _ = session.join();
                    }
                    return result;
                }
                Ok(Event::Retried) => {}
                Ok(Event::Signal(signal)) if !asked => {
                    log::info!("signal {signal}: unmounting {}", self.dir.display());
                    asked = true;
                    if self.detach(false).is_err() {
                        log::warn!(
                            "{} is in use; its files must be closed within {} s",
                            self.dir.display(),
                            GRACE.as_secs()
                        );
                        if let Err(error) = self.detach(true) {
                            log::error!("{}: cannot unmount: {error}", self.dir.display());
                        }
                    }
                }
                // The serving threads still wait for the kernel and end with the process; their calls find the volume
                // unmounted.
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Timeout) => {
                    log::warn!("{}: ended by force while files were open", self.dir.display());
                    return Ok(());
                }
                // Unreachable: `sender` lives in self.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let _ = self.sender.send(Event::Signal(SIGTERM));
        if let Err(error) = self.finish() {
            log::error!("{}: {error}", self.dir.display());
        }
    }
}

/// Mounts, calls `ready` when the mount can be used, and serves until it is unmounted from outside or a signal arrives.
pub fn run_until_unmounted(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    options: &MountOptions,
    ready: impl FnOnce(),
) -> Result<(), MountError> {
    serve(mount(fs, dir, options)?, ready)
}

/// The same, with a control socket. The caller sends the final report through it.
pub fn run_with_socket(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    options: &MountOptions,
    socket: Arc<ControlSocket>,
    ready: impl FnOnce(),
) -> Result<(), MountError> {
    serve(mount_with(fs, dir, options, Some(socket))?, ready)
}

fn serve(mut mounted: Mounted, ready: impl FnOnce()) -> Result<(), MountError> {
    mounted.unmount_on_signals()?;
    ready();
    mounted.wait()
}
