//! How is work measured on a simulated device with meter, clock and volume?

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::clock::Clock;
use device::energy::profile::Profile;
use device::energy::{Component, Ledger, Meter, Nanos, Processor, Work};
use device::model::{self, Model, Pace, Simulated};
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

/// Number of energy samples per phase.
const SAMPLES: u64 = 64;

/// A simulated device with its own clock and, after formatting, a volume.
pub struct Bench {
    kind: Kind,
    profile: Profile,
    clock: Arc<VirtualClock>,
    contents: Arc<Fingerprint>,
    device: Arc<Metered>,
    counting: Arc<Stack>,
    /// The host's page cache, if any, and a count of the requests to it.
    memory: Option<Arc<Counting<PageCache<Arc<Stack>, Arc<dyn BlockDevice>>>>>,
    options: MountOptions,
    /// Costs of operations on the device.
    prices: Prices,
    delta_costs: Costs,
    compress_costs: f2fs::compress::costs::Costs,
    mounted: Option<(Mounted, Arc<dyn Volume>)>,
}

/// All counters at one moment.
struct Reading {
    ledger: Ledger,
    counts: CountSnapshot,
    counters: Vec<(&'static str, u64)>,
    at: Nanos,
}

/// Called for every step of measured work.
pub struct Recorder<'a> {
    bench: &'a Bench,
    from: &'a Reading,
    steps: u64,
    done: u64,
    timeline: Vec<Sample>,
    progress: &'a Progress<'a>,
}

impl Bench {
    /// A device with this profile and this many blocks, for F2FS. Contents from [`device::generate`] take no memory;
    /// others do.
    pub fn new(profile: &Profile, blocks: u64) -> Result<Self, SimError> {
        Self::with_kind(Kind::F2fs, profile, blocks)
    }

    /// The same for any file system.
    pub fn with_kind(kind: Kind, profile: &Profile, blocks: u64) -> Result<Self, SimError> {
        let model = model::build(profile, blocks).map_err(|e| SimError::Parameters(e.to_string()))?;
        let new = (model, Nanos::default());
        Ok(Self::of(kind, profile, Arc::new(Fingerprint::new(blocks)), new, aging::clock()))
    }

    /// A bench on a device whose model is in a state, with its energy booked up to a moment.
    fn of(
        kind: Kind,
        profile: &Profile,
        contents: Arc<Fingerprint>,
        (model, booked): (Box<dyn Model>, Nanos),
        clock: Arc<VirtualClock>,
    ) -> Self {
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let bytes: Arc<dyn BlockDevice> = contents.clone();
        let device = Arc::new(Simulated::resumed(bytes, model, meter, Pace::Virtual(clock.clone()), booked));
        let carries = Contents::from_reasons(&kind.reasons());
        let counting = Arc::new(Host::new(Witness::new(Counting::new(device.clone()), carries), carries));
        Bench {
            kind,
            profile: profile.clone(),
            clock,
            contents,
            device,
            counting,
            memory: None,
            options: MountOptions::default(),
            prices: prices::of(profile),
            delta_costs: Costs::by_lzo(profile),
            compress_costs: f2fs::compress::costs::Costs::of(profile),
            mounted: None,
        }
    }

    /// Unmounts the volume, if it is mounted.
    ///
    /// # Errors
    /// The volume cannot be unmounted.
    pub fn unmount(&mut self) -> Result<(), SimError> {
        self.mounted.take().map_or(Ok(()), |(_, volume)| Ok(volume.unmount()?))
    }

    /// A bench with the same device and contents, and a clock and meter of its own; the volume is mounted there with
    /// these options. Unmount it here before.
    ///
    /// # Errors
    /// The device's model cannot be stored, or the volume cannot be mounted.
    pub fn fork(&self, options: impl Into<MountOptions>) -> Result<Bench, SimError> {
        let state = self.device.state().filter(|_| self.mounted.is_none());
        let (model, booked) = state.ok_or_else(|| SimError::Parameters("this device is in use".into()))?;
        let clock = aging::clock();
        clock.advance(self.clock.monotonic());
        let contents = Arc::new(self.contents.fork());
        let mut bench = Self::of(self.kind, &self.profile, contents, (model.into_model(), booked), clock);
        bench.options = bench.of_this_device(options.into());
        bench.mount()?;
        Ok(bench)
    }

    /// All energy that the device and its host have spent.
    pub fn spent(&self) -> Ledger {
        self.device.ledger()
    }

