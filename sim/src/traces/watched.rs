//! When was the energy of calls spent?
//!
//! The ledger has no entries for calls: their cost is booked at the device's requests. So a decorator samples the
//! ledger when requests end, while time is counted. Uncounted work, such as preparation and what happens between two
//! repetitions, takes no time on its timeline and costs nothing there.

use std::sync::Arc;

use device::clock::Clock;
use device::energy::{Component, Energy, Nanos};
use device::model::{Remap, Simulated};
use device::{BlockDevice, Lba, Result, Tag};
use parking_lot::Mutex;

use super::timeline::{Look, Timeline};

/// A device above a simulated one, whose ledger is sampled.
pub struct Watched<D> {
    inner: D,
    watch: Watch,
    state: Mutex<State>,
}

/// The ledger to sample, and the clock.
pub struct Watch {
    /// The device underneath.
    pub device: Arc<Simulated<Arc<dyn BlockDevice>>>,
    /// The clock of the calls.
    pub clock: Arc<dyn Clock>,
}

impl Watch {
    fn now(&self) -> u64 {
        Nanos::from_duration(self.clock.monotonic()).0
    }

    fn spent(&self) -> [Energy; Component::ALL.len()] {
        self.device.look(|ledger| Component::ALL.map(|c| ledger.component(c)))
    }
}

/// A moment of the counted time, and the energy up to then.
#[derive(Clone, Copy, Default)]
struct Moment {
    at: u64,
    spent: [Energy; Component::ALL.len()],
}

#[derive(Default)]
struct State {
    timeline: Option<Timeline>,
    /// Counted time and energy up to the last pause.
    paid: Moment,
    /// Start of the current counted time, and the ledger then; `None` in a pause.
    began: Option<Moment>,
}

impl State {
    /// The current moment, if it is counted.
    fn moment(&self, watch: &Watch) -> Option<Moment> {
        let Moment { at, spent } = self.began?;
        let mut now = self.paid;
        now.at += watch.now().saturating_sub(at);
        now.spent.iter_mut().zip(watch.spent().iter().zip(&spent)).for_each(|(sum, (now, then))| *sum += *now - *then);
        Some(now)
    }

    fn look(&mut self, watch: &Watch, if_due: bool) {
        let Some(Moment { at: began, .. }) = self.began else { return };
        let at = self.paid.at + watch.now().saturating_sub(began);
        if if_due && self.timeline.as_ref().is_none_or(|timeline| !timeline.is_due(at)) {
            return;
        }
        let (Some(now), Some(timeline)) = (self.moment(watch), &mut self.timeline) else { return };
        timeline.add(Look { at: now.at, components: now.spent, owners: Default::default() });
    }
}

impl<D: BlockDevice> Watched<D> {
    /// Takes no sample before [`go_on`](Self::go_on), and none at all if not `wanted`.
    pub fn new(inner: D, watch: Watch, wanted: bool) -> Self {
        let timeline = wanted.then(Timeline::without_owners);
        Watched { inner, watch, state: Mutex::new(State { timeline, ..State::default() }) }
    }

    /// Starts counting.
    pub fn go_on(&self) {
        let state = &mut *self.state.lock();
        if state.timeline.is_some() {
            state.began = Some(Moment { at: self.watch.now(), spent: self.watch.spent() });
        }
    }

    /// Stops counting.
    pub fn pause(&self) {
        let state = &mut *self.state.lock();
        if let Some(now) = state.moment(&self.watch) {
            state.look(&self.watch, false);
            state.paid = now;
        }
        state.began = None;
    }

    /// Discards what was counted since the last start, and starts again.
    pub fn begin_again(&self) {
        {
            let state = &mut *self.state.lock();
            let paid = state.paid.at;
            if let Some(timeline) = &mut state.timeline {
                timeline.forget_after(paid);
            }
        }
        self.go_on();
    }

    /// Takes the last sample and returns the timeline.
    pub fn take(&self) -> Timeline {
        self.pause();
        self.state.lock().timeline.take().unwrap_or_default()
    }

    fn seen<T>(&self, done: T) -> T {
        self.state.lock().look(&self.watch, true);
        done
    }
}

impl<D: BlockDevice> BlockDevice for Watched<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.seen(self.inner.read(at, buf, tag))
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.seen(self.inner.write(at, data, tag))
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.seen(self.inner.write_gather(at, parts, tag))
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.seen(self.inner.write_for(at, data, owners, cause))
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.seen(self.inner.flush(tag))
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.seen(self.inner.discard(at, blocks, tag))
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.seen(self.inner.remap(from, to, blocks, how, tag))
    }
}
