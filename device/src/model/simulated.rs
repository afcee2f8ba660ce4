//! A model with contents, a meter and a clock: a device like any other.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Ask, Model, Remap};
use crate::bounds::check_remap;
use crate::clock::{Clock, RealClock, VirtualClock};
use crate::energy::{Bill, Ledger, Meter, Nanos, Operation, Processor};
use crate::{BLOCK, BlockDevice, DeviceError, Lba, Result, Tag};

/// How a simulated device's time passes.
#[derive(Debug, Clone)]
pub enum Pace {
    /// A request moves the clock to its end.
    Virtual(Arc<VirtualClock>),
    /// A request takes as long as the device it stands for would take.
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
}

struct State {
    model: Box<dyn Model>,
    bill: Bill,
    /// The moment up to which everything is on the meter.
    booked: Nanos,
}

/// A simulated device.
///
/// One request is served at a time, in the order of arrival at its lock. Contents are kept by `contents`
/// and are there as soon as the call returns; [`PowerCut`](crate::PowerCut) adds loss.
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
        Simulated { contents, state: Mutex::new(State { model, bill: Bill::default(), booked }), meter, pace }
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

    /// Everything spent up to now, waiting included.
    pub fn ledger(&self) -> Ledger {
        let state = &mut *self.state.lock();
        self.wait(state, self.pace.now());
        self.meter.ledger()
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
        self.take(Operation::Flush, 0, tag, &[], |model, now, bill| model.power_cycle(now, bill));
        self.contents.flush(tag)
    }

    /// Books the time from the last booking to `now`.
    fn wait(&self, state: &mut State, now: Nanos) {
        let idle = now.since(state.booked);
        if idle == Nanos(0) {
            return;
        }
        state.bill.clear();
        state.model.wait(now, &mut state.bill);
        self.meter.time(Operation::Idle, Tag::default(), idle, &mut state.bill);
        state.booked = now;
    }

    fn ask(&self, operation: Operation, ask: Ask, blocks: u64, tag: Tag) {
        self.take(operation, blocks, tag, &[], |model, now, bill| model.serve(now, ask, tag, bill));
    }

    /// Lets the model do something now, books it and lets it take its time.
    fn take(
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
        let now = self.pace.now().max(state.booked);
        self.wait(state, now);
        state.bill.clear();
        let done = work(&mut *state.model, now, &mut state.bill).max(now);
        self.meter.request_for(operation, tag, owners, blocks, done.since(now), &mut state.bill);
        state.booked = done;
        match &self.pace {
            Pace::Virtual(c) => c.advance(done.since(now).duration()),
            Pace::Unpaced(_) => {}
            Pace::Paced(c) => {
                drop(guard);
                let left = done.duration().saturating_sub(c.monotonic());
                if left > Duration::ZERO {
                    std::thread::sleep(left);
                }
            }
        }
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
        let done = Nanos(now.0.saturating_add(busy.0));
        state.bill.clear();
        state.model.wait(done, &mut state.bill);
        self.meter.work(tag, busy, &mut state.bill);
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
        self.take(Operation::Write, blocks, tag, owners, |model, now, bill| {
            model.serve(now, Ask::Write { at, blocks }, tag, bill)
        });
        Ok(())
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
