//! `joulefs trace stat`: how many requests, of which size and order, how often at the same place, when? `trace::stat`
//! counts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};
use sim::replay::opening::Part;
use sim::replay::{devices, notes, opening};
use sim::words::percent;
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
use trace::{INVALID, Opened, OtherCounts, TraceError};

use super::map_cache;
use crate::of_devices::OfArgs;
use crate::session::SessionArgs;
use crate::table::{self, Table};
use crate::{Failure, joules, output, recorded, whole};

/// Print statistics of a recording: counts, sizes, order, updates, times.
///
/// Block devices: requests are counted by issue events (D) if the start of the recording has any, otherwise by
/// completion, insertion or queueing; the table of events counts all of them, as blkparse's summary does. Contiguous
/// requests between two flushes are merged, and those still below 32 KB count as random (Mohan et al., HotStorage'17).
/// Updates are writes to addresses written before in the same recording. File systems: calls by name, sizes, fsyncs,
/// updates of files. Meters: energy and power by channel.
///
/// A request to a stacked device (device mapper, md, loop) counts once, on the lowest recorded device; the devices
/// above are listed with the reason and their number of requests. --of counts only some devices.
///
/// `--map-cache` also counts the fetches and write-backs of a flash device's mapping cache, for every cache size in one
/// pass (Ji et al., HotStorage'16, section 5.3.3): LRU over pages of 1,024 entries, without the device's write buffer.
/// `--moved LOG` counts again as if defragmentation or cleaning had moved the blocks in LOG before.
///
/// --from and --to count a part of the recording, and --max-gap shortens long pauses. Events out of time order are
/// reported, with the largest delay.
///
/// Several files are read as one recording, for example one per CPU or disk, or rotated logs. Their times must be those
/// of one clock. --columns reads any table.
///
/// A damaged or truncated recording is counted up to the damage; the error gives the position, and the exit code is 1.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs trace stat telegram_exec.csv.gz\n  \
    joulefs trace stat sda.blktrace.0 --json | jq .write_order\n  \
    joulefs trace stat machine.trace.dat --of sda --of 254,4\n  \
    joulefs trace stat disk.csv --columns time=1:us,op=2,offset=3:sector,bytes=4\n  \
    joulefs trace stat app.strace app.strace.1\n  \
    joulefs trace stat app.strace --html app.html\n  \
    joulefs trace stat phone.csv --from 1h --to 1h30m --max-gap 5s\n  \
    joulefs trace stat sda.blktrace.0 --map-cache --profile galaxy-nexus-emmc\n  \
    joulefs trace stat sda.blktrace.0 --map-cache --moved defragmented.csv --volume-at 1M")]
pub struct Args {
    /// The recording; - for standard input.
    file: PathBuf,
    /// Further files of the same recording: requests are merged by time, files of calls follow each other.
    #[arg(value_name = "FILE")]
    further: Vec<PathBuf>,
    /// Write an HTML page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    of: OfArgs,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    map: map_cache::MapArgs,
}

impl Args {
    /// The part of all files.
    fn part(&self) -> Result<Part, Failure> {
        self.session.with(&self.further).part()
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.file).chain(&self.further).map(PathBuf::as_path)
    }

    /// Fails if the files cannot be read twice.
    fn again(&self) -> Result<(), Failure> {
        Ok(self.files().try_for_each(opening::again)?)
    }
}

/// The counts by kind of recording.
enum Counted {
    Blocks(Box<BlockStat>, Option<map_cache::Counted>),
    Calls(Box<CallStat>),
    Power(PowerStat),
}

impl Counted {
    fn others(&self) -> &OtherCounts {
        match self {
            Counted::Blocks(s, _) => &s.others,
            Counted::Calls(s) => &s.others,
            Counted::Power(s) => &s.others,
        }
    }

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
        args.files().try_for_each(|file| whole::apart("--html", page, file))?;
    }
    let asked = args.map.asked()?;
    let opening::Recorded { opened, length } = opening::open_part(&args.file, &args.part()?)?;
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
    let mut said = notes::of_timing(&timing);
    said.extend(trace::invalid_lines(counted.others()));
    if let Some(file) = &args.html {
        let mut title = args.file.file_name().map_or_else(|| "recording".into(), |n| n.to_string_lossy().into_owned());
        if !said.is_empty() {
            title += &format!(" ({})", said.join("; "));
        }
        let page = match &counted {
            Counted::Blocks(s, map) => {
                let map = map.as_ref().map(|m| (&m.stat, m.own));
                sim::recording::of_blocks(&title, s, map)
            }
            Counted::Calls(s) => sim::recording::of_calls(&title, s),
            Counted::Power(s) => sim::recording::of_power(&title, s),
        };
        whole::write(file, page.map_err(|e| e.to_string())?)?;
    }
    if as_json {
        let mut value = counted.json()?;
        if !matches!(counted, Counted::Power(_)) {
            value["timing"] = json!(timing);
        }
        value["damage"] = json!(damage.as_ref().map(ToString::to_string));
        output::print(&value);
    } else {
        let text = match &counted {
            Counted::Blocks(s, map) => of_blocks(s) + &map.as_ref().map_or_else(String::new, map_cache::Counted::text),
            Counted::Calls(s) => of_calls(s),
            Counted::Power(s) => of_power(s),
        };
        // After the summary line.
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let said: String = said.iter().map(|what| format!("\n{}", output::plain(what))).collect();
        output::lines(format!("{first}{said}\n{rest}").trim_end());
    }
    Ok(recorded::end(damage.as_ref(), as_json))
}

