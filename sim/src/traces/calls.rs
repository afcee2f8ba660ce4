//! What do recorded calls cost on a volume on a simulated device?

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use device::energy::profile::Profile;
use device::{BlockDevice, CountSnapshot, Fingerprint, Lba, Overlay};
use f2fs::gc::settings::Settings;
use f2fs::mkfs;
use format::superblock::Features;
use record::calls::Prepared;
use trace::replay::calls::{Pauses, Replayed};
use vfs::{Cleaned, Volume};
use victim::Policy;
use volume::{Kind, MountOptions};

use super::layers::{Bench, Counted, Layers};
use super::order::Order;
use super::past::{Past, Rest, Shared, Whose};
use super::source::Source;
use super::state::{self, Began, Wanted};
use super::timeline::Timeline;
use super::{Progress, ReplayError, Run, Speed, Stack};
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
    /// True if the volume is mounted just before the calls; `ours` for a JouleFS recording, which begins with a mount.
    fn mounts_before(&self, ours: bool) -> bool {
        self.cold || ours
    }

    /// True if runs can share the past of the volume: it is new, its time is virtual, and its mount ends before the calls.
    /// `ours` for a JouleFS recording.
    pub fn has_past(&self, ours: bool) -> bool {
        self.mounts_before(ours) && self.image.is_none() && self.speed != Speed::Paced
    }

    /// The options of the mount that ends before the calls. Nothing is cleaned in the background then, unless another
    /// recording is replayed (`used`), and a writer that waits for space gets the emptiest section whatever the policy
    /// is. So F2FS's settings of background cleaning do not matter, except that `joule` reads blocks along with those
    /// that it moves ([`Whose::Own`]), and that `commit=` depends on the power source.
    pub fn mount_in_the_past(&self, used: bool, whose: Whose) -> MountOptions {
        let mut mount = self.mount.clone();
        if !used {
            let gc = mount.f2fs.gc;
            let plain = Settings { zoned: gc.zoned, urgency: gc.urgency, ..Settings::default() };
            mount.f2fs.gc = Settings {
                policy: if whose == Whose::Own { gc.policy } else { plain.policy },
                power: if mount.f2fs.commit.is_some() { gc.power } else { plain.power },
                ..plain
            };
        }
        mount
    }

    /// The error of a preparation, with a sufficient size if the volume was full.
    fn too_small(&self, e: ReplayError, device_bytes: u64, room: u64, grows: u64) -> ReplayError {
        match e {
            ReplayError::Prepare { no_space: true, .. } => self.state.no_room_before(device_bytes, room, grows),
            e => e,
        }
    }

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

/// A volume as its calls find it.
struct Begun {
    bench: Bench,
    /// The contents of a new volume.
    fingerprint: Option<Arc<Fingerprint>>,
    /// The names in the root directory before the calls' files were created.
    there: BTreeSet<Vec<u8>>,
    prepared: Prepared,
    began: Began,
}

impl Begun {
    /// Makes the volume, ages it, replays `before`, creates the files that the calls need, and fills it.
    fn new(
        source: &mut dyn Source,
        before: &mut [&mut dyn Source],
        profile: &Profile,
        (options, mount): (&Options, &MountOptions),
        progress: Progress<'_>,
    ) -> Result<Self, ReplayError> {
        let room = before.iter().map(|b| b.room()).fold(source.room(), u64::saturating_add);
        let (contents, held, fingerprint): (Arc<dyn BlockDevice>, &[_], _) = match &options.image {
            Some(Image { device, held }) => (Arc::new(Overlay::new(device.clone())), held, None),
            None => {
                let bytes = options.bytes.unwrap_or_else(|| options.state.device_bytes(room, source.grows()));
                let fingerprint = Arc::new(Fingerprint::new(bytes / 4096));
                (fingerprint.clone(), &[], Some(fingerprint))
            }
        };
        let device_bytes = contents.blocks() * 4096;
        let stack = Stack::new(profile, contents.clone(), held, options.speed)?;
        let layers = Layers::new(stack, contents, options.watched, options.page_cache);
        if options.image.is_none() {
            let Layers { stack, top, .. } = &layers;
            aging::format_with(options.fs, top.clone(), &*stack.clock, options.seed, true, options.features())?;
        }
        let bench = layers.mount(profile, options.fs, mount)?;
        let holds_none = |volume: &Arc<f2fs::Volume>| !volume.superblock().features.contains(Features::DELTA);
        if options.deltas && bench.mounted.f2fs().is_some_and(holds_none) {
            return Err(
                SimError::Parameters("the image's volume may not hold deltas: joulefs unsettle IMAGE".into()).into()
            );
        }
        let clock = bench.layers.stack.virtual_clock.clone();
        let ahead = bench.layers.cache.is_some();
        options.state.age(&*bench.volume, clock.as_deref(), options.seed, room, progress)?;
        let grows = source.grows();
        let too_small = |e| options.too_small(e, device_bytes, room, grows);
        for earlier in before {
            earlier.prepare(&*bench.volume, &mut |part| progress("preparing", part)).map_err(too_small)?;
            let report = &mut |part| progress("using", part);
            let mut begins = || {};
            let mut making = bench.making(ahead, options.pauses, false, &mut begins);
            let (done, _) = earlier.replay(&*bench.volume, &mut making, report)?;
            if done.no_space > 0 {
                return Err(state::no_room(&*bench.volume, device_bytes, room)?);
            }
        }
        let there = state::names_in_root(&*bench.volume)?;
        let prepared = source.prepare(&*bench.volume, &mut |part| progress("preparing", part)).map_err(too_small)?;
        options.state.fill(&*bench.volume, clock.as_deref(), options.seed, progress)?;
        let began = state::look(&bench.mounted, device_bytes, source.grows())?;
        Ok(Begun { bench, fingerprint, there, prepared, began })
    }

