//! `joulefs trace replay`: what does it cost to do once more what a recording tells of?
//!
//! Here options are read and runs are made; `variants` says which runs, `print` what came of them.

mod print;
mod variants;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use device::clock::RealClock;
use device::{Access, open_image};
use f2fs::mkfs;
use indicatif::ProgressBar;
use lab::aging::Recipe;
use lab::error::LabError;
use lab::traces::{self, ReplayError, Speed};
use record::Tempo;
use trace::call::Calls;
use trace::replay::needs::{self, Needs};
use trace::replay::place::OnDirectory;
use trace::{Kind, Opened, TraceError};

use crate::{Failure, held, progress, recorded, size};
use print::Outcome;
use variants::Variant;

/// Do once more what a recording tells of, on a simulated device, and say what it costs.
///
/// Requests to a block device are made on a device of the profile: each when it came, or later if the device is not done
/// with the one before. The device is as large as the recording needs (or --size) and holds data wherever the
/// recording reads what it has not written; --full makes it hold data everywhere. Of several recorded devices the one that
/// moved most is replayed (or --of), so that what passes a stack of devices is not counted twice. Causes are what
/// the recording tells of a request, "files" the processes that asked. A mobile block trace tells some requests twice (sent
/// back by a host controller that slept) and discards as reads: the one is left out, the other set right.
///
/// Calls to a file system are made on a new F2FS volume (or --image, which stays as it is) on such a device, after what
/// they need to find was put there; --age brings a new volume into a used state first. Only the calls are on the account. With
/// --into they are made in a directory of the host instead, in real time: put a file system there on a disk of
/// `joulefs device` to see what it costs on another file system.
///
/// Time is virtual unless --paced: an hour takes as long as computing it. The same command gives the same joules, to the
/// last picojoule.
///
/// --compare gives several runs side by side: of options of -o, or of profiles. If they differ in who cleans (gc=, power=), the
/// first of them is the control "none", in which nobody cleans in the background: on a volume with room to spare it is the
/// cheapest, and a policy is worth the joules that it saves against it, or the free segments that it holds beyond it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    joulefs trace replay telegram_exec.csv.gz --profile oneplus8t-ufs31\n  \
    joulefs trace replay telegram_exec.csv.gz --compare profile=oneplus8t-ufs31,galaxy-nexus-emmc\n  \
    joulefs trace replay app.strace --age three-fifths --size 2G --compare gc=greedy,atgc,fagc,joule\n  \
    joulefs trace replay app.strace --into /mnt/ext4 --back-to-back\n\n\
    Options for -o and --compare: gc=greedy|cost-benefit|atgc|mwhfb|fagc|joule, background_gc=on|off,\n  \
    power=battery|powered, discard=on|off, inline=on|off, node_cache=MIB, dirty=MIB, dir_cache=MIB;\n  \
    --compare also profile=NAME,...; every comparison of gc= or power= begins with the control \"none\"")]
pub struct Args {
    /// The recording.
    file: PathBuf,
    /// The device: the name of a shipped profile, or the path of a profile file; default: kirin9000-ufs31.
    #[arg(long, short)]
    profile: Option<String>,
    /// The file system calls are made on: ours, which is the default. For others, --into.
    #[arg(long, value_parser = ["f2fs"])]
    fs: Option<String>,
    /// Options of the volume, comma-separated.
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Run once for each of these values; may be given for several names.
    #[arg(long, value_name = "NAME=A,B,...")]
    compare: Vec<String>,
    /// The device's size; default: what the recording needs.
    #[arg(long, short)]
    size: Option<String>,
    /// The recorded device whose requests are made, by its numbers, e.g. 8,0; default: the one that moved most.
    #[arg(long, value_name = "MAJOR,MINOR")]
    of: Option<String>,
    /// The device holds data everywhere at the beginning; for recordings of block devices.
    #[arg(long)]
    full: bool,
    /// What the volume holds at the beginning; for recordings of calls.
    #[arg(long, conflicts_with_all = ["size", "age", "seed"])]
    image: Option<PathBuf>,
    /// The recipe that brings a new volume into its state (`joulefs age --list`); for recordings of calls.
    #[arg(long, value_name = "RECIPE")]
    age: Option<String>,
    /// Make the calls in this directory of the host, in real time.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["profile", "fs", "options", "compare", "size", "of",
        "full", "image", "age", "seed", "page_cache", "by_file"])]
    into: Option<PathBuf>,
    /// What a new volume and its recipe are drawn from; default: 1. For recordings of calls.
    #[arg(long)]
    seed: Option<u64>,
    /// What the host keeps of files' contents in memory, reading ahead as Linux does, e.g. 256M; default: nothing, every
    /// read is one of the device. For recordings of calls.
    #[arg(long, value_name = "SIZE")]
    page_cache: Option<String>,
    /// Files, or processes, that are named in the account, those that cost most first; default: 20. With --compare
    /// only --json names them.
    #[arg(long, value_name = "N")]
    by_file: Option<usize>,
    /// Take as long as it would take.
    #[arg(long)]
    paced: bool,
    /// Leave out the pauses.
    #[arg(long, conflicts_with = "paced")]
    back_to_back: bool,
}

