//! Is all that was written to the disk durable? Writes may go on while a flush is under way, which says nothing of them.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Counts of writes.
#[derive(Debug, Default)]
pub(super) struct Flushed {
    begun: AtomicU64,
    ended: AtomicU64,
    /// How many had ended before the last flush that succeeded began.
    durable: AtomicU64,
}

impl Flushed {
    /// Does a write.
    pub fn write<T>(&self, work: impl FnOnce() -> T) -> T {
        self.begun.fetch_add(1, SeqCst);
        let out = work();
        self.ended.fetch_add(1, SeqCst);
        out
    }
    /// Does a flush.
    pub fn flush<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let ended = self.ended.load(SeqCst);
        work()?;
        self.durable.fetch_max(ended, SeqCst);
        Ok(())
    }
    /// Whether something may not be durable.
    pub fn is_behind(&self) -> bool {
        // Read first: what ends in between is counted as not durable.
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
