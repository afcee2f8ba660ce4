//! Files that are rewritten every second.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Failure;

/// Interval between writes.
const EVERY: Duration = Duration::from_secs(1);

/// A thread that repeats a task every second.
pub struct Live {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Live {
    /// Calls `each` once, then every second. Fails if the first call fails.
    pub fn start(mut each: impl FnMut() -> Result<(), Failure> + Send + 'static) -> Result<Self, Failure> {
        each()?;
        let (stop, stopped) = mpsc::channel();
        let go_on = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                // A failure is retried after a second; the final run reports it.
                let _ = each();
            }
        };
        let thread = thread::Builder::new().name("live".into()).spawn(go_on).map_err(|e| e.to_string())?;
        Ok(Live { stop, thread })
    }

    /// Ends the thread. The results of the last run stay.
    pub fn end(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}
