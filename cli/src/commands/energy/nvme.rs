//! `joulefs energy nvme`: which profile fits an NVMe drive with these power states?
//!
//! Reads the drive's report; `device::energy::nvme` makes the profile.

use std::io::Read;
use std::path::{Path, PathBuf};

use device::energy::nvme::{Controller, LATENCY_LIMIT, State};
use device::energy::profile::Profile;
use device::energy::{Nanos, Power};
use serde_json::{Value, json};

use crate::table::{self, Table};
use crate::{Failure, output, size, whole};

/// Make a profile from an NVMe drive's power states.
///
/// ID-CTRL is the output of nvme id-ctrl (nvme-cli), as text or with -o json, or the 4096 bytes of nvme id-ctrl
/// --raw-binary; - is standard input. A drive reports its power states: the maximum power in each, the times to enter
/// and leave it, and sometimes its idle power. Linux lets the drive enter some of them after a time without requests;
/// these become idle states of the profile with that time, by the rule and defaults of Linux 5.13 and later.
///
/// Drives do not report transfer rates, energy per request or the power while ready but in no power state: these
/// numbers come from the base profile, which should describe the same or a similar drive. Every number that comes from
/// the report is marked; the serial number is not read.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    nvme id-ctrl /dev/nvme0 | joulefs energy nvme - --output mine.toml\n  \
    joulefs energy nvme id-ctrl.json --base micron-2550 --size 512G -o mine.toml\n  \
    joulefs energy nvme id-ctrl.txt")]
pub struct Args {
    /// Output of nvme id-ctrl, or - for standard input.
    #[arg(value_name = "ID-CTRL")]
    report: PathBuf,
    /// Base profile for all numbers that are not in the report: a shipped one or a file.
    #[arg(long, value_name = "PROFILE", default_value = "samsung-970evoplus")]
    base: String,
    /// The drive's size; default: as reported (tnvmcap). K, M, G, T are powers of 1024.
    #[arg(long, requires = "output")]
    size: Option<String>,
    /// Longest exit latency in microseconds of a state that Linux uses, as the nvme_core parameter of this name; 0:
    /// use none.
    #[arg(long, value_name = "US", default_value_t = LATENCY_LIMIT.0 / 1000)]
    default_ps_max_latency_us: u64,
    /// Write the profile here; it is named after the file.
    #[arg(short, long, value_name = "OUT.toml")]
    output: Option<PathBuf>,
}

/// Maximum length of a report.
const MOST: u64 = 16 << 20;

fn report(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().lock().take(MOST).read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|f| f.take(MOST).read_to_end(&mut bytes)),
    };
    read.map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(bytes)
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let named = |e: device::energy::nvme::NvmeError| Failure::from(format!("{}: {e}", args.report.display()));
    let controller = Controller::read(&report(&args.report)?).map_err(named)?;
    let limit = Nanos(args.default_ps_max_latency_us.saturating_mul(1000));
    let base = Profile::text(&args.base)?;
    let bytes = args.size.as_deref().map(|s| size::of("--size", s)).transpose()?;
    let out = args.output.as_deref();
    let name = match out.map(|out| out.file_stem().and_then(|s| s.to_str())) {
        Some(Some(stem)) => stem.to_owned(),
        Some(None) => return Err(Failure::usage("--output: give a file name; it becomes the profile's name")),
        None => "nvme".to_owned(),
    };
    let made = controller.profile(&name, &base, &args.base, bytes, limit).map_err(named)?;
    if let Some(out) = out {
        whole::apart("--output", out, &args.report)?;
        whole::write(out, &made.text)?;
    }
    let after = |n: usize| made.sleeps.iter().find(|s| s.state == n).map(|s| s.after);
    if as_json {
        let state = |(n, s): (usize, &State)| as_value(n, s, after(n));
        output::print(&json!({
            "model": controller.model, "firmware": controller.firmware, "bytes": controller.capacity,
            "autonomous": controller.autonomous, "base": args.base, "notes": made.notes,
            "states": controller.states.iter().enumerate().map(state).collect::<Value>(),
            "output": out,
        }));
        return Ok(());
    }
    output::line(&format!("{}, firmware {}", controller.model, controller.firmware));
    let powers = ["most", "idle"].map(|head| table::number(head).least(8));
    let times = ["to enter", "to leave"].map(|head| table::number(head).least(10));
    let columns = [table::word("state").least(6)].into_iter().chain(powers).chain(times);
    let mut table = Table::new(columns.chain([table::text("under Linux")]));
    for (n, s) in controller.states.iter().enumerate() {
        let linux = match after(n) {
            Some(after) => format!("after {}", time(after)),
            None if s.operational => "works in it".into(),
            None => "not entered".into(),
        };
        let [entry, exit] = [s.entry, s.exit].map(time);
        table.row(&[&format!("ps{n}"), &power(s.most), &power(s.idle), &entry, &exit, &linux]);
    }
    output::lines(&table.text());
    made.notes.iter().for_each(|note| output::line(&format!("note: {note}")));
    if let Some(out) = out {
        output::line(&format!("{}: written; all other numbers are those of {}", out.display(), args.base));
    }
    Ok(())
}

fn power(power: Option<Power>) -> String {
    power.map_or_else(
        || "-".into(),
        |p| if p.0 < 1_000_000 { format!("{} mW", p.0 as f64 / 1e3) } else { format!("{:.2} W", p.watts()) },
    )
}

fn time(time: Nanos) -> String {
    match time.0 {
        0 => "-".into(),
        1..1_000_000 => format!("{} us", time.0 as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{} ms", time.0 as f64 / 1e6),
        _ => format!("{} s", time.0 as f64 / 1e9),
    }
}

fn as_value(n: usize, s: &State, after: Option<Nanos>) -> Value {
    let uw = |p: Option<Power>| p.map(|p| p.0);
    json!({
        "state": n, "operational": s.operational, "most_uw": uw(s.most), "idle_uw": uw(s.idle), "active_uw": uw(s.active),
        "entry_ns": s.entry.0, "exit_ns": s.exit.0, "after_ns": after.map(|a| a.0),
    })
}
