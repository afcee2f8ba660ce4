//! `joulefs replay`: what do the requests or calls of a JouleFS recording cost on a simulated device?
//!
//! `joulefs trace replay` handles recordings by other programs; `record` reads the file and replays it.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use device::clock::{Clock, RealClock, VirtualClock};
use device::energy::profile::Profile;
use device::energy::{Draws, Ledger, Meter, Nanos};
use device::model::{self, Pace, Simulated};
use device::{Access, BlockDevice, Fingerprint, Lba, Overlay};
use f2fs::delta::Costs;
use record::{Kind, Reader, RecordError, Tempo, blocks, calls};
use serde_json::{Value, json};
use sim::flame::Flame;
use sim::labels::{Cause, Words, deleted, name_of};
use sim::replay::{kind_of, opening};
use volume::{MakeOptions, MountOptions};

use crate::file_system::Type;
use crate::flame::{Files, FlameArgs, Graph, names};
use crate::saved::Saved;
use crate::spent::{self, FileLine, Spent};
use crate::{Failure, held, joules, output, pieces, recorded, size};

/// Replay a recording on a simulated device and report the energy.
///
/// A recording of a device (`joulefs device --record`, `joulefs mount --record-device`) is replayed on a device of the
/// profile. A recording of a file system (`joulefs mount --record`) is replayed on such a device with a new volume
/// (F2FS, or --fs), or with a copy of an image. Files that the calls need are created first if they are missing, at no
/// cost. Recorded contents (`--contents`) are used if present, otherwise generated contents of the same length. Deltas
/// and compression depend on contents: with generated contents their results mean nothing.
///
/// The energy is reported by cause and by file: for a file system's recording with the final paths of the files, for a
/// device's recording with the inodes of its requests.
///
/// Time is virtual unless --paced is given, so an hour of recording takes only the time to compute it. Requests arrive
/// at their recorded times, or later if the device is still busy.
///
/// `joulefs trace replay` reads the same recordings, compares runs, and writes tables for notebooks (--parquet).
///
/// A damaged or truncated recording is replayed up to the damage; the error gives the position, and the exit code is 1.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs replay work.rec --profile oneplus8t-ufs31\n  \
    joulefs replay work.rec --profile my-phone.toml --back-to-back --json\n  \
    joulefs replay calls.rec --profile kirin9000-ufs31 --image before.img\n  \
    joulefs replay calls.rec --fs scherlfs --profile laptop-disk-4200\n  \
    joulefs replay calls.rec --flame joules.html --flame joules.folded\n  \
    joulefs replay calls.rec --save after.img && joulefs ls -l after.img:/")]
pub struct Args {
    /// The recording.
    file: PathBuf,
    /// The device: the name of a shipped profile, or the path of a profile file.
    #[arg(long, short, default_value = "kirin9000-ufs31")]
    profile: String,
    /// The device's size; default: that of the recorded device, or enough for the data of the recorded volume.
    #[arg(long, short)]
    size: Option<String>,
    /// File system to replay the calls on; default: that of --image, or f2fs. For recordings of a file system.
    #[arg(long, value_enum)]
    fs: Option<Type>,
    /// Initial contents of the volume; for recordings of a file system.
    #[arg(long, conflicts_with = "size")]
    image: Option<PathBuf>,
    /// Save the volume after the replay to this new image; for recordings of a file system.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Number of files listed by energy, most expensive first.
    #[arg(long, value_name = "N", default_value_t = 20)]
    by_file: usize,
    #[command(flatten)]
    flame: FlameArgs,
    /// Replay in real time.
    #[arg(long)]
    paced: bool,
    /// Skip the pauses between requests.
    #[arg(long)]
    back_to_back: bool,
}

/// A device to replay on, with its clock.
struct Target {
    device: Arc<Simulated<Arc<dyn BlockDevice>>>,
    clock: Arc<dyn Clock>,
    tempo: Tempo,
}

