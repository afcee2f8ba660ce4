//! A mobile disk: an arm that seeks, a spinning platter, a read-ahead buffer, and a motor that can be stopped.
//!
//! At every moment the disk is in one mode of Table 3.1 of Scherl 2004 (seeking, rotating, reading, writing, idle,
//! stand-by), in an idle level of its data sheet, on its way back from one, or spinning up, and draws that mode's
//! power. The platter's angle follows from the time, so rotational latency is deterministic. Requests are served in
//! order of arrival; written blocks may wait in a cache, and their way to the platter begins immediately.
//!
//! The disk enters an idle level when the arm has been unused for the level's time; read-ahead and writing from the
//! cache use the arm. The next request that needs the arm waits for the return and pays its energy, which covers
//! entering too; the head position is unchanged. Work of the electronics alone (a read from the buffer, an empty
//! flush) neither leaves a level nor delays deeper ones. The motor stops at its time from any level, and the return
//! from there is spinning up.
//!
//! Left out: heads, scheduling inside the disk, energy of the link, reduced motor speeds, slower buffer reads in an
//! idle level.

mod buffer;
mod platter;
mod seek;
mod writes;

use serde::{Deserialize, Serialize};

use self::buffer::Buffer;
use self::platter::{Femto, Platter, femto, nanos};
use self::seek::Curve;
use self::writes::Writes;
use super::{Ask, Model, ModelState};
use crate::energy::profile::{DiskSpec, IdleSpec, TimePerByte};
use crate::energy::{Bill, Energy, Nanos, Part, Power};
use crate::{BLOCK, Lba, Tag};

/// Shortest standstill that saves energy: a longer time without requests costs more in idling (including the idle
/// levels and their return) than in standing and spinning up for the next request. `None` if standing never saves
/// energy.
pub fn break_even(spec: &DiskSpec) -> Option<Nanos> {
    // A microwatt over a nanosecond is a femtojoule.
    let standing = i128::from(spec.standby_power.value.0);
    let (mut level, mut power, mut way_back) = (Nanos(0), spec.idle_power.value, Energy::ZERO);
    // Extra cost of idling over standing when this level is entered.
    let mut more: i128 = 0;
    let mut next = spec.idle.iter().map(|l| (l.after.value, l.power.value, l.wake_energy.value)).peekable();
    loop {
        let missing = i128::from(spec.spin_up_energy.value.0) * 1000 - more - i128::from(way_back.0) * 1000;
        let saved = i128::from(power.0) - standing;
        let pays = (saved > 0).then(|| missing.max(0) / saved);
        let lasts = next.peek().map(|(begins, ..)| i128::from(begins.since(level).0));
        if let Some(pays) = pays.filter(|pays| lasts.is_none_or(|lasts| *pays <= lasts)) {
            return Some(Nanos(level.0.saturating_add(u64::try_from(pays).unwrap_or(u64::MAX))));
        }
        more += saved * lasts?;
        (level, power, way_back) = next.next()?;
    }
}

/// An idle level.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Level {
    after: Nanos,
    power: Power,
    wake: Nanos,
    energy: Energy,
}

