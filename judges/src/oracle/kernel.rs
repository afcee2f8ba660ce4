//! What does Linux's own F2FS do with an image?
//!
//! [`Kernel::run`] boots a whole Linux kernel ([`Linux`] says which) as an ordinary process of the host,
//! mounts the image there, runs a shell script in it and either unmounts or cuts the power. A boot
//! takes about two seconds (seven in an emulator), any number may run at once.
//!
//! Inside, the host's files are visible read-only at their own places (but for `/tmp`) and all of
//! them below `$HOST`; the script starts in the mounted volume (`$MNT`, `/tmp/m`), which lies on `/dev/$DISK`; what it puts
//! into `$OUT` is on the host at once ([`KernelRun::out`]); programs given by [`Kernel::program`] are in `$PATH`, and so is
//! `load MODULE...`, which does nothing in a kernel in which everything is built in.
//!
//! Left out: what the disk's own volatile cache would lose. A cut ends the kernel, and everything it had
//! handed to the device before is in the image; torn and reordered writes are simulated elsewhere.

mod outcome;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

pub use outcome::{Ended, KernelRun, LogLine};

use super::linux::{Boot, Guest, Linux};

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ending {
    /// Unmount, then halt.
    #[default]
    Unmount,
    /// No unmount: the kernel is killed when the script has ended, or as soon as it runs
    /// `mkdir $OUT/cut`.
    Cut,
    /// The kernel is killed this long after the script started, whatever it is doing.
    /// What the script printed may be lost; directories it makes in `$OUT` are not.
    CutAfter(Duration),
}

/// How to boot and mount. Build with [`Kernel::new`] and the methods; [`run`](Kernel::run) as often as you like.
#[derive(Debug, Clone)]
pub struct Kernel {
    linux: Linux,
    memory_mib: u32,
    fs_type: String,
    mount_options: String,
    mount: bool,
    read_only: bool,
    ending: Ending,
    second_image: Option<PathBuf>,
    directory: Option<PathBuf>,
    programs: Vec<(String, PathBuf)>,
    timeout: Duration,
}

/// How often the host looks whether the guest is done.
const POLL: Duration = Duration::from_millis(5);

