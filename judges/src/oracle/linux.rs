//! Which Linux runs, and how is it started?
//!
//! A Linux can run as a process (User-Mode Linux: Debian's 6.1, or the 6.12 built by `scripts/install-tools kernel`
//! with all F2FS options, kernel assertions and fault injection) or in an emulator (Debian's 6.1 for real hardware).
//! All of them see the host's file tree as their root, read-only, share one directory with the host and have one or two
//! disks; [`Linux::command`] and [`Linux::guest`] hide the differences.
//!
//! Debian's User-Mode Linux does not run on hosts with AMX, whose registers do not fit into its buffers:
//! [`super::judge`] chooses a kernel that does.
//!
//! Left out: the work of the guest ([`super::kernel`]).

mod emulated;
mod process;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::qemu::{Accelerator, KernelPackage, Missing};
use super::tools::find;

/// A kernel, and how it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linux {
    /// Debian's package `user-mode-linux`, a process: F2FS is a module, without compression or tracepoints.
    Packaged,
    /// The path of a User-Mode Linux in which everything is built in.
    Built(PathBuf),
    /// Debian's kernel for real hardware in QEMU: F2FS with all its options, but without assertions and fault
    /// injection.
    Emulated(KernelPackage, Accelerator),
}

/// A requirement of a kernel that this host lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// No kernel was built.
    #[error("no kernel at {0}: run `scripts/install-tools kernel`")]
    Built(PathBuf),
    /// A Debian package.
    #[error("{0} is missing: apt-get install {1}")]
    Package(&'static str, &'static str),
    /// The emulator, or a kernel for it.
    #[error(transparent)]
    Emulator(#[from] Missing),
    /// No hardware acceleration.
    #[error("/dev/kvm cannot be opened: {0}")]
    Kvm(String),
}

/// The parameters of a boot. The paths are canonical.
pub(super) struct Boot {
    /// The directory shared with the guest. It has the disks as `image` and `second`, and `init`, which the guest runs
    /// as process 1.
    pub shared: PathBuf,
    /// Another directory that is writable for the guest.
    pub directory: Option<PathBuf>,
    /// Whether there is a second disk.
    pub second: bool,
    /// Whether the first disk is read-only.
    pub read_only: bool,
    /// Memory for the guest's programs and cache.
    pub memory_mib: u32,
}

/// How a guest reaches the items of [`Boot`].
pub(super) struct Guest {
    /// Commands that mount the host's root on `/tmp/h`, read-only and without the guest's mounts, the shared directory
    /// on `/tmp/x` and the other one on `/tmp/d`.
    pub mounts: String,
    /// A shell script that loads the modules in its arguments, after their dependencies.
    pub load: String,
    /// Loads the modules for F2FS.
    pub load_f2fs: &'static str,
}

impl Linux {
    /// The kernel built by `scripts/install-tools kernel`, or the one named by `JOULEFS_LINUX`.
    pub(super) fn built_file() -> PathBuf {
        std::env::var_os("JOULEFS_LINUX")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/linux/linux"), PathBuf::from)
    }

    /// The names of the disks below `/dev`: `$DISK` and `$DISK2` for scripts in the guest.
    pub fn disks(&self) -> [&'static str; 2] {
        match self {
            Linux::Packaged | Linux::Built(_) => ["ubdb", "ubdc"],
            Linux::Emulated(..) => ["vda", "vdb"],
        }
    }

    /// Time limits relative to those of a User-Mode Linux.
    pub(super) fn slowness(&self) -> u32 {
        match self {
            Linux::Packaged | Linux::Built(_) => 1,
            Linux::Emulated(_, Accelerator::Kvm) => 2,
            Linux::Emulated(_, Accelerator::Tcg) => 12,
        }
    }

    /// Checks that everything needed to start this kernel is present, without starting it.
    pub(super) fn check(&self) -> Result<(), Absent> {
        match self {
            Linux::Packaged => {
                find("linux.uml").ok_or(Absent::Package("linux.uml", "user-mode-linux"))?;
                find("insmod").ok_or(Absent::Package("insmod", "kmod"))?;
                let modules = Path::new("/usr/lib/uml/modules");
                modules.is_dir().then_some(()).ok_or(Absent::Package("/usr/lib/uml/modules", "user-mode-linux"))
            }
            Linux::Built(file) => file.is_file().then_some(()).ok_or_else(|| Absent::Built(file.clone())),
            Linux::Emulated(_, accelerator) => {
                if *accelerator == Accelerator::Kvm {
                    let opened = std::fs::File::options().read(true).write(true).open("/dev/kvm");
                    opened.map_err(|e| Absent::Kvm(e.to_string()))?;
                }
                Ok(emulated::check()?)
            }
        }
    }

    /// The process that runs this kernel; its console output goes to `console` in the shared directory.
    pub(super) fn command(&self, boot: &Boot) -> io::Result<Command> {
        let mut command = match self {
            Linux::Packaged => {
                let linux = find("linux.uml").ok_or_else(|| io::Error::other("linux.uml is missing"))?;
                process::command(&linux, process::PACKAGED, boot)
            }
            Linux::Built(file) => process::command(file, &[], boot),
            Linux::Emulated(package, accelerator) => emulated::command(package, *accelerator, boot),
        }?;
        command.current_dir(&boot.shared);
        Ok(command)
    }

    /// Parameters for the guest's first script.
    pub(super) fn guest(&self, boot: &Boot) -> Guest {
        match self {
            Linux::Packaged => {
                process::guest(boot, process::MODULES, "load crc32_generic lz4_compress lz4hc_compress f2fs")
            }
            Linux::Built(_) => process::guest(boot, "exit 0", "true"),
            Linux::Emulated(package, _) => emulated::guest(boot, package),
        }
    }
}
