//! What does reading files sequentially cost if their fragments have different sizes?
//!
//! The experiment writes a file's pieces in random order, alternating with pieces of several other files, and syncs
//! each piece before the next. So two pieces of a file are neighbours on the device only by chance.

use device::energy::profile::Profile;
use device::{BLOCK, Rng, generate};
use f2fs::MountOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::{Ino, Seek, WriteFlags};

use super::given::OnVolume;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, blocks_of_mib};
use sim::contents::Contents;
use sim::progress::Progress;
use sim::result::Phase;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Whether the device is power-cycled between phases, in addition to the remount.
    #[serde(default)]
    device_restarts: bool,
    /// MiB of each file.
    file_mib: u64,
    /// Other files written in between.
    others: u64,
    /// Piece sizes in KiB; one file is measured for each, and one written sequentially.
    pieces_kib: Vec<u64>,
    /// KiB per read call.
    io_kib: u64,
}

/// Measures reading every file.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(None)?;
    let size = blocks_of_mib(p.file_mib) * BLOCK as u64;
    if let Some(kib) = p.pieces_kib.iter().find(|kib| **kib == 0 || !(*kib * 1024).is_multiple_of(BLOCK as u64)) {
        return Err(LabError::parameters(format!("pieces_kib: {kib} is not whole blocks of 4 KiB")));
    }
    if p.io_kib == 0 {
        return Err(LabError::parameters("io_kib is 0"));
    }
    let parts = p.pieces_kib.len() + 1 + usize::from(given.is_aged());
    let options = MountOptions::default();
    let (mut bench, (mut phases, histograms)) = given.bench(profile, job, options, &progress.part(0, parts))?;
    let mut rng = Rng::new(job.seed);
    let whole = [None];
    let layouts = whole.into_iter().chain(p.pieces_kib.iter().copied().map(Some));
    for (n, layout) in layouts.enumerate() {
        let name = layout.map_or_else(|| "contiguous".into(), |kib| format!("pieces-{kib}k"));
        let ino = bench.file(&name)?;
        match layout {
            None => bench.write_whole(ino, size, job.seed)?,
            Some(kib) => in_pieces(&bench, ino, size, kib * 1024, p.others, job.seed, &mut rng)?,
        }
        bench.restart(p.device_restarts)?;
        let mut phase =
            read(&bench, &name, size, p.io_kib * 1024, &progress.part(parts - p.pieces_kib.len() - 1 + n, parts))?;
        // The number of requests for contents shows the file's real number of extents.
        let carries = Contents::from_reasons(&bench.kind().reasons());
        let requests: u64 = phase.traffic.iter().filter(|t| carries.has(t.cause)).map(|t| t.reads).sum();
        phase.note("mean_request", size as f64 / 1024.0 / requests as f64, "KB");
        phases.push(phase);
        // Free the space for the next files.
        remove(&bench, std::iter::once(name).chain((0..p.others).map(other)))?;
    }
    Ok((phases, histograms))
}

fn other(n: u64) -> String {
    format!("other-{n}")
}

fn in_pieces(
    bench: &Bench,
    ino: Ino,
    size: u64,
    piece: u64,
    others: u64,
    seed: u64,
    rng: &mut Rng,
) -> Result<(), LabError> {
    let fs = bench.volume()?;
    let others: Vec<Ino> = (0..others).map(|n| bench.file(&other(n))).collect::<Result<_, _>>()?;
    let mut buf = vec![0; piece as usize];
    let mut put = |ino: Ino, at: u64| -> Result<(), LabError> {
        let buf = &mut buf[..piece.min(size - at) as usize];
        generate(seed ^ ino.0, (at / BLOCK as u64) as u32, buf);
        fs.write(ino, at, buf, WriteFlags::empty())?;
        Ok(fs.fsync(ino, true)?)
    };
    let mut places: Vec<u64> = (0..size).step_by(piece as usize).collect();
    rng.shuffle(&mut places);
    // The other files' pieces are written in a different order, one of each file in turn.
    let mut elsewhere = places.clone();
    rng.shuffle(&mut elsewhere);
    for (n, (at, beside)) in places.iter().zip(&elsewhere).enumerate() {
        put(ino, *at)?;
        if !others.is_empty() {
            put(others[n % others.len()], *beside)?;
        }
    }
    Ok(fs.fsync(ino, false)?)
}

fn remove(bench: &Bench, names: impl Iterator<Item = String>) -> Result<(), LabError> {
    let fs = bench.volume()?;
    for name in names {
        match fs.unlink(fs.root(), name.as_bytes()) {
            Ok(()) | Err(vfs::Error::NotFound) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(fs.sync()?)
}

fn read(bench: &Bench, name: &str, size: u64, io: u64, progress: &Progress<'_>) -> Result<Phase, LabError> {
    let fs = bench.volume()?;
    let ino = bench.file(name)?;
    // Reading a hole would make the measurement meaningless.
    if fs.seek(ino, 0, Seek::Hole)? != size {
        return Err(LabError::parameters(format!("{name} was not written whole")));
    }
    let mut buf = vec![0; io as usize];
    Ok(bench.measure(name, size.div_ceil(io), progress, |recorder| {
        for at in (0..size).step_by(io as usize) {
            fs.read(ino, at, &mut buf)?;
            recorder.step()?;
        }
        Ok(size)
    })?)
}
