//! A device in a schedule: every request is a scheduling point.
//!
//! From bottom to top: memory, power, faults, prices, and the scheduling point.

use std::sync::Arc;

use device::energy::Meter;
use device::energy::profile::Profile;
use device::model::{self, Pace, Simulated};
use device::{BlockDevice, Fault, Faulty, Lba, Loss, Memory, PowerCut, Result, Tag, VirtualClock};
use shuttle::sync::atomic::{AtomicU64, Ordering};

use crate::course::Trouble;

/// The profile that prices requests.
const PROFILE: &str = "kirin9000-ufs31";

/// The device of one schedule.
pub struct Medium {
    below: Simulated<Faulty<PowerCut>>,
    /// Number of requests; accessing it is the scheduling point.
    requests: AtomicU64,
    /// Adds a scheduling point after each request, before its caller knows the result.
    behind: bool,
}

impl Medium {
    /// A device on an image. The clock advances with the device's time.
    ///
    /// # Errors
    /// A profile that cannot be read or is too small: a bug in this crate.
    pub fn new(image: &Memory, clock: Arc<VirtualClock>) -> std::result::Result<Self, String> {
        let profile = Profile::find(PROFILE).map_err(|e| e.to_string())?;
        let model = model::build(&profile, image.blocks()).map_err(|e| e.to_string())?;
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let faulty = Faulty::new(PowerCut::new(image.fork()));
        let below = Simulated::new(faulty, model, meter, Pace::Virtual(clock));
        Ok(Medium { below, requests: AtomicU64::new(0), behind: false })
    }

    /// Adds a scheduling point after each request.
    pub fn with_points_behind(self) -> Self {
        Medium { behind: true, ..self }
    }

    fn faulty(&self) -> &Faulty<PowerCut> {
        self.below.contents()
    }

    /// Injects a fault from now on; requests count from here.
    pub fn arm(&self, trouble: Trouble) {
        let faulty = self.faulty();
        match trouble {
            Trouble::None => {}
            Trouble::Cut(write, _) => faulty.inner().cut_after(faulty.inner().write_count() + write),
            Trouble::Fault(op, first, many, _) => {
                let from = faulty.requests(op) + first;
                faulty.add(Fault::Nth { op, requests: from..from + many });
            }
        }
    }

    /// Stops all faults.
    pub fn heal(&self) {
        self.faulty().heal();
    }

    /// Whether power is off.
    pub fn is_cut(&self) -> bool {
        self.faulty().inner().is_cut()
    }

    /// The medium's contents if power fails now, or after it failed.
    pub fn image(&self, loss: Loss) -> Memory {
        self.faulty().inner().image(loss)
    }

    /// Energy in picojoules by owner, and operations: input of a digest.
    pub fn spent(&self) -> Vec<u64> {
        let ledger = self.below.ledger();
        let mut out = vec![ledger.total().0];
        for (owner, energies) in ledger.owners() {
            out.push(owner);
            out.extend(energies.iter().map(|e| e.0));
        }
        for cause in ledger.causes() {
            out.extend([u64::from(cause), ledger.cause(cause).0]);
        }
        out
    }

    fn point(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
    }

    fn behind<T>(&self, out: T) -> T {
        if self.behind {
            self.point();
        }
        out
    }
}

impl BlockDevice for Medium {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.point();
        self.behind(self.below.read(at, buf, tag))
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.point();
        self.behind(self.below.write(at, data, tag))
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.point();
        self.behind(self.below.write_gather(at, parts, tag))
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.point();
        self.behind(self.below.write_for(at, data, owners, cause))
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.point();
        self.behind(self.below.flush(tag))
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.point();
        self.behind(self.below.discard(at, blocks, tag))
    }
}
