//! How much memory does a volume of a phone's size take if it is three fifths full, with and without the simulated
//! flash?
//!
//! Each volume is aged by a separate process, whose peak memory counts.

use std::process::Command;
use std::sync::Arc;

use device::energy::Meter;
use device::energy::profile::Profile;
use device::model::{Pace, Simulated, build};
use device::{BlockDevice, Fingerprint};
use sim::aging::{self, Recipe};
use volume::{Kind, MountOptions};

use super::Outcome;
use super::in_process::{Measured, peak_megabytes};

const BLOCKS: u64 = 256 << 18;
const RECIPE: &str = "three-fifths";

/// The rows.
///
/// # Errors
/// If a volume cannot be aged.
pub fn all() -> Outcome<Vec<Measured>> {
    let mut rows = Vec::new();
    let kinds = [
        ("plain", "`joulefs age --recipe three-fifths --size 256G`"),
        ("metered", "the same, with translation layer and meter under it"),
    ];
    for (kind, name) in kinds {
        let output = Command::new(std::env::current_exe()?).args(["age-once", kind]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = text
            .trim()
            .parse()
            .map_err(|_| format!("aging 256 GiB: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
        rows.push(Measured { name: format!("{name}: peak memory"), value, unit: "MB", aim: "≤ 2,000" });
    }
    Ok(rows)
}

/// The separate process: ages a volume and prints peak megabytes.
///
/// # Errors
/// If the volume cannot be aged, or is not as full as it should be.
pub fn age_once(kind: &str) -> Outcome<()> {
    let clock = aging::clock();
    let contents: Arc<dyn BlockDevice> = Arc::new(Fingerprint::new(BLOCKS));
    let device = match kind {
        "metered" => {
            let profile = Profile::find("kirin9000-ufs31")?;
            let meter = Arc::new(Meter::new(profile.host.prices()));
            let model = build(&profile, BLOCKS)?;
            Arc::new(Simulated::new(contents, model, meter, Pace::Virtual(clock.clone())))
        }
        _ => contents,
    };
    let chain = Recipe::chain(RECIPE)?;
    let mounted = aging::prepare(Kind::F2fs, device, clock, MountOptions::default(), &chain, 1)?;
    let st = mounted.volume().statfs()?;
    let used = 1.0 - st.blocks_free as f64 / st.blocks as f64;
    if !(0.59..0.61).contains(&used) {
        return Err(format!("{used} of the volume in use, not 0.6").into());
    }
    println!("{}", peak_megabytes()?);
    Ok(())
}
