//! `joulefs trace convert`: how is a recording converted to another format? `trace` defines the formats.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use record::calls::{self, StripError};
use serde_json::json;
use sim::replay::opening::Part;
use sim::replay::{Error, devices, notes, opening};
use sim::traces::requeued::{Cleared, DISCARDS, DISCARDS_KEPT, TOLD_AGAIN, TOLD_AGAIN_KEPT};
use trace::block::Events;
use trace::call::Calls;
use trace::only::Only;
use trace::read::recording;
use trace::requests::{Requests, Seen};
use trace::stacks::LeftOut;
use trace::timing::Timing;
use trace::write::{blkparse, fio_iolog, parquet};
use trace::{Format, Opened, OtherCounts, TraceError};

use crate::of_devices::OfArgs;
use crate::session::UntilArgs;
use crate::{Failure, of_devices, output, recorded, whole};

/// Convert a recording to another format.
///
/// iolog is for `fio --read_iolog` (version 3, with times; iolog2 is version 2, for fio before 3.31) and has requests
/// only; blkparse is blkparse's text with every event (events that JouleFS does not use have the action ?); parquet
/// has a row per event or call, for DuckDB, pandas and others. Recordings of calls can be written as parquet, and
/// JouleFS recordings also as calls: the same recording without file contents (`joulefs mount --record --contents`),
/// to share it. No format keeps contents; file names are kept.
///
/// A mobile block trace has duplicate requests (sent back by a sleeping host controller) and discards that are marked
/// as reads. By default both are kept, and their number is printed. --clear removes the duplicates and corrects the
/// discards, as `joulefs trace replay` does, so that a replay of the output costs the same as a replay of the
/// recording.
///
/// An iolog cannot express stacked devices. So requests of loop devices and stacked disks that are recorded again on a
/// lower disk are not written to it (`joulefs trace stat` does not count them either), and a warning names them. --of
/// selects devices.
///
/// --from, --until and --max-gap write a part of the recording; a file that was opened before the part is opened at
/// its first use.
///
/// A damaged recording produces no file, unless the part before the damage is requested; on standard output that part
/// is already written, and the exit code is 1.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs trace convert telegram_exec.csv.gz --to iolog --output telegram.log\n  \
    fio --name=again --read_iolog=telegram.log --replay_redirect=/dev/nullb0 --direct=1\n  \
    joulefs trace convert sda.blktrace.0 --to blkparse | grep ' D '\n  \
    joulefs trace convert telegram_exec.csv.gz --to blkparse --clear --output cleared.txt\n  \
    joulefs trace convert app.strace --to parquet --output app.parquet\n  \
    joulefs trace convert work.rec --to calls --output shared.rec")]
pub struct Args {
    /// The recording; - for standard input.
    file: PathBuf,
    /// Further files of the same recording: requests are merged by time, files of calls follow each other.
    #[arg(value_name = "FILE")]
    further: Vec<PathBuf>,
    /// Output format.
    #[arg(long)]
    to: To,
    /// Output file; default: standard output, for text formats.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the part before the damage.
    #[arg(long)]
    until_damage: bool,
    /// Remove duplicate requests of a mobile block trace, and correct its discards that are marked as reads.
    #[arg(long)]
    clear: bool,
    #[command(flatten)]
    of: OfArgs,
    #[command(flatten)]
    session: UntilArgs,
}

