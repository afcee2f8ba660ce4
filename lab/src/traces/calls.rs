//! Recorded calls on a volume on a simulated device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::energy::profile::Profile;
use device::{BlockDevice, CountSnapshot, Counting, Fingerprint, Lba, Overlay};
use f2fs::delta::Costs;
use f2fs::gc::prices;
use f2fs::{MountOptions, Volume, mkfs};
use format::superblock::Features;
use record::calls::Prepared;
use trace::replay::calls::Replayed;
use vfs::FileSystem as _;

use super::host_memory::PageCache;
use super::order::{Order, Ordered};
use super::source::Source;
use super::{ReplayError, Run, Speed, Stack, since};
use crate::aging::{self, Ager, Recipe};
use crate::error::LabError;

/// On which volume.
#[derive(Clone, Default)]
pub struct Options {
    /// How it is mounted.
    pub mount: MountOptions,
    /// The volume may hold deltas: a new one is made so, an image must be so.
    pub deltas: bool,
    /// The volume may hold compressed files: a new one is made so.
    pub compressed: bool,
    /// Bytes of a new volume; without, room for twice what the recording ever holds.
    pub bytes: Option<u64>,
    /// What the volume holds; a new one without.
    pub image: Option<Image>,
    /// The recipe that brings a new volume into its state.
    pub recipe: Option<String>,
    /// What recipes and the volume's identity are drawn from.
    pub seed: u64,
    /// How time passes.
    pub speed: Speed,
    /// Blocks the host keeps in memory of what is read and written, and reads ahead; when the calls begin it has none
    /// of them, as if the volume was mounted just then. Without, every read of contents is one of the device.
    pub page_cache: Option<usize>,
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
    /// Pages that became deltas.
    pub deltas: u64,
    /// What reached the device, by cause.
    pub counts: CountSnapshot,
    /// What the device was asked, by order.
    pub order: Order,
    /// Sections cleaned, and of them those a writer waited for.
    pub cleaned: (u64, u64),
    /// Blocks that cleaning moved.
    pub moved: u64,
    /// Segments that were free at the end, after the unmount's checkpoint.
    pub free_segments: u64,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// The volume, unmounted; it still knows its files' names.
    pub volume: Arc<Volume>,
}

/// What is being done, for who shows progress: a name, and how far from 0 to 1.
pub type Progress<'a> = &'a mut dyn FnMut(&str, f64);

/// The smallest volume that is made.
const SMALLEST: u64 = 256 << 20;

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

    /// Bytes of the device for a recording that needs so much room.
    pub fn device_bytes(&self, room: u64) -> u64 {
        let room = room.saturating_mul(2).saturating_add(SMALLEST);
        self.bytes.unwrap_or(room.next_multiple_of(64 << 20))
    }
}

/// Makes the calls of a recording on a volume that holds what they need. What is paid for is on the ledger, and what
/// the volume still kept in memory at the end, which an unmount writes; bringing the volume into its state is not.
pub fn run(
    source: &mut dyn Source,
    profile: &Profile,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Run<OnVolumeDone>, ReplayError> {
    let (contents, held): (Arc<dyn BlockDevice>, &[_]) = match &options.image {
        Some(Image { device, held }) => (Arc::new(Overlay::new(device.clone())), held),
        None => (Arc::new(Fingerprint::new(options.device_bytes(source.room()) / 4096)), &[]),
    };
    let device_bytes = contents.blocks() * 4096;
    let stack = Stack::new(profile, contents.clone(), held, options.speed)?;
    let counting = Arc::new(Counting::new(stack.device.clone()));
    let ordered = Arc::new(Ordered::new(counting.clone()));
    let cache = options.page_cache.map(|most| Arc::new(PageCache::new(ordered.clone(), contents, most)));
    let device: Arc<dyn BlockDevice> = match &cache {
        Some(cache) => cache.clone(),
        None => ordered.clone(),
    };
    if options.image.is_none() {
        aging::format_with(&*device, &*stack.clock, options.seed, true, options.features())?;
    }
    let mount = MountOptions {
        prices: prices::of(profile),
        delta_costs: Costs::of(profile),
        compress_costs: f2fs::compress::costs::Costs::of(profile),
        processor: Some(stack.device.clone()),
        ..options.mount.clone()
    };
    let mut volume = Volume::mount(device.clone(), stack.clock.clone(), mount.clone())?;
    if options.deltas && !volume.superblock().features.contains(Features::DELTA) {
        return Err(
            LabError::Parameters("the image's volume may not hold deltas: joulefs unsettle IMAGE".into()).into()
        );
    }
    if let Some(recipe) = &options.recipe {
        let Some(clock) = &stack.virtual_clock else {
            return Err(
                LabError::Parameters("a volume is aged in virtual time; make an image of it first".into()).into()
            );
        };
        let chain = Recipe::chain(recipe).map_err(LabError::from)?;
        let mut ager = Ager::new(&volume, clock, options.seed).on_the_devices_time();
        ager.all(&chain, &mut |p| progress("aging", p.done as f64 / p.total.max(1) as f64))?;
        volume.sync()?;
    }
    let prepared = source.prepare(&*volume, &mut |part| progress("preparing", part))?;
    // A recording of our own begins with a mount, which remembers nothing of what is there.
    if cache.is_some() || source.is_compared() {
        volume.unmount()?;
        if let Some(cache) = &cache {
            cache.clear();
        }
        volume = Volume::mount(device, stack.clock.clone(), mount)?;
    }
    volume.keep_deleted_names();
    ordered.take();
    let (ledger, counts, counters) = (stack.device.ledger(), counting.snapshot(), stack.device.counters());
    let c = &volume.counters;
    let cleaned = || (c.sections_cleaned(), c.foreground_gc.load(Ordering::Relaxed), c.moved_blocks());
    let (before, from, deltas) = (cleaned(), stack.now(), c.deltas.load(Ordering::Relaxed));
    let ahead = cache.is_some();
    let (done, damage) =
        source.replay(&*volume, ahead, &*stack.clock, &stack.tempo, &mut |part| progress("replaying", part));
    volume.unmount()?;
    let after = cleaned();
    Ok(Run {
        ledger: stack.device.ledger().since(&ledger),
        took: stack.now().since(from).0,
        counters: since(stack.device.counters(), &counters),
        damage,
        done: OnVolumeDone {
            calls: done,
            compared: source.is_compared(),
            prepared,
            deltas: c.deltas.load(Ordering::Relaxed) - deltas,
            counts: &counting.snapshot() - &counts,
            order: ordered.take(),
            cleaned: (after.0 - before.0, after.1 - before.1),
            moved: after.2 - before.2,
            free_segments: volume.state().free_segments.into(),
            device_bytes,
            volume: volume.clone(),
        },
    })
}
