//! How far is each policy from the best possible on the same overwrites?
//!
//! A file is written sequentially until the volume is filled to a given percentage. Then its blocks are overwritten at
//! random, some far more often than others, in batches that end with a sync. After each batch a policy cleans sections
//! until enough segments are free again, either one victim at a time or in longer turns, as a plan defines: policies
//! with the same pace differ only in victims and in where they move blocks.
//!
//! A policy's moves are compared with cleaners that know the future:
//!
//! * [`proved`]: no cleaner that kept as many segments free moved fewer blocks. Proved.
//! * [`joules`]: nor did any do the work with less energy. Proved for flash.
//! * [`clairvoyant`]: moves of a good cleaner in a model. A strong reference, not a bound.
//!
//! [`placement`] compares placements of blocks under one cleaner in a model, and [`excess`] divides the joules above the
//! bound.
//!
//! The first and the last need the original place of each version of each block. While the log is written sequentially,
//! the order of writes gives it ([`Layout`]); every batch checks this. If the log was not sequential (free segments ran
//! out, and the log filled holes), the run reports neither, and its energy bound excludes moves. The same holds for an
//! aged volume, because its other files occupy unknown places.

mod clairvoyant;
mod excess;
mod joules;
mod overwrites;
mod placement;
mod proved;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::energy::profile::Profile;
use device::{BLOCK, Clock, Rng, generate};
use f2fs::cause::Cause;
use f2fs::gc::settings::{Pace, Settings};
use f2fs::{MountOptions, Volume};
use format::sit::LogType;
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::{FileSystem, Ino, WriteFlags};

use clairvoyant::Into;
use overwrites::Overwrites;
use placement::Placement;

use super::afterwards::{self, Afterwards};
use super::app_noted::distribution;
use super::cleaned::{self, AtATime, Cleaned};
use super::given::OnVolume;
use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::Bench;
use sim::progress::Progress;
use sim::result::{Histogram, Phase, Stage};
use sim::typed;

/// Blocks per segment.
const SEGMENT: u32 = 512;

/// Rounds of cleaning without a new free segment after which the next batch starts anyway.
const PATIENCE: u32 = 4;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Percent of the user's space in use after the file is written.
    fill_percent: u64,
    /// Blocks overwritten, as a percentage of the file's blocks.
    overwrite_percent: u64,
    /// Blocks per batch.
    batch_blocks: u32,
    /// Seconds between batches.
    batch_seconds: u64,
    /// Percent of the file's blocks that are hot.
    hot_percent: u64,
    /// Percent of the overwrites that hit hot blocks.
    hot_writes_percent: u64,
    /// Percent of the main area's segments to keep free after each batch.
    keep_free_percent: u32,
    /// The cleaning policy; `none`: no cleaning ahead of time.
    policy: String,
    /// The power source.
    power: String,
    /// How much is cleaned at a time.
    #[serde(default)]
    pace: AtATime,
    /// Minimum age in seconds for policies with an age threshold.
    age_threshold: u64,
    /// The work after.
    #[serde(default)]
    after: Option<Afterwards>,
}

/// Live blocks per group of 512 consecutively written blocks, after each batch.
struct Layout {
    /// By batch, then by group; without groups that are written later.
    live: Vec<Vec<u16>>,
}

impl Layout {
    fn of(work: &Overwrites) -> Layout {
        let group = |n: u32| n / SEGMENT;
        let mut live = vec![0; group(work.blocks.saturating_sub(1)) as usize + 1];
        let mut places: Vec<u32> = (0..work.blocks).map(group).collect();
        places.iter().for_each(|g| live[*g as usize] += 1);
        let mut next = work.blocks;
        let after = work.batches.iter().map(|batch| {
            for b in batch {
                let g = group(next);
                next += 1;
                live[places[*b as usize] as usize] -= 1;
                live.resize(live.len().max(g as usize + 1), 0);
                live[g as usize] += 1;
                places[*b as usize] = g;
            }
            live.clone()
        });
        Layout { live: after.collect() }
    }
}

/// Observations after each batch.
#[derive(Default)]
struct Seen {
    /// Free segments.
    free: Vec<u32>,
    /// The log was always at the position that sequential writing gives.
    in_order: bool,
    /// Durations of writes and syncs, in nanoseconds.
    writes: Vec<u64>,
    syncs: Vec<u64>,
}

