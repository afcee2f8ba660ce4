//! When does cleaning in the background earn its joules back?
//!
//! A volume in a given state, filled so far, is used in turns: work, then a pause in which nobody asks anything and the
//! background cleans at the pace it has on a mount. What follows is the work that free segments are held for
//! ([`super::afterwards`]). What the use, its cleaning and the work after cost together is told beside what callers waited
//! for. The control is the same use while nobody cleans in the background.
//!
//! The work keeps the volume as full as it is: what comes replaces what goes. Left out: reading, and what else a phone does.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::clock::Clock;
use device::energy::profile::Profile;
use device::{BLOCK, Rng, generate};
use f2fs::MountOptions;
use f2fs::cause::Cause;
use f2fs::gc::settings::{Intervals, Settings};
use schemars::JsonSchema;
use serde::Deserialize;
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};

use super::afterwards::Afterwards;
use super::app_cleaning::fill;
use super::app_noted::distribution;
use super::cleaned::{self, Cleaned, Who};
use super::given::OnVolume;
use super::{Measured, parameters};
use crate::bench::{Bench, Recorder};
use crate::error::LabError;
use crate::plan::Job;
use crate::progress::Progress;
use crate::result::{Histogram, Stage};

/// What is done in a turn.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Work {
    /// Files of 4 to 64 KiB are made, and others, drawn at random, removed.
    SmallFiles,
    /// Files of 8 MiB are made, and the oldest removed.
    Downloads,
    /// Pages of one file are overwritten, four of five in a fifth of it, with an fsync after every eighth.
    Pages,
    /// A third of the bytes each: pages of a database, which the file system takes for hot, small files, and media, which it
    /// takes for cold, of which the oldest goes.
    Mixed,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Percent of the user's space in use: what the work does not need for itself, a file that nobody touches fills.
    fill_percent: u64,
    /// What is done.
    work: Work,
    /// Mebibytes of what the work replaces bit by bit.
    live_mib: u64,
    /// How many turns there are.
    turns: u64,
    /// Mebibytes written in each.
    turn_mib: u64,
    /// Seconds of the pause behind each.
    pause_seconds: u64,
    /// Who cleans meanwhile.
    cleaning: Who,
    /// Seconds of age from which policies with a threshold clean.
    age_threshold: u64,
    /// The work after.
    after: Afterwards,
}

impl Parameters {
    /// Refuses what is not there.
    pub fn check(&self) -> Result<(), LabError> {
        self.cleaning.check()?;
        if self.turns == 0 || self.turn_mib == 0 || self.live_mib < 2 * LARGE >> 20 || self.fill_percent > 99 {
            return Err(LabError::Parameters(
                "turns and turn_mib are 1 or more, live_mib 16 or more, fill_percent 99 or less".into(),
            ));
        }
        Ok(())
    }

    /// Cleaning as on a mount.
    fn settings(&self) -> Result<Settings, LabError> {
        let policy = cleaned::policy(&self.cleaning.policy)?;
        let power = cleaned::power(&self.cleaning.power)?;
        let (on, pace) = (cleaned::cleans(&self.cleaning.policy), self.cleaning.pace.pace(policy));
        Ok(Settings { on, policy, power, pace, intervals: Intervals::of(policy), ..Settings::default() })
    }
}

/// Bytes of a download.
const LARGE: u64 = 8 << 20;
/// Bytes between two syncs of whole files.
const SYNC_EVERY: u64 = 4 << 20;
/// Pages from one fsync to the next.
const PAGES: u64 = 8;
const FILE: NewNode =
    NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber { major: 0, minor: 0 } };

/// Who uses the volume.
struct User<'a> {
    bench: &'a Bench,
    work: Work,
    rng: Rng,
    /// What it keeps, the oldest first: number and bytes.
    files: VecDeque<(u64, u64)>,
    /// The same of media, where there are others beside them.
    media: VecDeque<(u64, u64)>,
    made: u64,
    /// The file whose pages change, and its pages.
    paged: Option<(Ino, u64)>,
    unsynced: u64,
    /// How long calls took, in nanoseconds, what they waited for among it: those that make something durable, and the others.
    syncs: Vec<u64>,
    calls: Vec<u64>,
}

/// Which page changes next: four of five times one of the first fifth.
fn page_of(rng: &mut Rng, pages: u64) -> u64 {
    let hot = pages / 5;
    match rng.below(5) {
        0 => hot + rng.below(pages - hot),
        _ => rng.below(hot),
    }
}

fn name(n: u64, bytes: u64, work: Work) -> String {
    let ending = if work == Work::Mixed && bytes == LARGE { ".mp4" } else { "" };
    format!("used-{n:06}{ending}")
}

