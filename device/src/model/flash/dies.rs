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

/// All dies and channels. What is asked of every die for every row, when it is free and what waits, lies together.
#[derive(Debug)]
pub struct Dies {
    queues: Vec<VecDeque<Job>>,
    /// When the first of each queue ends, if it has begun.
    ends: Vec<Option<Nanos>>,
    /// When the last work that has left each queue ends.
    free: Vec<Nanos>,
    /// The sum of each queue's times.
    backlog: Vec<Nanos>,
    /// When the first of each queue begins or ends next.
    due: Vec<Nanos>,
    /// When each channel is free; die `d` is on channel `d` modulo their number.
    channels: Vec<Nanos>,
    /// Nothing begins or ends before this.
    next: Nanos,
    /// Rows that are programmed, to be taken by the buffer.
    pub done: Vec<u32>,
}

const NEVER: Nanos = Nanos(u64::MAX);

impl Dies {
    /// Idle dies and channels.
    pub fn new(dies: u32, channels: u32) -> Self {
        let dies = dies as usize;
        Dies {
            queues: vec![VecDeque::new(); dies],
            ends: vec![None; dies],
            free: vec![Nanos(0); dies],
            backlog: vec![Nanos(0); dies],
            due: vec![NEVER; dies],
            channels: vec![Nanos(0); channels as usize],
            next: NEVER,
            done: Vec::new(),
        }
    }

    /// Notes when the first of a die's queue begins or ends next.
    fn note(&mut self, die: usize) {
        let begins = || self.queues[die].front().map_or(NEVER, |j| self.free[die].max(j.ready));
        self.due[die] = self.ends[die].unwrap_or_else(begins);
    }

    /// Lets time come to `until` on a die.
    fn run_die(&mut self, die: usize, until: Nanos) {
        let channel = die % self.channels.len();
        while let Some(job) = self.queues[die].front().copied() {
            let ends = match self.ends[die] {
                Some(t) => t,
                None => {
                    let start = self.free[die].max(job.ready);
                    if start > until {
                        break;
                    }
                    let mut there = start;
                    if job.transfer > Nanos(0) {
                        let channel = &mut self.channels[channel];
                        *channel = (*channel).max(start) + job.transfer;
                        there = *channel;
                    }
                    self.ends[die] = Some(there + job.busy);
                    there + job.busy
                }
            };
            if ends > until {
                break;
            }
            if job.row != OWN {
                self.done.push(job.row);
            }
            self.backlog[die] = self.backlog[die].since(job.transfer + job.busy);
            (self.free[die], self.ends[die]) = (ends, None);
            self.queues[die].pop_front();
        }
        self.note(die);
    }

    /// Lets time come to `until`.
    pub fn run(&mut self, until: Nanos) {
        if until < self.next {
            return;
        }
        for die in 0..self.due.len() {
            if self.due[die] <= until {
                self.run_die(die, until);
            }
        }
        self.next = self.due.iter().copied().min().unwrap_or(NEVER);
    }

    /// The moment at which something begins or ends next; none if nothing waits.
    pub fn next(&self) -> Option<Nanos> {
        Some(self.next).filter(|t| *t != NEVER)
    }

    /// True if nothing begins or ends up to a moment.
    pub fn quiet(&self, until: Nanos) -> bool {
        until < self.next
    }

    /// Reads on a die from `at` on, and moves the bytes; says when they are with the controller.
    pub fn read(&mut self, die: u32, at: Nanos, busy: Nanos, transfer: Nanos) -> Nanos {
        let die = die as usize;
        self.run_die(die, at);
        let start = at.max(self.free[die]).max(self.ends[die].unwrap_or(Nanos(0)));
        self.free[die] = start + busy;
        self.note(die);
        self.next = self.next.min(self.due[die]);
        let channels = self.channels.len();
        let channel = &mut self.channels[die % channels];
        *channel = (*channel).max(self.free[die]) + transfer;
        *channel
    }

    /// Gives a die work for which no request waits.
    pub fn push(&mut self, die: u32, ready: Nanos, transfer: Nanos, busy: Nanos, row: u32) {
        let die = die as usize;
        self.queues[die].push_back(Job { ready, transfer, busy, row });
        self.backlog[die] += transfer + busy;
        self.note(die);
        self.next = self.next.min(self.due[die]);
    }

    /// When a die could begin new work, by the work it has.
    pub fn load(&self, die: u32, now: Nanos) -> Nanos {
        self.free[die as usize].max(now) + self.backlog[die as usize]
    }

    /// When the last work that has left the queues ends, if none waits.
    pub fn quiet_since(&self) -> Option<Nanos> {
        self.queues.iter().all(VecDeque::is_empty).then(|| self.free.iter().copied().max())?
    }

    /// Drops all work; every die is free at `now`.
    pub fn stop(&mut self, now: Nanos) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.ends.fill(None);
        self.free.fill(now);
        self.backlog.fill(Nanos(0));
        self.due.fill(NEVER);
        self.channels.fill(now);
        self.next = NEVER;
        self.done.clear();
    }
}
