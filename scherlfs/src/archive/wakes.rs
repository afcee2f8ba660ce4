//! What woke the disk? A wake is a request after at least the sleep time without one. The first request of a mount
//! counts, since it is unknown how long the disk slept before.
//!
//! The reason is the volume's current activity for its caller ([`because`]), or otherwise the kind of request. The
//! process comes from the serving thread ([`vfs::asking`]).

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Tag, Time};
use parking_lot::Mutex;

use crate::cause::Cause;

/// Wakes that are reported individually.
const RECENT: usize = 16;

/// Why a sleeping disk received a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The volume was mounted.
    Mount,
    /// Contents were read.
    Contents,
    /// Names or attributes were read that the index lacks.
    Names,
    /// An fsync or sync.
    Fsync,
    /// Too many blocks wait.
    Full,
    /// The disk was awake, and blocks waited.
    Waiting,
    /// The volume was unmounted.
    Unmount,
    /// A write: with every call, or to make room.
    Written,
}

impl Why {
    const ALL: [Why; 8] =
        [Why::Mount, Why::Contents, Why::Names, Why::Fsync, Why::Full, Why::Waiting, Why::Unmount, Why::Written];

    /// Key for counters.
    fn word(self) -> &'static str {
        match self {
            Why::Mount => "mount",
            Why::Contents => "contents",
            Why::Names => "names",
            Why::Fsync => "fsync",
            Why::Full => "stage_full",
            Why::Waiting => "waiting",
            Why::Unmount => "unmount",
            Why::Written => "written",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Why::Mount => "mount",
            Why::Contents => "contents read",
            Why::Names => "names or attributes read that the index does not have",
            Why::Fsync => "fsync",
            Why::Full => "stage full",
            Why::Waiting => "what waited was written",
            Why::Unmount => "unmount",
            Why::Written => "written without waiting",
        }
    }

    fn from_tag(tag: Tag) -> Why {
        let is = |causes: &[Cause]| causes.iter().any(|c| *c as u8 == tag.cause);
        match () {
            () if is(&[Cause::Contents]) => Why::Contents,
            () if is(&[Cause::Inode, Cause::Directory, Cause::InodeMap]) => Why::Names,
            () if is(&[Cause::Recovery]) => Why::Mount,
            () => Why::Written,
        }
    }
}

thread_local! {
    static BECAUSE: Cell<Option<Why>> = const { Cell::new(None) };
}

/// Calls `work` for a reason that its requests do not show.
pub(crate) fn because<T>(why: Why, work: impl FnOnce() -> T) -> T {
    struct Back(Option<Why>);
    impl Drop for Back {
        fn drop(&mut self) {
            BECAUSE.set(self.0);
        }
    }
    let _back = Back(BECAUSE.replace(Some(why)));
    work()
}

/// True if this thread works for that reason.
pub(crate) fn is_because(why: Why) -> bool {
    BECAUSE.get() == Some(why)
}

struct Wake {
    at: Time,
    why: Why,
    owner: u64,
    pid: Option<u32>,
    program: Option<String>,
    slept: Duration,
}

#[derive(Default)]
struct Inner {
    last: Option<Duration>,
    read: Option<Duration>,
    wrote: Option<Duration>,
    slept: Duration,
    by: [u64; Why::ALL.len()],
    recent: VecDeque<Wake>,
}

/// Finds the name of a process.
pub type ProgramOf = fn(u32) -> Option<String>;

/// Counts wakes.
pub(crate) struct Wakes {
    clock: Arc<dyn Clock>,
    /// Time without requests after which the disk sleeps.
    sleep: Duration,
    program_of: Option<ProgramOf>,
    inner: Mutex<Inner>,
}

fn span(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

impl Wakes {
    pub fn new(clock: Arc<dyn Clock>, sleep: Duration, program_of: Option<ProgramOf>) -> Self {
        Wakes { clock, sleep, program_of, inner: Mutex::default() }
    }

    /// Records the start of a request.
    pub fn touch(&self, tag: Tag, writes: bool) {
        let now = self.clock.monotonic();
        let mut inner = self.inner.lock();
        let gap = inner.last.map(|last| now.saturating_sub(last));
        inner.last = Some(now);
        let why = BECAUSE.get().unwrap_or_else(|| Why::from_tag(tag));
        if writes {
            inner.wrote = Some(now);
        } else if why == Why::Contents {
            inner.read = Some(now);
        }
        if gap.is_some_and(|gap| gap < self.sleep) {
            return;
        }
        let slept = gap.map_or(Duration::ZERO, |gap| gap - self.sleep);
        inner.slept += slept;
        inner.by[why as usize] += 1;
        let pid = vfs::asking::who();
        let program = pid.zip(self.program_of).and_then(|(pid, of)| of(pid));
        inner.recent.push_front(Wake { at: self.clock.now(), why, owner: tag.owner, pid, program, slept });
        inner.recent.truncate(RECENT);
    }

    /// Records the end of a request.
    pub fn done(&self) {
        self.inner.lock().last = Some(self.clock.monotonic());
    }

    /// True if the disk does not sleep yet.
    pub fn is_awake(&self) -> bool {
        let (now, inner) = (self.clock.monotonic(), self.inner.lock());
        inner.last.is_some_and(|last| now.saturating_sub(last) < self.sleep)
    }

    /// True if waiting blocks may be written: contents are being read, and nothing was written since.
    pub fn is_awake_for_readers(&self) -> bool {
        let (now, inner) = (self.clock.monotonic(), self.inner.lock());
        inner
            .read
            .is_some_and(|read| inner.wrote.is_none_or(|wrote| wrote < read) && now.saturating_sub(read) < self.sleep)
    }

    /// Its counters. `owner` finds the path for the owner of a request.
    pub fn report(&self, owner: impl Fn(u64) -> Option<String>) -> Vec<(String, String)> {
        let (now, wall) = (self.clock.monotonic(), self.clock.now());
        let inner = self.inner.lock();
        let idle = inner.last.map_or(Duration::ZERO, |last| now.saturating_sub(last));
        let asleep = idle >= self.sleep;
        let slept = inner.slept + if asleep { idle - self.sleep } else { Duration::ZERO };
        let mut rows = vec![
            ("disk".to_owned(), if asleep { "asleep" } else { "awake" }.to_owned()),
            ("disk_idle_seconds".to_owned(), idle.as_secs().to_string()),
            ("disk_slept_seconds".to_owned(), slept.as_secs().to_string()),
            ("disk_wakes".to_owned(), inner.by.iter().sum::<u64>().to_string()),
        ];
        for why in Why::ALL {
            rows.push((format!("disk_wakes_{}", why.word()), inner.by[why as usize].to_string()));
        }
        for (n, wake) in inner.recent.iter().enumerate() {
            let ago = Duration::from_secs(wall.secs.saturating_sub(wake.at.secs).max(0).unsigned_abs());
            let mut text = format!("{} ago (@{}): {}", span(ago), wake.at.secs, wake.why.text());
            if let Some(path) = owner(wake.owner) {
                text += &format!(", {path}");
            }
            match (&wake.program, wake.pid) {
                (Some(program), Some(pid)) => text += &format!(", by {program} ({pid})"),
                (None, Some(pid)) => text += &format!(", by process {pid}"),
                _ => {}
            }
            if wake.slept > Duration::ZERO {
                text += &format!("; it had slept {}", span(wake.slept));
            }
            rows.push((format!("disk_wake_{}", n + 1), text));
        }
        rows
    }
}