impl<'a> User<'a> {
    /// Makes what the work replaces bit by bit.
    fn begin(bench: &'a Bench, p: &Parameters, seed: u64) -> Result<Self, LabError> {
        let (rng, live) = (Rng::new(seed), p.live_mib << 20);
        let (files, syncs, calls) = (VecDeque::new(), Vec::new(), Vec::new());
        let media = VecDeque::new();
        let mut user = User { bench, work: p.work, rng, files, media, made: 0, paged: None, unsynced: 0, syncs, calls };
        if p.work == Work::Mixed {
            let ino = bench.file("paged.db")?;
            bench.write_whole(ino, live / 3, seed)?;
            user.paged = Some((ino, live / 3 / BLOCK as u64));
            let (mut small, mut large) = (0, 0);
            while small < live / 3 {
                small += user.come()?;
                if large < small {
                    large += user.bring(LARGE)?;
                }
            }
            bench.f2fs()?.sync()?;
            (user.syncs, user.calls) = Default::default();
            return Ok(user);
        }
        if p.work == Work::Pages {
            let ino = bench.file("paged")?;
            bench.write_whole(ino, live, seed)?;
            user.paged = Some((ino, live / BLOCK as u64));
            return Ok(user);
        }
        let mut bytes = 0;
        while bytes < live {
            bytes += user.come()?;
        }
        bench.f2fs()?.sync()?;
        (user.syncs, user.calls) = Default::default();
        Ok(user)
    }

    /// Does something and notes how long it took.
    fn call<T>(&mut self, work: impl FnOnce() -> vfs::Result<T>) -> Result<T, LabError> {
        let from = self.bench.clock().monotonic();
        let out = work()?;
        self.calls.push((self.bench.clock().monotonic() - from).as_nanos() as u64);
        Ok(out)
    }

    /// The same of something that makes durable.
    fn sync(&mut self, work: impl FnOnce() -> vfs::Result<()>) -> Result<(), LabError> {
        self.call(work)?;
        self.syncs.extend(self.calls.pop());
        Ok(())
    }

    fn size(&mut self) -> u64 {
        match self.work {
            Work::Downloads => LARGE,
            _ => (1 + self.rng.below(16)) * BLOCK as u64,
        }
    }

    /// A file comes.
    fn come(&mut self) -> Result<u64, LabError> {
        let bytes = self.size();
        self.bring(bytes)
    }

    /// One of so many bytes does.
    fn bring(&mut self, bytes: u64) -> Result<u64, LabError> {
        let n = self.made;
        self.made += 1;
        let name = name(n, bytes, self.work);
        let volume = self.bench.f2fs()?;
        let ino = self.call(|| volume.mknod(Caller::default(), volume.root(), name.as_bytes(), &FILE))?.attr.ino;
        let mut part = vec![0; bytes.min(1 << 17) as usize];
        for at in (0..bytes).step_by(part.len()) {
            generate(n, (at / BLOCK as u64) as u32, &mut part);
            let some = &part[..(bytes - at).min(part.len() as u64) as usize];
            self.call(|| match volume.write(ino, at, some, WriteFlags::empty())? {
                n if n == some.len() => Ok(()),
                _ => Err(vfs::Error::NoSpace),
            })?;
        }
        volume.forget(ino, 1);
        match self.work {
            Work::Mixed if bytes == LARGE => self.media.push_back((n, bytes)),
            _ => self.files.push_back((n, bytes)),
        }
        self.unsynced += bytes;
        if self.unsynced >= SYNC_EVERY {
            self.unsynced = 0;
            self.sync(|| volume.sync())?;
        }
        Ok(bytes)
    }

    /// One of those that are there goes.
    fn go(&mut self) -> Result<u64, LabError> {
        let at = match self.work {
            Work::Downloads => 0,
            _ => self.rng.below(self.files.len() as u64) as usize,
        };
        // The order counts for downloads alone, of which the first goes.
        match self.files.swap_remove_front(at) {
            Some(file) => self.remove(file),
            None => Ok(0),
        }
    }

    fn remove(&mut self, (n, bytes): (u64, u64)) -> Result<u64, LabError> {
        let (volume, name) = (self.bench.f2fs()?, name(n, bytes, self.work));
        self.call(|| volume.unlink(volume.root(), name.as_bytes()))?;
        Ok(bytes)
    }

    /// A turn of all three.
    fn mixed(&mut self, (ino, pages): (Ino, u64), bytes: u64) -> Result<u64, LabError> {
        let (mut changed, mut gone, mut come, mut large) = (0, 0, 0, 0);
        let third = bytes / 3;
        while come < third {
            while gone <= come {
                gone += self.go()?;
            }
            come += self.come()?;
            while changed < come {
                changed += BLOCK as u64;
                self.change(ino, pages, changed / BLOCK as u64)?;
            }
            if large < come {
                if let Some(oldest) = self.media.pop_front() {
                    self.remove(oldest)?;
                }
                large += self.bring(LARGE)?;
            }
        }
        Ok(changed + come + large)
    }

    /// A page changes.
    fn change(&mut self, ino: Ino, pages: u64, n: u64) -> Result<(), LabError> {
        let at = page_of(&mut self.rng, pages);
        let mut page = [0; BLOCK];
        generate(self.rng.next_u64(), 0, &mut page);
        let volume = self.bench.f2fs()?;
        self.call(|| volume.write(ino, at * BLOCK as u64, &page, WriteFlags::empty()))?;
        if n.is_multiple_of(PAGES) { self.sync(|| volume.fsync(ino, true)) } else { Ok(()) }
    }

