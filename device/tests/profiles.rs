//! The shipped profiles match the devices they are named after.

use std::sync::Arc;

use device::clock::{Clock, VirtualClock};
use device::energy::profile::{DeviceSpec, Profile, SHIPPED};
use device::energy::{Ledger, Meter};
use device::model::{self, Pace, Simulated};
use device::{BLOCK, BlockDevice, Lba, Memory, Tag};

use crate::drives::near;

struct Bench {
    device: Simulated<Memory>,
    clock: Arc<VirtualClock>,
}

impl Bench {
    fn new(profile: &str) -> Self {
        let profile = Profile::find(profile).unwrap();
        // Far larger than the written data, so that the device never cleans.
        let (clock, blocks) = (Arc::new(VirtualClock::default()), 1 << 20);
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let model = model::build(&profile, blocks).unwrap();
        Bench { device: Simulated::new(Memory::new(blocks), model, meter, Pace::Virtual(clock.clone())), clock }
    }
    /// Returns seconds and energy.
    fn measure(&self, work: impl FnOnce(&Simulated<Memory>)) -> (f64, Ledger) {
        let (before, begun) = (self.device.ledger(), self.clock.monotonic());
        work(&self.device);
        ((self.clock.monotonic() - begun).as_secs_f64(), self.device.ledger().since(&before))
    }
    fn write(&self, at: u64, blocks: usize) {
        self.device.write(Lba(at), &vec![0; blocks * BLOCK], Tag::default()).unwrap();
    }
}

/// Seconds of one read and of one write of 4 KB, scattered over 64 MB.
fn one_block(bench: &Bench) -> [f64; 2] {
    let n = 16_384;
    let scattered = |i: u64| Lba(i * 7919 % n);
    let mut buf = [0; BLOCK];
    let (written, _) = bench.measure(|d| (0..n).for_each(|i| d.write(scattered(i), &buf, Tag::default()).unwrap()));
    let (read, _) = bench.measure(|d| (0..n).for_each(|i| d.read(scattered(i), &mut buf, Tag::default()).unwrap()));
    [read, written].map(|s| s / n as f64)
}

#[test]
fn every_shipped_profile_has_its_files_name_and_a_device_that_can_be_built() {
    for (name, text) in SHIPPED {
        let profile = Profile::parse(text, name).unwrap();
        assert_eq!(profile.name, *name);
        let size = match &profile.device {
            DeviceSpec::Flash(f) => f.size.value,
            DeviceSpec::Disk(d) => d.size.value,
        };
        assert!(size >= 1 << 30, "{name}");
        assert!(model::build(&profile, 1 << 12).is_ok());
        assert!(model::build(&profile, u64::MAX).is_err());
    }
}

#[test]
fn the_oneplus_takes_medfs_times_for_a_block() {
    let [read, written] = one_block(&Bench::new("oneplus8t-ufs31"));
    near("a read of 4 KB, us", read * 1e6, 250.0, 1.0);
    near("a write of 4 KB, us", written * 1e6, 954.0, 1.0);
}

#[test]
fn the_nexus_emmc_has_the_rates_of_its_kind() {
    let bench = Bench::new("galaxy-nexus-emmc");
    let [read, written] = one_block(&bench);
    near("reads of 4 KB a second", 1.0 / read, 4000.0, 1.0);
    near("writes of 4 KB a second", 1.0 / written, 2000.0, 1.0);
    let (seconds, _) = bench.measure(|_| (0..64).for_each(|mb| bench.write(32_768 + mb * 256, 256)));
    near("MB written in order a second", 64.0 * 1.048576 / seconds, 40.0, 3.0);
}

#[test]
fn the_nexus_spends_the_energy_of_mohans_writes_on_f2fs() {
    let bench = Bench::new("galaxy-nexus-emmc");
    let (_, ordered) = bench.measure(|_| (0..128).for_each(|i| bench.write(i * 128, 128)));
    near("512 KB writes, uJ/KB", ordered.total().joules() * 1e6 / 65_536.0, 41.7, 3.0);
    // 4 KB and an fsync: a block of data, two or sometimes three of metadata elsewhere, a flush.
    let n = 10_240;
    let (_, synced) = bench.measure(|d| {
        for i in 0..n {
            bench.write(32_768 + i, 1);
            bench.write(65_536 + i * 3, 2);
            if i % 10 == 0 {
                bench.write(65_536 + i * 3 + 2, 1);
            }
            d.flush(Tag::default()).unwrap();
        }
    });
    near("4 KB writes with an fsync, uJ/KB", synced.total().joules() * 1e6 / (n * 4) as f64, 500.0, 5.0);
}
