//! `joulefs top`: which process spends how many watts on which disk, now?
//!
//! This module reads options and keeps time; [`kernel`] and [`source`] deliver requests, `sim::traces::live` keeps the
//! accounts, [`view`] makes rows of them, [`screen`], [`machine`] and [`prometheus`] show them.

mod machine;
mod mounts;
mod prometheus;
mod record;
mod screen;
mod source;
mod terms;
mod view;

use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal, Write};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use device::clock::{Clock, RealClock};
use sim::flame::{Depth, Flame};
use sim::replay::opening;
use sim::traces::live::Accounts;
use trace::block::DeviceId;

use crate::flame::{FlameArgs, Graph, names};
use crate::interrupt::Interrupt;
use crate::{Failure, output, recorded, schema};
use host::kernel::{self, Kernel};
use mounts::Mounts;
use prometheus::Answers;
use record::Record;
use source::{Recording, Source};
use terms::Choice;
use view::{About, Note, Readings, Shown};

/// Options that concern disks.
const OF_DISKS: [&str; 8] = ["profile", "of", "from", "no_wait", "record", "most", "writeback", "flame"];

/// Show watts per process and disk, live.
///
/// The kernel's block tracepoints report every request to a disk (root only). Each request is repeated at once on a
/// simulated device of a profile, and its energy is charged to the process that made it. So the joules are those of
/// the profile's device, not of your disk, unless it is that model. Requests submitted by a kernel thread are charged
/// to the process behind them; dirty pages that the kernel writes later appear as `<writeback>`.
///
/// Simulated disks have the real size and are full of data, since the kernel does not report which blocks are in use.
/// Flash larger than --most is simulated with that size, and addresses are taken modulo it. Accounting of a disk
/// begins with its first request.
///
/// With DIR, shows the energy of JouleFS mounts by cause and by file, since the last refresh and in total, as counted
/// by their own meters: `joulefs mount IMAGE DIR --profile NAME --ledger FILE`. Only root and the user who mounted the
/// volume may read it.
///
/// --from plays a recording at its own pace instead (--no-wait: as fast as it can be read; --once: all of it, then
/// print). It uses the same devices as `joulefs trace replay`, and gives the same joules, to the picojoule.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    sudo joulefs top --profile nvme0n1=kirin9000-ufs31 --profile sda=laptop-disk-4200\n  \
    sudo joulefs top --delay 5 --count 12 --json\n  \
    sudo joulefs top --prometheus 127.0.0.1:9709 --json > /dev/null\n  \
    sudo joulefs top --record requests.txt --count 60\n  \
    joulefs top --from phone.perfetto-trace --once\n  \
    joulefs top --from phone.perfetto-trace --once --flame joules.html\n  \
    joulefs top /mnt --delay 2")]
pub struct Args {
    /// Mount points of `joulefs mount ... --profile`: show the energy of these mounts instead, by cause and by file.
    #[arg(value_name = "DIR", conflicts_with_all = OF_DISKS)]
    mounted: Vec<PathBuf>,
    /// Same as DIR; may be given several times.
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_DISKS)]
    mount: Vec<PathBuf>,
    /// Device profile to simulate: a shipped profile's name or a file, for all disks or for one (its name in /dev, or
    /// its number, e.g. 8,0); default: kirin9000-ufs31.
    #[arg(long, short, value_name = "[DISK=]NAME")]
    profile: Vec<String>,
    /// Only this disk, by name or number; may be given several times. Default: all disks except loop devices, whose
    /// requests reach a lower disk anyway.
    #[arg(long, value_name = "DISK")]
    of: Vec<String>,
    /// Print once and exit: after --delay, or after the whole recording.
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Exit after this many refreshes.
    #[arg(long, value_name = "N")]
    count: Option<NonZeroU64>,
    /// Seconds between two refreshes (0.1 to 86400).
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = delay)]
    delay: Duration,
    /// Number of processes to show, most expensive first.
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Play this recording of a block device instead, in any format of `joulefs trace`.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Play a recording as fast as possible, without waiting between refreshes.
    #[arg(long, requires = "from")]
    no_wait: bool,
    /// Record the requests to this file, in blkparse format, for `joulefs trace replay`.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    record: Option<PathBuf>,
    /// Largest flash size to simulate in full.
    #[arg(long, value_name = "SIZE", default_value = "2T", conflicts_with = "from")]
    most: String,
    /// How to attribute dirty pages that the kernel writes later.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "pages", conflicts_with = "from")]
    writeback: Writeback,
    /// Serve the same numbers as OpenMetrics text over HTTP at this address, e.g. 127.0.0.1:9709.
    #[arg(long, value_name = "ADDRESS")]
    prometheus: Option<String>,
    #[command(flatten)]
    flame: FlameArgs,
}

