//! What is run, on which device, in which variants?
//!
//! An experiment is a directory of three files: `README.md` says what is claimed, `plan.toml` what is
//! run, `paper.csv` what was published. A fourth, `ours.csv`, says what a full run measured ([`Kept`]), a fifth, `took.csv`, how
//! long it took ([`Took`]). The shipped ones are built in; any other is named by its path.
//!
//! A plan names a *kind* of work ([`crate::experiments`]) and its parameters; nothing in it is a result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device::energy::profile::{Profile, ProfileError};
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::claim::Claim;
use crate::kept::Kept;
use crate::took::Took;

/// `plan.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// One line for people.
    pub title: String,
    /// The kind of work.
    pub kind: Kind,
    /// The device's profile.
    pub profile: String,
    /// Every variant runs once with each; in a quick run with the first alone.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// The variants in which nobody cleans in the background, where variants differ in who does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control: Vec<String>,
    /// What the kind of work asks for.
    #[serde(default)]
    pub parameters: Table,
    /// What replaces parameters in a quick run: the same work, smaller.
    #[serde(default)]
    pub quick: Table,
    /// The variants; without any there is one, called `plain`.
    #[serde(default)]
    pub variant: Vec<Variant>,
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

/// What differs from the plan's own parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// What it is called in results.
    pub name: String,
    /// Another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// A file of other people that it needs and that is not shipped ([`crate::theirs`]); without the file the variant
    /// is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// Numbers of the profile that are assumed to be others, by their names as `joulefs energy show` has them, in the
    /// units they have there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub assume: BTreeMap<String, f64>,
    /// The parameters that differ.
    #[serde(flatten)]
    pub parameters: Table,
}

/// The kinds of work there are code for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reading and writing one file in order or at random.
    FileIo,
    /// Reading files that lie in pieces of different sizes.
    Fragments,
    /// A database's transactions.
    Sqlite,
    /// Cleaning in the background until nothing is worth it.
    Cleaning,
    /// Overwriting a full volume, and how few blocks cleaning could have moved.
    Bound,
    /// Databases of several applications that grow together: how they lie, and what using them costs.
    Databases,
    /// Small requests, by how far they are dispersed.
    Dispersal,
    /// A log for disks that frees space in different ways, through days on battery and nights on the charger.
    Strategies,
    /// A bare disk's motions, one by one.
    DiskModes,
    /// What one cleaning costs.
    GcEnergy,
    /// How much sooner cleaning empties a battery.
    Battery,
    /// What cleaning does to the pieces of free space.
    GcEffect,
    /// The calls of recorded programs, while a policy cleans.
    AppReplay,
    /// What applications write, with contents, where small updates are kept in different ways.
    AppUpdates,
    /// The same on one volume in a given state, while a policy cleans.
    AppCleaning,
    /// How long a writer waits whose file grows into the room of its deltas.
    DeltaEviction,
    /// How fast a file is read that has deltas in delta nodes.
    DeltaReads,
    /// What an application's requests cost, by a table and simulated.
    AppEnergy,
    /// How large recorded programs' reads and writes are.
    RequestSizes,
    /// What requests cost that a kernel's file system made for known work.
    Requests,
    /// A phone's energy divided among its components by runs that differ in them.
    Differential,
    /// Programs that are launched with nothing in memory.
    Launch,
    /// Files written and read with nothing in memory, on ScherlFS or as a file system of Linux was recorded.
    Uncached,
    /// Recorded days of calls on a disk that sleeps.
    Days,
    /// Use in turns with pauses in which the background cleans, and the work after.
    Worth,
    /// Hours in which hardly anyone writes, and cleaning that wins nothing.
    Idle,
}

/// A plan's variant, ready to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The variant's name.
    pub variant: String,
    /// The device's profile.
    pub profile: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The file it needs.
    pub needs: Option<String>,
    /// Numbers of the profile that are others.
    pub assume: BTreeMap<String, f64>,
    /// Everything the kind of work asks for.
    pub parameters: Table,
}

impl Job {
    /// Its device's profile, with the numbers that the variant assumes.
    pub fn profile(&self) -> Result<Profile, ProfileError> {
        let source = format!("assumed by the variant {}", self.variant);
        let begin = Profile::find(&self.profile)?;
        self.assume.iter().try_fold(begin, |profile, (name, value)| profile.with(name, *value, None, &source))
    }

