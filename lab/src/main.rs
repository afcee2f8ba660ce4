//! The program `joulefs-lab`: the command line to repeat the papers' experiments, without their implementation.
//!
//! `joulefs lab ...` runs this program. Exit codes are those of `joulefs`.
#![forbid(unsafe_code)]

mod commands;
#[cfg(test)]
mod examples;
mod generate;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use lab::plan::PlanError;
use terminal::schema::{self, Schema};
use terminal::{Failure, meant, output, program};

/// Repeat published measurements and compare the numbers.
///
/// An experiment is a plan, the published numbers and a README with the claims. Everything runs on simulated devices
/// in virtual time: the same seed gives the same result, to the last picojoule.
#[derive(Parser)]
#[command(name = "joulefs-lab", bin_name = "joulefs lab", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Examples:\n  joulefs lab report\n  joulefs lab papers --class contradicts\n  joulefs lab list\n  \
    joulefs lab show fagc-fig4\n  joulefs lab run --quick fagc-fig4\n  joulefs lab run nexus-sqlite --set rows=1000000"
)]
struct Cli {
    /// Print JSON for machines instead of text for people.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: commands::Command,
}

/// Commands that print an object, and the version of its schema.
const SCHEMAS: &[Schema] = &[("lab papers", 2), ("lab report", 1), ("lab show", 2)];

fn main() -> ExitCode {
    program::begin(env!("JOULEFS_SOURCES"));
    let mut command = Cli::command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.inspect(|m| schema::begin(&["lab"], m, SCHEMAS));
    let (json, done) = match parsed.and_then(|m| Cli::from_arg_matches(&m).map_err(|e| e.format(&mut command))) {
        Ok(cli) => (cli.json, of_one_version().and_then(|()| commands::run(&cli.command, cli.json))),
        Err(e) => (std::env::args_os().any(|w| w == "--json"), Err(Failure::of_clap_or_help(&e))),
    };
    match done.and_then(|()| output::lost().map_or(Ok(()), Err)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::failure(failure.text(), json);
            ExitCode::from(failure.code())
        }
    }
}

/// Fails if the version of the `joulefs` that started this program differs.
fn of_one_version() -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    match std::env::var("JOULEFS_VERSION") {
        Ok(other) if other != own => {
            Err(format!("joulefs is of version {other} and joulefs-lab of {own}: install both of one version").into())
        }
        _ => Ok(()),
    }
}

/// A plan that cannot be found or used. A mistyped name is a usage error.
fn unplanned(e: PlanError) -> Failure {
    match e {
        PlanError::Unknown { ref name, ref known } => Failure::usage(format!("{e}{}", meant::tip_of_list(name, known))),
        PlanError::NoVariant { experiment, variant, known } => {
            let tip = meant::tip_of_list(&variant, &known);
            Failure::usage(format!("--variant {variant}: {experiment} has no such variant: it has {known}{tip}"))
        }
        _ => e.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that print a list, or nothing.
    const NO_OBJECT: [&str; 3] = ["keep", "list", "run"];

    #[test]
    fn every_command_has_a_schema_that_the_document_lists() {
        let named = SCHEMAS.iter().map(|(name, _)| name.strip_prefix("lab ").unwrap());
        let mut known: Vec<&str> = named.chain(NO_OBJECT).collect();
        known.sort_unstable();
        let command = Cli::command();
        let mut all: Vec<&str> = command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name()).collect();
        all.sort_unstable();
        assert_eq!(known, all);
        let rows = include_str!("../../docs/json.md").lines().filter(|l| l.starts_with("| `joulefs lab "));
        let expected = SCHEMAS.iter().map(|(name, version)| format!("| `joulefs {name}` | {version} |"));
        assert!(rows.eq(expected));
    }
}
