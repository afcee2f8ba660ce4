//! What does a comparison of cleaning policies not show, and why?

use device::energy::Energy;
use vfs::Cleaned;

use super::outcome::{Done, Outcome};
use crate::NOBODY;

/// Notes about a comparison, in the order of its runs.
pub fn notes(all: &[&Outcome]) -> Vec<String> {
    let mut out = Vec::new();
    let calls = |o: &Outcome| match &o.done {
        Done::Calls(done) => Some((done.cleaned.sections, done.began.waits_for_age)),
        Done::Blocks(_) => None,
    };
    let young: Vec<&str> =
        all.iter().filter(|o| matches!(calls(o), Some((1.., true)))).map(|o| o.name.as_str()).collect();
    if !young.is_empty() {
        out.push(format!(
            "{}: cost-benefit was used in place of ATGC, which, as in the kernel, starts only after the volume was \
             mounted for seven days (--age phone-year)",
            young.join(", ")
        ));
    }
    // The control comes first if runs differ in cleaning policy.
    let of_cleaning = all.first().is_some_and(|o| o.name.split(' ').next() == Some(NOBODY));
    if of_cleaning && all.iter().all(|o| matches!(calls(o), Some((0, _)))) {
        let advice = "no section was cleaned, so this does not compare policies: try a fuller volume (--age, --fill), \
            cleaning that does not wait for idle time (--hurry), or more calls (--repeat)";
        out.push(advice.to_owned());
    }
    let rows: Vec<Row<'_>> = all
        .iter()
        .filter_map(|o| match &o.done {
            Done::Calls(done) if done.cleaned.sections > 0 => {
                Some((o.name.as_str(), (o.total(), o.run.took, done.cleaned)))
            }
            _ => None,
        })
        .collect();
    for same in alike(&rows) {
        out.push(format!(
            "{} gave identical results, to the picojoule",
            [&same[..same.len() - 1].join(", "), same[same.len() - 1]].join(" and ")
        ));
    }
    out
}

/// A run with cleaning: its name, energy, duration, and cleaning counts.
type Row<'a> = (&'a str, (Energy, u64, Cleaned));

/// Groups of two or more runs with equal numbers, in order.
fn alike<'a>(rows: &[Row<'a>]) -> Vec<Vec<&'a str>> {
    let mut out: Vec<Vec<&str>> = Vec::new();
    for (n, (name, numbers)) in rows.iter().enumerate() {
        let first = rows.iter().position(|(_, other)| other == numbers);
        if first == Some(n) {
            let later = rows[n + 1..].iter().filter(|(_, other)| other == numbers).map(|(name, _)| *name);
            let same: Vec<&str> = std::iter::once(*name).chain(later).collect();
            if same.len() > 1 {
                out.push(same);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_did_the_same_are_named_together_and_once() {
        let row = |name, energy, sections| (name, (Energy(energy), 5, Cleaned { sections, waited_for: 0, moved: 9 }));
        let rows = [row("greedy", 7, 3), row("atgc", 8, 3), row("mwhfb", 7, 3), row("fagc", 7, 4), row("joule", 8, 3)];
        assert_eq!(alike(&rows), [["greedy", "mwhfb"], ["atgc", "joule"]]);
        assert!(alike(&rows[..2]).is_empty());
    }
}
