//! Which policy chooses on which occasion, and what does it remember between choices?
//!
//! A writer that waits for space, or a cleaner in urgent mode, gets the emptiest unit, except that under joule a writer gets
//! the cheapest one.
//! Left out on purpose: how a policy chooses (the policies), the candidates (a [`View`]), and when cleaning
//! runs.

use format::SegNo;
use format::sit::LogType;

use crate::Power;
use crate::joule::{self, Prices};
use crate::memory::{Ask, Memory, Tuning};
use crate::outlook::Outlook;
use crate::plain::Plain;
use crate::policy::Policy;
use crate::similar::{self, Moved};
use crate::view::{Candidate, View};
use crate::{atgc, cost_benefit, fagc, greedy, mwhfb};

/// The occasion on which a victim is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hurry {
    /// A writer waits for space.
    Foreground,
    /// No writer waits: background cleaning.
    Background,
    /// No writer waits, but a user asked for cleaning now; cost-benefit chooses (kernel `GC_URGENT_LOW`,
    /// `_MID`).
    Urgent,
    /// No writer waits, but a user asked for as much cleaning as possible now (kernel `GC_URGENT_HIGH`).
    UrgentHigh,
}

/// Input of a choice besides the candidates.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// The occasion.
    pub hurry: Hurry,
    /// Total seconds that the volume has been mounted.
    pub now: u64,
    /// See [`Ask::passed`].
    pub passed: &'a [SegNo],
    /// The free space, and the next use of it.
    pub outlook: Outlook,
}

/// Where the data of a victim goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// Into holes of segments of similar age; otherwise to the end of the cold log.
    pub fills_holes: bool,
    /// What moving it costs, in pJ; 0 under policies that do not weigh joules.
    pub cost: u64,
}

/// Chooses victims and targets.
#[derive(Debug, Clone)]
pub struct Chooser {
    /// Number of main segments.
    end: SegNo,
    /// Segments in a section.
    per_section: u32,
    /// The policy for background cleaning.
    pub policy: Policy,
    /// The power source.
    pub power: Power,
    /// Numbers a user may change.
    pub tuning: Tuning,
    prices: Prices,
    memory: Memory,
}

impl Chooser {
    /// A chooser for a volume of `end` segments, `per_section` in each section.
    pub fn new(end: SegNo, per_section: u32, memory: Memory, prices: Prices, policy: Policy, power: Power) -> Self {
        Chooser { end, per_section, policy, power, tuning: Tuning::default(), prices, memory }
    }

    /// Most invalid blocks that the cleaner reads along to avoid a second request. Under [`Policy::Joule`]
    /// the number that costs as much as one request; otherwise 0, as in the kernel.
    pub fn read_along(&self) -> u32 {
        match self.policy {
            Policy::Joule => (self.prices.request / self.prices.read_block.max(1)).min(511) as u32,
            _ => 0,
        }
    }
    /// True if the cleaner moves data to segments of similar age.
    pub fn moves_by_age(&self) -> bool {
        match self.policy {
            Policy::Greedy | Policy::CostBenefit | Policy::Mwhfb | Policy::Joule => false,
            Policy::Atgc => self.memory.elapsed >= self.tuning.age_threshold,
            Policy::Fagc => true,
        }
    }

    /// Where the cleaner moves the data of this victim.
    pub fn destination(&self, victim: &Candidate, outlook: &Outlook) -> Destination {
        if self.policy != Policy::Joule {
            return Destination { fills_holes: !outlook.only_appends && self.moves_by_age(), cost: 0 };
        }
        let (cost, fills_holes) = joule::destination(victim, &self.prices, outlook, self.end, self.per_section);
        Destination { fills_holes, cost }
    }

    /// What operations cost.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// True if the policy needs ages that the volume does not have yet: then cost-benefit replaces it in the
    /// background.
    pub fn waits_for_age(&self) -> bool {
        self.policy == Policy::Atgc && !self.moves_by_age()
    }

