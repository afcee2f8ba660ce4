//! What lies between a volume and its simulated device, and what is counted there?

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::energy::Ledger;
use device::energy::profile::Profile;
use device::model::Simulated;
use device::{BlockDevice, CountSnapshot, Counting};
use f2fs::delta::Costs;
use f2fs::gc::prices;
use trace::replay::calls::Pauses;
use vfs::{Cleaned, Volume};
use volume::{Kind, MountOptions, Mounted};

use super::host_memory::PageCache;
use super::order::Ordered;
use super::source::Making;
use super::watched::{Watch, Watched};
use super::{ReplayError, Stack, since};

type Device = Simulated<Arc<dyn BlockDevice>>;
type Requests = Ordered<Arc<Watched<Arc<Counting<Arc<Device>>>>>>;

/// A simulated device, and what counts and caches above it.
pub(super) struct Layers {
    pub stack: Stack,
    pub counting: Arc<Counting<Arc<Device>>>,
    pub watched: Arc<Watched<Arc<Counting<Arc<Device>>>>>,
    pub ordered: Arc<Requests>,
    pub cache: Option<Arc<PageCache<Arc<Requests>, Arc<dyn BlockDevice>>>>,
    pub contents: Arc<dyn BlockDevice>,
    /// What the volume is mounted on.
    pub top: Arc<dyn BlockDevice>,
}

impl Layers {
    /// `timed` if it is recorded when energy is spent; `page_cache` is the size of the host's cache in blocks, if any.
    pub(super) fn new(stack: Stack, contents: Arc<dyn BlockDevice>, timed: bool, page_cache: Option<usize>) -> Self {
        let counting = Arc::new(Counting::new(stack.device.clone()));
        let watch = Watch { device: stack.device.clone(), clock: stack.clock.clone() };
        let watched = Arc::new(Watched::new(counting.clone(), watch, timed));
        let ordered = Arc::new(Ordered::new(watched.clone()));
        let cache = page_cache.map(|most| Arc::new(PageCache::new(ordered.clone(), contents.clone(), most)));
        let top: Arc<dyn BlockDevice> = match &cache {
            Some(cache) => cache.clone(),
            None => ordered.clone(),
        };
        Layers { stack, counting, watched, ordered, cache, contents, top }
    }

    /// Mounts the volume; options and costs are those of the device.
    pub(super) fn mount(self, profile: &Profile, fs: Kind, options: &MountOptions) -> Result<Bench, ReplayError> {
        let mut options = options.clone();
        options.f2fs = f2fs::MountOptions {
            prices: prices::of(profile),
            delta_costs: Costs::of(profile),
            compress_costs: f2fs::compress::costs::Costs::of(profile),
            processor: Some(self.stack.device.clone()),
            ..options.f2fs
        };
        let mounted = volume::mount(fs, self.top.clone(), self.stack.clock.clone(), options)?;
        Ok(Bench { volume: mounted.volume(), mounted, layers: self })
    }
}

/// A volume on a simulated device, with its counters.
pub(super) struct Bench {
    pub layers: Layers,
    pub mounted: Mounted,
    pub volume: Arc<dyn Volume>,
}

/// All counters at one moment.
pub(super) struct Counted {
    pub ledger: Ledger,
    pub counts: CountSnapshot,
    pub counters: Vec<(&'static str, u64)>,
    pub cleaned: Cleaned,
    pub deltas: u64,
    pub time: u64,
}

impl Bench {
    pub(super) fn making<'a>(
        &'a self,
        ahead: bool,
        pauses: Pauses,
        is_last: bool,
        begins: &'a mut dyn FnMut(),
    ) -> Making<'a> {
        let Stack { clock, tempo, .. } = &self.layers.stack;
        Making { ahead, clock: &**clock, tempo, pauses, is_last, begins }
    }

    pub(super) fn counted(&self) -> Counted {
        let deltas = |volume: &Arc<f2fs::Volume>| volume.counters.deltas.load(Ordering::Relaxed);
        Counted {
            ledger: self.layers.stack.device.ledger(),
            counts: self.layers.counting.snapshot(),
            counters: self.layers.stack.device.counters(),
            cleaned: self.volume.cleaned(),
            deltas: self.mounted.f2fs().map_or(0, deltas),
            time: self.layers.stack.now().0,
        }
    }
}

impl Counted {
    /// The difference to `earlier`.
    pub(super) fn since(self, earlier: &Counted) -> Counted {
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
