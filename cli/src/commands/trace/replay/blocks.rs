//! How are the requests of a recording replayed on a simulated device?

use device::energy::Meter;
use sim::traces;
use sim::traces::blocks::Plan;
use sim::traces::timeline::Timeline;
use trace::Names;
use trace::replay::blocks::{How, Made, When};

use super::outcome::Outcome;
use super::points::Point;
use super::requests::Table;
use super::variant::Variant;
use super::{Args, at_once, perfetto, said, share};
use crate::of_devices::{Source, earlier};
use crate::{Failure, of_devices, size};

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
fn plans<'a>(args: &'a Args, points: &[Point]) -> Result<Vec<Planned<'a>>, Failure> {
    let mut all: Vec<Planned<'a>> = Vec::new();
    for Point { variant, .. } in points {
        if all.iter().any(|planned| planned.is_of(variant)) {
            continue;
        }
        let bytes = variant.size.as_deref().map(|text| size::within("--size", text, 1 << 20..=1 << 48)).transpose()?;
        let blocks = bytes.map(|bytes| bytes / 4096);
        let options = traces::blocks::Options { of: None, blocks, full: variant.full, speed: args.speed() };
        let planned = of_devices::planned(&args.file, &args.after, &args.session, args.of.as_deref(), options)?;
        let (plan, source) = planned.map_err(|e| said(args, variant, &e))?;
        all.push(Planned { size: variant.size.clone(), full: variant.full, plan, source });
    }
    Ok(all)
}

/// Replays the requests, once for each run.
pub fn on_device(args: &Args, points: &[Point]) -> Result<Vec<Outcome>, Failure> {
    let plans = plans(args, points)?;
    at_once(points, |point, bar| {
        let variant = &point.variant;
        // OK to unwrap: every point has a plan.
        let Planned { plan, source, .. } = plans.iter().find(|planned| planned.is_of(variant)).unwrap();
        let how = How {
            when: if args.back_to_back { When::BackToBack } else { When::Recorded },
            queue: variant.queue.map(std::num::NonZeroUsize::get),
            flush_every: variant.flush_every,
        };
        let mut before = args.after.iter().map(|file| earlier(file)).collect::<Result<Vec<_>, _>>()?;
        let (mut requests, length) = source.open()?;
        let moved = share(bar, length);
        let mut table = args.requests.as_deref().map(Table::create).transpose()?;
        let watched = args.perfetto.is_some() || args.parquet.is_some();
        let mut timeline = if args.perfetto.is_some() { Timeline::default() } else { Timeline::without_owners() };
        let mut began = None;
        let told = |made: &Made, names: &Names, meter: &Meter| {
            if let Some(table) = &mut table {
                table.add(made, names);
            }
            // The recording's start by its own clock, whatever its origin.
            began.get_or_insert(made.request.time.saturating_sub(made.came));
            if watched && timeline.is_due(made.given) {
                meter.look(|ledger| timeline.look(made.given, ledger));
            }
        };
        let on = (&variant.profile, plan, args.speed());
        let run = traces::blocks::run_behind(&mut before, &mut requests, on, how, told, moved);
        let run = run.map_err(|e| said(args, variant, &e))?;
        if let (Some(table), Some(file)) = (table, &args.requests) {
            table.finish(file)?;
        }
        if watched {
            timeline.look(run.took, &run.ledger);
        }
        if let Some(file) = &args.perfetto {
            let lines = perfetto::Lines {
                recording: &args.file,
                format: requests.events().format(),
                began: began.unwrap_or(0),
                timeline: &timeline,
                names: requests.names(),
                profile: &variant.profile.name,
            };
            perfetto::write(file, &lines)?;
        }
        Ok(Outcome::of_blocks(variant, plan, run, &requests, timeline))
    })
}
