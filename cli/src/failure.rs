//! How a command fails: one line for a person, and whose fault it was.
//!
//! What clap finds wrong with a command line it says itself; here is what only a command can know to be wrong
//! with it, and everything that went wrong later.

use std::fmt;

use device::energy::profile::ProfileError;
use fuse::daemon::DaemonError;
use lab::aging::AgeError;
use lab::plan::PlanError;

/// A failure in one line.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for what there is not: nothing was looked at, and trying again will not help.
    Usage(String),
    /// What was asked for could not be done.
    Failed(String),
}

impl Failure {
    /// A wrong command line.
    pub fn usage(text: impl fmt::Display) -> Self {
        Self::Usage(text.to_string())
    }

    /// What to tell the person.
    pub fn text(&self) -> &str {
        match self {
            Self::Usage(text) | Self::Failed(text) => text,
        }
    }

    /// The exit code of the process.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
        }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Failed(text.into())
    }
}

impl From<ProfileError> for Failure {
    fn from(e: ProfileError) -> Self {
        match e {
            ProfileError::Unknown { .. } => Self::usage(e),
            _ => Self::Failed(e.to_string()),
        }
    }
}

impl From<AgeError> for Failure {
    fn from(e: AgeError) -> Self {
        // Of a file of somebody's own, the parser's words go over several lines.
        let text = e.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        match e {
            AgeError::Unknown { .. } => Self::Usage(text),
            _ => Self::Failed(text),
        }
    }
}

impl From<PlanError> for Failure {
    fn from(e: PlanError) -> Self {
        match e {
            PlanError::Unknown { .. } => Self::usage(e),
            _ => Self::Failed(e.to_string()),
        }
    }
}

/// What the background process said is said, and it ended as this one shall.
impl From<DaemonError> for Failure {
    fn from(e: DaemonError) -> Self {
        let text = e.to_string();
        let text = text.strip_prefix("joulefs: ").unwrap_or(&text).to_owned();
        match e {
            DaemonError::Failed { status, .. } if status.code() == Some(2) => Self::Usage(text),
            _ => Self::Failed(text),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