impl Args {
    fn speed(&self) -> Speed {
        match (self.paced, self.back_to_back) {
            (true, _) => Speed::Paced,
            (_, true) => Speed::BackToBack,
            _ => Speed::Virtual,
        }
    }

    /// Blocks of a page cache.
    fn cache(&self) -> Result<Option<usize>, Failure> {
        let Some(text) = &self.page_cache else { return Ok(None) };
        let bytes = size::within("--page-cache", text, 1 << 20..=1 << 40)?;
        Ok(Some((bytes / 4096) as usize))
    }

    /// Bytes of a device for requests.
    fn bytes(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.size else { return Ok(None) };
        size::within("--size", text, 1 << 20..=1 << 48).map(Some)
    }

    /// An option that was given and that a recording of this kind has no use for. It is refused, so that nobody takes it
    /// for heeded.
    fn out_of_place(&self, kind: Kind) -> Option<&'static str> {
        let of_calls = [
            ("-o", !self.options.is_empty()),
            ("--fs", self.fs.is_some()),
            ("--image", self.image.is_some()),
            ("--age", self.age.is_some()),
            ("--seed", self.seed.is_some()),
            ("--page-cache", self.page_cache.is_some()),
            ("--into", self.into.is_some()),
        ];
        let of_blocks = [("--full", self.full), ("--of", self.of.is_some())];
        let list: &[_] = match kind {
            Kind::Blocks => &of_calls,
            Kind::Calls => &of_blocks,
            Kind::Power => &[],
        };
        list.iter().find(|(_, given)| *given).map(|(name, _)| *name)
    }
}

/// Fails if an option, a profile or a recipe that was asked for does not exist.
#[cfg(test)]
pub fn is_there(args: &Args) -> Result<(), Failure> {
    variants::all(args)?;
    args.age.iter().try_for_each(|recipe| Recipe::chain(recipe).map(drop).map_err(Failure::from))
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    recorded::again(&args.file)?;
    let recorded = recorded::open(&args.file)?;
    let kind = recorded.opened.kind();
    if let Some(option) = args.out_of_place(kind) {
        let (is, wanted) = match kind {
            Kind::Blocks => ("a block device", "calls to a file system"),
            _ => ("calls to a file system", "a block device"),
        };
        let file = args.file.display();
        return Err(Failure::Usage(format!("{file}: a recording of {is}: {option} is for recordings of {wanted}")));
    }
    if let (Some(dir), Kind::Calls) = (&args.into, kind) {
        return into(args, dir, as_json);
    }
    if args.by_file.is_some() && !args.compare.is_empty() && !as_json {
        return Err(Failure::usage("--by-file: with --compare only --json names files"));
    }
    let variants = variants::all(args)?;
    let outcomes = match kind {
        Kind::Blocks => of_blocks(args, &variants)?,
        Kind::Calls => of_calls(args, &variants)?,
        Kind::Power => {
            return Err(recorded::not_of(&args.file, "a meter", "requests to a block device, or of calls"));
        }
    };
    print::all(&outcomes, args.by_file.unwrap_or(20), as_json);
    Ok(recorded::end(outcomes.iter().find_map(Outcome::damage), as_json))
}

