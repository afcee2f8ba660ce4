//! Which data of a mounted volume does a policy get?
//!
//! The segment table lists the changed segments; this module turns the list into the indexes that policies search. They
//! are updated when a policy runs, not at every written block. There is one index of sections, for victims, and one of
//! segments for each kind of log, for threaded logging; a search updates only the index it uses. The segment mutex
//! guards all of it.
//!
//! Left out on purpose: how a victim is chosen (the `victim` crate), and when (`gc`).

use std::collections::BTreeSet;

use format::SegNo;
use format::addr::SecNo;
use rustc_hash::{FxHashMap, FxHashSet};
use victim::{Candidate, Index};

use super::table::SegmentTable;

/// Marks a segment that is not a candidate.
const NOWHERE: u8 = u8::MAX;

/// Sections changed since the last update of the index.
#[derive(Debug, Default)]
struct Due {
    sections: Vec<SecNo>,
    /// By section: true if it is on the list.
    marked: Vec<bool>,
}

impl Due {
    fn note(&mut self, section: SecNo) {
        let n = section.0 as usize;
        if self.marked.len() <= n {
            self.marked.resize(n + 1, false);
        }
        if !std::mem::replace(&mut self.marked[n], true) {
            self.sections.push(section);
        }
    }
    fn take(&mut self) -> Vec<SecNo> {
        let sections = std::mem::take(&mut self.sections);
        sections.iter().for_each(|s| self.marked[s.0 as usize] = false);
        sections
    }
}

/// Segments of each kind of log, as targets of threaded logging.
struct Kinds {
    of: [Index; 6],
    /// The kind under which each segment is entered, or [`NOWHERE`].
    entered: Vec<u8>,
}

/// The candidates of a mounted volume.
pub struct Candidates {
    segs: SegNo,
    per_section: u32,
    /// The section being cleaned now.
    pub(crate) victim: Option<SecNo>,
    /// Sections with valid blocks without an owner: they cannot be emptied.
    hopeless: FxHashSet<SecNo>,
    /// Sections emptied except for blocks of pinned files, with the number of valid blocks left.
    pinned: FxHashMap<SecNo, u32>,
    /// Sections, as victims; created when a victim is first needed.
    victims: Option<Box<Index>>,
    due_victims: Due,
    /// Created when a log first fills holes.
    kinds: Option<Box<Kinds>>,
    due_kinds: Due,
}

impl Candidates {
    /// Candidates for a volume of `segs` segments.
    pub(crate) fn new(segs: u32, per_section: u32) -> Candidates {
        Candidates {
            segs: SegNo(segs),
            per_section,
            victim: None,
            hopeless: FxHashSet::default(),
            pinned: FxHashMap::default(),
            victims: None,
            due_victims: Due::default(),
            kinds: None,
            due_kinds: Due::default(),
        }
    }

    /// Excludes a section permanently.
    pub(crate) fn give_up(&mut self, section: SecNo) {
        self.hopeless.insert(section);
    }
    /// Excludes a section with only pinned blocks left, until one of those blocks is gone.
    pub(crate) fn leave_pinned(&mut self, table: &SegmentTable, section: SecNo) {
        let left = table.section(section).map(|s| u32::from(table.segment(s).valid)).sum();
        self.pinned.insert(section, left);
    }
    /// Sections that the kernel's scans count but do not choose: they have used segments with invalid blocks, but are
    /// being cleaned or contain a log.
    pub(super) fn passed(&self, table: &SegmentTable) -> Vec<SegNo> {
        if self.per_section == 1 {
            // A log's segment is not dirty, and no section is being cleaned while a victim is chosen.
            return Vec::new();
        }
        let logs = table.logs().map(|s| s.0 / self.per_section).collect::<BTreeSet<u32>>();
        let dirty = |sec: &u32| table.section(SecNo(*sec)).any(|s| table.is_dirty(s));
        logs.into_iter().filter(dirty).map(|sec| SegNo(sec * self.per_section)).collect()
    }

    /// Copies the table's list of changes.
    fn note(&mut self, table: &mut SegmentTable) {
        for seg in table.take_touched() {
            let section = SecNo(seg.0 / self.per_section);
            self.due_victims.note(section);
            self.due_kinds.note(section);
        }
    }
    /// True if the section must not be cleaned or filled: it is being cleaned, or contains a log.
    fn is_closed(&self, table: &SegmentTable, section: SecNo) -> bool {
        self.victim == Some(section) || table.section(section).any(|s| table.is_log(s))
    }

