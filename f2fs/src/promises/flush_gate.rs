//! How do concurrent callers share one flush?

use parking_lot::{Condvar, Mutex};

use crate::error::Result;

/// One flush for all concurrent callers: a flush makes durable everything written before it began.
#[derive(Debug, Default)]
pub(crate) struct FlushGate {
    state: Mutex<Flushes>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Flushes {
    begun: u64,
    /// The latest flush that succeeded.
    done: u64,
    running: bool,
}

impl FlushGate {
    /// Returns when everything written before the call is durable.
    pub(crate) fn pass(&self, flush: impl Fn() -> Result<()>) -> Result<()> {
        let mut s = self.state.lock();
        let enough = s.begun + 1;
        while s.done < enough {
            if s.running {
                self.ended.wait(&mut s);
                continue;
            }
            s.begun += 1;
            s.running = true;
            let number = s.begun;
            let out = parking_lot::MutexGuard::unlocked(&mut s, &flush);
            s.running = false;
            if out.is_ok() {
                s.done = number;
            }
            self.ended.notify_all();
            out?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn many_who_flush_at_once_share_flushes_that_began_after_they_asked() {
        let gate = FlushGate::default();
        let (clock, flushes) = (AtomicU64::new(0), AtomicU64::new(0));
        let begun_last = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for _ in 0..20 {
                        let asked = clock.fetch_add(1, Ordering::SeqCst);
                        gate.pass(|| {
                            let begun = clock.fetch_add(1, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_millis(1));
                            flushes.fetch_add(1, Ordering::SeqCst);
                            begun_last.fetch_max(begun, Ordering::SeqCst);
                            Ok(())
                        })
                        .unwrap();
                        assert!(begun_last.load(Ordering::SeqCst) > asked);
                    }
                });
            }
        });
        assert!(flushes.load(Ordering::SeqCst) < 160, "nobody shared");
    }

    #[test]
    fn a_failed_flush_satisfies_nobody() {
        let gate = FlushGate::default();
        assert!(gate.pass(|| Err(crate::error::Error::no_space())).is_err());
        let ran = AtomicU64::new(0);
        gate.pass(|| {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
        assert_eq!(ran.into_inner(), 1);
    }
}