/// Measures it.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    let even = cleaned::evenly(&p.policy, &p.power, Duration::ZERO)?;
    let gc = Settings { pace: p.pace.pace(even.policy), keep_free: p.keep_free_percent, ..even };
    let options = MountOptions { gc, ..MountOptions::default() };
    let parts = if given.is_aged() { 4 } else { 3 };
    let (bench, (mut phases, mut histograms)) = given.bench(profile, job, options, &progress.part(0, parts))?;
    let volume = bench.f2fs()?;
    cleaned::set_age_threshold(volume, p.age_threshold)?;
    typed::align(bench.f2fs()?, "before")?;
    let ino = bench.file("overwritten")?;
    let blocks = room(&**volume, p.fill_percent)?;
    phases.push(fill(&bench, ino, blocks, job.seed, &progress.part(parts - 3, parts))?);
    let work = Overwrites::draw(&p, blocks, &mut Rng::new(job.seed));
    let before = Cleaned::so_far(volume);
    let (mut phase, mut seen) = overwrite(&bench, ino, &p, &work, gc, job.seed, &progress.part(parts - 2, parts))?;
    let cleaned = Cleaned::so_far(volume).since(before);
    notes(&mut phase, cleaned, &seen);
    cleaned::note_inside(&mut phase);
    distribution(&mut phase, "write", &mut seen.writes);
    distribution(&mut phase, "sync", &mut seen.syncs);
    if !given.is_aged() {
        // If the log was not sequential, no moves are proved necessary.
        let moved = match seen.in_order {
            true => compare(volume, &mut phase, cleaned.moved as f64, &work, p.hot_percent, &seen),
            false => 0.0,
        };
        note_joules(&mut phase, profile, joules::Work::of(&work, moved));
    }
    phases.push(phase);
    if given.is_aged() {
        histograms.push(Histogram::of_free_space(&volume.free_fragments(), "overwritten"));
    }
    afterwards::run(p.after, &bench, job.seed, &progress.part(parts - 1, parts), &mut phases)?;
    Ok((phases, histograms))
}

/// Blocks of a file that fills the volume to `percent` percent, including its nodes.
fn room(fs: &dyn FileSystem, percent: u64) -> Result<u32, LabError> {
    let s = fs.statfs()?;
    let used = s.blocks - s.blocks_free;
    let room = (s.blocks * percent / 100).saturating_sub(used) * 1000 / 1003;
    match u32::try_from(room) {
        Ok(n) if n >= 4 * SEGMENT => Ok(n),
        _ => Err(LabError::parameters(format!(
            "fill_percent {percent}: {used} of {} blocks are in use, which leaves no file to overwrite",
            s.blocks
        ))),
    }
}

fn fill(bench: &Bench, ino: Ino, blocks: u32, seed: u64, progress: &Progress<'_>) -> Result<Phase, LabError> {
    let fs = bench.f2fs()?;
    let mut phase = bench.measure("filling", u64::from(blocks / SEGMENT), progress, |recorder| {
        let mut buf = vec![0; SEGMENT as usize * BLOCK];
        for first in (0..blocks).step_by(SEGMENT as usize) {
            let piece = &mut buf[..(blocks - first).min(SEGMENT) as usize * BLOCK];
            generate(seed, first, piece);
            fs.write(ino, u64::from(first) * BLOCK as u64, piece, WriteFlags::empty())?;
            recorder.step()?;
        }
        fs.sync()?;
        Ok(u64::from(blocks) * BLOCK as u64)
    })?;
    phase.stage = Stage::Preparation;
    Ok(phase)
}

