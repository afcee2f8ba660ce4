//! When does a die finish its work?
//!
//! A die does one operation at a time. Programs and erases wait in a queue in order of arrival; a read precedes
//! those that have not begun. A channel transfers the bytes of one die at a time; waiting for a channel is modelled
//! as a server with constant rate.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::energy::Nanos;

/// No row: the device's own work.
pub const OWN: u32 = u32::MAX;

/// Queued work of a die.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Job {
    /// Earliest start.
    ready: Nanos,
    /// Channel time before the die begins.
    transfer: Nanos,
    /// Time of the die.
    busy: Nanos,
    /// The buffer row that it completes, or [`OWN`].
    row: u32,
}

/// Moments of a fixed number of items, with fast access to the earliest.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Moments {
    /// A tree whose nodes hold the earlier moment of their two children; the items are its last half.
    tree: Vec<Nanos>,
    half: usize,
}

impl Moments {
    fn new(things: usize) -> Self {
        let half = things.next_power_of_two().max(1);
        Moments { tree: vec![NEVER; 2 * half], half }
    }
    fn first(&self) -> Nanos {
        self.tree[1]
    }
    fn set(&mut self, thing: usize, moment: Nanos) {
        let mut node = self.half + thing;
        self.tree[node] = moment;
        while node > 1 {
            let earlier = self.tree[node].min(self.tree[node ^ 1]);
            node /= 2;
            if self.tree[node] == earlier {
                return;
            }
            self.tree[node] = earlier;
        }
    }
    /// The items with moments up to `until`, in order.
    fn until(&self, until: Nanos, found: &mut Vec<usize>) {
        found.clear();
        let mut node = 1;
        if self.tree[node] > until {
            return;
        }
        loop {
            if self.tree[node] <= until {
                if node < self.half {
                    node *= 2;
                    continue;
                }
                found.push(node - self.half);
            }
            // The next node to the right, above all completed levels.
            while node & 1 == 1 {
                node /= 2;
            }
            if node == 0 {
                return;
            }
            node += 1;
        }
    }
    fn clear(&mut self) {
        self.tree.fill(NEVER);
    }
}

/// All dies and channels. Values that are read for every die at every row are stored together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Dies {
    queues: Vec<VecDeque<Job>>,
    /// When the first job of each queue ends, if it has begun.
    ends: Vec<Option<Nanos>>,
    /// When the last completed job of each queue ends.
    free: Vec<Nanos>,
    /// The sum of each queue's times.
    backlog: Vec<Nanos>,
    /// When the first job of each queue begins or ends next.
    due: Moments,
    /// Scratch list of dies that are due.
    ready: Vec<usize>,
    /// A bit for each die with an empty queue.
    idle: Vec<u64>,
    /// When each channel becomes free.
    channels: Vec<Nanos>,
    /// The channel of each die: `d` modulo the number of channels.
    channel: Vec<u32>,
    /// Programmed rows, to be taken by the buffer.
    pub done: Vec<u32>,
}

const NEVER: Nanos = Nanos(u64::MAX);

/// A set bit for each of `dies` dies.
fn idle(dies: usize) -> Vec<u64> {
    (0..dies.div_ceil(64)).map(|w| u64::MAX >> (64 - (dies - w * 64).min(64))).collect()
}

impl Dies {
    /// Idle dies and channels.
    pub fn new(dies: u32, channels: u32) -> Self {
        let dies = dies as usize;
        Dies {
            queues: vec![VecDeque::new(); dies],
            ends: vec![None; dies],
            free: vec![Nanos(0); dies],
            backlog: vec![Nanos(0); dies],
            due: Moments::new(dies),
            ready: Vec::new(),
            idle: idle(dies),
            channels: vec![Nanos(0); channels as usize],
            channel: (0..dies as u32).map(|die| die % channels).collect(),
            done: Vec::new(),
        }
    }

    /// Updates when the first job of a die's queue begins or ends next.
    fn note(&mut self, die: usize) {
        let begins = || self.queues[die].front().map_or(NEVER, |j| self.free[die].max(j.ready));
        let moment = self.ends[die].unwrap_or_else(begins);
        self.due.set(die, moment);
        match self.backlog[die] == Nanos(0) {
            true => self.idle[die / 64] |= 1 << (die % 64),
            false => self.idle[die / 64] &= !(1 << (die % 64)),
        }
    }

