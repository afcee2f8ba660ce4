//! How does a command continue in the background?

use std::process::Command;

use fuse::daemon::{self, DaemonError};
use terminal::failure::one_line;

use crate::{Failure, output};

/// Starts the command again as a background process, and returns its process number when it is ready. If that process
/// fails, this one fails with the same message; after a usage error, also with the same exit code.
pub fn start(again: Command) -> Result<u32, Failure> {
    daemon::start(again, output::warn).map_err(|e| {
        let text = one_line(&e.to_string());
        let text = text.strip_prefix("joulefs: ").unwrap_or(&text).to_owned();
        match e {
            DaemonError::Failed { status, .. } if status.code() == Some(2) => Failure::Usage(text),
            _ => Failure::Failed(text),
        }
    })
}
