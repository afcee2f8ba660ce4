//! What do recorded calls cost on a volume on a simulated device?

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::energy::Ledger;
use device::energy::profile::Profile;
use device::model::Simulated;
use device::{BlockDevice, CountSnapshot, Counting, Fingerprint, Lba, Overlay};
use f2fs::delta::Costs;
use f2fs::gc::prices;
use f2fs::mkfs;
use format::superblock::Features;
use record::calls::Prepared;
use trace::replay::calls::{Pauses, Replayed};
use vfs::{Cleaned, Volume};
use volume::{Kind, MountOptions, Mounted};

use super::host_memory::PageCache;
use super::order::{Order, Ordered};
use super::source::{Making, Source};
use super::state::{self, Began, Wanted};
use super::timeline::Timeline;
use super::watched::{Watch, Watched};
use super::{Progress, ReplayError, Run, Speed, Stack, since};
use crate::aging;
use crate::error::SimError;

/// The volume, and the number of repetitions.
#[derive(Clone)]
pub struct Options {
    /// The file system, of a new volume or of the image.
    pub fs: Kind,
    /// Mount options.
    pub mount: MountOptions,
    /// The volume may hold deltas: a new one is created so, an image must be so.
    pub deltas: bool,
    /// The volume may hold compressed files: a new one is created so.
    pub compressed: bool,
    /// Bytes of a new volume; default: space for twice the largest content of the recording, in the wanted state.
    pub bytes: Option<u64>,
    /// The image to use; default: a new volume.
    pub image: Option<Image>,
    /// The initial state of a new volume.
    pub state: Wanted,
    /// Seed of recipes and of the volume's identity.
    pub seed: u64,
    /// How time passes.
    pub speed: Speed,
    /// When a thread makes its next call.
    pub pauses: Pauses,
    /// Size of the host's page cache in blocks, with read-ahead; it is empty when the calls begin. Without it, every
    /// read of contents reaches the device.
    pub page_cache: Option<usize>,
    /// Mount the volume just before the calls, so that it has no nodes or directories in memory. Otherwise it keeps
    /// what aging left there, like the file system of a machine in use.
    pub cold: bool,
    /// Record when energy was spent.
    pub watched: bool,
    /// Number of repetitions. Between two of them, files left behind are removed and needed files are created again,
    /// without being counted.
    pub times: NonZeroU32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            fs: Kind::default(),
            mount: MountOptions::default(),
            deltas: false,
            compressed: false,
            bytes: None,
            image: None,
            state: Wanted::default(),
            seed: 0,
            speed: Speed::default(),
            pauses: Pauses::default(),
            page_cache: None,
            cold: false,
            watched: false,
            times: NonZeroU32::MIN,
        }
    }
}

/// An existing volume; it is not changed.
#[derive(Clone)]
pub struct Image {
    /// Its device.
    pub device: Arc<dyn BlockDevice>,
    /// Runs of blocks with data.
    pub held: Vec<(Lba, u64)>,
}

/// Results of calls, apart from energy.
pub struct OnVolumeDone {
    /// The calls.
    pub calls: Replayed,
    /// Failed calls are those with another result than in the recording.
    pub compared: bool,
    /// What was created before.
    pub prepared: Prepared,
    /// State of the volume when the calls began.
    pub began: Began,
    /// Pages stored as deltas.
    pub deltas: u64,
    /// Requests to the device, by cause.
    pub counts: CountSnapshot,
    /// The order of the requests to the device in the last repetition.
    pub order: Order,
    /// When energy was spent, if recorded.
    pub timeline: Timeline,
    /// Work of the cleaner.
    pub cleaned: Cleaned,
    /// Free segments at the end, after the unmount's checkpoint, if the file system has segments.
    pub free_segments: Option<u64>,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// The file system.
    pub fs: Kind,
    /// The unmounted volume; it still has its files' names.
    pub volume: Arc<dyn Volume>,
    /// The contents of the device, for comparing two file systems.
    pub contents: Arc<dyn BlockDevice>,
}

impl Options {
    /// Features of a new volume.
    fn features(&self) -> Features {
        let modern = mkfs::Options::modern().features;
        match (self.deltas, self.compressed) {
            (false, false) => mkfs::Options::default().features,
            (true, false) => modern | Features::DELTA,
            (false, true) => modern | Features::COMPRESSION,
            (true, true) => modern | Features::DELTA | Features::COMPRESSION,
        }
    }
}

