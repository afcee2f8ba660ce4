//! How much dearer than no cleaning may a policy be, at any moment, whatever the volume is used for?
//!
//! Courses of use are drawn at random: what is written, how much at a time, how often, and how that changes. Some
//! disappoint every prediction: large uses that end after two or eight, sizes without a rule, a volume that is suddenly
//! empty. Two mounts of the same volume follow each course, one without cleaning. After each use and the pause behind
//! it their joules until then are compared. The *regret* of a course is the largest excess.
//!
//! Both mounts begin with the same device in the same state, and with nothing learned. On a real flash joules also
//! depend on the moments in which it cleans itself, which the smallest difference shifts; a placebo shows by how much.
//! A course depends on the seed and its number only, so `--set first=N --set courses=1` repeats it. Left out on purpose:
//! the work after, which free segments are kept for ([`super::worth`]).

use std::time::Duration;

use device::Rng;
use device::energy::Energy;
use device::energy::profile::Profile;
use f2fs::MountOptions;
use f2fs::gc::settings::Settings;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::FileSystem;

use super::app_cleaning::fill;
use super::cleaned::{self, Cleaned, Who};
use super::given::OnVolume;
use super::worth::Work;
use super::worth::user::User;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::Bench;
use sim::progress::Progress;
use sim::result::Phase;

/// Most MiB that a course writes.
const MOST: u64 = 192;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Percent of the user's space in use.
    fill_percent: u64,
    /// MiB that a course gradually replaces.
    live_mib: u64,
    /// Nobody cleans, and one of the two mounts begins after 64 KiB more were written: what differs then is chance.
    #[serde(default)]
    placebo: bool,
    /// The number of the first course.
    first: u64,
    /// The number of courses.
    courses: u64,
    /// The cleaning policy that is compared with none.
    cleaning: Who,
}

impl Parameters {
    /// Refuses invalid combinations.
    pub fn check(&self) -> Result<(), LabError> {
        self.cleaning.check()?;
        if self.courses == 0 || self.live_mib < 24 || self.fill_percent > 96 {
            return Err(LabError::parameters("courses is 1 or more, live_mib 24 or more, fill_percent 96 or less"));
        }
        Ok(())
    }
}

/// How the size of a use changes.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Even,
    /// Every second use is a sixteenth.
    Alternating,
    /// After this many uses, a 64th.
    Ends(u64),
    /// Anything up to twice the size.
    Random,
    /// In the middle the volume becomes nearly empty.
    Emptied,
}

const SHAPES: [Shape; 6] =
    [Shape::Even, Shape::Alternating, Shape::Ends(2), Shape::Ends(8), Shape::Random, Shape::Emptied];
const WORKS: [Work; 5] = [Work::SmallFiles, Work::Downloads, Work::Pages, Work::Mixed, Work::Day];

/// A course of use.
#[derive(Debug, Clone, Copy)]
struct Course {
    work: Work,
    shape: Shape,
    uses: u64,
    bytes: u64,
    pause: Duration,
    seed: u64,
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize]
}

impl Course {
    fn draw(seed: u64, number: u64) -> Course {
        let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let work = one_of(&mut rng, &WORKS);
        let shape = one_of(&mut rng, &SHAPES);
        let uses = one_of(&mut rng, &[2, 3, 4, 8, 16, 32]);
        let bytes = (one_of(&mut rng, &[1, 2, 4, 8, 16, 32, 64, 128]) << 18).min((MOST << 20) / uses);
        let pause = Duration::from_secs(one_of(&mut rng, &[45, 600]));
        Course { work, shape, uses, bytes, pause, seed: rng.next_u64() }
    }

    /// Bytes of a use.
    fn size(&self, rng: &mut Rng, n: u64) -> u64 {
        match self.shape {
            Shape::Even | Shape::Emptied => self.bytes,
            Shape::Alternating => self.bytes >> (4 * (n % 2)),
            Shape::Ends(after) => self.bytes >> if n < after { 0 } else { 6 },
            Shape::Random => rng.below(2 * self.bytes),
        }
    }

