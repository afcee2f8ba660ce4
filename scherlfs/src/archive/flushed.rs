//! Are all writes to the disk durable? A flush does not cover writes that end while it is under way.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Counts of writes.
#[derive(Debug, Default)]
pub(super) struct Flushed {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Number of writes that had ended when the last successful flush began.
    durable: AtomicU64,
}

impl Flushed {
    /// Performs a write.
    pub fn write<T>(&self, work: impl FnOnce() -> T) -> T {
        self.begun.fetch_add(1, SeqCst);
        let out = work();
        self.ended.fetch_add(1, SeqCst);
        out
    }
    /// Performs a flush.
    pub fn flush<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let ended = self.ended.load(SeqCst);
        work()?;
        self.durable.fetch_max(ended, SeqCst);
        Ok(())
    }
    /// True if some write may not be durable.
    pub fn is_behind(&self) -> bool {
        // Read first, so that writes that end in between count as not durable.
        let durable = self.durable.load(SeqCst);
        self.begun.load(SeqCst) != durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_says_nothing_of_a_write_that_was_under_way_or_came_during_it() {
        let flushed = Flushed::default();
        let flush = |during: &dyn Fn()| {
            flushed.flush(|| {
                during();
                Ok::<(), ()>(())
            })
        };
        assert!(!flushed.is_behind());
        flushed.write(|| ());
        assert!(flushed.is_behind());
        flush(&|| ()).unwrap();
        assert!(!flushed.is_behind());
        flushed.write(|| flush(&|| ()).unwrap());
        assert!(flushed.is_behind(), "it was under way");
        flush(&|| flushed.write(|| ())).unwrap();
        assert!(flushed.is_behind(), "it came during the flush");
        flush(&|| ()).unwrap();
        assert!(!flushed.is_behind());
        flushed.write(|| ());
        assert_eq!(flushed.flush(|| Err(1)), Err(1));
        assert!(flushed.is_behind(), "the flush failed");
    }
}
