//! What does Linux's F2FS do internally, and why?
//!
//! [`Machine::run`] boots Debian's own kernel in an emulator, with images as its disks, and runs a shell script as
//! process 1. Unlike a kernel that runs as a process ([`super::kernel`]), it has drivers of real disks; it takes seven
//! seconds to boot instead of one, and sees nothing of the host but the given programs and disks.
//!
//! The script has busybox's applets, the modules for disks and F2FS loaded, `/proc`, `/sys`, tracefs and debugfs
//! mounted, the images as `/dev/vda`, `/dev/vdb`... in the order given. Its output is [`MachineRun::output`], byte for
//! byte, so it may be binary.
//!
//! Left out: hardware acceleration, which not every test machine has, and power cuts.

pub(super) mod initramfs;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::tools::locate;

/// Modules to load, without their dependencies.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32_generic", "f2fs"];
/// Interval at which the host checks whether the guest is done.
const POLL: Duration = Duration::from_millis(20);
/// Marks the end of the script's output; its exit code follows.
const END: &[u8] = b"\n@@end-of-output ";

/// How a guest's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor, if the host's `/dev/kvm` works.
    Kvm,
    /// QEMU's translator, at least ten times slower.
    Tcg,
}

impl Accelerator {
    /// QEMU's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// A kernel as unpacked from its Debian package: `boot/vmlinuz-*` and `lib/modules/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelPackage {
    directory: PathBuf,
    image: PathBuf,
    modules: PathBuf,
    release: String,
}

/// A missing requirement for booting a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No kernel in the directory.
    #[error("no kernel in {0}: run `scripts/install-tools emulator`")]
    Kernel(PathBuf),
    /// A program of the host.
    #[error("`{program}` is not installed: apt-get install {package}")]
    Program {
        /// The program.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
}

impl KernelPackage {
    /// The kernel unpacked by `scripts/install-tools emulator`, or the one in `$JOULEFS_KERNEL`.
    ///
    /// # Errors
    /// [`Missing::Kernel`] if there is none.
    pub fn installed() -> Result<Self, Missing> {
        let place = std::env::var_os("JOULEFS_KERNEL")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/kernel"), PathBuf::from);
        Self::unpacked_in(&place)
    }

    /// The kernel unpacked in `dir`: the first by name if there are several.
    ///
    /// # Errors
    /// [`Missing::Kernel`] if there is none.
    pub fn unpacked_in(dir: &Path) -> Result<Self, Missing> {
        let dir = &dir.canonicalize().map_err(|_| Missing::Kernel(dir.into()))?;
        let mut releases: Vec<String> = fs::read_dir(dir.join("lib/modules"))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        releases.sort();
        releases
            .into_iter()
            .map(|release| KernelPackage {
                directory: dir.to_owned(),
                image: dir.join(format!("boot/vmlinuz-{release}")),
                modules: dir.join(format!("lib/modules/{release}/kernel")),
                release,
            })
            .find(|package| package.image.is_file() && package.modules.is_dir())
            .ok_or_else(|| Missing::Kernel(dir.into()))
    }

    /// Where it was unpacked.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The image that boots fastest: `boot/vmlinux-*`, if `scripts/install-tools emulator` decompressed it.
    pub fn image(&self) -> PathBuf {
        let plain = self.directory.join(format!("boot/vmlinux-{}", self.release));
        if plain.is_file() { plain } else { self.image.clone() }
    }

    /// The directory of its modules.
    pub fn modules(&self) -> &Path {
        &self.modules
    }

    /// The release, as in `uname -r`.
    pub fn release(&self) -> &str {
        &self.release
    }
}

/// How to boot. [`run`](Machine::run) it any number of times.
#[derive(Debug, Clone)]
pub struct Machine {
    kernel: KernelPackage,
    memory_mib: u32,
    processors: u32,
    modules: Vec<&'static str>,
    /// Images, each with a flag for direct I/O.
    disks: Vec<(PathBuf, bool)>,
    programs: Vec<PathBuf>,
    output_mib: u64,
    timeout: Duration,
}

