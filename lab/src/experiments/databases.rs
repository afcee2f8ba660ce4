//! How fragmented are a phone's files after its databases have grown, and what does using them cost then?
//!
//! Programs are installed on a volume in a given state; then databases grow ([`super::growth`]). The experiment counts
//! the files' extents, by class and application; uses the databases and records the places of their requests; scans
//! one; defragments the databases; and uses and scans them again. It also simulates a mapping cache for the requests of
//! the first use, as they were and as if the databases had been defragmented before (Ji HotStorage'16, sections 4 and
//! 5).

use std::collections::BTreeSet;

use device::BLOCK;
use device::energy::profile::{DeviceSpec, Profile};
use f2fs::file::extents::torn;
use f2fs::{MountOptions, Volume};
use inspect::class::{Class, application};
use schemars::JsonSchema;
use serde::Deserialize;
use trace::block::{DeviceId, Flags, Op};
use trace::requests::Request;
use trace::stat::map_cache::{Costs, Geometry, Maps, Migration};
use vfs::{FileSystem, Ino, Moving, SetAttr, WriteFlags};

use super::growth::{self, AppSpec, Growing, How};
use super::layout::{self, Layout, Sum};
use super::{Measured, parameters};
use crate::apps::database::Journal;
use crate::error::LabError;
use crate::plan::Job;
use crate::sqlite_disk::ONE_AT_A_TIME;
use sim::bench::{Bench, blocks_of_mib};
use sim::progress::Progress;
use sim::result::{Histogram, Phase};
use sim::witness::Seen;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// MiB of the volume.
    volume_mib: u64,
    /// The recipe that ages the volume; by default it is new.
    #[serde(default)]
    state: Option<String>,
    /// Whether programs are installed before aging, as on a phone in long use.
    #[serde(default)]
    programs_first: bool,
    /// The applications.
    apps: Vec<AppSpec>,
    /// SQLite's journal.
    journal: Journal,
    /// Whether databases grow together, or one after the other.
    together: bool,
    /// Percent of transactions that are followed by a picture.
    pictures_percent: u64,
    /// Mean size of a picture in KiB.
    picture_kib: u64,
    /// Percent of the volume that a file fills at the start.
    #[serde(default)]
    fill_percent: u64,
    /// MiB of the host's memory.
    memory_mib: u64,
    /// Operations of the measured use.
    #[serde(default)]
    deeds: u64,
    /// The package whose first database is scanned.
    #[serde(default)]
    scan: Option<String>,
    /// How databases are defragmented before the second use and scan; not at all by default.
    #[serde(default)]
    defragment: Option<Treatment>,
    /// KiB preallocated for each database's growth.
    #[serde(default)]
    prealloc_kib: u32,
    /// Sizes of mapping caches to report, in pages, in addition to the profile's.
    #[serde(default)]
    cached_pages: Vec<u64>,
}

/// How a file is defragmented.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Treatment {
    /// Not at all: measures a second use of the same layout.
    Nothing,
    /// Read whole, truncated, written sequentially. (A real defragmenter must survive a power cut; there is none here.)
    /// Works even if the log fills holes.
    Rewrite,
    /// Like `joulefs clean`.
    Copy,
    /// Like `joulefs clean --make-room`: if too few segments are free, cleans sections first.
    Clean,
    /// Like `Copy`, but the device remaps the blocks to their new addresses.
    Remap,
}

impl Parameters {
    /// Refuses impossible combinations.
    pub fn check(&self) -> Result<(), LabError> {
        let bad = |text: &str| Err(LabError::parameters(text));
        if self.apps.iter().any(|a| a.databases > 0 && (a.record < 2 || a.batch == 0)) {
            return bad("apps: record is 2 or more, batch 1 or more");
        }
        if self.fill_percent > 90 || self.memory_mib == 0 {
            return bad("fill_percent is 90 or less, memory_mib 1 or more");
        }
        Ok(())
    }

    fn how(&self) -> How {
        let Parameters { journal, together, pictures_percent, picture_kib, .. } = *self;
        How { journal, together, pictures_percent, picture_kib }
    }
}

/// Bins of addresses in the distribution of writes.
const PARTS: u64 = 64;
/// Blocks for which space is made at a time, and cleanings without gain before giving up: as in `joulefs clean`.
const PART: u64 = 4096;
const IN_VAIN: u32 = 16;

