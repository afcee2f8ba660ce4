//! Seek times of the arm.

use serde::{Deserialize, Serialize};

use crate::energy::Nanos;
use crate::energy::profile::DiskSpec;

/// Seek time over distance: proportional to the square root up to a third of the way, where the arm accelerates and
/// brakes, and linear beyond, where it moves at full speed (Ruemmler and Wilkes, Computer 1994).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Curve {
    tracks: f64,
    track: f64,
    third: f64,
    full: f64,
}

impl Curve {
    /// The curve of `spec` on a disk with `tracks` tracks.
    ///
    /// A data sheet's average is the mean over pairs of random positions, not the time of the mean distance. For
    /// distances of density 2(1 - x) the mean of this curve is track / 5 + 88 third / 135 + 4 full / 27; the time
    /// of a third of the way is chosen so that this equals the data sheet's average.
    pub fn new(spec: &DiskSpec, tracks: u64) -> Self {
        let [track, average, full] = [&spec.seek_track, &spec.seek_average, &spec.seek_full].map(|q| q.value.0 as f64);
        let third = (average - track / 5.0 - full * 4.0 / 27.0) * 135.0 / 88.0;
        Curve { tracks: tracks.max(2) as f64, track, third: third.min(full).max(track), full }
    }

    /// Time of moving over `tracks` tracks.
    pub fn time(&self, tracks: u64) -> Nanos {
        let (d, third, last) = (tracks as f64, self.tracks / 3.0, self.tracks - 1.0);
        Nanos(match tracks {
            0 => 0,
            _ if d < third => {
                let share = ((d - 1.0) / (third - 1.0)).max(0.0);
                self.track + (self.third - self.track) * share.sqrt()
            }
            .round() as u64,
            _ => {
                let share = if last > third { (d - third) / (last - third) } else { 1.0 };
                (self.third + (self.full - self.third) * share.min(1.0)).round() as u64
            }
        })
    }
}
