//! The events of several processors in one order, that of their times.
//!
//! Each processor has buffers of its own, in which events are in order. From files, one a processor, always the
//! earliest event is taken. In one stream buffers follow each other as they were emptied, twenty times a second;
//! [`WINDOW`] events are held, and the earliest of them is taken.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Named;
use super::record::{Keyed, Stream};
use crate::TraceError;
use crate::block::Event;

/// Events of one stream that are held, at least; more, up to [`MOST`], are read at a time.
const WINDOW: usize = 28 << 10;
/// Events of one stream that are held, at most.
const MOST: usize = 32 << 10;
/// Events read at a time from one of several files.
const BATCH: usize = 256;

/// What an event is sorted by, and its queue.
type Head = ((u64, u32, u32), u32);

pub(super) struct Order {
    streams: Vec<Stream>,
    ended: Vec<bool>,
    /// Events read and not given yet: of each processor in the only stream, or of each file.
    queues: Vec<VecDeque<Keyed>>,
    /// The first of each queue that is not empty, but for the current one.
    heads: BinaryHeap<Reverse<Head>>,
    /// The queue that events are taken from, as long as its first is before all of `heads`.
    current: usize,
    /// Events in all queues.
    held: usize,
    /// What ended a stream, told when everything that could be read was given.
    failed: Option<TraceError>,
}

impl Order {
    pub(super) fn of_stream(stream: Stream) -> Self {
        Order::of(vec![stream])
    }

    pub(super) fn of_files(streams: Vec<Stream>) -> Self {
        let mut order = Order::of(streams);
        order.queues.resize_with(order.streams.len(), VecDeque::new);
        order
    }

    fn of(streams: Vec<Stream>) -> Self {
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

    /// Goes to the queue whose first event is before all others'.
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
                    // The first is told; one is enough to know that the recording is not whole.
                    self.failed = self.failed.take().or(end.err());
                }
            }
        }
    }
}
