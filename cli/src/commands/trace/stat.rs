//! `joulefs trace stat`: how much, how large, in which order, how often the same place, when? `trace::stat` counts.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use lab::report::words::percent;
use serde::Serialize;
use serde_json::{Value, json};
use trace::block::Events;
use trace::only::Only;
use trace::requests::{Request, Requests};
use trace::stacks::LeftOut;
use trace::stat::blocks::{BlockStat, OpStat};
use trace::stat::calls::{CallStat, Moved};
use trace::stat::distribution::Spread;
use trace::stat::power::{ChannelStat, PowerStat};
use trace::stat::randomness::Share;
use trace::stat::{blocks, calls, power};
use trace::timing::Timing;
use trace::{Opened, TraceError};

use super::map_cache;
use crate::of_devices::{self, OfArgs};
use crate::session::{self, SessionArgs};
use crate::{Failure, joules, output, recorded, whole};

/// Say what is in a recording: how much, how large, in which order, how often the same place, when.
///
/// Of a block device: a request is an event of its issue to the device (D) if the recording's beginning has any, else of its
/// completion, insertion or queueing; the table of events counts all of them, as blkparse's summary does. Random is
/// what stays below 32 KB after requests that continue each other between two flushes are merged (Mohan et al.,
/// HotStorage'17). Updates are writes to places written before in the same recording. Of a file system: calls by
/// name, sizes, fsyncs, updates of files. Of a meter: energy and power by channel.
///
/// What is asked of a device that passes it on to another one of the recording (device mapper, md, a loop device) counts once,
/// where the lowest is asked; the others are shown with why and how often. --of counts some devices only.
///
/// With `--map-cache` also what a flash device's mapping cache would fetch and write back for these requests, for every size
/// it could have, in one pass (Ji et al., HotStorage'16, section 5.3.3): LRU over pages of 1,024 entries, without the device's
/// write buffer. With `--moved LOG` the same once more, as if what defragmentation or cleaning moved had moved before.
///
/// --from and --to count a part of the recording, and --max-gap the time without its long pauses; what the recording tells
/// out of order of time is said, with how far.
///
/// A recording that is damaged or cut short is counted up to there and the error names the place; the exit code is 1.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs trace stat telegram_exec.csv.gz\n  \
    joulefs trace stat sda.blktrace.0 --json | jq .write_order\n  \
    joulefs trace stat machine.trace.dat --of sda --of 254,4\n  \
    joulefs trace stat app.strace --html app.html\n  \
    joulefs trace stat phone.csv --from 1h --to 1h30m --max-gap 5s\n  \
    joulefs trace stat sda.blktrace.0 --map-cache --profile galaxy-nexus-emmc\n  \
    joulefs trace stat sda.blktrace.0 --map-cache --moved defragmented.csv --volume-at 1M")]
pub struct Args {
    /// The recording; - is standard input.
    file: PathBuf,
    /// Write a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    of: OfArgs,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    map: map_cache::MapArgs,
}

/// What was counted, of whichever kind.
enum Counted {
    Blocks(Box<BlockStat>, Option<map_cache::Counted>),
    Calls(Box<CallStat>),
    Power(PowerStat),
}

