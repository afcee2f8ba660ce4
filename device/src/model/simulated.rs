//! A model with contents, a meter and a clock: a device like any other.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::flight::{Asker, Flight};
use super::{Ask, Model, Remap};
use crate::bounds::{check_blocks, check_remap};
use crate::clock::{Clock, RealClock, VirtualClock};
use crate::energy::{Bill, Ledger, Meter, Nanos, Operation, Processor};
use crate::queue::Queue;
use crate::{BLOCK, BlockDevice, DeviceError, Lba, Result, Tag};

/// How a simulated device's time passes.
#[derive(Debug, Clone)]
pub enum Pace {
    /// A request moves the clock to its end.
    Virtual(Arc<VirtualClock>),
    /// A request takes as long as the device it stands for would take; those of several threads are under way at once.
    Paced(Arc<RealClock>),
    /// Requests arrive when they arrive and are answered at once; the device's time runs by the host's
    /// clock, or ahead of it while requests pile up.
    Unpaced(Arc<RealClock>),
}

impl Pace {
    fn now(&self) -> Nanos {
        Nanos::of(match self {
            Pace::Virtual(c) => c.monotonic(),
            Pace::Paced(c) | Pace::Unpaced(c) => c.monotonic(),
        })
    }

    /// Lets time come to a moment.
    fn reach(&self, at: Nanos) {
        let left = at.since(self.now()).duration();
        match self {
            Pace::Virtual(c) => c.advance(left),
            Pace::Paced(_) if left > Duration::ZERO => std::thread::sleep(left),
            Pace::Paced(_) | Pace::Unpaced(_) => {}
        }
    }
}

struct State {
    model: Box<dyn Model>,
    bill: Bill,
    /// The moment up to which everything is on the meter, but for the board's power for requests that are under way.
    booked: Nanos,
    flight: Flight,
}

/// A simulated device.
///
/// As a [`BlockDevice`] it serves one request at a time, in the order of arrival at its lock, unless it is
/// [paced](Pace::Paced); as a [`Queue`] it has as many under way as its model takes. Contents are kept by `contents` and
/// are there as soon as the call returns; [`PowerCut`](crate::PowerCut) adds loss.
pub struct Simulated<D> {
    contents: D,
    state: Mutex<State>,
    meter: Arc<Meter>,
    pace: Pace,
}

impl<D: BlockDevice> Simulated<D> {
    /// A device of `contents`' size; the model must not be smaller.
    ///
    /// # Panics
    /// If the model is smaller than the contents.
    pub fn new(contents: D, model: Box<dyn Model>, meter: Arc<Meter>, pace: Pace) -> Self {
        assert!(model.blocks() >= contents.blocks(), "a model smaller than its contents");
        let booked = pace.now();
        let flight = Flight::new(meter.host().board);
        Simulated { contents, state: Mutex::new(State { model, bill: Bill::default(), booked, flight }), meter, pace }
    }

    /// The meter it books on.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The contents.
    pub fn contents(&self) -> &D {
        &self.contents
    }

