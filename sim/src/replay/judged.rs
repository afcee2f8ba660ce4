//! What does a comparison of runs say, and how sure is it?
//!
//! Each configuration is compared with its control, seed by seed: both runs of a pair begin with volumes that were aged
//! with the same seed. The mean of the pairs' differences has a confidence interval of 95 % (Student's t over the
//! seeds). A verdict needs an interval without 0; where nothing is random, one run is exact. It also needs that the
//! difference keeps its sign if the profile's numbers are others within their ranges ([`Draws`]). Left out: what each
//! assumed number alone changes, and what the device would do otherwise ([`super::assumed`]).

use device::energy::{Draws, Energy, Part, Range};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::outcome::{Done, Outcome};
use super::points::Point;
use super::variant::Variant;

/// What is said about a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Others are compared with it.
    Control,
    /// It needs less energy than its control.
    Better,
    /// It needs more energy than its control.
    Worse,
    /// It needs less or more, depending on the profile's numbers within their ranges.
    Depends,
    /// The interval of the difference includes 0.
    NoDifference,
    /// What is compared did not happen; mostly, the results equal the control's to the last picojoule.
    DidNothing,
    /// The devices' profiles do not count the same parts, and share none.
    NotComparable,
    /// Something is random, and there is only one seed.
    OneSeed,
}

impl Verdict {
    /// The verdict in words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Control => "control",
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Depends => "depends on the profile's numbers",
            Verdict::NoDifference => "no difference seen",
            Verdict::DidNothing => "did nothing",
            Verdict::NotComparable => "not comparable",
            Verdict::OneSeed => "not judged: one seed",
        }
    }
}

/// The difference of a configuration to its control, in percent of the control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Mean over the seeds.
    pub mean: f64,
    /// Limits of the confidence interval of 95 %; equal to the mean where nothing is random, none for one seed.
    pub interval: Option<(f64, f64)>,
}

impl Difference {
    /// Mean and interval of the differences of pairs, in percent. `is_random`: the pairs are a sample; otherwise one is
    /// exact.
    pub fn of(changes: &[f64], is_random: bool) -> Self {
        let n = changes.len() as f64;
        let mean = changes.iter().sum::<f64>() / n;
        if !is_random {
            return Difference { mean, interval: Some((mean, mean)) };
        }
        let variance = changes.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (n - 1.0);
        // One change has no variance, and no degree of freedom.
        let interval = StudentsT::new(0.0, 1.0, n - 1.0).ok().map(|t| {
            let half = t.inverse_cdf(0.975) * (variance / n).sqrt();
            (mean - half, mean + half)
        });
        Difference { mean, interval }
    }

    /// Whether a difference is seen: its interval does not contain 0.
    pub fn is_seen(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }

    /// The verdict, given the limits of the difference at other prices within the ranges of the profile's numbers.
    pub fn verdict(&self, at_other_prices: Option<Range<f64>>) -> Verdict {
        match self.interval {
            None => Verdict::OneSeed,
            Some(_) if !self.is_seen() => Verdict::NoDifference,
            Some(_) if at_other_prices.is_some_and(|range| range.low <= 0.0 && range.high >= 0.0) => Verdict::Depends,
            Some((_, high)) if high < 0.0 => Verdict::Better,
            Some(_) => Verdict::Worse,
        }
    }

    /// The mean, and the interval, as text; `exact` where nothing is random.
    pub fn texts(&self) -> (String, String) {
        let interval = match self.interval {
            Some((low, high)) if low != high => percents(low, high),
            Some(_) => "exact".to_owned(),
            None => "-".to_owned(),
        };
        (percent(self.mean), interval)
    }
}

fn percent(p: f64) -> String {
    format!("{p:+.1}%")
}

/// Two limits as text.
pub fn percents(low: f64, high: f64) -> String {
    format!("{} to {}", percent(low), percent(high))
}