impl Counted {
    fn json(&self) -> Result<Value, Failure> {
        fn value(of: &str, stat: impl Serialize) -> Result<Value, Failure> {
            let mut value = serde_json::to_value(stat).map_err(|e| e.to_string())?;
            value["of"] = json!(of);
            Ok(value)
        }
        match self {
            Counted::Blocks(s, map) => {
                let mut value = value("blocks", s)?;
                if let Some(map) = map {
                    value["map_cache"] = map.json()?;
                }
                Ok(value)
            }
            Counted::Calls(s) => value("calls", s),
            Counted::Power(s) => value("power", s),
        }
    }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    if let Some(page) = &args.html {
        whole::apart("--html", page, &args.file)?;
    }
    let asked = args.map.asked()?;
    let recorded::Recorded { opened, length } = recorded::open_part(&args.file, &args.session)?;
    let of_blocks_only = [("--map-cache", asked.is_some()), ("--of", !args.of.typed().is_empty())];
    if let (Some((option, _)), false) =
        (of_blocks_only.iter().find(|(_, given)| *given), matches!(opened, Opened::Blocks(_)))
    {
        return Err(Failure::usage(format!("{option} is for recordings of a block device")));
    }
    let (bar, moved) = recorded::bar(length, "reading");
    let mut timing = Timing::default();
    let (counted, damage): (_, Option<TraceError>) = match opened {
        Opened::Blocks(events) => {
            let once = blocks_of(args, events, asked, moved)?;
            timing = once.timing;
            (Counted::Blocks(Box::new(once.stat), once.map), once.damage)
        }
        Opened::Calls(mut recorded) => {
            let (stat, whole) = calls::count(&mut *recorded, moved);
            timing = recorded.timing();
            (Counted::Calls(Box::new(stat)), whole.err())
        }
        Opened::Power(mut readings) => {
            let (stat, whole) = power::count(&mut *readings, moved);
            (Counted::Power(stat), whole.err())
        }
    };
    bar.finish_and_clear();
    let said = session::said(&timing);
    if let Some(file) = &args.html {
        let mut title = args.file.file_name().map_or_else(|| "recording".into(), |n| n.to_string_lossy().into_owned());
        if !said.is_empty() {
            title += &format!(" ({})", said.join("; "));
        }
        let page = match &counted {
            Counted::Blocks(s, map) => {
                let map = map.as_ref().map(|m| (&m.stat, m.own));
                lab::report::recording::of_blocks(&title, s, map)
            }
            Counted::Calls(s) => lab::report::recording::of_calls(&title, s),
            Counted::Power(s) => lab::report::recording::of_power(&title, s),
        };
        whole::write(file, page.map_err(|e| e.to_string())?)?;
    }
    if as_json {
        let mut value = counted.json()?;
        if !matches!(counted, Counted::Power(_)) {
            value["timing"] = session::json(&timing);
        }
        value["damage"] = json!(damage.as_ref().map(ToString::to_string));
        output::print(&value);
    } else {
        let text = match &counted {
            Counted::Blocks(s, map) => of_blocks(s) + &map.as_ref().map_or_else(String::new, map_cache::Counted::text),
            Counted::Calls(s) => of_calls(s),
            Counted::Power(s) => of_power(s),
        };
        // After the line that says how much there is.
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let said: String = said.iter().map(|what| format!("\n{what}")).collect();
        output::line(format!("{first}{said}\n{rest}").trim_end());
    }
    Ok(recorded::end(damage.as_ref(), as_json))
}

/// What was counted of a recording of block devices.
struct Once {
    stat: BlockStat,
    map: Option<map_cache::Counted>,
    timing: Timing,
    damage: Option<TraceError>,
}

fn once(
    mut requests: Requests,
    mut asked: Option<map_cache::Asked>,
    moved: impl FnMut(u64),
) -> Result<(Once, Requests), Failure> {
    let beside = |request: &Request| asked.iter_mut().for_each(|a| a.maps.add(request));
    let (stat, whole) = blocks::count_beside(&mut requests, beside, moved);
    let timing = requests.events().timing();
    let map = asked.map(map_cache::Asked::done).transpose()?;
    Ok((Once { stat, map, timing, damage: whole.err() }, requests))
}

/// Counts those devices that are asked for, or all but those whose requests others tell of again. Which these are is known
/// at the end: then all is counted again, where the recording can be read twice.
fn blocks_of(
    args: &Args,
    events: Box<dyn Events>,
    asked: Option<map_cache::Asked>,
    moved: impl FnMut(u64),
) -> Result<Once, Failure> {
    let devices = args.of.devices()?;
    if !devices.is_empty() {
        let (mut one, requests) = once(Requests::new(Box::new(Only::new(events, devices))), asked, moved)?;
        one.stat.not_counted.retain(|l| !l.counted_twice);
        return there(args, one, &requests);
    }
    let (first, requests) = once(Requests::new(events), asked, moved)?;
    let twice: Vec<_> = requests.left_out().into_iter().filter(LeftOut::has_requests).map(|l| l.device).collect();
    if twice.is_empty() || recorded::again(&args.file).is_err() {
        return Ok(first);
    }
    let recorded::Recorded { opened, length } = recorded::open_part(&args.file, &args.session)?;
    let Opened::Blocks(events) = opened else { return Err(recorded::no_blocks(&args.file, &opened)) };
    let (bar, moved) = recorded::bar(length, "reading again");
    let (second, _) = once(Requests::new(events).without(twice), args.map.asked()?, moved)?;
    bar.finish_and_clear();
    Ok(second)
}