    /// The sections that may be cleaned.
    pub(super) fn to_clean(&mut self, table: &mut SegmentTable) -> &Index {
        self.note(table);
        let per = self.per_section;
        let mut index = self.victims.take().unwrap_or_else(|| Box::new(Index::new(self.segs.0, per)));
        for section in self.due_victims.take() {
            let segs = || table.section(section);
            let (first, mtime) = (SegNo(section.0 * per), mean_age(table, section));
            let mut unit = Candidate { seg: first, valid: 0, held: 0, mtime, f: 0, loose: 0 };
            for of in segs().map(|s| candidate(table, s, mtime)) {
                unit.valid += of.valid;
                unit.held += of.held;
                unit.f = unit.f.saturating_add(of.f);
                unit.loose += of.loose;
            }
            let open = unit.valid > 0
                && unit.valid < per * 512
                && segs().any(|s| table.is_dirty(s))
                && !self.hopeless.contains(&section)
                && self.pinned.get(&section).is_none_or(|left| unit.valid < *left)
                && !self.is_closed(table, section);
            index.set(first, open.then_some(unit));
        }
        self.victims.insert(index)
    }

    /// The segments of each kind of log whose holes may be filled.
    pub(super) fn to_fill(&mut self, table: &mut SegmentTable) -> &[Index; 6] {
        self.note(table);
        let segs = self.segs.0;
        let mut kinds = self.kinds.take().unwrap_or_else(|| {
            let of = std::array::from_fn(|_| Index::new(segs, 1));
            Box::new(Kinds { of, entered: vec![NOWHERE; segs as usize] })
        });
        for section in self.due_kinds.take() {
            let (closed, mtime) = (self.is_closed(table, section), mean_age(table, section));
            for s in table.section(section) {
                let open = !closed && table.is_dirty(s);
                let wanted = if open { table.segment(s).log.index() as u8 } else { NOWHERE };
                let entered = std::mem::replace(&mut kinds.entered[s.0 as usize], wanted);
                if entered != wanted
                    && let Some(old) = kinds.of.get_mut(usize::from(entered))
                {
                    old.set(s, None);
                }
                if let Some(index) = kinds.of.get_mut(usize::from(wanted)) {
                    // A target also has the age of its whole section (kernel `get_section_mtime`).
                    index.set(s, Some(candidate(table, s, mtime)));
                }
            }
        }
        &self.kinds.insert(kinds).of
    }
}

impl SegmentTable {
    /// The oldest mean write time of a section; sections without valid blocks count too.
    pub(crate) fn oldest_section(&self, sections: u32) -> u64 {
        (0..sections).map(|sec| mean_age(self, SecNo(sec))).min().unwrap_or(0)
    }
}

