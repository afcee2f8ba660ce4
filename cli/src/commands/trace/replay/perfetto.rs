//! A replay's joules with the recording, for the Perfetto viewer.
//!
//! Tracks of watts by component and of joules by process, over the time of the recording. For a Perfetto trace they
//! follow its own packets, so that they are shown above the events of kernel and programs; for any other recording they
//! stand alone.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use device::energy::Component;
use sim::replay::{OnDevice, Outcome};
use trace::write::perfetto::Counters;
use trace::{Format, Input};

use crate::{Failure, output, whole};

/// Maximum number of process tracks, the costliest first.
const PROCESSES: usize = 20;

/// Writes a file for the Perfetto viewer. `on` is what the outcome has of a block device.
pub fn write(file: &Path, recording: &Path, outcome: &Outcome, on: &OnDevice) -> Result<(), Failure> {
    let named = |e: io::Error| Failure::from(format!("--perfetto {}: {e}", file.display()));
    if !whole::is_plain(file) {
        let open = File::options().write(true).open(file).map_err(named)?;
        return to(BufWriter::new(open), recording, outcome, on)?.map_err(named);
    }
    let (part, open) = whole::Part::create(file, true).map_err(named)?;
    to(BufWriter::new(open), recording, outcome, on)?.map_err(named)?;
    part.finish().map_err(named)
}

/// The outer error is the recording's.
fn to(mut out: impl Write, recording: &Path, outcome: &Outcome, on: &OnDevice) -> Result<io::Result<()>, Failure> {
    if on.format == Format::Perfetto {
        let mut original = Input::open(recording).map_err(|e| e.to_string())?;
        loop {
            let bytes = original.peek(1 << 16).map_err(|e| e.to_string())?;
            if bytes.is_empty() {
                break;
            }
            if let Err(e) = out.write_all(bytes) {
                return Ok(Err(e));
            }
            let n = bytes.len();
            original.take(n);
        }
    }
    Ok(counters(out, outcome, on.began))
}

/// `began` is the start of the replay in nanoseconds of the recording's clock.
fn counters(out: impl Write, outcome: &Outcome, began: u64) -> io::Result<()> {
    let mut counters = Counters::new(out);
    let (looks, profile) = (outcome.timeline.looks(), &outcome.profile.name);
    let group = counters.group(&format!("joulefs: watts on {profile}"))?;
    for (n, component) in Component::ALL.into_iter().enumerate() {
        let track = counters.track(group, component.text(), "W")?;
        for pair in looks.windows(2) {
            let [from, to] = [&pair[0], &pair[1]];
            let seconds = to.at.saturating_sub(from.at) as f64 / 1e9;
            if seconds > 0.0 {
                let watts = (to.components[n] - from.components[n]).joules() / seconds;
                counters.value(track, began + from.at, watts)?;
            }
        }
        if let Some(last) = looks.last() {
            counters.value(track, began + last.at, 0.0)?;
        }
    }
    let Some(end) = looks.last() else { return counters.finish().map(drop) };
    let mut owners: Vec<_> = end.owners.iter().filter(|(_, energy)| energy.0 > 0).collect();
    owners.sort_by_key(|(owner, energy)| (std::cmp::Reverse(**energy), **owner));
    let group = counters.group(&format!("joulefs: joules by process on {profile}"))?;
    for (owner, _) in owners.into_iter().take(PROCESSES) {
        let track = counters.track(group, &output::plain(&outcome.owner(*owner)), "J")?;
        let mut before = None;
        for look in looks {
            let energy = look.owners.get(owner).copied().unwrap_or_default();
            // A counter keeps its value until the next sample.
            if before.replace(energy) != Some(energy) {
                counters.value(track, began + look.at, energy.joules())?;
            }
        }
    }
    counters.finish().map(drop)
}
