//! Which segments did Linux choose, and what did it choose from?
//!
//! A [`Fixture`] is a recording of the kernel's F2FS at work on one image: states of the segment table, and
//! between them the kernel's own account of every choice (its tracepoints `f2fs_get_victim`,
//! `f2fs_gc_begin` and `f2fs_gc_end`). `conformance/fixtures/gc/README.md` describes the text form,
//! which [`Fixture::parse`] reads and `Display` writes.
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
    /// What `uname -r` and `uname -v` said.
    pub kernel: String,
    /// The volume.
    pub volume: Shape,
    /// Every time it was mounted, oldest first.
    pub mounts: Vec<Mount>,
}

/// What never changes about a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Segments of the main area.
    pub main_segments: u32,
    /// Segments in a section.
    pub segments_per_section: u32,
    /// Segments kept back for cleaning (`rsvd_segment_count`).
    pub reserved: u32,
    /// Segments users never get (`overprov_segment_count`).
    pub overprovision: u32,
    /// Blocks users may fill.
    pub user_blocks: u64,
}

/// From one mount to the unmount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// As given to `mount -o`.
    pub options: String,
    /// Time since the kernel's start just before and just after the mount, in hundredths of a second.
    pub uptime: (u64, u64),
    /// The kernel's note of when it mounted, in seconds since its start (`mounted_time_sec`).
    pub mounted: u64,
    /// The file system's knobs below `/sys/fs/f2fs` right after mounting.
    pub knobs: Vec<(String, u64)>,
    /// The volume as it lay on the disk when it was mounted.
    pub state: State,
    /// What happened then, in order.
    pub steps: Vec<Step>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A knob was set.
    Set {
        /// Its name below `/sys/fs/f2fs/DISK`.
        knob: String,
        /// To what.
        value: u64,
    },
    /// Something was asked of the file system; what it did follows.
    Do(String),
    /// It failed.
    Failed(String),
    /// A checkpoint was written and this is what it says.
    State(Box<State>),
    /// A collection began.
    Begin(Round),
    /// A segment was chosen.
    Victim(Victim),
    /// What the search found that chose, or refused, just before: told by kernels with `kernel/patches`.
    Looked(Looked),
    /// A collection ended.
    End(Round),
    /// A checkpoint has written all contents and goes on with the tables: what a later choice is made from is
    /// no longer the state before.
    Checkpoint {
        /// Time since the kernel's start, in microseconds.
        at: u64,
    },
}

/// The segment table as a checkpoint has it, with what else decides about choices. Nothing has been written
/// since: every segment's valid blocks are also those of the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Time since the kernel's start, in hundredths of a second.
    pub uptime: u64,
    /// Seconds of mounted time, as the checkpoint has it.
    pub elapsed: u64,
    /// Blocks in use.
    pub valid_blocks: u64,
    /// The six logs, indexed by [`LogType`].
    pub logs: [LogState; 6],
    /// The segment of the log for what age-threshold cleaning moves, which is in no checkpoint.
    pub atgc_log: Option<u32>,
    /// The segment of the log for pinned files, which is in no checkpoint either.
    pub pinned_log: Option<u32>,
    /// Sections that background cleaning has chosen and not yet emptied.
    pub marked: Vec<u32>,
    /// Every segment of the main area.
    pub segments: Vec<Segment>,
}

/// Where a log stands.
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
    /// Which log wrote it.
    pub log: LogType,
    /// Valid blocks, 0..=512.
    pub valid: u16,
    /// Seconds of mounted time.
    pub mtime: u64,
    /// One bit a block, most significant first.
    pub map: [u8; MAP_BYTES],
}

impl Segment {
    /// A segment never written to.
    pub const UNUSED: Segment = Segment { log: LogType::HotData, valid: 0, mtime: 0, map: [0; MAP_BYTES] };
}

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gc {
    /// Cleaning in the background, or a log in search of a segment.
    Background,
    /// Cleaning because space is short or it was asked for synchronously.
    Foreground,
}

/// What the segment is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be cleaned (the kernel's `LFS`).
    Clean,
    /// To be filled by a log (`SSR`).
    Fill,
    /// To be filled with what age-threshold cleaning moves (`AT_SSR`).
    FillByAge,
}

/// What was compared.
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

/// One `f2fs_get_victim`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    /// Time since the kernel's start, in microseconds.
    pub at: u64,
    /// The temperature searched; `None` for cleaning, which takes any.
    pub log: Option<LogType>,
    /// Who asked.
    pub gc: Gc,
    /// What for.
    pub purpose: Purpose,
    /// What was compared.
    pub policy: Policy,
    /// The segment with the least cost: of a section, the one that was looked at.
    pub segment: u32,
    /// Its cost.
    pub cost: u32,
    /// Segments looked at together.
    pub unit: u32,
    /// The section that foreground cleaning is at (`cur_victim_sec`); for a foreground choice already this one.
    pub at_section: Option<u32>,
    /// Segments that the next checkpoint frees.
    pub prefree: u32,
    /// Free segments.
    pub free: u32,
}

/// One `f2fs_victim_frag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    /// Time since the kernel's start, in microseconds.
    pub at: u64,
    /// The temperature searched; `None` for cleaning.
    pub log: Option<LogType>,
    /// Who asked.
    pub gc: Gc,
    /// What for.
    pub purpose: Purpose,
    /// What was compared.
    pub policy: Policy,
    /// What was chosen; `None` if nothing was.
    pub segment: Option<u32>,
    /// Its valid blocks.
    pub valid: u32,
    /// Its factor f of fragmented free space.
    pub factor: u32,
    /// Its free blocks in fragments.
    pub loose: u32,
    /// Its fragments.
    pub fragments: u32,
    /// How many candidates there were.
    pub candidates: u32,
    /// How many of them are not worth cleaning.
    pub refused: u32,
    /// Free sections.
    pub free_sections: u32,
    /// Seconds of mounted time that the policy by energy reckons with; 0 under others.
    pub now: u64,
    /// Whether no charger was online.
    pub on_battery: bool,
    /// Whether the policy by energy has what it moves go into holes.
    pub into_holes: bool,
    /// What the policy by energy expects; empty under others.
    pub outlook: Outlook,
}

/// One `f2fs_gc_begin` or `f2fs_gc_end`.
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
    /// The state it was made from, if nothing was chosen since and no checkpoint was written.
    pub state: &'f State,
    /// What happened since the mount, up to the choice.
    pub before: &'f [Step],
    /// Choices made since the state was taken.
    pub since: usize,
    /// Checkpoints written since the state was taken.
    pub checkpoints: usize,
    /// The choice.
    pub victim: &'f Victim,
}

impl Fixture {
    /// Every choice that was the first of its policy since the mount, and the first of any since a state was taken, with
    /// no checkpoint between:
    /// the kernel remembered no place where an earlier search ended, and had marked no section but
    /// those the state names. Where a log needed a segment, something had been written since that state.
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
