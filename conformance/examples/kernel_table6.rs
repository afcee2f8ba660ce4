//! Cleans a small volume of the experiment `fagc-table6` with Linux's F2FS and with ours: how many sections does each
//! clean, and how many blocks does it move, until the volume is packed?
//!
//! Needs `scripts/install-tools`.
//!
//!     cargo run -p joulefs-conformance --example kernel_table6 -- [SEGMENTS [VALID [EVERY]]]
//!
//! SEGMENTS of each type, VALID blocks in those of types A and B, a checkpoint after every EVERY sections.

use std::process::ExitCode;
use std::sync::Arc;

use joulefs_conformance::packing::{Course, Drive, Holes, PackingError, WAYS, linux, of_data, ours};
use judges::oracle::linux::Linux;

fn main() -> ExitCode {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|a| a.parse()).collect();
    let (segments, valid, every) = match numbers.as_deref() {
        Ok([]) => (60, 256, 1),
        Ok([segments]) => (*segments, 256, 1),
        Ok([segments, valid]) => (*segments, *valid, 1),
        Ok([segments, valid, every]) if *every > 0 => (*segments, *valid, *every as usize),
        _ => {
            eprintln!("kernel_table6: up to three numbers: segments of each type, valid blocks, sections a checkpoint");
            return ExitCode::from(2);
        }
    };
    // A third of it is empty.
    let mib = (9 * segments).max(1024);
    match compare(Holes { mib, segments, valid, invalid_percent: 55.53 }, every) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("kernel_table6: {e}");
            ExitCode::FAILURE
        }
    }
}

fn compare(holes: Holes, every: usize) -> Result<(), PackingError> {
    let image = holes.volume()?;
    let work = tempfile::tempdir().map_err(PackingError::Save)?;
    let path = work.path().join("image");
    let drive = Drive { limit: 2 * holes.total() as usize, every };
    println!(
        "{} segments, {} valid blocks; packed, {} of them are empty ({:.2} %)",
        holes.total(),
        holes.valid_blocks()?,
        holes.optimum()?,
        100.0 * holes.optimum()? as f64 / holes.total() as f64
    );
    println!("policy        whose   GCs      blocks  to pack   %     blocks  freed  of nodes");
    for way in WAYS {
        image.save_hollow(&path).map_err(PackingError::Save)?;
        let theirs = linux(Linux::asked(), &path, way, drive)?;
        let mine = ours(Arc::new(image.fork()), way, drive)?;
        for (whose, course) in [("Linux", &theirs), ("ours", &mine)] {
            println!("{:<13} {whose:<6} {}", way.name, row(course, holes.total()));
        }
        let (a, b) = (of_data(theirs.packing()).0, of_data(mine.packing()).0);
        println!("{:<13} ratio  {:.3}", way.name, a as f64 / b as f64);
    }
    Ok(())
}

fn row(course: &Course, total: u64) -> String {
    let (gcs, blocks) = of_data(&course.rounds);
    let (packing, moved) = of_data(course.packing());
    let most = course.rounds.iter().map(|r| r.free).max().unwrap_or(course.free);
    let more = if course.ended { ' ' } else { '+' };
    format!(
        "{gcs:4}{more} {blocks:10} {packing:8} {:6.2} {moved:9} {:6} {:9}",
        100.0 * packing as f64 / total as f64,
        most as i64 - course.free as i64,
        course.rounds.len() as u64 - gcs
    )
}
