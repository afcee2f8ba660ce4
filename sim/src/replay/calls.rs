//! How are the calls of a recording replayed on a volume of a simulated device?

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use f2fs::gc::settings::Intervals;
use trace::call::Calls;
use trace::replay::needs::{self, Needs};
use trace::session::Span;
use trace::timing::Timing;
use trace::{Opened, Options, TraceError};
use volume::MountOptions;

use super::at_once::{STEPS, at_once};
use super::error::Error;
use super::failed::failed;
use super::notes;
use super::opening::{self, Part};
use super::outcome::Outcome;
use super::pasts::Pasts;
use super::points::Point;
use super::program::{Image, Program, Progress, Total, share};
use super::settings::{OverTime, Settings};
use super::sizes;
use super::variant::Variant;
use crate::traces::by_inode::{self, ByInode};
use crate::traces::calls::run_from;
use crate::traces::past::{Past, Shared};
use crate::traces::source::{ByPath, Source};
use crate::traces::state::Wanted;
use crate::traces::{self, ReplayError, Speed};

/// The requirements of a recording of calls, and its properties.
#[derive(Default)]
pub(super) struct Looked {
    /// The files that must exist.
    pub needs: Needs,
    /// Notes about the recording.
    pub notes: Vec<String>,
    /// Its times.
    pub timing: Timing,
}

/// The files that must exist before the calls of a recording. A damaged recording is replayed up to the damage, so only
/// calls before it count.
pub(super) fn needed(path: &Path, part: &Part, progress: &dyn Progress) -> Result<Looked, Error> {
    let (mut calls, length) = opening::calls(path, part)?;
    let job = progress.begin("looking", Total::Bytes(length));
    let (needs, _) = needs::scan(&mut *calls, share(&*job, length, length));
    let timing = calls.timing();
    let others = calls.other_counts();
    let details = trace::invalid_lines(others).into_iter().chain(trace::missing_details(others));
    let notes = notes::of_timing(&timing).into_iter().chain(details).collect();
    Ok(Looked { needs, notes, timing })
}

/// The options of a run; `ours` for a JouleFS recording.
pub(super) fn options(
    settings: &Settings,
    variant: &Variant,
    ours: bool,
    image: Option<traces::calls::Image>,
) -> Result<traces::calls::Options, Error> {
    let fs = variant.fs;
    Ok(traces::calls::Options {
        fs,
        mount: if settings.hurry { hurried(&variant.mount) } else { variant.mount.clone() },
        deltas: variant.deltas,
        compressed: variant.compressed,
        bytes: variant.size.as_deref().map(|text| sizes::of_volume(fs, text)).transpose()?,
        image,
        state: Wanted { recipe: variant.age.clone(), full: variant.fill },
        seed: variant.seed,
        speed: settings.speed,
        pauses: settings.pauses(),
        page_cache: settings.page_cache(ours)?,
        cold: settings.cold,
        times: settings.repeat.unwrap_or(NonZeroU32::MIN),
        watched: settings.over_time != OverTime::No,
    })
}