/// A configuration, compared with its control.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// Its name, without the seed.
    pub name: String,
    /// Indices of its runs, by seed.
    pub runs: Vec<usize>,
    /// The name of its control; none for a control.
    pub against: Option<String>,
    /// Mean energy of its runs.
    pub mean: Energy,
    /// The difference in energy; none for a control, or if nothing can be compared.
    pub difference: Option<Difference>,
    /// Limits of the difference in nine of ten draws of the profile's numbers from their ranges, in percent.
    pub at_other_prices: Option<Range<f64>>,
    /// What that means.
    pub verdict: Verdict,
    /// What the energy bought: free segments, and the cost of each fsync.
    pub won: Vec<String>,
    /// Reasons and reservations, each a sentence.
    pub why: Vec<String>,
}

/// Compares every configuration with its control. `is_open` is true if calls or requests came at their recorded times,
/// however late the device was.
pub(super) fn all(points: &[Point], outcomes: &[Outcome], is_open: bool) -> Vec<Judged> {
    // The runs of each configuration.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (n, point) in points.iter().enumerate() {
        let same = |group: &&mut Vec<usize>| points[group[0]].variant.differs_in_seed(&point.variant);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(n),
            None => groups.push(vec![n]),
        }
    }
    let has_controls = points.iter().any(|p| p.variant.control.is_some());
    let control = |n: usize| match points[groups[n][0]].variant.control {
        Some(number) => {
            let run = points.iter().position(|p| p.number == number)?;
            groups.iter().position(|group| group.contains(&run))
        }
        // Without controls, the first configuration is one.
        None => (n > 0 && !has_controls).then_some(0),
    };
    (0..groups.len()).map(|n| one(points, outcomes, &groups[n], control(n).map(|c| &*groups[c]), is_open)).collect()
}

fn one(points: &[Point], outcomes: &[Outcome], group: &[usize], control: Option<&[usize]>, is_open: bool) -> Judged {
    let first = &points[group[0]].variant;
    let totals: Vec<Energy> = group.iter().map(|run| outcomes[*run].total()).collect();
    let mut judged = Judged {
        name: points[group[0]].name_but_seed(),
        runs: group.to_vec(),
        against: None,
        mean: Energy((totals.iter().map(|e| u128::from(e.0)).sum::<u128>() / totals.len() as u128) as u64),
        difference: None,
        at_other_prices: None,
        verdict: Verdict::Control,
        won: Vec::new(),
        why: Vec::new(),
    };
    if is_open && let Some(late) = group.iter().filter_map(|run| outcomes[*run].late()).max() {
        judged.why.push(format!(
            "the device was overloaded: it finished {:.1} s after the last request came, so latencies are mostly waiting",
            late as f64 / 1e9
        ));
    }
    let Some(control) = control else { return judged };
    // Pairs have the same seed.
    let seed = |run: &usize| points[*run].variant.seed;
    let pairs: Vec<(&Outcome, &Outcome)> = group
        .iter()
        .filter_map(|run| {
            let other = control.iter().find(|c| seed(c) == seed(run)).or(control.first())?;
            Some((&outcomes[*run], &outcomes[*other]))
        })
        .collect();
    judged.against = Some(points[control[0]].name_but_seed());
    let equal = |(a, b): &(&Outcome, &Outcome)| a.run.ledger == b.run.ledger && a.run.took == b.run.took;
    if pairs.iter().all(equal) {
        judged.verdict = Verdict::DidNothing;
        judged.difference = Some(Difference { mean: 0.0, interval: Some((0.0, 0.0)) });
        judged.why.push(nothing_done(first, &pairs));
        return judged;
    }
    let apart = apart(&pairs);
    if !apart.is_empty() {
        judged.why.push(apart_text(&apart, pairs[0]));
    }
    let without: Vec<Part> = apart.iter().flat_map(|(_, parts)| parts.iter().copied()).collect();
    let sum = |o: &Outcome| (o.total() - spent(o, &without)).joules();
    if pairs.iter().any(|(_, control)| sum(control) <= 0.0) {
        judged.verdict = Verdict::NotComparable;
        return judged;
    }
    let no_delta = first.picks.iter().any(|(name, value)| name == "delta" && value != "off")
        && pairs.iter().all(|(o, _)| o.deltas() == 0);
    let changes: Vec<f64> = pairs.iter().map(|(o, control)| (sum(o) / sum(control) - 1.0) * 100.0).collect();
    let difference = Difference::of(&changes, first.is_random() || group.len() > 1);
    let drawn = |o: &Outcome| Draws::without(&o.profile, &o.run.ledger, &without);
    let together = |all: &[&Outcome]| {
        let mut draws = drawn(all[0]);
        all[1..].iter().for_each(|o| draws.add(&drawn(o)));
        draws
    };
    let (of, others): (Vec<&Outcome>, Vec<&Outcome>) = pairs.iter().copied().unzip();
    judged.at_other_prices = together(&of).change(&together(&others));
    judged.verdict = difference.verdict(judged.at_other_prices);
    if no_delta {
        judged.verdict = Verdict::DidNothing;
        judged.why.push("no delta was made: the difference is not due to deltas".to_owned());
    }
    judged.difference = Some(difference);
    judged.won = [segments_won(&pairs), fsyncs(&pairs)].into_iter().flatten().collect();
    judged
}

