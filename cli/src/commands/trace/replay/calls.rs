//! How are the calls of a recording replayed, on a volume of a simulated device or in a directory of the host?

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use device::Access;
use device::clock::RealClock;
use f2fs::gc::settings::Intervals;
use record::Tempo;
use sim::traces::by_inode::{self, ByInode};
use sim::traces::source::{ByPath, Source};
use sim::traces::state::Wanted;
use sim::traces::{self, ReplayError};
use trace::call::Calls;
use trace::replay::needs::{self, Needs};
use trace::replay::place::OnDirectory;
use trace::session::Span;
use trace::timing::Timing;
use trace::{Opened, Options, TraceError};
use volume::MountOptions;

use super::no_space::{no_call, told};
use super::outcome::Outcome;
use super::points::Point;
use super::print;
use super::{Args, at_once, said, share};
use crate::file_system::size_of;
use crate::session::{self, SessionArgs};
use crate::{Failure, held, pieces, progress, recorded};

fn calls(path: &Path, part: &SessionArgs) -> Result<(Box<dyn Calls>, u64), Failure> {
    let recorded::Recorded { opened, length } = recorded::open_part(path, part)?;
    match opened {
        Opened::Calls(calls) => Ok((calls, length)),
        Opened::Blocks(_) => Err(recorded::not_of(path, "requests to a block device", "calls to a file system")),
        Opened::Power(_) => Err(recorded::not_of(path, "a meter", "calls to a file system")),
    }
}

/// The requirements of a recording of calls, and its properties.
#[derive(Default)]
struct Looked {
    needs: Needs,
    said: Vec<String>,
    timing: Timing,
}

/// The files that must exist before the calls of a recording. A damaged recording is replayed up to the damage, so only
/// calls before it count.
fn needed(path: &Path, part: &SessionArgs) -> Result<Looked, Failure> {
    let (mut calls, length) = calls(path, part)?;
    let (bar, moved) = recorded::bar(length, "looking");
    let (needs, _) = needs::scan(&mut *calls, moved);
    bar.finish_and_clear();
    let timing = calls.timing();
    let others = calls.other_counts();
    let details = trace::invalid_lines(others).into_iter().chain(trace::missing_details(others));
    let said = session::said(&timing).into_iter().chain(details).collect();
    Ok(Looked { needs, said, timing })
}

/// Replays the calls on a volume, once for each run.
pub fn on_volume(args: &Args, ours: Option<&ByInode>, points: &[Point]) -> Result<Vec<Outcome>, Failure> {
    let page_cache = args.cache(ours.is_some())?;
    if args.paced && points.iter().any(|p| p.variant.fill.is_some() || p.variant.age.is_some()) {
        return Err(Failure::usage(
            "--age and --fill work in virtual time, not with --paced; age an image first and give it with --image",
        ));
    }
    let looked = match ours {
        Some(ours) => {
            let timing = ours.timing();
            let mut said = session::said(&Timing { before: 0, ..timing });
            if timing.before > 0 {
                said.push(format!("{} calls before the session replayed, and not counted", timing.before));
            }
            Looked { said, timing, needs: Needs::default() }
        }
        None => needed(&args.file, &args.session)?,
    };
    let span = args.session.span()?;
    let after: Vec<Earlier> = args.after.iter().map(|path| Earlier::open(path)).collect::<Result<_, _>>()?;
    let image = match &args.image {
        None => None,
        Some(path) => {
            let image = pieces::open(path, Access::ReadOnly)?;
            let held = held::runs(&image, path)?;
            Some(traces::calls::Image { device: image, held })
        }
    };
    at_once(points, |Point { variant, .. }, bar| {
        let fs = variant.fs;
        let options = traces::calls::Options {
            fs,
            mount: if args.hurry { hurried(&variant.mount) } else { variant.mount.clone() },
            deltas: variant.deltas,
            compressed: variant.compressed,
            bytes: variant.size.as_deref().map(|text| size_of(fs, text)).transpose()?,
            image: image.clone(),
            state: Wanted { recipe: variant.age.clone(), full: variant.fill },
            seed: variant.seed,
            speed: args.speed(),
            pauses: args.pauses(),
            page_cache,
            cold: args.cold,
            times: args.repeat.unwrap_or(NonZeroU32::MIN),
            watched: args.parquet.is_some(),
        };
        let mut moved = share(bar, 1000);
        let mut progress = |what: &str, part: f64| {
            bar.set_message(what.to_owned());
            if what == "replaying" {
                moved((part * 1000.0) as u64);
            } else {
                progress::show_if_slow(bar);
            }
        };
        let opens: Vec<Box<Reopen<'_>>> =
            after.iter().map(|e| reopen(&e.path, Options::default(), Span::default())).collect();
        let mut sources: Vec<Box<dyn Source + '_>> =
            after.iter().zip(&opens).map(|(earlier, open)| earlier.source(open)).collect();
        let mut before: Vec<&mut dyn Source> = sources.iter_mut().map(|s| &mut **s as &mut dyn Source).collect();
        let open = reopen(&args.file, args.session.options(), span);
        let run = match ours {
            Some(ours) => traces::calls::run(&mut ours.clone(), &mut before, &variant.profile, &options, &mut progress),
            None => {
                let mut source = ByPath { open: &open, needs: &looked.needs, length: recorded::length(&args.file) };
                traces::calls::run(&mut source, &mut before, &variant.profile, &options, &mut progress)
            }
        };
        let run = run.map_err(|e| said(args, variant, &e))?;
        let idle = match args.compare.iter().any(|compared| compared.starts_with("fs=")) {
            true => {
                let blocks = run.done.device_bytes / 4096;
                Some(traces::idle(&variant.profile, blocks, run.took).map_err(|e| said(args, variant, &e))?)
            }
            false => None,
        };
        Ok(Outcome::of_calls(variant, run, idle, looked.said.clone(), looked.timing))
    })
}

