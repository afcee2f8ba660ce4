//! How are the events of several CPUs merged by time?
//!
//! Each CPU has its own buffers, which are in order. With one file per CPU, the earliest event is always taken next. In
//! one stream, buffers follow each other as they were emptied, twenty times per second; [`WINDOW`] events are held, and
//! the earliest of them is taken.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Named;
use super::record::{Keyed, Stream};
use crate::TraceError;
use crate::block::Event;

/// Least number of held events of one stream; more, up to [`MOST`], are read at a time.
const WINDOW: usize = 28 << 10;
/// Most held events of one stream.
const MOST: usize = 32 << 10;
/// Events read at a time from one of several files.
const BATCH: usize = 256;

/// Sort key of an event, and its queue.
type Head = ((u64, u32, u32), u32);

pub(super) struct Order {
    streams: Vec<Stream>,
    ended: Vec<bool>,
    /// Events not returned yet: one queue per CPU of a single stream, or one per file.
    queues: Vec<VecDeque<Keyed>>,
    /// First events of the non-empty queues, without the current queue.
    heads: BinaryHeap<Reverse<Head>>,
    /// The queue to take from while its first event precedes all of `heads`.
    current: usize,
    /// Events in all queues.
    held: usize,
    /// The error that ended a stream, returned after all readable events.
    failed: Option<TraceError>,
}

impl Order {
    pub(super) fn of_stream(stream: Stream) -> Self {
        Order::new(vec![stream])
    }

    pub(super) fn of_files(streams: Vec<Stream>) -> Self {
        let mut order = Order::new(streams);
        order.queues.resize_with(order.streams.len(), VecDeque::new);
        order
    }

    fn new(streams: Vec<Stream>) -> Self {
        Order {
            ended: vec![false; streams.len()],
            streams,
            queues: Vec::new(),
            heads: BinaryHeap::new(),
            current: 0,
            held: 0,
            failed: None,
        }
    }

    pub(super) fn consumed(&self) -> u64 {
        self.streams.iter().map(|s| s.input.consumed()).sum()
    }

    #[inline]
    pub(super) fn next(&mut self, known: &mut Named) -> Result<Option<Event>, TraceError> {
        if self.streams.len() == 1 {
            if self.held < WINDOW && !self.ended[0] {
                self.fill_window(known);
            }
        } else if self.held == 0 && self.ended.contains(&false) {
            (0..self.streams.len()).for_each(|file| self.fill_from(file, known));
            self.choose();
        }
        let Some(keyed) = self.queues.get_mut(self.current).and_then(VecDeque::pop_front) else {
            return self.failed.take().map_or(Ok(None), Err);
        };
        self.held -= 1;
        if self.streams.len() > 1 && self.queues[self.current].is_empty() {
            self.fill_from(self.current, known);
        }
        let next = self.queues[self.current].front().map(Keyed::key);
        let first = self.heads.peek().map(|Reverse((key, _))| *key);
        match (next, first) {
            (_, None) => {}
            (Some(next), Some(first)) if next <= first => {}
            (next, Some(_)) => {
                if let Some(next) = next {
                    self.heads.push(Reverse((next, self.current as u32)));
                }
                self.take_first();
            }
        }
        Ok(Some(keyed.event))
    }

    /// Switches to the queue with the earliest event.
    fn take_first(&mut self) {
        if let Some(Reverse((_, queue))) = self.heads.pop() {
            self.current = queue as usize;
        }
    }

    fn choose(&mut self) {
        self.heads.clear();
        for (n, queue) in self.queues.iter().enumerate() {
            if let Some(first) = queue.front() {
                self.heads.push(Reverse((first.key(), n as u32)));
            }
        }
        self.take_first();
    }

    fn fill_window(&mut self, known: &mut Named) {
        while self.held < MOST {
            match self.streams[0].next(known) {
                Ok(Some(keyed)) => {
                    if self.queues.len() < self.streams[0].lanes() {
                        self.queues.resize_with(self.streams[0].lanes(), VecDeque::new);
                    }
                    self.queues[keyed.lane as usize].push_back(keyed);
                    self.held += 1;
                }
                end => {
                    self.ended[0] = true;
                    self.failed = end.err();
                    break;
                }
            }
        }
        self.choose();
    }

    fn fill_from(&mut self, file: usize, known: &mut Named) {
        while !self.ended[file] && self.queues[file].len() < BATCH {
            match self.streams[file].next(known) {
                Ok(Some(keyed)) => {
                    self.queues[file].push_back(keyed);
                    self.held += 1;
                }
                end => {
                    self.ended[file] = true;
                    // Keep the first error; one is enough to show that the recording is incomplete.
                    self.failed = self.failed.take().or(end.err());
                }
            }
        }
    }
}