/// How to attribute pages that are written in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Writeback {
    /// By file, and to every process that dirtied its pages: one event per page.
    Pages,
    /// By file, and to the process that dirtied it first: one event per file.
    Files,
    /// Nothing.
    Off,
}

impl From<Writeback> for kernel::Writeback {
    fn from(asked: Writeback) -> Self {
        match asked {
            Writeback::Pages => kernel::Writeback::Pages,
            Writeback::Files => kernel::Writeback::Files,
            Writeback::Off => kernel::Writeback::Off,
        }
    }
}

fn delay(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err("give seconds from 0.1 to 86400".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Prints a refresh; false if the reader is gone.
fn print(text: &str, as_json: bool, once: bool, ended: bool) -> bool {
    let screen = !as_json && !once && std::io::stdout().is_terminal();
    let (before, after) = if screen { ("\x1b[H\x1b[J", "") } else { ("", if as_json || ended { "" } else { "\n" }) };
    let mut out = std::io::stdout().lock();
    let text = if as_json { text.to_owned() } else { output::shown(text) };
    match writeln!(out, "{before}{text}{after}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => false,
        Err(_) => {
            drop(out);
            // Reported at the end, with the exit code.
            crate::output::line("");
            false
        }
        Ok(()) => true,
    }
}

/// The state between input and output.
struct Top<'a> {
    args: &'a Args,
    as_json: bool,
    choice: Choice,
    source: Source,
    accounts: Accounts,
    about: BTreeMap<DeviceId, About>,
    /// Requests of disks that are not selected.
    others: u64,
    record: Option<Record>,
    answers: Option<Answers>,
    before: Readings,
    /// The reader of the output is gone.
    unread: bool,
}

impl Top<'_> {
    /// Replays the requests up to `until`; returns the time up to which they are complete.
    fn take(&mut self, until: u64) -> Result<u64, Failure> {
        let Top { choice, source, accounts, about, others, record, .. } = self;
        let mut failed = None;
        let to = source.take(until, |request, names| {
            let disk = request.device;
            if !accounts.has(disk) {
                match choice.terms(disk) {
                    Ok(Some((name, terms))) => {
                        about.insert(disk, About::new(name, &terms, choice.full()));
                        accounts.open(terms);
                    }
                    Ok(None) => {
                        *others += 1;
                        return;
                    }
                    Err(e) => {
                        failed.get_or_insert(e);
                        return;
                    }
                }
            }
            let made = accounts.add(&request);
            if let (Some(record), Some(made)) = (record.as_mut(), made) {
                record.add(&made, names);
            }
        })?;
        failed.map_or(Ok(to), Err)
    }

    /// Shows the spending of the last `interval` seconds.
    fn show(&mut self, now: Readings, since: f64, interval: f64, ended: bool) {
        let names = self.source.names();
        let disks = now.iter().filter_map(|(id, reading)| {
            Some(view::disk(*id, self.about.get(id)?, reading, self.before.get(id), interval, names))
        });
        let (disks, notes, damage) = (disks.collect::<Vec<_>>(), Vec::new(), None);
        let mut shown = Shown { since, interval, ended, disks, notes, damage };
        shown.notes.push(Note::new("requests_of_other_disks", "requests of other disks", self.others));
        if let Source::Kernel(kernel) = &self.source {
            shown.notes.push(Note::new("events_lost", "events lost", kernel.lost));
            shown.notes.push(Note::new("requests_told_late", "late requests", kernel.late));
            shown.notes.push(Note::new("events_of_dirty_pages_lost", "events of dirty pages lost", kernel.lost_dirty));
            shown.notes.push(Note::new(
                "pages_of_events_not_understood",
                "pages of events not parsed",
                kernel.strange.0,
            ));
        }
        if let Source::Recording(recording) = &self.source {
            shown.notes.push(Note::new(
                "events_told_out_of_order_of_time",
                "events out of time order",
                recording.late(),
            ));
            shown.damage = recording.damage.as_ref().map(ToString::to_string);
        }
        self.before = now;
        if let Some(answers) = &self.answers {
            answers.set(machine::metrics(&shown));
        }
        let text = match self.as_json {
            true => schema::line(&machine::json(&shown, self.args.rows)),
            false => screen::text(&shown, self.args.rows),
        };
        self.unread |= !print(&text, self.as_json, self.args.once, ended);
    }

    /// Replays a whole recording at once.
    fn at_once(mut self) -> Result<Self, Failure> {
        self.take(u64::MAX)?;
        let end = std::mem::take(&mut self.accounts).end().map_err(|e| e.to_string())?;
        let took = end.values().map(|r| r.took).max().unwrap_or(0);
        let took = took as f64 / 1e9;
        self.show(end, took, took, true);
        Ok(self)
    }

    /// What was spent up to the last refresh, by disk and process.
    fn graph(&self, depth: Depth) -> Graph {
        let mut flame = Flame::default();
        for (disk, reading) in &self.before {
            let name = self.about.get(disk).map_or_else(|| disk.to_string(), |about| about.name.clone());
            flame.add_below(&name, &names::of_processes(&reading.ledger, depth, self.source.names()));
        }
        Graph {
            name: "joulefs top".into(),
            flame,
            took: self.before.values().map(|r| r.took).max().unwrap_or(0),
            control: None,
        }
    }

    /// Refreshes until the count, the recording's end or a signal.
    fn go_on(mut self, interrupt: &Interrupt) -> Result<Self, Failure> {
        let clock = RealClock::new();
        let begin = self.source.begins();
        let count = if self.args.once { Some(1) } else { self.args.count.map(NonZeroU64::get) };
        let mut last = 0.0;
        for n in 1_u32.. {
            let refresh = self.args.delay.saturating_mul(n);
            if !self.args.no_wait {
                while !interrupt.came() {
                    let now = clock.monotonic();
                    if now >= refresh {
                        break;
                    }
                    self.source.wait(refresh - now);
                    self.take(begin.saturating_add(nanos(clock.monotonic().min(refresh))))?;
                }
            }
            let came = interrupt.came();
            let now = if self.args.no_wait || !came { refresh } else { clock.monotonic().min(refresh) };
            let to = self.take(begin.saturating_add(nanos(now)))?;
            let ended = came || self.unread || self.source.ended() || count.is_some_and(|c| u64::from(n) >= c);
            let readings = if ended { std::mem::take(&mut self.accounts).end() } else { self.accounts.read(to) };
            let since = now.as_secs_f64();
            self.show(readings.map_err(|e| e.to_string())?, since, since - last, ended);
            last = since;
            if ended {
                break;
            }
        }
        Ok(self)
    }
}

