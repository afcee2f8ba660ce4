//! `joulefs lab`: runs `joulefs-lab`, a separate program.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::Failure;

const PROGRAM: &str = "joulefs-lab";

/// Repeat published measurements and compare the numbers.
///
/// Runs the program joulefs-lab, found next to joulefs or in PATH.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:\n  joulefs lab --help\n  joulefs lab papers\n  joulefs lab run --quick fagc-fig4")]
pub struct Args {
    /// Arguments for joulefs-lab.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// What `joulefs help lab ...` shows.
pub fn help(words: &[OsString]) -> Failure {
    run(&Args { words: [&["help".into()], words].concat() }, false)
}

/// Replaces this process by `joulefs-lab`; returns only on failure.
pub fn run(args: &Args, as_json: bool) -> Failure {
    // Without /proc, only the path in `argv[0]` leads to the program's directory.
    let started = std::env::args_os().next().map(PathBuf::from).filter(|word| word.components().count() > 1);
    let own = std::env::current_exe().ok().or(started).and_then(|exe| Some(exe.parent()?.join(PROGRAM)));
    let program = own.filter(|file| file.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let mut command = Command::new(&program);
    if as_json {
        command.arg("--json");
    }
    let e = command.args(&args.words).env("JOULEFS_VERSION", env!("CARGO_PKG_VERSION")).exec();
    match e.kind() {
        ErrorKind::NotFound => Failure::from(format!(
            "{PROGRAM} is not installed, neither next to joulefs nor in PATH: in the sources of JouleFS, cargo install --path lab"
        )),
        _ => format!("{}: {e}", program.display()).into(),
    }
}
