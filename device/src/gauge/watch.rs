//! Activity of the device, and its energy over time.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::energy::{Bill, Component, Energy, Ledger, Nanos, Operation};
use crate::model::{Ask, Model};
use crate::{Lba, Tag};

/// Most samples kept. Beyond that, every second one is dropped, so that any period fits at lower resolution.
const SAMPLES: usize = 512;

/// Work of one kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Blocks.
    pub blocks: u64,
    /// The time it took.
    pub busy: Nanos,
}

/// The device's time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Times {
    /// From the first moment to the end of the last request or wait.
    pub elapsed: Nanos,
    /// By kind of operation, in the order of [`Operation::ALL`].
    pub work: [Work; Operation::ALL.len()],
}

/// Energy of each component at a moment, in the order of [`Component::ALL`].
pub type Sample = (Nanos, [Energy; Component::ALL.len()]);

#[derive(Default)]
struct Line {
    samples: Vec<Sample>,
    /// Samples skipped since the last one kept, and the number to skip per kept one.
    passed: u64,
    stride: u64,
}

/// Records a model's activity.
#[derive(Default)]
pub(super) struct Watch {
    times: Mutex<Times>,
    line: Mutex<Line>,
}

impl Watch {
    pub(super) fn times(&self) -> Times {
        self.times.lock().clone()
    }

    /// Adds a point to the timeline if one is due.
    pub(super) fn sample(&self, ledger: &Ledger) {
        let at = self.times.lock().elapsed;
        let line = &mut *self.line.lock();
        line.passed += 1;
        if line.passed < line.stride || line.samples.last().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        line.passed = 0;
        line.samples.push((at, Component::ALL.map(|c| ledger.component(c))));
        if line.samples.len() > SAMPLES {
            let mut keep = false;
            line.samples.retain(|_| {
                keep = !keep;
                keep
            });
            line.stride = (line.stride * 2).max(2);
        }
    }

    pub(super) fn timeline(&self) -> Vec<Sample> {
        self.line.lock().samples.clone()
    }
}

/// A model whose times are recorded.
pub(super) struct Watched {
    inner: Box<dyn Model>,
    watch: Arc<Watch>,
}

impl Watched {
    pub(super) fn new(inner: Box<dyn Model>, watch: Arc<Watch>) -> Self {
        Watched { inner, watch }
    }
}

impl Model for Watched {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn queue(&self) -> usize {
        self.inner.queue()
    }
    fn serve(&mut self, now: Nanos, ask: Ask, tag: Tag, bill: &mut Bill) -> Nanos {
        let done = self.inner.serve(now, ask, tag, bill);
        let (operation, blocks) = match ask {
            Ask::Read { blocks, .. } => (Operation::Read, blocks),
            Ask::Write { blocks, .. } => (Operation::Write, blocks),
            Ask::Flush => (Operation::Flush, 0),
            Ask::Discard { blocks, .. } => (Operation::Discard, blocks),
            Ask::Remap { blocks, .. } => (Operation::Remap, blocks),
        };
        let times = &mut *self.watch.times.lock();
        let work = &mut times.work[operation as usize];
        work.blocks += blocks;
        // Time shared by several requests counts once, for the first.
        work.busy += done.since(now.max(times.elapsed));
        times.elapsed = times.elapsed.max(done);
        done
    }
    fn wait(&mut self, now: Nanos, bill: &mut Bill) {
        self.inner.wait(now, bill);
        let times = &mut *self.watch.times.lock();
        times.work[Operation::Idle as usize].busy += now.since(times.elapsed);
        times.elapsed = times.elapsed.max(now);
    }
    fn power_cycle(&mut self, now: Nanos, bill: &mut Bill) -> Nanos {
        let done = self.inner.power_cycle(now, bill);
        let times = &mut *self.watch.times.lock();
        times.work[Operation::Flush as usize].busy += done.since(now);
        times.elapsed = times.elapsed.max(done);
        done
    }
    fn fill(&mut self, now: Nanos, runs: &[(Lba, u64)]) {
        self.inner.fill(now, runs);
    }
    fn cut(&mut self, now: Nanos) -> Vec<Lba> {
        self.inner.cut(now)
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}
