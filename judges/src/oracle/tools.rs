//! How do the programs of f2fs-tools judge an image?
//!
//! `mkfs.f2fs`, `sload.f2fs`, `fsck.f2fs --dry-run` and `dump.f2fs` on plain image files. Exit codes are not sufficient
//! (see [`Fsck::complaints`]), so the printed text counts as well: version 1.15 of `fsck.f2fs --dry-run` returns 0 for
//! a clean image but also for one with an invalid superblock copy, 4 for errors it would repair, 255 for an image it
//! cannot open and for unreachable files.
//!
//! Left out: repairing. Nothing here lets `fsck.f2fs` write to an image.

use std::ffi::OsStr;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program's output and exit code.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command as typed.
    pub command: String,
    /// Its exit code; `None` if a signal ended it.
    pub exit: Option<i32>,
    /// Standard output and standard error, in this order.
    pub text: String,
}

/// A program that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ToolError {
    /// It ran and reported failure.
    #[error("{0}")]
    Failed(Output),
    /// The image file could not be created or opened.
    #[error("image {path}: {reason}")]
    Image {
        /// The image.
        path: PathBuf,
        /// The host's error.
        reason: String,
    },
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "`{}` ended with {:?}", self.command, self.exit)?;
        f.write_str(&self.text)
    }
}

impl Output {
    fn must_succeed(self) -> Result<Self, ToolError> {
        if self.exit == Some(0) { Ok(self) } else { Err(ToolError::Failed(self)) }
    }
}

/// The path of a program; `None` if it is not installed.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

/// The path of a program.
///
/// # Panics
/// If it is not installed, naming its Debian package.
pub fn locate(program: &str, package: &str) -> PathBuf {
    find(program).unwrap_or_else(|| panic!("`{program}` is needed by this test: apt-get install {package}"))
}

fn run<I, S>(program: &str, args: I) -> Output
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let path = locate(program, "f2fs-tools");
    let mut command = Command::new(&path);
    command.args(args).stdin(Stdio::null()).env("LC_ALL", "C");
    let shown = std::iter::once(path.as_os_str())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    let output = command.output().unwrap_or_else(|e| panic!("cannot start `{shown}`: {e}"));
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Output { command: shown, exit: output.status.code(), text }
}

/// Options of `mkfs.f2fs`. The default is `mkfs.f2fs -f IMAGE`.
#[derive(Debug, Clone, Default)]
pub struct Mkfs {
    /// `-O`: features such as `extra_attr`, `inode_checksum`.
    pub features: Vec<String>,
    /// `-s`: segments per section.
    pub segments_per_section: Option<u32>,
    /// `-z`: sections per zone.
    pub sections_per_zone: Option<u32>,
    /// `-o`: over-provision ratio in percent.
    pub overprovision: Option<f64>,
    /// `-l`: volume label.
    pub label: Option<String>,
    /// Further arguments, as typed.
    pub extra: Vec<String>,
}

impl Mkfs {
    /// Default formatting with these features.
    pub fn with_features<I: IntoIterator<Item = S>, S: Into<String>>(features: I) -> Self {
        Mkfs { features: features.into_iter().map(Into::into).collect(), ..Mkfs::default() }
    }

    /// Creates `image` as a sparse file of `bytes` bytes (discarding existing contents) and formats it.
    ///
    /// # Errors
    /// If the file cannot be created, or `mkfs.f2fs` refuses (the minimum is 52 MiB).
    pub fn format(&self, image: &Path, bytes: u64) -> Result<Output, ToolError> {
        let told = |e: io::Error| ToolError::Image { path: image.into(), reason: e.to_string() };
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(image).map_err(told)?;
        file.set_len(bytes).map_err(told)?;
        drop(file);
        let mut args: Vec<String> = vec!["-f".into()];
        if !self.features.is_empty() {
            args.extend(["-O".into(), self.features.join(",")]);
        }
        let numbers = [("-s", self.segments_per_section), ("-z", self.sections_per_zone)];
        for (flag, value) in numbers {
            if let Some(value) = value {
                args.extend([flag.into(), value.to_string()]);
            }
        }
        if let Some(percent) = self.overprovision {
            args.extend(["-o".into(), percent.to_string()]);
        }
        if let Some(label) = &self.label {
            args.extend(["-l".into(), label.clone()]);
        }
        args.extend(self.extra.iter().cloned());
        let args = args.iter().map(OsStr::new).chain([image.as_os_str()]);
        run("mkfs.f2fs", args).must_succeed()
    }
}

