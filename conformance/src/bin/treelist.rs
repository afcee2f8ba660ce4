//! Prints the canonical listing of a directory tree (see `judges::oracle::tree`).

use std::path::PathBuf;
use std::process::ExitCode;

use judges::oracle::tree::{Listing, of_host};

fn main() -> ExitCode {
    let mut what = Listing::default();
    let mut root = None;
    for arg in std::env::args_os().skip(1) {
        match arg.to_str() {
            Some("--directory-sizes") => what.directory_sizes = true,
            Some("--blocks") => what.blocks = true,
            Some("--ignore-times") => what.ignore_times = true,
            _ => root = Some(PathBuf::from(arg)),
        }
    }
    let Some(root) = root else {
        eprintln!("usage: treelist [--directory-sizes] [--blocks] [--ignore-times] DIRECTORY");
        return ExitCode::from(2);
    };
    match of_host(&root, what) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("treelist: {e}");
            ExitCode::FAILURE
        }
    }
}
