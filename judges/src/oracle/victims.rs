//! Which segments did Linux choose, and from which state?
//!
//! A [`Fixture`] is a recording of the kernel's F2FS at work on one image: states of the segment table, and between
//! them the kernel's own reports of every choice (its tracepoints `f2fs_get_victim`, `f2fs_gc_begin` and
//! `f2fs_gc_end`). `conformance/fixtures/gc/README.md` describes the text form, which [`Fixture::parse`] reads and
//! `Display` writes.
//!
//! Left out: what the right choice would have been.

mod text;

use format::sit::{LogType, MAP_BYTES};

pub use text::Malformed;
pub use victim::Outlook;

/// One image, mounted one or more times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixture {
    /// How it was made, in lines of text.
    pub about: Vec<String>,
    /// Output of `uname -r` and `uname -v`.
    pub kernel: String,
    /// The volume.
    pub volume: Shape,
    /// Its mounts, oldest first.
    pub mounts: Vec<Mount>,
}

/// The fixed parameters of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Segments of the main area.
    pub main_segments: u32,
    /// Segments in a section.
    pub segments_per_section: u32,
    /// Segments reserved for cleaning (`rsvd_segment_count`).
    pub reserved: u32,
    /// Segments unavailable to users (`overprov_segment_count`).
    pub overprovision: u32,
    /// Blocks users may fill.
    pub user_blocks: u64,
}

/// A mount, up to its unmount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// As given to `mount -o`.
    pub options: String,
    /// Time since the kernel's start just before and just after the mount, in hundredths of a second.
    pub uptime: (u64, u64),
    /// The kernel's mount time in seconds since its start (`mounted_time_sec`).
    pub mounted: u64,
    /// The file system's knobs below `/sys/fs/f2fs` right after mounting.
    pub knobs: Vec<(String, u64)>,
    /// The on-disk state of the volume when it was mounted.
    pub state: State,
    /// The events after that, in order.
    pub steps: Vec<Step>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A knob was set.
    Set {
        /// Its name below `/sys/fs/f2fs/DISK`.
        knob: String,
        /// Its value.
        value: u64,
    },
    /// An operation was requested; its effects follow.
    Do(String),
    /// It failed.
    Failed(String),
    /// A checkpoint with this state was written.
    State(Box<State>),
    /// A collection began.
    Begin(Round),
    /// A segment was chosen.
    Victim(Victim),
    /// Details of the search for the choice just before, from kernels with `kernel/patches`.
    Looked(Looked),
    /// A collection ended.
    End(Round),
    /// A checkpoint has written all data and continues with the tables: later choices no longer use the state before.
    Checkpoint {
        /// Time since the kernel's start, in microseconds.
        at: u64,
    },
}

/// The segment table of a checkpoint, with everything else that affects choices. Nothing has been written since: every
/// segment's valid blocks are also those of the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Time since the kernel's start, in hundredths of a second.
    pub uptime: u64,
    /// Mounted time in seconds, from the checkpoint.
    pub elapsed: u64,
    /// Blocks in use.
    pub valid_blocks: u64,
    /// The six logs, indexed by [`LogType`].
    pub logs: [LogState; 6],
    /// The segment of the log for blocks moved by age-threshold cleaning, which is not in checkpoints.
    pub atgc_log: Option<u32>,
    /// The segment of the log for pinned files, which is not in checkpoints either.
    pub pinned_log: Option<u32>,
    /// Sections that background cleaning has chosen and not yet emptied.
    pub marked: Vec<u32>,
    /// Every segment of the main area.
    pub segments: Vec<Segment>,
}

/// The state of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogState {
    /// Its segment.
    pub segment: u32,
    /// Its next block.
    pub next: u16,
    /// True if it fills holes.
    pub threaded: bool,
}

/// One entry of the SIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The log that wrote it.
    pub log: LogType,
    /// Valid blocks, 0..=512.
    pub valid: u16,
    /// Seconds of mounted time.
    pub mtime: u64,
    /// One bit per block, most significant first.
    pub map: [u8; MAP_BYTES],
}

impl Segment {
    /// A segment never written to.
    pub const UNUSED: Segment = Segment { log: LogType::HotData, valid: 0, mtime: 0, map: [0; MAP_BYTES] };
}

/// The caller of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gc {
    /// Background cleaning, or a log that needs a segment.
    Background,
    /// Cleaning because of low space, or requested synchronously.
    Foreground,
}

/// The purpose of the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be cleaned (the kernel's `LFS`).
    Clean,
    /// To be filled by a log (`SSR`).
    Fill,
    /// To be filled with blocks moved by age-threshold cleaning (`AT_SSR`).
    FillByAge,
}

/// The criterion of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Valid blocks.
    Greedy,
    /// Age and valid blocks, multiplied.
    CostBenefit,
    /// Age and valid blocks, added, among the oldest.
    AgeThreshold,
    /// Age, valid blocks and fragmentation (with `kernel/patches`).
    Fagc,
    /// Energy (with `kernel/patches`).
    Joule,
}

