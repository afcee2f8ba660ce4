//! `joulefs energy measure`: how much energy does a command use, according to the counters of this machine?
//!
//! Signals are passed on to the command, and its exit code is returned. `trace::rapl` reads the counters.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use device::clock::{Clock, RealClock};
use device::energy::{Energy, Nanos, Power};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use trace::rapl::{Counters, POWERCAP};
use trace::read::joules_csv;

use crate::table::{self, Table};
use crate::{Failure, joules, output, whole};

/// Measure a command's energy with the processor's counters (RAPL).
///
/// For each domain that the machine has (package, core, dram, psys): joules and mean power while the command ran.
/// Everything else that runs at the same time is counted too; --idle first measures the machine at rest and prints the
/// cost above that. No domain covers a storage device: to measure a disk, use a meter in its power supply (joulefs
/// energy diff).
///
/// The table goes to standard error, JSON (--json) to standard output after the command's own output. The exit code is
/// that of the command; 126 or 127 if it cannot be started, 128 plus the signal number if a signal ended it, 1 if the
/// machine has no counters.
///
/// Since CVE-2020-8694 only root may read the counters.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    sudo joulefs energy measure -- make -j4\n  \
    sudo joulefs energy measure --idle 10 --json -- cp -r photos /mnt\n  \
    sudo joulefs energy measure --output run-1.csv -- fio job.fio    # for joulefs energy diff")]
pub struct Args {
    /// Milliseconds between two readings of the counters (1 to 10000).
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    interval: u64,
    /// Write the readings to a CSV file for joulefs energy diff: seconds, joules by domain.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Seconds to measure the machine at rest first.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    idle: Option<u64>,
    /// Directory of the counters.
    #[arg(long, value_name = "DIR", default_value = POWERCAP)]
    powercap: PathBuf,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Joules by domain, and the elapsed time.
struct Spent {
    joules: Vec<f64>,
    seconds: f64,
    readings: u64,
}

/// Reads the counters repeatedly.
struct Gauge {
    counters: Counters,
    clock: RealClock,
    readings: u64,
    file: Option<(PathBuf, BufWriter<File>)>,
}

impl Gauge {
    /// Starts counting.
    fn open(args: &Args, output: Option<&PathBuf>) -> Result<Self, Failure> {
        let counters = Counters::open(&args.powercap).map_err(|e| e.to_string())?;
        let clock = RealClock::new();
        let file = output.map(|path| match File::create(path) {
            Ok(file) => Ok((path.clone(), BufWriter::new(file))),
            Err(e) => Err(format!("{}: {e}", path.display())),
        });
        let mut gauge = Gauge { counters, clock, readings: 1, file: file.transpose()? };
        let header = joules_csv::header(gauge.counters.names());
        let row = joules_csv::row(0, gauge.counters.joules());
        gauge.write(&(header + &row))?;
        Ok(gauge)
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        Ok(file.write_all(text.as_bytes()).map_err(|e| format!("{}: {e}", path.display()))?)
    }

    /// Reads once more.
    fn read(&mut self) -> Result<(), Failure> {
        self.counters.read().map_err(|e| e.to_string())?;
        self.readings += 1;
        let row = joules_csv::row(self.clock.monotonic().as_nanos() as u64, self.counters.joules());
        self.write(&row)
    }

    /// Takes the last reading.
    fn finish(mut self) -> Result<Spent, Failure> {
        self.read()?;
        let seconds = self.clock.monotonic().as_secs_f64();
        if let Some((path, file)) = &mut self.file {
            file.flush().map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(Spent { joules: self.counters.joules().collect(), seconds, readings: self.readings })
    }
}

/// Signals to handle: Ctrl-C reaches the command as well, the others are passed on to it.
struct Signals {
    ends: Vec<(Signal, Arc<AtomicBool>)>,
}

impl Signals {
    fn catch() -> Result<Self, Failure> {
        let catch = |number| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(number, flag.clone()).map_err(|e| format!("signals: {e}"))?;
            Ok::<_, Failure>(flag)
        };
        catch(signal_hook::consts::SIGINT)?;
        let ends = [(Signal::TERM, signal_hook::consts::SIGTERM), (Signal::HUP, signal_hook::consts::SIGHUP)];
        let ends = ends.into_iter().map(|(signal, number)| Ok((signal, catch(number)?)));
        Ok(Signals { ends: ends.collect::<Result<_, Failure>>()? })
    }