/// Each variant's result, in order; as many at once as there are processors.
fn at_once<T: Send>(
    variants: &[Variant],
    work: impl Fn(&Variant, &ProgressBar) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let bar = progress::steps(1000 * variants.len() as u64, "replaying");
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(variants.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let mut done: Vec<(usize, Result<T, Failure>)> = std::thread::scope(|s| {
        let worker = || {
            let mut out = Vec::new();
            loop {
                let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(variant) = variants.get(n) else { return out };
                let result = work(variant, &bar);
                let failed = result.is_err();
                out.push((n, result));
                if failed {
                    return out;
                }
            }
        };
        let all: Vec<_> = (0..threads).map(|_| s.spawn(worker)).collect();
        // A panic of a worker is a mistake in this program, and goes on here.
        all.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    bar.finish_and_clear();
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

fn said(args: &Args, e: &ReplayError) -> Failure {
    let file = args.file.display();
    match (e, &args.of, &args.size) {
        (ReplayError::NotRecorded { .. }, Some(of), _) => Failure::Usage(format!("--of {of}: {file}: {e}")),
        (ReplayError::TooSmall { .. }, _, Some(size)) => Failure::Usage(format!("--size {size}: {file}: {e}")),
        (ReplayError::Lab(LabError::Model(_)), _, Some(size)) => Failure::Usage(format!("--size {size}: {e}")),
        (ReplayError::Lab(LabError::Mount(_)), ..) => match &args.image {
            Some(image) => format!("{}: {e}", image.display()).into(),
            None => e.to_string().into(),
        },
        (ReplayError::Empty(_), ..) => format!("{file}: {e}").into(),
        _ => e.to_string().into(),
    }
}

fn of_blocks(args: &Args, variants: &[Variant]) -> Result<Vec<Outcome>, Failure> {
    if variants.iter().any(|v| v.of_volume) {
        return Err(Failure::usage(format!(
            "{}: a recording of a block device: --compare is for recordings of calls, but for profile=A,B,...",
            args.file.display()
        )));
    }
    let (requests, length) = recorded::requests(&args.file)?;
    let (bar, moved) = recorded::bar(length, "looking");
    let blocks = args.bytes()?.map(|bytes| bytes / 4096);
    let options = traces::blocks::Options {
        of: args.of.as_deref().map(recorded::device).transpose()?,
        blocks,
        full: args.full,
        speed: args.speed(),
    };
    let plan = options.plan(requests, moved).map_err(|e| said(args, &e))?;
    bar.finish_and_clear();
    at_once(variants, |variant, bar| {
        let (mut requests, length) = recorded::requests(&args.file)?;
        let moved = share(bar, length);
        let run = traces::blocks::run(&mut requests, &variant.profile, &plan, args.speed(), moved);
        let run = run.map_err(|e| said(args, &e))?;
        Ok(Outcome::of_blocks(variant, &plan, run, &requests))
    })
}

/// A function that moves a bar which several runs share.
fn share(bar: &ProgressBar, length: u64) -> impl FnMut(u64) + use<> {
    let (bar, mut last) = (bar.clone(), 0);
    move |at| {
        let now = at.saturating_mul(1000) / length.max(1);
        bar.inc(now.saturating_sub(last));
        last = last.max(now);
        progress::show_if_slow(&bar);
    }
}

fn calls(path: &Path) -> Result<(Box<dyn Calls>, u64), Failure> {
    let recorded::Recorded { opened, length } = recorded::open(path)?;
    match opened {
        Opened::Calls(calls) => Ok((calls, length)),
        Opened::Blocks(_) => Err(recorded::not_of(path, "requests to a block device", "calls to a file system")),
        Opened::Power(_) => Err(recorded::not_of(path, "a meter", "calls to a file system")),
    }
}

/// What must be there before the calls of a recording. A damaged recording is replayed up to the damage, so what comes
/// after it needs nothing.
fn needed(path: &Path) -> Result<Needs, Failure> {
    let (mut calls, length) = calls(path)?;
    let (bar, moved) = recorded::bar(length, "looking");
    let (needs, _) = needs::scan(&mut *calls, moved);
    bar.finish_and_clear();
    Ok(needs)
}

fn of_calls(args: &Args, variants: &[Variant]) -> Result<Vec<Outcome>, Failure> {
    let bytes = args.size.as_deref().map(|text| size::of_volume(text, &mkfs::Options::default())).transpose()?;
    let page_cache = args.cache()?;
    if let Some(recipe) = &args.age {
        if args.paced {
            return Err(Failure::usage(
                "--age with --paced: a volume is aged in virtual time; make an image of it first",
            ));
        }
        Recipe::chain(recipe).map_err(|e| Failure::from(e).named("--age"))?;
    }
    let needs = needed(&args.file)?;
    let image = match &args.image {
        None => None,
        Some(path) => {
            let image = open_image(path, Access::ReadOnly).map_err(|e| e.to_string())?;
            let held = held::runs(&image, path)?;
            Some(traces::calls::Image { device: image, held })
        }
    };
    at_once(variants, |variant, bar| {
        let (mut calls, length) = calls(&args.file)?;
        let options = traces::calls::Options {
            mount: variant.mount.clone(),
            bytes,
            image: image.clone(),
            recipe: args.age.clone(),
            seed: args.seed.unwrap_or(1),
            speed: args.speed(),
            page_cache,
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
        let run = traces::calls::run(&mut *calls, &needs, &variant.profile, &options, length, &mut progress);
        Ok(Outcome::of_calls(variant, run.map_err(|e| said(args, &e))?))
    })
}

/// Makes the calls in a directory.
fn into(args: &Args, dir: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let named = |e: std::io::Error| format!("{}: {e}", dir.display());
    if std::fs::read_dir(dir).map_err(named)?.any(|entry| entry.is_ok_and(|e| e.file_name() != "lost+found")) {
        return Err(format!(
            "{}: not empty; calls remove and rename what they find: give an empty directory",
            dir.display()
        )
        .into());
    }
    let needs = needed(&args.file)?;
    let (mut calls, length) = calls(&args.file)?;
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
    let (done, whole) = trace::replay::calls::replay(&mut *calls, &mut place, &*clock, &tempo, moved);
    let synced = trace::replay::place::Place::sync_all(&mut place);
    bar.finish_and_clear();
    synced.map_err(|e| format!("{}: {e}", dir.display()))?;
    let took = std::time::Duration::as_nanos(&device::Clock::monotonic(&*clock)) - from;
    let damage: Option<TraceError> = whole.err();
    print::of_directory(dir, &done, u64::try_from(took).unwrap_or(u64::MAX), damage.as_ref(), as_json);
    Ok(recorded::end(damage.as_ref(), as_json))
}
