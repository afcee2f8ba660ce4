//! What is run, on which device, in which variants?
//!
//! An experiment is a directory of three files: `README.md` has the claims, `plan.toml` defines the runs, `paper.csv`
//! has the published numbers. A fourth, `ours.csv`, has the measurements of a full run ([`Kept`]), a fifth, `took.csv`,
//! its run time ([`Took`]). The shipped experiments are built in; any other is named by its path.
//!
//! A plan names a *kind* of work ([`crate::experiments`]) and its parameters; it has no results.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
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
    /// A one-line description.
    pub title: String,
    /// The kind of work.
    pub kind: Kind,
    /// The device's profile.
    pub profile: String,
    /// Every variant runs with each seed; a quick run uses only the first, and `lab run` may add others.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// The variants without background cleaning, if variants differ in cleaning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control: Vec<String>,
    /// The parameters that the experiment compares, if variants do different work: those that differ in others are not
    /// compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compares: Option<Vec<String>>,
    /// The published numbers from which a parameter was inferred, as `PAPER, PLACE: what`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted_on: Vec<String>,
    /// The parameters of the kind of work.
    #[serde(default)]
    pub parameters: Table,
    /// Replaces parameters in a quick run: the same work, smaller.
    #[serde(default)]
    pub quick: Table,
    /// The variants; if none, there is one called `plain`.
    #[serde(default)]
    pub variant: Vec<Variant>,
}

/// Repetitions of an experiment in which something is random.
const REPETITIONS: usize = 5;

impl Plan {
    /// So many seeds, the plan's own first.
    fn repeated(&self, many: usize) -> Vec<u64> {
        let others = (1..).filter(|seed| !self.seeds.contains(seed));
        self.seeds.iter().copied().chain(others).take(many).collect()
    }
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

/// A variant's differences from the plan's parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name in results.
    pub name: String,
    /// Another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// An external recording that it needs ([`crate::theirs`]); if the file is missing, the variant is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// Numbers of the profile to replace, with names and units as in `joulefs energy show`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub assume: BTreeMap<String, f64>,
    /// The changed parameters.
    #[serde(flatten)]
    pub parameters: Table,
}

/// The implemented kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reads and writes one file, sequentially or at random.
    FileIo,
    /// Reads files with fragments of different sizes.
    Fragments,
    /// Runs a database's transactions.
    Sqlite,
    /// Cleans in the background until no section is worth cleaning.
    Cleaning,
    /// Overwrites a full volume; computes the minimum of blocks that cleaning could have moved.
    Bound,
    /// Grows several applications' databases together; measures their layout and the cost of using them.
    Databases,
    /// Makes small requests, by their degree of dispersal.
    Dispersal,
    /// Frees space of a log for disks in different ways, through days on battery and nights on the charger.
    Strategies,
    /// Makes a bare disk's movements, one by one.
    DiskModes,
    /// Measures the cost of one cleaning.
    GcEnergy,
    /// Measures how much sooner cleaning empties a battery.
    Battery,
    /// Measures how cleaning changes the fragments of free space.
    GcEffect,
    /// Replays recorded programs' calls while a policy cleans.
    AppReplay,
    /// Replays applications' writes, with contents, and stores small updates in different ways.
    AppUpdates,
    /// Replays the same writes on one volume in a given state while a policy cleans.
    AppCleaning,
    /// Follows a phone through a day of use and a night on the charger.
    PhoneDay,
    /// Measures how long a writer waits if its file grows into the space of its deltas.
    DeltaEviction,
    /// Measures how fast a file with deltas in delta nodes is read.
    DeltaReads,
    /// Calculates the cost of an application's requests, by a table and by simulation.
    AppEnergy,
    /// Counts the sizes of recorded programs' reads and writes.
    RequestSizes,
    /// Replays the requests that a kernel's file system made for known work.
    Requests,
    /// Divides a phone's energy among its components by runs that differ in them.
    Differential,
    /// Launches programs with cold caches.
    Launch,
    /// Writes and reads files with cold caches, on ScherlFS or as recorded from a file system of Linux.
    Uncached,
    /// Replays recorded days of calls on a disk that spins down.
    Days,
    /// Alternates use and pauses with background cleaning, and measures the work after.
    Worth,
    /// Follows random courses of use with and without a policy, and measures its largest excess.
    Regret,
    /// Simulates hours with hardly any writes, and cleaning that frees nothing.
    Idle,
}

impl Kind {
    /// Whether the energy of this work depends on the seed.
    pub fn is_random(self, parameters: &Table) -> bool {
        // Files of a volume in use are removed at random.
        fn is_full(table: &Table) -> bool {
            table.iter().any(|(name, value)| name == "full" || value.as_table().is_some_and(is_full))
        }
        match self {
            // The courses are the repetitions.
            Kind::Regret => false,
            Kind::Differential | Kind::Requests | Kind::RequestSizes | Kind::Days | Kind::Idle => false,
            Kind::Uncached => is_full(parameters),
            _ => true,
        }
    }
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
    /// The external recording it needs.
    pub needs: Option<String>,
    /// Replaced numbers of the profile.
    pub assume: BTreeMap<String, f64>,
    /// All parameters of the kind of work.
    pub parameters: Table,
}

impl Job {
    /// Its device's profile, with the variant's replaced numbers.
    pub fn profile(&self) -> Result<Profile, ProfileError> {
        let source = format!("assumed by the variant {}", self.variant);
        let begin = Profile::find(&self.profile)?;
        self.assume.iter().try_fold(begin, |profile, (name, value)| profile.with(name, *value, None, &source))
    }