/// Replays the calls on a volume, once for each run.
pub(super) fn on_volume(
    settings: &Settings,
    ours: Option<&ByInode>,
    image: Option<&Image>,
    points: &[Point],
    pasts: &Pasts,
    program: &dyn Program,
) -> Result<Vec<Outcome>, Error> {
    let is_aged = |p: &Point| p.variant.fill.is_some() || p.variant.age.is_some();
    if settings.speed == Speed::Paced && points.iter().any(is_aged) {
        let why =
            "--age and --fill work in virtual time, not with --paced; age an image first and give it with --image";
        return Err(Error::Setting(why.into()));
    }
    let looked = match ours {
        Some(ours) => {
            let timing = ours.timing();
            let mut notes = notes::of_timing(&Timing { before: 0, ..timing });
            if timing.before > 0 {
                notes.push(format!("{} calls before the session replayed, and not counted", timing.before));
            }
            Looked { notes, timing, needs: Needs::default() }
        }
        None => needed(&settings.recording, &settings.part, program)?,
    };
    let after: Vec<Earlier> =
        settings.after.iter().map(|path| Earlier::open(path, program)).collect::<Result<_, _>>()?;
    let image = image.map(|i| traces::calls::Image { device: i.device.clone(), held: i.held.clone() });
    let compares_file_systems = settings.compare.iter().any(|compared| compared.starts_with("fs="));
    at_once(points, pasts, program, |run, Point { variant, .. }, job| {
        let options = options(settings, variant, ours.is_some(), image.clone())?;
        let mut moved = share(job, STEPS, STEPS);
        let mut progress = |step: &str, part: f64| {
            job.name(step);
            if step == "replaying" {
                moved((part * STEPS as f64) as u64);
            }
        };
        let opens: Vec<Box<Reopen<'_>>> =
            after.iter().map(|e| reopen(&e.path, Options::default(), Span::default())).collect();
        let mut sources: Vec<Box<dyn Source + '_>> =
            after.iter().zip(&opens).map(|(earlier, open)| earlier.source(open)).collect();
        let mut before: Vec<&mut dyn Source> = sources.iter_mut().map(|s| &mut **s as &mut dyn Source).collect();
        let open = reopen(&settings.recording, settings.part.read.clone(), settings.part.span);
        let (profile, number) = (&variant.profile, run);
        let shared = |whose, make: &mut dyn FnMut() -> Result<Past, ReplayError>| pasts.past(number, whose, make);
        let shared = pasts.has(number).then_some(&shared as &Shared<'_>);
        let run = match ours {
            Some(ours) => run_from(shared, &mut ours.clone(), &mut before, profile, &options, &mut progress),
            None => {
                let length = settings.part.length(&settings.recording);
                let mut source = ByPath { open: &open, needs: &looked.needs, length };
                run_from(shared, &mut source, &mut before, profile, &options, &mut progress)
            }
        };
        let run = run.map_err(|e| failed(settings, variant, e))?;
        let idle = match compares_file_systems {
            true => {
                let idle = traces::idle(&variant.profile, run.done.device_bytes / 4096, run.took);
                Some(idle.map_err(|e| failed(settings, variant, e))?)
            }
            false => None,
        };
        Ok(Outcome::of_calls(variant, run, idle, looked.notes.clone(), looked.timing))
    })
}

type Reopen<'a> = dyn Fn() -> Result<Box<dyn Calls>, ReplayError> + 'a;

/// Opens a recording of calls at its start, any number of times.
fn reopen(path: &Path, options: Options, span: Span) -> Box<Reopen<'_>> {
    Box::new(move || match trace::open_with(path, &options)? {
        Opened::Calls(calls) => Ok(opening::of_calls(calls, span)),
        _ => Err(TraceError::Unknown {
            path: path.to_owned(),
            why: "the file has changed since it was read first".into(),
        }
        .into()),
    })
}

/// A recording whose calls are replayed before the metered ones.
struct Earlier {
    path: PathBuf,
    ours: Option<ByInode>,
    needs: Needs,
}

impl Earlier {
    fn open(path: &Path, progress: &dyn Progress) -> Result<Self, Error> {
        opening::again(path)?;
        let whole = Part::default();
        opening::calls(path, &whole).map_err(|e| e.named("--after"))?;
        let ours = ByInode::open(path, by_inode::How::default())?;
        let needs = if ours.is_some() { Needs::default() } else { needed(path, &whole, progress)?.needs };
        Ok(Earlier { path: path.to_owned(), ours, needs })
    }

    fn source<'a>(&'a self, open: &'a Reopen<'a>) -> Box<dyn Source + 'a> {
        match &self.ours {
            Some(ours) => Box::new(ours.clone()),
            None => Box::new(ByPath { open, needs: &self.needs, length: opening::length(&self.path) }),
        }
    }
}

/// Background cleaning that does not wait for idle time.
fn hurried(mount: &MountOptions) -> MountOptions {
    let mut mount = mount.clone();
    let often = Duration::from_millis(500);
    let often = Intervals { urgent: often, min: often, max: often, none: often, idle: Duration::ZERO };
    mount.for_f2fs("--hurry", |options| options.gc.intervals = often);
    mount
}