/// The price of the free segments that a configuration holds more than its control.
fn segments_won(pairs: &[(&Outcome, &Outcome)]) -> Option<String> {
    let held = |o: &Outcome| match &o.done {
        Done::Calls(done) => done.free_segments.map(|n| n as f64),
        Done::Blocks(_) => None,
    };
    let (mut segments, mut joules) = (0.0, 0.0);
    for (of, control) in pairs {
        segments += held(of)? - held(control)?;
        joules += of.total().joules() - control.total().joules();
    }
    let n = pairs.len() as f64;
    let (segments, joules) = (segments / n, joules / n);
    let cleaned = pairs.iter().any(|(o, _)| matches!(&o.done, Done::Calls(done) if done.cleaned.sections > 0));
    (cleaned && segments >= 1.0).then(|| match joules > 0.0 {
        true => format!("holds {segments:.0} free segments more, {} for each", joules_text(joules / segments)),
        false => format!("holds {segments:.0} free segments more, and spends {} less", joules_text(-joules)),
    })
}

/// Energy and erases for each fsync, of a configuration and of its control.
fn fsyncs(pairs: &[(&Outcome, &Outcome)]) -> Option<String> {
    let is_sync = |op: &str| matches!(op, "fsync" | "fdatasync");
    let count = |o: &Outcome| o.latencies().iter().filter(|l| is_sync(l.op)).map(|l| l.spread.count).sum::<u64>();
    let has_erases = pairs.iter().any(|(of, control)| of.erases() + control.erases() > 0);
    let side = |all: &[&Outcome]| {
        let syncs = all.iter().map(|o| count(o)).sum::<u64>() as f64;
        let joules = all.iter().map(|o| o.total().joules()).sum::<f64>();
        let erases = all.iter().map(|o| o.erases()).sum::<u64>() as f64;
        let erases = if has_erases { format!(" and {:.4} erases", erases / syncs) } else { String::new() };
        (syncs > 0.0).then(|| joules_text(joules / syncs) + &erases)
    };
    let (of, control): (Vec<&Outcome>, Vec<&Outcome>) = pairs.iter().copied().unzip();
    Some(format!("{} for each fsync; the control {}", side(&of)?, side(&control)?))
}

fn joules_text(joules: f64) -> String {
    Energy((joules * 1e12).max(0.0) as u64).to_string()
}