/// The counts of a recording of block devices.
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
    let (stat, whole) = blocks::count_with(&mut requests, beside, moved);
    let timing = requests.events().timing();
    let map = asked.map(map_cache::Asked::done).transpose()?;
    Ok((Once { stat, map, timing, damage: whole.err() }, requests))
}

/// Counts the selected devices, or all but those that repeat requests of other devices. These are known only at the
/// end: then everything is counted again, if the recording can be read twice.
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
        return check_devices(args, one, &requests);
    }
    let (first, requests) = once(Requests::new(events), asked, moved)?;
    let twice: Vec<_> = requests.left_out().into_iter().filter(LeftOut::has_requests).map(|l| l.device).collect();
    if twice.is_empty() || args.again().is_err() {
        return Ok(first);
    }
    let opening::Recorded { opened, length } = opening::open_part(&args.file, &args.part()?)?;
    let Opened::Blocks(events) = opened else { return Err(opening::no_blocks(&args.file, &opened).into()) };
    let (bar, moved) = recorded::bar(length, "reading again");
    let (second, _) = once(Requests::new(events).without(twice), args.map.asked()?, moved)?;
    bar.finish_and_clear();
    Ok(second)
}

/// Fails if a selected device is not in the recording.
fn check_devices(args: &Args, one: Once, requests: &Requests) -> Result<Once, Failure> {
    for text in args.of.typed() {
        let wanted = devices::device(text)?;
        if requests.devices().any(|id| wanted.has(id, requests.events().device(id).as_deref())) {
            continue;
        }
        if args.again().is_err() {
            return Err(devices::not_there(&args.file, text, requests).into());
        }
        let (mut all, _) = opening::requests(&args.file, &args.part()?)?;
        while let Ok(Some(_)) = all.seen() {}
        return Err(devices::not_there(&args.file, text, &all).into());
    }
    Ok(one)
}

/// A table: one column of names, then numbers, each with its minimum width.
fn of_numbers<const N: usize>((name, least): (&str, usize), numbers: [(&str, usize); N]) -> Table {
    let numbers = numbers.map(|(head, least)| table::number(head).least(least));
    Table::new([table::text(name).least(least)].into_iter().chain(numbers)).between(1)
}

/// Distributions of times, if there are any.
fn spreads(out: &mut String, all: &[(String, &Spread)]) {
    if all.is_empty() {
        return;
    }
    let mut table = of_numbers(("", 16), ["mean", "min", "p50", "p99", "p99.9", "max"].map(|head| (head, 11)));
    for (what, s) in all {
        let times = [s.mean_ns as u64, s.min_ns, s.p50_ns, s.p99_ns, s.p999_ns, s.max_ns];
        table.cells([what.clone()].into_iter().chain(times.map(joules::time)));
    }
    let _ = writeln!(out, "\n{}", table.text());
}

fn write_others(out: &mut String, others: &std::collections::BTreeMap<String, u64>) {
    // Invalid lines come first, after the summary.
    let others: Vec<_> = others.iter().filter(|(name, _)| !name.starts_with(INVALID)).collect();
    if !others.is_empty() {
        let mut table = Table::new([table::number("").least(12), table::text("")]);
        others.iter().for_each(|(name, n)| table.row(&[n, &output::plain(name)]));
        let _ = writeln!(out, "\nother events:\n{}", table.text());
    }
}