    /// Follows the course on a volume, after writing a little `more`; returns the joules spent until the end of each
    /// use, and the whole as a phase.
    fn follow(
        &self,
        bench: &Bench,
        (live_mib, more): (u64, bool),
        gc: Settings,
        progress: &Progress<'_>,
    ) -> Result<(Vec<Energy>, Phase, Cleaned), LabError> {
        let volume = bench.f2fs()?;
        let mut user = User::begin(bench, self.work, live_mib, self.seed)?;
        if more {
            let ino = bench.file("placebo")?;
            bench.write_whole(ino, 1 << 16, 1)?;
        }
        volume.sync()?;
        volume.forget_past();
        let mut rng = Rng::new(self.seed);
        let (mut spent, before, cleaned) = (Vec::new(), bench.spent().total(), Cleaned::so_far(volume));
        let phase = bench.measure("use", self.uses, progress, |recorder| {
            let mut bytes = 0;
            for n in 0..self.uses {
                volume.set_cleaning(gc);
                if matches!(self.shape, Shape::Emptied) && n == self.uses / 2 {
                    volume.unlink(volume.root(), b"ballast")?;
                }
                bytes += user.turn(self.size(&mut rng, n).max(4096))?;
                cleaned::pass_time(bench, recorder, self.pause)?;
                spent.push(bench.spent().total() - before);
            }
            Ok(bytes)
        })?;
        let cleaned = Cleaned::so_far(volume).since(cleaned);
        Ok((spent, phase, cleaned))
    }
}

/// Excess in percent of the control.
fn excess(with: Energy, without: Energy) -> f64 {
    100.0 * (with.joules() / without.joules() - 1.0)
}

/// Measures it.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    p.check()?;
    let policy = cleaned::policy(&p.cleaning.policy)?;
    let gc = Settings {
        on: cleaned::cleans(&p.cleaning.policy),
        policy,
        power: cleaned::power(&p.cleaning.power)?,
        pace: p.cleaning.pace.pace(policy),
        intervals: f2fs::gc::settings::Intervals::of(policy),
        ..Settings::default()
    };
    let none = cleaned::never(policy);
    let options = MountOptions { gc: none, ..MountOptions::default() };
    let (mut bench, (mut phases, histograms)) = given.bench(profile, job, options.clone(), &progress.part(0, 10))?;
    let s = bench.f2fs()?.statfs()?;
    let live = (100 * (p.live_mib << 20)).div_ceil(s.blocks * device::BLOCK as u64);
    fill(&bench, p.fill_percent.saturating_sub(live), job.seed)?;
    bench.unmount()?;
    let (mut regrets, mut ends) = (Vec::new(), Vec::new());
    let mut sums: Option<(Phase, Phase)> = None;
    let (mut cleaning, mut worst) = (0u64, (0.0, p.first));
    for n in 0..p.courses {
        let number = p.first + n;
        let course = Course::draw(job.seed, number);
        let named = |e: LabError| LabError::parameters(format!("course {number} ({course:?}): {e}"));
        let part =
            |half| progress.part((p.courses / 4 + 2 * n + half) as usize, (p.courses / 4 + 2 * p.courses) as usize);
        let fork = || bench.fork(options.clone());
        let (without, control, _) = course.follow(&fork()?, (p.live_mib, false), none, &part(0)).map_err(named)?;
        let how = if p.placebo { none } else { gc };
        let (with, phase, cleaned) = course.follow(&fork()?, (p.live_mib, p.placebo), how, &part(1)).map_err(named)?;
        cleaning += u64::from(cleaned.sections > cleaned.in_foreground);
        let mut all = with.iter().zip(&without).map(|(with, without)| excess(*with, *without));
        let regret = all.clone().fold(0.0, f64::max);
        if regret > worst.0 {
            worst = (regret, number);
        }
        regrets.push(regret);
        ends.push(all.next_back().unwrap_or_default());
        match &mut sums {
            None => sums = Some((control, phase)),
            Some((a, b)) => {
                a.add(control);
                b.add(phase);
            }
        }
    }
    let Some((mut control, mut phase)) = sums else { return Ok((phases, histograms)) };
    regrets.sort_by(f64::total_cmp);
    ends.sort_by(f64::total_cmp);
    let share = |most: f64| 100.0 * regrets.iter().filter(|r| **r <= most).count() as f64 / regrets.len() as f64;
    control.name = "none".into();
    phase.name = p.cleaning.policy.clone();
    let (a, b) = (control.total(), phase.total());
    phase.note("courses", p.courses as f64, "courses");
    phase.note("courses_cleaned", cleaning as f64, "courses");
    phase.note("worst_regret", regrets[regrets.len() - 1], "%");
    phase.note("worst_course", worst.1 as f64, "");
    phase.note("within_2_percent", share(2.0), "%");
    phase.note("within_5_percent", share(5.0), "%");
    phase.note("median_at_the_end", ends[ends.len() / 2], "%");
    phase.note("best_at_the_end", ends[0], "%");
    phase.note("all_joules", excess(b, a), "%");
    phases.extend([control, phase]);
    Ok((phases, histograms))
}
