//! Runs an experiment's variants, in parallel.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::energy::profile::Profile;
use device::energy::{Draws, Ledger, Range};
use parking_lot::Mutex;

use crate::compare::compare;
use crate::error::LabError;
use crate::experiments;
use crate::plan::{Changes, Experiment, Job};
use crate::result::{Outcome, Skipped, VariantResult};
use crate::theirs;
use crate::{control, cost};
use sim::progress::Progress;
use sim::result::{Phase, Stage};

/// Checks, without running, that the requested variants, devices and parameter names exist. Parameter values are
/// checked when the work begins.
pub fn check(experiment: &Experiment, changes: &Changes) -> Result<(), LabError> {
    control::check(experiment)?;
    experiment.jobs(changes)?.iter().try_for_each(|job| {
        job.profile()?;
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

/// Runs an experiment with `threads` variants in parallel; passes the progress, from 0 to 1, to `tell`.
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
                // Start no further variants.
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
        comparison: Vec::new(),
    };
    let seeds = changes.seed.map_or_else(|| experiment.plan.seeds.clone(), |seed| vec![seed]);
    outcome.compared = compare(&experiment.paper, &outcome, &seeds);
    Ok(outcome)
}

fn skipped(job: Job) -> Skipped {
    let file = job.needs.unwrap_or_default();
    Skipped { variant: job.variant, why: theirs::missing(&file) }
}

fn run_job(experiment: &Experiment, job: &Job, progress: &Progress<'_>) -> Result<VariantResult, LabError> {
    let measured = || -> Result<_, LabError> {
        let profile = job.profile()?;
        let (mut phases, histograms) = experiments::run(experiment.plan.kind, &profile, job, progress)?;
        let draws = ranges(&profile, &mut phases);
        Ok((phases, histograms, draws))
    };
    let (phases, histograms, draws) = measured().map_err(|source| of_variant(experiment, job, source))?;
    Ok(VariantResult {
        name: job.variant.clone(),
        profile: job.profile.clone(),
        seed: job.seed,
        parameters: job.told(),
        costs: cost::of(&phases),
        phases,
        histograms,
        draws,
    })
}

/// Sets the range of each phase; returns the draws of all that are compared.
fn ranges(profile: &Profile, phases: &mut [Phase]) -> Option<Draws> {
    let draws = Draws::each(profile, phases.iter().map(|phase| &phase.sums));
    let mut all: Option<Draws> = None;
    let mut is_whole = true;
    for (phase, draws) in phases.iter_mut().zip(draws) {
        // A phase may be of another device, or reckoned.
        let is_its_own = phase.sums.total() == phase.total();
        let Range { low, high } = draws.range();
        phase.range = is_its_own.then_some([low, high]);
        phase.sums = Ledger::default();
        if phase.stage == Stage::Preparation {
            continue;
        }
        is_whole &= is_its_own;
        match &mut all {
            Some(all) => all.add(&draws),
            None => all = Some(draws),
        }
    }
    all.filter(|_| is_whole)
}
