//! `joulefs energy TRACE`: what does a block device's recording cost, by a price table and by simulation?

use std::path::PathBuf;
use std::process::ExitCode;

use device::energy::profile::Profile;
use device::energy::{Component, Energy, Operation};
use serde_json::{Value, json};
use sim::prices::{Priced, Prices, estimate, shares};
use sim::replay::{Error, devices, notes, opening};
use sim::traces::{ReplayError, Speed, blocks};
use trace::replay::blocks::How;

use crate::session::SessionArgs;
use crate::table::{self, Table};
use crate::{Failure, joules, of_devices, output, recorded};

/// The recording and how its cost is found.
#[derive(clap::Args)]
pub struct OfTrace {
    /// A recording of a block device, in any format of `joulefs trace`.
    #[arg(value_name = "TRACE")]
    file: Option<PathBuf>,
    /// The device: the name of a shipped profile, or the path of a profile file.
    #[arg(long, short, default_value = "kirin9000-ufs31")]
    profile: String,
    /// Prices of file operations in microjoules per KB: a TOML file with read_sequential, read_random,
    /// write_sequential, write_random and source; default: their cost on JouleFS on this device.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// The recorded device, by number, e.g. 8,0, or by name; default: the one that moved most data, ignoring devices
    /// whose requests were also recorded on a lower device.
    #[arg(long, value_name = "DEV")]
    of: Option<String>,
    /// The whole device holds data at the start.
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    session: SessionArgs,
}

impl OfTrace {
    /// True if a recording was given.
    pub fn is_given(&self) -> bool {
        self.file.is_some()
    }
}

/// Runs it.
pub fn run(args: &OfTrace, as_json: bool) -> Result<ExitCode, Failure> {
    let file = args.file.as_ref().ok_or_else(|| Failure::usage("no recording given; see joulefs energy --help"))?;
    opening::again(file)?;
    let profile = Profile::find(&args.profile)?;
    let prices = match &args.prices {
        Some(table) => Prices::read(table)?,
        None => Prices::simulated(&profile).map_err(|e| e.to_string())?,
    };
    let options = blocks::Options { of: None, blocks: None, full: args.full, speed: Speed::Virtual };
    let part = args.session.part()?;
    let planned = devices::planned(file, &[], &part, args.of.as_deref(), options, &recorded::Bars)?;
    let (plan, source) = planned.map_err(|e| match (&e, &args.of) {
        (ReplayError::NotRecorded { .. }, Some(of)) => Failure::Usage(format!("--of {of}: {}: {e}", file.display())),
        (ReplayError::Empty(_), _) => {
            let empty = Error::Failed(format!("{}: {e}", file.display()));
            opening::wrong_before_the_first(file, &part, empty).into()
        }
        _ => format!("{}: {e}", file.display()).into(),
    })?;
    let (mut requests, length) = source.open()?;
    let (bar, moved) = recorded::bar(length, "pricing");
    let ((read, written), _) = shares(&mut requests, plan.of, moved);
    bar.finish_and_clear();
    let (mut requests, _) = source.open()?;
    let (bar, moved) = recorded::bar(length, "simulating");
    let run = blocks::run(&mut requests, &profile, &plan, Speed::Virtual, How::RECORDED, |_, _, _| {}, moved);
    let run = run.map_err(|e| e.to_string())?;
    bar.finish_and_clear();

    let priced = estimate(&read, &written, &prices);
    let by_table: f64 = priced.iter().map(|p| p.joules).sum();
    let idle = run.ledger.operation(Operation::Idle).energy;
    let simulated = run.ledger.total() - idle;
    let difference = by_table - simulated.joules();
    let percent = difference * 100.0 / simulated.joules().max(f64::MIN_POSITIVE);
    let timing = requests.events().timing();
    let left_out = requests.left_out();
    let left_out = if left_out.iter().any(|l| l.device == plan.of) { Vec::new() } else { left_out };
    if as_json {
        output::print(&json!({
            "profile": profile.name,
            "device": plan.of.to_string(),
            "requests": run.done.requests,
            "recorded_ns": run.done.span_ns,
            "cleared": notes::of_cleared(&requests),
            "timing": json!(timing),
            "not_counted": of_devices::json(&left_out),
            "by_table": {
                "kinds": priced.iter().map(kind).collect::<Value>(),
                "pj": Energy::from_joules(by_table),
                "prices": of_table(&prices),
                "random_reads_of_requests": read.random_of_runs(),
                "random_writes_of_requests": written.random_of_runs(),
                "random_reads_of_bytes": read.random_of_bytes(),
                "random_writes_of_bytes": written.random_of_bytes(),
            },
            "by_simulation": {
                "pj": simulated.0,
                "idle_pj": idle.0,
                "components_with_idle_pj": Component::ALL
                    .iter()
                    .map(|c| (c.text().to_lowercase(), json!(run.ledger.component(*c).0)))
                    .collect::<serde_json::Map<_, _>>(),
            },
            "difference_pj": joules::picojoules(difference),
            "difference_percent": percent,
            "damage": run.damage.as_ref().map(ToString::to_string),
        }));
        return Ok(recorded::end(run.damage.as_ref(), true));
    }
    let cleared = notes::of_cleared(&requests).into_iter().chain(notes::of_timing(&timing));
    let cleared = cleared.chain(notes::of_left_out(&left_out));
    let cleared: String = cleared.map(|what| format!("; {what}")).collect();
    output::lines(&format!(
        "{}: {} requests of device {} in {} on {}{}\n\nby the table, as in Mohan et al.: {}",
        output::plain(&file.display().to_string()),
        run.done.requests,
        plan.of,
        joules::time(run.done.span_ns),
        profile.name,
        output::plain(&cleared),
        output::plain(&prices.source.to_string())
    ));
    output::lines(&table(&priced, by_table));
    output::lines("\nby simulation of every request:");
    let operations = [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard];
    let mut table = priced_table(["operation", "requests", "", "", "energy"]);
    for operation in operations.into_iter().filter(|o| run.ledger.operation(*o).operations > 0) {
        let spent = run.ledger.operation(operation);
        let name = format!("{operation:?}").to_lowercase();
        table.row(&[&name, &spent.operations, &"", &"", &spent.energy]);
    }
    table.row(&[&"all", &"", &"", &"", &simulated]);
    output::lines(&table.text());
    if idle > Energy::ZERO {
        output::line(&format!("and {idle} while idle, which the table does not have"));
    }
    output::lines(&format!("\nthe table differs by {difference:+.2} J, {percent:+.1} % of the simulation"));
    Ok(recorded::end(run.damage.as_ref(), false))
}

