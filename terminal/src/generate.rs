//! Man pages and shell completions for packages, generated from the command line's definition. The command is hidden
//! from the help.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;

use crate::{Failure, output};

/// The page of a command and those of its subcommands, except hidden ones and `other`, which is a separate program.
fn page(command: &Command, name: &str, other: &str, dir: &Path) -> std::io::Result<u32> {
    // clap needs static names; each page leaks one.
    let shown: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let mut out = Vec::new();
    clap_mangen::Man::new(command.clone().name(shown)).render(&mut out)?;
    fs::write(dir.join(format!("{name}.1")), out)?;
    let below = command.get_subcommands().filter(|c| !c.is_hide_set() && !["help", other].contains(&c.get_name()));
    below.map(|c| page(c, &format!("{name}-{}", c.get_name()), other, dir)).sum::<std::io::Result<u32>>().map(|n| n + 1)
}

/// Writes `man1` and `completions` of a program to a directory. `changed` adds to a shell's script what clap cannot
/// express.
pub fn write(
    dir: &Path,
    mut command: Command,
    name: &str,
    other: &str,
    changed: impl Fn(Shell, &str) -> String,
) -> Result<(), Failure> {
    command.build();
    let man = dir.join("man1");
    let fail = |e: std::io::Error| format!("{}: {e}", dir.display());
    fs::create_dir_all(&man).map_err(fail)?;
    let pages = page(&command, name, other, &man).map_err(fail)?;
    let files = [
        (Shell::Bash, format!("bash/{name}")),
        (Shell::Zsh, format!("zsh/_{name}")),
        (Shell::Fish, format!("fish/{name}.fish")),
    ];
    for (shell, file) in files {
        let file = dir.join("completions").join(file);
        fs::create_dir_all(file.parent().unwrap_or(dir)).map_err(fail)?;
        let mut out = Vec::new();
        clap_complete::generate(shell, &mut command, name, &mut out);
        fs::write(file, changed(shell, &String::from_utf8_lossy(&out))).map_err(fail)?;
    }
    output::line(&format!("{}: {pages} man pages, completions for bash, zsh and fish", dir.display()));
    Ok(())
}
