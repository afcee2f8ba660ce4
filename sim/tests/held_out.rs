//! How often does the range of a simulated power hold what was measured, and no profile was made from?
//!
//! Each load of a table beside a profile, which was not fitted to it, is run on the profile's device at the measured
//! rate. The table in docs/energy-model.md has the results; `JOULEFS_RENEW=1` rewrites it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::clock::VirtualClock;
use device::energy::profile::Profile;
use device::energy::{Draws, Meter, Nanos};
use device::model::{self, Ask, Pace, Simulated};
use device::queue::Queue;
use device::{Blank, Lba, Rng, Tag};
use sim::fit::watts::{Drive, Load, Loads, Way};

/// Profiles that are fits of a table of their name over a base, and tables that judge them.
const FITTED: [(&str, &str, &[&str]); 4] = [
    ("samsung-980pro", "samsung-970evoplus", &["samsung-980pro-held-out", "powersensor3-held-out"]),
    ("samsung-pm9a3", "samsung-970evoplus", &["samsung-pm9a3-held-out"]),
    ("intel-p5510", "samsung-970evoplus", &["intel-p5510-held-out"]),
    ("intel-s4510", "intel-s4500", &["intel-s4510-held-out"]),
];

/// Loads of other profiles: way, blocks of a request, requests under way, watts, and what was measured.
const OTHERS: [(&str, Way, u64, usize, f64, &str); 1] =
    [("constellation-es3-4tb", Way::Write, 1, 1, 10.86, "random write, 4 KB (SATA manual, Rev. E, Table 2)")];

fn table(name: &str) -> Loads {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../device/profiles/calibration").join(format!("{name}.csv"));
    Loads::parse(&std::fs::read_to_string(path).unwrap(), name).unwrap()
}

/// 16 GiB.
const BLOCKS: u64 = 1 << 22;

/// Watts of a device and their range, at some requests a second, or with some under way.
fn run(profile: &Profile, way: Way, blocks: u64, every: Option<f64>, depth: usize, in_order: bool) -> [f64; 3] {
    let mut model = model::build(profile, BLOCKS).unwrap();
    if way == Way::Read {
        model.fill(Nanos(0), &[(Lba(0), BLOCKS)]);
    }
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let device = Simulated::new(Blank::new(BLOCKS), model, meter, Pace::Virtual(Arc::new(VirtualClock::default())));
    let mut rng = Rng::new(3);
    let mut ends = Vec::new();
    let mut now = Nanos(0);
    // As many as the buffer does not hide, and at least a fifth of a second.
    let bytes = blocks * 4096;
    let count = (every.unwrap_or(0.0) as u64 / 5).max((256 << 20) / bytes).clamp(200, 60_000);
    for n in 0..count {
        let at = Lba(if in_order { n * blocks % (BLOCKS - blocks) } else { rng.below(BLOCKS / blocks) * blocks });
        now = match every {
            Some(rate) => Nanos((n as f64 * 1e9 / rate) as u64).max(now),
            None if ends.len() >= depth => {
                ends.sort_unstable();
                now.max(ends.remove(0))
            }
            None => now,
        };
        let ask = if way == Way::Read { Ask::Read { at, blocks } } else { Ask::Write { at, blocks } };
        let end = device.submit(now, ask, Tag::default()).unwrap();
        if every.is_none() {
            ends.push(end);
        }
    }
    let seconds = device.drain().0 as f64 / 1e9;
    let ledger = device.ledger();
    let range = Draws::of(profile, &ledger).range();
    [ledger.total(), range.low, range.high].map(|energy| energy.joules() / seconds)
}

fn row(out: &mut String, what: &str, measured: f64, [watts, low, high]: [f64; 3]) -> bool {
    let holds = (low..=high).contains(&measured);
    let said = if holds { "" } else { "outside" };
    writeln!(out, "| {what} | {measured:.2} | {watts:.2} | {low:.2} to {high:.2} | {said} |").unwrap();
    holds
}

fn fit_of(name: &str, base: &str) -> String {
    let own = table(name);
    let drive = Drive::fit(&own).unwrap();
    drive.profile(name, &own, &format!("{name}.csv"), &Profile::text(base).unwrap(), base).unwrap()
}

#[test]
fn eight_of_ten_measurements_that_no_profile_was_made_from_lie_in_their_ranges() {
    let (mut rows, mut all, mut within) = (String::new(), 0, 0);
    let mut drives: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut count = |holds: bool| {
        all += 1;
        within += usize::from(holds);
    };
    for (name, base, held_out) in FITTED {
        let fitted = fit_of(name, base);
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../device/profiles/{name}.toml"));
        if std::env::var_os("JOULEFS_RENEW").is_some() {
            std::fs::write(&shipped, &fitted).unwrap();
        }
        assert_eq!(std::fs::read_to_string(shipped).unwrap(), fitted, "{name} is not the fit to its table");
        let profile = Profile::parse(&fitted, name).unwrap();
        for held_out in held_out {
            for load in &table(held_out).0 {
                let Load { bytes: Some(bytes), per_second: Some(rate), .. } = *load else { panic!("{load:?}") };
                let in_order = load.load.starts_with("sequential");
                let came = run(&profile, load.way, (bytes / 4096.0) as u64, Some(rate), 0, in_order);
                let whose = match *held_out == format!("{name}-held-out") {
                    true => format!("`{name}`"),
                    false => format!("unnamed drive, at the prices of `{name}`"),
                };
                let holds = row(&mut rows, &format!("{whose}: {}", load.load), load.watts, came);
                count(holds);
                let (of, holding) = drives.entry(whose).or_insert((0, 0));
                (*of, *holding) = (*of + 1, *holding + u32::from(holds));
            }
        }
    }
    for (name, way, blocks, depth, watts, what) in OTHERS {
        let profile = Profile::find(name).unwrap();
        let came = run(&profile, way, blocks, None, depth, what.starts_with("sequential"));
        count(row(&mut rows, &format!("`{name}`: {what}"), watts, came));
    }
    let each: Vec<String> = drives.iter().map(|(drive, (of, holding))| format!("{drive} {holding} of {of}")).collect();
    let text = format!(
        "\n{within} of {all} measurements lie in the range of the model: {}.\n\n\
         | load | measured, W | model, W | its range, W | |\n|---|---|---|---|---|\n{rows}",
        each.join(", ")
    );
    let page: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/energy-model.md");
    let old = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = old.split_once("<!-- held out -->\n").expect("the mark before the table");
    let (_, after) = rest.split_once("<!-- end -->").expect("the mark after the table");
    let new = format!("{before}<!-- held out -->\n{text}\n<!-- end -->{after}");
    let renew = std::env::var_os("JOULEFS_RENEW").is_some();
    if renew {
        std::fs::write(&page, &new).unwrap();
    }
    assert!(
        renew || new == old,
        "the table of docs/energy-model.md is old; JOULEFS_RENEW=1 rewrites it. It is now:\n{text}"
    );
    assert!(within * 10 >= all * 8, "{within} of {all}");
}
