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

use super::policy::memory::{Ask, Memory, Tuning};
use super::policy::similar::Moved;
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
    /// The section being cleaned now.
    pub(crate) victim: Option<SecNo>,
    /// Sections with valid blocks nobody owns: they cannot be emptied.
    hopeless: FxHashSet<SecNo>,
    indexes: Option<Box<Indexes>>,
}

impl Chooser {
    /// For a volume that was mounted for `elapsed` seconds before.
    pub(crate) fn new(sb: &SuperBlock, table: &SegmentTable, elapsed: u64, options: &MountOptions) -> Chooser {
        let per = sb.segs_per_sec;
        let mean = |sec| table.section(SecNo(sec)).map(|s| table.segment(s).mtime).sum::<u64>() / u64::from(per);
        let oldest = (0..sb.sections()).map(mean).min().unwrap_or(0);
        Chooser {
            segs: SegNo(sb.main_segs),
            per_section: per,
            policy: options.gc.policy,
            power: options.gc.power,
            tuning: Tuning::default(),
            memory: Memory::at_mount(elapsed, oldest),
            prices: options.prices,
            victim: None,
            hopeless: FxHashSet::default(),
            indexes: None,
        }
    }

    /// Chooses by another policy from now on.
    pub(crate) fn set(&mut self, policy: Policy, power: Power) {
        self.policy = policy;
        self.power = power;
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
        let (choice, memory) = match self.policy {
            Policy::Fagc => fagc::target(view, &self.memory, &self.tuning, ask, moved),
            _ => atgc::target(view, &self.memory, &self.tuning, ask, moved),
        };
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
            let mut unit = Candidate { seg: first, valid: 0, held: 0, mtime: 0, f: 0, loose: 0 };
            for s in segs() {
                let of = candidate(table, s);
                unit.valid += of.valid;
                unit.held += of.held;
                unit.mtime += of.mtime;
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
            unit.mtime /= u64::from(per);
            let open = !closed
                && !self.hopeless.contains(&SecNo(sec))
                && unit.valid > 0
                && unit.valid < per * 512
                && segs().any(|s| table.is_dirty(s));
            indexes.victims.set(first, open.then_some(unit));
        }
    }
}

fn candidate(table: &SegmentTable, seg: SegNo) -> Candidate {
    let s = table.segment(seg);
    Candidate {
        seg,
        valid: s.valid.into(),
        held: s.held.into(),
        mtime: s.mtime,
        f: s.fragmentation.factor.value(),
        loose: s.fragmentation.loose.into(),
    }
}