/// The result of a replay.
struct Outcome {
    ledger: Ledger,
    /// The meanings of the ledger's causes.
    names: Box<dyn Fn(u8) -> Cause>,
    files: Vec<FileLine>,
    /// The flame graph, if requested.
    flame: Option<Flame>,
    json: Value,
    text: String,
    /// Duration of the recording, and of the replay on the simulated device, in seconds.
    recorded: u64,
    took: u64,
    counters: Vec<(&'static str, u64)>,
    whole: Result<(), RecordError>,
}

/// The device of a profile over `contents`, in which the `held` blocks contain data.
fn target(
    args: &Args,
    profile: &Profile,
    contents: Arc<dyn BlockDevice>,
    held: &[(Lba, u64)],
) -> Result<Target, Failure> {
    let mut model = model::build(profile, contents.blocks()).map_err(|e| match &args.size {
        Some(size) => Failure::Usage(format!("--size {size}: {e}")),
        None => e.to_string().into(),
    })?;
    model.fill(Nanos(0), held);
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let (pace, clock, tempo): (_, Arc<dyn Clock>, _) = if args.paced {
        let clock = Arc::new(RealClock::new());
        (Pace::Paced(clock.clone()), clock.clone(), Tempo::Real(clock))
    } else {
        let clock = Arc::new(VirtualClock::new(RealClock::new().now()));
        (Pace::Virtual(clock.clone()), clock.clone(), Tempo::Virtual(clock))
    };
    let tempo = if args.back_to_back { Tempo::BackToBack } else { tempo };
    Ok(Target { device: Arc::new(Simulated::new(contents, model, meter, pace)), clock, tempo })
}

fn nanos(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", args.file.display());
    let profile = Profile::find(&args.profile)?;
    let flames = args.flame.files()?;
    flames.apart(&args.file)?;
    let of_device = || args.size.as_deref().map(|s| size::within("--size", s, 4096..=1 << 48)).transpose();
    let of_volume = |kind| args.size.as_deref().map(|text| size::of_volume(kind, text)).transpose();
    let open = || -> Result<Reader, Failure> {
        let file = File::open(&args.file).map_err(|e| named(&e))?;
        if file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(named(&"is a directory").into());
        }
        Ok(Reader::new(BufReader::new(file)).map_err(|e| match e {
            RecordError::NotARecording => {
                named(&format_args!("{e}; joulefs trace replay reads those of other programs"))
            }
            e => named(&e),
        })?)
    };
    let reader = open()?;
    let mut outcome = match reader.kind() {
        Kind::Blocks if args.image.is_some() => {
            let why = "a recording of a device: --image is for recordings of a file system";
            return Err(Failure::usage(named(&why)));
        }
        Kind::Blocks if args.fs.is_some() => {
            let why = "a recording of a device: --fs is for recordings of a file system";
            return Err(Failure::usage(named(&why)));
        }
        Kind::Blocks if args.save.is_some() => {
            let why = "a recording of a device: --save is for recordings of a file system";
            return Err(Failure::usage(named(&why)));
        }
        Kind::Blocks => {
            let events = blocks::Events::new(reader).map_err(|e| named(&e))?;
            of_blocks(args, &flames, &profile, of_device()?, events)?
        }
        Kind::Calls => {
            let calls = |reader| Ok::<_, Failure>(calls::Events::new(reader).map_err(|e| named(&e))?);
            let events = calls(reader)?;
            // Files that must exist are determined before the calls are replayed.
            let before = match events.has_contents() {
                true => {
                    opening::again(&args.file)?;
                    Some(calls(open()?)?)
                }
                false => None,
            };
            let size = of_volume(args.fs.unwrap_or_default().into())?;
            of_calls(args, &flames, &profile, size, events, before)?
        }
    };
    if let Some(flame) = outcome.flame.take() {
        let title = format!("{} on {}", args.file.display(), profile.name);
        flames.write(&output::plain(&title), &[Graph { name: profile.name.clone(), flame, took: outcome.took }])?;
    }
    Ok(match print(&profile, outcome, as_json) {
        Ok(()) => ExitCode::SUCCESS,
        // Results up to the damage are printed. The JSON includes the damage.
        Err(e) => {
            if !as_json {
                output::failure(&named(&e), false);
            }
            ExitCode::FAILURE
        }
    })
}