    /// The model's counters.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.state.lock().model.counters()
    }

    /// Everything spent up to now, waiting included. What a request under way pays of the board comes at its end.
    pub fn ledger(&self) -> Ledger {
        self.look(Ledger::clone)
    }

    /// Looks at everything spent up to now, as [`ledger`](Self::ledger) gives it, without a copy. Requests wait meanwhile.
    pub fn look<T>(&self, at: impl FnOnce(&Ledger) -> T) -> T {
        let state = &mut *self.state.lock();
        self.wait(state, self.pace.now());
        self.meter.look(at)
    }

    /// Forgets everything spent up to now, waiting included: what comes is on a new account.
    pub fn begin_again(&self) {
        let state = &mut *self.state.lock();
        self.wait(state, self.pace.now());
        self.meter.forget();
    }

    /// The moment up to which everything is on the meter: the device's time, which runs ahead of the clock
    /// while requests pile up on a [`Pace::Unpaced`] one.
    pub fn time(&self) -> Nanos {
        self.state.lock().booked
    }

    /// Switches the device off and on, announced, as a restart of its host does: what was written is made
    /// durable, and the controller's memory is empty afterwards ([`Model::power_cycle`]). Booked as a flush
    /// with `tag`.
    pub fn power_cycle(&self, tag: Tag) -> Result<()> {
        self.alone(Operation::Flush, 0, tag, &[], |model, now, bill| model.power_cycle(now, bill));
        self.contents.flush(tag)
    }

    /// Books the time from the last booking to `now`, and what requests that ended in it pay of the board.
    fn wait(&self, state: &mut State, now: Nanos) {
        let busy_to = state.flight.last_end();
        state.flight.pass(now, |who, board| self.meter.share(who.operation, who.tag, &who.owners, board));
        let from = state.booked.max(busy_to.unwrap_or(Nanos(0)));
        state.booked = state.booked.max(now);
        let idle = now.since(from);
        if idle == Nanos(0) {
            return;
        }
        state.bill.clear();
        state.model.wait(now, &mut state.bill);
        self.meter.time(Operation::Idle, Tag::default(), idle, &mut state.bill);
    }

    fn ask(&self, operation: Operation, ask: Ask, blocks: u64, tag: Tag) {
        self.ask_for(operation, ask, blocks, tag, &[]);
    }

    fn ask_for(&self, operation: Operation, ask: Ask, blocks: u64, tag: Tag, owners: &[u64]) {
        match &self.pace {
            Pace::Paced(_) => {
                let asker = Asker { operation, tag, owners: owners.into() };
                let done = self.beside(self.pace.now(), ask, blocks, asker);
                self.pace.reach(done);
            }
            _ => self.alone(operation, blocks, tag, owners, |model, now, bill| model.serve(now, ask, tag, bill)),
        }
    }

    /// Gives the model a request at `now`, or as soon as its queue has room, beside those that are under way; says when
    /// it is done.
    fn beside(&self, now: Nanos, ask: Ask, blocks: u64, asker: Asker) -> Nanos {
        let state = &mut *self.state.lock();
        let mut now = now.max(state.booked);
        self.wait(state, now);
        while state.flight.len() >= state.model.queue().max(1) {
            let Some(ends) = state.flight.first_end() else { break };
            now = now.max(ends);
            self.wait(state, now);
        }
        state.bill.clear();
        let done = state.model.serve(now, ask, asker.tag, &mut state.bill).max(now);
        self.meter.request_for(asker.operation, asker.tag, &asker.owners, blocks, Nanos(0), &mut state.bill);
        state.flight.push(now, done, asker);
        done
    }

    /// Lets the model do something now while nothing else is under way, books it and lets it take its time.
    fn alone(
        &self,
        operation: Operation,
        blocks: u64,
        tag: Tag,
        owners: &[u64],
        work: impl FnOnce(&mut dyn Model, Nanos, &mut Bill) -> Nanos,
    ) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // While requests pile up the device's time runs ahead of the host's.
        let now = self.pace.now().max(state.booked).max(state.flight.last_end().unwrap_or(Nanos(0)));
        self.wait(state, now);
        state.bill.clear();
        let done = work(&mut *state.model, now, &mut state.bill).max(now);
        self.meter.request_for(operation, tag, owners, blocks, done.since(now), &mut state.bill);
        state.booked = done;
        if let Pace::Virtual(_) = &self.pace {
            self.pace.reach(done);
        } else {
            drop(guard);
            self.pace.reach(done);
        }
    }
}

impl<D: BlockDevice> Queue for Simulated<D> {
    fn depth(&self) -> usize {
        self.state.lock().model.queue()
    }

    fn now(&self) -> Nanos {
        self.pace.now().max(self.state.lock().booked)
    }

