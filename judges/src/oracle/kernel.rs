//! What does Linux's own F2FS do with an image?
//!
//! [`Kernel::run`] boots a whole Linux kernel (see [`Linux`]) as an ordinary process of the host, mounts the image
//! there, runs a shell script in it and either unmounts or cuts the power. A boot takes about two seconds (seven in an
//! emulator); any number may run at once.
//!
//! Inside, the host's files are visible read-only at their own paths (except `/tmp`) and all of them below `$HOST`; the
//! script starts in the mounted volume (`$MNT`, `/tmp/m`), on `/dev/$DISK`; files in `$OUT` appear on the host at once
//! ([`KernelRun::out`]); programs added by [`Kernel::program`] are in `$PATH`, and so is `load MODULE...`, which does
//! nothing if everything is built in.
//!
//! Left out: losses of the disk's own volatile cache. A cut ends the kernel, and everything it handed to the device
//! before is in the image; torn and reordered writes are simulated elsewhere.

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
    /// No unmount: the kernel is killed after the script ended, or when it runs `mkdir $OUT/cut`.
    Cut,
    /// The kernel is killed this long after the script started, at any point. The script's output may be lost;
    /// directories it creates in `$OUT` are not.
    CutAfter(Duration),
}

/// How to boot and mount. Build it with [`Kernel::new`] and the methods; [`run`](Kernel::run) it any number of times.
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

/// A function for scripts: `zeroes` reads lines of BLOCKS, AT and FILE and writes that many blocks of zeroes at that
/// block, one at a time; `sync - FILE` syncs a file. A guest needs 15 ms to start a program, so one program carries out
/// all lines.
pub const ZEROES: &str = r#"
zeroes() { perl -we '
    use IO::Handle;
    while (<STDIN>) {
        chomp;
        my ($n, $at, $name) = split / /, $_, 3;
        my $f;
        open $f, "+<", $name or open $f, "+>", $name or die "$name: $!";
        if ($n eq "sync") { $f->sync or die "$name: $!"; next }
        sysseek $f, 4096 * $at, 0 or die "$name: $!";
        for (1 .. $n) { 4096 == syswrite $f, "\0" x 4096 or die "$name: $!" }
    }'; }
"#;

/// Interval at which the host checks whether the guest is done.
const POLL: Duration = Duration::from_millis(5);

impl Kernel {
    /// This kernel with 512 MiB of memory, f2fs with its default options, unmount at the end, a limit of two minutes.
    /// ([`Kernel::new`] uses the judge's kernel.)
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
    /// Replaces the kernel and keeps everything else.
    pub fn linux(mut self, linux: Linux) -> Self {
        self.linux = linux;
        self
    }
    /// The guest's memory in MiB.
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }
    /// Mounts another file system of the kernel (`ext4`, `vfat`, ...).
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
    /// Gives the guest a read-only device, and mounts read-only.
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
    /// A directory of the host that is writable for the script, as `$DIR`.
    pub fn directory(mut self, path: &Path) -> Self {
        self.directory = Some(path.into());
        self
    }
    /// Lets the script call a program of the host by `name`.
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.push((name.into(), path.into()));
        self
    }
    /// Time limit; an emulated kernel has more time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Boots, mounts `image`, runs `script` by `sh -eu` in the volume, ends as requested.
    ///
    /// # Panics
    /// If the kernel is not installed (naming the package) or the host cannot start it. Failures inside are in the
    /// result.
    #[track_caller]
    pub fn run(&self, image: &Path, script: &str) -> KernelRun {
        self.linux.check().unwrap_or_else(|e| panic!("{e}"));
        self.try_run(image, script).unwrap_or_else(|e| panic!("cannot start {:?}: {e}", self.linux))
    }

    /// Like [`run`](Self::run), but returns an error if the host cannot start the kernel.
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
        // In its own process group: the helper processes of a User-Mode Linux die with it.
        let child = self.linux.command(&boot)?.process_group(0).spawn()?;
        Ok((child, out))
    }

    /// Fills the shared directory with everything the guest needs to start.
    fn prepare(&self, boot: &Boot, image: &Path, script: &str) -> io::Result<()> {
        let dir = &boot.shared;
        // The kernel's command line has no quoting, so images get names that need none.
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

    /// Waits until the kernel halts, must be cut, or exceeds the time limit.
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
        // Fails only if no process is left, which is fine.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}