fn of_blocks(
    args: &Args,
    flames: &Files,
    profile: &Profile,
    size: Option<u64>,
    events: blocks::Events,
) -> Result<Outcome, Failure> {
    let count = size.map_or(events.blocks(), |bytes| bytes / 4096);
    let contents = Arc::new(Fingerprint::new(in_memory(count)?));
    let Target { device, clock, tempo } = target(args, profile, contents, &[])?;
    let causes = events.causes().clone();
    let (start, mut first) = (nanos(&*clock), None);
    let (done, whole) = blocks::replay(events, &*device, &tempo, |event, failure| {
        if let Some(e) = failure {
            first.get_or_insert_with(|| format!("{:?}: {e}", event.request));
        }
    });
    let mut text = format!("{} requests", done.requests);
    if done.left_out > 0 {
        text += &format!(", {} skipped that had failed", done.left_out);
    }
    if let Some(first) = &first {
        text += &format!(", {} failed; the first: {first}", done.failed);
    }
    let ledger = device.ledger();
    let cause = move |n| causes.get(&n).map_or_else(|| Cause::unnamed(n), |text| Cause::recorded(text));
    Ok(Outcome {
        files: spent::by_file(&ledger, args.by_file, "<no file>", |_| None, |inode| format!("<inode {inode}>")),
        flame: (!flames.is_empty()).then(|| names::of_inodes(&ledger, flames.depth(), &|n| cause(n).text)),
        ledger,
        names: Box::new(cause),
        json: json!({
            "of": "blocks",
            "requests": done.requests,
            "left_out": done.left_out,
            "failed": done.failed,
            "first_failure": first,
        }),
        text,
        recorded: done.span,
        took: nanos(&*clock) - start,
        counters: device.counters(),
        whole,
    })
}

