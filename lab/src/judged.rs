//! How do the variants of an experiment compare in energy, and how sure is that?
//!
//! Each variant is compared with its control, seed by seed, as `trace replay` compares configurations ([`sim::replay`]).
//! The control does the same work ([`control`]); in a plan that names neither controls nor what it compares, it is the
//! first variant on the same device. Compared is the energy of all phases but preparation. Left out: whether the variants
//! do the same work.

use device::energy::{Draws, Energy};
use sim::replay::judged::{Difference, Judged, Verdict};
use sim::result::Phase;

use crate::control;
use crate::plan::{Experiment, Job, Kind};
use crate::result::{Outcome, VariantResult};

/// Compares every variant of an outcome with its control; `jobs` are those of the outcome, skipped ones included.
pub fn all(experiment: &Experiment, jobs: &[Job], outcome: &Outcome) -> Vec<Judged> {
    if experiment.plan.kind == Kind::Regret {
        // Each variant has its control within.
        return Vec::new();
    }
    let controls = controls(experiment, jobs);
    let run = |n: usize| outcome.variants.iter().position(|v| (&v.name, v.seed) == (&jobs[n].variant, jobs[n].seed));
    let mut names: Vec<&str> = Vec::new();
    for v in &outcome.variants {
        if !names.contains(&v.name.as_str()) {
            names.push(&v.name);
        }
    }
    let one = |name: &&str| {
        let own: Vec<usize> = (0..jobs.len()).filter(|n| jobs[*n].variant == **name && run(*n).is_some()).collect();
        let is_random = own.len() > 1 || own.iter().any(|n| experiment.plan.kind.is_random(&jobs[*n].parameters));
        let pairs = own.iter().filter_map(|n| Some((run(*n)?, run(controls[*n]?)?))).collect();
        let mut judged = judged(outcome, own.iter().filter_map(|n| run(*n)).collect(), pairs, is_random);
        let control = &experiment.plan.control;
        if judged.against.is_none() && !control.is_empty() && !control.contains(&judged.name) {
            judged.verdict = Verdict::NotComparable;
            judged.why.push(format!("its control did not run: one of {}", control.join(", ")));
        }
        judged
    };
    names.iter().map(one).collect()
}

/// The index of each job's control.
fn controls(experiment: &Experiment, jobs: &[Job]) -> Vec<Option<usize>> {
    if !experiment.plan.control.is_empty() || experiment.plan.compares.is_some() {
        return control::of_jobs(&experiment.plan, jobs);
    }
    let same = |a: &Job, b: &Job| (&a.profile, a.seed) == (&b.profile, b.seed);
    let first = |(n, job): (usize, &Job)| jobs.iter().position(|other| same(job, other)).filter(|first| *first != n);
    jobs.iter().enumerate().map(first).collect()
}

/// Compares runs with their controls; `pairs` has the indices of both.
fn judged(outcome: &Outcome, runs: Vec<usize>, pairs: Vec<(usize, usize)>, is_random: bool) -> Judged {
    let variant = |run: usize| &outcome.variants[run];
    let total = |run: usize| variant(run).judged().map(Phase::total).sum::<Energy>();
    let sum: u128 = runs.iter().map(|run| u128::from(total(*run).0)).sum();
    let mut judged = Judged {
        name: variant(runs[0]).name.clone(),
        mean: Energy((sum / runs.len() as u128) as u64),
        runs,
        against: pairs.first().map(|(_, control)| variant(*control).name.clone()),
        difference: None,
        at_other_prices: None,
        verdict: Verdict::Control,
        won: Vec::new(),
        why: Vec::new(),
    };
    if pairs.is_empty() {
        return judged;
    }
    if pairs.iter().all(|(of, control)| is_equal(variant(*of), variant(*control))) {
        judged.verdict = Verdict::DidNothing;
        judged.difference = Some(Difference { mean: 0.0, interval: Some((0.0, 0.0)) });
        judged.why.push("the results are equal to the last picojoule".to_owned());
        return judged;
    }
    if pairs.iter().any(|(_, control)| total(*control) == Energy::ZERO) {
        judged.verdict = Verdict::NotComparable;
        return judged;
    }
    let change = |(of, control): &(usize, usize)| (total(*of).joules() / total(*control).joules() - 1.0) * 100.0;
    let difference = Difference::of(&pairs.iter().map(change).collect::<Vec<_>>(), is_random);
    let (of, others): (Vec<usize>, Vec<usize>) = pairs.into_iter().unzip();
    let together = |runs: &[usize]| {
        let mut all = runs.iter().map(|run| variant(*run).draws.as_ref());
        let first: Draws = all.next()??.clone();
        all.try_fold(first, |mut sum, draws| {
            sum.add(draws?);
            Some(sum)
        })
    };
    judged.at_other_prices = together(&of).zip(together(&others)).and_then(|(of, others)| of.change(&others));
    judged.verdict = difference.verdict(judged.at_other_prices);
    judged.difference = Some(difference);
    judged
}

fn is_equal(a: &VariantResult, b: &VariantResult) -> bool {
    a.judged().map(|p| (&p.spent, p.took)).eq(b.judged().map(|p| (&p.spent, p.took)))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::plan::Changes;

    fn judged(plan: &str, many: usize) -> Vec<Judged> {
        let experiment = Experiment::parse("x", "", plan, "").unwrap();
        let changes = Changes { seeds: NonZeroUsize::new(many), ..Changes::default() };
        let outcome = crate::run::run(&experiment, &changes, NonZeroUsize::MIN, &|_| ()).unwrap();
        all(&experiment, &experiment.jobs(&changes).unwrap(), &outcome)
    }

    /// Small requests that are dispersed less and more.
    const PLAN: &str = "title = \"t\"\nkind = \"dispersal\"\nprofile = \"galaxy-nexus-emmc\"\n\
        [parameters]\nvolume_mib = 256\nfile_mib = 64\nregions_mib = [16]\nrequests = 100\non = \"f2fs\"\n\
        [[variant]]\nname = \"first\"\n[[variant]]\nname = \"same\"\n\
        [[variant]]\nname = \"other\"\nrequests = 200\n\
        [[variant]]\nname = \"elsewhere\"\nprofile = \"kirin9000-ufs31\"\n";

    #[test]
    fn variants_are_compared_with_the_first_on_their_device_and_the_difference_has_an_interval() {
        let all = judged(PLAN, 3);
        let said: Vec<_> = all.iter().map(|j| (j.name.as_str(), j.against.as_deref(), j.runs.len())).collect();
        let first = Some("first");
        assert_eq!(said, [("first", None, 3), ("same", first, 3), ("other", first, 3), ("elsewhere", None, 3)]);
        assert_eq!([all[0].verdict, all[1].verdict], [Verdict::Control, Verdict::DidNothing]);
        let difference = all[2].difference.unwrap();
        let (low, high) = difference.interval.unwrap();
        assert!(low < difference.mean && difference.mean < high, "{difference:?}");
        assert!(all[2].at_other_prices.is_some_and(|range| range.low < range.high));
    }

    #[test]
    fn one_seed_is_no_verdict_where_something_is_random() {
        assert_eq!(judged(PLAN, 1)[2].verdict, Verdict::OneSeed);
    }
}