/// Fails if one of the devices that are asked for is not in the recording.
fn there(args: &Args, one: Once, requests: &Requests) -> Result<Once, Failure> {
    for text in args.of.typed() {
        let wanted = of_devices::device(text)?;
        if requests.devices().any(|id| wanted.has(id, requests.events().device(id).as_deref())) {
            continue;
        }
        if recorded::again(&args.file).is_err() {
            return Err(of_devices::not_there(&args.file, text, requests));
        }
        let (mut all, _) = recorded::requests(&args.file, &args.session)?;
        while let Ok(Some(_)) = all.seen() {}
        return Err(of_devices::not_there(&args.file, text, &all));
    }
    Ok(one)
}

fn spread(out: &mut String, what: &str, s: &Spread) {
    let _ = writeln!(
        out,
        "{what:<16} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}",
        joules::time(s.mean_ns as u64),
        joules::time(s.min_ns),
        joules::time(s.p50_ns),
        joules::time(s.p99_ns),
        joules::time(s.p999_ns),
        joules::time(s.max_ns)
    );
}

const SPREAD: &str = "                        mean         min         p50         p99       p99.9         max";

fn others(out: &mut String, others: &std::collections::BTreeMap<String, u64>) {
    if !others.is_empty() {
        let _ = writeln!(out, "\nbeside these:");
        for (name, n) in others {
            let _ = writeln!(out, "{n:>12}  {}", output::plain(name));
        }
    }
}