fn of_calls(
    args: &Args,
    flames: &Files,
    profile: &Profile,
    size: Option<u64>,
    events: calls::Events,
    prepared_by: Option<calls::Events>,
) -> Result<Outcome, Failure> {
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", args.file.display());
    let saved = args.save.as_deref().map(Saved::create).transpose()?;
    let mut held = Vec::new();
    let mut kind = args.fs.unwrap_or_default().into();
    let contents: Arc<dyn BlockDevice> = match &args.image {
        Some(path) => {
            let image = pieces::open(path, Access::ReadOnly)?;
            kind = kind_of(&image, path, args.fs.map(volume::Kind::from))?;
            held = held::runs(&image, path)?;
            Arc::new(Overlay::new(image))
        }
        None => {
            // A volume reserves a part of its device, relatively more on a smaller device.
            let bytes = size.unwrap_or(events.bytes().saturating_add(events.bytes() / 8).saturating_add(64 << 20));
            Arc::new(Fingerprint::new(in_memory(bytes / 4096)?))
        }
    };
    let Target { device, clock, tempo } = target(args, profile, contents.clone(), &held)?;
    if args.image.is_none() {
        let entropy = device::rng::entropy().map_err(|e| format!("no random numbers: {e}"))?;
        let options = MakeOptions {
            uuid: device::rng::uuid(entropy),
            secret: 0,
            zeroed: true,
            f2fs: Default::default(),
            scherlfs: Default::default(),
        };
        volume::make(kind, device.clone(), &*clock, &options).map_err(|e| format!("cannot make a volume: {e}"))?;
    }
    let options = MountOptions::of_f2fs(f2fs::MountOptions {
        delta_costs: Costs::of(profile),
        compress_costs: f2fs::compress::costs::Costs::of(profile),
        processor: Some(device.clone()),
        ..Default::default()
    });
    let mounted = volume::mount(kind, device.clone(), clock.clone(), options);
    let volume = mounted.map_err(|e| format!("cannot mount: {e}"))?.volume();
    let mut prepared = calls::Prepared::default();
    if let Some(events) = prepared_by {
        // The replay meets damage again, and reports it.
        (prepared, _) = calls::prepare(events.root(), events, &*volume, || ()).map_err(|e| named(&e))?;
    }
    volume.keep_deleted_names();
    let (before, start) = (device.ledger(), nanos(&*clock));
    let (done, whole) = calls::replay(events.root(), events, &*volume, &tempo, |_| {});
    volume.unmount().map_err(|e| e.to_string())?;
    if let Some(saved) = saved {
        saved.finish(&*contents)?;
    }
    let mut text =
        format!("{} calls, {} written, {} read", done.calls, output::bytes(done.written), output::bytes(done.read));
    if let Some((n, call)) = done.first_left_out {
        let all = done.left_out;
        text += &format!("; {all} skipped because their inode does not exist, the first: {call} (record {n})");
    }
    let first = done
        .first_divergence
        .map(|d| format!("{} (record {}) then {}, now {}", d.call, d.record, answer(&d.then), answer(&d.now)));
    if let Some(first) = &first {
        text += &format!("; {} ended differently than in the recording, the first: {first}", done.diverged);
    }
    text += "\n";
    text += &recorded::contents_of(&prepared, done.written, done.generated);
    let ledger = device.ledger().since(&before);
    let took = nanos(&*clock) - start;
    let counters = device.counters();
    let words = Words::of(&*volume);
    Ok(Outcome {
        // Looking up names costs requests, which are not in this ledger.
        files: spent::by_file(
            &ledger,
            args.by_file,
            &words.rest,
            |owner| deleted(&*volume, owner),
            |owner| name_of(&*volume, owner),
        ),
        flame: (!flames.is_empty()).then(|| names::of_volume(&ledger, flames.depth(), &*volume)),
        ledger,
        names: Box::new(move |n| words.named(n)),
        json: json!({
            "of": "calls",
            "file_system": kind.type_name(),
            "calls": done.calls,
            "left_out": done.left_out,
            "diverged": done.diverged,
            "first_divergence": first,
            "bytes_written": done.written,
            "bytes_generated": done.generated,
            "bytes_before_recorded": prepared.recorded,
            "bytes_before_generated": prepared.generated,
            "bytes_read": done.read,
        }),
        text,
        recorded: done.span,
        took,
        counters,
        whole,
    })
}

/// A number of blocks that fits in memory.
fn in_memory(blocks: u64) -> Result<u64, Failure> {
    if (1..=1 << 36).contains(&blocks) {
        Ok(blocks)
    } else {
        Err(Failure::usage(format!(
            "a device of {blocks} blocks of 4096 bytes: choose a size from 4K to 256T with --size"
        )))
    }
}

fn answer(answer: &Result<u64, calls::Failure>) -> String {
    match answer {
        Ok(n) => format!("{n}"),
        Err(failure) => format!("{failure:?}"),
    }
}

fn print(profile: &Profile, outcome: Outcome, as_json: bool) -> Result<(), RecordError> {
    let Outcome { ledger, names, files, flame: _, json, text, recorded, took, counters, whole } = outcome;
    let causes = spent::by_cause(&ledger, names);
    let (name, range) = (profile.name.clone(), Draws::of(profile, &ledger).range());
    let spent = Spent { profile: name, range, causes, files, owners: "file", took, counters, ledger };
    if as_json {
        let mut all = spent.json();
        all.insert("replay".into(), json);
        all.insert("damage".into(), json!(whole.as_ref().err().map(ToString::to_string)));
        all.insert("recorded_ns".into(), json!(recorded));
        output::print(&Value::Object(all));
    } else {
        output::lines(&format!(
            "{}: {} in {} (recorded in {})\n{text}\n\n{}",
            spent.profile,
            spent.total(),
            joules::time(took),
            joules::time(recorded),
            spent.tables(),
        ));
    }
    whole
}
