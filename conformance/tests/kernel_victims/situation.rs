//! From what does the kernel choose, and is all of it recorded?
//!
//! A second, as simple as possible implementation of Linux 6.1's rules of what is dirty and what is skipped
//! (`fs/f2fs/gc.c`, `segment.c`). Left out: the choice itself.

use std::collections::BTreeSet;

use format::bits;
use format::sit::LogType;
use judges::oracle::victims::{Choice, Fixture, Gc, LogState, Mount, Policy, Purpose, Segment, State, Step, Victim};
use victim::fragmentation::Fragmentation;

/// One unit of choice: a section, or a segment for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Its first segment.
    pub first: u32,
    /// Its valid blocks.
    pub valid: u64,
    /// The mean age of its section.
    pub mtime: u64,
    /// Already selected by background cleaning, but examined.
    pub marked: bool,
}

/// What is known about a choice.
pub enum Situation<'a> {
    /// Foreground cleaning took a section marked by background cleaning, without comparing costs.
    Unpriced {
        /// The first segment of the only possible section.
        segment: u32,
        /// The cost it must report.
        cost: u64,
    },
    /// Its inputs are not fully recorded, and why.
    Unknown(&'static str),
    /// It follows from these inputs.
    Known(Scene<'a>),
}

/// The inputs of a choice.
pub struct Scene<'a> {
    /// The recording.
    pub fixture: &'a Fixture,
    /// The choice.
    pub choice: &'a Choice<'a>,
    /// The units that the kernel examines, in order of place.
    pub units: Vec<Unit>,
    /// For filling by age, the ages of the segments that may be the one being emptied.
    pub sources: Vec<u64>,
    /// Why the choice is not exactly determined, although the search is.
    pub vague: Option<&'static str>,
}

/// Which of the kernel's state is known; an unknown search makes the next ones unknown.
pub struct Certain {
    last: [bool; 5],
    youngest: bool,
}

impl Certain {
    /// Right after mounting, all of it.
    pub fn at_mount() -> Self {
        Certain { last: [true; 5], youngest: true }
    }
}

impl Scene<'_> {
    /// The factor f and the free blocks in fragments of `segments` segments.
    pub fn fragmentation(&self, first: u32, segments: u32) -> (u32, u32) {
        let first = first as usize;
        let each =
            self.choice.state.segments[first..first + segments as usize].iter().map(|s| Fragmentation::scan(&s.map));
        each.fold((0, 0), |(f, loose), one| (f + one.factor.value(), loose + u32::from(one.loose)))
    }
    /// Whether the stop rule of `kernel/patches` skips a unit.
    pub fn refused(&self, unit: &Unit) -> bool {
        let victim = self.choice.victim;
        let ratio = self.choice.knob("gc_frag_ratio").unwrap_or(0);
        let bound = ratio > 0 && victim.purpose == Purpose::Clean && victim.gc == Gc::Background;
        let free = 512 * u64::from(victim.unit) - unit.valid;
        bound && 100 * u64::from(self.fragmentation(unit.first, victim.unit).1) <= ratio * free
    }
    /// Segments per section.
    pub fn per_section(&self) -> u32 {
        self.fixture.volume.segments_per_section
    }
    /// A knob's value; every mount records its knobs.
    pub fn knob(&self, name: &str) -> u64 {
        self.choice.knob(name).unwrap_or_else(|| panic!("no knob {name}"))
    }
    /// Whether `gc_urgent` is 1.
    pub fn urgent(&self) -> bool {
        self.choice.knob("gc_urgent") == Some(1)
    }
    /// The time of the last write; nothing was written since the state.
    pub fn now(&self) -> u64 {
        let mount = self.choice.mount;
        mount.time(self.choice.state.uptime.max(mount.uptime.1) / 100)
    }
}

/// The lowest mean age of all sections at mount.
pub fn oldest_at_mount(fixture: &Fixture, mount: &Mount) -> u64 {
    let per = fixture.volume.segments_per_section as usize;
    mount.state.segments.chunks(per).map(mean_age).min().unwrap_or(0)
}

fn mean_age(section: &[Segment]) -> u64 {
    section.iter().map(|s| s.mtime).sum::<u64>() / section.len() as u64
}

/// What is dirty, in order of place: sections for cleaning, segments of one log for filling.
fn dirty(fixture: &Fixture, choice: &Choice<'_>, marked: &BTreeSet<u32>) -> Vec<Unit> {
    let state = choice.state;
    let per_section = fixture.volume.segments_per_section;
    let section = |segment: u32| segment / per_section;
    // A log that has since chosen a segment has filled and left its own.
    let moved = |log: LogType| since(choice).any(|v| v.purpose == Purpose::Fill && v.log == Some(log));
    let (left, kept): (Vec<LogType>, _) = LogType::ALL.into_iter().partition(|log| moved(*log));
    let left: Vec<LogState> = left.into_iter().map(|log| state.logs[log.index()]).collect();
    let logs = kept.iter().map(|log: &LogType| state.logs[log.index()].segment);
    let logs = logs.chain(state.atgc_log).chain(state.pinned_log);
    let busy: Vec<u32> = logs.map(section).collect();
    let written = |segment: u32| left.iter().find(|log| log.segment == segment).map_or(0, |log| holes(state, log));
    // Segments that logs have since filled are full, or still belong to a log.
    let filled: Vec<u32> = since(choice).filter(|v| v.purpose != Purpose::Clean).map(|v| v.segment).collect();
    let per = if choice.victim.purpose == Purpose::Clean { per_section } else { 1 };
    // A single segment also has the age of its whole section.
    let age = |segment: u32| {
        let first = (section(segment) * per_section) as usize;
        mean_age(&state.segments[first..first + per_section as usize])
    };
    let units = state.segments.chunks(per as usize).zip((0..).step_by(per as usize));
    units
        .map(|(segments, first): (&[Segment], u32)| {
            let valid = segments.iter().zip(first..).map(|(s, n)| u64::from(s.valid) + written(n)).sum();
            let mtime = age(first);
            let marked = choice.victim.gc == Gc::Background && marked.contains(&section(first));
            (Unit { first, valid, mtime, marked }, segments[0].log)
        })
        .filter(|(unit, log)| {
            unit.valid > 0
                && unit.valid < 512 * u64::from(per)
                && !busy.contains(&section(unit.first))
                && !filled.contains(&unit.first)
                && choice.victim.log.is_none_or(|wanted| wanted == *log)
        })
        .map(|(unit, _)| unit)
        .collect()
}