/// Runs it.
pub(super) fn run(profile: &Profile, job: &Job, progress: &Progress<'_>) -> Result<Measured, LabError> {
    let _alone = ONE_AT_A_TIME.lock();
    let p: Parameters = parameters(job)?;
    p.check()?;
    let mut bench = Bench::new(profile, blocks_of_mib(p.volume_mib))?;
    let prealloc = (p.prealloc_kib > 0).then_some(p.prealloc_kib.div_ceil(4));
    bench.format(job.seed, MountOptions { prealloc, ..MountOptions::default() })?;
    let (mut phases, mut histograms) = (Vec::new(), Vec::new());
    let files = p.apps.iter().map(|a| a.programs_mib.len() as u64).sum();
    let install = |bench: &Bench| {
        bench.measure("install", files, &progress.part(1, 8), |r| Ok(growth::install(bench, &p.apps, job.seed, r)?))
    };
    if p.programs_first {
        phases.push(install(&bench)?);
    }
    if let Some(recipe) = &p.state {
        let (phase, histogram) = bench.age(recipe, job.seed, &progress.part(0, 8))?;
        phases.push(phase);
        histograms.push(histogram);
    }
    bench.keep_in_memory(blocks_of_mib(p.memory_mib) as usize);
    bench.restart(false)?;
    if p.fill_percent > 0 {
        let fs = &**bench.volume()?;
        let bytes = fs.statfs()?.blocks * BLOCK as u64 / 100 * p.fill_percent;
        growth::write_new(fs, fs.root(), "ballast", bytes & !0xfff, job.seed, true)?;
    }
    if !p.programs_first {
        phases.push(install(&bench)?);
    }
    {
        let mut growing = Growing::open(&bench, &p.apps, p.how(), true, job.seed)?;
        let part = progress.part(2, 8);
        phases.push(bench.measure("grow", growing.steps(), &part, |r| {
            let bytes = growing.grow(&bench, r)?;
            bench.volume()?.sync()?;
            Ok(bytes)
        })?);
    }
    let grown = Layout::of(&bench)?;
    if let Some(last) = phases.last_mut() {
        grown.databases(None).note(last);
    }
    state(&bench, &grown, &p.apps, &mut phases)?;
    let (first, seen) = use_and_scan(&mut bench, &p, job, "", &progress.part(3, 8))?;
    phases.extend(first);
    let before = Layout::of(&bench)?;
    let watched = Watched::of(&before, seen);
    histograms.extend(watched.histogram(blocks_of_device(&bench)));
    if let Some(last) = phases.iter_mut().rfind(|p| p.name == "use") {
        watched.note(last, &before, blocks_of_device(&bench));
    }
    if let Some(how) = p.defragment {
        let before = Layout::of(&bench)?;
        let mut phase = put_in_order(&bench, &before, how, &progress.part(6, 8))?;
        let after = Layout::of(&bench)?;
        after.databases(None).note(&mut phase);
        phases.push(phase);
        let migration = layout::moved(&before, &after);
        let own = match &profile.device {
            DeviceSpec::Flash(spec) => Some(spec.map.cached_pages.value),
            DeviceSpec::Disk(_) => None,
        };
        let sizes: BTreeSet<u64> = p.cached_pages.iter().copied().chain(own).collect();
        let apps = p.apps.iter().filter(|a| a.databases > 0).map(|a| Some(a.package.as_str()));
        for app in std::iter::once(None).chain(apps) {
            phases.extend(translated(&bench, &sizes, &watched.of_app(&before, app), migration.clone(), app)?);
        }
        let (again, _) = use_and_scan(&mut bench, &p, job, "-in-order", &progress.part(7, 8))?;
        for mut phase in again {
            let first = phase.name.strip_suffix("-in-order").and_then(|n| phases.iter().find(|p| p.name == n));
            if let Some(first) = first {
                let (time, energy) = (first.took.0 as f64, first.total().joules());
                phase.note("time_of_fragmented", phase.took.0 as f64 / time, "x");
                phase.note("joules_of_fragmented", phase.total().joules() / energy, "x");
            }
            phases.push(phase);
        }
    }
    Ok((phases, histograms))
}

fn blocks_of_device(bench: &Bench) -> u64 {
    bench.contents().blocks()
}

