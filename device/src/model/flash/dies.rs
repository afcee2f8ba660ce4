//! When does a die finish its work?
//!
//! A die does one thing at a time. Programs and erases wait in a queue in order of arrival; a read goes before those
//! that have not begun. A channel moves the bytes of one die at a time; the waiting for a channel is computed as for a
//! server of constant rate.

use std::collections::VecDeque;

use crate::energy::Nanos;

/// No row: the work is the device's own.
pub const OWN: u32 = u32::MAX;

/// Work that waits for a die.
#[derive(Debug, Clone, Copy)]
struct Job {
    /// Not before.
    ready: Nanos,
    /// Time on the channel before the die begins.
    transfer: Nanos,
    /// Time of the die.
    busy: Nanos,
    /// The row of the buffer that is done with it, or [`OWN`].
    row: u32,
}

#[derive(Debug, Default)]
struct Die {
    queue: VecDeque<Job>,
    /// When the first of the queue ends, if it has begun.
    ends: Option<Nanos>,
    /// When the last work that has left the queue ends.
    free: Nanos,
    /// The sum of the queue's times.
    backlog: Nanos,
}

/// All dies and channels.
#[derive(Debug)]
pub struct Dies {
    dies: Vec<Die>,
    /// When each channel is free; die `d` is on channel `d` modulo their number.
    channels: Vec<Nanos>,
    /// Nothing begins or ends before this.
    next: Nanos,
    /// Rows that are programmed, to be taken by the buffer.
    pub done: Vec<u32>,
}

const NEVER: Nanos = Nanos(u64::MAX);

impl Die {
    /// When the first of the queue begins or ends next.
    fn next(&self) -> Nanos {
        self.ends.unwrap_or_else(|| self.queue.front().map_or(NEVER, |j| self.free.max(j.ready)))
    }

    fn run(&mut self, until: Nanos, channel: &mut Nanos, done: &mut Vec<u32>) {
        while let Some(job) = self.queue.front() {
            let ends = match self.ends {
                Some(t) => t,
                None => {
                    let start = self.free.max(job.ready);
                    if start > until {
                        return;
                    }
                    let mut there = start;
                    if job.transfer > Nanos(0) {
                        *channel = (*channel).max(start) + job.transfer;
                        there = *channel;
                    }
                    self.ends = Some(there + job.busy);
                    there + job.busy
                }
            };
            if ends > until {
                return;
            }
            if job.row != OWN {
                done.push(job.row);
            }
            self.backlog = self.backlog.since(job.transfer + job.busy);
            self.free = ends;
            self.ends = None;
            self.queue.pop_front();
        }
    }
}

impl Dies {
    /// Idle dies and channels.
    pub fn new(dies: u32, channels: u32) -> Self {
        Dies {
            dies: (0..dies).map(|_| Die::default()).collect(),
            channels: vec![Nanos(0); channels as usize],
            next: NEVER,
            done: Vec::new(),
        }
    }

    /// Lets time come to `until`.
    pub fn run(&mut self, until: Nanos) {
        if until < self.next {
            return;
        }
        let channels = self.channels.len();
        self.next = NEVER;
        for (i, die) in self.dies.iter_mut().enumerate() {
            die.run(until, &mut self.channels[i % channels], &mut self.done);
            self.next = self.next.min(die.next());
        }
    }

    /// The moment at which something begins or ends next; none if nothing waits.
    pub fn next(&self) -> Option<Nanos> {
        Some(self.next).filter(|t| *t != NEVER)
    }

    /// Reads on a die from `at` on, and moves the bytes; says when they are with the controller.
    pub fn read(&mut self, die: u32, at: Nanos, busy: Nanos, transfer: Nanos) -> Nanos {
        let channels = self.channels.len();
        let channel = &mut self.channels[die as usize % channels];
        let d = &mut self.dies[die as usize];
        d.run(at, channel, &mut self.done);
        let start = at.max(d.free).max(d.ends.unwrap_or(Nanos(0)));
        d.free = start + busy;
        *channel = (*channel).max(d.free) + transfer;
        self.next = self.next.min(d.next());
        *channel
    }

    /// Gives a die work for which no request waits.
    pub fn push(&mut self, die: u32, ready: Nanos, transfer: Nanos, busy: Nanos, row: u32) {
        let d = &mut self.dies[die as usize];
        d.queue.push_back(Job { ready, transfer, busy, row });
        d.backlog += transfer + busy;
        self.next = self.next.min(d.next());
    }

    /// When a die could begin new work, by the work it has.
    pub fn load(&self, die: u32, now: Nanos) -> Nanos {
        let d = &self.dies[die as usize];
        d.free.max(now) + d.backlog
    }

    /// When the last work that has left the queues ends, if none waits.
    pub fn quiet_since(&self) -> Option<Nanos> {
        self.dies.iter().all(|d| d.queue.is_empty()).then(|| self.dies.iter().map(|d| d.free).max())?
    }

    /// Drops all work; every die is free at `now`.
    pub fn stop(&mut self, now: Nanos) {
        for d in &mut self.dies {
            d.queue.clear();
            (d.ends, d.free, d.backlog) = (None, now, Nanos(0));
        }
        self.channels.fill(now);
        self.next = NEVER;
        self.done.clear();
    }
}
