//! A view by looking at every candidate: what tests compare with, and all a small list needs.

use format::SegNo;

use super::{AgeCut, Candidate, Rank, View};

/// Candidates in order of segment number.
#[derive(Debug, Clone, Default)]
pub struct Plain(Vec<Candidate>);

impl Plain {
    /// Of candidates in any order.
    pub fn new(mut candidates: Vec<Candidate>) -> Plain {
        candidates.sort_by_key(|c| c.seg);
        Plain(candidates)
    }
    fn by_age(&self) -> Vec<Candidate> {
        let mut all = self.0.clone();
        all.sort_by_key(|c| (c.mtime, c.seg));
        all
    }
    fn up_to(&self, cut: AgeCut) -> impl Iterator<Item = Candidate> {
        self.by_age().into_iter().filter(move |c| (c.mtime, c.seg) <= cut)
    }
}

impl View for Plain {
    fn count(&self) -> u32 {
        self.0.len() as u32
    }
    fn scan(&self, from: SegNo, to: SegNo, each: &mut dyn FnMut(Candidate) -> bool) {
        for c in self.0.iter().filter(|c| from <= c.seg && c.seg < to) {
            if !each(*c) {
                return;
            }
        }
    }
    fn emptiest(&self, from: SegNo, to: SegNo) -> Option<Candidate> {
        self.0.iter().filter(|c| from <= c.seg && c.seg < to).min_by_key(|c| (c.valid, c.seg)).copied()
    }
    fn count_up_to(&self, mtime: u64) -> u32 {
        self.0.iter().filter(|c| c.mtime <= mtime).count() as u32
    }
    fn nth_oldest(&self, n: u32) -> Option<AgeCut> {
        self.by_age().get(n as usize).map(|c| (c.mtime, c.seg))
    }
    fn range_of_f(&self, cut: AgeCut) -> Option<(u32, u32)> {
        let f = || self.up_to(cut).map(|c| c.f);
        Some((f().min()?, f().max()?))
    }
    fn best(&self, cut: AgeCut, rank: &dyn Fn(&Candidate) -> Rank) -> Option<Candidate> {
        let mut best: Option<(Rank, Candidate)> = None;
        for c in self.up_to(cut) {
            let r = rank(&c);
            if best.is_none_or(|b| r > b.0) {
                best = Some((r, c));
            }
        }
        best.map(|b| b.1)
    }
    fn near(&self, mtime: u64, older: u32, younger: u32, each: &mut dyn FnMut(Candidate)) {
        let all = self.by_age();
        let middle = all.partition_point(|c| c.mtime <= mtime);
        all[..middle].iter().rev().take(older as usize).for_each(|c| each(*c));
        all[middle..].iter().take(younger as usize).for_each(|c| each(*c));
    }
}
