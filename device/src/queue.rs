//! How is a device asked that works on several requests at once?
//!
//! [`BlockDevice`](crate::BlockDevice) is a contract of calls that return when the device is done, so one caller has one
//! request under way. A [`Queue`] takes a request and says when it will be done; until then it takes more. It is for who
//! knows beforehand what comes, as a replay does. Contents are left out: who asks wants times and joules.

use crate::energy::Nanos;
use crate::{Lba, Remap, Result, Tag};

/// A request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Read so many blocks.
    Read {
        /// The first.
        at: Lba,
        /// How many.
        blocks: u64,
    },
    /// Write so many blocks.
    Write {
        /// The first.
        at: Lba,
        /// How many.
        blocks: u64,
    },
    /// Make everything written durable.
    Flush,
    /// Forget so many blocks.
    Discard {
        /// The first.
        at: Lba,
        /// How many.
        blocks: u64,
    },
    /// Change which data lies where, without moving it.
    Remap {
        /// One place.
        from: Lba,
        /// The other; the two do not overlap.
        to: Lba,
        /// How many blocks.
        blocks: u64,
        /// What becomes of the two.
        how: Remap,
    },
}

/// A device with a command queue.
pub trait Queue {
    /// Requests it works on at once at most; one more waits in it until another is done.
    fn depth(&self) -> usize;
    /// The moment up to which the device has lived: no request may be older.
    fn now(&self) -> Nanos;
    /// Gives it a request at `at`, and returns when it is done. A moment before [`now`](Self::now) counts as that one.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::DeviceError::OutOfRange) if the device has no such place; nothing happens then.
    fn submit(&self, at: Nanos, ask: Ask, tag: Tag) -> Result<Nanos>;
    /// Waits until everything is done; returns when that was.
    fn drain(&self) -> Nanos;
}
