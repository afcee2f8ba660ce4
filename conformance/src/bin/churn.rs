//! Does one round of wear on a directory (see `conformance::churn`).

use std::path::Path;
use std::process::ExitCode;

use joulefs_conformance::churn::round;
use joulefs_conformance::zoo::on_path;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Option<Vec<u64>> = args.iter().skip(1).map(|a| a.parse().ok()).collect();
    let (Some(root), Some([seed, budget, number])) = (args.first(), numbers.as_deref()) else {
        eprintln!("usage: churn DIRECTORY SEED BYTES ROUND");
        return ExitCode::from(2);
    };
    match on_path::perform(Path::new(root), &round(*seed, *budget, *number)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("churn: {e}");
            ExitCode::FAILURE
        }
    }
}
