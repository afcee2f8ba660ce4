//! What does a policy see of a mounted volume, and what is remembered between its choices?
//!
//! The segment table says which segments changed; here that becomes what the policies look at, kept
//! up when somebody asks and not at every written block. Lies behind the segment mutex.
//!
//! Left out on purpose: the choices themselves (`policy`), and when they are made (`pace`,
//! `background`).

use std::collections::BTreeSet;

use format::SegNo;
use format::addr::SecNo;
use format::sit::LogType;
use format::superblock::SuperBlock;
use rustc_hash::FxHashSet;

use super::background::{Settings, Urgency};
use super::policy::memory::{Ask, Memory, Tuning};
use super::policy::similar::{self, Moved};
use super::policy::{Candidate, Policy, Power, atgc, cost_benefit, fagc, greedy, joule, mwhfb};
use crate::segment::index::Index;
use crate::segment::table::SegmentTable;
use crate::volume::MountOptions;

/// For what a victim is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hurry {
    /// Somebody waits for space.
    Foreground,
    /// Nobody does.
    Background,
    /// Nobody does, but cleaning is wanted now, by cost and benefit (kernel `GC_URGENT_LOW`, `_MID`).
    Urgent,
    /// Nobody does, but cleaning is wanted now and much of it (kernel `GC_URGENT_HIGH`).
    UrgentHigh,
}

/// Not among the candidates of any kind.
const NOWHERE: u8 = u8::MAX;

/// Candidates by unit, and the segments of one log's kind.
struct Indexes {
    /// Sections, as victims.
    victims: Index,
    /// Segments by kind, as targets of threaded logging.
    kinds: [Index; 6],
    /// The index of the kind under which each segment is entered, or [`NOWHERE`].
    entered: Vec<u8>,
}

/// Chooses victims and targets.
pub struct Chooser {
    segs: SegNo,
    per_section: u32,
    policy: Policy,
    power: Power,
    /// Numbers a user may change.
    pub(crate) tuning: Tuning,
    memory: Memory,
    prices: joule::Prices,
    /// Logs fill holes even where fresh segments are plenty (kernel `f2fs_need_SSR` in `GC_URGENT_HIGH`).
    pub(crate) threads_always: bool,
    /// The section being cleaned now.
    pub(crate) victim: Option<SecNo>,
    /// Sections with valid blocks nobody owns: they cannot be emptied.
    hopeless: FxHashSet<SecNo>,
    indexes: Option<Box<Indexes>>,
}

impl Chooser {
    /// For a volume that was mounted for `elapsed` seconds before.
    pub(crate) fn new(sb: &SuperBlock, table: &SegmentTable, elapsed: u64, options: &MountOptions) -> Chooser {
        let oldest = (0..sb.sections()).map(|sec| mean_age(table, SecNo(sec))).min().unwrap_or(0);
        Chooser::of(SegNo(sb.main_segs), sb.segs_per_sec, Memory::at_mount(elapsed, oldest), options)
    }
    fn of(segs: SegNo, per_section: u32, memory: Memory, options: &MountOptions) -> Chooser {
        Chooser {
            segs,
            per_section,
            policy: options.gc.policy,
            power: options.gc.power,
            tuning: Tuning::default(),
            memory,
            prices: options.prices,
            threads_always: options.gc.urgency == Urgency::High,
            victim: None,
            hopeless: FxHashSet::default(),
            indexes: None,
        }
    }

    /// Chooses by other settings from now on.
    pub(crate) fn set(&mut self, settings: &Settings) {
        self.policy = settings.policy;
        self.power = settings.power;
        self.threads_always = settings.urgency == Urgency::High;
    }
    /// Invalid blocks that cleaning reads along rather than making two requests: under our own policy as
    /// many as a request costs, under the others none, as in the kernel.
    pub(crate) fn read_along(&self) -> u32 {
        match self.policy {
            Policy::Joule => (self.prices.request / self.prices.read_block.max(1)).min(511) as u32,
            _ => 0,
        }
    }
    /// Does not choose a section again.
    pub(crate) fn give_up(&mut self, section: SecNo) {
        self.hopeless.insert(section);
    }
    /// True if moved data goes to segments of similar age.
    pub(crate) fn moves_by_age(&self) -> bool {
        match self.policy {
            Policy::Greedy | Policy::CostBenefit | Policy::Mwhfb | Policy::Joule => false,
            Policy::Atgc => self.memory.elapsed >= self.tuning.age_threshold,
            Policy::Fagc => true,
        }
    }

