//! What do the strategies of a log for disks cost, on battery and on the charger? (Scherl 2004, section 7.3: "up to now
//! none of these strategies is implemented".)
//!
//! A ScherlFS volume is used for days. On battery, files are deleted and created, a database is changed at random with
//! a sync after each change, and files are read: some at random, some sequentially as a habit. Then, if a variant has a
//! charger, the volume does all its background work while idle. All days but the last are preparation; the last is
//! measured.
//!
//! Reads follow a remount: caches are cold.

use device::energy::profile::{DeviceSpec, Profile};
use device::{BLOCK, Rng, generate};
use schemars::JsonSchema;
use scherlfs::{Clean, MountOptions, Sync, Volume, make};
use serde::Deserialize;
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, Power, WriteFlags};

use super::{Measured, parameters};
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, blocks_of_mib};
use sim::progress::Progress;
use sim::result::{Phase, Stage};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// MiB of the volume.
    volume_mib: u64,
    /// Percent of the volume that files fill.
    full: u64,
    /// Days; the last is measured.
    days: u64,
    /// MiB of files deleted, and of files created, per day.
    churn_mib: u64,
    /// Changes of a page of the database per day.
    updates: u64,
    /// Files read at random per day.
    reads: u64,
    /// How often the habitual files are read per day.
    habits: u64,
    /// How space is freed, as in `-o clean=`.
    clean: String,
    /// Whether there is a charger at night.
    charger: bool,
}

/// MiB of the database.
const DATABASE: u64 = 8;
/// Files of the habit.
const HABIT: usize = 40;
const ME: Caller = Caller { uid: 0, gid: 0 };
const FILE: NewNode =
    NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber { major: 0, minor: 0 } };

struct File {
    name: String,
    bytes: u64,
}

/// A volume and its contents.
struct Life<'a> {
    p: &'a Parameters,
    bench: &'a Bench,
    options: MountOptions,
    volume: Volume,
    rng: Rng,
    files: Vec<File>,
    made: u64,
    habit: Vec<String>,
}

fn mounted(bench: &Bench, options: &MountOptions) -> Result<Volume, LabError> {
    Ok(Volume::mount(bench.device(), bench.clock().clone(), options.clone())?)
}

