//! Runs an experiment's variants, as many at once as there are processors to give them.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::energy::profile::{Profile, ProfileError};
use f2fs::mkfs::MkfsError;
use parking_lot::Mutex;

use crate::aging::AgeError;
use crate::compare::compare;
use crate::experiments;
use crate::plan::{Changes, Experiment, Job, PlanError};
use crate::result::{Outcome, Skipped, VariantResult};
use crate::theirs;
use crate::{control, cost};

/// An experiment that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The experiment is not what it should be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device's profile is not.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The device cannot be simulated.
    #[error(transparent)]
    Model(#[from] device::model::TooLarge),
    /// The parameters are not what the kind of work asks for.
    #[error("parameters: {0}")]
    Parameters(String),
    /// The volume cannot be made.
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    /// The volume cannot be brought into the state asked for.
    #[error(transparent)]
    Age(#[from] AgeError),
    /// The volume cannot be mounted.
    #[error(transparent)]
    Mount(#[from] f2fs::MountError),
    /// The file system refused.
    #[error("file system: {0}")]
    Fs(#[from] vfs::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] device::DeviceError),
    /// A database refused.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// SQLite does not take our file system for a disk.
    #[error("SQLite and our file system: {0}")]
    Register(String),
    /// Work on a volume before there is one.
    #[error("no volume was made on the device")]
    NoVolume,
    /// A variant failed.
    #[error("{experiment}, variant {variant}, seed {seed}: {source}")]
    Variant {
        /// The experiment.
        experiment: String,
        /// The variant.
        variant: String,
        /// Its seed.
        seed: u64,
        /// Why.
        source: Box<LabError>,
    },
}

impl LabError {
    /// Parameters or a device that no work can be done with, whatever the machine it is to be done on.
    pub fn is_of_parameters(&self) -> bool {
        match self {
            LabError::Variant { source, .. } => source.is_of_parameters(),
            LabError::Parameters(_) | LabError::Model(_) => true,
            LabError::Mkfs(e) => matches!(e, MkfsError::TooSmall { .. } | MkfsError::Impossible { .. }),
            LabError::Age(e) => matches!(e, AgeError::Unknown { .. }),
            _ => false,
        }
    }
}

/// How far a job is, told to somebody who shows it. Parts of the job tell their own way through
/// [`Progress::part`].
pub struct Progress<'a> {
    tell: &'a (dyn Fn(f64) + Sync),
    from: f64,
    span: f64,
}

impl<'a> Progress<'a> {
    /// From nothing to all of a job.
    pub fn new(tell: &'a (dyn Fn(f64) + Sync)) -> Self {
        Progress { tell, from: 0.0, span: 1.0 }
    }

    /// Part `n` of `of` equal ones.
    pub fn part(&self, n: usize, of: usize) -> Progress<'a> {
        let span = self.span / of.max(1) as f64;
        Progress { tell: self.tell, from: self.from + span * n as f64, span }
    }

    /// So much of it is done, 0 to 1.
    pub fn at(&self, share: f64) {
        (self.tell)(self.from + self.span * share.clamp(0.0, 1.0));
    }
}

/// Whether there are the variants asked for, their devices, and parameters of the kind the work takes; nothing is
/// done. What a parameter's value means is seen when the work begins.
pub fn check(experiment: &Experiment, changes: &Changes) -> Result<(), LabError> {
    control::check(experiment)?;
    experiment.jobs(changes)?.iter().try_for_each(|job| {
        Profile::find(&job.profile)?;
        experiments::check(experiment.plan.kind, job).map_err(|source| of_variant(experiment, job, source))
    })
}

fn of_variant(experiment: &Experiment, job: &Job, source: LabError) -> LabError {
    LabError::Variant {
        experiment: experiment.name.clone(),
        variant: job.variant.clone(),
        seed: job.seed,
        source: Box::new(source),
    }
}

/// Runs it. `threads` variants run at once; `tell` hears how much of all is done, from 0 to 1.
///
/// Results do not depend on the number of threads: variants share nothing.
pub fn run(
    experiment: &Experiment,
    changes: &Changes,
    threads: NonZeroUsize,
    tell: &(dyn Fn(f64) + Sync),
) -> Result<Outcome, LabError> {
    control::check(experiment)?;
    let (jobs, left_out): (Vec<_>, Vec<_>) =
        experiment.jobs(changes)?.into_iter().partition(|j| j.needs.as_ref().is_none_or(|n| theirs::find(n).is_some()));
    let next = AtomicUsize::new(0);
    let shares = Mutex::new(vec![0.0; jobs.len()]);
    let done: Mutex<Vec<Option<Result<VariantResult, LabError>>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return };
            let say = |share: f64| {
                let mut shares = shares.lock();
                shares[index] = share;
                tell(shares.iter().sum::<f64>() / shares.len() as f64);
            };
            let result = run_job(experiment, job, &Progress::new(&say));
            say(1.0);
            let failed = result.is_err();
            done.lock()[index] = Some(result);
            if failed {
                // Nobody waits for the others' results.
                next.store(jobs.len(), Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.get().min(jobs.len()) {
            scope.spawn(work);
        }
    });
    let variants = done.into_inner().into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
    let mut outcome = Outcome {
        experiment: experiment.name.clone(),
        title: experiment.plan.title.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        quick: changes.quick,
        variants,
        skipped: left_out.into_iter().map(skipped).collect(),
        compared: Vec::new(),
    };
    outcome.compared = compare(&experiment.paper, &outcome);
    Ok(outcome)
}

fn skipped(job: Job) -> Skipped {
    let file = job.needs.unwrap_or_default();
    Skipped { variant: job.variant, why: theirs::missing(&file) }
}

fn run_job(experiment: &Experiment, job: &Job, progress: &Progress<'_>) -> Result<VariantResult, LabError> {
    let measured = || {
        let profile = Profile::find(&job.profile)?;
        experiments::run(experiment.plan.kind, &profile, job, progress)
    };
    let (phases, histograms) = measured().map_err(|source| of_variant(experiment, job, source))?;
    Ok(VariantResult {
        name: job.variant.clone(),
        profile: job.profile.clone(),
        seed: job.seed,
        parameters: job.parameters.clone(),
        costs: cost::of(&phases),
        phases,
        histograms,
    })
}
