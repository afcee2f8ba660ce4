//! Where on the platter is a block, and when does it pass under the head?
//!
//! The blocks lie on one spiral: the media time before a block determines its angle and track, so a continued
//! transfer never waits, whichever track it crosses. This stands for the skew between tracks of a real disk, whose
//! cost is part of its media rate. Heads are left out.
//!
//! If the rate falls from the outermost track to the innermost, it is proportional to the radius: bits have the
//! same density along every track, tracks have equal distances, and each takes one revolution. Then the rate falls
//! linearly with elapsed media time, and its square falls linearly with the number of blocks: with rates `v` of the
//! first block, `w` of the last and `r` of block `b` of `n`,
//!
//! ```text
//! r = sqrt(v^2 - (v^2 - w^2) b / n)        the time before block b = 2 b / (v + r)
//! ```
//!
//! Zones of a real disk are steps along this line. The time before a block is computed to some femtoseconds and
//! rounded once; all other times are differences of these, so pieces of a transfer add up to the whole.

use serde::{Deserialize, Serialize};

use crate::BLOCK;
use crate::energy::Nanos;
use crate::energy::profile::DiskSpec;

/// Femtoseconds, so that thousands of blocks and revolutions add up without rounding.
pub type Femto = u128;

/// A moment in femtoseconds.
pub fn femto(t: Nanos) -> Femto {
    u128::from(t.0) * 1_000_000
}