impl Kernel {
    /// This kernel with 512 MiB of memory, f2fs with its default options, unmount at the end, two minutes at most.
    /// ([`Kernel::new`] takes the kernel that judges.)
    pub fn of(linux: Linux) -> Self {
        Kernel {
            linux,
            memory_mib: 512,
            fs_type: "f2fs".into(),
            mount_options: String::new(),
            mount: true,
            read_only: false,
            ending: Ending::Unmount,
            second_image: None,
            directory: None,
            programs: Vec::new(),
            timeout: Duration::from_secs(120),
        }
    }
    /// Another kernel, with everything else as it is.
    pub fn linux(mut self, linux: Linux) -> Self {
        self.linux = linux;
        self
    }
    /// The guest's memory in MiB.
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }
    /// Mounts as another file system that the kernel has (`ext4`, `vfat`, ...).
    pub fn fs_type(mut self, name: &str) -> Self {
        self.fs_type = name.into();
        self
    }
    /// `mount -o`: the file system's options, comma-separated.
    pub fn mount_options(mut self, options: &str) -> Self {
        self.mount_options = options.into();
        self
    }
    /// Leaves mounting to the script; the image is `/dev/$DISK`, and `$MNT` is an empty directory.
    pub fn without_mount(mut self) -> Self {
        self.mount = false;
        self
    }
    /// Gives the guest a device it cannot write, and mounts read-only.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }
    /// How the run ends.
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }
    /// A second image, `/dev/$DISK2` in the guest.
    pub fn second_image(mut self, image: &Path) -> Self {
        self.second_image = Some(image.into());
        self
    }
    /// A directory of the host that the script may write to, `$DIR` in the guest.
    pub fn directory(mut self, path: &Path) -> Self {
        self.directory = Some(path.into());
        self
    }
    /// Lets the script call a program of the host, wherever it is, by `name`.
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.push((name.into(), path.into()));
        self
    }
    /// When to give up and kill the kernel; an emulated one has more time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Boots, mounts `image`, runs `script` by `sh -eu` in the volume, ends as asked.
    ///
    /// # Panics
    /// If the kernel is not installed (naming the package) or the host cannot start it. What goes wrong inside is
    /// for the result to say.
    #[track_caller]
    pub fn run(&self, image: &Path, script: &str) -> KernelRun {
        self.linux.check().unwrap_or_else(|e| panic!("{e}"));
        self.try_run(image, script).unwrap_or_else(|e| panic!("cannot start {:?}: {e}", self.linux))
    }

    /// The same where a host that cannot start the kernel is an error.
    pub(super) fn try_run(&self, image: &Path, script: &str) -> io::Result<KernelRun> {
        let (mut child, out) = self.start(image, script)?;
        let ended = self.supervise(&mut child, out.path());
        Ok(KernelRun::collect(out, ended, self.ending))
    }

    fn start(&self, image: &Path, script: &str) -> io::Result<(Child, tempfile::TempDir)> {
        let out = tempfile::Builder::new().prefix("joulefs-guest-").tempdir()?;
        let boot = Boot {
            shared: out.path().canonicalize()?,
            directory: self.directory.as_ref().map(|path| path.canonicalize()).transpose()?,
            second: self.second_image.is_some(),
            read_only: self.read_only,
            memory_mib: self.memory_mib,
        };
        self.prepare(&boot, image, script)?;
        // A group of its own: the helper processes of a User-Mode Linux die with it.
        let child = self.linux.command(&boot)?.process_group(0).spawn()?;
        Ok((child, out))
    }

    /// Fills the directory that both sides see with everything the guest needs to start.
    fn prepare(&self, boot: &Boot, image: &Path, script: &str) -> io::Result<()> {
        let dir = &boot.shared;
        // The kernel's command line knows no quoting, so images go by names that need none.
        std::os::unix::fs::symlink(image.canonicalize()?, dir.join("image"))?;
        if let Some(second) = &self.second_image {
            std::os::unix::fs::symlink(second.canonicalize()?, dir.join("second"))?;
        }
        std::fs::create_dir(dir.join("bin"))?;
        for (name, path) in &self.programs {
            let inside = path.canonicalize()?;
            let inside = Path::new("/tmp/h").join(inside.strip_prefix("/").unwrap_or(&inside));
            std::os::unix::fs::symlink(inside, dir.join("bin").join(name))?;
        }
        std::fs::write(dir.join("script"), script)?;
        let guest = self.linux.guest(boot);
        program(&dir.join("bin/load"), &format!("#!/bin/sh\n{}\n", guest.load))?;
        program(&dir.join("init"), &self.init(&guest))
    }

    /// The script that runs as process 1.
    fn init(&self, guest: &Guest) -> String {
        let mut options = String::from(if self.read_only { "ro" } else { "rw" });
        if !self.mount_options.is_empty() {
            options.push(',');
            options.push_str(&self.mount_options);
        }
        let (mounts, [disk, second]) = (&guest.mounts, self.linux.disks());
        let insert = if self.fs_type == "f2fs" { guest.load_f2fs } else { "true" };
        let (mount, unmount) = if self.mount {
            (format!("mount -t {} -o {options} /dev/{disk} /tmp/m", self.fs_type), "umount /tmp/m")
        } else {
            (String::from("true"), "true")
        };
        let end = match self.ending {
            Ending::Unmount => {
                "[ -d /tmp/x/mounted ] && cd / && $UNMOUNT && mkdir /tmp/x/unmounted\n\
                                dmesg -r >/tmp/x/log\n\
                                echo o >/proc/sysrq-trigger\n"
            }
            Ending::Cut | Ending::CutAfter(_) => "dmesg -r >/tmp/x/log\nmkdir -p /tmp/x/cut\n",
        }
        .replace("$UNMOUNT", unmount);
        format!(
            "#!/bin/sh\n\
             export PATH=/tmp/x/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C\n\
             export OUT=/tmp/x HOST=/tmp/h MNT=/tmp/m DIR=/tmp/d TMPDIR=/tmp DISK={disk} DISK2={second}\n\
             mount -t proc proc /proc\n\
             mount -t sysfs sys /sys\n\
             mount -t tmpfs t /tmp\n\
             mkdir /tmp/m /tmp/x /tmp/h /tmp/d\n\
             {mounts}\n\
             {insert}\n\
             if {mount} 2>/tmp/x/mount-error; then\n\
             mkdir /tmp/x/mounted\n\
             cd /tmp/m\n\
             mkdir /tmp/x/started\n\
             sh -eu /tmp/x/script </dev/null >/tmp/x/stdout 2>&1\n\
             echo $? >/tmp/x/status\n\
             fi\n\
             {end}\
             while :; do sleep 1; done\n"
        )
    }

    /// Waits until the kernel halts, must be cut, or takes too long.
    fn supervise(&self, child: &mut Child, out: &Path) -> Ended {
        let mut waited = Duration::ZERO;
        let mut running = Duration::ZERO;
        let patience = self.linux.slowness();
        loop {
            if matches!(child.try_wait(), Ok(Some(_))) {
                kill_group(child);
                return Ended::Halted;
            }
            let cut = match self.ending {
                Ending::Unmount => false,
                Ending::Cut => out.join("cut").exists(),
                Ending::CutAfter(after) => running >= after * patience || out.join("cut").exists(),
            };
            if cut || waited >= self.timeout * patience {
                kill_group(child);
                return if cut { Ended::Cut } else { Ended::TimedOut };
            }
            sleep(POLL);
            waited += POLL;
            if out.join("started").exists() {
                running += POLL;
            }
        }
    }
}

fn program(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

fn kill_group(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Fails only if nobody is left, which is what is wanted.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}
