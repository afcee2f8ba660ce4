//! What if a request takes its time?
//!
//! A decorator at which one chosen request waits until it is let go, so that a test decides what happens meanwhile.
//! What comes while it waits passes.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::address::Remap;
use crate::{BlockDevice, Lba, Op, Result, Tag};

#[derive(Default)]
struct State {
    /// What stops next: its kind, and its cause if that matters.
    stops: Option<(Op, Option<u8>)>,
    waits: bool,
}

/// A device with a gate before it.
pub struct Gate<D> {
    inner: D,
    state: Mutex<State>,
    moved: Condvar,
}

impl<D: BlockDevice> Gate<D> {
    /// A gate that stands open.
    pub fn new(inner: D) -> Self {
        Gate { inner, state: Mutex::default(), moved: Condvar::new() }
    }

    /// The device behind the gate.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The next request of this kind, and of this cause if one is named, waits.
    pub fn stop(&self, op: Op, cause: Option<u8>) {
        self.state.lock().stops = Some((op, cause));
    }

    /// Returns when a request waits. False if none has come after a minute.
    #[must_use]
    pub fn await_one(&self) -> bool {
        let mut state = self.state.lock();
        !self.moved.wait_while_for(&mut state, |state| !state.waits, Duration::from_secs(60)).timed_out()
    }

    /// Lets the request go that waits.
    pub fn go_on(&self) {
        self.state.lock().waits = false;
        self.moved.notify_all();
    }

    fn pass(&self, op: Op, tag: Tag) {
        let mut state = self.state.lock();
        if state.stops.is_some_and(|(kind, cause)| kind == op && cause.is_none_or(|cause| cause == tag.cause)) {
            *state = State { stops: None, waits: true };
            self.moved.notify_all();
            self.moved.wait_while(&mut state, |state| state.waits);
        }
    }
}

impl<D: BlockDevice> BlockDevice for Gate<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.pass(Op::Read, tag);
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.pass(Op::Write, tag);
        self.inner.write(at, data, tag)
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.pass(Op::Write, tag);
        self.inner.write_gather(at, parts, tag)
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.pass(Op::Write, Tag { cause, owner: owners.last().copied().unwrap_or_default() });
        self.inner.write_for(at, data, owners, cause)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.pass(Op::Flush, tag);
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.pass(Op::Discard, tag);
        self.inner.discard(at, blocks, tag)
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.inner.remap(from, to, blocks, how, tag)
    }
}
