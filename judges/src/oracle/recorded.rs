//! How are recordings of real tools in a guest made into fixtures? By the programs `examples/record_*.rs`.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Makes fixtures: `record` gets the output directory of the program `name`.
pub fn main(name: &str, record: impl FnOnce(&Path) -> Result<(), Box<dyn Error>>) -> ExitCode {
    let Some(place) = std::env::args_os().nth(1) else {
        eprintln!("{name}: a directory for the recordings is missing");
        return ExitCode::from(2);
    };
    let place = Path::new(&place);
    match fs::create_dir_all(place).map_err(Into::into).and_then(|()| record(place)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{name}: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a program of the host; errors name it.
///
/// # Errors
/// If it cannot be run, or fails.
pub fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(e) => Err(format!("{command:?}: {e}")),
    }
}

/// Packs a file as a fixture, `NAME.zst` in `place`.
///
/// # Errors
/// If zstd is missing or fails.
pub fn pack(file: &Path, place: &Path) -> Result<(), String> {
    let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let to = place.join(format!("{name}.zst"));
    run(Command::new("zstd").args(["-q", "-f", "-19"]).arg(file).arg("-o").arg(to))
}

/// Writes the files in a guest's output (`@@file NAME LENGTH`, then that many bytes) to `place`; returns their names.
///
/// # Errors
/// If the output contains anything else, or a file cannot be written.
pub fn unpack(mut output: &[u8], place: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    while !output.is_empty() {
        let end = output.iter().position(|b| *b == b'\n').ok_or("no line of a file")?;
        let line = std::str::from_utf8(&output[..end])?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["@@file", name, length] = words[..] else { return Err(format!("the guest said {line:?}").into()) };
        let length: usize = length.parse()?;
        let bytes = output.get(end + 1..end + 1 + length).ok_or("a file that ends early")?;
        fs::write(place.join(name), bytes)?;
        names.push(name.to_owned());
        output = &output[end + 1 + length..];
    }
    Ok(names)
}