fn of_blocks(s: &BlockStat) -> String {
    let when = match s.timed {
        true => format!(" in {} ({:.1} a second)", joules::time(s.span_ns), s.per_second(s.requests)),
        false => ", at times that are not told".into(),
    };
    let mut out = format!("{}: {} requests{when}, one for every event {}\n\n", s.format, s.requests, s.requests_are);
    let o = &mut out;
    let _ = writeln!(
        o,
        "{:<13} {:>9} {:>8} {:>12} {:>11} {:>11} {:>10} {:>8} {:>8} {:>8}",
        "operation", "requests", "share", "bytes", "mean size", "largest", "continues", "sync", "FUA", "metadata"
    );
    for op in &s.operations {
        let n = op.sizes.count;
        let _ = writeln!(
            o,
            "{:<13} {n:>9} {:>8} {:>12} {:>11} {:>11} {:>10} {:>8} {:>8} {:>8}",
            op.op,
            percent(n, s.requests),
            output::bytes(op.sizes.bytes),
            output::bytes(op.sizes.mean() as u64),
            output::bytes(op.sizes.max),
            percent(op.continued, n),
            percent(op.sync, n),
            percent(op.fua, n),
            percent(op.meta, n),
        );
    }
    let _ = writeln!(
        o,
        "\n{:<13} {:>9} {:>8} {:>12} {:>8} {:>9} {:>12}",
        "merged", "random", "of runs", "bytes", "of bytes", "in order", "bytes"
    );
    for (name, order) in [("reads", &s.read_order), ("writes", &s.write_order)] {
        let Share { sequential_runs, sequential_bytes, random_runs, random_bytes } = order;
        let _ = writeln!(
            o,
            "{name:<13} {random_runs:>9} {:>8} {:>12} {:>8} {sequential_runs:>9} {:>12}",
            percent(*random_runs, random_runs + sequential_runs),
            output::bytes(*random_bytes),
            percent(*random_bytes, random_bytes + sequential_bytes),
            output::bytes(*sequential_bytes),
        );
    }
    let p = &s.places;
    let of = |op| s.operations.iter().find(|o: &&OpStat| o.op == op).map_or(0, |o| o.sizes.bytes);
    let _ = writeln!(
        o,
        "\nworking set {}: {} read, {} written; in {} places of 1 GiB",
        output::bytes(p.touched),
        output::bytes(p.read),
        output::bytes(p.written),
        p.regions
    );
    let _ = writeln!(
        o,
        "updates {} of what is written, read again {} of what is read",
        percent(p.overwritten, of("write")),
        percent(p.reread, of("read"))
    );
    let flushes = s.operations.iter().find(|o| o.op == "flush").map_or(0, |o| o.sizes.count);
    let _ = write!(o, "{flushes} flushes, {:.2} a second", s.per_second(flushes));
    if s.fsyncs > 0 {
        let _ = write!(o, "; {} fsyncs of a file system, {:.2} a second", s.fsyncs, s.per_second(s.fsyncs));
    }
    let _ = writeln!(o);
    if s.between.is_some() || s.operations.iter().any(|op| op.took.is_some()) {
        let _ = writeln!(o, "\n{SPREAD}");
        s.between.iter().for_each(|b| spread(o, "between requests", b));
        for op in &s.operations {
            op.took.iter().for_each(|t| spread(o, &format!("{} took", op.op), t));
        }
    }
    classes(o, &s.operations.iter().map(|op| (op.op, op.classes.as_slice())).collect::<Vec<_>>());
    let _ = writeln!(
        o,
        "\n{:<10} {:>9} {:>12} {:>12} {:>9} {:>14} {:>14}",
        "device", "requests", "read", "written", "flushes", "first sector", "after last"
    );
    for d in &s.devices {
        let (read, written) = (output::bytes(d.read), output::bytes(d.written));
        let _ = writeln!(
            o,
            "{:<10} {:>9} {read:>12} {written:>12} {:>9} {:>14} {:>14}  {}",
            d.device,
            d.requests,
            d.flushes,
            d.first_sector,
            d.end_sector,
            output::plain(d.name.as_deref().unwrap_or_default())
        );
    }
    not_counted(o, s);
    if s.processes.iter().any(|p| !p.name.is_empty()) {
        let _ = writeln!(o, "\n{:<24} {:>9} {:>12} {:>12}", "process", "requests", "read", "written");
        for p in &s.processes {
            let (read, written) = (output::bytes(p.read), output::bytes(p.written));
            let name = if p.name.is_empty() { "<not known>".into() } else { output::plain(&p.name) };
            let _ = writeln!(o, "{name:<24} {:>9} {read:>12} {written:>12}", p.requests);
        }
    }
    let _ = writeln!(o, "\n{:<6} {:<13} {:>9} {:>16}", "event", "operation", "count", "KiB");
    for e in &s.events {
        let _ = writeln!(o, "{:<6} {:<13} {:>9} {:>16.1}", e.action, e.op, e.count, e.bytes as f64 / 1024.0);
    }
    others(o, &s.others);
    out
}

/// Devices that tell of what others tell, too.
fn not_counted(o: &mut String, s: &BlockStat) {
    for (counted_twice, head) in [(true, "counted twice"), (false, "not counted")] {
        let mut of_head = s.not_counted.iter().filter(|d| d.counted_twice == counted_twice).peekable();
        if of_head.peek().is_some() {
            let _ = writeln!(o, "\n{head:<13} {:>6} {:>5}  because it", "count", "event");
        }
        for d in of_head {
            let name = d.name.as_deref().map_or_else(String::new, |name| format!(" ({})", output::plain(name)));
            let _ = writeln!(o, "{:<13} {:>6} {:>5}  {}{name}", d.device, d.count, d.event, d.said);
        }
    }
    if s.not_counted.iter().any(|d| d.counted_twice) {
        let _ = writeln!(o, "(read from a file, or with --of, what is asked once counts once)");
    }
}