/// Blocks that a log of the state must still write to reach its segment's end: it skips valid blocks.
fn holes(state: &State, log: &LogState) -> u64 {
    let map = &state.segments[log.segment as usize].map;
    (usize::from(log.next)..512).filter(|block| !bits::msb_test(map, *block)).count() as u64
}

/// Whether the youngest age matters.
pub fn by_age(victim: &Victim) -> bool {
    matches!(victim.policy, Policy::AgeThreshold | Policy::Fagc) || victim.purpose == Purpose::FillByAge
}

/// Choices since the state.
fn since<'f>(choice: &Choice<'f>) -> impl Iterator<Item = &'f Victim> {
    let chosen = |step: &'f Step| if let Step::Victim(v) = step { Some(v) } else { None };
    choice.before.iter().rev().filter_map(chosen).take(choice.since).collect::<Vec<_>>().into_iter().rev()
}

/// Sections marked by background cleaning: in the state, and since.
fn marked(fixture: &Fixture, choice: &Choice<'_>) -> BTreeSet<u32> {
    let mut marked: BTreeSet<u32> = choice.state.marked.iter().copied().collect();
    for victim in since(choice).filter(|v| v.purpose == Purpose::Clean) {
        let section = victim.segment / fixture.volume.segments_per_section;
        match victim.gc {
            Gc::Background => marked.insert(section),
            Gc::Foreground => marked.remove(&section),
        };
    }
    marked
}

/// Whether the last round of cleaning left dirty blocks of directories.
fn moves_directories(choice: &Choice<'_>) -> bool {
    let ends =
        choice.before.iter().rev().filter_map(|step| if let Step::End(round) = step { Some(round) } else { None });
    let counters = ends.take(1).flat_map(|round| &round.counters);
    counters.into_iter().any(|(name, value)| name == "dents" && *value > 0)
}

/// The inputs of a choice; `certain` carries over between the choices of a mount.
pub fn situation<'a>(fixture: &'a Fixture, choice: &'a Choice<'a>, certain: &mut Certain) -> Situation<'a> {
    let victim = choice.victim;
    let slot = victim.policy as usize;
    let per = fixture.volume.segments_per_section;
    let marked = marked(fixture, choice);
    if victim.gc == Gc::Foreground
        && victim.purpose == Purpose::Clean
        && let Some(section) = marked.first()
    {
        // A marked section goes first, whatever its cost.
        return Situation::Unpriced { segment: section * per, cost: 2 * 512 * u64::from(per) };
    }
    let cleaned: Vec<u32> = since(choice).filter(|v| v.purpose == Purpose::Clean).map(|v| v.segment).collect();
    let unknown = match victim.purpose {
        // Filling uses the valid blocks of the last checkpoint.
        Purpose::Fill | Purpose::FillByAge if choice.checkpoints > 0 => {
            Some("filled after a checkpoint, with no state since")
        }
        Purpose::Clean if choice.since > 0 => Some("cleaned after another choice, with no state between"),
        Purpose::Fill if choice.since > 0 && !cleaned.is_empty() => Some("filled while cleaning moved blocks"),
        Purpose::Fill if choice.since > 0 && per > 1 => {
            Some("filled after another choice, which makes the rest of its section older or younger")
        }
        Purpose::Fill if choice.since > 0 && victim.log.is_some_and(LogType::is_node) => {
            Some("filled with nodes after another choice, whose filling wrote nodes too")
        }
        Purpose::FillByAge if cleaned.len() != 1 => Some("filled by age while several sections were emptied"),
        Purpose::FillByAge if choice.since > 1 && per > 1 => {
            Some("filled by age after another choice, which makes the rest of its section older or younger")
        }
        _ => None,
    };
    let unknown = unknown.or((!certain.last[slot]).then_some("searched from where an unknown search ended"));
    if let Some(why) = unknown {
        certain.last[slot] = false;
        certain.youngest &= !by_age(victim);
        return Situation::Unknown(why);
    }
    if by_age(victim) && !certain.youngest {
        certain.last[slot] = false;
        return Situation::Unknown("compared with the youngest of an unknown search");
    }
    let sources = match (victim.purpose, cleaned.first()) {
        (Purpose::FillByAge, Some(segment)) => {
            // The recording does not show which of a section's segments filled the log.
            let first = (segment / per * per) as usize;
            let segments = &choice.state.segments[first..first + per as usize];
            segments.iter().filter(|s| s.valid > 0).map(|s| s.mtime).collect()
        }
        _ => Vec::new(),
    };
    let vague = victim.purpose == Purpose::FillByAge && moves_directories(choice);
    Situation::Known(Scene {
        fixture,
        choice,
        units: dirty(fixture, choice, &marked),
        sources,
        // Blocks of directories are moved differently, which makes the segment they leave younger.
        vague: vague.then_some("filled by age while directories moved, which makes their segment younger"),
    })
}
