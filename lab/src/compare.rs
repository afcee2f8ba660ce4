//! Which of our numbers corresponds to a published one?

use crate::claim::{Claim, Comparison, How};
use crate::result::{Outcome, VariantResult};
use sim::result::Phase;

/// Phases with their variants.
type Phases<'a> = [(&'a VariantResult, &'a Phase)];

/// Our number, calculated from the measurements.
fn answer(claim: &Claim, phases: &Phases<'_>) -> Option<f64> {
    if claim.how == How::MeanIncrease {
        return mean_increase(claim, phases);
    }
    let of = mean(claim, phases, &claim.of)?;
    match claim.how {
        How::Mean | How::AtMost => Some(of),
        How::Difference => Some(of - mean(claim, phases, &claim.over)?),
        How::Ratio => Some(of / mean(claim, phases, &claim.over)?),
        How::Increase | How::MeanIncrease => Some(100.0 * (of / mean(claim, phases, &claim.over)? - 1.0)),
    }
}

fn mean(claim: &Claim, phases: &Phases<'_>, select: &str) -> Option<f64> {
    let found: Vec<f64> = phases
        .iter()
        .filter(|(v, p)| selects(select, &v.name, &p.name))
        .filter_map(|(_, p)| p.measures.get(&claim.measure))
        .filter(|m| !matches!(claim.how, How::Mean | How::Difference) || m.unit == claim.unit)
        .map(|m| m.value)
        .collect();
    (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
}

fn mean_increase(claim: &Claim, phases: &Phases<'_>) -> Option<f64> {
    let increase = |phase: &str| {
        let only = |select: &str| select.split_once('/').map(|(variant, _)| format!("{variant}/{phase}"));
        let value = |select: &str| mean(claim, phases, &only(select)?);
        Some(100.0 * (value(&claim.of)? / value(&claim.over)? - 1.0))
    };
    let names = phases.iter().filter(|(v, p)| selects(&claim.of, &v.name, &p.name)).map(|(_, p)| p.name.as_str());
    let names: std::collections::BTreeSet<&str> = names.collect();
    let all: Vec<f64> = names.into_iter().filter_map(increase).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

pub(crate) fn selects(select: &str, variant: &str, phase: &str) -> bool {
    let fits = |pattern: &str, name: &str| {
        pattern == name || pattern.strip_suffix('*').is_some_and(|begin| name.starts_with(begin))
    };
    let one = |select: &str| select.trim().split_once('/').is_some_and(|(v, p)| fits(v, variant) && fits(p, phase));
    select.split('+').any(one)
}

/// Every published number of an experiment next to ours, of these seeds: a repeated run has others, too.
pub fn compare(claims: &[Claim], outcome: &Outcome, seeds: &[u64]) -> Vec<Comparison> {
    let phases: Vec<_> = outcome.phases().filter(|(v, _)| seeds.contains(&v.seed)).collect();
    claims.iter().map(|c| Comparison { claim: c.clone(), ours: answer(c, &phases) }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::energy::Nanos;

    use super::*;
    use sim::result::Measure;

    fn phase(name: &str, value: f64) -> Phase {
        Phase {
            fs: Default::default(),
            name: name.into(),
            stage: sim::result::Stage::default(),
            bytes: 0,
            took: Nanos(0),
            spent: vec![],
            range: None,
            operations: vec![],
            owners: vec![],
            owned: vec![],
            files: BTreeMap::new(),
            traffic: vec![],
            counters: BTreeMap::new(),
            timeline: vec![],
            writes_at: vec![],
            measures: [("energy".to_owned(), Measure { value, unit: "mJ".into() })].into(),
            account: Default::default(),
            sums: Default::default(),
        }
    }

    fn outcome() -> Outcome {
        let variant = |name: &str, read, write| VariantResult {
            name: name.into(),
            profile: "p".into(),
            seed: 1,
            parameters: toml::Table::new(),
            phases: vec![phase("read", read), phase("write", write)],
            histograms: vec![],
            costs: None,
            draws: None,
        };
        Outcome {
            experiment: "x".into(),
            title: "x".into(),
            version: "0".into(),
            quick: false,
            variants: vec![variant("old", 2.0, 10.0), variant("new", 4.0, 20.0)],
            skipped: vec![],
            compared: vec![],
            comparison: vec![],
        }
    }

    const HEAD: &str = "quantity,value,unit,place,how,measure,of,over,note\n";

    fn ours(row: &str) -> Comparison {
        let claims = Claim::parse_all(&format!("{HEAD}{row}\n")).unwrap();
        compare(&claims, &outcome(), &[1]).remove(0)
    }

    #[test]
    fn a_mean_takes_every_phase_the_selector_names() {
        let c = ours("q,2.5,mJ,T1,mean,energy,*/read,,");
        assert_eq!((c.ours, c.difference_text().as_str()), (Some(3.0), "+20.0 %"));
        assert_eq!(ours("q,3,mJ,T1,mean,energy,new/read,,").ours, Some(4.0));
        assert_eq!(ours("q,3,mJ,T1,mean,energy,n*/w*,,").ours, Some(20.0), "of names that begin so");
        assert_eq!(ours("q,3,mJ,T1,mean,energy,old/read + new/*,,").ours, Some(26.0 / 3.0), "of several");
    }

    #[test]
    fn other_seeds_of_a_repeated_run_do_not_count() {
        let mut outcome = outcome();
        let mut other = outcome.variants[0].clone();
        (other.seed, other.phases[0]) = (2, phase("read", 100.0));
        outcome.variants.push(other);
        let claims = Claim::parse_all(&format!("{HEAD}q,3,mJ,T1,mean,energy,old/read,,\n")).unwrap();
        let ours = |seeds: &[u64]| compare(&claims, &outcome, seeds).remove(0).ours;
        assert_eq!((ours(&[1]), ours(&[1, 2])), (Some(2.0), Some(51.0)));
    }

    #[test]
    fn ratios_and_increases_divide_means() {
        assert_eq!(ours("q,6,x,T1,ratio,energy,*/write,*/read,").ours, Some(5.0));
        let c = ours("q,90,%,T1,increase,energy,new/*,old/*,");
        assert_eq!((c.ours, c.difference_text().as_str()), (Some(100.0), "+10.0 points"));
    }

    #[test]
    fn a_difference_is_of_means_in_one_unit() {
        let c = ours("q,5,mJ,T1,difference,energy,new/*,old/*,");
        assert_eq!((c.ours, c.difference_text().as_str()), (Some(6.0), "+20.0 %"));
        assert_eq!(ours("q,-20,mJ,T1,difference,energy,old/write,new/write,").ours, Some(-10.0));
        assert_eq!(ours("q,5,J,T1,difference,energy,new/*,old/*,").ours, None, "millijoules are no joules");
    }

    #[test]
    fn a_mean_of_increases_weighs_each_phase_the_same() {
        let mut outcome = outcome();
        outcome.variants[1].phases[0] = phase("read", 10.0);
        // Reading costs five times as much, writing twice as much.
        let row = "q,90,%,T1,mean-increase,energy,new/*,old/*,";
        let claims = Claim::parse_all(&format!("{HEAD}{row}\n")).unwrap();
        assert_eq!(compare(&claims, &outcome, &[1]).remove(0).ours, Some(250.0));
        let claims = Claim::parse_all(&format!("{HEAD}{}\n", row.replace("mean-", ""))).unwrap();
        assert_eq!(compare(&claims, &outcome, &[1]).remove(0).ours, Some(150.0), "the sum's");
    }

    #[test]
    fn a_bound_that_is_kept_is_no_difference() {
        assert_eq!(ours("q,5,mJ,T1,at-most,energy,*/read,,").difference_text(), "within");
        assert_eq!(ours("q,2,mJ,T1,at-most,energy,*/read,,").difference_text(), "+50.0 %");
    }

    #[test]
    fn what_did_not_run_or_has_another_unit_is_not_compared() {
        assert_eq!(ours("q,5,mJ,T1,mean,energy,third/read,,").ours, None);
        assert_eq!(ours("q,5,J,T1,mean,energy,*/read,,").ours, None);
    }

    #[test]
    fn a_row_that_makes_no_sense_is_refused() {
        for row in [
            "q,5,x,T1,ratio,energy,*/read,,",
            "q,5,mJ,T1,difference,energy,*/read,,",
            "q,5,mJ,T1,mean,energy,*/read,*/write,",
            "q,5,mJ,T1,magic,e,a,,",
        ] {
            assert!(Claim::parse_all(&format!("{HEAD}{row}\n")).is_err(), "{row}");
        }
    }
}
