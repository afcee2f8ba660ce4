use crate::gc::policy::plain::Plain;
use crate::gc::policy::*;
use format::SegNo;
#[derive(Default)]
pub struct Index(std::collections::BTreeMap<SegNo, Candidate>);
impl Index {
    pub fn new(_n: u32) -> Self { Index::default() }
    pub fn set(&mut self, s: SegNo, c: Option<Candidate>) { match c { Some(c) => { self.0.insert(s, c); } None => { self.0.remove(&s); } } }
    fn p(&self) -> Plain { Plain::new(self.0.values().copied().collect()) }
}
impl View for Index {
    fn count(&self) -> u32 { self.0.len() as u32 }
    fn scan(&self, a: SegNo, b: SegNo, e: &mut dyn FnMut(Candidate) -> bool) { if a < b { for c in self.0.range(a..b) { if !e(*c.1) { return; } } } }
    fn emptiest(&self, a: SegNo, b: SegNo) -> Option<Candidate> { self.p().emptiest(a, b) }
    fn count_up_to(&self, m: u64) -> u32 { self.p().count_up_to(m) }
    fn nth_oldest(&self, n: u32) -> Option<AgeCut> { self.p().nth_oldest(n) }
    fn range_of_f(&self, c: AgeCut) -> Option<(u32, u32)> { self.p().range_of_f(c) }
    fn best(&self, c: AgeCut, r: &dyn Fn(&Candidate) -> Rank) -> Option<Candidate> { self.p().best(c, r) }
    fn near(&self, m: u64, a: u32, b: u32, e: &mut dyn FnMut(Candidate)) { self.p().near(m, a, b, e) }
}
