//! A view of a list of candidates that examines every one: the reference for every other view.

use std::ops::Range;

use format::SegNo;

use crate::view::{AgeCut, Among, Bounds, Candidate, Rank, View, Visit};

/// A list of candidates.
#[derive(Debug, Clone, Default)]
pub struct Plain {
    /// By segment.
    by_seg: Vec<Candidate>,
    /// By age.
    by_age: Vec<Candidate>,
    /// Segments in a unit.
    unit: u32,
}

impl Plain {
    /// A view of `candidates`, in any order; a unit has `unit` segments.
    pub fn new(unit: u32, mut candidates: Vec<Candidate>) -> Self {
        candidates.sort_unstable_by_key(|c| c.seg);
        let mut by_age = candidates.clone();
        by_age.sort_unstable_by_key(Candidate::place);
        Plain { by_seg: candidates, by_age, unit }
    }
    fn of_kind(&self, kind: Among) -> impl Iterator<Item = &Candidate> {
        self.by_age.iter().filter(move |c| c.is(kind, self.unit))
    }
    fn at(&self, kind: Among, range: Range<u32>) -> impl Iterator<Item = &Candidate> {
        self.of_kind(kind).skip(range.start as usize).take(range.len())
    }
}

impl View for Plain {
    fn count(&self) -> u32 {
        self.by_seg.len() as u32
    }
    fn last(&self) -> Option<SegNo> {
        self.by_seg.last().map(|c| c.seg)
    }
    fn walk(&self, from: SegNo, to: SegNo, visit: &mut dyn Visit) {
        let _ = self.by_seg.iter().filter(|c| (from..to).contains(&c.seg)).all(|c| visit.visit(*c));
    }
    fn emptiest(&self, from: SegNo, to: SegNo) -> Option<Candidate> {
        self.by_seg.iter().filter(|c| (from..to).contains(&c.seg)).min_by_key(|c| c.valid).copied()
    }
    fn count_to(&self, kind: Among, cut: AgeCut) -> u32 {
        self.of_kind(kind).filter(|c| c.place() <= cut).count() as u32
    }
    fn nth_oldest(&self, kind: Among, n: u32) -> Option<AgeCut> {
        self.of_kind(kind).nth(n as usize).map(Candidate::place)
    }
    fn by_age(&self, kind: Among, range: Range<u32>, each: &mut dyn FnMut(Candidate)) {
        self.at(kind, range).for_each(|c| each(*c));
    }
    fn search(
        &self,
        kind: Among,
        range: Range<u32>,
        _limit: &dyn Fn(&Bounds) -> Rank,
        rank: &dyn Fn(&Candidate) -> Rank,
    ) -> Option<Candidate> {
        // `min_by_key` returns the first of equals.
        self.at(kind, range).min_by_key(|c| std::cmp::Reverse(rank(c))).copied()
    }
    fn range_of_f(&self, kind: Among, range: Range<u32>) -> Option<(u32, u32)> {
        let all = || self.at(kind, range.clone()).map(|c| c.f);
        Some((all().min()?, all().max()?))
    }
    fn most_gained(&self, _limit: &dyn Fn(&Bounds) -> u64, gain: &dyn Fn(&Candidate, u32) -> u64) -> Option<Candidate> {
        let gain = |c: &Candidate| gain(c, c.fragments());
        self.by_age.iter().filter(|c| gain(c) > 0).min_by_key(|c| std::cmp::Reverse(gain(c))).copied()
    }
}