/// The first nanosecond not before `t`.
pub fn nanos(t: Femto) -> Nanos {
    Nanos(u64::try_from(t.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// Blocks per femtosecond, if the rate varies.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Zones {
    /// At the first block.
    outer: f64,
    /// Decrease of the squared rate per block.
    fall: f64,
}

impl Zones {
    fn before(&self, block: u64) -> Femto {
        let b = block as f64;
        let rate = (self.outer * self.outer - self.fall * b).max(0.0).sqrt();
        (2.0 * b / (self.outer + rate)) as Femto
    }
    /// The block before which `time` elapses, with an error of a block or two.
    fn at(&self, time: Femto) -> f64 {
        let t = time as f64;
        t * (self.outer - t * self.fall / 4.0)
    }
}

/// The spinning platter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Platter {
    /// Time per block, if it is the same everywhere.
    block: Femto,
    zones: Option<Zones>,
    blocks: u64,
    turn: Femto,
}

impl Platter {
    /// The platter of `spec` with `blocks` blocks, which fill it from the outermost track to the innermost.
    pub fn new(spec: &DiskSpec, blocks: u64) -> Self {
        let block = |q: u64| (u128::from(q) * BLOCK as u128).max(1);
        let outer = block(spec.media.value.0);
        let zones = spec.media_inner.as_ref().filter(|inner| inner.value > spec.media.value).map(|inner| {
            let (v, w) = (1.0 / outer as f64, 1.0 / block(inner.value.0) as f64);
            Zones { outer: v, fall: (v * v - w * w) / blocks.max(1) as f64 }
        });
        let turn = (60_000_000_000_000_000 / u128::from(spec.rpm.value.max(1))).max(1);
        Platter { block: outer, zones, blocks, turn }
    }
    /// The media time before a block.
    fn before(&self, block: u64) -> Femto {
        match &self.zones {
            None => self.block.saturating_mul(u128::from(block)),
            Some(zones) => zones.before(block),
        }
    }
    /// Time in which a range of blocks passes.
    pub fn passing(&self, from: u64, to: u64) -> Femto {
        self.before(to).saturating_sub(self.before(from))
    }
    /// Number of whole blocks from `from` on that pass in a time.
    pub fn passed(&self, from: u64, time: Femto) -> u64 {
        let Some(zones) = &self.zones else {
            return u64::try_from(time / self.block).unwrap_or(u64::MAX);
        };
        let ends = self.before(from).saturating_add(time);
        if ends >= self.before(self.blocks) {
            return self.blocks.saturating_sub(from);
        }
        let mut last = (zones.at(ends) as u64).clamp(from, self.blocks);
        while last > from && self.before(last) > ends {
            last -= 1;
        }
        while last < self.blocks && self.before(last + 1) <= ends {
            last += 1;
        }
        last - from
    }
    /// The track on which a block begins.
    pub fn track(&self, block: u64) -> u64 {
        u64::try_from(self.before(block) / self.turn).unwrap_or(u64::MAX)
    }
    /// Time from `at` until a block begins to pass. The angle is a function of time.
    pub fn until(&self, block: u64, at: Femto) -> Femto {
        (self.before(block) % self.turn + self.turn - at % self.turn) % self.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::energy::profile::{DeviceSpec, Profile};

    const BLOCKS: u64 = 1 << 18;

    /// A platter with rates of `outer` and `inner` femtoseconds per byte.
    fn platter(outer: u64, inner: u64) -> Platter {
        let DeviceSpec::Disk(mut spec) = Profile::find("microdrive").unwrap().device else { panic!("a disk") };
        spec.media.value.0 = outer;
        let mut other = spec.media.clone();
        other.value.0 = inner;
        spec.media_inner = Some(other);
        Platter::new(&spec, BLOCKS)
    }

    #[test]
    fn blocks_pass_at_the_outer_rate_first_and_at_the_inner_rate_last_and_all_at_twice_the_inverse_of_the_sum() {
        let (outer, inner) = (5_714_286, 12_048_193);
        let p = platter(outer, inner);
        let near = |got: Femto, expected: f64| assert!((got as f64 / expected - 1.0).abs() < 1e-4, "{got} {expected}");
        near(p.passing(0, 1), outer as f64 * 4096.0);
        near(p.passing(BLOCKS - 1, BLOCKS), inner as f64 * 4096.0);
        let sum = 1.0 / outer as f64 + 1.0 / inner as f64;
        near(p.passing(0, BLOCKS), 4096.0 * BLOCKS as f64 * 2.0 / sum);
        // After half of the time the rate is the mean of both.
        let half = p.passed(0, p.passing(0, BLOCKS) / 2);
        near(p.passing(half, half + 64) / 64, 4096.0 * 2.0 / sum);
    }

    #[test]
    fn a_track_of_equal_radius_steps_loses_equally_many_blocks_from_track_to_track() {
        let p = platter(5_714_286, 12_048_193);
        let first_of = |track: u64| (0..BLOCKS).collect::<Vec<_>>().partition_point(|b| p.track(*b) < track) as u64;
        let tracks = p.track(BLOCKS - 1);
        let on = |track| (first_of(track + 1) - first_of(track)) as i64;
        let step = (on(1) - on(tracks - 1)) as f64 / (tracks - 2) as f64;
        for track in (1..tracks).step_by(17) {
            let expected = on(1) as f64 - step * (track - 1) as f64;
            assert!((on(track) as f64 - expected).abs() <= 2.0, "track {track}: {}, {expected}", on(track));
        }
    }

    #[test]
    fn what_has_passed_is_the_inverse_of_how_long_it_takes_to_pass() {
        for (outer, inner) in [(1_000_000, 1_000_000), (5_714_286, 12_048_193), (1, 1 << 40)] {
            let p = platter(outer, inner);
            let mut rng = crate::Rng::new(9);
            for _ in 0..2_000 {
                let from = rng.below(BLOCKS);
                let to = from + rng.below(BLOCKS - from + 1);
                let time = p.passing(from, to);
                assert_eq!(p.passed(from, time), to - from, "{from} to {to}");
                assert_eq!(p.passed(from, time.saturating_sub(1)), (to - from).saturating_sub(1), "{from} to {to}");
            }
        }
    }

    #[test]
    fn an_inner_rate_like_the_outer_one_is_one_rate() {
        let (one, same) = (platter(310_960_000, 310_960_000), platter(310_960_000, 310_960_000));
        assert!(same.zones.is_none());
        assert_eq!(one.passing(7, 4096), 310_960_000 * 4096 * 4089);
    }
}
