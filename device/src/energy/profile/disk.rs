//! The numbers of a disk.

use serde::{Deserialize, Serialize};

use super::idle::{self, IdleSpec};
use super::quantity::{Quantity, TimePerByte};
use crate::energy::units::{Energy, Nanos, Power};

/// A disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// Its usual size in bytes.
    pub size: Quantity<u64>,
    /// Revolutions per minute.
    pub rpm: Quantity<u64>,
    /// Moving the arm to the next track.
    pub seek_track: Quantity<Nanos>,
    /// Moving it a third of the way, the mean over random positions.
    pub seek_average: Quantity<Nanos>,
    /// Moving it all the way.
    pub seek_full: Quantity<Nanos>,
    /// Extra settling time before a write.
    pub write_settle: Quantity<Nanos>,
    /// A byte between platter and buffer; on the outermost track if `media_inner` is given.
    pub media: Quantity<TimePerByte>,
    /// The same on the innermost track. The rate falls in proportion to the radius from the first block, on the
    /// outermost track, to the last. If not given, the rate is the same everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_inner: Option<Quantity<TimePerByte>>,
    /// A byte between buffer and host.
    pub link: Quantity<TimePerByte>,
    /// Time per request in the electronics.
    pub request: Quantity<Nanos>,
    /// Read-ahead buffer in bytes.
    pub buffer: Quantity<u64>,
    /// Written bytes that may wait for the platter; 0: a write completes when it is on the platter.
    pub write_cache: Quantity<u64>,
    /// Power while the arm moves.
    pub seek_power: Quantity<Power>,
    /// Power while waiting for the platter's rotation.
    pub rotate_power: Quantity<Power>,
    /// Power while reading.
    pub read_power: Quantity<Power>,
    /// Power while writing.
    pub write_power: Quantity<Power>,
    /// Power while spinning without a request, before the first of `idle`.
    pub idle_power: Quantity<Power>,
    /// Power while spun down.
    pub standby_power: Quantity<Power>,
    /// Spins down after this time without a request; 0: never.
    pub standby_after: Quantity<Nanos>,
    /// Time to spin up.
    pub spin_up: Quantity<Nanos>,
    /// Energy of spinning up.
    pub spin_up_energy: Quantity<Energy>,
    /// Idle levels with a spinning platter, the lightest first: data sheets call them active and low-power idle, or
    /// idle_a, idle_b and idle_c. A level later than `standby_after` is never entered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<IdleSpec>,
}

impl DiskSpec {
    /// A byte between platter and buffer, averaged over all places.
    pub fn media_mean(&self) -> TimePerByte {
        let outer = self.media.value;
        let Some(inner) = self.media_inner.as_ref().map(|q| q.value) else { return outer };
        // The rate falls linearly over the time of reading everything (`model/disk/platter.rs`), so the mean rate
        // is the mean of both.
        let (v, w) = (u128::from(outer.0), u128::from(inner.0));
        TimePerByte(u64::try_from(2 * v * w / (v + w).max(1)).unwrap_or(u64::MAX))
    }

    /// Rejects impossible values, naming the number.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.size.value == 0 || self.rpm.value == 0 || self.media.value.0 == 0 {
            return Err("device.size, device.rpm and device.media must not be 0".into());
        }
        let seeks = [&self.seek_track, &self.seek_average, &self.seek_full];
        if !seeks.is_sorted_by_key(|q| q.value) {
            return Err("device.seek_track, seek_average and seek_full must not shrink in this order".into());
        }
        if self.media_inner.as_ref().is_some_and(|inner| inner.value < self.media.value) {
            return Err("device.media_inner is faster than device.media: the first blocks are the outermost".into());
        }
        idle::check(&self.idle)
    }

    /// Multiplies every time by `factor` and divides every power by it.
    pub(super) fn scale(&mut self, factor: f64) {
        let longer = |q: &mut Quantity<Nanos>| q.scale(factor);
        let slower = |q: &mut Quantity<TimePerByte>| q.scale(factor);
        let weaker = |q: &mut Quantity<Power>| q.scale(1.0 / factor);
        [&mut self.seek_track, &mut self.seek_average, &mut self.seek_full, &mut self.write_settle]
            .into_iter()
            .for_each(longer);
        [&mut self.request, &mut self.standby_after, &mut self.spin_up].into_iter().for_each(longer);
        [&mut self.media, &mut self.link].into_iter().chain(&mut self.media_inner).for_each(slower);
        [&mut self.seek_power, &mut self.rotate_power, &mut self.read_power].into_iter().for_each(weaker);
        [&mut self.write_power, &mut self.idle_power, &mut self.standby_power].into_iter().for_each(weaker);
        self.idle.iter_mut().for_each(|i| i.scale(factor));
        self.rpm.scale(1.0 / factor);
    }
}
