//! Recorded calls on a volume on a simulated device.

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

/// On which volume, and how often.
#[derive(Clone)]
pub struct Options {
    /// Its file system: of a new one, or of the image.
    pub fs: Kind,
    /// How it is mounted.
    pub mount: MountOptions,
    /// The volume may hold deltas: a new one is made so, an image must be so.
    pub deltas: bool,
    /// The volume may hold compressed files: a new one is made so.
    pub compressed: bool,
    /// Bytes of a new volume; without, room for twice what the recording ever holds, in the state that is wanted.
    pub bytes: Option<u64>,
    /// What the volume holds; a new one without.
    pub image: Option<Image>,
    /// What a new volume is brought into first.
    pub state: Wanted,
    /// What recipes and the volume's identity are drawn from.
    pub seed: u64,
    /// How time passes.
    pub speed: Speed,
    /// When a thread's next call comes.
    pub pauses: Pauses,
    /// Blocks the host keeps in memory of what is read and written, and reads ahead; when the calls begin it has none
    /// of them. Without, every read of contents is one of the device.
    pub page_cache: Option<usize>,
    /// The volume is mounted just before the calls, so that it has nothing in memory, neither nodes nor directories.
    /// Without, it knows what bringing it into its state left there, as the file system of a machine in use.
    pub cold: bool,
    /// It is told when joules were spent.
    pub watched: bool,
    /// How often the calls are made. Between two times, what they left is removed and what they need is put there
    /// again, which is on no account.
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

/// A volume that is there already; it stays as it is.
#[derive(Clone)]
pub struct Image {
    /// Its device.
    pub device: Arc<dyn BlockDevice>,
    /// Runs of blocks that hold data.
    pub held: Vec<(Lba, u64)>,
}

/// What came of calls beside energy.
pub struct OnVolumeDone {
    /// The calls.
    pub calls: Replayed,
    /// Calls that failed are those that ended otherwise than when they were recorded.
    pub compared: bool,
    /// What was put there before.
    pub prepared: Prepared,
    /// What the volume was when the calls began.
    pub began: Began,
    /// Pages that became deltas.
    pub deltas: u64,
    /// What reached the device, by cause.
    pub counts: CountSnapshot,
    /// What the device was asked the last time, by order.
    pub order: Order,
    /// When joules were spent, if that is told.
    pub timeline: Timeline,
    /// What cleaning did.
    pub cleaned: Cleaned,
    /// Segments that were free at the end, after the unmount's checkpoint, where there are segments.
    pub free_segments: Option<u64>,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Its file system.
    pub fs: Kind,
    /// The volume, unmounted; it still knows its files' names.
    pub volume: Arc<dyn Volume>,
    /// What it wrote, as it lies on the device: for who compares what two file systems hold.
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

/// A volume on a simulated device, and what they counted so far.
struct Bench {
    stack: Stack,
    counting: Arc<Counting<Arc<Simulated<Arc<dyn BlockDevice>>>>>,
    mounted: Mounted,
    volume: Arc<dyn Volume>,
}

/// Everything that is counted, at some moment.
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
    /// What came after `earlier`.
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

/// Makes the calls of a recording on a volume that holds what they need. `before` was made on it first. What is paid for
/// is on the ledger, and what the volume still kept in memory at the end, which an unmount writes; bringing the volume
/// into its state is not.
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
        let told = &mut |part| progress("using", part);
        let mut begins = || {};
        let mut making = bench.making(ahead, options, false, &mut begins);
        let (done, _) = earlier.replay(&*bench.volume, &mut making, told)?;
        if done.no_space > 0 {
            return Err(state::no_room(&*bench.volume, device_bytes, room)?);
        }
    }
    let there = state::names_in_root(&*bench.volume)?;
    let mut prepared = source.prepare(&*bench.volume, &mut |part| progress("preparing", part)).map_err(too_small)?;
    options.state.fill(&*bench.volume, bench.stack.virtual_clock.as_deref(), options.seed, progress)?;
    let mut began = state::look(&bench.mounted, device_bytes, source.grows())?;

    // A recording of our own begins with a mount, which remembers nothing of what is there.
    if options.cold || source.is_compared() {
        bench.volume.unmount()?;
        bench.mounted = volume::mount(options.fs, device, bench.stack.clock.clone(), mount)?;
        bench.volume = bench.mounted.volume();
    } else if let Some(volume) = bench.mounted.f2fs() {
        // Neither does the cleaner of a machine that was booted since.
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
        let mut told = |part: f64| progress("replaying", (f64::from(time) + part) / f64::from(options.times.get()));
        let before = bench.counted();
        watched.pause();
        watched.go_on();
        let mut begins = || {
            gaps.push(bench.counted().since(&before));
            watched.begin_again();
        };
        let mut making = bench.making(ahead, options, time + 1 == options.times.get(), &mut begins);
        let (once, whole) = source.replay(&*bench.volume, &mut making, &mut told)?;
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