    /// One turn; says how many bytes were written.
    fn turn(&mut self, bytes: u64) -> Result<u64, LabError> {
        if let (Work::Mixed, Some(paged)) = (self.work, self.paged) {
            return self.mixed(paged, bytes);
        }
        if let Some((ino, pages)) = self.paged {
            let count = bytes / BLOCK as u64;
            (1..=count).try_for_each(|n| self.change(ino, pages, n))?;
            return Ok(count * BLOCK as u64);
        }
        let (mut gone, mut come) = (0, 0);
        while come < bytes {
            while gone <= come {
                gone += self.go()?;
            }
            come += self.come()?;
        }
        Ok(come)
    }
}

fn used(
    bench: &Bench,
    p: &Parameters,
    gc: Settings,
    user: &mut User<'_>,
    recorder: &mut Recorder<'_>,
) -> Result<(u64, u32), LabError> {
    let volume = bench.f2fs()?;
    let (mut bytes, mut fewest) = (0, u32::MAX);
    for _ in 0..p.turns {
        volume.set_cleaning(gc);
        bytes += user.turn(p.turn_mib << 20)?;
        fewest = fewest.min(volume.state().free_segments);
        cleaned::pass_time(bench, recorder, Duration::from_secs(p.pause_seconds))?;
    }
    volume.set_cleaning(cleaned::never(gc.policy));
    volume.sync()?;
    Ok((bytes, fewest))
}

/// Fills the volume so far, and says how full it is; fails where it is fuller already.
fn fill_to(bench: &Bench, percent: u64, seed: u64) -> Result<f64, LabError> {
    fill(bench, percent, seed)?;
    let s = bench.f2fs()?.statfs()?;
    let full = 100.0 * (s.blocks - s.blocks_free) as f64 / s.blocks as f64;
    if full > percent as f64 + 1.0 {
        return Err(LabError::Parameters(format!(
            "fill_percent {percent}: with its state and what the work replaces, the volume is {full:.1} % full"
        )));
    }
    Ok(full)
}

/// Measures it.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let OnVolume { given, work: p } = parameters::<OnVolume<Parameters>>(job)?;
    given.check(super::CLEANING)?;
    p.check()?;
    let gc = p.settings()?;
    let options = MountOptions { gc: cleaned::never(gc.policy), ..MountOptions::default() };
    let (bench, (mut phases, mut histograms)) = given.bench(profile, job, options, &progress.part(0, 3))?;
    let volume = bench.f2fs()?;
    cleaned::set_age_threshold(volume, p.age_threshold)?;
    let mut user = User::begin(&bench, &p, job.seed)?;
    let full = fill_to(&bench, p.fill_percent, job.seed)?;
    histograms.push(Histogram::of_free_space(&volume.free_fragments(), "before use"));
    let free = volume.state().free_segments;
    let before = Cleaned::so_far(volume);
    let mut fewest = free;
    let mut phase = bench.measure("use", p.turns * p.pause_seconds, &progress.part(1, 3), |recorder| {
        let (bytes, least) = used(&bench, &p, gc, &mut user, recorder)?;
        fewest = least;
        Ok(bytes)
    })?;
    phase.stage = Stage::Measured;
    let cleaned = Cleaned::so_far(volume).since(before);
    cleaned.note(&mut phase);
    cleaned::note_inside(&mut phase);
    phase.note("foreground_gc_count", cleaned.in_foreground as f64, "GCs");
    distribution(&mut phase, "call", &mut user.calls);
    distribution(&mut phase, "sync", &mut user.syncs);
    phase.note("syncs_made", user.syncs.len() as f64, "calls");
    phase.note("full", full, "%");
    phase.note("longest_step", volume.counters.longest_pause.load(Relaxed) as f64 / 1e3, "ms");
    phase.note("free_segments_before", free.into(), "segments");
    phase.note("fewest_free_segments", fewest.into(), "segments");
    let moving = [Cause::BackgroundGcData, Cause::BackgroundGcNode, Cause::ForegroundGcData, Cause::ForegroundGcNode];
    phase.note("joules_moving", moving.iter().map(|c| phase.cause(*c as u8).joules()).sum(), "J");
    let mut after = p.after.run(&bench, job.seed, &progress.part(2, 3))?;
    after.note("in_all", (phase.total() + after.total()).joules(), "J");
    histograms.push(Histogram::of_free_space(&volume.free_fragments(), "at the end"));
    phases.extend([phase, after]);
    volume.unmount()?;
    Ok((phases, histograms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_of_five_changes_are_in_a_fifth_of_the_file() {
        let mut rng = Rng::new(1);
        let all: Vec<u64> = (0..100_000).map(|_| page_of(&mut rng, 4000)).collect();
        let hot = all.iter().filter(|at| **at < 800).count();
        assert!((79_000..81_000).contains(&hot), "{hot} of 100000");
        assert!(all.iter().all(|at| *at < 4000));
        assert!(all.iter().filter(|at| **at >= 3200).count() > 4000, "the cold rest is drawn evenly");
    }
}
