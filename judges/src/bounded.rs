//! Does code that uses a device terminate? This device grants a number of requests, and stops code that makes more.
//!
//! Left out: loops without requests. A timeout outside the test catches those.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use device::model::Remap;
use device::{BlockDevice, DeviceError, Lba, Result, Tag, Zones};
use parking_lot::Mutex;

/// A device with a bound on its requests.
pub struct Bounded<D> {
    inner: D,
    /// The purpose of the requests, and the number granted.
    granted: Mutex<(&'static str, u64)>,
    made: AtomicU64,
}

impl<D: BlockDevice> Bounded<D> {
    /// A device without a bound yet.
    pub fn new(inner: D) -> Self {
        Bounded { inner, granted: Mutex::new(("", u64::MAX)), made: AtomicU64::new(0) }
    }

    /// Grants `requests` from now on, for purpose `what`. Returns the number used for the previous purpose.
    pub fn grant(&self, what: &'static str, requests: u64) -> u64 {
        *self.granted.lock() = (what, requests);
        self.made.swap(0, Relaxed)
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Counts a request.
    ///
    /// # Panics
    /// On the first request past the bound, because a looping caller might ignore an error. Requests during unwinding
    /// are refused.
    fn count(&self) -> Result<()> {
        let made = self.made.fetch_add(1, Relaxed) + 1;
        let (what, granted) = *self.granted.lock();
        assert!(made != granted.saturating_add(1), "{what}: no end after {granted} requests");
        if made > granted { Err(DeviceError::ReadOnly { op: "request past the bound" }) } else { Ok(()) }
    }
}

impl<D: BlockDevice> BlockDevice for Bounded<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.count()?;
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.count()?;
        self.inner.write(at, data, tag)
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.count()?;
        self.inner.write_gather(at, parts, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.count()?;
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.count()?;
        self.inner.discard(at, blocks, tag)
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.count()?;
        self.inner.remap(from, to, blocks, how, tag)
    }
    fn zones(&self) -> Option<&dyn Zones> {
        self.inner.zones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{BLOCK, Memory};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn whoever_goes_on_is_stopped_once_and_refused_afterwards() {
        let dev = Bounded::new(Memory::new(8));
        let mut buf = [0; BLOCK];
        let mut read = || dev.read(Lba(0), &mut buf, Tag::default());
        dev.grant("reading", 2);
        assert!(read().is_ok() && read().is_ok());
        let stopped = catch_unwind(AssertUnwindSafe(&mut read)).unwrap_err();
        assert_eq!(stopped.downcast_ref::<String>().unwrap(), "reading: no end after 2 requests");
        assert!(read().is_err());
        assert_eq!(dev.grant("reading", 2), 4);
        assert!(dev.read(Lba(0), &mut [0; BLOCK], Tag::default()).is_ok());
    }
}