impl Level {
    fn new(spec: &IdleSpec) -> Self {
        let (after, power) = (spec.after.value, spec.power.value);
        Level { after, power, wake: spec.wake.value, energy: spec.wake_energy.value }
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Modes {
    seek: Power,
    rotate: Power,
    read: Power,
    write: Power,
    idle: Power,
    standby: Power,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Counts {
    reads: u64,
    writes: u64,
    from_buffer: u64,
    seeks: u64,
    standbys: u64,
    spin_ups: u64,
    wakes: u64,
}

/// The model of a disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Disk {
    blocks: u64,
    curve: Curve,
    platter: Platter,
    power: Modes,
    request: Nanos,
    link: TimePerByte,
    write_settle: Nanos,
    /// Written blocks that may wait.
    write_room: u64,
    standby_after: Option<Nanos>,
    spin_up: Nanos,
    spin_up_energy: Energy,
    levels: Vec<Level>,

    /// The time up to which energy is booked.
    paid: Nanos,
    /// When the arm finishes its work.
    free: Femto,
    /// The block under the head at that time.
    head: u64,
    /// True if the arm's last work is a write.
    writing: bool,
    buffer: Buffer,
    waiting: Writes,
    /// When the last request or read-ahead ended.
    rest: Nanos,
    standing: bool,
    /// The current idle level.
    level: Option<usize>,
    counts: Counts,
}

impl Disk {
    /// A disk like `spec` with `blocks` blocks, spinning, with its arm at the outermost track.
    pub fn new(spec: &DiskSpec, blocks: u64) -> Self {
        let platter = Platter::new(spec, blocks);
        Disk {
            blocks,
            curve: Curve::new(spec, platter.track(blocks.saturating_sub(1)) + 1),
            power: Modes {
                seek: spec.seek_power.value,
                rotate: spec.rotate_power.value,
                read: spec.read_power.value,
                write: spec.write_power.value,
                idle: spec.idle_power.value,
                standby: spec.standby_power.value,
            },
            request: spec.request.value,
            link: spec.link.value,
            write_settle: spec.write_settle.value,
            write_room: spec.write_cache.value / BLOCK as u64,
            standby_after: Some(spec.standby_after.value).filter(|t| *t > Nanos(0)),
            spin_up: spec.spin_up.value,
            spin_up_energy: spec.spin_up_energy.value,
            levels: spec.idle.iter().map(Level::new).collect(),
            paid: Nanos(0),
            free: 0,
            head: 0,
            writing: false,
            buffer: Buffer::new(spec.buffer.value / BLOCK as u64),
            waiting: Writes::default(),
            rest: Nanos(0),
            standing: false,
            level: None,
            counts: Counts::default(),
            platter,
        }
    }

    /// Books a mode from the end of the booked time until `until`.
    fn stay(&mut self, part: Part, power: Power, until: Nanos, bill: &mut Bill) {
        let time = until.since(self.paid);
        if time > Nanos(0) {
            bill.add_power(part, power, time);
            self.paid = until;
        }
    }

    /// Books the time until `until`, in which the arm gets no new work.
    fn pay(&mut self, until: Nanos, bill: &mut Bill) {
        if let Some(stops) = self.buffer.stops(&self.platter).map(nanos) {
            self.stay(Part::PlatterRead, self.power.read, until.min(stops), bill);
            self.rest = self.rest.max(until.min(stops));
        }
        // The disk does not rest while the arm works.
        self.rest = self.rest.max(nanos(self.free));
        if !self.standing {
            let sleeps = self.standby_after.map_or(Nanos(u64::MAX), |t| self.rest + t);
            self.idle(until.min(sleeps), bill);
            if until > sleeps {
                (self.standing, self.level) = (true, None);
                self.counts.standbys += 1;
            }
        }
        self.stay(Part::Sleep, self.power.standby, until, bill);
        bill.rested(until.since(self.rest), false);
    }

    /// Books the time until `until`, in which the platter spins and the arm is unused.
    fn idle(&mut self, until: Nanos, bill: &mut Bill) {
        let begins = |n: usize, disk: &Self| disk.levels.get(n).map_or(Nanos(u64::MAX), |l| disk.rest + l.after);
        self.stay(Part::Idle, self.power.idle, until.min(begins(0, self)), bill);
        for n in 0..self.levels.len() {
            if until <= begins(n, self) {
                return;
            }
            self.level = Some(n);
            self.stay(Part::Idle, self.levels[n].power, until.min(begins(n + 1, self)), bill);
        }
    }

    /// Returns the moment from which the platter spins and the arm is usable.
    fn awake(&mut self, now: Nanos, bill: &mut Bill) -> Nanos {
        bill.rested(now.since(self.rest), true);
        if let Some(level) = self.level.take().map(|n| self.levels[n]) {
            self.counts.wakes += 1;
            self.writing = false;
            bill.add(Part::Idle, level.energy);
            self.paid = now + level.wake;
            self.rest = self.paid;
            return self.paid;
        }
        if !self.standing {
            // Time before the arm moves is not rest either.
            self.rest = self.rest.max(now);
            return now;
        }
        self.standing = false;
        self.counts.spin_ups += 1;
        self.writing = false;
        self.head = self.buffer.stop(femto(now), &self.platter).unwrap_or(self.head);
        bill.add(Part::SpinUp, self.spin_up_energy);
        self.paid = now + self.spin_up;
        self.rest = self.paid;
        self.paid
    }

    /// Time of moving the arm from one block to another.
    fn seek(&self, from: u64, to: u64) -> Nanos {
        self.curve.time(self.platter.track(from).abs_diff(self.platter.track(to)))
    }

    /// Moves the arm and waits for block `at`, from `begin` on; returns when it passes.
    fn position(&mut self, begin: Femto, at: u64, settle: Nanos, bill: &mut Bill) -> Femto {
        self.pay(nanos(begin), bill);
        let mut seek = self.seek(self.head, at);
        if seek > Nanos(0) {
            seek += settle;
            self.counts.seeks += 1;
        }
        let there = begin + femto(seek);
        self.stay(Part::Seek, self.power.seek, nanos(there), bill);
        let passes = there + self.platter.until(at, there);
        self.stay(Part::Rotate, self.power.rotate, nanos(passes), bill);
        passes
    }

    /// Stops read-ahead because the arm is needed.
    fn call_away(&mut self, at: Nanos, bill: &mut Bill) {
        self.pay(at, bill);
        if let Some(under) = self.buffer.stop(femto(at), &self.platter) {
            self.head = under;
        }
    }

    fn read(&mut self, now: Nanos, at: u64, blocks: u64, bill: &mut Bill) -> Nanos {
        self.counts.reads += 1;
        let end = at + blocks;
        let link = self.link.of(blocks * BLOCK as u64);
        if self.buffer.holds(at, end, femto(now), &self.platter) {
            self.counts.from_buffer += 1;
            self.buffer.extend(end, femto(now), self.blocks, &self.platter);
            return now + self.request + link;
        }
        let begin = self.awake(now, bill) + self.request;
        let start = femto(begin).max(self.free);
        let under = self.buffer.end(start, &self.platter);
        let there = start + femto(self.seek(under, at));
        let afresh = there + self.platter.until(at, there) + self.platter.passing(at, end);
        let passed = match self.buffer.arrives(at, end, start, &self.platter) {
            Some(comes) if comes <= afresh => {
                self.counts.from_buffer += 1;
                self.buffer.extend(end, start, self.blocks, &self.platter);
                comes
            }
            _ => {
                self.call_away(begin, bill);
                let starts = self.position(start, at, Nanos(0), bill);
                let passed = starts + self.platter.passing(at, end);
                self.stay(Part::PlatterRead, self.power.read, nanos(passed), bill);
                self.buffer.start(at, end, passed, self.blocks);
                (self.free, self.head, self.writing) = (passed, end, false);
                passed
            }
        };
        (begin + link).max(nanos(passed) + self.link.of(BLOCK as u64))
    }

    fn write(&mut self, now: Nanos, at: u64, blocks: u64, bill: &mut Bill) -> Nanos {
        self.counts.writes += 1;
        let begin = self.awake(now, bill) + self.request;
        let first = begin + self.link.of(BLOCK as u64);
        let all_in = begin + self.link.of(blocks * BLOCK as u64);
        self.call_away(first, bill);
        self.buffer.forget(at, at + blocks);
        self.waiting.prune(femto(now), &self.platter);
        let goes_on = self.writing && self.head == at && femto(first) <= self.free;
        let starts = match goes_on {
            true => self.free,
            false => self.position(self.free.max(femto(first)), at, self.write_settle, bill),
        };
        let passed = starts + self.platter.passing(at, at + blocks);
        self.stay(Part::PlatterWrite, self.power.write, nanos(passed), bill);
        (self.free, self.head, self.writing) = (passed, at + blocks, true);
        self.waiting.push(at, blocks, starts);
        all_in.max(nanos(self.waiting.fits(self.write_room, &self.platter)))
    }
}

impl Model for Disk {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn serve(&mut self, now: Nanos, ask: Ask, _: Tag, bill: &mut Bill) -> Nanos {
        self.pay(now, bill);
        let done = match ask {
            Ask::Read { blocks: 0, .. } | Ask::Write { blocks: 0, .. } => now,
            Ask::Read { at, blocks } => self.read(now, at.0, blocks, bill),
            Ask::Write { at, blocks } => self.write(now, at.0, blocks, bill),
            Ask::Flush => (now + self.request).max(nanos(self.waiting.fits(0, &self.platter))),
            // Disks of this kind have neither discard nor remap.
            Ask::Discard { .. } | Ask::Remap { .. } => now,
        };
        self.pay(done, bill);
        if !self.standing && self.level.is_none() {
            self.rest = self.rest.max(done).max(nanos(self.free));
        }
        done
    }

    fn wait(&mut self, now: Nanos, bill: &mut Bill) {
        self.pay(now, bill);
    }

    fn power_cycle(&mut self, now: Nanos, bill: &mut Bill) -> Nanos {
        self.pay(now, bill);
        let done = now.max(nanos(self.waiting.fits(0, &self.platter)));
        self.pay(done, bill);
        let lost = self.cut(done);
        debug_assert_eq!(lost, []);
        done
    }

    fn cut(&mut self, now: Nanos) -> Vec<Lba> {
        let lost = self.waiting.lose(femto(now), &self.platter);
        self.call_away(now, &mut Bill::default());
        self.buffer.forget(0, u64::MAX);
        (self.paid, self.rest, self.free) = (now, now, femto(now));
        (self.standing, self.level, self.writing) = (true, None, false);
        lost
    }

    fn remaps(&self) -> bool {
        false
    }

    fn state(&self) -> Option<ModelState> {
        Some(ModelState::Disk(Box::new(self.clone())))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counts;
        let mut all = vec![
            ("reads", c.reads),
            ("writes", c.writes),
            ("reads_from_buffer", c.from_buffer),
            ("seeks", c.seeks),
            ("standbys", c.standbys),
            ("spin_ups", c.spin_ups),
        ];
        if !self.levels.is_empty() {
            all.push(("wakes", c.wakes));
        }
        all
    }
}
