//! A simulated phone with a meter for a volume's computing and writing.

use std::sync::Arc;

use device::clock::{Clock, VirtualClock};
use device::energy::profile::Profile;
use device::energy::{Energy, Ledger, Meter, Nanos};
use device::model::{self, Pace, Simulated};
use device::{Counting, Memory};
use format::superblock::Features;
use joulefs_f2fs::mkfs::{Options, format};
use joulefs_f2fs::{MountOptions, Volume};

use crate::log_rig;

pub struct Metered {
    pub device: Arc<Counting<Arc<Simulated<Memory>>>>,
    pub profile: Profile,
    pub clock: Arc<VirtualClock>,
}

impl Metered {
    /// An empty volume of 64 MiB with these features in addition to the modern ones, on a changed profile.
    pub fn new(more: Features, change: impl FnOnce(&mut Profile)) -> Self {
        let mut profile = Profile::find("oneplus8t-ufs31").unwrap();
        change(&mut profile);
        let clock = Arc::new(VirtualClock::new(log_rig::clock().now()));
        let model = model::build(&profile, 64 << 8).unwrap();
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let simulated = Simulated::new(Memory::new(64 << 8), model, meter, Pace::Virtual(clock.clone()));
        let device = Arc::new(Counting::new(Arc::new(simulated)));
        let features = Options::modern().features | more;
        let options = Options { features, uuid: Some([7; 16]), checkpoint_version: Some(9), ..Options::default() };
        format(&device, &*clock, &options).unwrap();
        Metered { device, profile, clock }
    }

    /// Mounts it; `booked`: the meter counts computation.
    pub fn mounted(&self, booked: bool, options: MountOptions) -> Arc<Volume> {
        let processor = booked.then(|| self.device.inner().clone() as Arc<_>);
        Volume::mount(self.device.clone(), self.clock.clone(), MountOptions { processor, ..options }).unwrap()
    }

    pub fn ledger(&self) -> Ledger {
        self.device.inner().ledger()
    }

    /// The cost of computing `each`, `times` times.
    pub fn computing(&self, each: Nanos, times: u64) -> Energy {
        let host = self.profile.host.prices();
        (host.cpu_busy.over(each) + host.board.over(each)).times(times)
    }
}
