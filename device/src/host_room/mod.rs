//! Is there room on the host for what a volume has accepted?
//!
//! A sparse image takes room from the file system that holds it when a block is written for the first time, and other
//! files may have used up that room by then. So [`HostRoom`] holds *ballast*: room on the same file system, enough for
//! everything that the volume has accepted and not written. When the host is full, ballast is given up piece by piece
//! for the image's writes. From then on the host is *short*: the volume accepts only what gives room back, until the
//! ballast is whole again.
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

/// With less ballast than this the host is short, unless the image cannot grow by as much.
pub const LEAST: u64 = 4 << 20;
/// Ballast to begin with. It grows with what the volume has accepted.
const FIRST: u64 = 16 << 20;
/// Room beside the ballast before a host that was short is taken to have enough.
const BEYOND: u64 = 1 << 20;
/// Ballast is given up in pieces of at least this size.
const PIECE: u64 = 256 << 10;

/// What the host has for an image.
pub trait Host: Send {
    /// Holds `bytes` bytes in place of what it held. If that fails, it holds what it held; if less was wanted than it
    /// held, it may hold nothing then.
    fn hold(&mut self, bytes: u64) -> io::Result<()>;
    /// True if it can hold room at all.
    fn can_hold(&self) -> bool {
        true
    }
    /// Bytes that are free beside those it holds.
    fn free(&self) -> io::Result<u64>;
    /// Bytes by which the image can grow, at most: its holes. `u64::MAX` where overwriting takes room, too.
    fn growth(&self) -> io::Result<u64>;
    /// The most that is worth holding.
    fn most(&self) -> u64;
    /// False if no name leads to the image any more: it goes with the process that has it open.
    fn has_name(&self) -> bool {
        true
    }
}

/// What a change does to the room that a volume takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It takes room, or may.
    Takes,
    /// It gives room back, once it is written: it may use what is kept from others.
    Gives,
}

/// Room on the host for an image. See the [module](self).
pub struct HostRoom {
    state: Mutex<State>,
    /// Ballast, in bytes; `u64::MAX` if it is all by which the image can grow.
    held: AtomicU64,
    short: AtomicBool,
    /// How often the host became short.
    shortages: AtomicU64,
}

struct State {
    host: Box<dyn Host>,
    /// Bytes of ballast. Of a host that can hold none: what it had free when it was asked last, in part.
    held: u64,
    report: Option<Reporter>,
    /// The image had no name when it was looked at last.
    nameless: bool,
}

/// Hears when a host becomes short, when it has room again, and when the image has lost its name.
pub type Reporter = Box<dyn Fn(Turn) + Send>;

/// What happened to the host.
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
    /// Takes ballast if there is room for it; otherwise the host is short from the start.
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

    /// Who hears of changes from now on.
    pub fn report_to(&self, report: Reporter) {
        self.state.lock().report = Some(report);
    }

    /// True while only changes that give room back are to be accepted.
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    /// The number of the shortage that lasts: whatever was accepted before it should be written now.
    pub fn shortage(&self) -> Option<u64> {
        self.is_short().then(|| self.shortages.load(Ordering::Acquire))
    }

    /// True if `blocks` blocks are certain to find room on the host. What takes room may count on five eighths of the
    /// ballast, what gives room back on seven; the rest is for the host's own tables.
    pub fn covers(&self, blocks: u64, change: Change) -> bool {
        let eighths = match change {
            Change::Takes => 5,
            Change::Gives => 7,
        };
        let bytes = blocks.saturating_mul(BLOCK as u64 * 8) / eighths;
        bytes <= self.held.load(Ordering::Acquire) || (!self.is_short() && self.grow(bytes))
    }

    /// Gives up ballast for a write of `bytes` bytes that found no room. False if there is none.
    pub fn make_way(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        self.set_short(&state, true);
        if !state.host.can_hold() || state.held == 0 {
            return false;
        }
        let left = state.held.saturating_sub((bytes + bytes / 8).max(PIECE));
        // If even giving up fails, the host has let go of all.
        state.held = state.host.hold(left).map_or(0, |()| left);
        self.note_held(&state);
        true
    }

    /// True if a name leads to the image.
    pub fn has_name(&self) -> bool {
        self.state.lock().host.has_name()
    }

    /// Looks at the host again: takes ballast if some is missing, notices a shortage and its end, and that the image has lost
    /// its name. To be called about once a second.
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
            // As much as there is, so that room can be given back meanwhile.
            let some = state.held + state.free() / 2;
            _ = state.hold_more(want) || state.hold_more(least) || state.hold_more(some.min(least));
        }
        self.note_held(&state);
        self.set_short(&state, state.held < least || state.free() < beyond);
    }

    /// The image became smaller: it can grow again.
    pub fn discarded(&self) {
        if self.held.load(Ordering::Acquire) == u64::MAX {
            self.renew();
        }
    }

    /// Free bytes of the host now, the ballast not counted.
    pub fn free(&self) -> u64 {
        self.state.lock().free()
    }

    /// Bytes of ballast now.
    pub fn held(&self) -> u64 {
        self.state.lock().held
    }

    /// True if the host cannot hold room: then a shortage is noticed only when somebody looks.
    pub fn is_unheld(&self) -> bool {
        !self.state.lock().host.can_hold()
    }

    /// Takes more ballast, so that `bytes` bytes are held. False if they are not.
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

    /// A host that does not answer is taken for full.
    fn free(&self) -> u64 {
        self.host.free().unwrap_or(0)
    }

    fn growth(&self) -> u64 {
        self.host.growth().unwrap_or(u64::MAX)
    }

    /// The most ballast that the host can spare now: a quarter of what is free, but not less than the least.
    fn limit(&self) -> u64 {
        let quarter = self.free().saturating_add(self.held) / 4;
        quarter.max(LEAST).min(self.host.most()).min(self.growth())
    }

    /// False if the host does not hold `bytes` bytes.
    fn hold_more(&mut self, bytes: u64) -> bool {
        if bytes > self.held && self.host.can_hold() && self.host.hold(bytes).is_ok() {
            self.held = bytes;
        }
        self.held >= bytes
    }
}