/// A volume on a simulated device, with its counters.
struct Bench {
    stack: Stack,
    counting: Arc<Counting<Arc<Simulated<Arc<dyn BlockDevice>>>>>,
    mounted: Mounted,
    volume: Arc<dyn Volume>,
}

/// All counters at one moment.
struct Counted {
    ledger: Ledger,
    counts: CountSnapshot,
    counters: Vec<(&'static str, u64)>,
    cleaned: Cleaned,
    deltas: u64,
    time: u64,
}

impl Bench {
    fn mount(
        fs: Kind,
        device: Arc<dyn BlockDevice>,
        options: &MountOptions,
        stack: Stack,
        counting: Arc<Counting<Arc<Simulated<Arc<dyn BlockDevice>>>>>,
    ) -> Result<Self, ReplayError> {
        let mounted = volume::mount(fs, device, stack.clock.clone(), options.clone())?;
        Ok(Bench { volume: mounted.volume(), stack, counting, mounted })
    }

    fn making<'a>(&'a self, ahead: bool, options: &Options, is_last: bool, begins: &'a mut dyn FnMut()) -> Making<'a> {
        let Stack { clock, tempo, .. } = &self.stack;
        Making { ahead, clock: &**clock, tempo, pauses: options.pauses, is_last, begins }
    }