/// Options of `sload.f2fs`.
#[derive(Debug, Clone, Default)]
pub struct Sload {
    /// `-P`: keep owners.
    pub preserve_owner: bool,
    /// `-T`: timestamp of every file, in seconds since the epoch.
    pub timestamp: Option<i64>,
    /// Further arguments, as typed.
    pub extra: Vec<String>,
}

impl Sload {
    /// Copies the tree below `source` into the (cleanly unmounted) image.
    ///
    /// # Errors
    /// If `sload.f2fs` fails; contains its output.
    pub fn fill(&self, image: &Path, source: &Path) -> Result<Output, ToolError> {
        let mut args: Vec<&OsStr> = vec![OsStr::new("-f"), source.as_os_str()];
        if self.preserve_owner {
            args.push(OsStr::new("-P"));
        }
        let stamp = self.timestamp.map(|t| t.to_string());
        if let Some(stamp) = &stamp {
            args.extend([OsStr::new("-T"), OsStr::new(stamp)]);
        }
        args.extend(self.extra.iter().map(OsStr::new));
        args.push(image.as_os_str());
        run("sload.f2fs", args).must_succeed()
    }
}

/// The verdict of `fsck.f2fs` on an image, without changing it.
#[derive(Debug, Clone)]
pub struct Fsck {
    /// Its full output.
    pub output: Output,
    /// The lines that report problems; empty for a clean image.
    pub complaints: Vec<String>,
    /// The checkpoint's flags by name, as printed (`unmount`, `compacted_summary`, ...).
    pub checkpoint_state: Vec<String>,
}

impl Fsck {
    /// True if it would repair nothing at all.
    pub fn clean(&self) -> bool {
        self.output.exit == Some(0) && self.complaints.is_empty()
    }
    /// Whether the newest checkpoint was written by a clean unmount.
    pub fn unmounted(&self) -> bool {
        self.checkpoint_state.iter().any(|flag| flag == "unmount")
    }
}

/// Runs `fsck.f2fs --dry-run` on an image.
pub fn fsck(image: &Path) -> Fsck {
    let output = run("fsck.f2fs", [OsStr::new("--dry-run"), image.as_os_str()]);
    let complaints = output.text.lines().filter(|l| complains(l)).map(String::from).collect();
    let checkpoint_state = output
        .text
        .lines()
        .find_map(|line| line.strip_prefix("Info: checkpoint state = "))
        .and_then(|state| state.split_once(':'))
        .map(|(_, names)| names.split_whitespace().map(String::from).collect())
        .unwrap_or_default();
    Fsck { output, complaints, checkpoint_state }
}

/// True if a line of `fsck.f2fs` reports a problem. Every run prints a line about fixing SIT types, and an invalid
/// checkpoint pack is normal after an interrupted checkpoint.
fn complains(line: &str) -> bool {
    ["[Fail", "ASSERT", "[FIX]", "[ERROR]", "Error:", "Can't find a valid"].iter().any(|mark| line.contains(mark))
}

/// Asserts that `fsck.f2fs --dry-run` reports no problem.
///
/// # Panics
/// With its full output if it does.
#[track_caller]
pub fn assert_fsck_clean(image: &Path) -> Fsck {
    let verdict = fsck(image);
    assert!(
        verdict.clean(),
        "fsck.f2fs finds fault with {}:\n{}\n---- in full ----\n{}",
        image.display(),
        verdict.complaints.join("\n"),
        verdict.output
    );
    verdict
}

/// The output of `dump.f2fs` about an inode: its node, field by field.
///
/// # Errors
/// If it refuses the image.
pub fn dump_inode(image: &Path, ino: u64) -> Result<Output, ToolError> {
    dump(image, &["-d", "1", "-i", &ino.to_string()])
}

/// The output of `dump.f2fs` with these options; its questions get end of file.
///
/// # Errors
/// If it refuses the image.
pub fn dump(image: &Path, options: &[&str]) -> Result<Output, ToolError> {
    let args = options.iter().map(OsStr::new).chain([image.as_os_str()]);
    run("dump.f2fs", args).must_succeed()
}
