//! Which Linux is asked?
//!
//! Debian's ready-made kernel (6.1) is there wherever `make test` runs; the one that
//! `scripts/install-tools kernel` builds (6.12) has all of F2FS's options, the kernel's own assertions,
//! fault injection and tracepoints. `$JOULEFS_LINUX` names the file of a kernel that is asked instead of Debian's, so that the same
//! tests have a second judge.
//!
//! Left out: how a kernel is booted and what it is told ([`super::kernel`]).

use std::path::{Path, PathBuf};

use super::tools::locate;

/// A kernel that runs as a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linux {
    /// Debian's package `user-mode-linux`: F2FS is a module, without compression or tracepoints.
    Packaged,
    /// A file in which everything is built in.
    Built(PathBuf),
}

/// There is no built kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no kernel at {0}: run `scripts/install-tools kernel`")]
pub struct NotBuilt(pub PathBuf);

impl Linux {
    /// The kernel that tests ask: the one in `$JOULEFS_LINUX`, else Debian's.
    pub fn asked() -> Self {
        std::env::var_os("JOULEFS_LINUX").map_or(Linux::Packaged, |file| Linux::Built(file.into()))
    }

    /// The kernel in `$JOULEFS_LINUX`, else the one that `scripts/install-tools kernel` built.
    ///
    /// # Errors
    /// [`NotBuilt`] if the file is not there.
    pub fn built() -> Result<Self, NotBuilt> {
        let file = std::env::var_os("JOULEFS_LINUX")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/linux/linux"), PathBuf::from);
        if file.is_file() { Ok(Linux::Built(file)) } else { Err(NotBuilt(file)) }
    }

    /// The program to start.
    ///
    /// # Panics
    /// If it is not there, with what to install.
    #[track_caller]
    pub(super) fn program(&self) -> PathBuf {
        match self {
            Linux::Packaged => {
                let program = locate("linux.uml", "user-mode-linux");
                locate("insmod", "kmod");
                assert!(
                    Path::new("/usr/lib/uml/modules").is_dir(),
                    "the modules of linux.uml are missing: apt-get install user-mode-linux"
                );
                program
            }
            Linux::Built(file) => {
                assert!(file.is_file(), "{}", NotBuilt(file.clone()));
                file.clone()
            }
        }
    }

    /// What the guest runs before it has loop devices. (`mount -o loop` keeps the device open for writing while it
    /// mounts, which a kernel may refuse: `losetup` first.)
    pub fn load_loop(&self) -> &'static str {
        match self {
            Linux::Packaged => "insmod /usr/lib/uml/modules/$(uname -r)/kernel/drivers/block/loop.ko",
            Linux::Built(_) => "true",
        }
    }

    /// What the guest runs before it can mount F2FS.
    pub(super) fn load_f2fs(&self) -> &'static str {
        match self {
            Linux::Packaged => {
                "K=/usr/lib/uml/modules/$(uname -r)/kernel\n\
                 insmod $K/crypto/crc32_generic.ko\n\
                 insmod $K/lib/lz4/lz4_compress.ko\n\
                 insmod $K/lib/lz4/lz4hc_compress.ko\n\
                 insmod $K/fs/f2fs/f2fs.ko\n"
            }
            Linux::Built(_) => "",
        }
    }
}
