//! `joulefs generate`: man pages and shell completions for packages. `make install` and `make package` call it; it is
//! hidden from the help.

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