fn kind(p: &Priced) -> Value {
    json!({
        "kind": p.kind, "runs": p.runs, "bytes": p.bytes, "pj_per_kib": per_kib(p.uj_per_kb),
        "pj": Energy::from_joules(p.joules),
    })
}

fn of_table(p: &Prices) -> Value {
    json!({
        "read_sequential_pj_per_kib": per_kib(p.read_sequential),
        "read_random_pj_per_kib": per_kib(p.read_random),
        "write_sequential_pj_per_kib": per_kib(p.write_sequential),
        "write_random_pj_per_kib": per_kib(p.write_random),
        "source": p.source,
    })
}

/// Microjoules for a KiB, as picojoules.
fn per_kib(price: f64) -> Energy {
    Energy::from_joules(price / 1e6)
}

fn table(priced: &[Priced], all: f64) -> String {
    let mut table = priced_table(["kind", "requests", "bytes", "uJ/KB", "energy"]);
    for p in priced {
        let energy = Energy((p.joules * 1e12) as u64);
        table.row(&[&p.kind, &p.runs, &output::bytes(p.bytes), &format!("{:.1}", p.uj_per_kb), &energy]);
    }
    table.row(&[&"all", &"", &"", &"", &Energy((all * 1e12) as u64)]);
    table.text()
}

/// Both tables have the same layout, for comparison.
fn priced_table([name, rest @ ..]: [&str; 5]) -> Table {
    let numbers = rest.into_iter().zip([9, 12, 10, 12]).map(|(head, least)| table::number(head).least(least));
    Table::new([table::word(name).least(20)].into_iter().chain(numbers)).between(1)
}