    /// Unmounts the volume, for runs that begin with a mount.
    fn into_past(self) -> Result<Past, ReplayError> {
        self.bench.volume.unmount()?;
        let Stack { device, clock, .. } = &self.bench.layers.stack;
        let (Some((model, booked)), Some(contents)) = (device.state(), self.fingerprint) else {
            return Err(SimError::Parameters("this device or image cannot be stored".into()).into());
        };
        let Prepared { files, recorded, generated } = self.prepared;
        Ok(Past {
            contents: contents.fork(),
            rest: Rest {
                model,
                booked,
                passed: clock.monotonic(),
                cached: self.bench.layers.cache.iter().flat_map(|cache| cache.blocks_kept()).collect(),
                there: self.there,
                prepared: (files, recorded, generated),
                cleaned: self.bench.volume.cleaned().sections > 0,
                began: self.began,
            },
        })
    }

    /// Mounts the volume of a past.
    fn resumed(past: &Past, profile: &Profile, options: &Options) -> Result<Self, ReplayError> {
        let Rest { model, booked, passed, cached, there, prepared, began, .. } = past.rest.clone();
        let contents: Arc<dyn BlockDevice> = Arc::new(past.contents.fork());
        let stack = Stack::resumed(profile, contents.clone(), model.into_model(), passed, booked, options.speed);
        let layers = Layers::new(stack, contents, options.watched, options.page_cache);
        layers.cache.iter().for_each(|cache| cache.keep_blocks(&cached));
        let bench = layers.mount(profile, options.fs, &options.mount)?;
        let (files, recorded, generated) = prepared;
        let prepared = Prepared { files, recorded, generated };
        Ok(Begun { bench, fingerprint: None, there, prepared, began })
    }
}

/// Replays the calls of a recording on a volume that holds the files they need, after replaying `before`. The ledger
/// has their cost, including data still in memory at the end, which an unmount writes; it does not include preparing
/// the volume.
///
/// # Errors
/// The device cannot be simulated, the volume fails or is too small, or a recording cannot be read.
pub fn run(
    source: &mut dyn Source,
    before: &mut [&mut dyn Source],
    profile: &Profile,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Run<OnVolumeDone>, ReplayError> {
    run_from(None, source, before, profile, options, progress)
}

/// The same; the past of the volume comes from `shared`, if [`Options::has_past`].
///
/// # Errors
/// Those of [`run`].
pub fn run_from(
    shared: Option<&Shared<'_>>,
    source: &mut dyn Source,
    before: &mut [&mut dyn Source],
    profile: &Profile,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Run<OnVolumeDone>, ReplayError> {
    // A JouleFS recording begins with a mount, which has nothing cached.
    let mounts = options.mounts_before(source.is_compared());
    let begun = match shared.filter(|_| options.has_past(source.is_compared())) {
        Some(shared) => {
            let used = !before.is_empty();
            let mut past = |whose| {
                let mount = options.mount_in_the_past(used, whose);
                let make = &mut || Begun::new(source, before, profile, (options, &mount), progress)?.into_past();
                shared(whose, make)
            };
            let any = past(Whose::Any)?;
            let is_own = any.rest.cleaned && !used && options.mount.f2fs.gc.policy == Policy::Joule;
            Begun::resumed(&*if is_own { past(Whose::Own)? } else { any }, profile, options)?
        }
        None => {
            let mut begun = Begun::new(source, before, profile, (options, &options.mount), progress)?;
            if mounts {
                begun.bench.volume.unmount()?;
                begun.bench = begun.bench.layers.mount(profile, options.fs, &options.mount)?;
            }
            begun
        }
    };
    let Begun { bench, there, mut prepared, mut began, .. } = begun;
    let device_bytes = bench.layers.contents.blocks() * 4096;
    let room = before.iter().map(|b| b.room()).fold(source.room(), u64::saturating_add);
    let grows = source.grows();
    let too_small = |e| options.too_small(e, device_bytes, room, grows);
    if !mounts && let Some(volume) = bench.mounted.f2fs() {
        // A newly booted cleaner has no memory either.
        volume.forget_past();
    }
    let Layers { watched, ordered, cache, contents, .. } = &bench.layers;
    let ahead = cache.is_some();
    began.waits_for_age = bench.mounted.f2fs().is_some_and(|volume| volume.waits_for_age());
    bench.volume.keep_deleted_names();
    let (mut gaps, mut done, mut damage) = (Vec::new(), Replayed::default(), None);
    if let Some(cache) = cache {
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
            if let Some(cache) = cache {
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
        let mut making = bench.making(ahead, options.pauses, time + 1 == options.times.get(), &mut begins);
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
            contents: contents.clone(),
        },
    })
}
