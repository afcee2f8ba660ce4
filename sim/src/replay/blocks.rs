//! How are the requests of a recording replayed on a simulated device?

use device::energy::Meter;
use trace::Names;
use trace::replay::blocks::{How, Made, When};

use super::at_once::{STEPS, at_once};
use super::devices::{self, Source, earlier};
use super::error::Error;
use super::failed::failed;
use super::outcome::Outcome;
use super::pasts::Pasts;
use super::points::Point;
use super::program::{Program, share};
use super::settings::{OverTime, Settings};
use super::sizes;
use super::variant::Variant;
use crate::traces::Speed;
use crate::traces::blocks::{Options, Plan, run_behind};
use crate::traces::timeline::Timeline;

/// The plan for devices of one size and fill.
struct Planned<'a> {
    size: Option<String>,
    full: bool,
    plan: Plan,
    source: Source<'a>,
}

impl Planned<'_> {
    fn is_of(&self, variant: &Variant) -> bool {
        self.size == variant.size && self.full == variant.full
    }
}

/// Reads the recording once for each kind of device.
fn plans<'a>(settings: &'a Settings, points: &[Point], program: &dyn Program) -> Result<Vec<Planned<'a>>, Error> {
    let Settings { recording, after, part, of, speed, .. } = settings;
    let mut all: Vec<Planned<'a>> = Vec::new();
    for Point { variant, .. } in points {
        if all.iter().any(|planned| planned.is_of(variant)) {
            continue;
        }
        let bytes = variant.size.as_deref().map(|text| sizes::within("--size", text, 1 << 20..=1 << 48)).transpose()?;
        let blocks = bytes.map(|bytes| bytes / 4096);
        let options = Options { of: None, blocks, full: variant.full, speed: *speed };
        let planned = devices::planned(recording, after, part, of.as_deref(), options, program)?;
        let (plan, source) = planned.map_err(|e| failed(settings, variant, e))?;
        all.push(Planned { size: variant.size.clone(), full: variant.full, plan, source });
    }
    Ok(all)
}

/// Replays the requests, once for each run.
pub(super) fn on_device(settings: &Settings, points: &[Point], program: &dyn Program) -> Result<Vec<Outcome>, Error> {
    let plans = plans(settings, points, program)?;
    at_once(points, &Pasts::default(), program, |_, point, job| {
        let variant = &point.variant;
        // OK to unwrap: every point has a plan.
        let Planned { plan, source, .. } = plans.iter().find(|planned| planned.is_of(variant)).unwrap();
        let how = How {
            when: if settings.speed == Speed::BackToBack { When::BackToBack } else { When::Recorded },
            queue: variant.queue.map(std::num::NonZeroUsize::get),
            flush_every: variant.flush_every,
        };
        let mut before = settings.after.iter().map(|file| earlier(file)).collect::<Result<Vec<_>, _>>()?;
        let (mut requests, length) = source.open()?;
        let moved = share(job, length, STEPS);
        let mut each = program.requests()?;
        let watched = settings.over_time != OverTime::No;
        let mut timeline = match settings.over_time {
            OverTime::Owners => Timeline::default(),
            _ => Timeline::without_owners(),
        };
        let mut began = None;
        let told = |made: &Made, names: &Names, meter: &Meter| {
            each(made, names);
            // The recording's start by its own clock, whatever its origin.
            began.get_or_insert(made.request.time.saturating_sub(made.came));
            if watched && timeline.is_due(made.given) {
                meter.look(|ledger| timeline.look(made.given, ledger));
            }
        };
        let on = (&variant.profile, plan, settings.speed);
        let run = run_behind(&mut before, &mut requests, on, how, told, moved);
        let run = run.map_err(|e| failed(settings, variant, e))?;
        if watched {
            timeline.look(run.took, &run.ledger);
        }
        Ok(Outcome::of_blocks(variant, plan, run, &requests, began.unwrap_or(0), timeline))
    })
}
