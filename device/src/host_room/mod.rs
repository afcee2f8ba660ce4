//! Does the host have room for the data that a volume has accepted?
//!
//! A sparse image takes room from the file system that holds it when a block is written for the first time, and
//! other files may have used up that room by then. So [`HostRoom`] reserves *ballast*: room on the same file system
//! for all accepted but unwritten data of the volume. When the host is full, ballast is released piece by piece for
//! the image's writes. From then on the host is *short*: the volume accepts only changes that free room, until the
//! ballast is complete again.
//!
//! The same look at the host notices that an image has lost its name: it was removed, or another file took its place. What
//! is written to it then goes with the process that has it open.

mod file;
mod limited;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

pub use file::FileHost;
pub use limited::Limited;

use crate::BLOCK;

/// With less ballast the host is short, unless the image cannot grow by this much.
pub const LEAST: u64 = 4 << 20;
/// Initial ballast. It grows with the accepted data.
const FIRST: u64 = 16 << 20;
/// Free room besides the ballast that ends a shortage.
const BEYOND: u64 = 1 << 20;
/// Smallest piece of ballast to release.
const PIECE: u64 = 256 << 10;

/// Room on the host of an image.
pub trait Host: Send {
    /// Reserves `bytes` bytes instead of the present reservation. After a failure the reservation is unchanged, or,
    /// if it was to shrink, possibly lost.
    fn hold(&mut self, bytes: u64) -> io::Result<()>;
    /// True if it can reserve room.
    fn can_hold(&self) -> bool {
        true
    }
    /// Free bytes besides the reservation.
    fn free(&self) -> io::Result<u64>;
    /// Most bytes by which the image can grow: its holes. `u64::MAX` if overwriting takes room, too.
    fn growth(&self) -> io::Result<u64>;
    /// Largest useful reservation.
    fn most(&self) -> u64;
    /// False if no name leads to the image any more: it goes with the process that has it open.
    fn has_name(&self) -> bool {
        true
    }
}

/// Effect of a change on the room that a volume takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It takes room, or may.
    Takes,
    /// It frees room when it is written: it may use reserved room.
    Gives,
}

/// Room on the host for an image. See the [module](self).
pub struct HostRoom {
    state: Mutex<State>,
    /// Ballast in bytes; `u64::MAX` if it covers all possible growth of the image.
    held: AtomicU64,
    short: AtomicBool,
    /// Number of shortages so far.
    shortages: AtomicU64,
}

struct State {
    host: Box<dyn Host>,
    /// Bytes of ballast. On a host without reservations: a part of the free space at the last check.
    held: u64,
    report: Option<Reporter>,
    /// The image had no name when it was looked at last.
    nameless: bool,
}

/// Receives the beginning and the end of shortages, and that the image has lost its name.
pub type Reporter = Box<dyn Fn(Turn) + Send>;

/// A change of the host's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It became short.
    Short,
    /// It has room again.
    Roomy,
    /// The image was removed, or another file took its name: it goes with the process that has it open.
    Nameless,
}

impl std::fmt::Debug for HostRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRoom").field("held", &self.held).field("short", &self.short).finish_non_exhaustive()
    }
}

impl HostRoom {
    /// Reserves ballast if there is room for it; otherwise the host is short from the start.
    pub fn new(host: impl Host + 'static) -> Self {
        let state = State { host: Box::new(host), held: 0, report: None, nameless: false };
        let room = Self {
            state: Mutex::new(state),
            held: AtomicU64::new(0),
            short: AtomicBool::new(false),
            shortages: AtomicU64::new(0),
        };
        room.renew();
        room
    }

    /// Sets the receiver of changes.
    pub fn report_to(&self, report: Reporter) {
        self.state.lock().report = Some(report);
    }

    /// True while only changes that free room are to be accepted.
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    /// The number of the current shortage: everything accepted before it should be written now.
    pub fn shortage(&self) -> Option<u64> {
        self.is_short().then(|| self.shortages.load(Ordering::Acquire))
    }

    /// True if `blocks` blocks are certain to find room on the host. Changes that take room may use five eighths of
    /// the ballast, changes that free room seven; the rest is for the host's own tables.
    pub fn covers(&self, blocks: u64, change: Change) -> bool {
        let eighths = match change {
            Change::Takes => 5,
            Change::Gives => 7,
        };
        let bytes = blocks.saturating_mul(BLOCK as u64 * 8) / eighths;
        bytes <= self.held.load(Ordering::Acquire) || (!self.is_short() && self.grow(bytes))
    }

