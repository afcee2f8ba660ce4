//! What do small requests cost, depending on how dispersed they are?
//!
//! The file is contiguous. For each region, synchronous writes of 4 KB go to random places in that region (the
//! beginning of the file), followed by random reads that bypass the host's cache (Ji HotStorage'16, section 5.3.2 and
//! Fig. 4). The same can run on the bare device: the requests of a file system that overwrites in place, without the
//! file system. The device is power-cycled before each region, so that its cache is cold.

use device::energy::profile::{DeviceSpec, Profile};
use device::{BLOCK, BlockDevice, Lba, Rng, Tag, generate};
use f2fs::MountOptions;
use f2fs::cause::Cause;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::{Ino, WriteFlags};

use super::layout::Layout;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, Recorder, blocks_of_mib};
use sim::progress::Progress;
use sim::result::Phase;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// MiB of the volume or the bare device.
    volume_mib: u64,
    /// MiB of the file.
    file_mib: u64,
    /// Sizes of the regions in MiB.
    regions_mib: Vec<u64>,
    /// Requests of each kind per region.
    requests: u64,
    /// Whether requests go through a file system.
    on: On,
    /// Pages in the device's mapping cache; by default the profile's.
    #[serde(default)]
    cached_pages: Option<u64>,
    /// Whether the bare device is full of data, so that flash must clean.
    #[serde(default)]
    full: bool,
    /// Writes in each region before the measurement.
    #[serde(default)]
    writes_before: u64,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum On {
    F2fs,
    Device,
}

impl Parameters {
    /// Refuses impossible combinations.
    pub fn check(&self) -> Result<(), LabError> {
        let bad = |text: String| Err(LabError::parameters(text));
        if let Some(mib) = self.regions_mib.iter().find(|mib| **mib == 0 || **mib > self.file_mib) {
            return bad(format!("regions_mib: {mib} is not within the file, from 1 to file_mib"));
        }
        if self.requests == 0 || self.cached_pages == Some(0) || self.file_mib >= self.volume_mib {
            return bad("requests and cached_pages are 1 or more, file_mib is less than volume_mib".into());
        }
        if self.full && self.on == On::F2fs {
            return bad("full is for the bare device".into());
        }
        Ok(())
    }
}

/// The target of the requests.
enum Target {
    File(Ino),
    /// The device, from this block on.
    Device(u64),
}

/// Measures writes, then reads, for each region.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    p.check()?;
    let mut profile = profile.clone();
    match (&mut profile.device, p.cached_pages) {
        (DeviceSpec::Flash(spec), Some(pages)) => spec.map.cached_pages.value = pages,
        (DeviceSpec::Disk(_), Some(_)) => {
            return Err(LabError::parameters(format!("cached_pages: {} is a disk, it has no map", profile.name)));
        }
        (_, None) => {}
    }
    let mut bench = Bench::new(&profile, blocks_of_mib(p.volume_mib))?;
    let size = blocks_of_mib(p.file_mib);
    if p.on == On::F2fs {
        bench.format(job.seed, MountOptions::default())?;
        let ino = bench.file("measured")?;
        bench.write_whole(ino, size * BLOCK as u64, job.seed)?;
    } else {
        let device = bench.device();
        fill(&*device, if p.full { device.blocks() } else { size }, job.seed)?;
    }
    let mut phases = Vec::new();
    for (n, mib) in p.regions_mib.iter().enumerate() {
        for (k, kind) in ["write", "read"].into_iter().enumerate() {
            let target = match p.on {
                On::F2fs => {
                    bench.restart(true)?;
                    Target::File(bench.file("measured")?)
                }
                On::Device => {
                    bench.switch_off_and_on()?;
                    Target::Device(0)
                }
            };
            // Do not merge requests.
            bench.cut_requests_at(Some(1));
            let mut rng = Rng::new(job.seed ^ mib << 8 ^ k as u64);
            let mut places = |n: u64| -> Vec<u64> { (0..n).map(|_| rng.below(blocks_of_mib(*mib))).collect() };
            let part = progress.part(2 * n + k, 2 * p.regions_mib.len());
            if kind == "write" && p.writes_before > 0 {
                let places = places(p.writes_before);
                bench.measure("", p.writes_before, &part, |r| Ok(ask(&bench, &target, true, &places, job.seed, r)?))?;
            }
            let places = places(p.requests);
            let mut phase = bench.measure(&format!("{kind}-{mib}m"), p.requests, &part, |recorder| {
                Ok(ask(&bench, &target, kind == "write", &places, job.seed, recorder)?)
            })?;
            bench.cut_requests_at(None);
            note(&mut phase, p.requests);
            if p.on == On::F2fs {
                // In-place writes: the file must stay contiguous, or addresses would not be as dispersed as offsets.
                let pieces = Layout::of(&bench)?.sum(|path, _| path == "/measured");
                phase.note("pieces_of_the_file", pieces.extents as f64, "pieces");
            }
            phases.push(phase);
        }
    }
    Ok((phases, Vec::new()))
}

fn fill(device: &dyn BlockDevice, blocks: u64, seed: u64) -> Result<(), LabError> {
    let mut buf = vec![0; 256 * BLOCK];
    for at in (0..blocks).step_by(256) {
        generate(seed, at as u32, &mut buf);
        device.write(Lba(at), &buf[..256.min(blocks - at) as usize * BLOCK], Tag::default())?;
    }
    Ok(device.flush(Tag::default())?)
}

fn ask(
    bench: &Bench,
    target: &Target,
    write: bool,
    places: &[u64],
    seed: u64,
    recorder: &mut Recorder<'_>,
) -> Result<u64, LabError> {
    let mut buf = vec![0; BLOCK];
    let tag = Cause::UserData.tag();
    for place in places {
        if write {
            generate(seed.rotate_left(7), *place as u32, &mut buf);
        }
        match (target, write) {
            (Target::File(ino), true) => {
                let fs = bench.volume()?;
                fs.write(*ino, place * BLOCK as u64, &buf, WriteFlags::empty())?;
                fs.fsync(*ino, false)?;
            }
            (Target::File(ino), false) => {
                bench.volume()?.read(*ino, place * BLOCK as u64, &mut buf)?;
            }
            (Target::Device(first), true) => {
                bench.device().write(Lba(first + place), &buf, tag)?;
                bench.device().flush(tag)?;
            }
            (Target::Device(first), false) => bench.device().read(Lba(first + place), &mut buf, tag)?,
        }
        recorder.step()?;
    }
    Ok((places.len() * BLOCK) as u64)
}

fn note(phase: &mut Phase, requests: u64) {
    phase.note("latency", phase.took.0 as f64 / 1e3 / requests as f64, "us");
    for (counter, name) in [("map_pages_fetched", "map_reads"), ("map_pages_written", "map_writes")] {
        if let Some(n) = phase.counters.get(counter).copied() {
            phase.note(name, n as f64 / requests as f64, "per request");
        }
    }
    if let Some(n) = phase.counters.get("cleanings").copied() {
        phase.note("cleanings_of_flash", n as f64, "blocks");
    }
}
