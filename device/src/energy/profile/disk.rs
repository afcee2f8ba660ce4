//! The numbers of a disk.

use serde::{Deserialize, Serialize};

use super::quantity::{Quantity, TimePerByte};
use crate::energy::units::{Energy, Nanos, Power};

/// A disk with one rate of transfer everywhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// Its usual size in bytes.
    pub size: Quantity<u64>,
    /// Revolutions per minute.
    pub rpm: Quantity<u64>,
    /// Moving the arm to the next track.
    pub seek_track: Quantity<Nanos>,
    /// Moving it a third of the way, the mean over random places.
    pub seek_average: Quantity<Nanos>,
    /// Moving it all the way.
    pub seek_full: Quantity<Nanos>,
    /// What settling takes longer before a write.
    pub write_settle: Quantity<Nanos>,
    /// A byte between platter and buffer.
    pub media: Quantity<TimePerByte>,
    /// A byte between buffer and host.
    pub link: Quantity<TimePerByte>,
    /// What each request takes in the electronics.
    pub request: Quantity<Nanos>,
    /// Bytes read ahead and kept.
    pub buffer: Quantity<u64>,
    /// Bytes written that may wait for the platter; 0: a write is done when it is on the platter.
    pub write_cache: Quantity<u64>,
    /// Power while the arm moves.
    pub seek_power: Quantity<Power>,
    /// Power while waiting for the platter to turn.
    pub rotate_power: Quantity<Power>,
    /// Power while reading.
    pub read_power: Quantity<Power>,
    /// Power while writing.
    pub write_power: Quantity<Power>,
    /// Power while spinning without a request.
    pub idle_power: Quantity<Power>,
    /// Power while standing.
    pub standby_power: Quantity<Power>,
    /// Stands still after so long without a request; 0: never.
    pub standby_after: Quantity<Nanos>,
    /// Time to spin up.
    pub spin_up: Quantity<Nanos>,
    /// Energy of spinning up.
    pub spin_up_energy: Quantity<Energy>,
}

impl DiskSpec {
    /// Refuses what cannot be built, naming the number.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.size.value == 0 || self.rpm.value == 0 || self.media.value.0 == 0 {
            return Err("device.size, device.rpm and device.media must not be 0".into());
        }
        let seeks = [&self.seek_track, &self.seek_average, &self.seek_full];
        if !seeks.is_sorted_by_key(|q| q.value) {
            return Err("device.seek_track, seek_average and seek_full must not shrink in this order".into());
        }
        Ok(())
    }

    /// Makes every time `factor` times as long and every power as much less.
    pub(super) fn scale(&mut self, factor: f64) {
        let longer = |q: &mut Quantity<Nanos>| q.value.0 = (q.value.0 as f64 * factor).round() as u64;
        let slower = |q: &mut Quantity<TimePerByte>| q.value.0 = (q.value.0 as f64 * factor).round() as u64;
        let weaker = |q: &mut Quantity<Power>| q.value.0 = (q.value.0 as f64 / factor).round() as u64;
        [&mut self.seek_track, &mut self.seek_average, &mut self.seek_full, &mut self.write_settle]
            .into_iter()
            .for_each(longer);
        [&mut self.request, &mut self.standby_after, &mut self.spin_up].into_iter().for_each(longer);
        [&mut self.media, &mut self.link].into_iter().for_each(slower);
        [&mut self.seek_power, &mut self.rotate_power, &mut self.read_power].into_iter().for_each(weaker);
        [&mut self.write_power, &mut self.idle_power, &mut self.standby_power].into_iter().for_each(weaker);
        self.rpm.value = (self.rpm.value as f64 / factor).round() as u64;
    }
}
