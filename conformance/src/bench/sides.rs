//! Which file systems are compared, and how is each mounted and unmounted?
//!
//! Every image is new and in the same host file system; every user-space server is a separate process, as in real use.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use device::{Access, FileDevice, RealClock};

use super::{Outcome, Stopwatch};
use judges::memfs::MemFs;

/// Bytes of every image.
const IMAGE: u64 = 3 << 30;

/// One of the compared file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// JouleFS with F2FS.
    JouleFs,
    /// JouleFS with ScherlFS.
    ScherlFs,
    /// [`MemFs`] behind the same FUSE adapter: the limit that FUSE sets.
    MemFs,
    /// ext4 in user space, by e2fsprogs.
    Fuse2Fs,
    /// ext4 in the kernel, on a loop device.
    Ext4,
}

impl Side {
    /// All, in the order of the columns.
    pub const ALL: [Side; 5] = [Side::JouleFs, Side::ScherlFs, Side::MemFs, Side::Fuse2Fs, Side::Ext4];

    /// The column's head.
    pub fn name(self) -> &'static str {
        match self {
            Side::JouleFs => "JouleFS",
            Side::ScherlFs => "ScherlFS",
            Side::MemFs => "in-memory FUSE",
            Side::Fuse2Fs => "fuse2fs",
            Side::Ext4 => "kernel ext4, loop",
        }
    }
}

/// A mounted side.
pub struct Running {
    /// Its mount point.
    pub root: PathBuf,
    server: Option<Child>,
}

fn run(program: &str, args: &[&str]) -> Outcome<()> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{program} {}: {}: {said}", args.join(" "), output.status).into())
}

fn is_mounted(root: &Path) -> bool {
    let shown = format!(" {} ", root.display());
    std::fs::read_to_string("/proc/self/mounts").is_ok_and(|m| m.contains(&shown))
}

/// An image of zeros with all its memory allocated, in this machine and in a host that may simulate it: real media have
/// their blocks before they are written, and no side shall pay for the allocation.
fn blank(image: &Path) -> Outcome<()> {
    use std::io::Write;
    let mut file = std::fs::File::options().write(true).create(true).truncate(false).open(image)?;
    let zeros = vec![0; 1 << 20];
    (0..IMAGE >> 20).try_for_each(|_| file.write_all(&zeros))?;
    Ok(())
}

/// Makes an image in `dir`, which must be empty or missing, and mounts it.
///
/// # Errors
/// If a program that is needed is missing or fails.
pub fn start(side: Side, dir: &Path) -> Outcome<Running> {
    let root = dir.join("mnt");
    std::fs::create_dir_all(&root)?;
    let image = dir.join("image");
    if side != Side::MemFs {
        blank(&image)?;
    }
    let (at, place) = (path(&image)?, path(&root)?);
    let server = match side {
        Side::JouleFs => {
            let dev = FileDevice::open(&image, Access::ReadWrite)?;
            let options = f2fs::mkfs::Options { assume_zeroed: true, ..f2fs::mkfs::Options::modern() };
            f2fs::mkfs::format(&dev, &RealClock::new(), &options)?;
            // The server opens it itself.
            drop(dev);
            Some(serve_from_another_process(&["serve-joulefs", at, place])?)
        }
        Side::ScherlFs => {
            let dev = Arc::new(FileDevice::open(&image, Access::ReadWrite)?);
            scherlfs::make::format(dev, &RealClock::new(), &scherlfs::make::Options::default())?;
            Some(serve_from_another_process(&["serve-scherlfs", at, place])?)
        }
        Side::MemFs => Some(serve_from_another_process(&["serve-memfs", place])?),
        Side::Fuse2Fs | Side::Ext4 => {
            // Creates the tables now, not in a background thread during the measurement.
            let how = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
            run("mkfs.ext4", &["-q", "-F", "-E", how, at])?;
            if side == Side::Ext4 {
                run("mount", &["-o", "loop", at, place])?;
                None
            } else {
                let mut command = Command::new("fuse2fs");
                command.args([at, place, "-f", "-o", "allow_other,default_permissions"]);
                Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
            }
        }
    };
    let mut running = Running { root, server };
    let since = Stopwatch::start();
    while !is_mounted(&running.root) {
        let gone = running.server.as_mut().map(Child::try_wait).transpose()?.flatten();
        if gone.is_some() || since.elapsed() > Duration::from_secs(20) {
            return Err(format!("{} does not mount", side.name()).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(running)
}

fn path(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| "a path that is no text".into())
}

fn serve_from_another_process(args: &[&str]) -> Outcome<Child> {
    let own = std::env::current_exe()?;
    Ok(Command::new(own).args(args).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?)
}

impl Running {
    /// CPU time of the server's process so far, user and kernel mode. None if the kernel is the server, or does not
    /// report it.
    pub fn server_cpu(&self) -> Option<Duration> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.server.as_ref()?.id())).ok()?;
        tasks.flatten().try_fold(Duration::ZERO, |sum, task| {
            // Nanoseconds on a processor, nanoseconds in a run queue, time slices.
            let told = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some(sum + Duration::from_nanos(told.split(' ').next()?.parse().ok()?))
        })
    }

    /// Unmounts and waits until the server has written everything.
    ///
    /// # Errors
    /// If it cannot be unmounted, or its server fails.
    pub fn stop(mut self) -> Outcome<()> {
        run("umount", &[path(&self.root)?])?;
        if let Some(mut server) = self.server.take() {
            let status = server.wait()?;
            if !status.success() {
                return Err(format!("the server ended with {status}").into());
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a failure: leave neither a mount nor a server behind.
        if let Some(server) = &mut self.server {
            let _ = Command::new("umount").arg("-l").arg(&self.root).status();
            let _ = server.kill();
            let _ = server.wait();
        } else if is_mounted(&self.root) {
            let _ = Command::new("umount").arg("-l").arg(&self.root).status();
        }
    }
}

/// Runs a server process.
///
/// # Errors
/// If the image cannot be mounted.
pub fn serve(args: &[String]) -> Outcome<()> {
    let (fs, dir, name): (Arc<dyn vfs::FileSystem>, &str, &str) = match args {
        [what, image, dir] if what == "serve-joulefs" => {
            let dev = Arc::new(FileDevice::open(image, Access::ReadWrite)?);
            let clock = Arc::new(RealClock::new());
            (f2fs::Volume::mount(dev, clock, f2fs::MountOptions::for_machine(fuse::memory::of_machine()))?, dir, image)
        }
        [what, image, dir] if what == "serve-scherlfs" => {
            let dev = Arc::new(FileDevice::open(image, Access::ReadWrite)?);
            let volume = scherlfs::Volume::mount(dev, Arc::new(RealClock::new()), scherlfs::MountOptions::default())?;
            (Arc::new(volume), dir, image)
        }
        [what, dir] if what == "serve-memfs" => (Arc::new(MemFs::new(IMAGE)), dir, "memfs"),
        _ => return Err("not a server's arguments".into()),
    };
    let options = fuse::MountOptions { fsname: name.into(), ..fuse::MountOptions::default() };
    Ok(fuse::run_until_unmounted(fs, Path::new(dir), &options, || {})?)
}