/// The layout of files, by class and by application: phases without cost.
fn state(bench: &Bench, layout: &Layout, apps: &[AppSpec], phases: &mut Vec<Phase>) -> Result<(), LabError> {
    let mut of = |name: &str, sum: Sum| -> Result<(), LabError> {
        if sum.files > 0 {
            let mut phase = bench.measure(name, 1, &Progress::new(&|_| ()), |_| Ok(0))?;
            sum.note(&mut phase);
            phases.push(phase);
        }
        Ok(())
    };
    let of_apps = |path: &str| application(path).is_some();
    for class in Class::ALL {
        of(class.text(), layout.sum(|path, f| f.class == class && of_apps(path)))?;
    }
    of("journals", layout.sum(|path, _| of_apps(path) && (path.ends_with("-journal") || path.ends_with("-wal"))))?;
    of("all-files", layout.sum(|_, _| true))?;
    for app in apps.iter().filter(|a| a.databases > 0) {
        of(&app.package, layout.databases(Some(&app.package)))?;
    }
    let st = bench.volume()?.statfs()?;
    let mut phase = bench.measure("volume", 1, &Progress::new(&|_| ()), |_| Ok(0))?;
    phase.note("in_use", 100.0 * (1.0 - st.blocks_free as f64 / st.blocks as f64), "%");
    phases.push(phase);
    Ok(())
}

/// Uses the databases, then scans one, each with cold caches. Returns the device requests of the use.
fn use_and_scan(
    bench: &mut Bench,
    p: &Parameters,
    job: &Job,
    suffix: &str,
    progress: &Progress<'_>,
) -> Result<(Vec<Phase>, Vec<Seen>), LabError> {
    let (mut phases, mut seen) = (Vec::new(), Vec::new());
    if p.deeds > 0 {
        bench.restart(true)?;
        let bench = &*bench;
        let mut growing = Growing::open(bench, &p.apps, p.how(), false, job.seed ^ 0x05e)?;
        let name = format!("use{suffix}");
        let (mut phase, requests) = bench.watch(|| {
            bench.measure(&name, p.deeds, &progress.part(0, 2), |r| {
                let bytes = growing.use_them(p.deeds, r)?;
                bench.volume()?.sync()?;
                Ok(bytes)
            })
        })?;
        drop(growing);
        seen = requests;
        phase.note("time_per_deed", phase.took.0 as f64 / 1e3 / p.deeds as f64, "us");
        counted(&mut phase);
        Layout::of(bench)?.databases(None).note(&mut phase);
        phases.push(phase);
    }
    if let Some(package) = &p.scan {
        bench.restart(true)?;
        let bench = &*bench;
        let growing = Growing::open(bench, &p.apps, p.how(), false, job.seed)?;
        let mut rows = 0;
        let (mut phase, requests) = bench.watch(|| {
            bench.measure(&format!("scan{suffix}"), 1, &progress.part(1, 2), |_| {
                let (bytes, n) = growing.scan(package)?;
                rows = n;
                Ok(bytes)
            })
        })?;
        drop(growing);
        phase.note("rows", rows as f64, "rows");
        phase.note("requests", requests.len() as f64, "requests");
        let blocks: u64 = requests.iter().map(|s| s.blocks).sum();
        phase.note("size_of_requests", blocks as f64 * 4.0 / requests.len() as f64, "KB");
        counted(&mut phase);
        let path = format!("/data/{package}/databases/store0.db");
        Layout::of(bench)?.sum(|of, _| of == path).note(&mut phase);
        phases.push(phase);
    }
    Ok((phases, seen))
}

fn counted(phase: &mut Phase) {
    for (counter, name) in [("map_pages_fetched", "map_reads"), ("map_pages_written", "map_writes")] {
        if let Some(n) = phase.counters.get(counter).copied() {
            phase.note(name, n as f64, "pages");
        }
    }
}

/// Requests for database contents.
struct Watched(Vec<Seen>);

impl Watched {
    fn of(layout: &Layout, seen: Vec<Seen>) -> Self {
        let databases = layout.database_inodes();
        // In order of inode number.
        Watched(seen.into_iter().filter(|s| databases.binary_search(&s.owner).is_ok()).collect())
    }

    /// The requests of one application, or all.
    fn of_app(&self, layout: &Layout, app: Option<&str>) -> Watched {
        let own = app.map(|app| layout.inodes_of(app));
        Watched(self.0.iter().filter(|s| own.as_ref().is_none_or(|own| own.contains(&s.owner))).copied().collect())
    }

    fn writes(&self) -> impl Iterator<Item = &Seen> {
        self.0.iter().filter(|s| s.write)
    }

    fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        self.0.iter().map(|s| Request {
            time: 0,
            op: if s.write { Op::Write } else { Op::Read },
            flags: Flags::empty(),
            sector: s.at * 8,
            sectors: s.blocks * 8,
            device: DeviceId::default(),
            pid: 0,
            process: trace::Process::default(),
        })
    }

    /// Blocks written by address bin; none without writes.
    fn histogram(&self, blocks: u64) -> Option<Histogram> {
        let mut bars = vec![0; PARTS as usize];
        let part = blocks.div_ceil(PARTS).max(1);
        for block in self.writes().flat_map(|s| s.at..s.at + s.blocks) {
            bars[(block / part).min(PARTS - 1) as usize] += 1;
        }
        let name = format!("blocks of databases written while they were used, by address, in {PARTS} equal parts");
        let bars: Vec<(String, u64)> = bars.into_iter().enumerate().map(|(n, c)| (n.to_string(), c)).collect();
        bars.iter().any(|(_, n)| *n > 0).then(|| Histogram {
            name,
            by: "part of the device".into(),
            unit: "blocks".into(),
            bars,
        })
    }

    /// Notes how dispersed the writes are.
    fn note(&self, phase: &mut Phase, layout: &Layout, device: u64) {
        let blocks: Vec<u64> = self.writes().flat_map(|s| s.at..s.at + s.blocks).collect();
        let Some((least, most)) = blocks.iter().min().zip(blocks.iter().max()) else { return };
        let mut pages: Vec<u64> = blocks.iter().map(|b| b / 1024).collect();
        pages.sort_unstable();
        pages.dedup();
        phase.note("database_blocks_written", blocks.len() as f64, "blocks");
        phase.note("range_of_writes", (most - least) as f64 / f64::from(1 << 18), "GB");
        phase.note("range_of_writes_in_device", 100.0 * (most - least) as f64 / device as f64, "%");
        phase.note("map_pages_of_writes", pages.len() as f64, "pages");
        let steps = self.writes().zip(self.writes().skip(1)).map(|(a, b)| (a.at + a.blocks).abs_diff(b.at));
        let mut steps: Vec<u64> = steps.collect();
        steps.sort_unstable();
        if let Some(median) = steps.get(steps.len() / 2) {
            phase.note("median_step_between_writes", *median as f64 / 256.0, "MB");
        }
        let written: BTreeSet<u64> = self.writes().map(|s| s.owner).collect();
        phase.note("database_files_written", written.len() as f64, "files");
        let dispersed = written.iter().filter_map(|ino| layout.file(*ino)).filter(|f| f.layout.span >= 1 << 18);
        phase.note("of_them_over_a_gigabyte", dispersed.count() as f64, "files");
        phase.writes_at = scattered(self.writes());
    }
}

/// Maximum number of points in a plot.
const POINTS: usize = 4000;

/// Each write's index and first block.
fn scattered<'a>(writes: impl Iterator<Item = &'a Seen>) -> Vec<(u64, u64)> {
    let all: Vec<(u64, u64)> = (0..).zip(writes).map(|(n, s)| (n, s.at)).collect();
    all.iter().step_by(all.len().div_ceil(POINTS).max(1)).copied().collect()
}

/// Notes the map traffic of mapping caches of several sizes for these requests, as they were and as if the databases
/// had been defragmented before.
fn translated(
    bench: &Bench,
    sizes: &BTreeSet<u64>,
    watched: &Watched,
    migration: Migration,
    app: Option<&str>,
) -> Result<Vec<Phase>, LabError> {
    let mut maps = Maps::new(Geometry::default(), true, None, Some(migration));
    watched.requests().for_each(|r| maps.add(&r));
    let Some((before, after)) = maps.done().devices.into_iter().next().and_then(|d| Some((d.before, d.after?))) else {
        return Ok(Vec::new());
    };
    let of = app.map_or_else(String::new, |app| format!("{app}-"));
    // Changed pages still cached at the end are written later, too.
    let writes = |c: Costs| (c.writes + c.changed) as f64;
    let one = |pages: &u64| {
        let mut phase = bench.measure(&format!("{of}cache-{pages}"), 1, &Progress::new(&|_| ()), |_| Ok(0))?;
        let (a, b) = (before.costs_at(*pages), after.costs_at(*pages));
        for (when, costs) in [("before", a), ("after", b)] {
            phase.note(&format!("translation_reads_{when}"), costs.reads as f64, "pages");
            phase.note(&format!("translation_writes_{when}"), writes(costs), "pages");
        }
        phase.note("translation_reads_kept", b.reads as f64 / a.reads as f64, "x");
        phase.note("translation_writes_kept", writes(b) / writes(a), "x");
        phase.note("cache_read_ratio", a.reads as f64 / b.reads as f64, "x");
        phase.note("cache_write_ratio", writes(a) / writes(b), "x");
        Ok(phase)
    };
    sizes.iter().map(one).collect()
}

