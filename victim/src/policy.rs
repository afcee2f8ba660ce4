//! The policies, and their names in commands.

/// A policy for choosing victims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The section with the fewest valid blocks.
    Greedy,
    /// The kernel's default in the background: a section with few valid blocks, unchanged for long.
    CostBenefit,
    /// The kernel's `atgc`: the emptiest among the oldest, moved to segments of similar age.
    Atgc,
    /// Cost-benefit, run every second (a stand-in for Li et al., SAC'19).
    Mwhfb,
    /// By age, emptiness and fragmentation of free space (FAGC TACO'23).
    Fagc,
    /// By the joules that cleaning a section costs and saves.
    Joule,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Policy; 6] =
        [Policy::Greedy, Policy::CostBenefit, Policy::Atgc, Policy::Mwhfb, Policy::Fagc, Policy::Joule];
    /// All names, for help texts.
    pub const NAMES_TEXT: &str = "greedy|cost-benefit|atgc|mwhfb|fagc|joule";
    /// The name in commands.
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
    /// Parses a policy name. The error completes the sentence "gc ...".
    pub fn parse(name: &str) -> Result<Policy, String> {
        let found = Policy::ALL.into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| format!("is one of {}", Policy::NAMES_TEXT.replace('|', ", ")))
    }
}