    /// The section to clean next, if any is worth it; `now` in seconds of mounted time.
    pub(crate) fn victim(&mut self, table: &mut SegmentTable, hurry: Hurry, now: u64) -> Option<Candidate> {
        self.refresh(table);
        let foreground = hurry == Hurry::Foreground;
        let passed = self.passed(table);
        let urgent = hurry == Hurry::UrgentHigh;
        let ask = Ask { foreground, urgent, end: self.segs, unit: self.per_section, passed: &passed };
        self.memory.max_mtime = self.memory.max_mtime.max(now);
        let view = &self.indexes.as_ref()?.victims;
        let (memory, tuning) = (&self.memory, &self.tuning);
        let by = match (hurry, self.policy) {
            (Hurry::Foreground | Hurry::UrgentHigh, _) => Policy::Greedy,
            (Hurry::Urgent, _) => Policy::CostBenefit,
            // Kernel: not before the volume is old enough to tell ages.
            (Hurry::Background, Policy::Atgc) if !self.moves_by_age() => Policy::CostBenefit,
            (Hurry::Background, policy) => policy,
        };
        let (choice, memory) = match by {
            Policy::Greedy => greedy::choose(view, memory, tuning, ask),
            Policy::CostBenefit => cost_benefit::choose(view, memory, tuning, ask),
            Policy::Mwhfb => mwhfb::choose(view, memory, tuning, ask),
            Policy::Atgc => atgc::choose(view, memory, tuning, ask),
            Policy::Fagc => fagc::choose(view, memory, tuning, ask),
            Policy::Joule => {
                let free = table.free_sections();
                joule::choose(view, memory, tuning, ask, &self.prices, self.power, free)
            }
        };
        self.memory = memory;
        choice.map(|c| c.victim)
    }

    /// A used segment of one kind whose holes a log may fill because free segments are short.
    pub(crate) fn threading(&mut self, table: &mut SegmentTable, kind: LogType) -> Option<SegNo> {
        self.refresh(table);
        let ask = Ask::background(self.segs, 1);
        let view = &self.indexes.as_ref()?.kinds[kind.index()];
        let (choice, memory) = greedy::choose_to_thread(view, &self.memory, &self.tuning, ask, kind);
        self.memory = memory;
        choice.map(|c| c.victim.seg)
    }

    /// Brings what [`Chooser::target`] looks at up to date.
    pub(crate) fn refresh_targets(&mut self, table: &mut SegmentTable) {
        self.refresh(table);
    }

    /// A used segment of one kind and of similar age, for data that moves; see
    /// [`Chooser::refresh_targets`].
    pub(crate) fn target(&mut self, kind: LogType, mtime: u64) -> Option<SegNo> {
        let view = &self.indexes.as_ref()?.kinds[kind.index()];
        let (ask, moved) = (Ask::background(self.segs, 1), Moved { kind, mtime });
        let pick = if self.policy == Policy::Fagc { fagc::most_fragmented } else { atgc::fullest };
        let (choice, memory) = similar::target(pick, view, &self.memory, &self.tuning, ask, moved);
        self.memory = memory;
        choice.map(|c| c.victim.seg)
    }

    /// Sections of which the kernel's scans take notice and which they pass over: with used segments
    /// that have invalid blocks, but being cleaned or shared with a log.
    fn passed(&self, table: &SegmentTable) -> Vec<SegNo> {
        if self.per_section == 1 {
            // A log's segment is not among the dirty ones, and nothing is being cleaned while a victim
            // is chosen.
            return Vec::new();
        }
        let logs = table.logs().map(|s| s.0 / self.per_section).collect::<BTreeSet<u32>>();
        let dirty = |sec: &u32| table.section(SecNo(*sec)).any(|s| table.is_dirty(s));
        logs.into_iter().filter(dirty).map(|sec| SegNo(sec * self.per_section)).collect()
    }

