//! Measures JouleFS and other file systems (see `conformance::bench`) and writes `docs/benchmarks.md`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use joulefs_conformance::bench::report::{Comparison, document, in_process_table};
use joulefs_conformance::bench::sides::{Side, serve, start};
use joulefs_conformance::bench::{Outcome, choosing, deltas, images, in_process, memory, metered, phone, rows, traces};

const USAGE: &str =
    "usage: bench [--passes N] [--mounts-only | --core-only | --deltas-only | --images-only | --traces-only] [--no-large-image] [--output FILE]

Compares JouleFS with other file systems on images in memory (needs root, fuse3, fuse2fs, e2fsprogs),
measures the core alone, prints both tables and writes them to FILE (docs/benchmarks.md).
--deltas-only prints what deltas cost the machine, --images-only how fast trees become images; they write nothing.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("serve-joulefs" | "serve-scherlfs" | "serve-memfs") => serve(&args),
        Some("mount-once") => match args.get(1) {
            Some(image) => in_process::mount_once(Path::new(image)),
            None => Err(USAGE.into()),
        },
        Some("age-once") => memory::age_once(args.get(1).map_or("", String::as_str)),
        _ => measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &[String]) -> Outcome<()> {
    let (mut passes, mut only_deltas, mut only_images) = (3, false, false);
    let (mut mounts, mut core, mut large, mut recordings) = (true, true, true, true);
    let mut output = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks.md");
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--passes" => passes = args.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?,
            "--mounts-only" => (core, recordings) = (false, false),
            "--core-only" => (mounts, recordings) = (false, false),
            "--deltas-only" => only_deltas = true,
            "--images-only" => (mounts, core, recordings, only_images) = (false, false, false, true),
            "--traces-only" => (mounts, core) = (false, false),
            "--no-large-image" => large = false,
            "--output" => output = PathBuf::from(args.next().ok_or(USAGE)?),
            _ => return Err(USAGE.into()),
        }
    }
    if only_deltas {
        println!("{}", in_process_table(&deltas::all(passes)?));
        return Ok(());
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix("joulefs-bench-");
    let dir = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir())?;
    let comparison = if mounts { Some(compare(dir.path(), passes)?) } else { None };
    if let Some(comparison) = &comparison {
        println!("{}\n{}", comparison.table(), comparison.cpu_table());
    }
    let mut small_updates = Vec::new();
    let (mut alone, mut simulated, mut chosen, mut large_volume) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    if core {
        eprintln!("the core alone");
        alone = in_process::all(passes, large.then_some(dir.path()))?;
        println!("{}", in_process_table(&alone));
        eprintln!("deltas");
        small_updates = deltas::all(passes)?;
        println!("{}", in_process_table(&small_updates));
        eprintln!("the simulated flash");
        simulated = metered::all(passes)?;
        simulated.extend(phone::all()?);
        println!("{}", in_process_table(&simulated));
        eprintln!("choosing victims");
        chosen = choosing::all(passes);
        println!("{}", in_process_table(&chosen));
        if large {
            eprintln!("256 GiB in memory");
            large_volume = memory::all()?;
            println!("{}", in_process_table(&large_volume));
        }
    }
    let mut trees = Vec::new();
    if core || only_images {
        eprintln!("images of trees");
        trees = images::all(dir.path(), passes)?;
        println!("{}", in_process_table(&trees));
    }
    if only_images {
        return Ok(());
    }
    let mut read = Vec::new();
    if recordings {
        eprintln!("recordings of others");
        read = traces::all(passes)?;
        println!("{}", in_process_table(&read));
    }
    std::fs::write(
        &output,
        document(
            comparison.as_ref(),
            &alone,
            &small_updates,
            &simulated,
            &chosen,
            &large_volume,
            &read,
            &trees,
            passes,
        ),
    )?;
    eprintln!("written to {}", output.display());
    Ok(())
}

fn compare(dir: &Path, passes: usize) -> Outcome<Comparison> {
    let mut all: Vec<(Side, Vec<Vec<rows::Row>>)> = Vec::new();
    for pass in 1..=passes {
        let (mut sides, mut running) = (Vec::new(), Vec::new());
        for (n, side) in Side::ALL.into_iter().enumerate() {
            eprintln!("pass {pass} of {passes}: mounting {}", side.name());
            match start(side, &dir.join(format!("{pass}-{n}"))) {
                Ok(mounted) => {
                    sides.push(side);
                    running.push(mounted);
                }
                // Loop devices and fuse2fs are not available everywhere; only JouleFS is required.
                Err(e) if side != Side::JouleFs => eprintln!("{}: {e}", side.name()),
                Err(e) => return Err(format!("{}: {e}", side.name()).into()),
            }
        }
        eprintln!("pass {pass} of {passes}: at work");
        let rows = rows::all(&running)?;
        running.into_iter().try_for_each(|side| side.stop())?;
        for n in 0..Side::ALL.len() {
            let made = dir.join(format!("{pass}-{n}"));
            if made.exists() {
                std::fs::remove_dir_all(made)?;
            }
        }
        for (side, rows) in sides.into_iter().zip(rows) {
            match all.iter_mut().find(|(known, _)| *known == side) {
                Some((_, passes)) => passes.push(rows),
                None => all.push((side, vec![rows])),
            }
        }
    }
    Ok(Comparison::of(&all))
}
