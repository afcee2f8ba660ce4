//! For how long does background cleaning block other operations?

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::clock::Clock;
use device::energy::Meter;
use device::energy::profile::Profile;
use device::model::{self, Pace, Simulated};
use device::{BlockDevice, Lba, Memory, Tag};
use joulefs_f2fs::gc::settings::Settings;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::FileSystem;
use victim::Policy;

use crate::log_rig::*;

const MIB: u64 = 96;

/// A volume on a simulated phone whose first segments alternate valid and invalid blocks; cleans sections in steps of
/// this many blocks. Returns the longest pause, and the longest time of a request for one block.
fn pause(policy: Policy, step_blocks: usize) -> (Duration, Duration) {
    let profile = Profile::find("kirin9000-ufs31").unwrap();
    let clock = clock();
    let contents: Memory = formatted(MIB, &Options::default());
    let model = model::build(&profile, MIB * 256).unwrap();
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let dev = Arc::new(Simulated::new(contents, model, meter, Pace::Virtual(clock.clone())));
    let settings = Settings { policy, step_blocks, on: false, ..Settings::default() };
    let options = MountOptions { gc: settings, ..MountOptions::default() };
    let vol = Volume::mount(dev.clone(), clock.clone(), options).unwrap();
    vol.tune("atgc_age_threshold", "0").unwrap();
    let stays = new_file(&vol, vol.root(), "stays");
    let goes = new_file(&vol, vol.root(), "goes");
    for n in 0..3000 {
        write(&vol, stays, n * 4096, &pattern(n, 4096));
        write(&vol, goes, n * 4096, &pattern(n, 4096));
        if n % 2 == 1 {
            // Written back in this order.
            vol.fsync(stays, true).unwrap();
            vol.fsync(goes, true).unwrap();
        }
    }
    vol.sync().unwrap();
    vol.unlink(vol.root(), b"goes").unwrap();
    vol.forget(goes, 1);
    vol.sync().unwrap();
    for _ in 0..4 {
        assert!(vol.clean_in_background(&settings).unwrap());
        clock.advance(Duration::from_secs(1));
    }
    assert!(vol.counters.moved_background.load(Relaxed) >= 512);
    let mut slowest = Duration::ZERO;
    let mut time = |f: &dyn Fn()| {
        let from = clock.monotonic();
        f();
        slowest = slowest.max(clock.monotonic() - from);
    };
    let tag = Tag { cause: 0, owner: 0 };
    let longest = Duration::from_micros(vol.counters.longest_pause.load(Relaxed));
    vol.unmount().unwrap();
    let mut rng = device::Rng::new(1);
    for _ in 0..500 {
        let at = Lba(rng.range(MIB * 128..MIB * 256));
        time(&|| dev.read(at, &mut [0; 4096], tag).unwrap());
        time(&|| dev.write(at, &[1; 4096], tag).unwrap());
    }
    (longest, slowest)
}

#[test]
fn a_step_takes_no_longer_than_reading_and_writing_its_blocks_one_by_one() {
    for policy in [Policy::CostBenefit, Policy::Atgc, Policy::Fagc] {
        // For each moved block: a read, a write, and possibly a read of its node; plus a summary.
        let bound = |slowest: Duration, blocks: u32| slowest * (3 * blocks + 1);
        let (short, slowest) = pause(policy, 16);
        assert!(short > Duration::ZERO && short <= bound(slowest, 16), "{policy:?}: {short:?}, request {slowest:?}");
        let (middle, slowest) = pause(policy, 64);
        assert!(middle <= bound(slowest, 64), "{policy:?}: {middle:?}, request {slowest:?}");
        let (long, _) = pause(policy, 512);
        println!("{policy:?}: {short:?}, {middle:?}, {long:?}; a request {slowest:?}");
        assert!(long > middle * 2 && middle > short * 2, "{policy:?}: {short:?}, {middle:?}, {long:?}");
        assert!(long > bound(slowest, 16), "{policy:?}: {long:?}");
    }
}