impl Args {
    /// The part of all files.
    fn part(&self) -> Result<Part, Failure> {
        self.session.session().with(&self.further).part()
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.file).chain(&self.further).map(PathBuf::as_path)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum To {
    Iolog,
    Iolog2,
    Blkparse,
    Parquet,
    Calls,
}

/// The result of writing.
#[derive(Default)]
struct Written {
    records: u64,
    left_out: u64,
    timing: Timing,
    /// Other counts.
    others: OtherCounts,
    /// Devices that repeat requests of other devices; their requests were written as well.
    twice: Vec<LeftOut>,
}

/// Why conversion ended early.
enum Broken {
    Trace(TraceError),
    Output(io::Error),
}

impl From<TraceError> for Broken {
    fn from(e: TraceError) -> Self {
        Broken::Trace(e)
    }
}

impl From<io::Error> for Broken {
    fn from(e: io::Error) -> Self {
        Broken::Output(e)
    }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    if args.to == To::Parquet && args.output.is_none() {
        return Err(Failure::usage("parquet is a binary format; give --output FILE"));
    }
    if as_json && args.output.is_none() {
        return Err(Failure::usage("--json and the recording cannot both go to standard output; give --output FILE"));
    }
    if let Some(file) = &args.output {
        args.files().try_for_each(|read| whole::apart("--output", file, read))?;
    }
    if args.to == To::Calls {
        if let Some(option) = args.session.session().given() {
            return Err(Failure::usage(format!("{option}: --to calls always writes the whole recording")));
        }
        if !args.further.is_empty() {
            return Err(Failure::usage("--to calls writes one recording; give one file"));
        }
        if args.clear || !args.of.typed().is_empty() {
            return Err(Failure::usage(
                "--clear and --of are for recordings of a block device; --to calls is for recordings of calls",
            ));
        }
        return without_contents(args, as_json);
    }
    let opening::Recorded { opened, length } = open(args)?;
    let contents_left_out = matches!(&opened, Opened::Calls(calls) if calls.format() == Format::JouleRec)
        && recording::calls(&args.file).is_ok_and(|calls| calls.is_some_and(|(events, _)| events.has_contents()));
    let of_blocks_only = [("--clear", args.clear), ("--of", !args.of.typed().is_empty())];
    if let (Some((option, _)), Opened::Calls(_)) = (of_blocks_only.iter().find(|(_, given)| *given), &opened) {
        let file = args.file.display();
        return Err(Failure::usage(format!(
            "{file}: a recording of calls; {option} is for recordings of a block \
            device"
        )));
    }
    match &opened {
        Opened::Calls(_) if args.to != To::Parquet => {
            return Err(Failure::usage(format!(
                "{}: a recording of calls; give --to parquet, or --to calls for a JouleFS recording",
                args.file.display()
            )));
        }
        Opened::Power(_) => {
            return Err(Error::of_kind(&args.file, "a meter", "requests to a block device, or of calls").into());
        }
        _ => {}
    }
    let left_out = match args.to {
        To::Iolog | To::Iolog2 => told_again(args)?,
        _ => Vec::new(),
    };
    let (bar, moved) = recorded::bar(length, "converting");
    let named = |e: &io::Error| match &args.output {
        Some(file) => format!("{}: {e}", file.display()),
        None => format!("standard output: {e}"),
    };
    let mut part = None;
    let out: Box<dyn Write + Send> = match &args.output {
        None => Box::new(io::stdout()),
        Some(file) if whole::is_plain(file) => {
            let (made, open) = whole::Part::create(file, true).map_err(|e| named(&e))?;
            part = Some(made);
            Box::new(open)
        }
        Some(file) => Box::new(File::options().write(true).open(file).map_err(|e| named(&e))?),
    };
    let mut written = Written::default();
    let done = convert(opened, args, BufWriter::with_capacity(1 << 20, out), &left_out, &mut written, &moved);
    bar.finish_and_clear();
    if let (Ok(None), 0, [first, ..]) = (&done, written.records, args.of.typed()) {
        return Err(no_device(args, first));
    }
    let kept = match &done {
        Ok(damage) => damage.is_none() || args.until_damage,
        Err(_) => false,
    };
    if let Some(part) = part.filter(|_| kept) {
        part.finish().map_err(|e| named(&e))?;
    }
    let damage = match done {
        Ok(damage) => damage,
        // The reader closed the pipe: no failure.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe && args.output.is_none() => return Ok(ExitCode::SUCCESS),
        Err(e) => return Err(named(&e).into()),
    };
    if let (Some(e), false) = (&damage, args.until_damage) {
        return Err(e.to_string().into());
    }
    output::done(
        as_json,
        &json!({
            "records": written.records,
            "left_out": written.left_out,
            "contents_left_out": contents_left_out,
            "cleared": args.clear,
            "requests_told_again": counted(&written, [TOLD_AGAIN, TOLD_AGAIN_KEPT]),
            "discards_told_as_reads": counted(&written, [DISCARDS, DISCARDS_KEPT]),
            "devices_left_out": of_devices::json(&left_out),
            "devices_written_twice": of_devices::json(&written.twice),
            "timing": json!(written.timing),
            "damage": damage.as_ref().map(ToString::to_string),
        }),
    );
    if !as_json {
        let notes = notes::of_timing(&written.timing).into_iter().chain(trace::invalid_lines(&written.others));
        notes.for_each(|what| output::warn(&what));
        notes::of_left_out(&left_out).iter().for_each(|what| output::warn(what));
        for twice in &written.twice {
            let (n, device, why) = (twice.count, twice.device, twice.reason());
            output::warn(&format!(
                "{n} requests of {device} are written too, although it {why}; read from a file, or select devices with \
                 --of"
            ));
        }
        told_otherwise(args, &written).iter().for_each(|what| output::warn(what));
    }
    if contents_left_out && !as_json {
        output::warn(LEFT_OUT);
    }
    if written.left_out > 0 && !as_json {
        output::warn(&format!("{} requests skipped that the format cannot express", written.left_out));
    }
    Ok(recorded::end(damage.as_ref(), as_json))
}

/// The recording, restricted to the devices and requests to write.
fn open(args: &Args) -> Result<opening::Recorded, Failure> {
    let clear = args.clear;
    let seen = |events| -> Box<dyn Events> {
        Box::new(if clear { Cleared::new(events) } else { Cleared::only_counted(events) })
    };
    let opening::Recorded { opened, length } = opening::open_as(&args.file, &args.part()?, seen)?;
    let devices = args.of.devices()?;
    let opened = match opened {
        Opened::Blocks(events) if !devices.is_empty() => Opened::Blocks(Box::new(Only::new(events, devices))),
        other => other,
    };
    Ok(opening::Recorded { opened, length })
}

/// The devices that repeat requests of other devices. None if the recording cannot be read twice, or if devices were
/// selected.
fn told_again(args: &Args) -> Result<Vec<LeftOut>, Failure> {
    if !args.of.typed().is_empty() || args.files().any(|file| opening::again(file).is_err()) {
        return Ok(Vec::new());
    }
    let opening::Recorded { opened, length } = open(args)?;
    let Opened::Blocks(events) = opened else { return Ok(Vec::new()) };
    if !events.format().has_the_kernels_numbers() {
        return Ok(Vec::new());
    }
    let mut requests = Requests::new(events);
    let (bar, moved) = recorded::bar(length, "looking");
    let mut seen = 0_u64;
    // Damage is reported when it is met again.
    while let Ok(Some(_)) = requests.seen() {
        seen += 1;
        if seen.is_multiple_of(1 << 14) {
            moved(requests.events().consumed());
        }
    }
    bar.finish_and_clear();
    Ok(requests.left_out().into_iter().filter(LeftOut::has_requests).collect())
}

/// Error: the selected devices have no requests.
fn no_device(args: &Args, text: &str) -> Failure {
    let all = || -> Result<Requests, Failure> {
        opening::again(&args.file)?;
        Ok(opening::requests(&args.file, &args.part()?)?.0)
    };
    match all() {
        Ok(mut all) => {
            while let Ok(Some(_)) = all.seen() {}
            devices::not_there(&args.file, text, &all).into()
        }
        Err(_) => Failure::Usage(format!("--of {text}: {}: this device has no requests", args.file.display())),
    }
}

fn counted(written: &Written, names: [&str; 2]) -> u64 {
    names.iter().filter_map(|name| written.others.get(*name)).sum()
}

/// The message about corrected or kept defects of the recording.
fn told_otherwise(args: &Args, written: &Written) -> Option<String> {
    let again = counted(written, [TOLD_AGAIN, TOLD_AGAIN_KEPT]);
    let discards = counted(written, [DISCARDS, DISCARDS_KEPT]);
    match (again, discards, args.clear) {
        (0, 0, false) => None,
        (0, 0, true) => Some("no duplicate requests, and no discards marked as reads".into()),
        (_, _, true) => {
            Some(format!("{again} duplicate requests skipped, {discards} discards marked as reads corrected"))
        }
        (_, _, false) => Some(format!(
            "{again} duplicate requests and {discards} discards marked as reads kept; --clear removes and corrects \
             them, as a replay does"
        )),
    }
}

/// The message after a recording with contents was converted.
const LEFT_OUT: &str = "file contents are removed; names, lengths and times are kept";

/// Converts a JouleFS recording of calls to one without contents.
fn without_contents(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    let Some(file) = &args.output else {
        return Err(Failure::usage("a recording is binary; give --output FILE"));
    };
    let Some((events, _)) = recording::calls(&args.file).map_err(|e| e.to_string())? else {
        let why = "not a JouleFS recording of calls (joulefs mount --record); --to calls is for these";
        return Err(Failure::Usage(format!("{}: {why}", args.file.display())));
    };
    let contents_left_out = events.has_contents();
    let named = |e: io::Error| format!("{}: {e}", file.display());
    let (part, out) = whole::Part::create(file, true).map_err(named)?;
    let (records, damage) = match calls::without_contents(events, BufWriter::with_capacity(1 << 20, out)) {
        Ok(records) => (records, None),
        Err(StripError::Output(e)) => return Err(named(e).into()),
        Err(StripError::Recording(e)) => (0, Some(recording::damage(&args.file, &e))),
    };
    if let (Some(e), false) = (&damage, args.until_damage) {
        return Err(e.to_string().into());
    }
    part.finish().map_err(named)?;
    let said = json!({
        "records": records,
        "contents_left_out": contents_left_out,
        "damage": damage.as_ref().map(ToString::to_string),
    });
    output::done(as_json, &said);
    if contents_left_out && !as_json {
        output::warn(LEFT_OUT);
    }
    Ok(recorded::end(damage.as_ref(), as_json))
}

type Out = BufWriter<Box<dyn Write + Send>>;

/// Writes everything; returns an error in the recording together with what was written before it.
fn convert(
    opened: Opened,
    args: &Args,
    out: Out,
    left_out: &[LeftOut],
    written: &mut Written,
    moved: &dyn Fn(u64),
) -> io::Result<Option<TraceError>> {
    let (to, until_damage) = (args.to, args.until_damage);
    // Whether the output for a damaged recording is ended properly.
    let ended = |done: Result<(), Broken>| match done {
        Ok(()) => Ok((None, true)),
        Err(Broken::Trace(e)) => Ok((Some(e), until_damage)),
        Err(Broken::Output(e)) => Err(e),
    };
    let (damage, mut out) = match opened {
        // Refused before anything is written.
        Opened::Power(_) => return Ok(None),
        Opened::Calls(mut calls) => {
            let mut writer = parquet::Calls::new(out, calls.format())?;
            let (damage, end) = ended(all_calls(&mut *calls, &mut writer, written, moved))?;
            if !end {
                return Ok(damage);
            }
            (damage, writer.finish()?)
        }
        Opened::Blocks(mut events) => match to {
            To::Parquet => {
                let mut writer = parquet::Blocks::new(out, events.format())?;
                let (damage, end) =
                    ended(each(&mut *events, written, moved, |event, events| writer.event(event, events)))?;
                if !end {
                    return Ok(damage);
                }
                (damage, writer.finish()?)
            }
            To::Blkparse => {
                let mut writer = blkparse::Writer::new(out);
                let done = each(&mut *events, written, moved, |event, events| writer.event(event, events.names()));
                (ended(done)?.0, writer.finish()?)
            }
            // Handled elsewhere.
            To::Calls => return Ok(None),
            To::Iolog | To::Iolog2 => {
                let version = if to == To::Iolog { fio_iolog::Version::V3 } else { fio_iolog::Version::V2 };
                let mut writer = fio_iolog::Writer::new(out, version)?;
                let mut requests = Requests::new(events).without(left_out.iter().map(|l| l.device));
                let done = all_requests(&mut requests, &mut writer, written, moved);
                written.left_out = writer.left_out();
                written.others = requests.other_counts().clone();
                if args.of.typed().is_empty() {
                    let twice = |l: &LeftOut| l.has_requests() && !requests.is_without(&l.device);
                    written.twice = requests.left_out().into_iter().filter(twice).collect();
                }
                (ended(done)?.0, writer.finish()?)
            }
        },
    };
    out.flush()?;
    Ok(damage)
}

fn each(
    events: &mut dyn Events,
    written: &mut Written,
    moved: &dyn Fn(u64),
    mut write: impl FnMut(&trace::block::Event, &dyn Events) -> io::Result<()>,
) -> Result<(), Broken> {
    let read = loop {
        match events.next() {
            Ok(Some(event)) => write(&event, events)?,
            Ok(None) => break Ok(()),
            Err(e) => break Err(e.into()),
        }
        written.records += 1;
        if written.records.is_multiple_of(1 << 14) {
            moved(events.consumed());
        }
    };
    written.timing = events.timing();
    written.others = events.other_counts().clone();
    read
}

fn all_requests(
    requests: &mut Requests,
    writer: &mut fio_iolog::Writer<Out>,
    written: &mut Written,
    moved: &dyn Fn(u64),
) -> Result<(), Broken> {
    while let Some(seen) = requests.seen()? {
        let Seen::Asked(request) = seen else { continue };
        writer.request(&request, |id| requests.events().device(id))?;
        written.records += 1;
        if written.records.is_multiple_of(1 << 14) {
            moved(requests.events().consumed());
        }
    }
    written.timing = requests.events().timing();
    Ok(())
}

fn all_calls(
    calls: &mut dyn Calls,
    writer: &mut parquet::Calls<Out>,
    written: &mut Written,
    moved: &dyn Fn(u64),
) -> Result<(), Broken> {
    while let Some(call) = calls.next()? {
        writer.call(&call)?;
        written.records += 1;
        if written.records.is_multiple_of(1 << 14) {
            moved(calls.consumed());
        }
    }
    written.timing = calls.timing();
    written.others = calls.other_counts().clone();
    Ok(())
}
