//! Which kernel is the judge on this machine?
//!
//! The first that boots: Debian's User-Mode Linux, which is widely available and boots in a second; the one built by
//! `scripts/install-tools kernel`, which also runs on hosts with AMX, where Debian's dies at its first process;
//! Debian's kernel for real hardware in QEMU (`scripts/install-tools emulator`), with `/dev/kvm` if that can run a
//! guest, else without. `JOULEFS_JUDGE=uml|built|kvm|tcg` forces one, without fallback.
//!
//! Some tests need features that Debian's User-Mode Linux lacks, such as compression: they use [`Linux::complete`].

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use super::kernel::Kernel;
use super::linux::{Absent, Linux};
use super::qemu::{Accelerator, KernelPackage};

/// The variable that forces a judge.
const FORCE: &str = "JOULEFS_JUDGE";
/// Time limit for a kernel to boot and halt. (`/dev/kvm` may accept a guest and never run it.)
const PROBE: Duration = Duration::from_secs(30);

/// A kind of kernel, and how it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// Debian's package `user-mode-linux`.
    Uml,
    /// The User-Mode Linux that `scripts/install-tools kernel` builds.
    Built,
    /// Debian's kernel in QEMU with hardware acceleration.
    Kvm,
    /// Debian's kernel in QEMU without.
    Tcg,
}

/// Why no kernel is available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotJudge {
    /// `JOULEFS_JUDGE` has an unknown value.
    #[error("{FORCE}={0}: must be uml, built, kvm or tcg")]
    Unknown(String),
    /// Something is not installed.
    #[error("{0}: {1}")]
    Absent(Judge, Absent),
    /// The kernel was started and did not run a program.
    #[error("{0}: does not boot here: {1}")]
    DoesNotBoot(Judge, String),
    /// The kernel forced by `JOULEFS_JUDGE` lacks a feature that the test needs.
    #[error("{0}: this kernel does not have what the test needs, and {FORCE} forbids another")]
    Incomplete(Judge),
    /// None of several works.
    #[error("no kernel can judge here: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    None(Vec<CannotJudge>),
}

impl Judge {
    /// In order of preference.
    pub const ALL: [Judge; 4] = [Judge::Uml, Judge::Built, Judge::Kvm, Judge::Tcg];

