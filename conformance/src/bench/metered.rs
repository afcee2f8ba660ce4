//! How many requests of 4 KB per second does the simulated flash serve, with its translation layer and the meter on?
//!
//! The device is the phone's of 256 GiB; contents are left out, since only the model is measured.

use std::sync::Arc;

use device::energy::Meter;
use device::energy::profile::Profile;
use device::model::{Pace, Simulated, build};
use device::{BLOCK, Blank, BlockDevice, Lba, Rng, Tag, Time, VirtualClock};

use super::in_process::Measured;
use super::{Outcome, Stopwatch, median};

const BLOCKS: u64 = 256 << 18;
/// Blocks in the device's first GiB.
const NARROW: u64 = 1 << 18;
const REQUESTS: u64 = 1_000_000;

/// The rows, each as the median of `passes` passes.
///
/// # Errors
/// The first operation that failed.
pub fn all(passes: usize) -> Outcome<Vec<Measured>> {
    let profile = Profile::find("kirin9000-ufs31")?;
    let model = build(&profile, BLOCKS)?;
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let clock = Arc::new(VirtualClock::new(Time::default()));
    let device = Simulated::new(Blank::new(BLOCKS), model, meter, Pace::Virtual(clock));
    let mut rng = Rng::new(1);
    let mut rows = Vec::new();
    let kinds = [
        ("random writes within 1 GiB", NARROW, 0),
        ("random reads within 1 GiB", NARROW, 1),
        ("random reads and writes within 1 GiB", NARROW, 2),
        ("random reads and writes everywhere", BLOCKS, 2),
    ];
    for (name, range, kind) in kinds {
        let mut rates = Vec::new();
        for _ in 0..passes.max(1) {
            let mut block = [0; BLOCK];
            let since = Stopwatch::start();
            for i in 0..REQUESTS {
                let (at, tag) = (Lba(rng.below(range)), Tag { cause: (i % 8) as u8, owner: i % 100 });
                match kind == 0 || kind == 2 && i % 2 == 0 {
                    true => device.write(at, &block, tag)?,
                    false => device.read(at, &mut block, tag)?,
                }
            }
            rates.push(REQUESTS as f64 / since.elapsed().as_secs_f64());
        }
        rows.push(Measured { name: name.into(), value: median(&rates), unit: "op/s", aim: "≥ 1,000,000" });
    }
    Ok(rows)
}
