//! Where may another thread go on? At every lock: the names of `parking_lot`, on a scheduler.
//!
//! `shuttle-parking_lot` has all of it but [`Condvar`], which is here. Locks of this crate work only inside
//! of a schedule (`shuttle::Runner`), where all threads share one thread of the host; nothing in a schedule may
//! block on a lock or a channel that the scheduler does not know.
#![forbid(unsafe_code)]

pub use shuttle_parking_lot::*;

/// Waits, with a [`MutexGuard`] given up meanwhile, for somebody's notice.
///
/// Only what the file system uses is here: whoever calls for more gets a compiler's error, not another meaning.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Notices so far.
    notices: shuttle::sync::Mutex<u64>,
    one_more: shuttle::sync::Condvar,
}

impl Condvar {
    /// Gives the guard up, waits for a notice given after the call, and takes the guard again.
    ///
    /// # Panics
    /// Never: no holder of `notices` panics.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        // Taken before the guard is given up, so that no notice comes between.
        let mut notices = self.notices.lock().unwrap();
        MutexGuard::unlocked(guard, move || {
            let seen = *notices;
            while *notices == seen {
                notices = self.one_more.wait(notices).unwrap();
            }
        });
    }

    /// Wakes all who wait.
    ///
    /// # Panics
    /// Never: no holder of `notices` panics.
    pub fn notify_all(&self) {
        *self.notices.lock().unwrap() += 1;
        self.one_more.notify_all();
    }
}