    /// What it runs with, as results tell it.
    pub fn told(&self) -> Table {
        let mut told = self.parameters.clone();
        if !self.assume.is_empty() {
            let numbers = self.assume.iter().map(|(name, value)| (name.clone(), toml::Value::Float(*value)));
            told.insert("assume".into(), toml::Value::Table(numbers.collect()));
        }
        told
    }
}

/// What a user changes in a plan.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Run small.
    pub quick: bool,
    /// On this device.
    pub profile: Option<String>,
    /// With this seed only.
    pub seed: Option<u64>,
    /// With these parameters, whatever plan and variants say.
    pub parameters: Table,
    /// Only variants of these names; all if empty.
    pub variants: Vec<String>,
}

/// An experiment: what is claimed, what is run, what was published.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Its directory's name.
    pub name: String,
    /// What it claims, for people.
    pub readme: String,
    /// What is run.
    pub plan: Plan,
    /// What was published.
    pub paper: Vec<Claim>,
    /// What a full run measured, if that was kept.
    pub kept: Kept,
    /// How long runs took, and how much memory, if that was kept.
    pub took: Took,
}

/// An experiment that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Neither shipped nor a directory.
    #[error("no experiment {name:?}: choose {known}, or give the path of an experiment's directory")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A file of it cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of it is not what it should be.
    #[error("experiment {experiment}: {file}: {message}")]
    Malformed {
        /// The experiment.
        experiment: String,
        /// The file.
        file: &'static str,
        /// What and where.
        message: String,
    },
    /// A variant asked for that the plan does not have.
    #[error("experiment {experiment} has no variant {variant:?}: it has {known}")]
    NoVariant {
        /// The experiment.
        experiment: String,
        /// What was asked for.
        variant: String,
        /// Those there are.
        known: String,
    },
}

/// What the file of kept numbers is called.
pub const KEPT: &str = "ours.csv";
/// What the file is called that says how long runs took.
pub const TOOK: &str = "took.csv";

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, [
            include_str!(concat!("../../experiments/", $name, "/README.md")),
            include_str!(concat!("../../experiments/", $name, "/plan.toml")),
            include_str!(concat!("../../experiments/", $name, "/paper.csv")),
            include_str!(concat!("../../experiments/", $name, "/ours.csv")),
            include_str!(concat!("../../experiments/", $name, "/took.csv")),
        ])),*]
    };
}

/// Names of the shipped experiments, with the texts of README, plan, paper, what was kept and how long it took (empty files for a new one).
pub const SHIPPED: &[(&str, [&str; 5])] = shipped![
    "dir-fsync",
    "fagc-battery",
    "fagc-fig11",
    "fagc-fig12",
    "fagc-fig4",
    "fagc-fig4-device",
    "fagc-fig5",
    "fagc-fig6",
    "fagc-fig7-8",
    "fagc-fig9-table5",
    "fagc-sizes",
    "fagc-table6",
    "gc-bound",
    "gc-day",
    "gc-idle",
    "gc-streams",
    "gc-streams-worn",
    "gc-worth",
    "ji-fig1",
    "ji-fig2",
    "ji-fig3",
    "ji-fig4",
    "ji-fig5",
    "ji-prealloc",
    "ji-remap",
    "ji-scan",
    "medfs-all",
    "medfs-fig11",
    "medfs-fig11a",
    "medfs-fig12",
    "medfs-fig12a",
    "medfs-fig7-10",
    "medfs-fig8",
    "medfs-lifetime",
    "medfs-table1-2",
    "medfs-wal-base",
    "microdrive-table31",
    "nexus-apps",
    "nexus-differential",
    "nexus-fileops",
    "nexus-kernel",
    "nexus-sqlite",
    "scherl-fig6-1-10",
    "scherl-fig6-11",
    "scherl-fig6-12-13",
    "scherl-fig6-14-15",
    "scherl-placement",
    "scherl-sleep",
    "scherl-strategies",
    "scherl-think",
];