impl Machine {
    /// One processor, 768 MiB of memory, no disks, a limit of half an hour.
    ///
    /// # Errors
    /// What the host lacks.
    pub fn new(kernel: KernelPackage) -> Result<Self, Missing> {
        let needed = [
            ("qemu-system-x86_64", "qemu-system-x86"),
            ("busybox", "busybox-static"),
            ("perl", "perl-base"),
            ("modinfo", "kmod"),
        ];
        for (program, package) in needed {
            let found =
                ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|dir| Path::new(dir).join(program).is_file());
            if !found {
                return Err(Missing::Program { program, package });
            }
        }
        Ok(Machine {
            kernel,
            memory_mib: 768,
            processors: 1,
            modules: MODULES.to_vec(),
            disks: Vec::new(),
            programs: vec![locate("perl", "perl-base")],
            output_mib: 4096,
            timeout: Duration::from_secs(1800),
        })
    }
    /// Adds a disk.
    pub fn disk(mut self, image: &Path) -> Self {
        self.disks.push((image.into(), false));
        self
    }

    /// Adds a disk that bypasses the host's cache: every request of the guest, including flushes, reaches it at once.
    pub fn direct_disk(mut self, image: &Path) -> Self {
        self.disks.push((image.into(), true));
        self
    }
    /// The number of processors.
    pub fn processors(mut self, n: u32) -> Self {
        self.processors = n;
        self
    }
    /// Adds a module, with its dependencies.
    pub fn module(mut self, name: &'static str) -> Self {
        self.modules.push(name);
        self
    }
    /// Adds a program of the host, with its libraries; the script calls it by name. `perl` is present.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.programs.push(path.into());
        self
    }
    /// Time limit of the machine.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Boots, runs `script` by `sh -eu`, powers off.
    ///
    /// # Errors
    /// Failures of the host. Failures inside are in the result.
    pub fn run(&self, script: &str) -> io::Result<MachineRun> {
        let work = tempfile::Builder::new().prefix("joulefs-qemu-").tempdir()?;
        let initrd = work.path().join("initrd");
        fs::write(&initrd, self.initramfs(script)?)?;
        let output = work.path().join("output");
        File::create(&output)?.set_len(self.output_mib << 20)?;
        let console = work.path().join("console");
        let mut child = self.command(&initrd, &output, &console)?.spawn()?;
        let timed_out = !self.supervise(&mut child)?;
        let (output, status) = take_output(&output)?;
        let console = String::from_utf8_lossy(&fs::read(&console)?).into_owned();
        Ok(MachineRun { output, status, timed_out, console })
    }

    /// The guest's initramfs.
    fn initramfs(&self, script: &str) -> io::Result<Vec<u8>> {
        let mut archive = initramfs::Archive::default();
        for dir in ["bin", "sbin", "usr", "usr/bin", "usr/sbin", "lib", "lib64", "proc", "sys", "dev", "tmp", "mnt"] {
            archive.directory(dir);
        }
        archive.program("bin/busybox", &fs::read(locate("busybox", "busybox-static"))?);
        for path in &self.programs {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            archive.program(&format!("bin/{name}"), &fs::read(path)?);
            for library in initramfs::libraries(path)? {
                archive.program(&library.to_string_lossy(), &fs::read(&library)?);
            }
        }
        let mut insert = String::new();
        for (n, module) in initramfs::modules(&self.kernel.modules, &self.modules)?.iter().enumerate() {
            archive.file(&format!("lib/{n}.ko"), &fs::read(module)?);
            insert.push_str(&format!("insmod /lib/{n}.ko\n"));
        }
        archive.file("script", script.as_bytes());
        archive.program("init", self.init(&insert).as_bytes());
        Ok(archive.finish())
    }

    /// The script that runs as process 1; its own messages go to the console.
    fn init(&self, insert: &str) -> String {
        let out = char::from(b'a' + u8::try_from(self.disks.len()).unwrap_or(25).min(25));
        let end = String::from_utf8_lossy(END).replace('\n', "\\n");
        format!(
            "#!/bin/busybox sh\n\
             export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/tmp LC_ALL=C\n\
             /bin/busybox --install -s\n\
             mount -t proc proc /proc\n\
             mount -t sysfs sys /sys\n\
             mount -t devtmpfs dev /dev\n\
             {insert}\
             mount -t tracefs trace /sys/kernel/tracing\n\
             mount -t debugfs debug /sys/kernel/debug\n\
             cd /tmp\n\
             {{\n\
             sh -eu /script </dev/null 2>&1\n\
             printf '{end}%d\\n' $?\n\
             }} >/dev/vd{out}\n\
             sync\n\
             poweroff -f\n"
        )
    }

    fn command(&self, initrd: &Path, output: &Path, console: &Path) -> io::Result<Command> {
        let mut command = Command::new(locate("qemu-system-x86_64", "qemu-system-x86"));
        command
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", &self.memory_mib.to_string()])
            .args(["-smp", &self.processors.to_string()])
            .args(["-nographic", "-no-reboot", "-nic", "none"])
            .arg("-kernel")
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", "console=ttyS0 panic=1 quiet"]);
        let disks = self.disks.iter().map(|(disk, direct)| (disk.as_path(), *direct));
        for (disk, direct) in disks.chain([(output, false)]) {
            let cache = if direct { "none,discard=unmap" } else { "unsafe" };
            let disk = disk.canonicalize()?;
            // A comma in an option's value must be doubled.
            let file = disk.display().to_string().replace(',', ",,");
            command.args(["-drive", &format!("file={file},if=virtio,format=raw,cache={cache}")]);
        }
        let console = File::create(console)?;
        command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
        Ok(command)
    }

    /// Waits for the machine's end; false if it had to be killed.
    fn supervise(&self, child: &mut Child) -> io::Result<bool> {
        let mut waited = Duration::ZERO;
        while child.try_wait()?.is_none() {
            if waited >= self.timeout {
                child.kill()?;
                child.wait()?;
                return Ok(false);
            }
            sleep(POLL);
            waited += POLL;
        }
        Ok(true)
    }
}

