//! What would it have cost here? A recording of others, on a simulated device or a volume on one.
//!
//! * [`blocks`]: requests on a device. * [`calls`]: calls on a volume, [`source`]: from which recordings, [`by_inode`]: of ours;
//!   [`host_memory`]: what a host keeps above it.
//! * [`state`]: what the volume is before them.
//! * [`timeline`]: when the joules of requests, or of calls, were spent.
//! * [`live`]: the same of requests that still come.
//! * [`order`]: how much is random. * [`requeued`]: lines that are no requests.
//!
//! Recordings are read more than once: first to see what must be there, then to do it. Nothing is kept of them.

pub mod blocks;
pub mod by_inode;
pub mod calls;
pub mod host_memory;
pub mod live;
pub mod order;
pub mod requeued;
mod room;
pub mod source;
pub mod state;
pub mod timeline;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use device::clock::{Clock, RealClock, VirtualClock};
use device::energy::profile::Profile;
use device::energy::{Energy, Ledger, Meter, Nanos};
use device::model::{self, Pace, Simulated};
use device::{Blank, BlockDevice, Lba};
use record::Tempo;
use trace::TraceError;
use trace::block::DeviceId;

use crate::aging;
use crate::error::SimError;

/// How time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speed {
    /// As it was recorded, in virtual time: as fast as it can be computed.
    #[default]
    Virtual,
    /// Each as soon as the one before is done, in virtual time.
    BackToBack,
    /// As it was recorded, by the host's clock.
    Paced,
}

/// A recording could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read; nothing was done yet.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is no device or volume for it.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// It asks nothing of any device.
    #[error("{0}")]
    Empty(String),
    /// It asks nothing of the device whose requests are to be made.
    #[error("no request to device {of} is recorded; there are {known}")]
    NotRecorded {
        /// Which.
        of: DeviceId,
        /// Those there are.
        known: String,
    },
    /// It asks more than the device has that was chosen.
    #[error("device {of} is asked for {needed} bytes, one of {given} is too small")]
    TooSmall {
        /// The recorded device.
        of: DeviceId,
        /// How large it was at least.
        needed: u64,
        /// How large it was to be.
        given: u64,
    },
    /// There is no room on the volume for what its calls write.
    #[error(
        "the calls' files grow by {needs} bytes at most, and {free} are free before the first of them: a volume of \
         {would_do} bytes would do"
    )]
    NoRoom {
        /// Bytes that are free.
        free: u64,
        /// Bytes that are needed.
        needs: u64,
        /// Bytes of a volume that has room.
        would_do: u64,
    },
    /// There is no room on the volume for what its calls find.
    #[error(
        "the calls' files hold {holds} bytes at most, too many for one of {given}: a volume of {would_do} bytes would do"
    )]
    NoRoomBefore {
        /// Bytes of the calls' files.
        holds: u64,
        /// Bytes of the volume.
        given: u64,
        /// Bytes of a volume that has room.
        would_do: u64,
    },
    /// What it needs could not be put on the volume.
    #[error("{path}: cannot be made before the calls: {why}")]
    Prepare {
        /// Which file or directory.
        path: String,
        /// Why.
        why: String,
        /// The volume was full.
        no_space: bool,
    },
}

/// Errors of the rooms below are the lab's.
macro_rules! of_the_lab {
    ($($error:ty),*) => {$(
        impl From<$error> for ReplayError {
            fn from(e: $error) -> Self {
                ReplayError::Sim(e.into())
            }
        }
    )*};
}
of_the_lab!(vfs::Error, volume::MountError, volume::MakeError, aging::AgeError, model::TooLarge);

/// What is being done, for who shows progress: a name, and how far from 0 to 1.
pub type Progress<'a> = &'a mut dyn FnMut(&str, f64);

/// What came of a recording.
pub struct Run<R> {
    /// What was done.
    pub done: R,
    /// What it cost.
    pub ledger: Ledger,
    /// Nanoseconds of the device's time.
    pub took: u64,
    /// What happened inside the device.
    pub counters: Vec<(&'static str, u64)>,
    /// Why the recording was left before its end.
    pub damage: Option<TraceError>,
}

/// A simulated device with its clock.
struct Stack {
    device: Arc<Simulated<Arc<dyn BlockDevice>>>,
    clock: Arc<dyn Clock>,
    /// The clock, if it is one that is moved.
    virtual_clock: Option<Arc<VirtualClock>>,
    tempo: Tempo,
}

impl Stack {
    fn new(
        profile: &Profile,
        contents: Arc<dyn BlockDevice>,
        held: &[(Lba, u64)],
        speed: Speed,
    ) -> Result<Self, ReplayError> {
        let mut model = model::build(profile, contents.blocks())?;
        model.fill(Nanos(0), held);
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let virtual_clock = aging::clock();
        let real = Arc::new(RealClock::new());
        let (pace, clock, tempo): (_, Arc<dyn Clock>, _) = match speed {
            Speed::Virtual => {
                (Pace::Virtual(virtual_clock.clone()), virtual_clock.clone(), Tempo::Virtual(virtual_clock.clone()))
            }
            Speed::BackToBack => (Pace::Virtual(virtual_clock.clone()), virtual_clock.clone(), Tempo::BackToBack),
            Speed::Paced => (Pace::Paced(real.clone()), real.clone(), Tempo::Real(real)),
        };
        let virtual_clock = (speed != Speed::Paced).then_some(virtual_clock);
        Ok(Stack { device: Arc::new(Simulated::new(contents, model, meter, pace)), clock, virtual_clock, tempo })
    }

    fn now(&self) -> Nanos {
        Nanos::from_duration(self.clock.monotonic())
    }
}

/// What a device of so many blocks spends that is asked nothing for so many nanoseconds: what every file system on it pays
/// for as long.
pub fn idle(profile: &Profile, blocks: u64, nanoseconds: u64) -> Result<Energy, ReplayError> {
    let stack = Stack::new(profile, Arc::new(Blank::new(blocks)), &[], Speed::BackToBack)?;
    if let Some(clock) = &stack.virtual_clock {
        clock.advance(Duration::from_nanos(nanoseconds));
    }
    Ok(stack.device.ledger().total())
}

/// What counters show beyond what they showed before; those that are no sums stay as they are.
fn since(now: Vec<(&'static str, u64)>, before: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let sum = |name: &str| !name.starts_with("wear_");
    now.into_iter()
        .zip(before)
        .map(|((name, n), (_, b))| (name, if sum(name) { n.saturating_sub(*b) } else { n }))
        .collect()
}
