//! `joulefs energy`: what do devices cost, and how is that determined? One file per subcommand.

mod diff;
mod fit;
mod fit_watts;
mod measure;
mod nvme;
mod of_trace;
mod profiles;

use std::process::ExitCode;

use clap::Subcommand;

use crate::Failure;

/// Compute and measure the energy of storage devices.
///
/// With TRACE, a recording of a block device: compute the energy of its requests on a device in two ways, and print
/// the difference. By a table, as in Mohan et al. (HotStorage'17): contiguous requests between two flushes are merged,
/// those below 32 KB count as random, and each kind has the price of the same kind of file I/O. By simulation: every
/// request is replayed at its recorded time on the simulated device.
///
/// The table's prices are those of file operations and include the file system's own I/O. A block trace contains that
/// I/O already, so the table counts it twice; the simulation counts it once.
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