    fn counted(&self) -> Counted {
        let deltas = |volume: &Arc<f2fs::Volume>| volume.counters.deltas.load(Ordering::Relaxed);
        Counted {
            ledger: self.stack.device.ledger(),
            counts: self.counting.snapshot(),
            counters: self.stack.device.counters(),
            cleaned: self.volume.cleaned(),
            deltas: self.mounted.f2fs().map_or(0, deltas),
            time: self.stack.now().0,
        }
    }
}

impl Counted {
    /// The difference to `earlier`.
    fn since(self, earlier: &Counted) -> Counted {
        Counted {
            ledger: self.ledger.since(&earlier.ledger),
            counts: &self.counts - &earlier.counts,
            counters: since(self.counters, &earlier.counters),
            cleaned: Cleaned {
                sections: self.cleaned.sections - earlier.cleaned.sections,
                waited_for: self.cleaned.waited_for - earlier.cleaned.waited_for,
                moved: self.cleaned.moved - earlier.cleaned.moved,
            },
            deltas: self.deltas - earlier.deltas,
            time: self.time - earlier.time,
        }
    }
}

/// Replays the calls of a recording on a volume that holds the files they need, after replaying `before`. The ledger
/// has their cost, including data still in memory at the end, which an unmount writes; it does not include preparing
/// the volume.
pub fn run(
    source: &mut dyn Source,
    before: &mut [&mut dyn Source],
    profile: &Profile,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Run<OnVolumeDone>, ReplayError> {
    let room = before.iter().map(|b| b.room()).fold(source.room(), u64::saturating_add);
    let (contents, held): (Arc<dyn BlockDevice>, &[_]) = match &options.image {
        Some(Image { device, held }) => (Arc::new(Overlay::new(device.clone())), held),
        None => {
            let bytes = options.bytes.unwrap_or_else(|| options.state.device_bytes(room, source.grows()));
            (Arc::new(Fingerprint::new(bytes / 4096)), &[])
        }
    };
    let device_bytes = contents.blocks() * 4096;
    let stack = Stack::new(profile, contents.clone(), held, options.speed)?;
    let counting = Arc::new(Counting::new(stack.device.clone()));
    let watch = Watch { device: stack.device.clone(), clock: stack.clock.clone() };
    let watched = Arc::new(Watched::new(counting.clone(), watch, options.watched));
    let ordered = Arc::new(Ordered::new(watched.clone()));
    let cache = options.page_cache.map(|most| Arc::new(PageCache::new(ordered.clone(), contents.clone(), most)));
    let device: Arc<dyn BlockDevice> = match &cache {
        Some(cache) => cache.clone(),
        None => ordered.clone(),
    };
    if options.image.is_none() {
        aging::format_with(options.fs, device.clone(), &*stack.clock, options.seed, true, options.features())?;
    }
    let mut mount = options.mount.clone();
    mount.f2fs = f2fs::MountOptions {
        prices: prices::of(profile),
        delta_costs: Costs::of(profile),
        compress_costs: f2fs::compress::costs::Costs::of(profile),
        processor: Some(stack.device.clone()),
        ..mount.f2fs
    };
    let mut bench = Bench::mount(options.fs, device.clone(), &mount, stack, counting)?;
    let holds_none = |volume: &Arc<f2fs::Volume>| !volume.superblock().features.contains(Features::DELTA);
    if options.deltas && bench.mounted.f2fs().is_some_and(holds_none) {
        return Err(
            SimError::Parameters("the image's volume may not hold deltas: joulefs unsettle IMAGE".into()).into()
        );
    }
    let ahead = cache.is_some();
    options.state.age(&*bench.volume, bench.stack.virtual_clock.as_deref(), options.seed, room, progress)?;
    let grows = source.grows();
    let too_small = |e| match e {
        ReplayError::Prepare { no_space: true, .. } => options.state.no_room_before(device_bytes, room, grows),
        e => e,
    };
    for earlier in before {
        earlier.prepare(&*bench.volume, &mut |part| progress("preparing", part)).map_err(too_small)?;
        let report = &mut |part| progress("using", part);
        let mut begins = || {};
        let mut making = bench.making(ahead, options, false, &mut begins);
        let (done, _) = earlier.replay(&*bench.volume, &mut making, report)?;
        if done.no_space > 0 {
            return Err(state::no_room(&*bench.volume, device_bytes, room)?);
        }
    }
    let there = state::names_in_root(&*bench.volume)?;
    let mut prepared = source.prepare(&*bench.volume, &mut |part| progress("preparing", part)).map_err(too_small)?;
    options.state.fill(&*bench.volume, bench.stack.virtual_clock.as_deref(), options.seed, progress)?;
    let mut began = state::look(&bench.mounted, device_bytes, source.grows())?;

    // A JouleFS recording begins with a mount, which has nothing cached.
    if options.cold || source.is_compared() {
        bench.volume.unmount()?;
        bench.mounted = volume::mount(options.fs, device, bench.stack.clock.clone(), mount)?;
        bench.volume = bench.mounted.volume();
    } else if let Some(volume) = bench.mounted.f2fs() {
        // A newly booted cleaner has no memory either.
        volume.forget_victims();
    }
    began.waits_for_age = bench.mounted.f2fs().is_some_and(|volume| volume.waits_for_age());
    bench.volume.keep_deleted_names();
    let (mut gaps, mut done, mut damage) = (Vec::new(), Replayed::default(), None);
    if let Some(cache) = &cache {
        cache.clear();
    }
    let start = bench.counted();
    watched.go_on();
    for time in 0..options.times.get() {
        if time > 0 {
            let gap = bench.counted();
            watched.pause();
            state::remove_all_but(&*bench.volume, &there)?;
            prepared = source.prepare(&*bench.volume, &mut |part| progress("preparing", part)).map_err(too_small)?;
            if let Some(cache) = &cache {
                cache.clear();
            }
            gaps.push(bench.counted().since(&gap));
            watched.go_on();
        }
        ordered.take();
        let mut report = |part: f64| progress("replaying", (f64::from(time) + part) / f64::from(options.times.get()));
        let before = bench.counted();
        watched.pause();
        watched.go_on();
        let mut begins = || {
            gaps.push(bench.counted().since(&before));
            watched.begin_again();
        };
        let mut making = bench.making(ahead, options, time + 1 == options.times.get(), &mut begins);
        let (once, whole) = source.replay(&*bench.volume, &mut making, &mut report)?;
        done.add(once);
        damage = whole;
    }
    bench.volume.unmount()?;
    let all = gaps.iter().fold(bench.counted().since(&start), Counted::since);
    Ok(Run {
        ledger: all.ledger,
        took: all.time,
        counters: all.counters,
        damage,
        done: OnVolumeDone {
            calls: done,
            compared: source.is_compared(),
            prepared,
            began,
            deltas: all.deltas,
            counts: all.counts,
            order: ordered.take(),
            timeline: watched.take(),
            cleaned: all.cleaned,
            free_segments: bench.mounted.f2fs().map(|volume| volume.state().free_segments.into()),
            device_bytes,
            fs: options.fs,
            volume: bench.volume.clone(),
            contents,
        },
    })
}