impl Experiment {
    /// A shipped experiment by name, or any by the path of its directory (what has a slash).
    pub fn find(name: &str) -> Result<Self, PlanError> {
        if let Some((_, [readme, plan, paper, kept, took])) = SHIPPED.iter().find(|(n, _)| *n == name) {
            return Self::parse(name, readme, plan, paper)?.with_kept(kept)?.with_took(took);
        }
        let dir = Path::new(name);
        if !name.contains('/') {
            let known: Vec<_> = SHIPPED.iter().map(|(n, _)| *n).collect();
            return Err(PlanError::Unknown { name: name.into(), known: known.join(", ") });
        }
        let read = |file: &str| {
            let path = dir.join(file);
            std::fs::read_to_string(&path).map_err(|source| PlanError::Unreadable { path, source })
        };
        let label = dir.file_name().map_or_else(|| name.to_owned(), |n| n.to_string_lossy().into_owned());
        let beside = |file: &str| if dir.join(file).exists() { read(file) } else { Ok(String::new()) };
        Self::parse(&label, &read("README.md")?, &read("plan.toml")?, &read("paper.csv")?)?
            .with_kept(&beside(KEPT)?)?
            .with_took(&beside(TOOK)?)
    }

    /// From the texts of its files.
    pub fn parse(name: &str, readme: &str, plan: &str, paper: &str) -> Result<Self, PlanError> {
        let malformed = |file, message: String| PlanError::Malformed { experiment: name.into(), file, message };
        let plan: Plan = toml::from_str(plan).map_err(|e| malformed("plan.toml", e.to_string()))?;
        if plan.seeds.is_empty() {
            return Err(malformed("plan.toml", "seeds is empty".into()));
        }
        let paper = Claim::parse_all(paper).map_err(|m| malformed("paper.csv", m))?;
        let (kept, took) = (Kept::default(), Took::default());
        Ok(Experiment { name: name.into(), readme: readme.into(), plan, paper, kept, took })
    }

    /// The same with what was kept, from the text of `ours.csv`.
    pub fn with_kept(self, kept: &str) -> Result<Self, PlanError> {
        let malformed = |message| PlanError::Malformed { experiment: self.name.clone(), file: KEPT, message };
        let kept = Kept::parse(kept).map_err(malformed)?;
        Ok(Experiment { kept, ..self })
    }

    /// The same with what runs took, from the text of `took.csv`.
    pub fn with_took(self, took: &str) -> Result<Self, PlanError> {
        let malformed = |message| PlanError::Malformed { experiment: self.name.clone(), file: TOOK, message };
        let took = Took::parse(took).map_err(malformed)?;
        Ok(Experiment { took, ..self })
    }

