//! How do commands talk to the process that serves a mount, while it is mounted and after?
//!
//! Each such process listens on a Unix socket ([`ControlSocket`]) that only root and the user who mounted may use. It has an
//! abstract name, which goes when its process does, however that ends: `joulefs/IMAGE/TOKEN`. The mount says the whole name
//! ([`crate::control::SOCKET`]). IMAGE stands for the file or block device below, so that a process which still holds data
//! after the mount is gone is found, too. TOKEN is random: nobody can take a name ahead of its process, and whoever connects
//! checks who answers ([`Client`]).
//!
//! A client sends one [`Request`] as a line of JSON and gets [`Reply`]s, a line each; then the connection ends. New requests
//! and keys may come; what a process does not know it refuses.
//!
//! An abstract name is seen in its network namespace alone. From another one only the mount itself can be asked.

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

/// How every name begins.
const PREFIX: &str = "joulefs/";

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// How is it? [`Reply::Status`].
    Status,
    /// Make everything durable, also if that failed before. [`Reply::Durable`] or [`Reply::Failed`].
    Retry,
    /// Copy what is not durable into a directory, whose descriptor comes with the request. [`Reply::Saved`].
    Save {
        /// What the directory is called where something fails.
        to: PathBuf,
    },
    /// Say how it ended. [`Reply::Waiting`] at once, [`Reply::Failing`] if the last checkpoint is tried again, and in the end
    /// [`Reply::LastWord`].
    Wait {
        /// A last checkpoint that fails is not tried again.
        give_up: bool,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// How it is.
    Status(Status),
    /// Everything is durable.
    Durable(Status),
    /// Not everything could be made durable; `failed` says why.
    Failed(Status),
    /// What was copied.
    Saved(Saved),
    /// The last word will come.
    Waiting(Status),
    /// The last checkpoint failed and is tried again.
    Failing(Status),
    /// How it ended.
    LastWord(LastWord),
    /// Why there is no answer, in words.
    Refused(String),
}

/// How a served volume is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Why not everything can be made durable, if it cannot.
    pub failed: Option<String>,
    /// The version of the last durable checkpoint.
    pub checkpoint: Option<u64>,
    /// Seconds since then.
    pub age_s: Option<u64>,
    /// Where it is mounted; `None` after the mount is gone.
    pub mounted: Option<PathBuf>,
    /// For how many seconds more a failed last checkpoint is tried again.
    pub retrying_s: Option<u64>,
    /// The process that serves.
    pub process: u32,
    /// Why the whole volume goes with its process, if it does.
    pub doomed: Option<String>,
    /// The file system's report.
    pub report: Vec<(String, String)>,
}

impl Status {
    /// What would be lost now, in words: "everything since checkpoint 17 (95 s ago)".
    pub fn not_durable(&self) -> String {
        since(self.checkpoint, self.age_s)
    }
}

/// What was copied out of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// Files, directories and all else.
    pub files: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// What was not copied, and why: the first of them.
    pub failed: Vec<String>,
    /// How many there are beyond these.
    pub failed_more: u64,
}

/// How a mount ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastWord {
    /// Why not everything is durable, if it is not.
    pub lost: Option<String>,
    /// The version of the last durable checkpoint.
    pub checkpoint: Option<u64>,
    /// Seconds since then.
    pub age_s: Option<u64>,
    /// The whole volume went with its process; `lost` says why.
    pub doomed: bool,
    /// What else went wrong, though the volume is whole.
    pub amiss: Option<String>,
}

impl LastWord {
    /// What is lost, in words.
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

/// What stands in a name for an image, whichever path leads to it.
fn identity(image: &Path) -> io::Result<String> {
    let meta = fs::metadata(image)?;
    Ok(match meta.file_type().is_block_device() {
        true => format!("b{:x}", meta.rdev()),
        false => format!("f{:x}.{:x}", meta.dev(), meta.ino()),
    })
}

#[cfg(test)]
mod tests;
