//! How well does differential analysis divide a phone's energy among its components?
//!
//! Mohan et al. (HotStorage'17, slides 9 to 11) metered a phone's supply and compared runs with different active
//! components: idle, writing to memory, writing over the network, writing to flash.
//!
//! Here the flash, with its software, is the model; the other components are constant powers from the plan. For each
//! run the meter shows the sum with a random error, and the method gets only these readings. The results compare its
//! output with the true powers, and report how often its 95 % intervals contain them.

use device::energy::profile::Profile;
use device::{BLOCK, Rng, generate};
use f2fs::MountOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use sim::differential::{Answer, Component, Per, Repeat, Run, solve};
use vfs::WriteFlags;

use super::given::OnVolume;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, blocks_of_mib};
use sim::progress::Progress;
use sim::result::Phase;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// MiB of the file.
    file_mib: u64,
    /// MiB written at random per run.
    total_mib: u64,
    /// KiB per write; each write is followed by an fsync.
    io_kib: u64,
    /// Measurements per run.
    repeats: u64,
    /// The supply's voltage.
    volts: f64,
    /// The meter's error in percent (one standard deviation).
    meter_percent: f64,
    /// Repetitions of the method with new measurements of the same powers, to count how often its intervals are right.
    trials: u64,
    /// The phone's power besides flash, in the order in which runs add components.
    beside: Vec<Beside>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Beside {
    /// Its name in results.
    name: String,
    /// Its current in mA.
    ma: f64,
}

/// The last component.
const STORAGE: &str = "storage";
const FILE: &str = "measured";

/// An ideal meter's readings: joules and seconds of writing to flash, by repeat.
type Flash = Vec<(f64, f64)>;

/// Measures the flash, then runs the analysis.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(None)?;
    let parts = p.repeats as usize + 2;
    let (mut bench, (mut phases, histograms)) =
        given.bench(profile, job, MountOptions::default(), &progress.part(0, parts))?;
    let io = p.io_kib * 1024;
    let size = blocks_of_mib(p.file_mib) * BLOCK as u64;
    if io == 0 || !io.is_multiple_of(BLOCK as u64) || size < io || p.repeats == 0 {
        return Err(LabError::parameters(format!(
            "a file of {} MiB cannot be written {} times in calls of {} KiB, whole blocks each",
            p.file_mib, p.repeats, p.io_kib
        )));
    }
    let ino = bench.file(FILE)?;
    bench.write_whole(ino, size, job.seed)?;
    let mut rng = Rng::new(job.seed);
    let mut flash = Flash::new();
    for repeat in 0..p.repeats {
        bench.restart(false)?;
        let phase = write(&bench, &p, repeat, &mut rng.split(), &progress.part(repeat as usize + 1, parts))?;
        flash.push((phase.total().joules(), phase.took.0 as f64 / 1e9));
        phases.push(phase);
    }
    let method = Method { watts: p.beside.iter().map(|b| b.ma / 1e3 * p.volts).collect(), p: &p };
    phases.push(method.shares(&bench, &flash, &mut rng.split(), progress)?);
    phases.push(method.trials(&bench, &flash, &mut rng.split(), &progress.part(parts - 1, parts))?);
    Ok((phases, histograms))
}

/// Writes at random places; writes all of them before repeating any.
fn write(
    bench: &Bench,
    p: &Parameters,
    repeat: u64,
    rng: &mut Rng,
    progress: &Progress<'_>,
) -> Result<Phase, LabError> {
    let io = p.io_kib * 1024;
    let mut places: Vec<u64> = (0..blocks_of_mib(p.file_mib) * BLOCK as u64 / io).collect();
    rng.shuffle(&mut places);
    let calls = blocks_of_mib(p.total_mib) * BLOCK as u64 / io;
    let fs = bench.volume()?;
    let ino = bench.file(FILE)?;
    let mut buf = vec![0; io as usize];
    Ok(bench.measure(&format!("flash-{}", repeat + 1), calls, progress, |recorder| {
        for place in places.iter().cycle().take(calls as usize) {
            generate(repeat, (place * io / BLOCK as u64) as u32, &mut buf);
            fs.write(ino, place * io, &buf, WriteFlags::empty())?;
            fs.fsync(ino, false)?;
            recorder.step()?;
        }
        Ok(calls * io)
    })?)
}

