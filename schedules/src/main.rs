//! Runs schedules from the command line: one again, many, or new ones until stopped.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use device::{Clock, RealClock};
use joulefs_schedules::{Case, Failure, Type, many, run_and_keep, shrink};

const HELP: &str = "\
Threads, faults and power cuts on a small volume, each case decided by one seed.

    schedules run COUNT [--from SEED]      that many seeds, one after the other
    schedules soak [--from SEED]           fresh seeds until interrupted
    schedules replay SEED [--schedule SEED] [--only N,N,...] [--show] [--shrink] [--image FILE]
                                           one case again; shows its operations, looks for a smaller one,
                                           keeps the image that is left

All of them take --type f2fs or --type scherlfs: on which file system. F2FS, unless said.

Example: schedules run 10000 --type scherlfs";

/// An error in the command line: exit code 2.
struct Usage(String);

/// What to run.
enum What {
    Help,
    Run { of: Type, count: u64, from: u64 },
    Soak { of: Type, from: Option<u64> },
    Replay { case: Case, show: bool, shrink: bool, image: Option<String> },
}

fn number(name: &str, value: Option<String>) -> Result<u64, Usage> {
    let value = value.ok_or_else(|| Usage(format!("{name} wants a number; see --help")))?;
    value.parse().map_err(|_| Usage(format!("{name} is {value:?}, which is no number")))
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<What, Usage> {
    let mut what = match args.next().as_deref() {
        None | Some("--help" | "-h") => return Ok(What::Help),
        Some("run") => What::Run { of: Type::F2fs, count: number("COUNT", args.next())?, from: 0 },
        Some("soak") => What::Soak { of: Type::F2fs, from: None },
        Some("replay") => {
            let case = Case::new(number("SEED", args.next())?);
            What::Replay { case, show: false, shrink: false, image: None }
        }
        Some(other) => return Err(Usage(format!("{other:?} is none of run, soak, replay"))),
    };
    while let Some(arg) = args.next() {
        match (arg.as_str(), &mut what) {
            ("--type", What::Run { of, .. } | What::Soak { of, .. } | What::Replay { case: Case { of, .. }, .. }) => {
                *of = match args.next().as_deref() {
                    Some("f2fs") => Type::F2fs,
                    Some("scherlfs") => Type::Scherlfs,
                    _ => return Err(Usage("--type is f2fs or scherlfs".into())),
                };
            }
            ("--from", What::Run { from, .. }) => *from = number("--from", args.next())?,
            ("--from", What::Soak { from, .. }) => *from = Some(number("--from", args.next())?),
            ("--schedule", What::Replay { case, .. }) => case.schedule = Some(number("--schedule", args.next())?),
            ("--only", What::Replay { case, .. }) => {
                let list = args.next().ok_or_else(|| Usage("--only wants numbers; see --help".into()))?;
                let parts = list.split(',').map(|n| number("--only", Some(n.to_owned())).map(|n| n as usize));
                case.only = Some(parts.collect::<Result<_, _>>()?);
            }
            ("--show", What::Replay { show, .. }) => *show = true,
            ("--shrink", What::Replay { shrink, .. }) => *shrink = true,
            ("--image", What::Replay { image, .. }) => {
                *image = Some(args.next().ok_or_else(|| Usage("--image wants a file".into()))?);
            }
            (other, _) => return Err(Usage(format!("{other:?} is not known here; see --help"))),
        }
    }
    Ok(what)
}

fn told(failure: &Failure) {
    println!("{}\n    target/release/schedules replay {}", failure.what, failure.case);
    let _ = std::io::stdout().flush();
}

/// Runs `count` seeds from `from` on, or fewer if a signal arrives.
fn run_many(of: Type, from: u64, count: u64, stop: &AtomicBool) -> ExitCode {
    let clock = RealClock::new();
    let sum = many(of, from, count, stop, &told);
    let seconds = clock.monotonic().as_secs_f64().max(1e-9);
    println!("from seed {from}: {sum}; {:.0} a second", sum.cases as f64 / seconds);
    if sum.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the program immediately.
        let at_once = signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone());
        if let Err(e) = at_once.and_then(|_| signal_hook::flag::register(signal, stop.clone())) {
            eprintln!("schedules: signal {signal}: {e}");
        }
    }
    let what = match parse(std::env::args().skip(1)) {
        Ok(what) => what,
        Err(Usage(text)) => {
            eprintln!("schedules: {text}");
            return ExitCode::from(2);
        }
    };
    match what {
        What::Help => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        What::Run { of, count, from } => run_many(of, from, count, &stop),
        What::Soak { of, from } => {
            let fresh =
                || device::rng::entropy().map(|b| u64::from_le_bytes(*b.first_chunk().unwrap_or(&[0; 8])) >> 16);
            match from.map_or_else(fresh, Ok) {
                Ok(from) => run_many(of, from, u64::MAX, &stop),
                Err(e) => {
                    eprintln!("schedules: no seed from the system ({e}); name one with --from");
                    ExitCode::FAILURE
                }
            }
        }
        What::Replay { case, show, shrink: smaller, image } => {
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
                    if show {
                        failure.history.iter().for_each(|e| println!("{e:?}"));
                    }
                    if smaller {
                        told(&shrink::shrink(&failure, || stop.load(Relaxed)));
                    }
                    ExitCode::FAILURE
                }
            }
        }
    }
}
