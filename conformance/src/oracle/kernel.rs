//! What does Linux's own F2FS do with an image?
//!
//! [`Kernel::run`] boots a whole Linux kernel ([`Linux`] says which) as an ordinary process,
//! mounts the image there, runs a shell script in it and either unmounts or cuts the power. A boot
//! takes about two seconds, any number may run at once.
//!
//! Inside, the host's files are visible read-only at their own places (but for `/tmp`) and all of
//! them below `$HOST`; the script starts in the mounted volume (`$MNT`, `/tmp/m`); what it puts into `$OUT`
//! is on the host at once ([`KernelRun::out`]); programs given by [`Kernel::program`] are in `$PATH`.
//!
//! Left out: what the disk's own volatile cache would lose. A cut ends the kernel, and everything it had
//! handed to the device before is in the image; torn and reordered writes are simulated elsewhere.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::linux::Linux;

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
    programs: Vec<(String, PathBuf)>,
    timeout: Duration,
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel::new()
    }
}

/// How often the host looks whether the guest is done.
const POLL: Duration = Duration::from_millis(5);

impl Kernel {
    /// [`Linux::asked`] with 512 MiB of memory, f2fs with its default options, unmount at the end, two minutes
    /// at most.
    pub fn new() -> Self {
        Kernel::of(Linux::asked())
    }
    /// The same with a kernel of the caller's choice.
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
    /// Leaves mounting to the script; the image is `/dev/ubdb`, and `$MNT` is an empty directory.
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
    /// A second image, `/dev/ubdc` in the guest.
    pub fn second_image(mut self, image: &Path) -> Self {
        self.second_image = Some(image.into());
        self
    }
    /// Lets the script call a program of the host, wherever it is, by `name`.
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.push((name.into(), path.into()));
        self
    }
    /// When to give up and kill the kernel.
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
        let linux = self.linux.program();
        let started = self.prepare(image, script).and_then(|out| Ok((self.command(&linux, out.path())?.spawn()?, out)));
        let (mut child, out) = match started {
            Ok(started) => started,
            Err(e) => panic!("cannot start {}: {e}", linux.display()),
        };
        let ended = self.supervise(&mut child, out.path());
        KernelRun::collect(out, ended, self.ending)
    }

    /// The directory both sides see, with everything the guest needs to start.
    fn prepare(&self, image: &Path, script: &str) -> io::Result<tempfile::TempDir> {
        let out = tempfile::Builder::new().prefix("joulefs-uml-").tempdir()?;
        let dir = out.path();
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
        std::fs::create_dir(dir.join("uml"))?;
        std::fs::write(dir.join("script"), script)?;
        let init = dir.join("init");
        std::fs::write(&init, self.init(&dir.canonicalize()?))?;
        let mut perm = std::fs::metadata(&init)?.permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut perm, 0o755);
        std::fs::set_permissions(&init, perm)?;
        Ok(out)
    }

    /// The script that runs as process 1.
    fn init(&self, out: &Path) -> String {
        let mut options = String::from(if self.read_only { "ro" } else { "rw" });
        if !self.mount_options.is_empty() {
            options.push(',');
            options.push_str(&self.mount_options);
        }
        let insert = if self.fs_type == "f2fs" { self.linux.load_f2fs() } else { "" };
        let (mount, unmount) = if self.mount {
            (format!("mount -t {} -o {options} /dev/ubdb /tmp/m", self.fs_type), "umount /tmp/m")
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
             export OUT=/tmp/x HOST=/tmp/h MNT=/tmp/m TMPDIR=/tmp\n\
             mount -t proc proc /proc\n\
             mount -t sysfs sys /sys\n\
             mount -t tmpfs t /tmp\n\
             mkdir /tmp/m /tmp/x /tmp/h\n\
             mount -t hostfs -o {out} none /tmp/x\n\
             mount -t hostfs -o / -r none /tmp/h\n\
             {insert}\
             if {mount} 2>/tmp/x/mount-error; then\n\
             mkdir /tmp/x/mounted\n\
             cd /tmp/m\n\
             mkdir /tmp/x/started\n\
             sh -eu /tmp/x/script </dev/null >/tmp/x/stdout 2>&1\n\
             echo $? >/tmp/x/status\n\
             fi\n\
             {end}\
             while :; do sleep 1; done\n",
            out = out.display(),
        )
    }

    fn command(&self, linux: &Path, out: &Path) -> io::Result<Command> {
        let readonly = if self.read_only { "r" } else { "" };
        let dir = out.canonicalize()?;
        let console = File::create(dir.join("console"))?;
        let mut command = Command::new(linux);
        command
            .arg(format!("mem={}M", self.memory_mib))
            .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "noreboot"])
            .args(["con=null", "con0=null,fd:1", "panic=1"])
            .arg(format!("uml_dir={}/", dir.join("uml").display()))
            .arg(format!("init={}", dir.join("init").display()))
            .arg(format!("ubdb{readonly}={}", dir.join("image").display()));
        if self.second_image.is_some() {
            command.arg(format!("ubdc={}", dir.join("second").display()));
        }
        command
            .env("TMPDIR", memory_directory(self.memory_mib)?)
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(console.try_clone()?)
            .stderr(console)
            // A group of its own: the kernel's helper processes die with it.
            .process_group(0);
        Ok(command)
    }

    /// Waits until the kernel halts, must be cut, or takes too long.
    fn supervise(&self, child: &mut Child, out: &Path) -> Ended {
        let mut waited = Duration::ZERO;
        let mut running = Duration::ZERO;
        loop {
            if matches!(child.try_wait(), Ok(Some(_))) {
                kill_group(child);
                return Ended::Halted;
            }
            let cut = match self.ending {
                Ending::Unmount => false,
                Ending::Cut => out.join("cut").exists(),
                Ending::CutAfter(after) => running >= after || out.join("cut").exists(),
            };
            if cut || waited >= self.timeout {
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

fn kill_group(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Fails only if nobody is left, which is what is wanted.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

/// Where the kernel can keep the file that is its memory: executable, and with room for it.
fn memory_directory(mib: u32) -> io::Result<PathBuf> {
    let need = (u64::from(mib) + 16) << 20;
    let fits = |dir: &PathBuf| {
        rustix::fs::statvfs(dir).is_ok_and(|fs| {
            !fs.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC)
                && fs.f_bavail.saturating_mul(fs.f_frsize) >= need
        })
    };
    [PathBuf::from("/dev/shm"), std::env::temp_dir(), PathBuf::from("/var/tmp")].into_iter().find(fits).ok_or_else(
        || io::Error::other(format!("none of /dev/shm, $TMPDIR and /var/tmp is mounted exec with {mib} MiB free")),
    )
}

/// How a run really ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The kernel halted (or panicked) by itself.
    Halted,
    /// It was killed as asked for.
    Cut,
    /// It was killed because it took too long.
    TimedOut,
}

/// One line of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// 0 (emergency) to 7 (debug); 4 is a warning.
    pub level: u8,
    /// Without level and time.
    pub text: String,
}

/// What happened inside.
#[derive(Debug)]
pub struct KernelRun {
    /// Whether the image could be mounted.
    pub mounted: bool,
    /// What `mount` said if not.
    pub mount_error: String,
    /// The script's exit code; `None` if it did not get to its end.
    pub script: Option<i32>,
    /// What the script printed, to both outputs.
    pub stdout: String,
    /// Whether the volume was unmounted.
    pub unmounted: bool,
    /// How the kernel ended.
    pub ended: Ended,
    /// The kernel's log. After a cut, up to the script's end; empty if the script was cut itself.
    pub log: Vec<LogLine>,
    /// The console: errors printed while booting, panics.
    pub console: String,
    ending: Ending,
    out: tempfile::TempDir,
}

impl KernelRun {
    fn collect(out: tempfile::TempDir, ended: Ended, ending: Ending) -> Self {
        let read = |name: &str| {
            let bytes = std::fs::read(out.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        KernelRun {
            mounted: out.path().join("mounted").exists(),
            mount_error: read("mount-error"),
            script: read("status").trim().parse().ok(),
            stdout: read("stdout"),
            unmounted: out.path().join("unmounted").exists(),
            ended,
            log: read("log").lines().filter_map(log_line).collect(),
            console: read("console"),
            ending,
            out,
        }
    }

    /// What the script printed, byte for byte.
    ///
    /// # Errors
    /// What the host says when it reads that.
    pub fn printed(&self) -> io::Result<Vec<u8>> {
        std::fs::read(self.out.path().join("stdout"))
    }

    /// The host's side of `$OUT`; gone when this value is dropped.
    pub fn out(&self) -> &Path {
        self.out.path()
    }

    /// Whether everything went as asked: mounted, the script successful (unless it was to be cut), the end as chosen.
    pub fn ok(&self) -> bool {
        self.mounted
            && match self.ending {
                Ending::Unmount => self.script == Some(0) && self.unmounted && self.ended == Ended::Halted,
                Ending::Cut => matches!(self.script, Some(0) | None) && self.ended == Ended::Cut,
                Ending::CutAfter(_) => self.ended == Ended::Cut,
            }
    }

    /// What the kernel's log says about F2FS, oldest first, without times.
    pub fn f2fs_log(&self) -> Vec<&LogLine> {
        self.log.iter().filter(|line| line.text.contains("F2FS-fs")).collect()
    }

    /// Lines of log and console in which the kernel finds fault: F2FS warnings and errors, I/O errors, oopses.
    pub fn complaints(&self) -> Vec<&str> {
        let trouble = |text: &str| {
            ["WARNING: ", "BUG: ", "Kernel panic", "I/O error", "blocked for more than", "Oops"]
                .iter()
                .any(|mark| text.contains(mark))
        };
        let logged = self
            .log
            .iter()
            .filter(|line| line.level <= 4 && line.text.contains("F2FS-fs") || trouble(&line.text))
            .map(|line| line.text.as_str());
        let shown = self.console.lines().filter(|line| trouble(line));
        logged.chain(shown).collect()
    }

    /// Demands [`ok`](Self::ok).
    ///
    /// # Panics
    /// With everything known about the run if not.
    #[track_caller]
    pub fn expect_ok(self) -> Self {
        assert!(self.ok(), "the kernel's run failed:\n{}", self.describe());
        self
    }

    /// Demands that the kernel found no fault with the volume.
    ///
    /// # Panics
    /// With its complaints if it did.
    #[track_caller]
    pub fn assert_no_f2fs_complaints(&self) {
        let complaints = self.complaints();
        assert!(complaints.is_empty(), "the kernel complains:\n{}\n{}", complaints.join("\n"), self.describe());
    }

    /// The run in words: what failed, the script's output, the last of the logs.
    pub fn describe(&self) -> String {
        let tail = |text: &str, most: usize| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(most)..].join("\n")
        };
        let log: Vec<&str> = self.f2fs_log().iter().map(|l| l.text.as_str()).collect();
        format!(
            "asked for {:?}, ended {:?}, mounted {} {}, script {:?}, unmounted {}\n\
             ---- script's output ----\n{}\n---- f2fs in the log ----\n{}\n---- console ----\n{}",
            self.ending,
            self.ended,
            self.mounted,
            self.mount_error.trim(),
            self.script,
            self.unmounted,
            tail(&self.stdout, 60),
            tail(&log.join("\n"), 40),
            tail(&self.console, 30),
        )
    }
}

/// Parses `<level>[seconds] text`, where the level has the facility in its upper bits.
fn log_line(line: &str) -> Option<LogLine> {
    let (level, rest) = line.strip_prefix('<')?.split_once('>')?;
    let level = u8::try_from(level.parse::<u32>().ok()? & 7).ok()?;
    let text = rest.split_once("] ").map_or(rest, |(_, text)| text).to_string();
    Some(LogLine { level, text })
}
