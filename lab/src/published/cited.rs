//! Which published numbers were a plan or a profile fitted to?
//!
//! A plan names them in `fitted_on`, a profile in `calibrated_on` and in the sources of its numbers, unless these are
//! assumed. Both name the paper and the place: `FAGC TACO'23, section 4.1: ...`. A number that stands in the same
//! table, section or slide can agree only by the fit ([`super::Said::Fitted`]).

use std::collections::BTreeSet;

use device::energy::profile::{Confidence, Profile, ProfileError};

use crate::plan::{Changes, Experiment, PlanError};

/// The tables, figures, sections and slides in a text: `section 6.2, Figs. 6.1 to 6.10` has `section 6.2`, `figure
/// 6.1` and `figure 6.10`.
pub fn places(text: &str) -> BTreeSet<String> {
    const KINDS: [(&str, &str); 8] = [
        ("section", "section"),
        ("sections", "section"),
        ("table", "table"),
        ("fig", "figure"),
        ("figs", "figure"),
        ("slide", "slide"),
        ("slides", "slide"),
        ("abstract", "abstract"),
    ];
    let (mut kind, mut out) = (None, BTreeSet::new());
    for word in text.split(|c: char| c.is_whitespace() || c == ',') {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        match KINDS.iter().find(|(written, _)| written.eq_ignore_ascii_case(word)) {
            Some((_, "abstract")) => {
                out.insert("abstract".to_owned());
            }
            Some((_, known)) => kind = Some(*known),
            None if word.starts_with(|c: char| c.is_ascii_digit()) => {
                out.extend(kind.map(|kind| format!("{kind} {word}")));
            }
            None if ["and", "to", "a", "b", ""].contains(&word) => {}
            None => kind = None,
        }
    }
    out
}

/// The places of a paper that a text cites: all that follow its short name, up to a colon, semicolon or bracket.
fn cited(paper: &str, text: &str) -> BTreeSet<String> {
    let parts = text.split(paper).skip(1);
    parts.flat_map(|after| places(after.split([':', ';', '(', ')']).next().unwrap_or_default())).collect()
}

/// The sources of a profile's numbers and what it was calibrated on.
fn sources(profile: &Profile) -> Vec<String> {
    let numbers = profile.numbers().into_iter().filter(|n| n.confidence != Confidence::Assumed);
    numbers.map(|n| n.source).chain(profile.calibrated_on.iter().cloned()).collect()
}

/// Why no citation could be looked up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Uncited {
    /// The plan is malformed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan names a profile that does not exist.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// The places of a paper that an experiment's plan or profiles were fitted to.
pub fn fitted_on(experiment: &Experiment, paper: &str) -> Result<BTreeSet<String>, Uncited> {
    let mut texts = experiment.plan.fitted_on.clone();
    let jobs = experiment.jobs(&Changes::default())?;
    for name in jobs.iter().map(|job| job.profile.as_str()).collect::<BTreeSet<_>>() {
        texts.extend(sources(&Profile::find(name)?));
    }
    Ok(texts.iter().flat_map(|text| cited(paper, text)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_all_spellings() {
        let of = |text: &str| places(text).into_iter().collect::<Vec<_>>().join("; ");
        assert_eq!(of("abstract, section 6.2.1, Fig. 7"), "abstract; figure 7; section 6.2.1");
        assert_eq!(of("slides 5 and 28"), "slide 28; slide 5");
        assert_eq!(of("section 4, Fig. 1 (b)"), "figure 1; section 4");
        assert_eq!(of("Table 6"), "table 6");
        assert_eq!(of("section 6.2 of 3 files"), "section 6.2");
    }

    #[test]
    fn a_citation_ends_with_its_sentence() {
        let text = "at 2 W (Mohan HotStorage'17, slides 14 and 17); section 9 of FAGC TACO'23, section 4.1: 5 MB";
        let of = |paper| cited(paper, text).into_iter().collect::<Vec<_>>();
        assert_eq!(of("Mohan HotStorage'17"), ["slide 14", "slide 17"]);
        assert_eq!(of("FAGC TACO'23"), ["section 4.1"]);
        assert!(of("Scherl 2004").is_empty());
    }

    #[test]
    fn plans_and_profiles_name_what_they_were_fitted_to() {
        let of = |experiment, paper| fitted_on(&Experiment::find(experiment).unwrap(), paper).unwrap();
        assert!(of("fagc-fig5", "FAGC TACO'23").contains("section 4.1"), "the profile's prices");
        assert!(of("fagc-table6", "FAGC TACO'23").contains("table 6"), "the plan's segments");
        assert!(of("nexus-kernel", "Mohan HotStorage'17").contains("slide 14"));
        assert!(of("scherl-fig6-11", "Scherl 2004").is_empty());
    }
}
