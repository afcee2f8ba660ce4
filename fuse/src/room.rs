//! Is the volume full, or will a removed file free its space in a moment?
//!
//! A removed file's space becomes free when the kernel forgets its inode, in a separate message right after the
//! removal. With several serving threads, a write after the removal can overtake that message and fail, although its
//! caller may expect space.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use vfs::{Error, Result};

/// Long compared to handling a message, short for a caller.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSES: u32 = 8;

/// Notes removals, and waits for them if space is short.
#[derive(Default)]
pub(crate) struct Room {
    removals: AtomicU64,
    /// The number of removals at which waiting did not help: the volume is full.
    in_vain: AtomicU64,
}

impl Room {
    pub(crate) fn removed(&self) {
        self.removals.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs an operation that needs space; if there is none and a file was removed, retries it after a moment.
    pub(crate) fn retry<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        let mut result = operation();
        let removals = self.removals.load(Ordering::Relaxed);
        if removals == self.in_vain.load(Ordering::Relaxed) {
            return result;
        }
        for _ in 0..PAUSES {
            if !matches!(result, Err(Error::NoSpace)) {
                return result;
            }
            thread::sleep(PAUSE);
            result = operation();
        }
        self.in_vain.store(removals, Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_volume_is_retried_once_after_each_removal() {
        let room = Room::default();
        let tries = |room: &Room| {
            let mut tries = 0;
            let result: Result<()> = room.retry(|| {
                tries += 1;
                Err(Error::NoSpace)
            });
            assert_eq!(result, Err(Error::NoSpace));
            tries
        };
        assert_eq!(tries(&room), 1);
        room.removed();
        assert!(tries(&room) > 1);
        assert_eq!(tries(&room), 1);
    }

    #[test]
    fn space_that_comes_is_used_and_other_errors_do_not_wait() {
        let room = Room::default();
        room.removed();
        let mut tries = 0;
        let result = room.retry(|| {
            tries += 1;
            if tries < 3 { Err(Error::NoSpace) } else { Ok(tries) }
        });
        assert_eq!(result, Ok(3));
        let mut tries = 0;
        let result: Result<()> = room.retry(|| {
            tries += 1;
            Err(Error::ReadOnly)
        });
        assert_eq!((result, tries), (Err(Error::ReadOnly), 1));
    }
}
