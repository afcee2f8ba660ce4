//! What would a foreign recording have cost here, on a simulated device or on a volume?
//!
//! * [`blocks`]: requests on a device.
//! * [`calls`]: calls on a volume; [`source`]: the recordings they come from; [`by_inode`]: JouleFS recordings;
//!   [`host_memory`]: the host's page cache above it; `layers`: what counts in between.
//! * [`state`]: the initial state of the volume; [`past`]: device and volume in this state, for several runs.
//! * [`timeline`]: when the energy of requests or calls was spent.
//! * [`live`]: the same for requests that still arrive.
//! * [`order`]: how much is random.
//! * [`requeued`]: lines that are not requests.
//!
//! Recordings are read more than once: first to determine what must exist, then to replay. They are not kept in memory.

pub mod blocks;
pub mod by_inode;
pub mod calls;
pub mod host_memory;
mod layers;
pub mod live;
pub mod order;
pub mod past;
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
use device::model::{self, Model, Pace, Simulated};
use device::{Blank, BlockDevice, Lba};
use record::Tempo;
use trace::TraceError;
use trace::block::DeviceId;

use crate::aging;
use crate::error::SimError;

/// How time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speed {
    /// As recorded, in virtual time: as fast as it can be computed.
    #[default]
    Virtual,
    /// Each request when the previous one is done, in virtual time.
    BackToBack,
    /// As recorded, by the host's clock.
    Paced,
}

/// Why a recording could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read; nothing was replayed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The device or volume failed.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// It has no requests to any device.
    #[error("{0}")]
    Empty(String),
    /// It has no requests to the chosen device.
    #[error("no request to device {of} in the recording; it has {known}")]
    NotRecorded {
        /// The chosen device.
        of: DeviceId,
        /// The devices in the recording.
        known: String,
    },
    /// The simulated device is too small for it.
    #[error("requests to device {of} need {needed} bytes; a size of {given} is too small")]
    TooSmall {
        /// The recorded device.
        of: DeviceId,
        /// Least size in bytes.
        needed: u64,
        /// Chosen size in bytes.
        given: u64,
    },
    /// The volume has too little space for what its calls write.
    #[error(
        "the calls need up to {needs} bytes, but only {free} are free before the first one: make a volume of \
         {would_do} bytes"
    )]
    NoRoom {
        /// Free bytes.
        free: u64,
        /// Needed bytes.
        needs: u64,
        /// Size of a volume that is large enough.
        would_do: u64,
    },
    /// The volume has too little space for the files that its calls need at the beginning.
    #[error(
        "the files of the calls take up to {holds} bytes, too much for a volume of {given}: make a volume of \
         {would_do} bytes"
    )]
    NoRoomBefore {
        /// Bytes of the calls' files.
        holds: u64,
        /// Bytes of the volume.
        given: u64,
        /// Size of a volume that is large enough.
        would_do: u64,
    },
    /// A file that it needs could not be created.
    #[error("{path}: cannot be created before the calls: {why}")]
    Prepare {
        /// The file or directory.
        path: String,
        /// The reason.
        why: String,
        /// True if the volume was full.
        no_space: bool,
    },
}

/// Errors of lower crates are wrapped.
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

/// Progress callback: name of the step, and share done from 0 to 1.
pub type Progress<'a> = &'a mut dyn FnMut(&str, f64);

/// Result of a replay.
pub struct Run<R> {
    /// What was replayed.
    pub done: R,
    /// What it cost.
    pub ledger: Ledger,
    /// Device time in nanoseconds.
    pub took: u64,
    /// Counters inside the device.
    pub counters: Vec<(&'static str, u64)>,
    /// Why the replay stopped before the end.
    pub damage: Option<TraceError>,
}

/// A simulated device with its clock.
struct Stack {
    device: Arc<Simulated<Arc<dyn BlockDevice>>>,
    clock: Arc<dyn Clock>,
    /// The clock, if it is virtual.
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
        Ok(Self::resumed(profile, contents, model, Duration::ZERO, Nanos(0), speed))
    }

    /// A device whose model was in use until `passed` after the clock's start, with its energy booked up to `booked`.
    fn resumed(
        profile: &Profile,
        contents: Arc<dyn BlockDevice>,
        model: Box<dyn Model>,
        passed: Duration,
        booked: Nanos,
        speed: Speed,
    ) -> Self {
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let virtual_clock = aging::clock();
        virtual_clock.advance(passed);
        let real = Arc::new(RealClock::new());
        let (pace, clock, tempo): (_, Arc<dyn Clock>, _) = match speed {
            Speed::Virtual => {
                (Pace::Virtual(virtual_clock.clone()), virtual_clock.clone(), Tempo::Virtual(virtual_clock.clone()))
            }
            Speed::BackToBack => (Pace::Virtual(virtual_clock.clone()), virtual_clock.clone(), Tempo::BackToBack),
            Speed::Paced => (Pace::Paced(real.clone()), real.clone(), Tempo::Real(real)),
        };
        let virtual_clock = (speed != Speed::Paced).then_some(virtual_clock);
        let device = Arc::new(Simulated::resumed(contents, model, meter, pace, booked));
        Stack { device, clock, virtual_clock, tempo }
    }

    fn now(&self) -> Nanos {
        Nanos::from_duration(self.clock.monotonic())
    }
}

/// Energy of a device with this many blocks that idles for this many nanoseconds: the baseline of every file system on
/// it.
pub fn idle(profile: &Profile, blocks: u64, nanoseconds: u64) -> Result<Energy, ReplayError> {
    let stack = Stack::new(profile, Arc::new(Blank::new(blocks)), &[], Speed::BackToBack)?;
    if let Some(clock) = &stack.virtual_clock {
        clock.advance(Duration::from_nanos(nanoseconds));
    }
    Ok(stack.device.ledger().total())
}

/// The increase of counters; those that are not sums are not changed.
fn since(now: Vec<(&'static str, u64)>, before: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let sum = |name: &str| !name.starts_with("wear_");
    now.into_iter()
        .zip(before)
        .map(|((name, n), (_, b))| (name, if sum(name) { n.saturating_sub(*b) } else { n }))
        .collect()
}
