//! Who asks for durability while a flush is under way shares the next one.
//!
//! A transaction takes along what all callers changed, so that of several who ask most find nothing left to write and need but a
//! flush. Those who come while one is under way wait for its end. The first of them flushes again; the others' writes
//! had ended before that flush began, and it was theirs, too. Who finds none under way flushes, also if nothing was written
//! since the last one: a single caller's requests are the same with or without this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use vfs::Result;

/// Requests of the log that the device has taken, counted when it has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken(Arc<AtomicU64>);

impl Taken {
    /// Another.
    pub fn add(&self) {
        self.0.fetch_add(1, SeqCst);
    }
    /// How many.
    pub fn count(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

/// Whose turn it is to flush.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    /// How many of [`Taken`] are durable; held by who flushes.
    turn: Mutex<u64>,
    taken: Taken,
}

impl Flushes {
    /// Of a volume that counts here.
    pub fn of(taken: &Taken) -> Self {
        Flushes { turn: Mutex::default(), taken: taken.clone() }
    }

    /// Returns when so many of the log's requests are durable; `flush` is called unless another's was enough.
    pub fn share(&self, wanted: u64, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut durable = match self.turn.try_lock() {
            Some(turn) => turn,
            None => {
                let turn = self.turn.lock();
                if *turn >= wanted {
                    return Ok(());
                }
                turn
            }
        };
        // What is taken after this may not be among what the flush makes durable.
        let taken = self.taken.count();
        flush()?;
        *durable = taken;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use vfs::Error;

    use super::*;

    /// How often three flush who come while another does.
    fn three() -> u64 {
        let (taken, begun, flushed) = (Taken::default(), Barrier::new(2), AtomicU64::new(0));
        let flushes = Flushes::of(&taken);
        thread::scope(|scope| {
            taken.add();
            scope.spawn(|| {
                let flush = || {
                    begun.wait();
                    // Until the others wait for its end, if the machine lets them.
                    thread::sleep(Duration::from_millis(20));
                    Ok(())
                };
                assert_eq!(flushes.share(1, flush), Ok(()));
            });
            begun.wait();
            // Taken after the flush began: it says nothing of them.
            (0..3).for_each(|_| taken.add());
            for wanted in 2..5 {
                let (flushes, flushed) = (&flushes, &flushed);
                let flush = || Ok(_ = flushed.fetch_add(1, SeqCst));
                scope.spawn(move || assert_eq!(flushes.share(wanted, flush), Ok(())));
            }
        });
        let shared = flushed.load(SeqCst);
        assert!((1..=3).contains(&shared), "{shared}");
        // A single caller's flush is never left out.
        assert_eq!(flushes.share(4, || Ok(_ = flushed.fetch_add(1, SeqCst))), Ok(()));
        assert_eq!(flushed.load(SeqCst), shared + 1);
        shared
    }

    #[test]
    fn those_who_come_while_one_flushes_share_the_next() {
        assert!((0..100).any(|_| three() == 1), "each of them always flushed for itself alone");
    }

    #[test]
    fn a_flush_that_failed_makes_nothing_durable() {
        let taken = Taken::default();
        let flushes = Flushes::of(&taken);
        taken.add();
        let fails = || Err(Error::Device("no".into()));
        assert!(flushes.share(1, fails).is_err());
        assert_eq!(*flushes.turn.lock(), 0);
        assert_eq!(flushes.share(1, || Ok(())), Ok(()));
        assert_eq!(*flushes.turn.lock(), 1);
    }
}