    fn pass_on(&self, child: Pid) {
        for (signal, flag) in &self.ends {
            if flag.swap(false, Ordering::Relaxed) {
                // The command may have ended meanwhile.
                let _ = rustix::process::kill_process(child, *signal);
            }
        }
    }
}

/// Maximum delay before a signal is passed on.
const LOOK: Duration = Duration::from_millis(100);

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    let interval = Duration::from_millis(args.interval);
    let idle = match args.idle {
        Some(seconds) => {
            let mut gauge = Gauge::open(args, None)?;
            let until = Duration::from_secs(seconds);
            while let Some(left) = until.checked_sub(gauge.clock.monotonic()).filter(|left| !left.is_zero()) {
                thread::sleep(left.min(interval));
                gauge.read()?;
            }
            Some(gauge.finish()?)
        }
        None => None,
    };
    let signals = Signals::catch()?;
    let [program, arguments @ ..] = args.command.as_slice() else { return Err(Failure::usage("no command")) };
    let mut gauge = Gauge::open(args, args.output.as_ref())?;
    let child = match Command::new(program).args(arguments).spawn() {
        Ok(child) => child,
        Err(e) => {
            // The command never ran: the file would be empty.
            if let Some((path, _)) = gauge.file.take().filter(|(path, _)| whole::is_plain(path)) {
                let _ = std::fs::remove_file(path);
            }
            output::failure(&format!("{}: {e}", program.display()), as_json);
            return Ok(ExitCode::from(if e.kind() == ErrorKind::NotFound { 127 } else { 126 }));
        }
    };
    let (watched, status) = watch(child, &mut gauge, interval, &signals);
    let status = status.map_err(|e| format!("{}: {e}", program.display()))?;
    let spent = watched.and_then(|()| finished(gauge));
    let (spent, names) = match spent {
        Ok(spent) => spent,
        Err(why) => {
            output::failure(why.text(), as_json);
            return Ok(if status.success() { ExitCode::FAILURE } else { code(status) });
        }
    };
    if as_json {
        output::print(&as_value(args, &names, &spent, idle.as_ref(), status));
    } else {
        output::aside(&table(&names, &spent, idle.as_ref()));
    }
    Ok(code(status))
}

fn finished(gauge: Gauge) -> Result<(Spent, Vec<String>), Failure> {
    let names = gauge.counters.names().map(str::to_owned).collect();
    Ok((gauge.finish()?, names))
}

/// Reads the counters until the command ends; waits for the command even if they cannot be read.
fn watch(
    mut child: Child,
    gauge: &mut Gauge,
    interval: Duration,
    signals: &Signals,
) -> (Result<(), Failure>, io::Result<ExitStatus>) {
    let pid = Pid::from_child(&child);
    let (tell, told) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let status = child.wait();
        // Fails if the reading thread has given up; then the notice is not needed.
        let _ = tell.send(());
        status
    });
    let mut due = interval;
    let mut failed = Ok(());
    while told.recv_timeout(due.saturating_sub(gauge.clock.monotonic()).min(LOOK)) == Err(RecvTimeoutError::Timeout) {
        signals.pass_on(pid);
        if gauge.clock.monotonic() >= due {
            failed = failed.and_then(|()| gauge.read());
            due = gauge.clock.monotonic() + interval;
        }
    }
    let status = waiting.join().unwrap_or_else(|_| {
        Err(io::Error::other(
            "the thread that waits for the command \
        ended",
        ))
    });
    (failed, status)
}

fn code(status: ExitStatus) -> ExitCode {
    let number = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    ExitCode::from(u8::try_from(number).unwrap_or(1))
}

impl Spent {
    fn watts(&self, domain: usize) -> f64 {
        if self.seconds > 0.0 { self.joules[domain] / self.seconds } else { 0.0 }
    }

    /// Joules above those of the idle machine in the same time.
    fn above(&self, idle: &Spent, domain: usize) -> f64 {
        self.joules[domain] - idle.watts(domain) * self.seconds
    }
}

fn table(names: &[String], spent: &Spent, idle: Option<&Spent>) -> String {
    let columns = [table::text("domain"), table::number("J").least(12), table::number("mean W").least(10)];
    let at_rest = [table::number("at rest W").least(10), table::number("above rest J").least(14)];
    let mut table = Table::new(columns.into_iter().chain(at_rest.into_iter().filter(|_| idle.is_some())));
    for (n, name) in names.iter().enumerate() {
        let above = idle.map(|idle| [idle.watts(n), spent.above(idle, n)]);
        let numbers = [spent.joules[n], spent.watts(n)].into_iter().chain(above.into_iter().flatten());
        table.cells([name.clone()].into_iter().chain(numbers.map(|x| format!("{x:.3}"))));
    }
    format!("\n{}", table.text()) + &format!("\nin {:.3} s, {} readings", spent.seconds, spent.readings)
}

fn as_value(args: &Args, names: &[String], spent: &Spent, idle: Option<&Spent>, status: ExitStatus) -> Value {
    let domain = |(n, name): (usize, &String)| {
        let mut domain = json!({
            "name": name, "pj": Energy::from_joules(spent.joules[n]), "mean_uw": Power::from_watts(spent.watts(n)),
        });
        if let Some(idle) = idle {
            domain["idle_uw"] = json!(Power::from_watts(idle.watts(n)));
            domain["above_idle_pj"] = json!(joules::picojoules(spent.above(idle, n)));
        }
        domain
    };
    let command: Vec<_> = args.command.iter().map(|a| a.to_string_lossy()).collect();
    json!({
        "command": command,
        "exit_code": status.code(),
        "signal": status.signal(),
        "time_ns": Nanos::from_seconds(spent.seconds),
        "idle_ns": idle.map(|i| Nanos::from_seconds(i.seconds)),
        "readings": spent.readings,
        "domains": names.iter().enumerate().map(domain).collect::<Value>(),
    })
}