/// The mean write time of a section's segments; segments without valid blocks count too.
fn mean_age(table: &SegmentTable, sec: SecNo) -> u64 {
    // Only a damaged image has sums above 64 bits.
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
    use device::Rng;
    use format::sit::{LogType, SitEntry};
    use victim::joule::Prices;
    use victim::memory::Memory;
    use victim::similar::Moved;
    use victim::{Among, Chooser, Policy, Power, View};

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
        let mut chooser = Chooser::new(SegNo(12), 2, memory, Prices::default(), Policy::Atgc, Power::Battery);
        chooser.tuning.candidate_count = 1;
        chooser.tuning.candidate_ratio = 0;
        let mut candidates = Candidates::new(12, 2);
        let (kind, cold) = (LogType::ColdData, &candidates.to_fill(&mut table)[LogType::ColdData.index()]);
        chooser.target(cold, Moved { kind, mtime: moved }).map(|s| s.0)
    }

    #[test]
    fn a_target_is_as_old_as_its_whole_section() {
        // Sections with ages 500, 300 and 400: of those not younger than 310, the second is nearest.
        let state = [(2, 8, 100), (3, 512, 900), (4, 8, 600), (5, 0, 0), (6, 8, 310), (7, 512, 490)];
        assert_eq!(target(&state, 310), Some(4));
        assert_eq!(target(&state, 450), Some(6));
        assert_eq!(target(&state, 500), Some(2));
    }

    fn shown(view: &Index) -> Vec<Candidate> {
        let (mut by_place, mut by_age) = (Vec::new(), Vec::new());
        view.scan(SegNo(0), SegNo(u32::MAX), &mut |c| {
            by_place.push(c);
            true
        });
        view.by_age(Among::All, 0..view.count(), &mut |c| by_age.push(c));
        assert!(by_age.is_sorted_by_key(Candidate::place));
        by_age.sort_by_key(|c| c.seg);
        assert_eq!(by_age, by_place);
        by_place
    }

    /// The result of scanning the whole table: sections to clean, and segments to fill by kind.
    fn there(of: &Candidates, table: &SegmentTable) -> (Vec<Candidate>, [Vec<Candidate>; 6]) {
        let (mut victims, mut kinds) = (Vec::new(), <[Vec<Candidate>; 6]>::default());
        let per = of.per_section;
        for sec in (0..of.segs.0 / per).map(SecNo) {
            let dirty: Vec<SegNo> = table.section(sec).filter(|s| table.is_dirty(*s)).collect();
            if of.victim == Some(sec) || table.section(sec).any(|s| table.is_log(s)) {
                continue;
            }
            let unit = |s| candidate(table, s, mean_age(table, sec));
            dirty.iter().for_each(|&s| kinds[table.segment(s).log.index()].push(unit(s)));
            let all: Vec<Candidate> = table.section(sec).map(unit).collect();
            let sum = |number: fn(&Candidate) -> u32| all.iter().map(number).sum();
            let (valid, held, f, loose) = (sum(|c| c.valid), sum(|c| c.held), sum(|c| c.f), sum(|c| c.loose));
            if valid > 0 && valid < 512 * per && !dirty.is_empty() && !of.hopeless.contains(&sec) {
                victims.push(Candidate { valid, held, f, loose, ..all[0] });
            }
        }
        (victims, kinds)
    }

    /// Writes to a log's segment or makes holes in another.
    fn change(table: &mut SegmentTable, rng: &mut Rng, logs: &mut [SegNo; 6], now: u64) {
        let log = LogType::ALL[rng.index(6)];
        let open = &mut logs[log.index()];
        match table.next_hole(*open, 0) {
            off if off < 512 && rng.chance(3, 4) => table.set_valid(*open, off, log, now).unwrap(),
            _ => {
                if let Some(next) = table.free_section_after(SegNo(rng.below(64) as u32)) {
                    table.take(next, log);
                    table.release_log(std::mem::replace(open, next));
                }
            }
        }
        let seg = SegNo(rng.below(64) as u32);
        if let Some(off) = (0..512).find(|&off| table.is_valid(seg, off)) {
            table.clear_valid(seg, off, rng.chance(1, 2).then_some(now)).unwrap();
        }
    }

    #[test]
    fn who_cleans_and_who_fills_holes_see_the_table_as_it_is_whoever_asked_before() {
        for (seed, per) in [(1, 1), (2, 1), (3, 2), (4, 4)] {
            let mut rng = Rng::new(seed);
            let mut table = SegmentTable::new(64, per);
            let mut logs = LogType::ALL.map(|log| SegNo(log.index() as u32 * per));
            logs.iter().zip(LogType::ALL).for_each(|(seg, log)| table.take(*seg, log));
            let mut candidates = Candidates::new(64, per);
            let mut seen = [0; 2];
            for now in 0..400 {
                for _ in 0..rng.below(40) {
                    change(&mut table, &mut rng, &mut logs, now);
                }
                if rng.chance(1, 4) {
                    table.commit();
                }
                if rng.chance(1, 8) {
                    let next = rng.chance(1, 2).then(|| SecNo(rng.below(u64::from(64 / per)) as u32));
                    let before = std::mem::replace(&mut candidates.victim, next);
                    before.into_iter().chain(next).for_each(|sec| table.section(sec).for_each(|s| table.touch(s)));
                }
                let (victims, kinds) = there(&candidates, &table);
                if rng.chance(1, 3) {
                    assert_eq!(shown(candidates.to_clean(&mut table)), victims, "seed {seed}, round {now}");
                    seen[0] += victims.len();
                }
                if rng.chance(1, 3) {
                    let shown = candidates.to_fill(&mut table).each_ref().map(shown);
                    assert_eq!(shown, kinds, "seed {seed}, round {now}");
                    seen[1] += kinds.iter().flatten().count();
                }
            }
            assert!(seen.iter().all(|n| *n > 500), "{seen:?}");
        }
    }

    #[test]
    fn ages_of_a_damaged_image_do_no_harm() {
        assert_eq!(target(&[(2, 8, u64::MAX), (3, 8, u64::MAX), (4, 8, 7)], 9), Some(4));
    }
}