fn overwrite(
    bench: &Bench,
    ino: Ino,
    p: &Parameters,
    work: &Overwrites,
    gc: Settings,
    seed: u64,
    progress: &Progress<'_>,
) -> Result<(Phase, Seen), LabError> {
    let fs = bench.f2fs()?;
    let keep = match cleaned::cleans(&p.policy) {
        true => fs.superblock().main_segs * p.keep_free_percent / 100,
        false => 0,
    };
    let mut seen = Seen { in_order: true, ..Seen::default() };
    let mut written = u64::from(work.blocks);
    let phase = bench.measure("overwriting", work.batches.len() as u64, progress, |recorder| {
        let mut block = [0; BLOCK];
        for (n, batch) in work.batches.iter().enumerate() {
            for b in batch {
                generate(seed ^ (n as u64 + 1), *b, &mut block);
                let from = bench.clock().monotonic();
                fs.write(ino, u64::from(*b) * BLOCK as u64, &block, WriteFlags::empty())?;
                seen.writes.push((bench.clock().monotonic() - from).as_nanos() as u64);
            }
            let from = bench.clock().monotonic();
            fs.sync()?;
            seen.syncs.push((bench.clock().monotonic() - from).as_nanos() as u64);
            written += batch.len() as u64;
            seen.in_order &= log_is_at(bench, written)?;
            bench.clock().advance(Duration::from_secs(p.batch_seconds));
            keep_free(bench, keep, gc)?;
            seen.in_order &= log_is_at(bench, written)?;
            seen.free.push(fs.state().free_segments);
            recorder.step()?;
        }
        Ok((written - u64::from(work.blocks)) * BLOCK as u64)
    })?;
    Ok((phase, seen))
}

/// Whether the data log is at the position that sequential writing of exactly `written` blocks gives.
fn log_is_at(bench: &Bench, written: u64) -> Result<bool, LabError> {
    let state = bench.f2fs()?.state();
    let log = state.logs.iter().find(|l| l.0 == LogType::WarmData);
    Ok(log.is_some_and(|(_, _, next, threaded)| !threaded && u64::from(*next) % 512 == written % 512))
}

/// Cleans until `keep` segments are free, or nothing is worth cleaning.
fn keep_free(bench: &Bench, keep: u32, gc: Settings) -> Result<(), LabError> {
    let volume = bench.f2fs()?;
    let nothing = || volume.counters.nothing_to_clean.load(Relaxed);
    let (start, mut idle) = (nothing(), 0);
    let mut free = volume.state().free_segments;
    while free < keep && nothing() == start && idle < PATIENCE {
        volume.set_cleaning(Settings { on: true, ..gc });
        match gc.pace {
            Pace::VICTIM => (free..keep).try_for_each(|_| volume.tick().map(drop))?,
            _ => turns(volume, keep, nothing)?,
        }
        volume.set_cleaning(gc);
        volume.sync()?;
        let now = volume.state().free_segments;
        idle = if now > free { 0 } else { idle + 1 };
        free = now;
    }
    Ok(())
}

/// Runs turns of cleaning until `keep` segments will be free, nothing is worth cleaning, or a turn frees nothing.
fn turns(volume: &Volume, keep: u32, nothing: impl Fn() -> u64) -> Result<(), LabError> {
    let soon = || {
        let state = volume.state();
        state.free_segments + state.prefree_segments
    };
    let (start, mut before) = (nothing(), soon());
    while before < keep && nothing() == start {
        volume.tick()?;
        let now = soon();
        if now <= before {
            break;
        }
        before = now;
    }
    Ok(())
}

fn notes(phase: &mut Phase, cleaned: Cleaned, seen: &Seen) {
    phase.note("gc_count", cleaned.sections as f64, "GCs");
    phase.note("foreground_gc_count", cleaned.in_foreground as f64, "GCs");
    phase.note("moved_blocks", cleaned.moved as f64, "blocks");
    phase.note("moved_threaded", cleaned.threaded as f64, "blocks");
    phase.note("fewest_free_segments", seen.free.iter().copied().min().unwrap_or(0).into(), "segments");
    let moving = [Cause::BackgroundGcData, Cause::BackgroundGcNode, Cause::ForegroundGcData, Cause::ForegroundGcNode];
    let joules = moving.iter().map(|c| phase.cause(*c as u8).joules()).sum();
    phase.note("joules_moving", joules, "J");
    phase.note("joules", phase.total().joules(), "J");
    let overwritten = phase.bytes as f64 / BLOCK as f64;
    phase.note("moved_per_overwrite", cleaned.moved as f64 / overwritten, "x");
}

