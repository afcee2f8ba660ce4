//! Time and energy of the simulated device in the four workloads used to measure phone storage.

use device::Rng;
use device::energy::profile::FlashSpec;
use device::energy::{Bill, Energy, Nanos};
use device::model::flash::Flash;
use device::model::{Ask, Model};
use device::{Lba, Tag};

/// Blocks in a megabyte.
const MB: u64 = 256;

/// Time and the device's energy per megabyte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// In milliseconds.
    pub ms: f64,
    /// In millijoules.
    pub mj: f64,
}

/// Reads and writes of a file on the bare device, one request at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// Requests of 1 MB, in order.
    pub sequential_read: Timed,
    /// The same for writes.
    pub sequential_write: Timed,
    /// Requests of 4 KB at random places of the file.
    pub random_read: Timed,
    /// The same for writes.
    pub random_write: Timed,
}

struct Bench {
    device: Flash,
    now: Nanos,
}

impl Bench {
    fn run(&mut self, mb: u64, asks: impl Iterator<Item = Ask>) -> Timed {
        let (begun, mut bill, mut spent) = (self.now, Bill::default(), Energy::ZERO);
        for ask in asks {
            self.now = self.device.serve(self.now, ask, Tag::default(), &mut bill);
            spent += bill.total();
            bill.clear();
        }
        let ms = self.now.since(begun).0 as f64 / 1e6;
        Timed { ms: ms / mb as f64, mj: spent.millijoules() / mb as f64 }
    }
}

/// Runs the workloads on a file of `mb` megabytes on an otherwise empty device. Each workload reads or writes every
/// block of the file once.
pub fn probe(spec: &FlashSpec, mb: u64) -> Probe {
    let blocks = mb * MB;
    let mut bench = Bench { device: Flash::new(spec, blocks * 16), now: Nanos(0) };
    let mut places: Vec<u64> = (0..blocks).collect();
    let mut rng = Rng::new(1);
    for i in (1..places.len()).rev() {
        places.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let in_order = || (0..blocks).step_by(MB as usize).map(Lba);
    let sequential_write = bench.run(mb, in_order().map(|at| Ask::Write { at, blocks: MB }));
    bench.run(mb, std::iter::once(Ask::Flush));
    let sequential_read = bench.run(mb, in_order().map(|at| Ask::Read { at, blocks: MB }));
    let random_read = bench.run(mb, places.iter().map(|at| Ask::Read { at: Lba(*at), blocks: 1 }));
    let random_write = bench.run(mb, places.iter().map(|at| Ask::Write { at: Lba(*at), blocks: 1 }));
    Probe { sequential_read, sequential_write, random_read, random_write }
}
