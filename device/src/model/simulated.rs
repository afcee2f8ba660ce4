//! A device that combines a model with contents, a meter and a clock.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::flight::{Asker, Flight};
use super::{Ask, Model, ModelState, Remap};
use crate::bounds::{check_blocks, check_remap};
use crate::clock::{Clock, RealClock, VirtualClock};
use crate::energy::{Bill, Ledger, Meter, Nanos, Operation, Processor, Work};
use crate::queue::Queue;
use crate::{BLOCK, BlockDevice, DeviceError, Lba, Result, Tag};

/// Passage of time on a simulated device.
#[derive(Debug, Clone)]
pub enum Pace {
    /// A request advances the clock to its end.
    Virtual(Arc<VirtualClock>),
    /// A request takes as long as on the simulated device; those of several threads overlap.
    Paced(Arc<RealClock>),
    /// Requests return immediately; the device's time follows the host's clock, or runs ahead of it while requests
    /// pile up.
    Unpaced(Arc<RealClock>),
}

impl Pace {
    fn now(&self) -> Nanos {
        Nanos::from_duration(match self {
            Pace::Virtual(c) => c.monotonic(),
            Pace::Paced(c) | Pace::Unpaced(c) => c.monotonic(),
        })
    }

    /// Advances or waits until a moment.
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
    /// The time up to which energy is booked, except the board's power for requests under way.
    booked: Nanos,
    flight: Flight,
}

/// A simulated device.
///
/// As a [`BlockDevice`] it serves one request at a time, in the order of arrival at its lock, unless it is
/// [paced](Pace::Paced); as a [`Queue`] it processes the number of requests that its model allows. `contents` holds
/// the data, which is stored when the call returns; [`PowerCut`](crate::PowerCut) adds loss.
pub struct Simulated<D> {
    contents: D,
    state: Mutex<State>,
    meter: Arc<Meter>,
    pace: Pace,
}

impl<D: BlockDevice> Simulated<D> {
    /// A device with the size of `contents`; the model must not be smaller.
    ///
    /// # Panics
    /// If the model is smaller than the contents.
    pub fn new(contents: D, model: Box<dyn Model>, meter: Arc<Meter>, pace: Pace) -> Self {
        let booked = pace.now();
        Self::resumed(contents, model, meter, pace, booked)
    }

    /// A device whose [`state`](Self::state) was taken when energy was booked up to `booked`.
    ///
    /// # Panics
    /// If the model is smaller than the contents.
    pub fn resumed(contents: D, model: Box<dyn Model>, meter: Arc<Meter>, pace: Pace, booked: Nanos) -> Self {
        assert!(model.blocks() >= contents.blocks(), "a model smaller than its contents");
        let flight = Flight::new(meter.host().board);
        Simulated { contents, state: Mutex::new(State { model, bill: Bill::default(), booked, flight }), meter, pace }
    }

    /// Its meter.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The model's state, and the time up to which energy is booked; `None` while requests are under way, or if the
    /// model cannot be stored.
    pub fn state(&self) -> Option<(ModelState, Nanos)> {
        let state = self.state.lock();
        (state.flight.len() == 0).then(|| Some((state.model.state()?, state.booked)))?
    }

    /// The contents.
    pub fn contents(&self) -> &D {
        &self.contents
    }

    /// The model's counters.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.state.lock().model.counters()
    }

    /// All energy spent so far, including waiting. A request under way pays its share of the board at its end.
    pub fn ledger(&self) -> Ledger {
        self.look(Ledger::clone)
    }

    /// Reads the same ledger as [`ledger`](Self::ledger) without a copy. Requests wait meanwhile.
    pub fn look<T>(&self, at: impl FnOnce(&Ledger) -> T) -> T {
        let state = &mut *self.state.lock();
        self.wait(state, self.pace.now());
        self.meter.look(at)
    }

    /// Clears all energy spent so far, including waiting.
    pub fn begin_again(&self) {
        let state = &mut *self.state.lock();
        self.wait(state, self.pace.now());
        self.meter.forget();
    }

    /// The time up to which energy is booked: the device's time, which runs ahead of the clock while requests pile
    /// up under [`Pace::Unpaced`].
    pub fn time(&self) -> Nanos {
        self.state.lock().booked
    }

    /// Announced power-off and power-on of the device, as in a restart of its host: all writes become durable, and
    /// the controller's memory is empty afterwards ([`Model::power_cycle`]). Booked as a flush with `tag`.
    pub fn power_cycle(&self, tag: Tag) -> Result<()> {
        self.serve_alone(Operation::Flush, 0, tag, &[], |model, now, bill| model.power_cycle(now, bill));
        self.contents.flush(tag)
    }

    /// Books the time from the last booking to `now`, and the board shares of requests that ended in it.
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
                let done = self.serve_concurrently(self.pace.now(), ask, blocks, asker);
                self.pace.reach(done);
            }
            _ => self.serve_alone(operation, blocks, tag, owners, |model, now, bill| model.serve(now, ask, tag, bill)),
        }
    }

    /// Submits a request to the model at `now`, or when its queue has room, in parallel with those under way;
    /// returns its end.
    fn serve_concurrently(&self, now: Nanos, ask: Ask, blocks: u64, asker: Asker) -> Nanos {
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

    /// Runs an action of the model while no other request is under way, books it and waits for its end.
    fn serve_alone(
        &self,
        operation: Operation,
        blocks: u64,
        tag: Tag,
        owners: &[u64],
        work: impl FnOnce(&mut dyn Model, Nanos, &mut Bill) -> Nanos,
    ) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // While requests pile up, the device's time runs ahead of the host's.
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
        Ok(self.serve_concurrently(at, ask, blocks, Asker { operation, tag, owners: Box::default() }))
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
    /// The device and the caller wait meanwhile. A real clock advances by itself.
    fn compute(&self, work: Work, busy: Nanos, tag: Tag) {
        if busy == Nanos(0) {
            return;
        }
        let state = &mut *self.state.lock();
        let now = self.pace.now().max(state.booked);
        self.wait(state, now);
        if state.flight.len() > 0 {
            // Requests under way pay for the device and the board.
            state.bill.clear();
            self.meter.work(work, tag, busy, Nanos(0), &mut state.bill);
            return;
        }
        let done = Nanos(now.0.saturating_add(busy.0));
        state.bill.clear();
        state.model.wait(done, &mut state.bill);
        self.meter.work(work, tag, busy, busy, &mut state.bill);
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
            // The storage of contents is independent of the model: an image copies the data, a device changes its
            // map.
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