fn of_blocks(s: &BlockStat) -> String {
    let when = match s.timed {
        true => format!(" in {} ({:.1} a second)", joules::time(s.span_ns), s.per_second(s.requests)),
        false => ", without times".into(),
    };
    let mut out = format!("{}: {} requests{when}, one for every event {}\n\n", s.format, s.requests, s.requests_are);
    let o = &mut out;
    let numbers = [("requests", 9), ("share", 8), ("bytes", 12), ("mean size", 11), ("largest", 11), ("continues", 10)];
    let flags = ["sync", "FUA", "metadata"].map(|head| table::number(head).least(8));
    let numbers = numbers.map(|(head, least)| table::number(head).least(least));
    let columns = [table::word("operation").least(13)].into_iter().chain(numbers).chain(flags);
    let mut table = Table::new(columns).between(1);
    for op in &s.operations {
        let n = op.sizes.count;
        let sizes = [op.sizes.bytes, op.sizes.mean() as u64, op.sizes.max].map(output::bytes);
        let shares = [op.continued, op.sync, op.fua, op.meta].map(|of| percent(of, n));
        let first = [op.op.to_owned(), n.to_string(), percent(n, s.requests)];
        table.cells(first.into_iter().chain(sizes).chain(shares));
    }
    let _ = writeln!(o, "{}", table.text());
    let random = [("random", 9), ("of runs", 8), ("bytes", 12), ("of bytes", 8), ("in order", 9), ("bytes", 12)];
    let mut table = of_numbers(("merged", 13), random);
    for (name, order) in [("reads", &s.read_order), ("writes", &s.write_order)] {
        let Share { sequential_runs, sequential_bytes, random_runs, random_bytes } = order;
        let of_runs = percent(*random_runs, random_runs + sequential_runs);
        let of_bytes = percent(*random_bytes, random_bytes + sequential_bytes);
        let [random, sequential] = [*random_bytes, *sequential_bytes].map(output::bytes);
        table.row(&[&name, random_runs, &of_runs, &random, &of_bytes, sequential_runs, &sequential]);
    }
    let _ = writeln!(o, "\n{}", table.text());
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
        "updates are {} of the bytes written, rereads {} of the bytes read",
        percent(p.overwritten, of("write")),
        percent(p.reread, of("read"))
    );
    let flushes = s.operations.iter().find(|o| o.op == "flush").map_or(0, |o| o.sizes.count);
    let _ = write!(o, "{flushes} flushes, {:.2} a second", s.per_second(flushes));
    if s.fsyncs > 0 {
        let _ = write!(o, "; {} fsyncs of a file system, {:.2} a second", s.fsyncs, s.per_second(s.fsyncs));
    }
    let _ = writeln!(o);
    let took = s.operations.iter().filter_map(|op| Some((format!("{} took", op.op), op.took.as_ref()?)));
    let between = s.between.as_ref().map(|b| ("between requests".to_owned(), b));
    spreads(o, &between.into_iter().chain(took).collect::<Vec<_>>());
    classes(o, &s.operations.iter().map(|op| (op.op, op.classes.as_slice())).collect::<Vec<_>>());
    let numbers =
        [("requests", 9), ("read", 12), ("written", 12), ("flushes", 9), ("first sector", 14), ("after last", 14)];
    let numbers = numbers.map(|(head, least)| table::number(head).least(least));
    let columns = [table::word("device").least(10)].into_iter().chain(numbers);
    let mut table = Table::new(columns.chain([table::text("")])).between(1);
    for d in &s.devices {
        let (read, written) = (output::bytes(d.read), output::bytes(d.written));
        let name = d.name.as_deref().map_or_else(String::new, |name| format!(" {}", output::plain(name)));
        table.row(&[&d.device, &d.requests, &read, &written, &d.flushes, &d.first_sector, &d.end_sector, &name]);
    }
    let _ = writeln!(o, "\n{}", table.text());
    not_counted(o, s);
    if s.processes.iter().any(|p| !p.name.is_empty()) {
        let mut table = of_numbers(("process", 24), [("requests", 9), ("read", 12), ("written", 12)]);
        for p in &s.processes {
            let (read, written) = (output::bytes(p.read), output::bytes(p.written));
            let name = if p.name.is_empty() { "<not known>".into() } else { output::plain(&p.name) };
            table.row(&[&name, &p.requests, &read, &written]);
        }
        let _ = writeln!(o, "\n{}", table.text());
    }
    let words = [table::word("event").least(6), table::word("operation").least(13)];
    let mut table =
        Table::new(words.into_iter().chain([table::number("count").least(9), table::number("KiB").least(16)]))
            .between(1);
    for e in &s.events {
        table.row(&[&e.action, &e.op, &e.count, &format!("{:.1}", e.bytes as f64 / 1024.0)]);
    }
    let _ = writeln!(o, "\n{}", table.text());
    write_others(o, &s.others);
    out
}

/// Devices that repeat requests of other devices.
fn not_counted(o: &mut String, s: &BlockStat) {
    for (counted_twice, head) in [(true, "counted twice"), (false, "not counted")] {
        let mut of_head = s.not_counted.iter().filter(|d| d.counted_twice == counted_twice).peekable();
        if of_head.peek().is_none() {
            continue;
        }
        let numbers = [table::number("count").least(6), table::number("event").least(5)];
        let columns = [table::word(head).least(13)].into_iter().chain(numbers).chain([table::text(" because it")]);
        let mut table = Table::new(columns).between(1);
        for d in of_head {
            let name = d.name.as_deref().map_or_else(String::new, |name| format!(" ({})", output::plain(name)));
            table.row(&[&d.device, &d.count, &d.event, &format!(" {}{name}", d.said)]);
        }
        let _ = writeln!(o, "\n{}", table.text());
    }
    if s.not_counted.iter().any(|d| d.counted_twice) {
        let _ = writeln!(o, "(read from a file, or give --of, to count each request once)");
    }
}

