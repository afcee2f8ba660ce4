//! A simulated device with an energy report.
//!
//! A [`Gauge`] is a metered device as one byte range ([`Disk`]) with a [`Report`] that can be taken at any time.
//! The front end that exposes it (a file, a socket) adds no cost of its own.

mod disk;
mod report;
mod watch;

use std::sync::Arc;

pub use disk::Disk;
pub use report::{CAUSES, Report, Row};
pub use watch::{Sample, Times, Work};
use watch::{Watch, Watched};

use crate::BlockDevice;
use crate::clock::RealClock;
use crate::energy::Meter;
use crate::energy::profile::Profile;
use crate::model::{Model, Pace, Simulated};

/// Duration of requests on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    /// As fast as the host can; the device's time runs ahead.
    Unpaced,
    /// As long as on the device.
    Paced,
}

/// Parts of a gauge.
pub struct Setup {
    /// Storage of the contents.
    pub contents: Arc<dyn BlockDevice>,
    /// True if discarded blocks of the contents read as zeroes. If not, they are overwritten: programs that punch a
    /// hole in a file rely on zeroes.
    pub discards_read_zero: bool,
    /// The model of the device.
    pub model: Box<dyn Model>,
    /// The prices, and the name to show.
    pub profile: Profile,
    /// Duration of requests.
    pub speed: Speed,
}

/// A metered device.
pub struct Gauge {
    disk: Disk,
    device: Arc<Simulated<Arc<dyn BlockDevice>>>,
    watch: Arc<Watch>,
    profile: Profile,
    speed: Speed,
}

impl Gauge {
    /// A device with an empty ledger.
    ///
    /// # Panics
    /// If the model is smaller than the contents.
    pub fn new(setup: Setup) -> Self {
        Self::with(setup, |device| device)
    }

    /// The same with a layer between the bytes and the device: `decorate` receives the device and returns the
    /// target of requests.
    ///
    /// # Panics
    /// If the model is smaller than the contents.
    pub fn with(setup: Setup, decorate: impl FnOnce(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>) -> Self {
        let clock = Arc::new(RealClock::new());
        let pace = match setup.speed {
            Speed::Unpaced => Pace::Unpaced(clock),
            Speed::Paced => Pace::Paced(clock),
        };
        let watch = Arc::new(Watch::default());
        let meter = Arc::new(Meter::new(setup.profile.host.prices()));
        let model = Box::new(Watched::new(setup.model, watch.clone()));
        let device = Arc::new(Simulated::new(setup.contents.clone(), model, meter, pace));
        let disk = Disk::new(decorate(device.clone()), setup.contents, setup.discards_read_zero);
        Gauge { disk, device, watch, profile: setup.profile, speed: setup.speed }
    }

    /// The device's bytes. Requests to them cost energy.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Everything spent so far, at one moment: no request is partly included.
    pub fn report(&self) -> Report {
        self.disk.still(|| {
            let ledger = self.device.ledger();
            self.watch.sample(&ledger);
            Report {
                profile: self.profile.name.clone(),
                paced: self.speed == Speed::Paced,
                blocks: self.device.blocks(),
                ledger,
                times: self.watch.times(),
                counters: self.device.counters(),
                timeline: self.watch.timeline(),
            }
        })
    }

    /// Adds a point to the timeline. The server of the device calls this every second.
    pub fn sample(&self) {
        self.device.look(|ledger| self.watch.sample(ledger));
    }
}
