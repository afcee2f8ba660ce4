//! `joulefs energy`: what do devices cost, and how is that found out? One file a subcommand.

mod diff;
mod fit;
mod measure;
mod nvme;
mod of_trace;
mod profiles;

use std::process::ExitCode;

use clap::Subcommand;

use crate::Failure;

/// What devices cost: price a recording, list profiles, show one, fit one to measurements, make one of an NVMe drive's power
/// states, measure, compare measured runs.
///
/// With a recording of a block device, TRACE: what its requests cost on a device, found in two ways that are printed with
/// their difference. By a table, as Mohan et al. (HotStorage'17): requests that continue each other between two flushes are
/// merged, what stays below 32 KB is random, and each kind has the price of reading or writing files so. By
/// simulation: every request is made on the device of the profile when it was made.
///
/// The table's prices are of file operations and hold what a file system adds to them, which a block trace holds already; the
/// simulation counts it once.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  \
    joulefs energy sda.blktrace.0 --profile kirin9000-ufs31\n  \
    joulefs energy telegram_exec.csv.gz --profile galaxy-nexus-emmc --json\n  \
    joulefs energy show kirin9000-ufs31")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    of_trace: of_trace::OfTrace,
}

#[derive(Subcommand)]
enum Command {
    Profiles(profiles::ProfilesArgs),
    Show(profiles::ShowArgs),
    Fit(fit::Args),
    Measure(measure::Args),
    Diff(diff::Args),
    Nvme(nvme::Args),
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    let Some(command) = &args.command else {
        if !args.of_trace.is_given() {
            return Err(Failure::usage("name a recording, or a subcommand; see joulefs energy --help"));
        }
        return of_trace::run(&args.of_trace, as_json);
    };
    match command {
        Command::Profiles(_) => profiles::list(as_json)?,
        Command::Show(a) => profiles::show(a, as_json)?,
        Command::Fit(a) => fit::run(a, as_json)?,
        Command::Diff(a) => diff::run(a, as_json)?,
        Command::Nvme(a) => nvme::run(a, as_json)?,
        Command::Measure(a) => return measure::run(a, as_json),
    }
    Ok(ExitCode::SUCCESS)
}
