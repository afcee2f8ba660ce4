//! How many requests of 4 KB does the flash model serve in a second, with its translation layer and the
//! meter on? Says so for the phone of 256 GiB: new, and full with random overwriting.

use std::sync::Arc;
use std::time::Instant;

use device::energy::Meter;
use device::energy::profile::{DeviceSpec, Profile};
use device::model::flash::Flash;
use device::model::{Pace, Simulated};
use device::{BLOCK, BlockDevice, DeviceError, Lba, Rng, Tag, Time, VirtualClock};

/// Contents nobody looks at: what is measured is the model.
struct Nothing(u64);

impl BlockDevice for Nothing {
    fn blocks(&self) -> u64 {
        self.0
    }
    fn read(&self, _: Lba, _: &mut [u8], _: Tag) -> Result<(), DeviceError> {
        Ok(())
    }
    fn write(&self, _: Lba, _: &[u8], _: Tag) -> Result<(), DeviceError> {
        Ok(())
    }
    fn flush(&self, _: Tag) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: Lba, _: u64, _: Tag) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[allow(clippy::disallowed_methods)] // It is the host's time that is measured.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let profile = Profile::find("kirin9000-ufs31")?;
    let DeviceSpec::Flash(spec) = &profile.device else { return Err("not a flash device".into()) };
    let gib: u64 = std::env::args().nth(1).map_or(Ok(256), |s| s.parse())?;
    let blocks = gib << 18;
    let begin = Instant::now();
    let model = Box::new(Flash::new(spec, blocks));
    println!("{gib} GiB made in {:?}", begin.elapsed());
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let device =
        Simulated::new(Nothing(blocks), model, meter, Pace::Virtual(Arc::new(VirtualClock::new(Time::default()))));
    let mut rng = Rng::new(1);
    let tag = |n: u64| Tag { cause: (n % 8) as u8, owner: n % 100 };
    let run = |name: &str, n: u64, rng: &mut Rng, range: u64, reads: bool, writes: bool| -> Result<(), DeviceError> {
        let mut buf = [0; BLOCK];
        let begin = Instant::now();
        for i in 0..n {
            if writes && (!reads || i % 2 == 0) {
                device.write(Lba(rng.below(range)), &buf, tag(i))?;
            } else {
                device.read(Lba(rng.below(range)), &mut buf, tag(i))?;
            }
        }
        println!("{name:44} {:>9.0} requests/s", n as f64 / begin.elapsed().as_secs_f64());
        Ok(())
    };
    run("new, random writes within 1 GiB", 3_000_000, &mut rng, (1 << 18).min(blocks), false, true)?;
    run("new, random reads within 1 GiB", 3_000_000, &mut rng, (1 << 18).min(blocks), true, false)?;
    run("new, random reads and writes within 1 GiB", 3_000_000, &mut rng, (1 << 18).min(blocks), true, true)?;
    run("new, random reads and writes everywhere", 3_000_000, &mut rng, blocks, true, true)?;
    let begin = Instant::now();
    let data = vec![0; 256 * BLOCK];
    for at in (0..blocks).step_by(256) {
        device.write(Lba(at), &data, tag(1))?;
    }
    println!("filled with requests of 1 MiB: {:.0} blocks/s", blocks as f64 / begin.elapsed().as_secs_f64());
    run("full, random reads", 3_000_000, &mut rng, blocks, true, false)?;
    run("full, random reads and writes", 3_000_000, &mut rng, blocks, true, true)?;
    run("full, random writes", 6_000_000, &mut rng, blocks, false, true)?;
    for (name, n) in device.counters() {
        println!("{name:28} {n}");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or(""));
    Ok(())
}