    /// Takes over what changed in the table.
    fn refresh(&mut self, table: &mut SegmentTable) {
        let touched = table.take_touched();
        let indexes = self.indexes.get_or_insert_with(|| {
            let kind = || Index::new(self.segs.0, 1);
            Box::new(Indexes {
                victims: Index::new(self.segs.0, self.per_section),
                kinds: [kind(), kind(), kind(), kind(), kind(), kind()],
                entered: vec![NOWHERE; self.segs.0 as usize],
            })
        });
        let per = self.per_section;
        let mut sections: Vec<u32> = touched.iter().map(|s| s.0 / per).collect();
        if per > 1 {
            sections.sort_unstable();
            sections.dedup();
        }
        for sec in sections {
            let segs = || table.section(SecNo(sec));
            let first = SegNo(sec * per);
            let closed = self.victim == Some(SecNo(sec)) || segs().any(|s| table.is_log(s));
            let mtime = mean_age(table, SecNo(sec));
            let mut unit = Candidate { seg: first, valid: 0, held: 0, mtime, f: 0, loose: 0 };
            for s in segs() {
                // A target too is as old as its whole section (kernel `get_section_mtime`).
                let of = candidate(table, s, mtime);
                unit.valid += of.valid;
                unit.held += of.held;
                unit.f = unit.f.saturating_add(of.f);
                unit.loose += of.loose;
                let kind = table.segment(s).log;
                let open = !closed && table.is_dirty(s);
                let entered = &mut indexes.entered[s.0 as usize];
                let wanted = if open { kind.index() as u8 } else { NOWHERE };
                if *entered != wanted
                    && let Some(old) = indexes.kinds.get_mut(usize::from(*entered))
                {
                    old.set(s, None);
                }
                *entered = wanted;
                if open {
                    indexes.kinds[kind.index()].set(s, Some(of));
                }
            }
            let open = !closed
                && !self.hopeless.contains(&SecNo(sec))
                && unit.valid > 0
                && unit.valid < per * 512
                && segs().any(|s| table.is_dirty(s));
            indexes.victims.set(first, open.then_some(unit));
        }
    }
}

/// The mean age of a section's segments, those without valid blocks too.
fn mean_age(table: &SegmentTable, sec: SecNo) -> u64 {
    // Sums beyond 64 bits come from damaged images only.
    let (sum, n) = table.section(sec).fold((0u64, 0), |(t, n), s| (t.saturating_add(table.segment(s).mtime), n + 1));
    sum / n.max(1)
}

fn candidate(table: &SegmentTable, seg: SegNo, mtime: u64) -> Candidate {
    let s = table.segment(seg);
    Candidate {
        seg,
        valid: s.valid.into(),
        held: s.held.into(),
        mtime,
        f: s.fragmentation.factor.value(),
        loose: s.fragmentation.loose.into(),
    }
}

#[cfg(test)]
mod tests {
    use format::sit::SitEntry;

    use super::*;

    /// Six sections of two segments; `SEGMENT:VALID:MTIME ...`, all cold data.
    fn target(segments: &[(u32, u16, u64)], moved: u64) -> Option<u32> {
        let mut table = SegmentTable::new(12, 2);
        for &(seg, valid, mtime) in segments {
            let mut map = [0; format::sit::MAP_BYTES];
            map[..usize::from(valid / 8)].fill(0xFF);
            table.load(SegNo(seg), &SitEntry { log: LogType::ColdData, valid, map, mtime });
        }
        let memory = Memory { dirty_max_mtime: u64::MAX / 2, ..Memory::at_mount(u64::MAX / 2, 0) };
        let mut options = MountOptions::default();
        options.gc.policy = Policy::Atgc;
        let mut chooser = Chooser::of(SegNo(12), 2, memory, &options);
        chooser.tuning.candidate_count = 1;
        chooser.tuning.candidate_ratio = 0;
        chooser.refresh_targets(&mut table);
        chooser.target(LogType::ColdData, moved).map(|s| s.0)
    }

    #[test]
    fn a_target_is_as_old_as_its_whole_section() {
        // Sections of the ages 500, 300 and 400: the nearest to 310 that is no younger is the second.
        let state = [(2, 8, 100), (3, 512, 900), (4, 8, 600), (5, 0, 0), (6, 8, 310), (7, 512, 490)];
        assert_eq!(target(&state, 310), Some(4));
        assert_eq!(target(&state, 450), Some(6));
        assert_eq!(target(&state, 500), Some(2));
    }

    #[test]
    fn ages_of_a_damaged_image_do_no_harm() {
        assert_eq!(target(&[(2, 8, u64::MAX), (3, 8, u64::MAX), (4, 8, 7)], 9), Some(4));
    }
}
