//! The `joulefs` command: what a person types, and nothing of how it works.
//!
//! Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage; `fsck` has
//! those of fsck(8).
#![forbid(unsafe_code)]

mod commands;
mod failure;
mod fragments;
mod held;
mod image;
mod joules;
mod live;
mod metered;
mod output;
mod place;
mod power;
mod progress;
mod recorded;
mod recording;
mod size;
mod spent;
mod volume_options;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use failure::Failure;

/// F2FS in user space: volumes that Linux mounts, without a kernel's help.
#[derive(Parser)]
#[command(name = "joulefs", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:\n  \
    joulefs mkfs disk.img --size 1G\n  \
    joulefs cp -r photos disk.img:/\n  \
    joulefs ls -l disk.img:/photos\n  \
    joulefs mount disk.img /mnt\n\n\
    A place inside an image is written IMAGE:/path.")]
struct Cli {
    /// Print JSON for machines instead of text for people.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(commands::mkfs::Args),
    Mount(commands::mount::Args),
    Unmount(commands::mount::UnmountArgs),
    Ctl(commands::ctl::Args),
    Device(commands::device::Args),
    Replay(commands::replay::Args),
    Trace(commands::trace::Args),
    Energy(commands::energy::Args),
    Fsck(commands::fsck::Args),
    Age(commands::age::Args),
    Info(commands::info::Args),
    Lab(commands::lab::Args),
    Ls(commands::ls::Args),
    Cat(commands::cat::Args),
    Cp(commands::cp::Args),
    Rm(commands::tree::RmArgs),
    Mkdir(commands::tree::MkdirArgs),
    Mv(commands::tree::MvArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.json;
    let done = |r: Result<(), Failure>| r.map(|()| ExitCode::SUCCESS);
    let out = match cli.command {
        Command::Mkfs(a) => done(commands::mkfs::run(&a, json)),
        Command::Mount(a) => done(commands::mount::run(&a, json)),
        Command::Unmount(a) => done(commands::mount::unmount(&a, json)),
        Command::Ctl(a) => done(commands::ctl::run(&a, json)),
        Command::Device(a) => done(commands::device::run(&a, json)),
        Command::Replay(a) => done(commands::replay::run(&a, json)),
        Command::Energy(a) => commands::energy::run(&a, json),
        Command::Trace(a) => commands::trace::run(&a, json),
        Command::Fsck(a) => return commands::fsck::run(&a, json),
        Command::Age(a) => done(commands::age::run(&a, json)),
        Command::Info(a) => done(commands::info::run(&a, json)),
        Command::Lab(a) => done(commands::lab::run(&a, json)),
        Command::Ls(a) => done(commands::ls::run(&a, json)),
        Command::Cat(a) => done(commands::cat::run(&a, json)),
        Command::Cp(a) => done(commands::cp::run(&a, json)),
        Command::Rm(a) => done(commands::tree::rm(&a, json)),
        Command::Mkdir(a) => done(commands::tree::mkdir(&a, json)),
        Command::Mv(a) => done(commands::tree::mv(&a, json)),
    };
    match out {
        Ok(code) => code,
        Err(failure) => {
            output::failure(failure.text(), json);
            ExitCode::from(failure.code())
        }
    }
}