/// Sizes by power of two, one column per kind.
fn classes(o: &mut String, kinds: &[(&str, &[(u64, u64)])]) {
    let kinds: Vec<_> = kinds.iter().filter(|(_, c)| c.iter().any(|(from, _)| *from > 0)).collect();
    if kinds.is_empty() {
        return;
    }
    let mut from: Vec<u64> = kinds.iter().flat_map(|(_, c)| c.iter().map(|(f, _)| *f)).collect();
    from.sort_unstable();
    from.dedup();
    let counts = kinds.iter().map(|(name, _)| table::number(*name).least(13));
    let mut table = Table::new([table::word("size from").least(16)].into_iter().chain(counts)).between(1);
    for f in from {
        let count = |(_, c): &&(&str, &[(u64, u64)])| match c.iter().find(|(from, _)| *from == f) {
            Some((_, n)) if *n > 0 => n.to_string(),
            _ => String::new(),
        };
        table.cells([output::bytes(f)].into_iter().chain(kinds.iter().map(count)));
    }
    let _ = writeln!(o, "\n{}", table.text());
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
    let numbers = [("calls", 9), ("bytes", 12), ("mean size", 11), ("largest", 11), ("continues", 10)];
    let mut table = of_numbers(("moved", 13), numbers);
    for (name, Moved { sizes, continued, .. }) in [("read", &s.read), ("written", &s.written)] {
        let [bytes, mean, largest] = [sizes.bytes, sizes.mean() as u64, sizes.max].map(output::bytes);
        table.row(&[&name, &sizes.count, &bytes, &mean, &largest, &percent(*continued, sizes.count)]);
    }
    let _ = writeln!(o, "{}", table.text());
    let _ = writeln!(
        o,
        "\n{} files, working set {}; updates are {} of the bytes written",
        s.files,
        output::bytes(s.touched),
        percent(s.overwritten, s.written.sizes.bytes)
    );
    let _ = writeln!(o, "{} syncs, {:.2} a second", s.fsyncs, s.per_second(s.fsyncs));
    let between = s.between.as_ref().map(|b| ("between calls".to_owned(), b));
    let took = s.took.as_ref().map(|t| ("calls took".to_owned(), t));
    spreads(o, &between.into_iter().chain(took).collect::<Vec<_>>());
    classes(o, &[("read", &s.read.classes), ("write", &s.written.classes)]);
    let mut table = of_numbers(("call", 13), [("count", 9)]);
    s.operations.iter().for_each(|(name, n)| table.row(&[name, n]));
    let _ = writeln!(o, "\n{}", table.text());
    if !s.busiest.is_empty() {
        let numbers = [("read", 12), ("written", 12), ("durable", 9)].map(|(h, least)| table::number(h).least(least));
        let mut table = Table::new(numbers.into_iter().chain([table::text(" file")])).between(1);
        for f in &s.busiest {
            let (read, written) = (output::bytes(f.read), output::bytes(f.written));
            table.row(&[&read, &written, &f.syncs, &format!(" {}", output::plain(&f.path))]);
        }
        let _ = writeln!(o, "\n{}", table.text());
    }
    write_others(o, &s.others);
    out
}

/// Maximum number of channels shown to people.
const CHANNELS: usize = 50;

fn of_power(s: &PowerStat) -> String {
    let mut out = format!("{}: {} readings\n\n", s.format, s.readings);
    let o = &mut out;
    // For a meter with many processes, the costliest ones.
    let mut most: Vec<&ChannelStat> = s.channels.iter().collect();
    if most.len() > CHANNELS {
        most.sort_by(|a, b| b.joules.total_cmp(&a.joules));
        most.truncate(CHANNELS);
    }
    let numbers = [("readings", 10), ("time", 12), ("energy", 12), ("mean power", 12), ("highest", 12)];
    let mut table = of_numbers(("channel", 7), numbers);
    for c in most {
        let energy = format!("{:.3} J", c.joules);
        let [mean, highest] = [c.mean_watts, c.max_watts].map(|w| format!("{w:.4} W"));
        table.row(&[&output::plain(&c.name), &c.readings, &joules::time(c.span_ns), &energy, &mean, &highest]);
    }
    let _ = writeln!(o, "{}", table.text());
    if s.channels.len() > CHANNELS {
        let _ = writeln!(o, "{} more with less energy", s.channels.len() - CHANNELS);
    }
    write_others(o, &s.others);
    out
}
