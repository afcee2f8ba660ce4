//! Fills a directory with the zoo (see `judges::zoo`).

use std::path::PathBuf;
use std::process::ExitCode;

use judges::zoo::{Size, on_path, plan};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match args.as_slice() {
        [root, seed, size] => seed.parse().ok().zip(Size::from_name(size)).map(|p| (root, p)),
        _ => None,
    };
    let Some((root, (seed, size))) = parsed else {
        eprintln!("usage: zoo DIRECTORY SEED small|medium|full");
        return ExitCode::from(2);
    };
    rustix::process::umask(rustix::fs::Mode::empty());
    match on_path::perform(&PathBuf::from(root), &plan(seed, size)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("zoo: {e}");
            ExitCode::FAILURE
        }
    }
}
