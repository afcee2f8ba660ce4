//! The `joulefs` command: the command line, without any file system logic.
//!
//! Exit codes: 0 success, 1 failure, 2 usage error, with one line on standard error that gives the reason; `fsck` uses
//! those of fsck(8).
#![forbid(unsafe_code)]

mod account;
mod background;
mod beside;
mod bounded;
mod cache;
mod class;
mod commands;
#[cfg(test)]
mod examples;
mod file_system;
mod flame;
mod fragments;
mod held;
mod help;
mod image;
mod in_use;
mod live;
mod logging;
mod metered;
mod of_devices;
mod opening;
mod pieces;
mod place;
mod reading;
mod recorded;
mod recording;
mod saved;
mod saving;
mod schemas;
mod session;

use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};
use sim::replay::sizes as size;
use terminal::{
    Failure, half_made, hidden, interrupt, joules, meant, output, program, progress, rows, schema, spent, table, whole,
};

/// F2FS in user space, and what every write costs in joules.
///
/// Makes, mounts, reads and writes F2FS volumes without the kernel's F2FS, and volumes of ScherlFS, a log-structured
/// file system for disks. Runs them, or any other file system, on a simulated storage device that counts every joule
/// by component, by cause and by file. Computes the energy of recorded I/O of phones, servers and programs, and
/// repeats the measurements of five papers.
#[derive(Parser)]
#[command(name = "joulefs", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:\n  \
    joulefs mkfs disk.img --size 1G\n  \
    joulefs cp -r photos disk.img:/\n  \
    joulefs ls -l disk.img:/photos\n  \
    joulefs mount disk.img /mnt --profile kirin9000-ufs31 --ledger joules.txt\n  \
    joulefs trace replay phone.blktrace --profile galaxy-nexus-emmc\n  \
    joulefs lab papers\n\n\
    A place inside an image is written IMAGE:/path. Every command has a --help with examples.")]
struct Cli {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(commands::mkfs::Args),
    Mount(commands::mount::Args),
    #[command(visible_alias = "umount")]
    Unmount(commands::unmount::Args),
    Ctl(commands::ctl::Args),
    Device(commands::device::Args),
    Replay(commands::replay::Args),
    Trace(commands::trace::Args),
    Top(Box<commands::top::Args>),
    Energy(commands::energy::Args),
    Fsck(commands::fsck::Args),
    Rescue(commands::rescue::Args),
    Age(commands::age::Args),
    Info(commands::info::Args),
    Inspect(commands::inspect::Args),
    Clean(commands::clean::Args),
    Settle(commands::settle::Args),
    Unsettle(commands::settle::UnsettleArgs),
    Undo(commands::undo::Args),
    Lab(commands::lab::Args),
    Ls(commands::ls::Args),
    Tree(commands::tree::Args),
    Cat(commands::cat::Args),
    Stat(commands::stat::Args),
    Du(commands::du::Args),
    Df(commands::df::Args),
    Cp(commands::cp::Args),
    Rm(commands::names::RmArgs),
    Mkdir(commands::names::MkdirArgs),
    Mv(commands::names::MvArgs),
    #[command(hide = true)]
    Generate(commands::generate::Args),
}

fn main() -> ExitCode {
    program::begin(env!("JOULEFS_SOURCES"));
    let words: Vec<_> = std::env::args_os().collect();
    if let [_, help, lab, more @ ..] = &words[..]
        && (help.as_os_str(), lab.as_os_str()) == ("help".as_ref(), "lab".as_ref())
    {
        return failed(&commands::lab::help(more), false);
    }
    let mut command = help::command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    match parsed
        .inspect(|m| schema::begin(&[], m, schemas::SCHEMAS))
        .and_then(|m| Cli::from_arg_matches(&m).map_err(|e| e.format(&mut command)))
    {
        Ok(cli) => run(cli),
        Err(e) => misused(&e),
    }
}

/// Exit code of fsck(8) for a usage error.
const FSCK_USAGE: u8 = 16;

/// A command line that clap rejects, or that requests help.
fn misused(e: &clap::Error) -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    output::failure(Failure::of_clap_or_help(e).text(), words.any(|w| w == "--json"));
    let fsck = std::env::args_os().skip(1).find(|w| w != "--json").is_some_and(|w| w == "fsck");
    if fsck { ExitCode::from(FSCK_USAGE) } else { ExitCode::from(2) }
}