    /// The value of `JOULEFS_JUDGE` that forces it.
    pub fn name(self) -> &'static str {
        match self {
            Judge::Uml => "uml",
            Judge::Built => "built",
            Judge::Kvm => "kvm",
            Judge::Tcg => "tcg",
        }
    }

    fn named(name: &str) -> Result<Self, CannotJudge> {
        Judge::ALL.into_iter().find(|j| j.name() == name).ok_or_else(|| CannotJudge::Unknown(name.into()))
    }

    /// The one forced by the environment. `JOULEFS_LINUX`, the path of a built kernel, selects that kernel.
    fn forced() -> Result<Option<Self>, CannotJudge> {
        match std::env::var(FORCE) {
            Ok(name) => Judge::named(&name).map(Some),
            Err(_) => Ok(std::env::var_os("JOULEFS_LINUX").map(|_| Judge::Built)),
        }
    }

    /// The kernel, if everything it needs is installed.
    fn linux(self) -> Result<Linux, Absent> {
        let linux = match self {
            Judge::Uml => Linux::Packaged,
            Judge::Built => Linux::Built(Linux::built_file()),
            Judge::Kvm => Linux::Emulated(KernelPackage::installed()?, Accelerator::Kvm),
            Judge::Tcg => Linux::Emulated(KernelPackage::installed()?, Accelerator::Tcg),
        };
        linux.check().map(|()| linux)
    }

    /// Boots it and runs a program; returns its release.
    fn boots(self, linux: &Linux) -> Result<String, CannotJudge> {
        let silent = |said: String| CannotJudge::DoesNotBoot(self, said);
        let dir = tempfile::tempdir().map_err(|e| silent(e.to_string()))?;
        let disk = dir.path().join("disk");
        let made = std::fs::File::create(&disk).and_then(|file| file.set_len(1 << 20));
        made.map_err(|e| silent(e.to_string()))?;
        let kernel = Kernel::of(linux.clone()).without_mount().memory_mib(128).timeout(PROBE);
        let run = kernel.try_run(&disk, "uname -r").map_err(|e| silent(e.to_string()))?;
        if run.ok() {
            return Ok(run.stdout.trim().to_owned());
        }
        let last: Vec<&str> = run.console.lines().filter(|line| !line.trim().is_empty()).collect();
        Err(silent(format!("{:?} after: {}", run.ended, last[last.len().saturating_sub(3)..].join(" / "))))
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The first of `candidates` that boots. A result from an earlier test program of the same run is reused.
fn choose(purpose: &str, candidates: &[Judge]) -> Result<Linux, CannotJudge> {
    let earlier = testlog::judge_so_far(purpose);
    let earlier = earlier.as_deref().and_then(|said| said.split(':').next());
    let known = candidates.iter().find(|judge| Some(judge.name()) == earlier);
    if let Some(linux) = known.and_then(|judge| judge.linux().ok()) {
        return Ok(linux);
    }
    let mut failed = Vec::new();
    for &judge in candidates {
        let tried = judge.linux().map_err(|why| CannotJudge::Absent(judge, why));
        match tried.and_then(|linux| judge.boots(&linux).map(|release| (linux, release))) {
            Ok((linux, release)) => {
                testlog::judged_by(purpose, &format!("{judge}: Linux {release}"));
                return Ok(linux);
            }
            Err(why) => failed.push(why),
        }
    }
    Err(if failed.len() == 1 { failed.remove(0) } else { CannotJudge::None(failed) })
}

/// The kernel forced by `JOULEFS_JUDGE`, or the first of those that are able.
fn pick(purpose: &str, able: &[Judge]) -> Result<Linux, CannotJudge> {
    match Judge::forced()? {
        Some(judge) if !able.contains(&judge) => Err(CannotJudge::Incomplete(judge)),
        Some(judge) => choose(purpose, &[judge]),
        None => choose(purpose, able),
    }
}

/// Converts an error for the test: a forced kernel that does not run is never a reason to skip.
#[track_caller]
fn or_skip(picked: &Result<Linux, CannotJudge>) -> Result<Linux, CannotJudge> {
    let forced = !matches!(Judge::forced(), Ok(None));
    match picked {
        Err(why) if forced && !matches!(why, CannotJudge::Incomplete(_)) => panic!("{why}"),
        picked => picked.clone(),
    }
}

impl Linux {
    /// The kernel for basic F2FS features.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn asked() -> Self {
        static PICKED: OnceLock<Result<Linux, CannotJudge>> = OnceLock::new();
        let picked = PICKED.get_or_init(|| pick("F2FS", &Judge::ALL));
        picked.clone().unwrap_or_else(|why| panic!("{why}"))
    }

    /// A kernel with compression, Unicode, encryption and tracepoints in F2FS, with other file systems and zoned devices.
    ///
    /// # Errors
    /// If there is none: the test then reports that as missing (`testlog`).
    ///
    /// # Panics
    /// If `JOULEFS_JUDGE` forces a kernel that does not run here.
    #[track_caller]
    pub fn complete() -> Result<Self, CannotJudge> {
        static PICKED: OnceLock<Result<Linux, CannotJudge>> = OnceLock::new();
        or_skip(PICKED.get_or_init(|| pick("all of F2FS's options", &[Judge::Built, Judge::Kvm, Judge::Tcg])))
    }

    /// A kernel with F2FS fault injection (`/sys/fs/f2fs/$DISK/inject_rate`).
    ///
    /// # Errors
    /// Like [`complete`](Self::complete): Debian's kernels do not have it.
    ///
    /// # Panics
    /// Like [`complete`](Self::complete).
    #[track_caller]
    pub fn failing() -> Result<Self, CannotJudge> {
        static PICKED: OnceLock<Result<Linux, CannotJudge>> = OnceLock::new();
        or_skip(PICKED.get_or_init(|| pick("faults injected into F2FS", &[Judge::Built])))
    }
}

impl Kernel {
    /// [`Linux::asked`], as [`Kernel::of`] sets it up.
    pub fn new() -> Self {
        Kernel::of(Linux::asked())
    }
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel::new()
    }
}
