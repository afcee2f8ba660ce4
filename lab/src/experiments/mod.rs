//! The kinds of work a plan may name: one file each.

mod afterwards;
mod app_classes;
mod app_cleaning;
mod app_energy;
mod app_noted;
mod app_replay;
mod app_updates;
mod battery;
mod bound;
mod cleaned;
mod cleaning;
mod databases;
mod days;
mod delta_eviction;
mod delta_reads;
mod differential;
mod disk_modes;
mod dispersal;
pub(crate) mod file_io;
mod fragments;
mod gc_effect;
mod gc_energy;
mod given;
mod growth;
mod idle;
mod keeping;
mod launch;
mod layout;
mod phone_day;
mod recording;
mod regret;
mod request_sizes;
mod requests;
mod sqlite;
mod strategies;
pub mod taken;
mod uncached;
mod worth;

use device::energy::profile::Profile;
use serde::de::DeserializeOwned;

use crate::error::LabError;
use crate::plan::{Job, Kind};
use given::OnVolume;
use sim::progress::Progress;
use sim::result::{Histogram, Phase};

/// What a kind of work measures: phases and distributions.
pub type Measured = (Vec<Phase>, Vec<Histogram>);

/// Runs a job on a device of this profile.
pub fn run(kind: Kind, profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    match kind {
        Kind::FileIo => file_io::run(profile, job, progress),
        Kind::Fragments => fragments::run(profile, job, progress),
        Kind::Sqlite => sqlite::run(profile, job, progress),
        Kind::Bound => bound::run(profile, job, progress),
        Kind::Cleaning => cleaning::run(profile, job, progress),
        Kind::DeltaEviction => delta_eviction::run(profile, job, progress),
        Kind::Databases => databases::run(profile, job, progress),
        Kind::Dispersal => dispersal::run(profile, job, progress),
        Kind::Differential => differential::run(profile, job, progress),
        Kind::Strategies => strategies::run(profile, job, progress),
        Kind::DiskModes => disk_modes::run(profile, job, progress),
        Kind::GcEnergy => gc_energy::run(profile, job, progress),
        Kind::Battery => battery::run(profile, job, progress),
        Kind::AppReplay => app_replay::run(profile, job, progress),
        Kind::AppUpdates => app_updates::run(profile, job, progress),
        Kind::AppCleaning => app_cleaning::run(profile, job, progress),
        Kind::PhoneDay => phone_day::run(profile, job, progress),
        Kind::DeltaReads => delta_reads::run(profile, job, progress),
        Kind::AppEnergy => app_energy::run(profile, job, progress),
        Kind::GcEffect => gc_effect::run(profile, job, progress),
        Kind::RequestSizes => request_sizes::run(profile, job, progress),
        Kind::Requests => requests::run(profile, job, progress),
        Kind::Launch => launch::run(profile, job, progress),
        Kind::Uncached => uncached::run(profile, job, progress),
        Kind::Days => days::run(profile, job, progress),
        Kind::Worth => worth::run(profile, job, progress),
        Kind::Idle => idle::run(profile, job, progress),
        Kind::Regret => regret::run(profile, job, progress),
    }
}

/// A feature that only F2FS has.
const CLEANING: Option<&str> = Some("cleaning sections by a policy");

/// Checks, without running, that a job's parameters fit its kind of work.
pub fn check(kind: Kind, job: &Job) -> Result<(), LabError> {
    match kind {
        Kind::FileIo => parameters::<OnVolume<file_io::Parameters>>(job).and_then(|p| p.work.check(&p.given)),
        Kind::Fragments => parameters::<OnVolume<fragments::Parameters>>(job).and_then(|p| p.given.check(None)),
        Kind::Sqlite => parameters::<sqlite::Parameters>(job).and_then(|p| p.check()),
        Kind::Bound => parameters::<OnVolume<bound::Parameters>>(job).and_then(|p| p.given.check(CLEANING)),
        Kind::Cleaning => parameters::<OnVolume<cleaning::Parameters>>(job).and_then(|p| p.given.check(CLEANING)),
        Kind::DeltaEviction => parameters::<delta_eviction::Parameters>(job).map(drop),
        Kind::Databases => parameters::<databases::Parameters>(job).and_then(|p| p.check()),
        Kind::Dispersal => parameters::<dispersal::Parameters>(job).and_then(|p| p.check()),
        Kind::Differential => parameters::<OnVolume<differential::Parameters>>(job).and_then(|p| p.given.check(None)),
        Kind::DiskModes => parameters::<disk_modes::Parameters>(job).map(drop),
        Kind::Strategies => parameters::<strategies::Parameters>(job).map(drop),
        Kind::GcEnergy => parameters::<OnVolume<gc_energy::Parameters>>(job).and_then(|p| p.given.check(CLEANING)),
        Kind::Battery => parameters::<battery::Parameters>(job).map(drop),
        Kind::AppReplay => parameters::<OnVolume<app_replay::Parameters>>(job).and_then(|p| p.given.check(CLEANING)),
        Kind::AppUpdates => parameters::<app_updates::Parameters>(job).and_then(|p| p.check()),
        Kind::AppCleaning => {
            let p = parameters::<OnVolume<app_cleaning::Parameters>>(job)?;
            p.given.check(CLEANING).and_then(|()| p.work.check())
        }
        Kind::PhoneDay => {
            let p = parameters::<OnVolume<phone_day::Parameters>>(job)?;
            p.given.check(CLEANING).and_then(|()| p.work.check())
        }
        Kind::DeltaReads => parameters::<delta_reads::Parameters>(job).map(drop),
        Kind::AppEnergy => parameters::<app_energy::Parameters>(job).map(drop),
        Kind::GcEffect => parameters::<gc_effect::Parameters>(job).map(drop),
        Kind::RequestSizes => parameters::<request_sizes::Parameters>(job).map(drop),
        Kind::Requests => parameters::<requests::Parameters>(job).map(drop),
        Kind::Launch => {
            let p = parameters::<OnVolume<launch::Parameters>>(job)?;
            p.given.check(None).and_then(|()| p.work.check())
        }
        Kind::Uncached => parameters::<uncached::Parameters>(job).map(drop),
        Kind::Days => parameters::<days::Parameters>(job).and_then(|p| p.check()),
        Kind::Idle => {
            let p = parameters::<OnVolume<idle::Parameters>>(job)?;
            p.given.check(CLEANING).and_then(|()| p.work.check())
        }
        Kind::Regret => {
            let p = parameters::<OnVolume<regret::Parameters>>(job)?;
            p.given.check(CLEANING).and_then(|()| p.work.check())
        }
        Kind::Worth => {
            let p = parameters::<OnVolume<worth::Parameters>>(job)?;
            p.given.check(CLEANING).and_then(|()| p.work.check())
        }
    }
}

/// A job's parameters, parsed for its kind of work.
fn parameters<P: DeserializeOwned>(job: &Job) -> Result<P, LabError> {
    P::deserialize(toml::Value::Table(job.parameters.clone())).map_err(|e| LabError::parameters(e.to_string()))
}