/// Why a configuration has exactly its control's results.
fn nothing_done(of: &Variant, pairs: &[(&Outcome, &Outcome)]) -> String {
    let sections = |o: &Outcome| match &o.done {
        Done::Calls(done) => done.cleaned.sections,
        Done::Blocks(_) => 0,
    };
    let picked = |name: &str| of.picks.iter().any(|(n, _)| n == name);
    let of_deltas = of.picks.iter().any(|(n, _)| n.starts_with("delta"));
    let cleaned = pairs.iter().any(|(o, _)| sections(o) > 0);
    let what = match () {
        () if of_deltas && pairs.iter().all(|(o, _)| o.deltas() == 0) => "no delta was made",
        () if ["gc", "power", "clean"].into_iter().any(picked) && !cleaned => "no section was cleaned",
        () => "the setting had no effect",
    };
    format!("{what}: the results are equal to the last picojoule")
}

/// What a profile may or may not count. The device's own work is always counted, in parts of its own.
const BOUNDARY: [(&str, &[Part]); 4] = [
    ("CPU", &[Part::CpuRequest, Part::CpuBytes, Part::CpuWork]),
    ("DRAM", &[Part::Dram]),
    ("waiting", &[Part::Idle, Part::Sleep]),
    ("board", &[Part::Board]),
];

fn spent(o: &Outcome, parts: &[Part]) -> Energy {
    parts.iter().map(|part| o.run.ledger.part(*part)).sum()
}

/// The parts of the energy that only one of the devices of a pair counts.
fn apart(pairs: &[(&Outcome, &Outcome)]) -> Vec<(&'static str, &'static [Part])> {
    let differs = |parts: &[Part]| {
        let spends = |o: &Outcome| spent(o, parts) > Energy(0);
        pairs.iter().any(|(a, b)| a.profile.name != b.profile.name && spends(a) != spends(b))
    };
    BOUNDARY.into_iter().filter(|(_, parts)| differs(parts)).collect()
}

fn apart_text(apart: &[(&str, &[Part])], (of, control): (&Outcome, &Outcome)) -> String {
    let each = |(name, parts): &(&str, &[Part])| {
        let [ours, theirs] = [of, control].map(|o| spent(o, parts));
        format!("{name} ({}: {ours}, {}: {theirs})", of.profile.name, control.profile.name)
    };
    let all: Vec<String> = apart.iter().map(each).collect();
    format!("left out of the difference, for only one of the profiles counts it: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_an_interval_without_0_and_the_same_sign_at_all_prices() {
        let at = |low, high| Some(Range { low, high });
        let verdict = |interval, prices| Difference { mean: 1.0, interval }.verdict(prices);
        assert_eq!(verdict(None, None), Verdict::OneSeed);
        assert_eq!(verdict(Some((-1.0, 2.0)), at(1.0, 2.0)), Verdict::NoDifference);
        assert_eq!(verdict(Some((1.0, 2.0)), at(-1.0, 2.0)), Verdict::Depends);
        assert_eq!(verdict(Some((1.0, 2.0)), at(1.0, 2.0)), Verdict::Worse);
        assert_eq!(verdict(Some((-2.0, -1.0)), None), Verdict::Better);
    }

    #[test]
    fn an_interval_is_students_over_the_seeds_and_exact_where_nothing_is_random() {
        let d = Difference::of(&[1.0, 2.0, 3.0, 4.0, 5.0], true);
        // t(0.975, 4) = 2.776445; the standard error is sqrt(2.5 / 5).
        let half = 2.776_445 * 0.5_f64.sqrt();
        let (low, high) = d.interval.unwrap();
        assert!((d.mean - 3.0).abs() < 1e-12 && (high - 3.0 - half).abs() < 1e-4 && (3.0 - low - half).abs() < 1e-4);
        assert_eq!(Difference::of(&[2.0], true).interval, None);
        assert_eq!(Difference::of(&[2.0], false).interval, Some((2.0, 2.0)));
    }
}