/// Sizes by power of two, a column for each kind.
fn classes(o: &mut String, kinds: &[(&str, &[(u64, u64)])]) {
    let kinds: Vec<_> = kinds.iter().filter(|(_, c)| c.iter().any(|(from, _)| *from > 0)).collect();
    if kinds.is_empty() {
        return;
    }
    let mut from: Vec<u64> = kinds.iter().flat_map(|(_, c)| c.iter().map(|(f, _)| *f)).collect();
    from.sort_unstable();
    from.dedup();
    let _ = write!(o, "\n{:<16}", "size from");
    kinds.iter().for_each(|(name, _)| _ = write!(o, " {name:>13}"));
    for f in from {
        let _ = write!(o, "\n{:<16}", output::bytes(f));
        for (_, c) in &kinds {
            let n = c.iter().find(|(from, _)| *from == f).map_or(0, |(_, n)| *n);
            let _ = write!(o, " {:>13}", if n == 0 { String::new() } else { n.to_string() });
        }
    }
    let _ = writeln!(o);
}

fn of_calls(s: &CallStat) -> String {
    let mut out = format!(
        "{}: {} calls in {} ({:.1} a second) by {} threads, {} failed\n\n",
        s.format,
        s.calls,
        joules::time(s.span_ns),
        s.per_second(s.calls),
        s.threads,
        s.failed
    );
    let o = &mut out;
    let _ = writeln!(
        o,
        "{:<13} {:>9} {:>12} {:>11} {:>11} {:>10}",
        "moved", "calls", "bytes", "mean size", "largest", "continues"
    );
    for (name, Moved { sizes, continued, .. }) in [("read", &s.read), ("written", &s.written)] {
        let _ = writeln!(
            o,
            "{name:<13} {:>9} {:>12} {:>11} {:>11} {:>10}",
            sizes.count,
            output::bytes(sizes.bytes),
            output::bytes(sizes.mean() as u64),
            output::bytes(sizes.max),
            percent(*continued, sizes.count)
        );
    }
    let _ = writeln!(
        o,
        "\n{} files, working set {}; updates {} of what is written",
        s.files,
        output::bytes(s.touched),
        percent(s.overwritten, s.written.sizes.bytes)
    );
    let _ = writeln!(o, "{} times made durable, {:.2} a second", s.fsyncs, s.per_second(s.fsyncs));
    if s.between.is_some() || s.took.is_some() {
        let _ = writeln!(o, "\n{SPREAD}");
        s.between.iter().for_each(|b| spread(o, "between calls", b));
        s.took.iter().for_each(|t| spread(o, "calls took", t));
    }
    classes(o, &[("read", &s.read.classes), ("write", &s.written.classes)]);
    let _ = writeln!(o, "\n{:<13} {:>9}", "call", "count");
    for (name, n) in &s.operations {
        let _ = writeln!(o, "{name:<13} {n:>9}");
    }
    if !s.busiest.is_empty() {
        let _ = writeln!(o, "\n{:>12} {:>12} {:>9}  file", "read", "written", "durable");
        for f in &s.busiest {
            let (read, written) = (output::bytes(f.read), output::bytes(f.written));
            let _ = writeln!(o, "{read:>12} {written:>12} {:>9}  {}", f.syncs, output::plain(&f.path));
        }
    }
    others(o, &s.others);
    out
}

/// Channels that are shown to people.
const CHANNELS: usize = 50;

fn of_power(s: &PowerStat) -> String {
    let mut out = format!("{}: {} readings\n\n", s.format, s.readings);
    let o = &mut out;
    // Of a meter that knows every process, those that spent most.
    let mut most: Vec<&ChannelStat> = s.channels.iter().collect();
    if most.len() > CHANNELS {
        most.sort_by(|a, b| b.joules.total_cmp(&a.joules));
        most.truncate(CHANNELS);
    }
    let width = most.iter().map(|c| c.name.chars().count()).max().unwrap_or(0).max(7);
    let _ = writeln!(
        o,
        "{:<width$} {:>10} {:>12} {:>12} {:>12} {:>12}",
        "channel", "readings", "time", "energy", "mean power", "highest"
    );
    for c in most {
        let _ = writeln!(
            o,
            "{:<width$} {:>10} {:>12} {:>10.3} J {:>10.4} W {:>10.4} W",
            output::plain(&c.name),
            c.readings,
            joules::time(c.span_ns),
            c.joules,
            c.mean_watts,
            c.max_watts
        );
    }
    if s.channels.len() > CHANNELS {
        let _ = writeln!(o, "{} more, which spent less", s.channels.len() - CHANNELS);
    }
    others(o, &s.others);
    out
}
