//! Events of several processors, in order of time.
//!
//! Perfetto empties the kernel's buffers in rounds, one processor after the other. What a round finds happened
//! after the round before it had begun, so what is older than everything of some rounds ago can be given away.
//! Where the recorder fell behind, or a recording is of one processor only, a limited number of events is held.
//!
//! What one processor tells is in order already: the processors' events are merged, and sorted only where they are not.
//! Of one moment, what came first is given first.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use crate::read::tracepoint::Heard;

/// Rounds that are held; two would do if every round emptied every buffer.
const ROUNDS: usize = 4;
/// Events that are held when there are too many of them to wait for a round's end, and when those are given away.
const MOST: usize = 1 << 17;
/// Processors that have a queue of their own; more of them share.
const QUEUES: usize = 256;

/// Something with a time.
pub(super) trait Timed {
    fn time(&self) -> u64;
}

impl Timed for Heard {
    #[inline]
    fn time(&self) -> u64 {
        self.event.time
    }
}

/// What one processor told and is not given away yet, with the number of the bundle it came in.
#[derive(Debug)]
struct Queue<T> {
    held: Vec<(T, u64)>,
    /// How many of them are given away already.
    gone: usize,
    sorted: bool,
}

impl<T: Timed> Queue<T> {
    /// Its first, if it has one: the time, and the bundle.
    #[inline]
    fn head(&self) -> Option<(u64, u64)> {
        self.held.get(self.gone).map(|(event, bundle)| (event.time(), *bundle))
    }

    /// Makes room of what is given away, once it is the greater part.
    fn clear(&mut self) {
        if self.gone >= self.held.len() / 2 {
            self.held.drain(..std::mem::take(&mut self.gone));
        }
    }
}

#[derive(Debug)]
pub(super) struct Order<T> {
    queues: Vec<Queue<T>>,
    /// The queue of this bundle, and its number.
    at: usize,
    bundle: u64,
    /// In all queues.
    held: usize,
    /// Time, bundle and queue of the first of each queue, if it `is_known`.
    heads: BinaryHeap<Reverse<(u64, u64, usize)>>,
    is_known: bool,
    /// Nothing that comes is older: what is can be given away.
    until: Option<u64>,
    /// Too many are held.
    crowded: bool,
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
        Order {
            queues: vec![Queue { held: Vec::new(), gone: 0, sorted: true }],
            at: 0,
            bundle: 0,
            held: 0,
            heads: BinaryHeap::new(),
            is_known: false,
            until: None,
            crowded: false,
            last: None,
            latest: 0,
            rounds: VecDeque::new(),
            given: 0,
            late: 0,
        }
    }

    /// A processor's bundle begins.
    pub(super) fn bundle(&mut self, processor: u32) {
        if self.last.replace(processor).is_some_and(|last| processor < last) {
            self.rounds.push_back(std::mem::take(&mut self.latest));
            if self.rounds.len() > ROUNDS {
                self.rounds.pop_front();
                self.until = self.rounds.front().copied();
            }
        }
        self.at = processor as usize % QUEUES;
        if self.queues.len() <= self.at {
            self.queues.resize_with(self.at + 1, || Queue { held: Vec::new(), gone: 0, sorted: true });
        }
        self.bundle += 1;
    }

    /// Something of this round, wanted or not, happened at that time.
    #[inline]
    pub(super) fn seen(&mut self, time: u64) {
        self.latest = self.latest.max(time);
    }

    /// An event of this bundle; before the first, of who has none.
    #[inline(always)]
    pub(super) fn push(&mut self, event: T) {
        let queue = &mut self.queues[self.at];
        if queue.gone == queue.held.len() {
            (queue.gone, queue.sorted) = (0, true);
            queue.held.clear();
        }
        queue.sorted &= queue.held.last().is_none_or(|(last, _)| last.time() <= event.time());
        queue.held.push((event, self.bundle));
        self.held += 1;
        self.is_known = false;
        self.crowded |= self.held >= MOST;
    }

    /// There is no more.
    pub(super) fn end(&mut self) {
        self.until = Some(u64::MAX);
    }

    /// Finds the first of every queue.
    fn look(&mut self) {
        self.heads.clear();
        for (at, queue) in self.queues.iter_mut().enumerate() {
            queue.clear();
            if !std::mem::replace(&mut queue.sorted, true) {
                queue.held[queue.gone..].sort_by_key(|(event, _)| event.time());
            }
            self.heads.extend(queue.head().map(|(time, bundle)| Reverse((time, bundle, at))));
        }
        self.is_known = true;
    }

    /// The next in order, of those that can be given away.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.until.is_none() && !self.crowded {
            return None;
        }
        if !self.is_known {
            self.look();
        }
        let mut first = self.heads.peek_mut()?;
        let Reverse((time, _, at)) = *first;
        if self.until.is_none_or(|until| time > until) {
            self.crowded &= self.held > MOST / 2;
            if !self.crowded {
                return None;
            }
        }
        let queue = &mut self.queues[at];
        let (event, _) = queue.held[queue.gone];
        queue.gone += 1;
        match queue.head() {
            Some((time, bundle)) => *first = Reverse((time, bundle, at)),
            None => _ = PeekMut::pop(first),
        }
        self.held -= 1;
        if time < self.given {
            self.late += 1;
        }
        self.given = self.given.max(time);
        Some(event)
    }

    /// Events that came when later ones had been given away already.
    pub(super) fn late(&mut self) -> u64 {
        std::mem::take(&mut self.late)
    }
}

