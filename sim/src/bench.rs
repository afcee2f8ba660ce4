//! What stands on the table: a device with its meter and clock, a volume on it, and how a stretch of
//! work on it is measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::clock::Clock;
use device::energy::profile::Profile;
use device::energy::{Component, Ledger, Meter, Nanos, Processor};
use device::model::{self, Pace, Simulated};
use device::{BLOCK, BlockDevice, CountSnapshot, Counting, Fingerprint, Tag, VirtualClock, generate};
use f2fs::delta::Costs;
use f2fs::gc::prices;
use f2fs::mkfs;
use format::superblock::Features;
use vfs::{Caller, DeviceNumber, FileKind, FreeFragments, Ino, Look, NewNode, Owner, Volume, WriteFlags};
use victim::joule::Prices;
use volume::{Kind, MountOptions, Mounted};

use crate::aging::{self, Ager, Recipe};
use crate::contents::Contents;
use crate::error::SimError;
use crate::host::Host;
use crate::progress::Progress;
use crate::result::{DELETED, Histogram, Phase, Raw, Sample, Stage};
use crate::traces::host_memory::PageCache;
use crate::witness::{Seen, Witness};

type Metered = Simulated<Arc<dyn BlockDevice>>;
type Stack = Host<Witness<Counting<Arc<Metered>>>>;

/// Moments kept of how a phase's energy adds up.
const SAMPLES: u64 = 64;

/// A simulated device with a clock of its own and, once formatted, a volume.
pub struct Bench {
    kind: Kind,
    clock: Arc<VirtualClock>,
    device: Arc<Metered>,
    counting: Arc<Stack>,
    /// What the host keeps in memory, if it keeps anything, and what it was asked for.
    memory: Option<Arc<Counting<PageCache<Arc<Stack>, Arc<dyn BlockDevice>>>>>,
    options: MountOptions,
    /// What operations cost on the device.
    prices: Prices,
    delta_costs: Costs,
    compress_costs: f2fs::compress::costs::Costs,
    mounted: Option<(Mounted, Arc<dyn Volume>)>,
}

/// Everything counted up to a moment.
struct Reading {
    ledger: Ledger,
    counts: CountSnapshot,
    counters: Vec<(&'static str, u64)>,
    at: Nanos,
}

/// Told of every step of a measured stretch of work.
pub struct Recorder<'a> {
    bench: &'a Bench,
    from: &'a Reading,
    steps: u64,
    done: u64,
    timeline: Vec<Sample>,
    progress: &'a Progress<'a>,
}

impl Bench {
    /// A device of a profile, of so many blocks, for F2FS, whose contents are made by
    /// [`device::generate`] or else take the memory they take.
    pub fn new(profile: &Profile, blocks: u64) -> Result<Self, SimError> {
        Self::of(Kind::F2fs, profile, blocks)
    }

    /// The same for whichever file system.
    pub fn of(kind: Kind, profile: &Profile, blocks: u64) -> Result<Self, SimError> {
        let clock = aging::clock();
        let model = model::build(profile, blocks).map_err(|e| SimError::Parameters(e.to_string()))?;
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let contents: Arc<dyn BlockDevice> = Arc::new(Fingerprint::new(blocks));
        let device = Arc::new(Simulated::new(contents, model, meter, Pace::Virtual(clock.clone())));
        let carries = Contents::of(&kind.reasons());
        let counting = Arc::new(Host::new(Witness::new(Counting::new(device.clone()), carries), carries));
        let prices = prices::of(profile);
        let delta_costs = Costs::of(profile);
        Ok(Bench {
            kind,
            clock,
            device,
            counting,
            memory: None,
            options: MountOptions::default(),
            prices,
            delta_costs,
            compress_costs: f2fs::compress::costs::Costs::of(profile),
            mounted: None,
        })
    }