/// Notes the bound in joules, and where the joules above it went.
fn note_joules(phase: &mut Phase, profile: &Profile, work: joules::Work) {
    let Some(least) = joules::least(profile, work) else { return };
    let spent = phase.total().joules();
    phase.note("bound_joules", least, "J");
    phase.note("joules_over_bound", spent / least, "x");
    for (name, joules) in excess::above(profile, phase, work).into_iter().flatten() {
        phase.note(&format!("above_{name}"), joules, "J");
    }
}

/// Notes the needs of cleaners that know the future, and of placements; returns the proved number of moves.
fn compare(volume: &Volume, phase: &mut Phase, moved: f64, work: &Overwrites, hot_percent: u64, seen: &Seen) -> f64 {
    let main = volume.superblock().main_segs;
    // The other five logs have one open segment each.
    let most: Vec<u32> = seen.free.iter().map(|free| main - free - 5).collect();
    let bound = proved::bound(&Layout::of(work).live, &most);
    // Node segments are about half full.
    let nodes = 2 * volume.state().nodes.div_ceil(SEGMENT);
    let most: Vec<u32> = most.iter().map(|n| n - nodes).collect();
    let mut note = |name: &str, of: f64| {
        phase.note(&format!("{name}_blocks"), of, "blocks");
        phase.note(&format!("moved_over_{name}"), moved / of, "x");
    };
    note("bound", bound);
    note("clairvoyant", clairvoyant::moved(work, &most, Into::New) as f64);
    note("clairvoyant_holes", clairvoyant::moved(work, &most, Into::Holes) as f64);
    let placed = [
        ("stock", placement::moved(work, &most, Placement::Stock)),
        ("classes", placement::moved(work, &most, Placement::Classes(hot_percent))),
        ("sepbit", placement::moved(work, &most, Placement::SepBit)),
        ("moves", placement::moved(work, &most, Placement::Moves)),
        ("oracle", placement::oracle(work, &most)),
    ];
    for (name, blocks) in placed {
        phase.note(&format!("placement_{name}"), blocks.map_or(f64::NAN, |n| n as f64), "blocks");
    }
    bound
}

#[cfg(test)]
mod tests {
    use device::{BlockDevice, Lba, Origin};
    use format::SegNo;

    use super::*;
    use sim::bench::blocks_of_mib;

    #[test]
    fn what_lives_in_a_group_is_what_was_written_there_last() {
        let work = Overwrites { blocks: 1024, batches: vec![vec![0, 1, 700], vec![1]] };
        assert_eq!(Layout::of(&work).live, [vec![510, 511, 3], vec![510, 511, 3]]);
    }

    #[test]
    fn the_log_holds_a_batch_in_the_order_of_the_file() {
        let profile = device::energy::profile::Profile::find("kirin9000-ufs31").unwrap();
        let mut bench = Bench::new(&profile, blocks_of_mib(512)).unwrap();
        bench.format(1, MountOptions::default()).unwrap();
        typed::align(bench.f2fs().unwrap(), "before").unwrap();
        let fs = bench.f2fs().unwrap();
        let ino = bench.file("overwritten").unwrap();
        fill(&bench, ino, 4096, 1, &Progress::new(&|_| ())).unwrap();
        let batch: Vec<u32> = (0..4096).filter(|b| b % 9 == 4).collect();
        let mut block = [0; BLOCK];
        for b in &batch {
            generate(2, *b, &mut block);
            fs.write(ino, u64::from(*b) * BLOCK as u64, &block, WriteFlags::empty()).unwrap();
        }
        fs.sync().unwrap();
        assert!(log_is_at(&bench, 4096 + batch.len() as u64).unwrap());
        let state = fs.state();
        let (_, seg, next, _) = state.logs.iter().find(|l| l.0 == LogType::WarmData).unwrap();
        let start = fs.superblock().seg_start(SegNo(*seg)).0;
        let found = (0..u32::from(*next)).map(|n| {
            bench.device().read(Lba((start + n).into()), &mut block, Cause::UserData.tag()).unwrap();
            Origin::of_block(&block)
        });
        let written = batch.iter().map(|b| Some(Origin { seed: 2, index: *b }));
        assert!(found.eq(written), "the log holds something else");
    }
}