    fn submit(&self, at: Nanos, ask: Ask, tag: Tag) -> Result<Nanos> {
        let size = self.contents.blocks();
        let (operation, blocks) = match ask {
            Ask::Read { at, blocks } => (Operation::Read, check_blocks("read", at, blocks, size).map(|()| blocks)?),
            Ask::Write { at, blocks } => (Operation::Write, check_blocks("write", at, blocks, size).map(|()| blocks)?),
            Ask::Discard { at, blocks } => {
                (Operation::Discard, check_blocks("discard", at, blocks, size).map(|()| blocks)?)
            }
            Ask::Remap { from, to, blocks, .. } => {
                check_remap(from, to, blocks, size)?;
                if !self.state.lock().model.remaps() {
                    return Err(DeviceError::Unsupported { op: "remap" });
                }
                (Operation::Remap, blocks)
            }
            Ask::Flush => (Operation::Flush, 0),
        };
        self.pace.reach(at);
        Ok(self.beside(at, ask, blocks, Asker { operation, tag, owners: Box::default() }))
    }

    fn drain(&self) -> Nanos {
        let end = self.state.lock().flight.last_end();
        if let Some(end) = end {
            self.pace.reach(end);
            let state = &mut *self.state.lock();
            self.wait(state, end);
        }
        self.now()
    }
}

impl<D: BlockDevice> Processor for Simulated<D> {
    /// The device waits meanwhile, and so does whoever asked. A real clock passes by itself.
    fn compute(&self, busy: Nanos, tag: Tag) {
        if busy == Nanos(0) {
            return;
        }
        let state = &mut *self.state.lock();
        let now = self.pace.now().max(state.booked);
        self.wait(state, now);
        if state.flight.len() > 0 {
            // The requests under way pay for the device and the board.
            state.bill.clear();
            self.meter.work(tag, busy, Nanos(0), &mut state.bill);
            return;
        }
        let done = Nanos(now.0.saturating_add(busy.0));
        state.bill.clear();
        state.model.wait(done, &mut state.bill);
        self.meter.work(tag, busy, busy, &mut state.bill);
        state.booked = done;
        if let Pace::Virtual(clock) = &self.pace {
            clock.advance(busy.duration());
        }
    }
}

impl<D: BlockDevice> BlockDevice for Simulated<D> {
    fn blocks(&self) -> u64 {
        self.contents.blocks()
    }
    fn read_only(&self) -> bool {
        self.contents.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.contents.read(at, buf, tag)?;
        let blocks = (buf.len() / BLOCK) as u64;
        self.ask(Operation::Read, Ask::Read { at, blocks }, blocks, tag);
        Ok(())
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.contents.write(at, data, tag)?;
        let blocks = (data.len() / BLOCK) as u64;
        self.ask(Operation::Write, Ask::Write { at, blocks }, blocks, tag);
        Ok(())
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.contents.write_gather(at, parts, tag)?;
        let blocks = parts.iter().map(|p| (p.len() / BLOCK) as u64).sum();
        self.ask(Operation::Write, Ask::Write { at, blocks }, blocks, tag);
        Ok(())
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        let tag = Tag { cause, owner: owners.last().copied().unwrap_or_default() };
        self.contents.write_for(at, data, owners, cause)?;
        let blocks = (data.len() / BLOCK) as u64;
        self.ask_for(Operation::Write, Ask::Write { at, blocks }, blocks, tag, owners);
        Ok(())
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        if check_blocks("place", at, blocks, self.blocks()).is_ok() {
            self.state.lock().model.place(at, blocks, handle);
        }
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.ask(Operation::Flush, Ask::Flush, 0, tag);
        self.contents.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.contents.discard(at, blocks, tag)?;
        self.ask(Operation::Discard, Ask::Discard { at, blocks }, blocks, tag);
        Ok(())
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        check_remap(from, to, blocks, self.blocks())?;
        if !self.state.lock().model.remaps() {
            return Err(DeviceError::Unsupported { op: "remap" });
        }
        match self.contents.remap(from, to, blocks, how, tag) {
            // Where contents are kept is no matter of the model's: an image is copied, a device's map is changed.
            Err(DeviceError::Unsupported { .. }) if how == Remap::Share => {
                let mut bytes = vec![0; blocks as usize * crate::BLOCK];
                self.contents.read(from, &mut bytes, tag)?;
                self.contents.write(to, &bytes, tag)?;
            }
            other => other?,
        }
        self.ask(Operation::Remap, Ask::Remap { from, to, blocks, how }, blocks, tag);
        Ok(())
    }
}