#[cfg(test)]
mod tests {
    use device::Rng;

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
                out.extend(std::iter::from_fn(|| order.pop()));
            }
            assert!(order.held <= (ROUNDS + 2) * 200);
        }
        order.end();
        out.extend(std::iter::from_fn(|| order.pop()));
        assert_eq!((out.len(), order.late()), (20_000, 0));
        assert!(out.is_sorted_by_key(|e| e.0));
    }

    /// Rounds of many processors, with moments in which several tell something, and some processors out of order.
    #[test]
    fn merging_gives_what_sorting_all_would_give_moments_in_common_and_all() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let processors = 1 + rng.below(300) as u32;
            let (mut order, mut all, mut out) = (Order::new(), Vec::new(), Vec::new());
            let mut number = 0;
            for round in 0..20_u64 {
                for processor in 0..processors {
                    order.bundle(processor);
                    let mut times: Vec<u64> = (0..rng.below(9)).map(|_| round * 10 + rng.below(10)).collect();
                    if rng.chance(19, 20) {
                        times.sort_unstable();
                    }
                    for time in times {
                        order.seen(time);
                        order.push((time, number));
                        all.push((time, number));
                        number += 1;
                    }
                    // A packet may have several bundles.
                    if rng.chance(1, 2) {
                        out.extend(std::iter::from_fn(|| order.pop()));
                    }
                }
            }
            assert!(processors == 1 || !out.is_empty());
            order.end();
            out.extend(std::iter::from_fn(|| order.pop()));
            all.sort_by_key(|e| e.0);
            assert_eq!((out, order.late()), (all, 0), "seed {seed}");
        }
    }

    #[test]
    fn one_processor_fills_no_memory_and_what_comes_late_is_counted() {
        for bundles in [true, false] {
            let mut order = Order::new();
            for n in 0..500_000 {
                if bundles {
                    order.bundle(0);
                }
                order.push((n + 10, 0));
                while order.pop().is_some() {}
                assert!(order.held < MOST && order.queues[0].held.len() <= 2 * MOST);
            }
            order.push((1, 0));
            order.end();
            while order.pop().is_some() {}
            assert_eq!((order.late(), order.late()), (1, 0));
        }
    }
}