/// Defragments each database that has more extents than necessary.
fn put_in_order(bench: &Bench, before: &Layout, how: Treatment, progress: &Progress<'_>) -> Result<Phase, LabError> {
    let torn: Vec<Ino> = before
        .files()
        .filter(|(path, f)| f.class == Class::Database && application(path).is_some() && f.excess() > 0)
        .map(|(_, f)| Ino(f.ino.0.into()))
        .collect();
    let torn = if how == Treatment::Nothing { Vec::new() } else { torn };
    let fs = &**bench.f2fs()?;
    let (mut refused, cleaned) = (0, fs.counters.moved_blocks());
    let mut phase = bench.measure("put-in-order", torn.len() as u64, progress, |recorder| {
        let mut bytes = 0;
        for ino in torn {
            let moved = match how {
                Treatment::Nothing | Treatment::Rewrite => {
                    bytes += written_again(fs, ino)?;
                    Ok(0)
                }
                Treatment::Copy => fs.bring_together(ino, Moving::Copy),
                Treatment::Remap => fs.bring_together(ino, Moving::Share),
                Treatment::Clean => with_room(fs, ino),
            };
            match moved {
                Ok(blocks) => bytes += blocks * BLOCK as u64,
                // Logs fill holes and would scatter the file again; or no cleaning can make space for it.
                Err(vfs::Error::Busy(_) | vfs::Error::NoSpace) => refused += 1,
                Err(e) => return Err(e.into()),
            }
            recorder.step()?;
        }
        fs.sync()?;
        Ok(bytes)
    })?;
    let cleaned = (fs.counters.moved_blocks() - cleaned) * BLOCK as u64;
    phase.note("moved", phase.bytes as f64 / 1_048_576.0, "MB");
    phase.note("moved_by_cleaning", cleaned as f64 / 1_048_576.0, "MB");
    phase.note("refused_files", f64::from(refused), "files");
    Ok(phase)
}

/// Defragments a file in parts, and makes space before each. Returns the number of blocks.
fn with_room(vol: &Volume, ino: Ino) -> vfs::Result<u64> {
    let mut moved = 0;
    for range in torn(&vol.extents(ino, 0, usize::MAX)?) {
        let mut at = range.start;
        while at < range.end {
            let part = at..range.end.min(at + PART);
            make_room(vol, part.end - part.start)?;
            while at < part.end {
                let (next, n) = vol.defragment(ino, at..part.end, Moving::Copy)?;
                (at, moved) = (next, moved + n);
            }
        }
    }
    Ok(moved)
}

/// Cleans sections until `blocks` blocks can be contiguous.
fn make_room(vol: &Volume, blocks: u64) -> vfs::Result<()> {
    let (mut least, mut in_vain) = (u64::MAX, 0);
    loop {
        let short = vol.room(blocks, false)?.short;
        if short == 0 {
            return Ok(());
        }
        // Cleaning moves blocks before it frees segments; after long without gain, give up.
        in_vain = if short < least { 0 } else { in_vain + 1 };
        least = least.min(short);
        if in_vain == IN_VAIN {
            return Err(vfs::Error::Busy("cleaning frees no more"));
        }
        vol.room(blocks, true)?;
    }
}

/// Rewrites the file; returns its bytes.
fn written_again(fs: &dyn FileSystem, ino: Ino) -> Result<u64, LabError> {
    let size = fs.getattr(ino)?.size;
    let mut all = vec![0; size as usize];
    let mut at = 0;
    while at < all.len() {
        match fs.read(ino, at as u64, &mut all[at..])? {
            0 => break,
            n => at += n,
        }
    }
    fs.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
    let mut at = 0;
    while at < all.len() {
        at += fs.write(ino, at as u64, &all[at..], WriteFlags::empty())?;
    }
    fs.fsync(ino, false)?;
    Ok(size)
}