    /// Starts with this memory, as at a mount.
    pub fn begin(&mut self, memory: Memory) {
        self.memory = memory;
    }

    /// The next section to clean, chosen from the view; `None` if none is worth it.
    pub fn victim(&mut self, view: &dyn View, moment: Moment<'_>) -> Option<Candidate> {
        let Moment { hurry, now, passed, outlook } = moment;
        let foreground = hurry == Hurry::Foreground;
        let urgent = hurry == Hurry::UrgentHigh;
        let ask = Ask { foreground, urgent, end: self.end, unit: self.per_section, passed };
        self.memory.max_mtime = self.memory.max_mtime.max(now);
        let (memory, tuning) = (&self.memory, &self.tuning);
        // Skipped sections do not count towards the search window. (In Linux they do.)
        let emptier = tuning.too_full.filter(|_| hurry == Hurry::Background).map(|percent| self.below(view, percent));
        let view = emptier.as_ref().map_or(view, |v| v as &dyn View);
        let (choice, memory) = match self.policy_for(hurry) {
            Policy::Joule if foreground => joule::cheapest(view, memory, ask, &self.prices, &outlook),
            Policy::Greedy => greedy::choose(view, memory, tuning, ask),
            Policy::CostBenefit => cost_benefit::choose(view, memory, tuning, ask),
            Policy::Mwhfb => mwhfb::choose(view, memory, tuning, ask),
            Policy::Atgc => atgc::choose(view, memory, tuning, ask),
            Policy::Fagc => fagc::choose(view, memory, tuning, ask),
            Policy::Joule => joule::choose(view, memory, tuning, ask, &self.prices, self.power, &outlook),
        };
        self.memory = memory;
        choice.map(|c| c.victim)
    }
    /// The candidates with less than `percent` percent valid blocks.
    fn below(&self, view: &dyn View, percent: u32) -> Plain {
        let (most, mut all) = (u64::from(512 * self.per_section) * u64::from(percent) / 100, Vec::new());
        view.scan(SegNo(0), self.end, &mut |c| {
            all.extend((u64::from(c.valid) < most).then_some(c));
            true
        });
        Plain::new(self.per_section, all)
    }
    fn policy_for(&self, hurry: Hurry) -> Policy {
        match (hurry, self.policy) {
            (Hurry::Foreground, Policy::Joule) => Policy::Joule,
            (Hurry::Foreground | Hurry::UrgentHigh, _) => Policy::Greedy,
            (Hurry::Urgent, _) => Policy::CostBenefit,
            // As in the kernel: ATGC waits until the volume is old enough for ages to differ.
            (Hurry::Background, Policy::Atgc) if !self.moves_by_age() => Policy::CostBenefit,
            (Hurry::Background, policy) => policy,
        }
    }

    /// A used segment whose holes a log of this kind may fill when free segments run short. The view holds
    /// the segments of that kind.
    pub fn threading(&mut self, view: &dyn View, kind: LogType) -> Option<SegNo> {
        let ask = Ask::background(self.end, 1);
        let (choice, memory) = greedy::choose_to_thread(view, &self.memory, &self.tuning, ask, kind);
        self.memory = memory;
        choice.map(|c| c.victim.seg)
    }