/// An `f2fs_get_victim` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    /// Time since the kernel's start, in microseconds.
    pub at: u64,
    /// The temperature searched; `None` for cleaning, which takes any.
    pub log: Option<LogType>,
    /// The caller.
    pub gc: Gc,
    /// The purpose.
    pub purpose: Purpose,
    /// The criterion.
    pub policy: Policy,
    /// The segment with the lowest cost: for a section, the one examined.
    pub segment: u32,
    /// Its cost.
    pub cost: u32,
    /// Segments per candidate.
    pub unit: u32,
    /// The section of foreground cleaning (`cur_victim_sec`); for a foreground choice already the chosen one.
    pub at_section: Option<u32>,
    /// Segments that the next checkpoint frees.
    pub prefree: u32,
    /// Free segments.
    pub free: u32,
}

/// An `f2fs_victim_frag` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    /// Time since the kernel's start, in microseconds.
    pub at: u64,
    /// The temperature searched; `None` for cleaning.
    pub log: Option<LogType>,
    /// The caller.
    pub gc: Gc,
    /// The purpose.
    pub purpose: Purpose,
    /// The criterion.
    pub policy: Policy,
    /// The chosen segment; `None` if there was none.
    pub segment: Option<u32>,
    /// Its valid blocks.
    pub valid: u32,
    /// Its factor f of fragmented free space.
    pub factor: u32,
    /// Its free blocks in fragments.
    pub loose: u32,
    /// Its fragments.
    pub fragments: u32,
    /// Number of candidates.
    pub candidates: u32,
    /// Number of candidates not worth cleaning.
    pub refused: u32,
    /// Free sections.
    pub free_sections: u32,
    /// Mounted time in seconds used by the energy policy; 0 for others.
    pub now: u64,
    /// Whether no charger was online.
    pub on_battery: bool,
    /// Whether the energy policy puts moved blocks into holes.
    pub into_holes: bool,
    /// The energy policy's forecast; empty for others.
    pub outlook: Outlook,
}

/// An `f2fs_gc_begin` or `f2fs_gc_end` event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Time since the kernel's start, in microseconds.
    pub at: u64,
    /// Name and number of each counter, in the kernel's order and by the kernel's names.
    pub counters: Vec<(String, i64)>,
}

/// A choice, and the last state before it.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'f> {
    /// The mount it belongs to.
    pub mount: &'f Mount,
    /// The state it was based on, if there was no other choice and no checkpoint since.
    pub state: &'f State,
    /// The events between the mount and the choice.
    pub before: &'f [Step],
    /// Choices made since the state was taken.
    pub since: usize,
    /// Checkpoints written since the state was taken.
    pub checkpoints: usize,
    /// The choice.
    pub victim: &'f Victim,
}

impl Fixture {
    /// Every choice that was the first of its policy since the mount, and the first of any since a state was taken,
    /// with no checkpoint between: the kernel had no saved position of an earlier search, and had marked only the
    /// sections in the state. If a log needed a segment, data had been written since that state.
    pub fn first_choices(&self) -> impl Iterator<Item = Choice<'_>> {
        self.mounts.iter().flat_map(Mount::choices).filter(Choice::is_first)
    }
}

impl Mount {
    /// Every choice, in order.
    pub fn choices(&self) -> impl Iterator<Item = Choice<'_>> {
        let mut state = &self.state;
        let (mut since, mut checkpoints) = (0, 0);
        self.steps.iter().enumerate().filter_map(move |(n, step)| match step {
            Step::State(now) => {
                (state, since, checkpoints) = (now, 0, 0);
                None
            }
            Step::Victim(victim) => {
                since += 1;
                Some(Choice { mount: self, state, before: &self.steps[..n], since: since - 1, checkpoints, victim })
            }
            Step::Checkpoint { .. } => {
                checkpoints += 1;
                None
            }
            _ => None,
        })
    }
}

impl Mount {
    /// A knob's value right after mounting.
    pub fn knob(&self, name: &str) -> Option<u64> {
        self.knobs.iter().find(|(knob, _)| knob == name).map(|&(_, value)| value)
    }
    /// The mounted time at `uptime` seconds since the kernel's start (the kernel's `get_mtime`).
    pub fn time(&self, uptime: u64) -> u64 {
        self.state.elapsed + uptime.saturating_sub(self.mounted)
    }
}

impl Choice<'_> {
    fn is_first(&self) -> bool {
        let same = |step: &Step| matches!(step, Step::Victim(v) if v.policy == self.victim.policy);
        self.since == 0 && self.checkpoints == 0 && !self.before.iter().any(same)
    }

    /// A knob's value when the choice was made.
    pub fn knob(&self, name: &str) -> Option<u64> {
        let set = |step: &Step| match step {
            Step::Set { knob, value } if knob == name => Some(*value),
            _ => None,
        };
        self.before.iter().rev().find_map(set).or_else(|| self.mount.knob(name))
    }
}
