//! Where may the scheduler switch threads? At every lock: the API of `parking_lot`, on a scheduler.
//!
//! `shuttle-parking_lot` has all of it but [`Condvar`], which is here. Locks of this crate work only inside of a
//! schedule (`shuttle::Runner`), where all threads share one thread of the host; nothing in a schedule may block on a
//! lock or a channel that the scheduler does not control.
#![forbid(unsafe_code)]

pub use shuttle_parking_lot::*;

/// Releases a [`MutexGuard`] while it waits for a notification.
///
/// Has only what the file system uses: any other call fails to compile instead of behaving differently.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Number of notifications so far.
    notices: shuttle::sync::Mutex<u64>,
    one_more: shuttle::sync::Condvar,
}

impl Condvar {
    /// Releases the guard, waits for a notification sent after the call, and locks again.
    ///
    /// # Panics
    /// Never: no holder of `notices` panics.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        // Lock before the guard is released, so that no notification is missed.
        let mut notices = self.notices.lock().unwrap();
        MutexGuard::unlocked(guard, move || {
            let seen = *notices;
            while *notices == seen {
                notices = self.one_more.wait(notices).unwrap();
            }
        });
    }

    /// Wakes all waiting threads.
    ///
    /// # Panics
    /// Never: no holder of `notices` panics.
    pub fn notify_all(&self) {
        *self.notices.lock().unwrap() += 1;
        self.one_more.notify_all();
    }
}