    /// The first paragraph of the README after its heading, in one line.
    pub fn claim(&self) -> String {
        let lines = self.readme.lines().map(str::trim).skip_while(|l| l.is_empty() || l.starts_with('#'));
        lines.take_while(|l| !l.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The plan's variants with every seed, in order.
    pub fn jobs(&self, changes: &Changes) -> Result<Vec<Job>, PlanError> {
        let plain = [Variant {
            name: "plain".into(),
            profile: None,
            needs: None,
            assume: BTreeMap::new(),
            parameters: Table::new(),
        }];
        let variants = if self.plan.variant.is_empty() { &plain[..] } else { &self.plan.variant };
        if let Some(name) = changes.variants.iter().find(|n| variants.iter().all(|v| v.name != **n)) {
            let known: Vec<_> = variants.iter().map(|v| v.name.as_str()).collect();
            return Err(PlanError::NoVariant {
                experiment: self.name.clone(),
                variant: name.clone(),
                known: known.join(", "),
            });
        }
        let mut seeds = changes.seed.map_or_else(|| self.plan.seeds.clone(), |s| vec![s]);
        seeds.truncate(if changes.quick { 1 } else { usize::MAX });
        let chosen = variants.iter().filter(|v| changes.variants.is_empty() || changes.variants.contains(&v.name));
        let job = |v: &Variant, seed| {
            let mut parameters = self.plan.parameters.clone();
            parameters.extend(v.parameters.clone());
            if changes.quick {
                parameters.extend(self.plan.quick.clone());
            }
            parameters.extend(changes.parameters.clone());
            let profile = changes.profile.as_ref().or(v.profile.as_ref()).unwrap_or(&self.plan.profile);
            Job {
                variant: v.name.clone(),
                profile: profile.clone(),
                seed,
                needs: v.needs.clone(),
                assume: v.assume.clone(),
                parameters,
            }
        };
        Ok(chosen.flat_map(|v| seeds.iter().map(move |s| (v, *s))).map(|(v, s)| job(v, s)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "title = \"t\"\nkind = \"disk-modes\"\nprofile = \"p\"\nseeds = [1, 2]\n\
        [parameters]\nn = 5\nm = 1\n[quick]\nn = 2\n\
        [[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\nprofile = \"q\"\nm = 7\n";

    fn experiment() -> Experiment {
        Experiment::parse("x", "# x\n\nThe claim.\n", PLAN, "").unwrap()
    }

    #[test]
    fn variants_override_the_plan_and_a_quick_run_overrides_both() {
        let all = experiment().jobs(&Changes::default()).unwrap();
        assert_eq!(all.len(), 4, "two variants, two seeds");
        assert_eq!((all[3].variant.as_str(), all[3].profile.as_str(), all[3].seed), ("b", "q", 2));
        let jobs = experiment().jobs(&Changes { quick: true, ..Changes::default() }).unwrap();
        assert_eq!(jobs.len(), 2, "two variants, the first seed");
        assert_eq!((jobs[1].variant.as_str(), jobs[1].profile.as_str(), jobs[1].seed), ("b", "q", 1));
        assert_eq!(jobs[1].parameters, "n = 2\nm = 7".parse().unwrap());
        assert_eq!(jobs[0].parameters, "n = 2\nm = 1".parse().unwrap());
    }

    #[test]
    fn a_variant_assumes_other_numbers_of_the_profile_and_says_so() {
        let plan =
            PLAN.replace("profile = \"q\"", "profile = \"kirin9000-ufs31\"\nassume = { \"device.nand.spare\" = 25 }");
        let jobs = Experiment::parse("x", "", &plan, "").unwrap().jobs(&Changes::default()).unwrap();
        let of = |job: &Job| {
            let numbers = job.profile().unwrap().numbers();
            let spare = numbers.into_iter().find(|n| n.name == "device.nand.spare").unwrap();
            (spare.value, spare.unit, spare.source)
        };
        assert_eq!(of(&jobs[2]), (25.0, "%".into(), "assumed by the variant b".into()));
        assert!(jobs[2].told().contains_key("assume") && !jobs[0].told().contains_key("assume"));
        let e =
            Job { assume: [("device.nand.spear".to_owned(), 1.0)].into(), ..jobs[2].clone() }.profile().unwrap_err();
        assert!(e.to_string().contains("device.nand.spear = 1: unknown field"), "{e}");
    }

    #[test]
    fn a_user_has_the_last_word() {
        let changes = Changes {
            profile: Some("mine".into()),
            seed: Some(9),
            parameters: "m = 3".parse().unwrap(),
            variants: vec!["b".into()],
            quick: false,
        };
        let jobs = experiment().jobs(&changes).unwrap();
        assert_eq!(jobs.len(), 1);
        assert_eq!((jobs[0].profile.as_str(), jobs[0].seed), ("mine", 9));
        assert_eq!(jobs[0].parameters, "n = 5\nm = 3".parse().unwrap());
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let e = experiment().jobs(&Changes { variants: vec!["c".into()], ..Changes::default() }).unwrap_err();
        assert_eq!(e.to_string(), "experiment x has no variant \"c\": it has a, b");
        assert!(Experiment::find("nothing").unwrap_err().to_string().contains("microdrive-table31"));
        let e = Experiment::parse("x", "", "title = 3", "").unwrap_err().to_string();
        assert!(e.starts_with("experiment x: plan.toml:"), "{e}");
    }

    #[test]
    fn the_claim_is_the_whole_first_paragraph() {
        assert_eq!(experiment().claim(), "The claim.");
        let readme = "# x\n\nReading costs\nten times as much.\n\nA paper.\n";
        assert_eq!(Experiment::parse("x", readme, PLAN, "").unwrap().claim(), "Reading costs ten times as much.");
    }
}
