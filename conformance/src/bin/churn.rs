//! Changes a directory: one reproducible round, or endlessly until power fails. See `judges::churn`.

use std::path::Path;
use std::process::ExitCode;

use judges::churn::{acknowledge_forever, round};
use judges::zoo::on_path;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["acknowledge", root, told] => acknowledge_forever(Path::new(root), Path::new(told)),
        ["round", root, seed, budget, number] => match [seed, budget, number].map(|n| n.parse::<u64>()) {
            [Ok(seed), Ok(budget), Ok(number)] => on_path::perform(Path::new(root), &round(seed, budget, number)),
            _ => return usage(),
        },
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("churn: {e}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: churn round DIRECTORY SEED BYTES ROUND | churn acknowledge DIRECTORY OUT");
    ExitCode::from(2)
}