    /// Its parameters, as listed in results.
    pub fn told(&self) -> Table {
        let mut told = self.parameters.clone();
        if !self.assume.is_empty() {
            let numbers = self.assume.iter().map(|(name, value)| (name.clone(), toml::Value::Float(*value)));
            told.insert("assume".into(), toml::Value::Table(numbers.collect()));
        }
        told
    }
}

/// A user's changes to a plan.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Run a small version.
    pub quick: bool,
    /// Run on this device.
    pub profile: Option<String>,
    /// Run with only this seed.
    pub seed: Option<u64>,
    /// Run with this many seeds: the plan's, and others if it has fewer.
    pub seeds: Option<NonZeroUsize>,
    /// Override these parameters of the plan and its variants.
    pub parameters: Table,
    /// Run only these variants; all if empty.
    pub variants: Vec<String>,
}

/// An experiment: claims, plan, published numbers.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Its directory's name.
    pub name: String,
    /// Its claims, as text.
    pub readme: String,
    /// The plan.
    pub plan: Plan,
    /// The published numbers.
    pub paper: Vec<Claim>,
    /// The stored measurements of a full run.
    pub kept: Kept,
    /// The stored run times and memory.
    pub took: Took,
}

/// An experiment that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Neither the name of a shipped experiment nor a directory.
    #[error("no experiment {name:?}: choose {known}, or give the path of an experiment's directory")]
    Unknown {
        /// The given name.
        name: String,
        /// The known names.
        known: String,
    },
    /// One of its files cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// One of its files is malformed.
    #[error("experiment {experiment}: {file}: {message}")]
    Malformed {
        /// The experiment.
        experiment: String,
        /// The file.
        file: &'static str,
        /// The error and its place.
        message: String,
    },
    /// The plan does not have a requested variant.
    #[error("experiment {experiment} has no variant {variant:?}: it has {known}")]
    NoVariant {
        /// The experiment.
        experiment: String,
        /// The requested name.
        variant: String,
        /// The plan's variants.
        known: String,
    },
}

/// File name of the stored measurements.
pub const KEPT: &str = "ours.csv";
/// File name of the stored run times.
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

/// Names of the shipped experiments, with README, plan, paper, measurements and run times (the last two are empty files
/// for a new experiment).
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
    "gc-regret",
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
    "nexus-sqlite-ext4",
    "phone-day",
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
    /// Finds a shipped experiment by name, or any by the path of its directory (a name with a slash).
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

    /// Parses the texts of its files.
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

    /// Adds the stored measurements, from the text of `ours.csv`.
    pub fn with_kept(self, kept: &str) -> Result<Self, PlanError> {
        let malformed = |message| PlanError::Malformed { experiment: self.name.clone(), file: KEPT, message };
        let kept = Kept::parse(kept).map_err(malformed)?;
        Ok(Experiment { kept, ..self })
    }

    /// Adds the stored run times, from the text of `took.csv`.
    pub fn with_took(self, took: &str) -> Result<Self, PlanError> {
        let malformed = |message| PlanError::Malformed { experiment: self.name.clone(), file: TOOK, message };
        let took = Took::parse(took).map_err(malformed)?;
        Ok(Experiment { took, ..self })
    }

    /// The first paragraph of the README after its heading, as one line.
    pub fn claim(&self) -> String {
        let lines = self.readme.lines().map(str::trim).skip_while(|l| l.is_empty() || l.starts_with('#'));
        lines.take_while(|l| !l.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The repetitions that tell how sure a comparison of the variants is: 5 if something is random, otherwise one is
    /// exact; more if the plan has more seeds.
    pub fn repetitions(&self, changes: &Changes) -> Result<NonZeroUsize, PlanError> {
        let is_random = self.jobs(changes)?.iter().any(|job| self.plan.kind.is_random(&job.parameters));
        let many = self.plan.seeds.len().max(if is_random { REPETITIONS } else { 1 });
        Ok(NonZeroUsize::new(many).unwrap_or(NonZeroUsize::MIN))
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
        let seeds = match (changes.seed, changes.seeds) {
            (Some(seed), _) => vec![seed],
            (None, Some(many)) => self.plan.repeated(many.get()),
            (None, None) => self.plan.repeated(if changes.quick { 1 } else { self.plan.seeds.len() }),
        };
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
    fn repetitions_begin_with_the_seeds_of_the_plan_and_where_nothing_is_random_one_is_enough() {
        let seeds = |quick, many| {
            let changes = Changes { quick, seeds: NonZeroUsize::new(many), ..Changes::default() };
            let jobs = experiment().jobs(&changes).unwrap();
            jobs.iter().filter(|job| job.variant == "a").map(|job| job.seed).collect::<Vec<_>>()
        };
        assert_eq!((seeds(false, 0), seeds(true, 0)), (vec![1, 2], vec![1]));
        assert_eq!((seeds(false, 1), seeds(true, 4)), (vec![1], vec![1, 2, 3, 4]));
        let with = |plan: &str| Experiment::parse("x", "", plan, "").unwrap();
        let of = |plan: &str| with(plan).repetitions(&Changes::default()).unwrap().get();
        assert_eq!(of(PLAN), 5);
        assert_eq!((of(&PLAN.replace("disk-modes", "idle")), of(&PLAN.replace("disk-modes", "days"))), (2, 2));
        let one = PLAN.replace("seeds = [1, 2]", "seeds = [7]").replace("disk-modes", "uncached");
        assert_eq!((of(&one), of(&one.replace("m = 7", "m = { full = 20 }"))), (1, 5));
        let more = with(&one).jobs(&Changes { seeds: NonZeroUsize::new(3), ..Changes::default() }).unwrap();
        assert_eq!(more.iter().map(|job| job.seed).collect::<Vec<_>>(), [7, 1, 2, 7, 1, 2]);
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
            ..Changes::default()
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