struct Method<'a> {
    p: &'a Parameters,
    /// Power of the components other than flash.
    watts: Vec<f64>,
}

impl Method<'_> {
    fn components(&self) -> Vec<Component> {
        let names = self.p.beside.iter().map(|b| b.name.as_str()).chain([STORAGE]);
        names.map(|name| Component { name: name.into(), per: Per::Second }).collect()
    }

    /// The metered runs: each adds one component to the previous run and takes as long as writing to flash.
    fn measured(&self, flash: &Flash, rng: &mut Rng) -> Vec<Run> {
        let others = self.watts.len();
        let run = |active: usize| {
            let watts: f64 = self.watts.iter().take(active).sum();
            let repeat = |(joules, seconds): &(f64, f64)| {
                let own = if active > others { *joules } else { 0.0 };
                let off = 1.0 + self.p.meter_percent / 100.0 * normal(rng);
                Repeat { joules: (watts * seconds + own) * off, seconds: *seconds, ..Repeat::default() }
            };
            let name = if active > others { STORAGE } else { &self.p.beside[active - 1].name };
            let repeats = flash.iter().map(repeat).collect();
            Run { name: name.into(), active: (0..active).collect(), repeats, error: None }
        };
        (1..=others + 1).map(run).collect()
    }

    fn answer(&self, flash: &Flash, rng: &mut Rng) -> Result<Answer, LabError> {
        let runs = self.measured(flash, rng);
        solve(&self.components(), &runs, runs.len() - 1).map_err(|e| LabError::parameters(e.to_string()))
    }

    /// The true shares, in percent, in the order of components.
    fn planted(&self, flash: &Flash) -> Vec<f64> {
        let mean = |of: fn(&(f64, f64)) -> f64| flash.iter().map(of).sum::<f64>() / flash.len() as f64;
        let (joules, seconds) = (mean(|f| f.0), mean(|f| f.1));
        let all: Vec<f64> = self.watts.iter().map(|w| w * seconds).chain([joules]).collect();
        let total: f64 = all.iter().sum();
        all.iter().map(|j| 100.0 * j / total).collect()
    }

    /// Notes the method's result for one series of measurements, next to the true shares.
    fn shares(&self, bench: &Bench, flash: &Flash, rng: &mut Rng, progress: &Progress<'_>) -> Result<Phase, LabError> {
        let answer = self.answer(flash, rng)?;
        let mut phase = bench.measure("shares", 1, progress, |_| Ok(0))?;
        phase.note("of_joules", answer.total.value, "J");
        for (part, planted) in answer.parts.iter().zip(self.planted(flash)) {
            let name = part.name.replace(' ', "_");
            phase.note(&format!("{name}_share"), part.percent.value, "%");
            phase.note(&format!("{name}_bar"), part.percent.bar.unwrap_or(f64::NAN), "%");
            phase.note(&format!("{name}_planted"), planted, "%");
            phase.note(&format!("{name}_joules"), part.joules.value, "J");
        }
        Ok(phase)
    }

    /// Notes how often the intervals contain the true shares, with everything measured again.
    fn trials(&self, bench: &Bench, flash: &Flash, rng: &mut Rng, progress: &Progress<'_>) -> Result<Phase, LabError> {
        let planted = self.planted(flash);
        let mut held = vec![0_u64; planted.len()];
        for _ in 0..self.p.trials {
            let answer = self.answer(flash, rng)?;
            for ((part, planted), held) in answer.parts.iter().zip(&planted).zip(&mut held) {
                let bar = part.percent.bar.unwrap_or(0.0);
                *held += u64::from((part.percent.value - planted).abs() <= bar);
            }
        }
        let mut phase = bench.measure("trials", 1, progress, |_| Ok(0))?;
        for (component, held) in self.components().iter().zip(held) {
            let name = component.name.replace(' ', "_");
            phase.note(&format!("{name}_held"), 100.0 * held as f64 / self.p.trials as f64, "%");
        }
        Ok(phase)
    }
}

/// Normally distributed, of mean 0 and variance 1 (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}
