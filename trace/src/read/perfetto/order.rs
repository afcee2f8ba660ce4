//! How are events of several CPUs sorted by time?
//!
//! Perfetto empties the kernel's buffers in rounds, one CPU after the other. The events of a round happened after the
//! previous round had begun, so events older than everything in the last few rounds can be returned. If the recorder
//! fell behind, or only one CPU is recorded, the number of held events is limited.
//!
//! Events of one CPU are already in order: the CPUs are merged, and sorted only if necessary. Events with equal times
//! keep their order.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use crate::read::tracepoint::Heard;

/// Rounds held; two would suffice if every round emptied every buffer.
const ROUNDS: usize = 4;
/// Most events held; when there are more, some are returned before the end of a round.
const MOST: usize = 1 << 17;
/// CPUs with their own queue; further ones share.
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

/// Events of one CPU that are not returned yet, with the number of their bundle.
#[derive(Debug)]
struct Queue<T> {
    held: Vec<(T, u64)>,
    /// How many of them have been returned.
    gone: usize,
    sorted: bool,
}

impl<T: Timed> Queue<T> {
    /// Time and bundle of its first event, if any.
    #[inline]
    fn head(&self) -> Option<(u64, u64)> {
        self.held.get(self.gone).map(|(event, bundle)| (event.time(), *bundle))
    }

    /// Frees returned events when they are the larger part.
    fn clear(&mut self) {
        if self.gone >= self.held.len() / 2 {
            self.held.drain(..std::mem::take(&mut self.gone));
        }
    }
}

#[derive(Debug)]
pub(super) struct Order<T> {
    queues: Vec<Queue<T>>,
    /// Queue and number of the current bundle.
    at: usize,
    bundle: u64,
    /// Total in all queues.
    held: usize,
    /// Time, bundle and queue of the first event of each queue, if `is_known`.
    heads: BinaryHeap<Reverse<(u64, u64, usize)>>,
    is_known: bool,
    /// No event older than this will arrive: earlier ones can be returned.
    until: Option<u64>,
    /// Too many events are held.
    crowded: bool,
    /// CPU of the last bundle, and latest time of this round.
    last: Option<u32>,
    latest: u64,
    /// Latest times of earlier rounds.
    rounds: VecDeque<u64>,
    /// Latest time returned.
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

    /// Begins a CPU's bundle.
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

    /// Notes the time of any event of this round, used or not.
    #[inline]
    pub(super) fn seen(&mut self, time: u64) {
        self.latest = self.latest.max(time);
    }

    /// Adds an event to this bundle; before the first bundle, to no CPU.
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

    /// Ends the input.
    pub(super) fn end(&mut self) {
        self.until = Some(u64::MAX);
    }

    /// Finds the first event of every queue.
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

    /// The next event in order that can be returned.
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

    /// Number of events that arrived after later ones had been returned.
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
                // Each CPU is read a little later than the previous one, so its events end later.
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

    /// Rounds of many CPUs, with several events at the same time, and some CPUs out of order.
    #[test]
    fn merging_equals_sorting_even_with_equal_times() {
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
    fn one_cpu_fills_no_memory_and_late_events_are_counted() {
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
