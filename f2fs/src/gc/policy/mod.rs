//! Whom to clean, and where to put what is moved? Each policy is one file, and a pure function from
//! a [`View`] of the volume to a choice.
//!
//! A *unit* is what is chosen: a section as a victim, a segment as a target of threaded logging. It
//! is known by its first segment. A policy reads nothing but the view and what it is handed, so a
//! text fixture is as good as a volume. Left out on purpose: when cleaning runs (`pace`,
//! `background`) and how blocks are moved (`collect`).

pub mod atgc;
pub mod cost_benefit;
pub mod fagc;
pub mod greedy;
pub mod joule;
pub mod memory;
pub mod mwhfb;
pub mod plain;

use format::SegNo;

/// One unit that may be chosen: it has valid blocks and blocks to gain, and no log writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate {
    /// Its first segment.
    pub seg: SegNo,
    /// Valid blocks.
    pub valid: u32,
    /// Blocks that must not be overwritten before the next checkpoint: the valid ones, and those the
    /// last checkpoint holds. At least `valid`.
    pub held: u32,
    /// Mean time its blocks were written, in seconds of mounted time.
    pub mtime: u64,
    /// Free-space fragmentation factor of FAGC TACO'23, Algorithm 1: 0 to 4,096,512 per segment.
    pub f: u32,
    /// Free blocks in fragments: runs shorter than 32 blocks.
    pub loose: u32,
}

/// An order of candidates: the greatest wins. Compared from the first number on.
///
/// For [`View::best`] a rank must be monotone: of two candidates, the one that is no younger, has no
/// more valid blocks and no smaller `f` never ranks lower, whatever its place on the volume.
pub type Rank = [u64; 4];

/// A place in the order of age: write time, then segment. Everything up to it is at least as old.
pub type AgeCut = (u64, SegNo);

/// What a policy sees of the volume.
pub trait View {
    /// How many candidates there are.
    fn count(&self) -> u32;
    /// Calls `each` for the candidates with `from <= seg < to`, in order of segment number, until it
    /// returns false.
    fn scan(&self, from: SegNo, to: SegNo, each: &mut dyn FnMut(Candidate) -> bool);
    /// The candidate with `from <= seg < to` that has the fewest valid blocks, the first of equals.
    fn emptiest(&self, from: SegNo, to: SegNo) -> Option<Candidate>;
    /// How many candidates were written at `mtime` or before.
    fn count_up_to(&self, mtime: u64) -> u32;
    /// The `n`-th oldest candidate, counted from 0; of equal ages the one first on the volume.
    fn nth_oldest(&self, n: u32) -> Option<AgeCut>;
    /// Smallest and greatest `f` among the candidates up to `cut`.
    fn range_of_f(&self, cut: AgeCut) -> Option<(u32, u32)>;
    /// Of the candidates up to `cut`, the one that `rank` (monotone) puts highest; of equal ranks the
    /// oldest, then the first on the volume.
    fn best(&self, cut: AgeCut, rank: &dyn Fn(&Candidate) -> Rank) -> Option<Candidate>;
    /// Calls `each` for at most `older` candidates from the place of `mtime` towards the oldest,
    /// nearest first, then for at most `younger` on the other side.
    fn near(&self, mtime: u64, older: u32, younger: u32, each: &mut dyn FnMut(Candidate));
}

/// Who chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The section with the fewest valid blocks.
    Greedy,
    /// The kernel's default in the background: few valid blocks and long unchanged.
    CostBenefit,
    /// The kernel's `atgc`: the emptiest among the oldest, moved to segments of similar age.
    Atgc,
    /// Cost and benefit, looked at every second (a stand-in for Li et al., SAC'19).
    Mwhfb,
    /// By age, emptiness and fragmentation of free space (FAGC TACO'23).
    Fagc,
    /// By the joules it costs and saves.
    Joule,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Policy; 6] =
        [Policy::Greedy, Policy::CostBenefit, Policy::Atgc, Policy::Mwhfb, Policy::Fagc, Policy::Joule];
    /// Their names, for help texts.
    pub const NAMES_TEXT: &str = "greedy|cost-benefit|atgc|mwhfb|fagc|joule";
    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Greedy => "greedy",
            Policy::CostBenefit => "cost-benefit",
            Policy::Atgc => "atgc",
            Policy::Mwhfb => "mwhfb",
            Policy::Fagc => "fagc",
            Policy::Joule => "joule",
        }
    }
    /// The policy of a name. The error completes the sentence "gc ...".
    pub fn parse(name: &str) -> Result<Policy, String> {
        let found = Policy::ALL.into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| format!("is one of {}", Policy::NAMES_TEXT.replace('|', ", ")))
    }
}

/// Where the power comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Power {
    /// A battery: spend least now.
    #[default]
    Battery,
    /// A charger: invest.
    Powered,
}

impl Power {
    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Power::Battery => "battery",
            Power::Powered => "powered",
        }
    }
    /// The source of a name. The error completes the sentence "power ...".
    pub fn parse(name: &str) -> Result<Power, String> {
        match name {
            "battery" => Ok(Power::Battery),
            "powered" => Ok(Power::Powered),
            _ => Err("is battery or powered".to_owned()),
        }
    }
}
