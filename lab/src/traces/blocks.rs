//! Recorded requests on a simulated device.

use std::sync::Arc;

use device::energy::Meter;
use device::energy::profile::Profile;
use device::{Blank, Lba};
use trace::Names;
use trace::block::DeviceId;
use trace::replay::blocks::{How, Made, Replayed, replay};
use trace::replay::extent::{self, Extent};
use trace::requests::Requests;

use super::{ReplayError, Run, Speed, Stack};

/// On which device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The recorded device whose requests are made; without, the busiest of those that pass nothing on to others.
    pub of: Option<DeviceId>,
    /// Blocks of the simulated device; without, as many as the recording needs, in whole gibibytes.
    pub blocks: Option<u64>,
    /// The device holds data everywhere at the beginning, not only where it is read.
    pub full: bool,
    /// How time passes.
    pub speed: Speed,
}

/// What a recording needs, before anything is done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The recorded device.
    pub of: DeviceId,
    /// Blocks of the simulated one.
    pub blocks: u64,
    /// Where it holds data at the beginning.
    pub held: Vec<(Lba, u64)>,
    /// Requests to the recorded device.
    pub requests: u64,
}

impl Options {
    /// Reads a recording to its end. `progress` is told now and then how many bytes of the file were read.
    pub fn plan(&self, mut requests: Requests, progress: impl FnMut(u64)) -> Result<Plan, ReplayError> {
        let path = requests.events().format();
        // What is damaged is replayed up to there, and needs no more.
        let (mut all, _) = extent::scan(&mut requests, progress);
        let known: Vec<String> = all.keys().map(ToString::to_string).collect();
        let left_out = requests.left_out();
        let counted = |id: &DeviceId| left_out.iter().all(|l| l.device != *id);
        let of = self.of.or_else(|| extent::busiest(&all, counted));
        let of = of.ok_or_else(|| ReplayError::Empty(format!("this {path} recording holds no request to a device")))?;
        let needs: Extent =
            all.remove(&of).ok_or_else(|| ReplayError::NotRecorded { of, known: known.join(" and ") })?;
        if let Some(given) = self.blocks.filter(|given| *given < needs.blocks) {
            return Err(ReplayError::TooSmall { of, needed: needs.blocks * 4096, given: given * 4096 });
        }
        let blocks = self.blocks.unwrap_or(needs.blocks.next_multiple_of(1 << 18).max(1 << 18));
        let mut held = if self.full { vec![(Lba(0), blocks)] } else { needs.held() };
        held.retain_mut(|(at, n)| {
            *n = (*n).min(blocks.saturating_sub(at.0));
            *n > 0
        });
        Ok(Plan { of, blocks, held, requests: needs.requests })
    }
}

/// Makes the requests of a recording that was planned for. `told` gets each when its end is known, with the
/// meter, and `progress` is told now and then how many bytes of the file
/// were read.
pub fn run(
    requests: &mut Requests,
    profile: &Profile,
    plan: &Plan,
    speed: Speed,
    how: How,
    mut told: impl FnMut(&Made, &Names, &Meter),
    progress: impl FnMut(u64),
) -> Result<Run<Replayed>, ReplayError> {
    let stack = Stack::new(profile, Arc::new(Blank::new(plan.blocks)), &plan.held, speed)?;
    let from = stack.now();
    let meter = stack.device.meter();
    let told = |made: &Made, names: &Names| told(made, names, meter);
    let (done, whole) = replay(requests, plan.of, &*stack.device, how, told, progress);
    Ok(Run {
        done,
        ledger: stack.device.ledger(),
        took: stack.now().since(from).0,
        counters: stack.device.counters(),
        damage: whole.err(),
    })
}
