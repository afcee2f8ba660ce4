//! Which fragment counts were published for the three states?

use vfs::FreeFragments;

/// Ratio of free-space pieces in two states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// State in the numerator.
    pub of: &'static str,
    /// State in the denominator.
    pub to: &'static str,
    /// A level (0 for L1), or all of them.
    pub level: Option<usize>,
    /// Published value.
    pub published: f64,
}

/// FAGC TACO'23, section 3: the text to Fig. 2.
pub const RATIOS: [Ratio; 4] = [
    Ratio { of: "full", to: "pristine", level: None, published: 2.01 },
    Ratio { of: "full-fragmented", to: "full", level: None, published: 87.02 },
    Ratio { of: "full-fragmented", to: "full", level: Some(0), published: 98.81 },
    Ratio { of: "full-fragmented", to: "full", level: Some(1), published: 306.82 },
];

impl Ratio {
    /// Name of the level: `L1` to `L9`, or `all`.
    pub fn level_name(&self) -> String {
        self.level.map_or("all".to_owned(), FreeFragments::name)
    }
    /// The ratio of two counts; `None` if the denominator is 0.
    pub fn ours(&self, of: &FreeFragments, to: &FreeFragments) -> Option<f64> {
        let number = |f: &FreeFragments| self.level.map_or(f.total(), |n| f.count[n]);
        (number(to) > 0).then(|| number(of) as f64 / number(to) as f64)
    }
}
