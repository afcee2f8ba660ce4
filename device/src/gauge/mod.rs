//! How do people use a simulated device, and how do they see what it spent?
//!
//! A [`Gauge`] is a metered device as one run of bytes ([`Disk`]) with a [`Report`] that can be taken at any time. The
//! front end that shows it to others (a file, a socket) stands above and adds no cost of its own.

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

/// How long requests take on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    /// As fast as the host can; the device's time runs ahead of it.
    Unpaced,
    /// As long as the device would take.
    Paced,
}

/// What a gauge is made of.
pub struct Setup {
    /// Where the contents are kept.
    pub contents: Arc<dyn BlockDevice>,
    /// Whether blocks the contents were told to discard read as zeroes. If not, they are overwritten:
    /// who punches a hole in a file relies on it.
    pub discards_read_zero: bool,
    /// What the device does inside.
    pub model: Box<dyn Model>,
    /// The prices, and the name to show.
    pub profile: Profile,
    /// How long requests take.
    pub speed: Speed,
}

/// A metered device in use.
pub struct Gauge {
    disk: Disk,
    device: Arc<Simulated<Arc<dyn BlockDevice>>>,
    watch: Arc<Watch>,
    profile: Profile,
    speed: Speed,
}

impl Gauge {
    /// A device with nothing on its ledger.
    ///
    /// # Panics
    /// If the model is smaller than the contents.
    pub fn new(setup: Setup) -> Self {
        Self::with(setup, |device| device)
    }

    /// The same, with something between the bytes and the device: `decorate` gets the device and returns
    /// what requests go to.
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

    /// The device's bytes. What is asked of them costs.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Everything spent up to now, as one moment: no request is half in it.
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

    /// Takes a point of the report's line over time. The server of the device calls this every second.
    pub fn sample(&self) {
        self.device.look(|ledger| self.watch.sample(ledger));
    }
}
