//! `joulefs energy`: what devices cost, and how that is found out.

mod diff;
mod fit;
mod measure;
mod profiles;

use std::process::ExitCode;

use clap::Subcommand;

use crate::Failure;

/// What devices cost: list profiles, show one, fit one to measurements, measure, compare measured runs.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Profiles(profiles::ProfilesArgs),
    Show(profiles::ShowArgs),
    Fit(fit::Args),
    Measure(measure::Args),
    Diff(diff::Args),
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Profiles(_) => profiles::list(as_json)?,
        Command::Show(a) => profiles::show(a, as_json)?,
        Command::Fit(a) => fit::run(a, as_json)?,
        Command::Diff(a) => diff::run(a, as_json)?,
        Command::Measure(a) => return measure::run(a, as_json),
    }
    Ok(ExitCode::SUCCESS)
}
