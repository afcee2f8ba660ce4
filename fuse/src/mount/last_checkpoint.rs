//! What if the last checkpoint of a mount fails?
//!
//! The kernel has let go already, so nobody is left to be refused. But what is in memory is still there: it is written again
//! for a while, and can be copied elsewhere meanwhile.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::{Event, Mounted};
use crate::socket::ControlSocket;

/// How often it is tried again.
const RETRY: Duration = Duration::from_secs(2);

impl Mounted {
    /// Ends the volume's life. If its last checkpoint fails, it is tried again until [`super::MountOptions::retry_for`] is over, a
    /// signal comes, or whoever unmounts wants no more attempts.
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
                // Cannot be: `sender` lives in self.
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
