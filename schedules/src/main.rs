//! Schedules from the command line: one again, many, or fresh ones until told to stop.

use std::collections::HashSet;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::{Parser, Subcommand};
use device::{Clock, RealClock};
use joulefs_schedules::{Case, Failure, Outcome, run, run_and_keep, shrink};

/// Threads, faults and power cuts on a small volume, each case decided by one seed.
///
/// Example: schedules run 10000
#[derive(Parser)]
#[command(name = "schedules")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs seeds one after the other.
    Run {
        /// How many.
        count: u64,
        /// The first.
        #[arg(long, default_value_t = 0)]
        from: u64,
    },
    /// Runs fresh seeds until interrupted.
    Soak {
        /// The first; drawn by the system if not given.
        #[arg(long)]
        from: Option<u64>,
    },
    /// Runs one case again, and says what is wrong with it and how long it took.
    Replay {
        /// Its seed.
        seed: u64,
        /// The schedule's seed, if it is another.
        #[arg(long)]
        schedule: Option<u64>,
        /// Only these operations.
        #[arg(long, value_delimiter = ',')]
        only: Option<Vec<usize>>,
        /// Shows the operations first.
        #[arg(long)]
        show: bool,
        /// Keeps the image that is left in this file.
        #[arg(long)]
        image: Option<std::path::PathBuf>,
        /// Looks for a smaller case that fails too.
        #[arg(long)]
        shrink: bool,
    },
}

/// What a run came to so far.
#[derive(Default)]
struct Sum {
    cases: u64,
    calls: u64,
    choices: u64,
    failures: u64,
    schedules: HashSet<u64>,
    crashes: HashSet<u64>,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.calls += outcome.calls as u64;
        self.choices += outcome.chosen.choices;
        self.schedules.insert(outcome.chosen.digest);
        if let Some(first) = outcome.digest.first_chunk().filter(|_| outcome.cut) {
            self.crashes.insert(u64::from_le_bytes(*first));
        }
    }
}

fn locked(sum: &Mutex<Sum>) -> MutexGuard<'_, Sum> {
    sum.lock().unwrap_or_else(PoisonError::into_inner)
}

fn told(failure: &Failure) {
    println!("{}\n    target/release/schedules replay {}", failure.what, failure.case);
    let _ = std::io::stdout().flush();
}

/// Runs seeds from `from` on, on all processors, until there are `count` or somebody says stop.
fn many(from: u64, count: u64, stop: &Arc<AtomicBool>) -> ExitCode {
    let (clock, sum, next) = (RealClock::new(), Mutex::new(Sum::default()), AtomicU64::new(0));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| {
        for _ in 0..workers {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    let n = next.fetch_add(1, Relaxed);
                    if n >= count {
                        break;
                    }
                    let out = run(&Case::new(from.wrapping_add(n)));
                    let mut sum = locked(&sum);
                    sum.cases += 1;
                    match out {
                        Ok(outcome) => sum.add(&outcome),
                        Err(failure) => {
                            sum.failures += 1;
                            told(&failure);
                        }
                    }
                }
            });
        }
    });
    let (sum, seconds) = (locked(&sum), clock.monotonic().as_secs_f64());
    println!(
        "{} schedules from seed {from}, {} of them distinct, {} distinct crash states; {} calls, {} choices; {} failures; {:.0} a second",
        sum.cases,
        sum.schedules.len(),
        sum.crashes.len(),
        sum.calls,
        sum.choices,
        sum.failures,
        sum.cases as f64 / seconds.max(1e-9),
    );
    if sum.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second one ends the program at once.
        let at_once = signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone());
        if let Err(e) = at_once.and_then(|_| signal_hook::flag::register(signal, stop.clone())) {
            eprintln!("schedules: signal {signal}: {e}");
        }
    }
    match Args::parse().what {
        What::Run { count, from } => many(from, count, &stop),
        What::Soak { from } => {
            let fresh = || device::rng::entropy().map(|b| u64::from_le_bytes(*b.first_chunk().unwrap_or(&[0; 8])) >> 16);
            match from.map_or_else(fresh, Ok) {
                Ok(from) => many(from, u64::MAX, &stop),
                Err(e) => {
                    eprintln!("schedules: no seed from the system ({e}); name one with --from");
                    ExitCode::FAILURE
                }
            }
        }
        What::Replay { seed, schedule, only, show, image, shrink: smaller } => {
            let case = Case { seed, schedule, only };
            if show {
                println!("{:#?}", joulefs_schedules::course::Course::of(&case));
            }
            match run_and_keep(&case) {
                Ok((outcome, left)) => {
                    println!("{case}: nothing found; {outcome:?}");
                    if let Some(Err(e)) = image.map(|file| left.save(file)) {
                        eprintln!("schedules: the image cannot be kept: {e}");
                        return ExitCode::FAILURE;
                    }
                    ExitCode::SUCCESS
                }
                Err(failure) => {
                    told(&failure);
                    if smaller {
                        told(&shrink::shrink(&failure, || stop.load(Relaxed)));
                    }
                    ExitCode::FAILURE
                }
            }
        }
    }
}
