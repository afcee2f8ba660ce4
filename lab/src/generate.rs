//! `joulefs-lab generate`: man pages and shell completions for packages; hidden from help.

use std::path::PathBuf;

use clap::CommandFactory;
use terminal::{Failure, generate};

/// Write man pages and completions below a directory.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs lab generate build")]
pub struct Args {
    /// Gets `man1` and `completions`.
    dir: PathBuf,
}

/// Generates from the whole command line.
pub fn run(args: &Args) -> Result<(), Failure> {
    // Completions use the program's own name.
    let command = crate::Cli::command().bin_name("joulefs-lab");
    generate::write(&args.dir, command, "joulefs-lab", "", |_, script| script.to_owned())
}
