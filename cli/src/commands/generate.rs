//! `joulefs generate`: man pages and completions for shells, made of the command line itself. For who packages it: `make install` and
//! `make package` call it, and no help names it.

mod options;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;

use crate::{Failure, output};

/// Write man pages and shell completions into a directory.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs generate build")]
pub struct Args {
    /// Gets `man1` and `completions`.
    dir: PathBuf,
}

/// Where each shell looks for completions, and as what.
const SHELLS: [(Shell, &str); 3] =
    [(Shell::Bash, "bash/joulefs"), (Shell::Zsh, "zsh/_joulefs"), (Shell::Fish, "fish/joulefs.fish")];

/// The page of a command, and those of its own commands. Hidden ones have none.
fn page(command: &Command, name: &str, dir: &Path) -> std::io::Result<u32> {
    // clap takes names that live as long as the program, of which each page has one.
    let shown: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let mut out = Vec::new();
    clap_mangen::Man::new(command.clone().name(shown)).render(&mut out)?;
    fs::write(dir.join(format!("{name}.1")), out)?;
    let below = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    below.map(|c| page(c, &format!("{name}-{}", c.get_name()), dir)).sum::<std::io::Result<u32>>().map(|n| n + 1)
}

/// Runs it on the whole command line.
pub fn run(args: &Args, mut command: Command) -> Result<(), Failure> {
    command.build();
    let man = args.dir.join("man1");
    let fail = |e: std::io::Error| format!("{}: {e}", args.dir.display());
    fs::create_dir_all(&man).map_err(fail)?;
    let pages = page(&command, "joulefs", &man).map_err(fail)?;
    for (shell, name) in SHELLS {
        let file = args.dir.join("completions").join(name);
        fs::create_dir_all(file.parent().unwrap_or(&args.dir)).map_err(fail)?;
        let mut out = Vec::new();
        clap_complete::generate(shell, &mut command, "joulefs", &mut out);
        let script = options::added(shell, &String::from_utf8_lossy(&out));
        fs::write(file, script).map_err(fail)?;
    }
    output::line(&format!("{}: {pages} man pages, completions for bash, zsh and fish", args.dir.display()));
    Ok(())
}
