//! How much sooner is the battery of a phone on standby empty with a number of cleanings per hour?
//!
//! Arithmetic: a battery's capacity (mAh) and voltage give its hours of standby; cleaning adds its energy to each hour.
//! The energy of one cleaning is either published or measured here by [`super::gc_energy`].

use device::energy::profile::Profile;
use schemars::JsonSchema;
use serde::Deserialize;

use super::given::OnVolume;
use super::{Measured, gc_energy, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::Bench;
use sim::progress::Progress;
use sim::result::Phase;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// The battery's capacity in mAh.
    battery_mah: f64,
    /// Its voltage.
    battery_volts: f64,
    /// Hours of standby without cleaning.
    standby_h: f64,
    /// Cleanings per hour.
    per_hour: f64,
    /// Published energies of one cleaning.
    #[serde(default)]
    published: Vec<One>,
    /// How our energy is measured.
    #[serde(default)]
    measured: Option<OnVolume<gc_energy::Parameters>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct One {
    /// Its name.
    name: String,
    /// Millijoules.
    mj: f64,
}

/// Calculates with each energy.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let mut phases = Vec::new();
    let still = Bench::new(profile, 1)?;
    for one in &p.published {
        // No requests: the energy is that of the rest of the phone.
        let mut phase = still.measure(&one.name, 1, progress, |_| Ok(0))?;
        p.note(&mut phase, one.mj);
        phases.push(phase);
    }
    let mut histograms = Vec::new();
    if let Some(OnVolume { given, work: m }) = &p.measured {
        let sleeps = &m.sleeps_ms;
        let (mut bench, before) = gc_energy::prepared(profile, job, given, &progress.part(0, 2 + sleeps.len()))?;
        phases.extend(before.0);
        histograms.extend(before.1);
        let board = profile.host.board.value.watts();
        let mut each = vec![gc_energy::foreground(&mut bench, m, board, &progress.part(1, 2 + sleeps.len()))?];
        for (n, sleep) in sleeps.iter().enumerate() {
            each.push(gc_energy::background(&mut bench, m, *sleep, &progress.part(2 + n, 2 + sleeps.len()))?);
        }
        for mut phase in each {
            let count = phase.measures.get("gc_count").map_or(0.0, |n| n.value);
            if count > 0.0 {
                let one = phase.total().millijoules() / count;
                p.note(&mut phase, one);
            }
            phases.push(phase);
        }
    }
    Ok((phases, histograms))
}

impl Parameters {
    fn note(&self, phase: &mut Phase, one_mj: f64) {
        // A milliampere hour is 3.6 ampere seconds.
        let battery = self.battery_mah * 3.6 * self.battery_volts;
        let hourly = battery / self.standby_h;
        let left = battery / (hourly + self.per_hour * one_mj / 1e3);
        phase.note("battery", battery, "J");
        phase.note("standby_power", hourly * 1e3 / 3600.0, "mW");
        phase.note("energy_of_one", one_mj, "mJ");
        phase.note("standby", left, "h");
        phase.note("standby_lost", self.standby_h - left, "h");
    }
}
