//! How well does each policy of Linux with `kernel/patches` pack a volume, compared with ours? Numbers as in FAGC
//! TACO'23, Table 6.
//!
//! Needs the kernel that `make kernel` builds, in $JOULEFS_LINUX_PATCHED.
//!
//!     cargo run -p joulefs-conformance --example kernel_packs -- IMAGE
//!     cargo run -p joulefs-conformance --example kernel_packs -- [SEGMENTS [VALID]]
//!
//! The volume is a copy of IMAGE, or has SEGMENTS of each of the paper's types, with VALID blocks in those of types A
//! and B. `joulefs age IMAGE --hollow` creates large images that take little space.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use device::{Access, FileDevice, Memory};
use joulefs_conformance::packing::space::Space;
use joulefs_conformance::packing::{Course, Drive, FAGC, FAGC_FULLEST, Holes, PATCHED, PackingError, linux, ours};
use judges::oracle::linux::Linux;

fn main() -> ExitCode {
    let Some(kernel) = std::env::var_os("JOULEFS_LINUX_PATCHED") else {
        eprintln!("kernel_packs: $JOULEFS_LINUX_PATCHED names no kernel; `make kernel` builds it");
        return ExitCode::from(2);
    };
    let given: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Result<Vec<u64>, _> = given.iter().map(|a| a.parse()).collect();
    let image = match (numbers.as_deref(), given.as_slice()) {
        (Ok([]), _) => typed(60, 256),
        (Ok([segments]), _) => typed(*segments, 256),
        (Ok([segments, valid]), _) => typed(*segments, *valid),
        (Err(_), [path]) => Memory::load(path).map_err(PackingError::Save),
        _ => {
            eprintln!("kernel_packs: an image, or up to two numbers: segments of each type, valid blocks");
            return ExitCode::from(2);
        }
    };
    match image.and_then(|image| compare(&Linux::Built(kernel.into()), &image)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("kernel_packs: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The volume of the paper's types, without contents; a third of it is empty.
fn typed(segments: u64, valid: u64) -> Result<Memory, PackingError> {
    let work = tempfile::tempdir().map_err(PackingError::Save)?;
    let path: PathBuf = work.path().join("image");
    let holes = Holes { mib: (9 * segments).max(384), segments, valid, invalid_percent: 55.53 };
    holes.volume()?.save_hollow(&path).map_err(PackingError::Save)?;
    Memory::load(&path).map_err(PackingError::Save)
}

fn compare(kernel: &Linux, image: &Memory) -> Result<(), PackingError> {
    let work = tempfile::tempdir().map_err(PackingError::Save)?;
    let path = work.path().join("image");
    let drive = Drive { limit: 100_000, every: 1 };
    let before = Space::on(image)?;
    println!("policy          whose    GCs    blocks   won  fragments     MiB in them");
    println!("{}", row("before", "", None, before, before));
    for way in PATCHED.into_iter().chain([FAGC_FULLEST]) {
        image.save(&path).map_err(PackingError::Save)?;
        let course = linux(kernel.clone(), &path, way, drive)?;
        let left = FileDevice::open(&path, Access::ReadOnly).map_err(|e| PackingError::Table(e.to_string()))?;
        println!("{}", row(way.name, "Linux", Some(&course), before, Space::on(&left)?));
        // We have only one kind of FAGC.
        if way.name == FAGC_FULLEST.name && way.name != FAGC.name {
            continue;
        }
        let device = Arc::new(image.fork());
        let course = ours(device.clone(), way, drive)?;
        println!("{}", row(way.name, "ours", Some(&course), before, Space::on(&*device)?));
    }
    Ok(())
}

fn row(policy: &str, whose: &str, course: Option<&Course>, before: Space, left: Space) -> String {
    let rounds = course.map_or(&[][..], |c| &c.rounds);
    let moved: u64 = rounds.iter().map(|r| r.moved).sum();
    let more = if course.is_none_or(|c| c.ended) { ' ' } else { '+' };
    format!(
        "{policy:<15} {whose:<6} {:5}{more} {moved:9} {:5} {:10} {:15.2}",
        rounds.len(),
        left.free as i64 - before.free as i64,
        left.fragments,
        left.loose_mib()
    )
}
