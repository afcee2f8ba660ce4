//! When were the joules of calls spent?
//!
//! Calls have no place of their own on the ledger: what they cost is booked when the device is asked. So a decorator looks at
//! the ledger when requests end, as far as time is paid for. What is not paid for, as what comes before the calls or between two
//! times, takes no time on its timeline and costs nothing there.

use std::sync::Arc;

use device::clock::Clock;
use device::energy::{Component, Energy, Nanos};
use device::model::{Remap, Simulated};
use device::{BlockDevice, Lba, Result, Tag};
use parking_lot::Mutex;

use super::timeline::{Look, Timeline};

/// A device, above a simulated one, whose ledger is looked at now and then.
pub struct Watched<D> {
    inner: D,
    watch: Watch,
    state: Mutex<State>,
}

/// Whose ledger is looked at, and by which clock.
pub struct Watch {
    /// The device below.
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

/// A moment of what is paid for: when, and what was spent up to then.
#[derive(Clone, Copy, Default)]
struct Moment {
    at: u64,
    spent: [Energy; Component::ALL.len()],
}

#[derive(Default)]
struct State {
    timeline: Option<Timeline>,
    /// What is paid for up to the last pause.
    paid: Moment,
    /// When the time began that is paid for now, and what was on the ledger then; none in a pause.
    began: Option<Moment>,
}

impl State {
    /// This moment, if it is paid for.
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
    /// Nothing is looked at before [`go_on`](Self::go_on), nor at all if nobody wants it.
    pub fn new(inner: D, watch: Watch, wanted: bool) -> Self {
        let timeline = wanted.then(Timeline::without_owners);
        Watched { inner, watch, state: Mutex::new(State { timeline, ..State::default() }) }
    }

    /// What comes now is paid for.
    pub fn go_on(&self) {
        let state = &mut *self.state.lock();
        if state.timeline.is_some() {
            state.began = Some(Moment { at: self.watch.now(), spent: self.watch.spent() });
        }
    }

    /// What comes now is not.
    pub fn pause(&self) {
        let state = &mut *self.state.lock();
        if let Some(now) = state.moment(&self.watch) {
            state.look(&self.watch, false);
            state.paid = now;
        }
        state.began = None;
    }

    /// What came since it last went on is not paid for either, but what comes now.
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

    /// The last look is taken, and the timeline given away.
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
