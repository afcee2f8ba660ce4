//! On which device is a tested volume: one with random writes, or a zoned one?
//!
//! A zoned device refuses every write that is not at a write pointer, so a volume that writes out of order fails at
//! once; after a power cut the pointers are anywhere between the flushed and the written state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use device::{BlockDevice, Lba, Loss, Memory, PowerCut, Rng, Tag, Zoned, Zones};

/// Zones of equal size, the first of which are conventional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zoning {
    /// Blocks of a zone.
    pub zone: u64,
    /// Number of conventional zones at the beginning.
    pub conventional: u64,
}

/// A device and its contents.
#[derive(Clone)]
pub struct Medium {
    memory: Arc<Memory>,
    zones: Option<Arc<Zoned<Arc<Memory>>>>,
}

impl From<Memory> for Medium {
    fn from(memory: Memory) -> Self {
        Medium { memory: Arc::new(memory), zones: None }
    }
}

impl Medium {
    /// An empty device.
    pub fn new(blocks: u64, zoning: Option<Zoning>) -> Self {
        let memory = Arc::new(Memory::new(blocks));
        let zones = zoning.map(|z| Arc::new(Zoned::new(memory.clone(), z.zone, z.conventional)));
        Medium { memory, zones }
    }

    /// A copy with the same contents and pointers, independent of the original.
    #[must_use]
    pub fn fork(&self) -> Self {
        let memory = Arc::new(self.memory.fork());
        let zones = self.zones.as_ref().map(|z| Arc::new(z.after_cut(memory.clone(), |_, most| most)));
        Medium { memory, zones }
    }

    /// Its contents, ignoring zones.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The device to mount.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match &self.zones {
            Some(zones) => zones.clone(),
            None => self.memory.clone(),
        }
    }

    /// Checks that all writes were in order.
    ///
    /// # Errors
    /// The number of writes that were not.
    pub fn in_order(&self) -> Result<(), String> {
        in_order(self.zones.as_deref())
    }
}

fn in_order<D: BlockDevice>(zones: Option<&Zoned<D>>) -> Result<(), String> {
    match zones.map_or(0, Zoned::refused) {
        0 => Ok(()),
        n => Err(format!("{n} writes that were not at the pointers of their zones")),
    }
}

/// A device whose power may fail.
pub struct Powered {
    power: Arc<PowerCut>,
    zones: Option<Arc<Zoned<Arc<PowerCut>>>>,
    /// The write at which it fails.
    cut: AtomicU64,
}

impl Powered {
    /// On the contents of `medium`, all of them durable.
    pub fn new(medium: &Medium) -> Self {
        let power = Arc::new(PowerCut::new(medium.memory.fork()));
        let zones = medium.zones.as_ref().map(|z| Arc::new(z.after_cut(power.clone(), |_, most| most)));
        Powered { power, zones, cut: AtomicU64::new(0) }
    }

    /// The device to mount.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match &self.zones {
            Some(zones) => zones.clone(),
            None => self.power.clone(),
        }
    }

    /// See [`PowerCut::cut_after`].
    pub fn cut_after(&self, write: u64) {
        self.cut.store(write, Relaxed);
        self.power.cut_after(write);
    }

    /// True after the power failed.
    pub fn is_cut(&self) -> bool {
        self.power.is_cut()
    }

    /// See [`PowerCut::write_count`].
    pub fn write_count(&self) -> u64 {
        self.power.write_count()
    }

    /// Like [`Medium::in_order`].
    ///
    /// # Errors
    /// The number of writes that were not in order.
    pub fn in_order(&self) -> Result<(), String> {
        in_order(self.zones.as_deref())
    }

    /// The state after the cut. The pointers depend only on the write and the loss: as of the last flush, as of the
    /// cut, or anywhere between.
    pub fn left(&self, loss: Loss) -> Medium {
        let memory = Arc::new(self.power.image(loss));
        let seed =
            loss.to_string().bytes().fold(self.cut.load(Relaxed), |n, byte| n.wrapping_mul(31) + u64::from(byte));
        let mut rng = Rng::new(seed);
        let how = rng.below(3);
        let zones = self.zones.as_ref().map(|z| {
            Arc::new(z.after_cut(memory.clone(), |least, most| match how {
                0 => least,
                1 => most,
                _ => least + rng.below(most.saturating_sub(least) + 1),
            }))
        });
        if let Some(zones) = &zones {
            // Make the raw memory show the same as the device.
            for n in zones.conventional()..memory.blocks().div_ceil(zones.zone_blocks()) {
                let end = ((n + 1) * zones.zone_blocks()).min(memory.blocks());
                let Some(Lba(at)) = zones.pointer(n) else { continue };
                // In range: they are the device's own zones.
                let _ = memory.discard(Lba(at), end - at, Tag::default());
            }
        }
        Medium { memory, zones }
    }
}
