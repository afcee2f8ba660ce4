//! Files that are always a moment old at most.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Failure;

/// How often they are written.
const EVERY: Duration = Duration::from_secs(1);

/// Writes a file; who reads it finds this text or the one before, whole.
pub fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    let named = |e: std::io::Error| Failure::from(format!("{}: {e}", file.display()));
    if file.metadata().is_ok_and(|m| !m.is_file()) {
        // A pipe or a terminal.
        return std::fs::write(file, text).map_err(named);
    }
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, file)).map_err(named)
}

/// A thread that does something every second.
pub struct Live {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Live {
    /// Does it now and then every second; fails if it fails now.
    pub fn start(mut each: impl FnMut() -> Result<(), Failure> + Send + 'static) -> Result<Self, Failure> {
        each()?;
        let (stop, stopped) = mpsc::channel();
        let go_on = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                // What fails now is tried again in a second, and said by the last attempt.
                let _ = each();
            }
        };
        let thread = thread::Builder::new().name("live".into()).spawn(go_on).map_err(|e| e.to_string())?;
        Ok(Live { stop, thread })
    }

    /// Ends it; everything stays as it was done last.
    pub fn end(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}
