//! How long does simulating a day of a phone's use take: file system, background cleaning, translation layer and meter?

use device::energy::profile::Profile;
use f2fs::MountOptions;
use f2fs::gc::settings::Settings;
use sim::aging::{Ager, Recipe};
use sim::bench::Bench;
use victim::Policy;

use super::in_process::Measured;
use super::{Outcome, Stopwatch};

const BLOCKS: u64 = 256 << 18;

/// The row: hours of use simulated per minute.
///
/// # Errors
/// If the volume cannot be made or used.
pub fn all() -> Outcome<Vec<Measured>> {
    let profile = Profile::find("kirin9000-ufs31")?;
    let mut bench = Bench::new(&profile, BLOCKS)?;
    let gc = Settings { policy: Policy::Fagc, ..Settings::default() };
    bench.format(1, MountOptions { gc, ..MountOptions::default() })?;
    let volume = bench.volume()?;
    // One day of the year's recipe, without the phone's initial contents.
    let year = Recipe::chain("phone-year")?.pop().ok_or("no recipe phone-year")?;
    let day = year.days_of_use(1).ok_or("phone-year lives no day")?;
    let mut ager = Ager::new(&**volume, bench.clock(), 1).on_the_devices_time().with_cleaning();
    let since = Stopwatch::start();
    let done = ager.all(std::slice::from_ref(&day), &mut |_| {})?;
    let seconds = since.elapsed().as_secs_f64();
    let looked = volume.report().into_iter().find(|(n, _)| n == "gc_nothing_to_clean");
    let name = format!(
        "a day of a phone's use, {:.1} GB written, {} looks at what to clean: hours simulated in a minute",
        done.bytes_written as f64 / 1e9,
        looked.map_or(0.to_string(), |(_, n)| n)
    );
    Ok(vec![Measured { name, value: 24.0 * 60.0 / seconds, unit: "h", aim: "≥ 8" }])
}