/// Shows the spending of JouleFS mounts, until the count, the end of the last mount or a signal.
fn of_mounts(args: &Args, dirs: &[PathBuf], as_json: bool) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::catch()?;
    let answers = args.prometheus.as_deref().map(Answers::begin).transpose()?;
    let mut mounts = Mounts::open(dirs, args.rows)?;
    let clock = RealClock::new();
    let count = if args.once { Some(1) } else { args.count.map(NonZeroU64::get) };
    let mut last = 0.0;
    for n in 1_u32.. {
        let refresh = args.delay.saturating_mul(n);
        while !interrupt.came() && clock.monotonic() < refresh {
            std::thread::sleep(source::STEP.min(refresh - clock.monotonic().min(refresh)));
        }
        mounts.refresh()?;
        let since = clock.monotonic().as_secs_f64();
        let interval = since - std::mem::replace(&mut last, since);
        let ended = interrupt.came() || mounts.ended() || count.is_some_and(|c| u64::from(n) >= c);
        if let Some(answers) = &answers {
            answers.set(mounts.metrics(interval));
        }
        let text = match as_json {
            true => schema::line(&mounts.json(since, interval, ended)),
            false => mounts.text(since, interval),
        };
        if !print(&text, as_json, args.once, ended) || ended {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    let dirs = [&args.mounted[..], &args.mount].concat();
    if !dirs.is_empty() {
        return of_mounts(args, &dirs, as_json);
    }
    let choice = Choice::new(&args.profile, &args.of, &args.most, args.from.as_deref())?;
    let flames = args.flame.files()?;
    if let Some(file) = &args.from {
        opening::again(file)?;
        flames.apart(file)?;
    }
    // Checked before anything is created that would have to be removed.
    let at_once = args.once && args.from.is_some();
    let interrupt = if at_once { None } else { Some(Interrupt::catch()?) };
    let answers = args.prometheus.as_deref().map(Answers::begin).transpose()?;
    let source = match &args.from {
        None => {
            Source::Kernel(Box::new(Kernel::listen(args.writeback.into(), output::plain).map_err(|e| e.to_string())?))
        }
        Some(file) => Source::Recording(Box::new(Recording::new(source::open(file)?))),
    };
    let record = args.record.as_deref().map(Record::create).transpose()?;
    let top = Top {
        args,
        as_json,
        choice,
        source,
        accounts: Accounts::default(),
        about: BTreeMap::new(),
        others: 0,
        record,
        answers,
        before: Readings::new(),
        unread: false,
    };
    let top = match &interrupt {
        None => top.at_once()?,
        Some(interrupt) => top.go_on(interrupt)?,
    };
    if !flames.is_empty() {
        flames.write("joulefs top", &[top.graph(flames.depth())])?;
    }
    if let (Some(record), Some(file)) = (top.record, &args.record) {
        record.finish(file, &top.about)?;
    }
    match &top.source {
        Source::Recording(recording) => Ok(recorded::end(recording.damage.as_ref(), as_json)),
        Source::Kernel(kernel) => {
            if let Some(first) = &kernel.strange.1 {
                output::warn(&format!("first unparsed page: {first}"));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
