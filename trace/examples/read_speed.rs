//! How fast is a recording read? `cargo run --release -p joulefs-trace --example read_speed FILE...`
//!
//! The file is read twice and the second run is timed, so that the disk does not matter.
#![allow(clippy::disallowed_methods, reason = "the machine's time is what is measured")]

use std::path::Path;
use std::time::Instant;

use joulefs_trace::{Opened, TraceError};

fn main() {
    for name in std::env::args_os().skip(1) {
        let path = Path::new(&name);
        let _ = count(path);
        let start = Instant::now();
        match count(path) {
            Ok((what, records, bytes)) => {
                let seconds = start.elapsed().as_secs_f64();
                println!(
                    "{}: {what}, {records} records, {:.0} MB/s of file, {:.2} million records/s",
                    path.display(),
                    bytes as f64 / 1e6 / seconds,
                    records as f64 / 1e6 / seconds
                );
            }
            Err(e) => println!("{e}"),
        }
    }
}

/// The format, the number of records, the size of the file.
fn count(path: &Path) -> Result<(String, u64, u64), TraceError> {
    let mut records = 0;
    Ok(match joulefs_trace::open(path)? {
        Opened::Blocks(mut r) => {
            while r.next()?.is_some() {
                records += 1;
            }
            (r.format().to_string(), records, r.consumed())
        }
        Opened::Calls(mut r) => {
            while r.next()?.is_some() {
                records += 1;
            }
            (r.format().to_string(), records, r.consumed())
        }
        Opened::Power(mut r) => {
            while r.next()?.is_some() {
                records += 1;
            }
            (r.format().to_string(), records, r.consumed())
        }
    })
}
