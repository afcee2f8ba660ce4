//! What do recorded requests cost on a simulated device?

use std::sync::Arc;

use device::energy::Meter;
use device::energy::profile::Profile;
use device::{Blank, Lba};
use trace::Names;
use trace::block::DeviceId;
use trace::replay::blocks::{How, Made, Replayed, replay};
use trace::replay::extent::{self, Extent};
use trace::requests::Requests;

use super::{ReplayError, Run, Speed, Stack, since};

/// Which device to replay, and on which one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The recorded device to replay; default: the busiest of those that pass nothing on to other devices.
    pub of: Option<DeviceId>,
    /// Blocks of the simulated device; default: as many as the recording needs, in whole gibibytes.
    pub blocks: Option<u64>,
    /// Whether the device initially holds data everywhere, not only where it is read.
    pub full: bool,
    /// How time passes.
    pub speed: Speed,
}

/// What a recording needs before the replay.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The recorded device.
    pub of: DeviceId,
    /// Blocks of the simulated one.
    pub blocks: u64,
    /// Where it initially holds data.
    pub held: Vec<(Lba, u64)>,
    /// Requests to the recorded device.
    pub requests: u64,
    /// The devices of the recordings to replay first.
    pub before: Vec<DeviceId>,
}

/// The requests of a recording to one device: the one given, or the busiest. `progress` receives the number of bytes
/// read so far, at intervals.
fn asked(
    of: Option<DeviceId>,
    requests: &mut Requests,
    progress: impl FnMut(u64),
) -> Result<(DeviceId, Extent), ReplayError> {
    let path = requests.events().format();
    // A damaged recording is replayed up to the damage, and needs no more.
    let (mut all, _) = extent::scan(requests, progress);
    let known: Vec<String> = all.keys().map(ToString::to_string).collect();
    let left_out = requests.left_out();
    let counted = |id: &DeviceId| left_out.iter().all(|l| l.device != *id);
    let of = of.or_else(|| extent::busiest(&all, counted));
    let of = of.ok_or_else(|| ReplayError::Empty(format!("this {path} recording holds no request to a device")))?;
    let needs = all.remove(&of).ok_or_else(|| ReplayError::NotRecorded { of, known: known.join(" and ") })?;
    Ok((of, needs))
}

impl Options {
    /// Reads a recording to its end. `progress` receives the number of bytes read so far, at intervals.
    pub fn plan(&self, requests: Requests, progress: impl FnMut(u64)) -> Result<Plan, ReplayError> {
        self.plan_behind(Vec::new(), requests, progress)
    }

    /// The same for a recording that is replayed after others on the same device.
    pub fn plan_behind(
        &self,
        before: Vec<Requests>,
        mut requests: Requests,
        progress: impl FnMut(u64),
    ) -> Result<Plan, ReplayError> {
        let (mut earlier, mut devices) = (Extent::default(), Vec::new());
        for mut requests in before {
            let (of, needs) = asked(None, &mut requests, |_| {})?;
            devices.push(of);
            earlier = needs.behind(&earlier);
        }
        let (of, own) = asked(self.of, &mut requests, progress)?;
        let (made, needs) = (own.requests, own.behind(&earlier));
        if let Some(given) = self.blocks.filter(|given| *given < needs.blocks) {
            return Err(ReplayError::TooSmall { of, needed: needs.blocks * 4096, given: given * 4096 });
        }
        let blocks = self.blocks.unwrap_or(needs.blocks.next_multiple_of(1 << 18).max(1 << 18));
        let mut held = if self.full { vec![(Lba(0), blocks)] } else { needs.held() };
        held.retain_mut(|(at, n)| {
            *n = (*n).min(blocks.saturating_sub(at.0));
            *n > 0
        });
        Ok(Plan { of, blocks, held, requests: made, before: devices })
    }
}

/// Replays a planned recording. `each` receives each request when its end is known, with the meter; `progress` the
/// number of bytes read so far, at intervals.
pub fn run(
    requests: &mut Requests,
    profile: &Profile,
    plan: &Plan,
    speed: Speed,
    how: How,
    each: impl FnMut(&Made, &Names, &Meter),
    progress: impl FnMut(u64),
) -> Result<Run<Replayed>, ReplayError> {
    run_behind(&mut [], requests, (profile, plan, speed), how, each, progress)
}

/// The same after other recordings, which are replayed first, in order, without being counted.
pub fn run_behind(
    before: &mut [Requests],
    requests: &mut Requests,
    (profile, plan, speed): (&Profile, &Plan, Speed),
    how: How,
    mut each: impl FnMut(&Made, &Names, &Meter),
    progress: impl FnMut(u64),
) -> Result<Run<Replayed>, ReplayError> {
    let stack = Stack::new(profile, Arc::new(Blank::new(plan.blocks)), &plan.held, speed)?;
    for (earlier, of) in before.iter_mut().zip(&plan.before) {
        let (_, whole) = replay(earlier, *of, &*stack.device, how, |_, _| {}, |_| {});
        whole?;
    }
    let mut counted = None;
    if !before.is_empty() {
        stack.device.begin_again();
        counted = Some(stack.device.counters());
    }
    let from = stack.now();
    let meter = stack.device.meter();
    let each = |made: &Made, names: &Names| each(made, names, meter);
    let (done, whole) = replay(requests, plan.of, &*stack.device, how, each, progress);
    Ok(Run {
        done,
        ledger: stack.device.ledger(),
        took: stack.now().since(from).0,
        counters: match counted {
            Some(counted) => since(stack.device.counters(), &counted),
            None => stack.device.counters(),
        },
        damage: whole.err(),
    })
}