type Reopen<'a> = dyn Fn() -> Result<Box<dyn Calls>, ReplayError> + 'a;

/// Opens a recording of calls at its start, any number of times.
fn reopen(path: &Path, options: Options, span: Span) -> Box<Reopen<'_>> {
    Box::new(move || match trace::open_with(path, &options)? {
        Opened::Calls(calls) => Ok(recorded::of_calls(calls, span)),
        _ => Err(TraceError::Unknown {
            path: path.to_owned(),
            why: "the file has changed since it was read \
            first"
                .into(),
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
    fn open(path: &Path) -> Result<Self, Failure> {
        recorded::again(path)?;
        let whole = SessionArgs::default();
        calls(path, &whole).map_err(|e| e.named("--after"))?;
        let ours = ByInode::open(path, by_inode::How::default()).map_err(|e| e.to_string())?;
        let needs = if ours.is_some() { Needs::default() } else { needed(path, &whole)?.needs };
        Ok(Earlier { path: path.to_owned(), ours, needs })
    }

    fn source<'a>(&'a self, open: &'a Reopen<'a>) -> Box<dyn Source + 'a> {
        match &self.ours {
            Some(ours) => Box::new(ours.clone()),
            None => Box::new(ByPath { open, needs: &self.needs, length: recorded::length(&self.path) }),
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

/// Replays the calls in a directory of the host.
pub fn into(args: &Args, dir: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let named = |e: std::io::Error| format!("{}: {e}", dir.display());
    if std::fs::read_dir(dir).map_err(named)?.any(|entry| entry.is_ok_and(|e| e.file_name() != "lost+found")) {
        return Err(format!(
            "{}: not empty; the calls remove and rename files, so give an empty directory",
            dir.display()
        )
        .into());
    }
    let Looked { needs, said, timing } = needed(&args.file, &args.session)?;
    let (mut calls, length) = calls(&args.file, &args.session)?;
    let mut place = OnDirectory::new(dir);
    let bar = progress::bytes(needs.bytes(), "preparing");
    let prepared = needs.prepare(&mut place, |at| {
        bar.set_position(at);
        progress::show_if_slow(&bar);
    });
    bar.finish_and_clear();
    prepared.map_err(|(path, why)| format!("{}: {why}", String::from_utf8_lossy(&path)))?;
    let clock = Arc::new(RealClock::new());
    let tempo = if args.back_to_back { Tempo::BackToBack } else { Tempo::Real(clock.clone()) };
    let (bar, moved) = recorded::bar(length, "replaying");
    let from = std::time::Duration::as_nanos(&device::Clock::monotonic(&*clock));
    let (done, whole) = trace::replay::calls::replay(&mut *calls, &mut place, &*clock, &tempo, args.pauses(), moved);
    let synced = trace::replay::place::Place::sync_all(&mut place);
    bar.finish_and_clear();
    synced.map_err(|e| format!("{}: {e}", dir.display()))?;
    let took = std::time::Duration::as_nanos(&device::Clock::monotonic(&*clock)) - from;
    let damage: Option<TraceError> = whole.err();
    if damage.is_none() && done.calls + done.left_out == 0 {
        return Err(no_call(args, &timing).into());
    }
    let why = "calls failed with ENOSPC, so the numbers above are not valid; give a directory on a larger file system";
    let wrong = (done.no_space > 0).then(|| format!("{}: {} {why}", dir.display(), done.no_space));
    let took = u64::try_from(took).unwrap_or(u64::MAX);
    print::of_directory(dir, &done, took, (&said, &timing), damage.as_ref(), (as_json, wrong.as_deref()));
    if let Some(wrong) = wrong {
        return told(wrong, as_json);
    }
    Ok(recorded::end(damage.as_ref(), as_json))
}