    /// A used segment of similar age whose holes take the moved data. The view holds the segments of that kind.
    pub fn target(&mut self, view: &dyn View, moved: Moved) -> Option<SegNo> {
        let ask = Ask::background(self.end, 1);
        let pick = if self.policy == Policy::Fagc { fagc::most_fragmented } else { atgc::fullest };
        let (choice, memory) = similar::target(pick, view, &self.memory, &self.tuning, ask, moved);
        self.memory = memory;
        choice.map(|c| c.victim.seg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    /// The next use fills holes of two blocks each.
    const SHORT: Outlook = Outlook {
        free: 5,
        kept_back: 4,
        asked: 0,
        takes: 4096,
        writes: 4096,
        cuts: 512,
        moved_cuts: 512,
        holes: 50_000,
        only_appends: false,
    };

    fn chooser(policy: Policy, days: u64) -> Chooser {
        let memory = Memory::at_mount(days * DAY, 0);
        Chooser::new(SegNo(100), 1, memory, Prices::default(), policy, Power::Powered)
    }
    /// The emptiest is young, the oldest is fuller, and a third one is the most fragmented.
    fn view() -> Plain {
        let c = |seg, valid, mtime, f, loose| Candidate { seg: SegNo(seg), valid, held: valid, mtime, f, loose };
        let (young, old) = (30 * DAY - 1, DAY);
        Plain::new(1, vec![c(1, 100, young, 0, 0), c(2, 200, old, 0, 0), c(3, 256, 2 * DAY, 4_096_512, 256)])
    }
    fn chosen(policy: Policy, days: u64, hurry: Hurry) -> Option<u32> {
        let moment = Moment { hurry, now: 30 * DAY, passed: &[], outlook: SHORT };
        chooser(policy, days).victim(&view(), moment).map(|c| c.seg.0)
    }

    #[test]
    fn a_waiting_writer_and_urgent_cleaning_get_an_empty_one_under_every_policy() {
        for policy in Policy::ALL {
            assert_eq!(chosen(policy, 30, Hurry::Foreground), Some(1), "{policy:?}");
            assert_eq!(chosen(policy, 30, Hurry::UrgentHigh), Some(1), "{policy:?}");
            assert_eq!(chosen(policy, 30, Hurry::Urgent), Some(2), "{policy:?}");
        }
    }

    #[test]
    fn full_units_are_skipped_in_the_background_but_not_for_a_waiting_writer() {
        let chosen = |percent: u32, hurry: Hurry| {
            let mut c = chooser(Policy::CostBenefit, 30);
            c.tuning.too_full = Some(percent);
            let moment = Moment { hurry, now: 30 * DAY, passed: &[], outlook: SHORT };
            c.victim(&view(), moment).map(|c| c.seg.0)
        };
        assert_eq!(chosen(80, Hurry::Background), Some(2));
        // 200 of 512 blocks are more than 39 percent, and 100 are more than 19.
        assert_eq!([40, 39, 19].map(|percent| chosen(percent, Hurry::Background)), [Some(2), Some(1), None]);
        assert_eq!(chosen(10, Hurry::Foreground), Some(1));
    }

    #[test]
    fn in_the_background_the_policy_that_is_set_chooses() {
        let each = Policy::ALL.map(|policy| chosen(policy, 30, Hurry::Background));
        assert_eq!(each, [1, 2, 2, 2, 3, 2].map(Some));
    }

    #[test]
    fn ages_differ_when_the_volume_is_old_enough() {
        assert!(!chooser(Policy::Atgc, 6).moves_by_age());
        assert!(chooser(Policy::Atgc, 7).moves_by_age());
        assert!(chooser(Policy::Fagc, 0).moves_by_age());
        assert!(!chooser(Policy::Joule, 100).moves_by_age());
    }

    #[test]
    fn moved_data_goes_where_the_policy_that_is_set_puts_it() {
        let moved = Moved { kind: LogType::ColdData, mtime: DAY };
        assert_eq!(chooser(Policy::Atgc, 30).target(&view(), moved), Some(SegNo(3)));
        let full = Plain::new(
            1,
            [(1, 300, 0), (2, 200, 16_002)]
                .map(|(seg, valid, f)| Candidate {
                    seg: SegNo(seg),
                    valid,
                    held: valid,
                    mtime: DAY,
                    f,
                    loose: 312 - valid,
                })
                .into(),
        );
        assert_eq!(chooser(Policy::Atgc, 0).target(&full, moved), Some(SegNo(1)));
        assert_eq!(chooser(Policy::Fagc, 0).target(&full, moved), Some(SegNo(2)));
    }
}