    /// Releases ballast for a write of `bytes` bytes that found no room. False if there is none.
    pub fn make_way(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        self.set_short(&state, true);
        if !state.host.can_hold() || state.held == 0 {
            return false;
        }
        let left = state.held.saturating_sub((bytes + bytes / 8).max(PIECE));
        // If even shrinking fails, the host has dropped the whole reservation.
        state.held = state.host.hold(left).map_or(0, |()| left);
        self.note_held(&state);
        true
    }

    /// True if a name leads to the image.
    pub fn has_name(&self) -> bool {
        self.state.lock().host.has_name()
    }

    /// Checks the host again: reserves missing ballast, and detects the beginning and the end of a shortage, and that the image
    /// has lost its name. Call it about once a second.
    pub fn renew(&self) {
        let mut state = self.state.lock();
        let nameless = !state.host.has_name();
        if nameless && !state.nameless {
            state.say(Turn::Nameless);
        }
        state.nameless = nameless;
        let was_short = self.is_short();
        let least = LEAST.min(state.growth());
        let beyond = if was_short { BEYOND.min(least) } else { 0 };
        if !state.host.can_hold() {
            let free = state.free();
            state.held = (free / 4).min(state.host.most());
            self.note_held(&state);
            self.set_short(&state, free < least + beyond);
            return;
        }
        let want = state.limit().min(FIRST);
        if state.held < if was_short { want } else { least } {
            // Take only half of the free room, so that changes that free room can proceed meanwhile.
            let some = state.held + state.free() / 2;
            _ = state.hold_more(want) || state.hold_more(least) || state.hold_more(some.min(least));
        }
        self.note_held(&state);
        self.set_short(&state, state.held < least || state.free() < beyond);
    }

    /// To be called when the image has freed room: it can grow again.
    pub fn discarded(&self) {
        if self.held.load(Ordering::Acquire) == u64::MAX {
            self.renew();
        }
    }

    /// Free bytes of the host now, without the ballast.
    pub fn free(&self) -> u64 {
        self.state.lock().free()
    }

    /// Bytes of ballast now.
    pub fn held(&self) -> u64 {
        self.state.lock().held
    }

    /// True if the host cannot reserve room: then only explicit checks detect a shortage.
    pub fn is_unheld(&self) -> bool {
        !self.state.lock().host.can_hold()
    }

    /// Adds ballast until `bytes` bytes are reserved. False if that fails.
    fn grow(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        if state.held < bytes {
            let want = bytes.checked_next_power_of_two().unwrap_or(bytes).min(state.limit());
            if want >= bytes {
                state.hold_more(want);
            }
        }
        self.note_held(&state);
        bytes <= self.held.load(Ordering::Acquire)
    }

    fn note_held(&self, state: &State) {
        let all = state.host.can_hold() && state.held >= state.growth();
        self.held.store(if all { u64::MAX } else { state.held }, Ordering::Release);
    }

    fn set_short(&self, state: &State, short: bool) {
        if self.short.swap(short, Ordering::AcqRel) == short {
            return;
        }
        if short {
            self.shortages.fetch_add(1, Ordering::AcqRel);
        }
        state.say(if short { Turn::Short } else { Turn::Roomy });
    }
}

impl State {
    fn say(&self, turn: Turn) {
        if let Some(report) = &self.report {
            report(turn);
        }
    }

    /// A host that does not answer counts as full.
    fn free(&self) -> u64 {
        self.host.free().unwrap_or(0)
    }

    fn growth(&self) -> u64 {
        self.host.growth().unwrap_or(u64::MAX)
    }

    /// The most ballast that the host can spare now: a quarter of its free room, but at least the minimum.
    fn limit(&self) -> u64 {
        let quarter = self.free().saturating_add(self.held) / 4;
        quarter.max(LEAST).min(self.host.most()).min(self.growth())
    }

    /// Reserves `bytes` bytes. False if the host does not.
    fn hold_more(&mut self, bytes: u64) -> bool {
        if bytes > self.held && self.host.can_hold() && self.host.hold(bytes).is_ok() {
            self.held = bytes;
        }
        self.held >= bytes
    }
}
