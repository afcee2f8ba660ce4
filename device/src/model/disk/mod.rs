//! A mobile disk: an arm that seeks, a platter that turns, a buffer that is read ahead into, and a motor
//! that can be stopped.
//!
//! The disk is at every moment in one mode of Table 3.1 of Scherl 2004 (seeking, rotating, reading,
//! writing, idle, stand-by) or spinning up, and pays that mode's power for as long as it lasts. Where the
//! platter is follows from the time, so the latency of rotation is deterministic. Requests are done in
//! the order they arrive in; written blocks may wait in a cache and are on their way to the platter at once.
//!
//! Left out: zones of different density, heads, scheduling inside the disk, energy of the link.

mod buffer;
mod platter;
mod seek;
mod writes;

use self::buffer::Buffer;
use self::platter::{Femto, Platter, femto, nanos};
use self::seek::Curve;
use self::writes::Writes;
use super::{Ask, Model};
use crate::energy::profile::{DiskSpec, TimePerByte};
use crate::energy::{Bill, Energy, Nanos, Part, Power};
use crate::{BLOCK, Lba, Tag};

/// How long a disk must stand still for its standing to pay: waiting longer than this without a request
/// costs more idling than it costs standing and spinning up for the next request. None if standing saves
/// no power.
pub fn break_even(spec: &DiskSpec) -> Option<Nanos> {
    let saved = spec.idle_power.value.0.checked_sub(spec.standby_power.value.0).filter(|p| *p > 0)?;
    // Picojoules over microwatts are microseconds.
    let ns = u128::from(spec.spin_up_energy.value.0) * 1000 / u128::from(saved);
    Some(Nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
}

#[derive(Debug, Clone, Copy)]
struct Modes {
    seek: Power,
    rotate: Power,
    read: Power,
    write: Power,
    idle: Power,
    standby: Power,
}

#[derive(Debug, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    from_buffer: u64,
    seeks: u64,
    standbys: u64,
    spin_ups: u64,
}

/// The inside of a disk.
#[derive(Debug)]
pub struct Disk {
    blocks: u64,
    curve: Curve,
    platter: Platter,
    power: Modes,
    request: Nanos,
    link: TimePerByte,
    write_settle: Nanos,
    /// Blocks written that may wait.
    write_room: u64,
    standby_after: Option<Nanos>,
    spin_up: Nanos,
    spin_up_energy: Energy,

    /// Up to here everything is on a bill.
    paid: Nanos,
    /// When the arm has done what it was given.
    free: Femto,
    /// The block that is under the head then.
    head: u64,
    /// True if the last thing the arm was given is a write.
    writing: bool,
    buffer: Buffer,
    waiting: Writes,
    /// When the last request or reading ahead ended.
    rest: Nanos,
    standing: bool,
    counts: Counts,
}

impl Disk {
    /// A disk like `spec` with so many blocks, its platter turning and its arm at the outermost track.
    pub fn new(spec: &DiskSpec, blocks: u64) -> Self {
        let platter = Platter::new(spec);
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
            paid: Nanos(0),
            free: 0,
            head: 0,
            writing: false,
            buffer: Buffer::new(spec.buffer.value / BLOCK as u64),
            waiting: Writes::default(),
            rest: Nanos(0),
            standing: false,
            counts: Counts::default(),
            platter,
        }
    }

    /// Pays a mode from the moment everything is paid up to until `until`.
    fn stay(&mut self, part: Part, power: Power, until: Nanos, bill: &mut Bill) {
        let time = until.since(self.paid);
        if time > Nanos(0) {
            bill.add_power(part, power, time);
            self.paid = until;
        }
    }

    /// Pays for the time until `until`, in which the arm is given nothing new.
    fn pay(&mut self, until: Nanos, bill: &mut Bill) {
        if let Some(stops) = self.buffer.stops(&self.platter).map(nanos) {
            self.stay(Part::PlatterRead, self.power.read, until.min(stops), bill);
            self.rest = self.rest.max(until.min(stops));
        }
        if !self.standing {
            let sleeps = self.standby_after.map_or(Nanos(u64::MAX), |t| self.rest + t);
            self.stay(Part::Idle, self.power.idle, until.min(sleeps), bill);
            if until > sleeps {
                self.standing = true;
                self.counts.standbys += 1;
            }
        }
        self.stay(Part::Sleep, self.power.standby, until, bill);
    }

    /// The platter turns from the moment this returns on.
    fn turning(&mut self, now: Nanos, bill: &mut Bill) -> Nanos {
        if !self.standing {
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

    /// How long the arm moves to get to a block from another.
    fn seek(&self, from: u64, to: u64) -> Nanos {
        self.curve.time(self.platter.track(from).abs_diff(self.platter.track(to)))
    }

    /// Moves the arm and waits for block `at`, from `begin` on; says when it passes.
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

    /// The arm does not go on reading ahead.
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
        let begin = self.turning(now, bill) + self.request;
        let start = femto(begin).max(self.free);
        let under = self.buffer.end(start, &self.platter);
        let there = start + femto(self.seek(under, at));
        let afresh = there + self.platter.until(at, there) + self.platter.passing(blocks);
        let passed = match self.buffer.arrives(at, end, start, &self.platter) {
            Some(comes) if comes <= afresh => {
                self.counts.from_buffer += 1;
                self.buffer.extend(end, start, self.blocks, &self.platter);
                comes
            }
            _ => {
                self.call_away(begin, bill);
                let starts = self.position(start, at, Nanos(0), bill);
                let passed = starts + self.platter.passing(blocks);
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
        let begin = self.turning(now, bill) + self.request;
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
        let passed = starts + self.platter.passing(blocks);
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
            // Disks of this kind know no discard and no remap.
            Ask::Discard { .. } | Ask::Remap { .. } => now,
        };
        self.pay(done, bill);
        if !self.standing {
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
        (self.standing, self.writing) = (true, false);
        lost
    }

    fn remaps(&self) -> bool {
        false
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counts;
        vec![
            ("reads", c.reads),
            ("writes", c.writes),
            ("reads_from_buffer", c.from_buffer),
            ("seeks", c.seeks),
            ("standbys", c.standbys),
            ("spin_ups", c.spin_ups),
        ]
    }
}