fn run(cli: Cli) -> ExitCode {
    let json = cli.json;
    let is_fsck = matches!(cli.command, Command::Fsck(_));
    let done = |r: Result<(), Failure>| r.map(|()| ExitCode::SUCCESS);
    let out = match cli.command {
        Command::Mkfs(a) => done(commands::mkfs::run(&a, json)),
        Command::Mount(a) => done(commands::mount::run(&a, json)),
        Command::Unmount(a) => done(commands::unmount::run(&a, json)),
        Command::Ctl(a) => commands::ctl::run(&a, json),
        Command::Device(a) => done(commands::device::run(&a, json)),
        Command::Replay(a) => commands::replay::run(&a, json),
        Command::Top(a) => commands::top::run(&a, json),
        Command::Energy(a) => commands::energy::run(&a, json),
        Command::Trace(a) => commands::trace::run(&a, json),
        Command::Fsck(a) => Ok(commands::fsck::run(&a, json)),
        Command::Rescue(a) => commands::rescue::run(&a, json),
        Command::Age(a) => done(commands::age::run(&a, json)),
        Command::Inspect(a) => commands::inspect::run(&a, json),
        Command::Clean(a) => commands::clean::run(&a, json),
        Command::Info(a) => done(commands::info::run(&a, json)),
        Command::Settle(a) => done(commands::settle::settle(&a, json)),
        Command::Unsettle(a) => done(commands::settle::unsettle(&a, json)),
        Command::Undo(a) => done(commands::undo::run(&a, json)),
        Command::Lab(a) => Err(commands::lab::run(&a, json)),
        Command::Ls(a) => done(commands::ls::run(&a, json)),
        Command::Tree(a) => done(commands::tree::run(&a, json)),
        Command::Cat(a) => done(commands::cat::run(&a, json)),
        Command::Stat(a) => done(commands::stat::run(&a, json)),
        Command::Du(a) => done(commands::du::run(&a, json)),
        Command::Df(a) => done(commands::df::run(&a, json)),
        Command::Cp(a) => commands::cp::run(&a, json),
        Command::Rm(a) => done(commands::names::rm(&a, json)),
        Command::Mkdir(a) => done(commands::names::mkdir(&a, json)),
        Command::Mv(a) => done(commands::names::mv(&a, json)),
        Command::Generate(a) => done(commands::generate::run(&a, help::command())),
    };
    let out = match (out, output::lost()) {
        // A failure that is 1 elsewhere is 8 in fsck(8).
        (Ok(_), Some(failure)) if is_fsck => {
            output::failure(failure.text(), json);
            Ok(ExitCode::from(8))
        }
        (Ok(code), Some(failure)) if code == ExitCode::SUCCESS => Err(failure),
        (out, _) => out,
    };
    match out {
        Ok(code) => code,
        Err(failure) => failed(&failure, json),
    }
}

fn failed(failure: &Failure, json: bool) -> ExitCode {
    output::failure(failure.text(), json);
    ExitCode::from(failure.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> String {
        let failure = Failure::of_clap(&Cli::try_parse_from(words.split(' ')).err().unwrap());
        assert_eq!((failure.code(), failure.text().lines().count()), (2, 1), "{failure}");
        failure.text().to_owned()
    }

    #[test]
    fn what_is_wrong_with_a_command_line_is_one_line() {
        assert_eq!(
            said("joulefs energy measure --interval 0 -- true"),
            "invalid value '0' for '--interval <MS>': 0 is not in 1..=10000"
        );
        assert_eq!(
            said("joulefs trace convert a --to csv"),
            "invalid value 'csv' for '--to <TO>' [possible values: iolog, iolog2, blkparse, parquet, calls]"
        );
        assert_eq!(
            said("joulefs age v.img"),
            "the following required arguments were not provided: --recipe <RECIPE>; usage: joulefs age --recipe \
             <RECIPE> <IMAGE>"
        );
        assert_eq!(
            said("joulefs ls --al v.img:/"),
            "unexpected argument '--al' found; tip: a similar argument exists: '--all'; usage: joulefs ls --all <PLACE>"
        );
    }
}
