//! What happens if the last checkpoint of a mount fails?
//!
//! The kernel has already dropped the mount, so the error reaches no program. But the data is still in memory: the
//! checkpoint is retried for a while, and the data can be copied elsewhere meanwhile.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::{Event, Mounted};
use crate::socket::ControlSocket;

/// Interval between retries.
const RETRY: Duration = Duration::from_secs(2);

impl Mounted {
    /// Unmounts the volume. If its last checkpoint fails, it is retried until [`super::MountOptions::retry_for`] is
    /// over, a signal arrives, or the unmounting client gives up.
    pub(super) fn last_checkpoint(&self) -> vfs::Result<()> {
        if let Some(socket) = &self.socket {
            socket.detached();
        }
        let Err(mut why) = self.fs.unmount() else { return Ok(()) };
        let (begun, dir) = (Instant::now(), self.dir.display());
        let socket = self.socket.as_deref();
        let busy = || socket.is_some_and(ControlSocket::is_busy);
        let goes_on = || begun.elapsed() < self.retry_for && !socket.is_some_and(ControlSocket::gives_up);
        if goes_on() {
            let seconds = self.retry_for.as_secs();
            log::error!(
                "{dir}: the last checkpoint failed: {why}; changes stay in memory, and the checkpoint is retried for \
                 {seconds} s"
            );
            socket.inspect(|socket| socket.failing(&why.to_string(), begun + self.retry_for));
        }
        while goes_on() || busy() {
            match self.events.recv_timeout(RETRY) {
                Ok(Event::Signal(signal)) => {
                    log::warn!("{dir}: signal {signal}: trying the last checkpoint once more");
                    socket.inspect(|socket| socket.stop());
                    return self.fs.unmount();
                }
                Ok(Event::Retried | Event::Ended(_)) | Err(RecvTimeoutError::Timeout) => {}
                // Unreachable: `sender` lives in self.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            match self.fs.unmount() {
                Ok(()) => {
                    log::warn!("{dir}: the last checkpoint succeeded after {} s", begun.elapsed().as_secs());
                    return Ok(());
                }
                Err(error) => {
                    if error != why {
                        log::error!("{dir}: the last checkpoint failed again: {error}");
                    }
                    why = error;
                }
            }
        }
        Err(why)
    }
}