/// The output up to its end mark, and the exit code after the mark. Without a mark: everything except trailing zeros.
fn take_output(path: &Path) -> io::Result<(Vec<u8>, Option<i32>)> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut piece)?;
        let before = bytes.len().saturating_sub(END.len() + 16);
        bytes.extend_from_slice(&piece[..n]);
        if let Some(at) = find(&bytes[before..], END).map(|at| before + at) {
            let rest = String::from_utf8_lossy(&bytes[at + END.len()..]);
            let status = rest.split('\n').next().and_then(|code| code.parse().ok());
            bytes.truncate(at);
            return Ok((bytes, status));
        }
        // A megabyte of zeroes is past the end of the output.
        if n == 0 || piece[..n].iter().all(|&b| b == 0) {
            let used = bytes.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
            bytes.truncate(used);
            return Ok((bytes, None));
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct MachineRun {
    /// The script's standard output and standard error.
    pub output: Vec<u8>,
    /// The script's exit code; `None` if it did not finish.
    pub status: Option<i32>,
    /// True if the machine was killed at the time limit.
    pub timed_out: bool,
    /// Console output of the firmware and the kernel.
    pub console: String,
}

impl MachineRun {
    /// True if the script finished successfully.
    pub fn ok(&self) -> bool {
        self.status == Some(0) && !self.timed_out
    }

    /// Lines of the console in which the kernel reports problems.
    pub fn complaints(&self) -> Vec<&str> {
        let marks = ["WARNING: ", "BUG: ", "Kernel panic", "I/O error", "blocked for more than", "Oops", "F2FS-fs"];
        self.console.lines().filter(|line| marks.iter().any(|mark| line.contains(mark))).collect()
    }

    /// The run in words: how it ended, and the end of its output.
    pub fn describe(&self) -> String {
        let tail = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        format!(
            "script {:?}, timed out {}\n---- script's output ----\n{}\n---- console ----\n{}",
            self.status,
            self.timed_out,
            tail(&String::from_utf8_lossy(&self.output)),
            tail(&self.console)
        )
    }
}