    /// The device as a file system sees it.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match &self.memory {
            Some(memory) => memory.clone(),
            None => self.counting.clone(),
        }
    }

    /// What was written, as it lies on the device.
    pub fn contents(&self) -> Arc<dyn BlockDevice> {
        self.device.contents().clone()
    }

    /// From now on the host keeps so many blocks in memory that were read or written last.
    pub fn keep_in_memory(&mut self, blocks: usize) {
        let cache = PageCache::new(self.counting.clone(), self.contents(), blocks);
        self.memory = Some(Arc::new(Counting::new(cache)));
    }

    /// What the host was asked for by cause, whether it had it or not, and what of it the device was.
    pub fn asked(&self) -> (CountSnapshot, CountSnapshot) {
        let device = self.counting.inner().inner().snapshot();
        (self.memory.as_ref().map_or_else(|| device.clone(), |memory| memory.snapshot()), device)
    }

    /// The clock everything runs by.
    pub fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    /// From now on requests of file contents are of at most so many blocks.
    pub fn cut_requests_at(&self, blocks: Option<u64>) {
        self.counting.cut_at(blocks);
    }

    /// What `work` asks of the device for contents of files, in order, and what it returns.
    pub fn watch<T>(&self, work: impl FnOnce() -> Result<T, SimError>) -> Result<(T, Vec<Seen>), SimError> {
        self.counting.inner().begin();
        let out = work();
        let seen = self.counting.inner().end();
        Ok((out?, seen))
    }

    /// Switches a device without a volume off and on: nothing is in its memory afterwards.
    pub fn switch_off_and_on(&self) -> Result<(), SimError> {
        Ok(self.device.power_cycle(Tag::default())?)
    }

    /// Makes a volume and mounts it; `seed` gives it its identity.
    pub fn format(&mut self, seed: u64, options: impl Into<MountOptions>) -> Result<(), SimError> {
        self.format_with(seed, mkfs::Options::default().features, options)
    }

    /// The same with these features, if it is F2FS.
    pub fn format_with(
        &mut self,
        seed: u64,
        features: Features,
        options: impl Into<MountOptions>,
    ) -> Result<(), SimError> {
        aging::format_with(self.kind, self.counting.clone(), &*self.clock, seed, true, features)?;
        self.options = self.of_this_device(options.into());
        self.mount()
    }

    /// Brings the volume into the state of a recipe and measures what that took. The device ages with it:
    /// everything is written through it, and it says how long that takes.
    pub fn age(&self, recipe: &str, seed: u64, progress: &Progress<'_>) -> Result<(Phase, Histogram), SimError> {
        self.age_around(recipe, seed, progress, &mut |_| Ok(()))
    }

    /// The same, and does `something` when the first recipe of those that `recipe` comes after is carried out, as on a phone that
    /// was just set up.
    pub fn age_around(
        &self,
        recipe: &str,
        seed: u64,
        progress: &Progress<'_>,
        something: &mut dyn FnMut(&Bench) -> Result<(), SimError>,
    ) -> Result<(Phase, Histogram), SimError> {
        let chain = Recipe::chain(recipe)?;
        let volume = self.volume()?;
        let mut phase = self.measure("aging", 1, progress, |_| {
            let mut ager = Ager::new(&**volume, &self.clock, seed).on_the_devices_time();
            let mut written = 0;
            for (n, recipe) in chain.iter().enumerate() {
                let part = progress.part(n, chain.len());
                let steps = recipe.steps.len();
                let (mut step, mut last) = (0, String::new());
                let done = ager.all(std::slice::from_ref(recipe), &mut |p| {
                    if p.what != last {
                        step += usize::from(!last.is_empty());
                        last.clone_from(&p.what);
                    }
                    part.part(step, steps).at(p.done as f64 / p.total.max(1) as f64);
                })?;
                written = done.bytes_written;
                if n == 0 {
                    something(self)?;
                }
            }
            Ok(written)
        })?;
        phase.stage = Stage::Preparation;
        volume.sync()?;
        let free = volume.free_fragments();
        phase.note("free_pieces", free.total() as f64, "pieces");
        for (level, count) in free.count.iter().enumerate() {
            phase.note(&format!("free_pieces_{}", FreeFragments::name(level)), *count as f64, "pieces");
        }
        Ok((phase, Histogram::of_free_space(&free, "aged")))
    }

    /// From now on the volume is mounted like this. It is unmounted and mounted as by [`restart`](Self::restart).
    pub fn mount_as(&mut self, options: impl Into<MountOptions>) -> Result<(), SimError> {
        self.options = self.of_this_device(options.into());
        self.restart(false)
    }

    fn of_this_device(&self, mut options: MountOptions) -> MountOptions {
        let alone = options.f2fs.delta_study.alone;
        options.f2fs = f2fs::MountOptions {
            prices: self.prices,
            delta_costs: if alone { self.delta_costs.of_pages_alone() } else { self.delta_costs },
            compress_costs: self.compress_costs,
            processor: Some(self.device.clone()),
            ..options.f2fs
        };
        options
    }

    fn mount(&mut self) -> Result<(), SimError> {
        let mounted = volume::mount(self.kind, self.device(), self.clock.clone(), self.options.clone())?;
        let volume = mounted.volume();
        self.mounted = Some((mounted, volume));
        Ok(())
    }

    /// Unmounts and mounts: nothing is in the host's memory afterwards. With `device`, the device was
    /// switched off and on meanwhile, as when the phone is restarted: nothing is in its memory either.
    pub fn restart(&mut self, device: bool) -> Result<(), SimError> {
        if let Some((_, volume)) = self.mounted.take() {
            volume.unmount()?;
        }
        if let Some(memory) = &self.memory {
            memory.inner().clear();
        }
        if device {
            self.device.power_cycle(Tag::default())?;
        }
        self.mount()
    }

    /// A program computes for so long and asks for nothing: its processor is busy, the board is awake, the device waits.
    pub fn think(&self, time: Nanos) {
        self.device.compute(time, Tag::default());
    }

    /// The volume.
    pub fn volume(&self) -> Result<&Arc<dyn Volume>, SimError> {
        self.mounted.as_ref().map(|(_, volume)| volume).ok_or(SimError::NoVolume)
    }

    /// The volume, of which something is asked that only F2FS has.
    pub fn f2fs(&self) -> Result<&Arc<f2fs::Volume>, SimError> {
        let (mounted, _) = self.mounted.as_ref().ok_or(SimError::NoVolume)?;
        mounted.f2fs().ok_or(SimError::OnlyF2fs(self.kind))
    }

    /// Its file system.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The file of a name in the root, made if it is not there. It is referred to until the next restart.
    pub fn file(&self, name: &str) -> Result<Ino, SimError> {
        let fs = self.volume()?;
        match fs.lookup(fs.root(), name.as_bytes()) {
            Ok(entry) => Ok(entry.attr.ino),
            Err(vfs::Error::NotFound) => {
                let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
                Ok(fs.mknod(Caller::default(), fs.root(), name.as_bytes(), &new)?.attr.ino)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Writes a file whole, in order, with what [`device::generate`] makes of `seed`, and makes it
    /// durable.
    pub fn write_whole(&self, ino: Ino, bytes: u64, seed: u64) -> Result<(), SimError> {
        let fs = self.volume()?;
        let mut piece = vec![0; 1 << 20];
        for at in (0..bytes).step_by(piece.len()) {
            generate(seed, (at / BLOCK as u64) as u32, &mut piece);
            fs.write(ino, at, &piece, WriteFlags::empty())?;
        }
        Ok(fs.fsync(ino, false)?)
    }

    fn read(&self) -> Reading {
        Reading {
            ledger: self.device.ledger(),
            counts: self.counting.inner().inner().snapshot(),
            counters: self.device.counters(),
            at: Nanos::from_duration(self.clock.monotonic()),
        }
    }

    /// Measures `work`, which takes about so many `steps` and returns the bytes it asked for or gave.
    /// What it did is on the phase, whatever memory still keeps back: work that means to pay for its
    /// writes makes them durable.
    pub fn measure(
        &self,
        name: &str,
        steps: u64,
        progress: &Progress<'_>,
        work: impl FnOnce(&mut Recorder<'_>) -> Result<u64, SimError>,
    ) -> Result<Phase, SimError> {
        let from = self.read();
        let mut recorder = Recorder { bench: self, from: &from, steps, done: 0, timeline: Vec::new(), progress };
        let bytes = work(&mut recorder)?;
        recorder.sample();
        let timeline = recorder.timeline;
        let to = self.read();
        let earlier: BTreeMap<_, _> = from.counters.iter().copied().collect();
        let counters = to.counters.iter().map(|(n, v)| {
            let before = earlier.get(n).copied().unwrap_or(0);
            ((*n).to_owned(), v.saturating_sub(before))
        });
        let ledger = to.ledger.since(&from.ledger);
        let raw = Raw {
            ledger: &ledger,
            counts: &(&to.counts - &from.counts),
            counters: counters.collect(),
            took: to.at.since(from.at),
            timeline,
        };
        let mut phase = Phase::new(name, bytes, raw);
        phase.fs = self.kind;
        phase.account.names = self.names(phase.account.owners());
        phase.files = phase.named();
        Ok(phase)
    }

    /// The names of those owners whose inodes are in memory: looking for others would be work that is not
    /// the experiment's.
    fn names(&self, owners: impl Iterator<Item = u64>) -> BTreeMap<u64, String> {
        let Some((_, volume)) = &self.mounted else { return BTreeMap::new() };
        let named = |owner| match volume.owner_of(owner, Look::InMemory) {
            Owner::Path(path) => Some((owner, String::from_utf8_lossy(&path).into_owned())),
            Owner::Deleted(_) => Some((owner, DELETED.into())),
            Owner::Volume | Owner::Unnamed => None,
        };
        owners.filter_map(named).collect()
    }
}

impl Recorder<'_> {
    /// One step is done: what is due by the clock is done too, and now and then the meter is read.
    pub fn step(&mut self) -> Result<(), SimError> {
        if let Some((_, volume)) = &self.bench.mounted {
            volume.tick()?;
        }
        self.done += 1;
        let every = (self.steps / SAMPLES).max(1);
        if self.done.is_multiple_of(every) {
            self.sample();
            self.progress.at(self.done as f64 / self.steps.max(1) as f64);
        }
        Ok(())
    }

    /// Nobody asks anything for so long, but for what the volume does by the clock; a step.
    pub fn wait(&mut self, how_long: Duration) -> Result<(), SimError> {
        self.bench.clock.advance(how_long);
        self.step()
    }

    fn sample(&mut self) {
        let at = Nanos::from_duration(self.bench.clock.monotonic()).since(self.from.at);
        if self.timeline.last().is_some_and(|s| s.at == at) {
            return;
        }
        let from = &self.from.ledger;
        let spent = self.bench.device.look(|now| Component::ALL.map(|c| now.component(c) - from.component(c)));
        self.timeline.push(Sample { at, spent });
    }
}

/// Blocks in so many mebibytes.
pub fn blocks_of_mib(mib: u64) -> u64 {
    mib.saturating_mul((1 << 20) / BLOCK as u64)
}
