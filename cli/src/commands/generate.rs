//! `joulefs generate`: man pages and completions for shells, for packages. It is called by `make install` and `make
//! package`, and hidden from the help.

mod options;

use std::path::PathBuf;

use clap::Command;
use terminal::generate;

use crate::Failure;

/// Write man pages and shell completions into a directory.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs generate build")]
pub struct Args {
    /// Gets `man1` and `completions`.
    dir: PathBuf,
}

/// Runs it on the whole command line.
pub fn run(args: &Args, command: Command) -> Result<(), Failure> {
    generate::write(&args.dir, command, "joulefs", "lab", options::added)
}
