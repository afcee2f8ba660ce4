//! A device on which a test can pause one request.
//!
//! A decorator that holds one chosen request until it is released, so that a test controls what happens meanwhile.
//! It holds the request before it reaches the device, or afterwards, before its caller gets the result. Other
//! requests pass.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::address::Remap;
use crate::{BlockDevice, Lba, Op, Result, Tag};

/// Where a request is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    Behind,
}

/// Kind of request, its cause if that matters, and where to hold it.
type Chosen = (Op, Option<u8>, Side);

#[derive(Default)]
struct State {
    /// The next request to hold.
    stops: Option<Chosen>,
    waits: bool,
}

/// A device behind a gate.
pub struct Gate<D> {
    inner: D,
    state: Mutex<State>,
    moved: Condvar,
}

impl<D: BlockDevice> Gate<D> {
    /// An open gate.
    pub fn new(inner: D) -> Self {
        Gate { inner, state: Mutex::default(), moved: Condvar::new() }
    }

    /// The device behind the gate.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Holds the next request of this kind, and of this cause if one is given.
    pub fn stop(&self, op: Op, cause: Option<u8>) {
        self.state.lock().stops = Some((op, cause, Side::Before));
    }

    /// The same, but after the device has completed the request.
    pub fn stop_done(&self, op: Op, cause: Option<u8>) {
        self.state.lock().stops = Some((op, cause, Side::Behind));
    }

    /// Waits until a request is held. False if none has come after a minute.
    #[must_use]
    pub fn await_one(&self) -> bool {
        let mut state = self.state.lock();
        !self.moved.wait_while_for(&mut state, |state| !state.waits, Duration::from_secs(60)).timed_out()
    }

    /// Releases the held request.
    pub fn go_on(&self) {
        self.state.lock().waits = false;
        self.moved.notify_all();
    }

    fn pass(&self, op: Op, tag: Tag, request: impl FnOnce(&D) -> Result<()>) -> Result<()> {
        let chosen = {
            let mut state = self.state.lock();
            let is_it = |(kind, cause, _): &mut Chosen| *kind == op && cause.is_none_or(|cause| cause == tag.cause);
            state.stops.take_if(is_it)
        };
        let wait_at = |side| {
            if chosen.is_some_and(|(.., here)| here == side) {
                let mut state = self.state.lock();
                state.waits = true;
                self.moved.notify_all();
                self.moved.wait_while(&mut state, |state| state.waits);
            }
        };
        wait_at(Side::Before);
        let out = request(&self.inner);
        wait_at(Side::Behind);
        out
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
        self.pass(Op::Read, tag, |inner| inner.read(at, buf, tag))
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.pass(Op::Write, tag, |inner| inner.write(at, data, tag))
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.pass(Op::Write, tag, |inner| inner.write_gather(at, parts, tag))
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        let tag = Tag { cause, owner: owners.last().copied().unwrap_or_default() };
        self.pass(Op::Write, tag, |inner| inner.write_for(at, data, owners, cause))
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.pass(Op::Flush, tag, |inner| inner.flush(tag))
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.pass(Op::Discard, tag, |inner| inner.discard(at, blocks, tag))
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.inner.remap(from, to, blocks, how, tag)
    }
}
