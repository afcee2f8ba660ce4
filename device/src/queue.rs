//! Interface of a device that processes several requests concurrently.
//!
//! Calls of [`BlockDevice`](crate::BlockDevice) return when the device is done, so one caller has one request under
//! way. A [`Queue`] accepts a request and returns its end time, and accepts further ones until then. It is for
//! callers that know later requests in advance, such as a replay. Contents are left out: such callers need only
//! times and energy.

use crate::energy::Nanos;
use crate::{Lba, Remap, Result, Tag};

/// A request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Read blocks.
    Read {
        /// The first.
        at: Lba,
        /// Their number.
        blocks: u64,
    },
    /// Write blocks.
    Write {
        /// The first.
        at: Lba,
        /// Their number.
        blocks: u64,
    },
    /// Make all writes durable.
    Flush,
    /// Discard blocks.
    Discard {
        /// The first.
        at: Lba,
        /// Their number.
        blocks: u64,
    },
    /// Change the map without moving data.
    Remap {
        /// The first range.
        from: Lba,
        /// The second range; the two do not overlap.
        to: Lba,
        /// Number of blocks.
        blocks: u64,
        /// Kind of remap.
        how: Remap,
    },
}

/// A device with a command queue.
pub trait Queue {
    /// Most concurrent requests; one more waits until another is done.
    fn depth(&self) -> usize;
    /// The device's time: earlier requests count as submitted now.
    fn now(&self) -> Nanos;
    /// Submits a request at `at`, and returns its end time. A moment before [`now`](Self::now) counts as `now`.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::DeviceError::OutOfRange) if the range exceeds the device; the request then
    /// has no effect.
    fn submit(&self, at: Nanos, ask: Ask, tag: Tag) -> Result<Nanos>;
    /// Waits for all requests; returns when the last one ended.
    fn drain(&self) -> Nanos;
}
