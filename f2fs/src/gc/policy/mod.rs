//! Whom to clean? Each policy is one file, and a pure function from a [`View`] to a section.

pub mod greedy;

use format::addr::SecNo;

/// One section that may be cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub section: SecNo,
    /// Its valid blocks.
    pub valid: u32,
}

/// What a policy sees of the volume: the sections with blocks to gain, no log in them, in order.
pub trait View {
    /// Calls `each` for every candidate, in order of section number.
    fn candidates(&self, each: &mut dyn FnMut(Candidate));
}

impl View for [Candidate] {
    fn candidates(&self, each: &mut dyn FnMut(Candidate)) {
        self.iter().copied().for_each(each);
    }
}