    /// Advances a die to `until`.
    fn run_die(&mut self, die: usize, until: Nanos) {
        let channel = self.channel[die] as usize;
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

    /// Advances all dies to `until`.
    pub fn run(&mut self, until: Nanos) {
        if until < self.due.first() {
            return;
        }
        let mut ready = std::mem::take(&mut self.ready);
        self.due.until(until, &mut ready);
        ready.iter().for_each(|die| self.run_die(*die, until));
        self.ready = ready;
    }

    /// The next moment at which a job begins or ends; `None` if all queues are empty.
    pub fn next(&self) -> Option<Nanos> {
        Some(self.due.first()).filter(|t| *t != NEVER)
    }

    /// The first die accepted by `may` that could begin new work earliest at `now`.
    pub fn least_busy(&self, now: Nanos, may: impl Fn(u32) -> bool) -> Option<u32> {
        // No die can be earlier than an idle one.
        for (word, idle) in self.idle.iter().enumerate() {
            let mut left = *idle;
            while left != 0 {
                let die = word as u32 * 64 + left.trailing_zeros();
                if self.free[die as usize] <= now && may(die) {
                    return Some(die);
                }
                left &= left - 1;
            }
        }
        (0..self.free.len() as u32).filter(|die| may(*die)).min_by_key(|die| self.load(*die, now))
    }

    /// Reads on a die from `at` on and transfers the bytes; returns when the controller has them.
    pub fn read(&mut self, die: u32, at: Nanos, busy: Nanos, transfer: Nanos) -> Nanos {
        let die = die as usize;
        self.run_die(die, at);
        let start = at.max(self.free[die]).max(self.ends[die].unwrap_or(Nanos(0)));
        self.free[die] = start + busy;
        self.note(die);
        let channel = &mut self.channels[self.channel[die] as usize];
        *channel = (*channel).max(self.free[die]) + transfer;
        *channel
    }

    /// Queues work for which no request waits.
    pub fn push(&mut self, die: u32, ready: Nanos, transfer: Nanos, busy: Nanos, row: u32) {
        let die = die as usize;
        self.queues[die].push_back(Job { ready, transfer, busy, row });
        self.backlog[die] += transfer + busy;
        self.note(die);
    }

    /// When a die could begin new work.
    pub fn load(&self, die: u32, now: Nanos) -> Nanos {
        self.free[die as usize].max(now) + self.backlog[die as usize]
    }

    /// When the last completed job ended, if all queues are empty.
    pub fn quiet_since(&self) -> Option<Nanos> {
        self.queues.iter().all(VecDeque::is_empty).then(|| self.free.iter().copied().max())?
    }

    /// Drops all work; every die is free at `now`.
    pub fn stop(&mut self, now: Nanos) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.ends.fill(None);
        self.free.fill(now);
        self.backlog.fill(Nanos(0));
        self.due.clear();
        self.idle = idle(self.free.len());
        self.channels.fill(now);
        self.done.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn what_is_due_is_found_in_order_and_the_first_to_come_is_known() {
        let mut rng = Rng::new(7);
        for things in [1, 2, 3, 8, 9, 64, 100] {
            let (mut moments, mut plain) = (Moments::new(things), vec![NEVER; things]);
            let mut found = Vec::new();
            for _ in 0..400 {
                let (thing, moment) = (rng.index(things), Nanos(rng.below(50)));
                let moment = if rng.below(4) == 0 { NEVER } else { moment };
                moments.set(thing, moment);
                plain[thing] = moment;
                assert_eq!(Some(moments.first()), plain.iter().copied().min());
                let until = Nanos(rng.below(60));
                moments.until(until, &mut found);
                let expected: Vec<_> = (0..things).filter(|n| plain[*n] <= until).collect();
                assert_eq!(found, expected, "{things} things until {until:?}");
            }
        }
    }

    #[test]
    fn the_least_busy_die_is_the_first_of_those_with_the_least_work() {
        let mut rng = Rng::new(8);
        for count in [1, 5, 64, 70] {
            let mut dies = Dies::new(count, 3.min(count));
            let mut now = Nanos(0);
            for _ in 0..500 {
                let die = rng.below(u64::from(count)) as u32;
                let busy = Nanos(rng.below(5_000));
                if rng.below(4) == 0 {
                    dies.read(die, now, busy, Nanos(10));
                } else {
                    dies.push(die, now, Nanos(7), busy, OWN);
                }
                now += Nanos(rng.below(1_000));
                dies.run(now);
                let barred = rng.below(u64::from(count)) as u32;
                let may = |d: u32| d != barred;
                let plain = (0..count).filter(|d| may(*d)).min_by_key(|d| dies.load(*d, now));
                assert_eq!(dies.least_busy(now, may), plain);
            }
        }
    }
}