impl<'a> Life<'a> {
    fn begin(p: &'a Parameters, bench: &'a Bench, seed: u64) -> Result<Self, LabError> {
        let clean = Clean::parse(&p.clean).map_err(|why| LabError::parameters(format!("clean {why}")))?;
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&seed.to_le_bytes());
        make::format(bench.device(), &**bench.clock(), &make::Options { uuid, ..make::Options::default() })?;
        let options = MountOptions { clean, power: Power::Battery, sync: Sync::Fsync, ..MountOptions::default() };
        let volume = mounted(bench, &options)?;
        let rng = Rng::new(seed);
        Ok(Life { p, bench, options, volume, rng, files: Vec::new(), made: 0, habit: Vec::new() })
    }

    fn again(&mut self) -> Result<(), LabError> {
        self.volume.unmount()?;
        self.volume = mounted(self.bench, &self.options)?;
        Ok(())
    }

    fn write(&self, ino: Ino, at: u64, bytes: &[u8]) -> Result<(), LabError> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.volume.write(ino, at + done as u64, &bytes[done..], WriteFlags::empty())?;
        }
        Ok(())
    }

    fn make(&mut self, name: String, bytes: u64) -> Result<(), LabError> {
        let ino = self.volume.mknod(ME, self.volume.root(), name.as_bytes(), &FILE)?.attr.ino;
        let mut part = vec![0; 1 << 16];
        for at in (0..bytes).step_by(part.len()) {
            let n = (bytes - at).min(part.len() as u64) as usize;
            generate(self.made, (at / BLOCK as u64) as u32, &mut part[..n.next_multiple_of(BLOCK)]);
            self.write(ino, at, &part[..n])?;
        }
        self.volume.forget(ino, 1);
        self.made += 1;
        self.files.push(File { name, bytes });
        Ok(())
    }

    /// Most files are small, most bytes are in large ones: 4 to 64 KiB, and one in twenty 1 MiB.
    fn size(&mut self) -> u64 {
        if self.rng.below(20) == 0 { 1 << 20 } else { 4096 + self.rng.below(60 << 10) }
    }

    fn come(&mut self) -> Result<u64, LabError> {
        let (name, bytes) = (format!("f{}", self.made), self.size());
        self.make(name, bytes)?;
        self.volume.tick()?;
        Ok(bytes)
    }

    fn fill(&mut self) -> Result<u64, LabError> {
        self.make("database".into(), DATABASE << 20)?;
        self.files.clear();
        let mut bytes = 0;
        loop {
            let now = self.volume.statfs()?;
            if (now.blocks - now.blocks_free) * 100 >= now.blocks * self.p.full {
                break;
            }
            bytes += self.come()?;
        }
        for _ in 0..HABIT {
            let n = self.rng.below(self.files.len() as u64) as usize;
            let name = self.files[n].name.clone();
            if self.files[n].bytes < 1 << 20 && !self.habit.contains(&name) {
                self.habit.push(name);
            }
        }
        self.volume.sync()?;
        Ok(bytes)
    }

    /// Deletes and creates files; changes the database.
    fn writing(&mut self) -> Result<u64, LabError> {
        let (mut gone, mut come) = (0, 0);
        while gone < self.p.churn_mib << 20 {
            let n = self.rng.below(self.files.len() as u64) as usize;
            if self.habit.contains(&self.files[n].name) {
                continue;
            }
            let file = self.files.swap_remove(n);
            self.volume.unlink(self.volume.root(), file.name.as_bytes())?;
            gone += file.bytes;
            while come < gone {
                come += self.come()?;
            }
        }
        let database = self.volume.lookup(self.volume.root(), b"database")?.attr.ino;
        let mut page = [0; BLOCK];
        for _ in 0..self.p.updates {
            generate(self.rng.next_u64(), 0, &mut page);
            let at = self.rng.below((DATABASE << 20) / BLOCK as u64) * BLOCK as u64;
            self.write(database, at, &page)?;
            self.volume.fsync(database, true)?;
        }
        self.volume.forget(database, 1);
        self.volume.sync()?;
        Ok(come + self.p.updates * BLOCK as u64)
    }

    fn read(&self, name: &str) -> Result<u64, LabError> {
        let attr = self.volume.lookup(self.volume.root(), name.as_bytes())?.attr;
        self.volume.open(attr.ino, false)?;
        let mut part = vec![0; 1 << 17];
        for at in (0..attr.size).step_by(part.len()) {
            self.volume.read(attr.ino, at, &mut part)?;
        }
        self.volume.release(attr.ino);
        self.volume.forget(attr.ino, 1);
        Ok(attr.size)
    }

    /// Reads the whole database, random files, and the habit.
    fn reading(&mut self) -> Result<u64, LabError> {
        let mut bytes = self.read("database")?;
        for _ in 0..self.p.reads {
            let n = self.rng.below(self.files.len() as u64) as usize;
            bytes += self.read(&self.files[n].name)?;
        }
        for _ in 0..self.p.habits {
            for name in &self.habit {
                bytes += self.read(name)?;
            }
        }
        Ok(bytes)
    }

    fn night(&mut self) -> Result<u64, LabError> {
        let done = self.volume.tidy()?;
        Ok((done.moved + done.gathered) * BLOCK as u64)
    }

    fn day(&mut self) -> Result<(), LabError> {
        self.writing()?;
        self.again()?;
        self.reading()?;
        if self.p.charger {
            self.night()?;
        }
        Ok(())
    }
}

fn finished(mut phase: Phase, life: &Life<'_>) -> Phase {
    phase.forget_owners();
    let joules = phase.total().joules();
    phase.note("joules", joules, "J");
    let seeks = phase.counters.get("seeks").copied().unwrap_or(0) as f64;
    phase.note("seeks", seeks, "seeks");
    let (runs, largest) = life.volume.free_runs();
    phase.note("free_runs", runs as f64, "runs");
    phase.note("largest_free_run", largest as f64, "blocks");
    phase
}

/// Simulates the days.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let p: Parameters = parameters(job)?;
    let DeviceSpec::Disk(_) = &profile.device else {
        return Err(LabError::parameters(format!("{} is not a disk", profile.name)));
    };
    let bench = Bench::new(profile, blocks_of_mib(p.volume_mib))?;
    let mut life = Life::begin(&p, &bench, job.seed)?;
    let before = bench.measure("before", p.days, &progress.part(0, 4), |recorder| {
        let mut bytes = life.fill()?;
        for _ in 1..p.days {
            life.day()?;
            bytes += p.churn_mib << 20;
            recorder.step()?;
        }
        Ok(bytes)
    })?;
    let mut before = finished(before, &life);
    before.stage = Stage::Preparation;
    let mut phases = vec![before];
    let writing = bench.measure("writing", 1, &progress.part(1, 4), |_| Ok(life.writing()?))?;
    phases.push(finished(writing, &life));
    life.again()?;
    let reading = bench.measure("reading", 1, &progress.part(2, 4), |_| Ok(life.reading()?))?;
    phases.push(finished(reading, &life));
    if p.charger {
        let night = bench.measure("charger", 1, &progress.part(3, 4), |_| Ok(life.night()?))?;
        phases.push(finished(night, &life));
    }
    life.volume.unmount()?;
    Ok((phases, Vec::new()))
}
