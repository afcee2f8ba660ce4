//! How do commands reach the process that serves a mount, while it is mounted and after?
//!
//! Each such process listens on a Unix socket ([`ControlSocket`]) that only root and the user who mounted may use. Its
//! abstract name disappears with the process, however that ends: `joulefs/IMAGE/TOKEN`. The mount returns the whole
//! name ([`crate::control::SOCKET`]). IMAGE identifies the file or block device underneath, so a process that still
//! holds data after the unmount can be found too. TOKEN is random: no other program can take the name first, and the
//! client checks who answers ([`Client`]).
//!
//! A client sends one [`Request`] as a line of JSON and gets [`Reply`]s, one per line; then the connection ends. New
//! requests and keys may be added; a process refuses unknown ones.
//!
//! An abstract name is visible only in its network namespace. From another one only the mount itself is reachable.

mod client;
mod server;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use client::{Client, SocketError};
pub(crate) use server::Served;
pub use server::{ControlSocket, Doom, Saver, Saving};

/// Prefix of every name.
const PREFIX: &str = "joulefs/";

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// Report the state. [`Reply::Status`].
    Status,
    /// Make everything durable, even after a failure. [`Reply::Durable`] or [`Reply::Failed`].
    Retry,
    /// Copy data that is not durable into a directory, whose descriptor comes with the request. [`Reply::Saved`].
    Save {
        /// The directory's name in error messages.
        to: PathBuf,
    },
    /// Report how the mount ends. [`Reply::Waiting`] immediately, [`Reply::Failing`] if the last checkpoint is retried,
    /// and finally [`Reply::LastWord`].
    Wait {
        /// Do not retry a failed last checkpoint.
        give_up: bool,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// The state.
    Status(Status),
    /// Everything is durable.
    Durable(Status),
    /// Not everything could be made durable; `failed` has the reason.
    Failed(Status),
    /// The result of a copy.
    Saved(Saved),
    /// The final report will follow.
    Waiting(Status),
    /// The last checkpoint failed and is being retried.
    Failing(Status),
    /// The final report.
    LastWord(LastWord),
    /// Why the request is refused.
    Refused(String),
}

/// State of a served volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Why not everything can be made durable, if so.
    pub failed: Option<String>,
    /// The version of the last durable checkpoint.
    pub checkpoint: Option<u64>,
    /// Seconds since then.
    pub age_s: Option<u64>,
    /// The mount point; `None` after the unmount.
    pub mounted: Option<PathBuf>,
    /// Remaining seconds of retries after a failed last checkpoint.
    pub retrying_s: Option<u64>,
    /// The serving process.
    pub process: u32,
    /// Why the whole volume goes with its process, if it does.
    pub doomed: Option<String>,
    /// The file system's report.
    pub report: Vec<(String, String)>,
}

impl Status {
    /// What would be lost now, as text: "everything since checkpoint 17 (95 s ago)".
    pub fn not_durable(&self) -> String {
        since(self.checkpoint, self.age_s)
    }
}

/// Result of a copy out of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// Files, directories and other inodes.
    pub files: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Files that could not be copied, with the reason: the first of them.
    pub failed: Vec<String>,
    /// Number of further such files.
    pub failed_more: u64,
}

/// How a mount ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastWord {
    /// Why not everything is durable, if so.
    pub lost: Option<String>,
    /// The version of the last durable checkpoint.
    pub checkpoint: Option<u64>,
    /// Seconds since then.
    pub age_s: Option<u64>,
    /// The whole volume went with its process; `lost` says why.
    pub doomed: bool,
    /// Another error, although the volume is consistent.
    pub amiss: Option<String>,
}

impl LastWord {
    /// What is lost, as text.
    pub fn what_is_lost(&self) -> String {
        if self.doomed { "the whole volume".to_owned() } else { since(self.checkpoint, self.age_s) }
    }
}

fn since(checkpoint: Option<u64>, age_s: Option<u64>) -> String {
    let ago = |s: u64| if s < 600 { format!("{s} s ago") } else { format!("{} min ago", s / 60) };
    match (checkpoint, age_s.map(ago)) {
        (Some(version), Some(ago)) => format!("everything since checkpoint {version} ({ago})"),
        (Some(version), None) => format!("everything since checkpoint {version}"),
        (None, Some(ago)) => format!("everything since the last checkpoint ({ago})"),
        (None, None) => "everything since the last checkpoint".to_owned(),
    }
}

/// The part of a socket name that identifies an image, independent of its path.
fn identity(image: &Path) -> io::Result<String> {
    let meta = fs::metadata(image)?;
    Ok(match meta.file_type().is_block_device() {
        true => format!("b{:x}", meta.rdev()),
        false => format!("f{:x}.{:x}", meta.dev(), meta.ino()),
    })
}

#[cfg(test)]
mod tests;
