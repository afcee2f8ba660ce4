//! Events of several processors, in order of time.
//!
//! Perfetto empties the kernel's buffers in rounds, one processor after the other. What a round finds happened
//! after the round before it had begun, so what is older than everything of some rounds ago can be given away.
//! Where the recorder fell behind, or a recording is of one processor only, a limited number of events is held.

use std::collections::VecDeque;

use crate::read::tracepoint::Heard;

/// Rounds that are held; two would do if every round emptied every buffer.
const ROUNDS: usize = 4;
/// Events that are held.
const MOST: usize = 1 << 17;

/// Something with a time.
pub(super) trait Timed {
    fn time(&self) -> u64;
}

impl Timed for Heard {
    fn time(&self) -> u64 {
        self.event.time
    }
}

#[derive(Debug)]
pub(super) struct Order<T> {
    /// Those given away already, those that can be, and the others.
    held: Vec<T>,
    gone: usize,
    ready: usize,
    /// The processor of the last bundle, and the latest time of this round.
    last: Option<u32>,
    latest: u64,
    /// The latest times of rounds before.
    rounds: VecDeque<u64>,
    /// The latest time given away.
    given: u64,
    late: u64,
}

impl<T: Timed + Copy> Order<T> {
    pub(super) fn new() -> Self {
        Order { held: Vec::new(), gone: 0, ready: 0, last: None, latest: 0, rounds: VecDeque::new(), given: 0, late: 0 }
    }

    /// A processor's bundle begins.
    pub(super) fn bundle(&mut self, processor: u32) {
        if self.last.replace(processor).is_some_and(|last| processor < last) {
            self.rounds.push_back(std::mem::take(&mut self.latest));
            if self.rounds.len() > ROUNDS {
                self.rounds.pop_front();
                let until = self.rounds.front().copied().unwrap_or_default();
                self.release(|held| held.partition_point(|e| e.time() <= until));
            }
        }
    }

    /// Something of this round, wanted or not, happened at that time.
    #[inline]
    pub(super) fn seen(&mut self, time: u64) {
        self.latest = self.latest.max(time);
    }

    #[inline]
    pub(super) fn push(&mut self, event: T) {
        self.held.push(event);
        if self.held.len() - self.gone >= MOST {
            self.release(|held| held.len() / 2);
        }
    }

    /// There is no more.
    pub(super) fn end(&mut self) {
        self.release(<[T]>::len);
    }

    fn release(&mut self, how_many: impl Fn(&[T]) -> usize) {
        self.held.drain(..std::mem::take(&mut self.gone));
        self.held.sort_by_key(Timed::time);
        self.ready = how_many(&self.held);
    }

    /// The next in order, of those that can be given away.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.gone == self.ready {
            return None;
        }
        let event = self.held[self.gone];
        self.gone += 1;
        if event.time() < self.given {
            self.late += 1;
        }
        self.given = self.given.max(event.time());
        Some(event)
    }

    /// Events that came when later ones had been given away already.
    pub(super) fn late(&mut self) -> u64 {
        std::mem::take(&mut self.late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timed for (u64, u32) {
        fn time(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn rounds_of_processors_become_one_order() {
        let mut order = Order::new();
        let mut out = Vec::new();
        for round in 0..100_u64 {
            for processor in 0..4_u32 {
                order.bundle(processor);
                // A processor is read a little later than the one before, so its events end later.
                for n in 0..50 {
                    let time = round * 1000 + u64::from(processor) * 100 + n * 20;
                    order.seen(time);
                    order.push((time, processor));
                }
                while let Some(e) = order.pop() {
                    out.push(e);
                }
            }
            assert!(order.held.len() - order.gone <= (ROUNDS + 2) * 200);
        }
        order.end();
        while let Some(e) = order.pop() {
            out.push(e);
        }
        assert_eq!((out.len(), order.late()), (20_000, 0));
        assert!(out.is_sorted_by_key(|e| e.0));
    }

    #[test]
    fn one_processor_fills_no_memory_and_what_comes_late_is_counted() {
        let mut order = Order::new();
        for n in 0..500_000 {
            order.bundle(0);
            order.push((n + 10, 0));
            while order.pop().is_some() {}
        }
        assert!(order.held.len() < 2 * MOST);
        order.push((1, 0));
        order.end();
        while order.pop().is_some() {}
        assert_eq!((order.late(), order.late()), (1, 0));
    }
}