    /// The device as the file system sees it.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match &self.memory {
            Some(memory) => memory.clone(),
            None => self.counting.clone(),
        }
    }

    /// The contents of the device.
    pub fn contents(&self) -> Arc<dyn BlockDevice> {
        self.device.contents().clone()
    }

    /// From now on the host caches this many recently used blocks.
    pub fn keep_in_memory(&mut self, blocks: usize) {
        let cache = PageCache::new(self.counting.clone(), self.contents(), blocks);
        self.memory = Some(Arc::new(Counting::new(cache)));
    }

    /// Requests by cause: those to the host's cache, and those that reached the device.
    pub fn asked(&self) -> (CountSnapshot, CountSnapshot) {
        let device = self.counting.inner().inner().snapshot();
        (self.memory.as_ref().map_or_else(|| device.clone(), |memory| memory.snapshot()), device)
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    /// From now on requests of file contents have at most this many blocks.
    pub fn cut_requests_at(&self, blocks: Option<u64>) {
        self.counting.cut_at(blocks);
    }

    /// Runs `work`; returns its result and, in order, the requests for file contents that it made to the device.
    pub fn watch<T>(&self, work: impl FnOnce() -> Result<T, SimError>) -> Result<(T, Vec<Seen>), SimError> {
        self.counting.inner().begin();
        let out = work();
        let seen = self.counting.inner().end();
        Ok((out?, seen))
    }

    /// Power-cycles a device without a volume, which clears its memory.
    pub fn switch_off_and_on(&self) -> Result<(), SimError> {
        Ok(self.device.power_cycle(Tag::default())?)
    }

    /// Creates a volume with an identity drawn from `seed`, and mounts it.
    pub fn format(&mut self, seed: u64, options: impl Into<MountOptions>) -> Result<(), SimError> {
        self.format_with(seed, mkfs::Options::default().features, options)
    }

    /// The same with these features (F2FS only).
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

    /// Ages the volume by a recipe and measures that. The device ages too: all writes pass through it, and its time is
    /// used.
    pub fn age(&self, recipe: &str, seed: u64, progress: &Progress<'_>) -> Result<(Phase, Histogram), SimError> {
        self.age_around(recipe, seed, progress, &mut |_| Ok(()))
    }

    /// The same, but runs `something` after the first of the recipe's predecessors, as on a phone that was just set up.
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
                    part.part(step, steps).report(p.done as f64 / p.total.max(1) as f64);
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

    /// From now on the volume is mounted with these options. It is remounted as by [`restart`](Self::restart).
    pub fn mount_as(&mut self, options: impl Into<MountOptions>) -> Result<(), SimError> {
        self.options = self.of_this_device(options.into());
        self.restart(false)
    }

    fn of_this_device(&self, mut options: MountOptions) -> MountOptions {
        options.f2fs = f2fs::MountOptions {
            prices: self.prices,
            delta_costs: self.delta_costs.of_codec(&options.f2fs.delta_study),
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

    /// Unmounts and mounts, which clears the host's memory. With `device`, the device is power-cycled too, like a phone
    /// that restarts.
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

    /// Simulates a program that computes and makes no requests: its processor is busy, the board is awake, the device
    /// waits.
    pub fn think(&self, time: Nanos) {
        self.device.compute(Work::Program, time, Tag::default());
    }

    /// The volume.
    pub fn volume(&self) -> Result<&Arc<dyn Volume>, SimError> {
        self.mounted.as_ref().map(|(_, volume)| volume).ok_or(SimError::NoVolume)
    }

    /// The volume, for functions that only F2FS has.
    pub fn f2fs(&self) -> Result<&Arc<f2fs::Volume>, SimError> {
        let (mounted, _) = self.mounted.as_ref().ok_or(SimError::NoVolume)?;
        mounted.f2fs().ok_or(SimError::OnlyF2fs(self.kind))
    }

    /// The file system.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// A file in the root, created if missing. It stays referenced until the next restart.
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

    /// Writes a whole file in order, with contents from [`device::generate`] and `seed`, and fsyncs it.
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

    /// Measures `work`, which takes about this many `steps` and returns the bytes it requested or processed. Data still
    /// in memory is not counted: work that should pay for its writes must sync them.
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

    /// Names of owners whose inodes are in memory: looking up others would add work to the measurement.
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
    /// Marks a step as done: runs due background work, and samples the meter at intervals.
    pub fn step(&mut self) -> Result<(), SimError> {
        if let Some((_, volume)) = &self.bench.mounted {
            volume.tick()?;
        }
        self.done += 1;
        let every = (self.steps / SAMPLES).max(1);
        if self.done.is_multiple_of(every) {
            self.sample();
            self.progress.report(self.done as f64 / self.steps.max(1) as f64);
        }
        Ok(())
    }

    /// Idles for this long, except for due background work; counts as a step.
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

/// Blocks in this many mebibytes.
pub fn blocks_of_mib(mib: u64) -> u64 {
    mib.saturating_mul((1 << 20) / BLOCK as u64)
}
