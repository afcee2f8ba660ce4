//! `joulefs energy fit`: which prices and times explain measured rows?
//!
//! Reads rows, prints the result of `sim::fit`, and writes a profile with it.

use std::path::PathBuf;

use device::energy::Nanos;
use device::energy::profile::{Profile, Unit};
use serde_json::{Value, json};
use sim::fit::watts::Loads;
use sim::fit::{Comparison, Fit, Parameters, Quality, Rows, calibrate};

use super::fit_watts;
use crate::table::{self, Table};
use crate::{Failure, output, whole};

/// Fit a profile to measurements.
///
/// MEASURED.csv has one workload per line: the amount read and written, the number of requests, and the energy in
/// millijoules of the processor (cpu), the storage device (storage) and the rest of the board with its memory (rest),
/// or in total. Columns: workload, mb_read, mb_written (megabytes of 1,048,576 bytes), read_requests, write_requests,
/// map_accesses (pages of its map that the device fetched), total, cpu, storage, rest (each a number, a share of the
/// total such as 17.91%, or empty), times and as_long_as (the run took `times` times as long as the row named in
/// as_long_as), source. Lines that begin with # are comments. joulefs energy diff --rows writes such a file from meter
/// recordings.
///
/// Eight parameters are fitted by least squares on the logarithms. They are printed with their standard errors, next
/// to a comparison of all measured and predicted numbers. --output writes a profile: the base profile with the fitted
/// numbers, each marked as fitted to the sources of the rows. The share of the simulated flash is subtracted from the
/// fitted numbers, and the rest is assigned to the device's link.
///
/// A table with the column watts is of a drive alone, of which a review or paper gives the power at known loads. Columns:
/// load, way (idle, sleep, read, write), bytes (of a request), per_second (requests), watts, source. Fitted are the watts
/// of being at work, and the prices of a request, of a megabyte read and of one written.
///
/// Only ratios of times are fitted. Absolute times come from the time of a random read of 4 KB: the base profile's
/// anchor, or --anchor. Energies of requests do not depend on it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    joulefs energy fit device/profiles/calibration/kirin9000.csv\n  \
    joulefs energy fit device/profiles/calibration/kirin9000.csv \\\n      \
        --predict device/profiles/calibration/kirin9000-held-out.csv\n  \
    joulefs energy fit device/profiles/calibration/samsung-980pro.csv -o mine.toml\n  \
    joulefs energy fit my-phone.csv --profile kirin9000-ufs31 --anchor 120us -o my-phone.toml")]
pub struct Args {
    /// The measured rows.
    #[arg(value_name = "MEASURED.csv")]
    measured: PathBuf,
    /// Rows that are predicted but not fitted, and compared with the measurement; may be given several times.
    #[arg(long, value_name = "HELD-OUT.csv")]
    predict: Vec<PathBuf>,
    /// The base profile: a shipped one or a file; default: kirin9000-ufs31, of a table of loads samsung-970evoplus.
    /// Numbers that the fit does not determine are kept.
    #[arg(long, value_name = "PROFILE", requires = "output")]
    profile: Option<String>,
    /// Time of a random read of 4 KB (ns, us, ms, s); default: that of the base profile.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "output")]
    anchor: Option<Nanos>,
    /// Write the fitted profile here.
    #[arg(short, long, value_name = "OUT.toml")]
    output: Option<PathBuf>,
}

fn time(text: &str) -> Result<Nanos, String> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or("a time needs a unit: 250us")?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.trim().parse().map_err(|_| format!("{:?} is not a number", number.trim()))?;
    let (_, factor) = Nanos::UNITS.iter().find(|(name, _)| *name == unit).ok_or("units are ns, us, ms, s")?;
    let ns = number * factor;
    if (1.0..1e15).contains(&ns) { Ok(Nanos::from_smallest(ns)) } else { Err("out of range".into()) }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let text = std::fs::read_to_string(&args.measured).map_err(|e| format!("{}: {e}", args.measured.display()))?;
    if Loads::is_one(&text) {
        if args.anchor.is_some() {
            return Err(Failure::usage("--anchor: a table of loads has its rates in seconds; leave it out"));
        }
        let Args { measured, predict, profile, output, .. } = args;
        let given = fit_watts::Given { measured, predict, profile: profile.as_deref(), output: output.as_deref() };
        return fit_watts::run(&given, &text, as_json);
    }
    let rows = Rows::parse(&text, &args.measured.display().to_string()).map_err(|e| e.to_string())?;
    let fit = Fit::new(&rows).map_err(|e| e.to_string())?;
    let mut predicted = Vec::new();
    for file in &args.predict {
        let held_out = Rows::read(file).map_err(|e| e.to_string())?;
        predicted.push((file.display().to_string(), fit.predict(&held_out)));
    }
    if let Some(out) = &args.output {
        let base = args.profile.as_deref().unwrap_or("kirin9000-ufs31");
        let profile = calibrate(&Profile::text(base)?, base, &fit.parameters, &rows.sources(), args.anchor);
        whole::write(out, profile.map_err(|e| e.to_string())?)?;
    }
    if as_json {
        output::print(&as_value(&fit, &predicted));
        return Ok(());
    }
    let columns = [table::word("parameter").least(16), table::number("value").least(10), table::word("unit").least(6)];
    let mut table = Table::new(columns.into_iter().chain([table::number("+-%").least(6), table::text("")])).between(1);
    for (i, (p, v)) in Parameters::ALL.iter().zip(fit.parameters.0).enumerate() {
        let error = fit.errors.map_or("-".into(), |e| format!("{:.1}", e[i]));
        table.row(&[&p.name, &format!("{v:.5}"), &p.unit, &error, &format!(" {}", p.meaning)]);
    }
    output::lines(&table.text());
    output::lines(&format!(
        "\n{} numbers, {} parameters, differences of {:.1} % (root mean square)",
        fit.numbers,
        Parameters::ALL.len(),
        fit.rms
    ));
    comparisons("fitted", &fit.comparisons);
    for (file, list) in &predicted {
        output::lines(&format!("\nnot fitted to, {}:", output::plain(file)));
        comparisons("predicted", list);
    }
    Ok(())
}

fn comparisons(computed: &str, list: &[Comparison]) {
    let names = [table::text("workload"), table::word("number").least(11)];
    let numbers = [("measured", 9), (computed, 9), ("diff %", 6)].map(|(head, least)| table::number(head).least(least));
    let mut table = Table::new(names.into_iter().chain(numbers));
    for c in list {
        let [measured, computed] = [c.measured, c.computed].map(|n| format!("{n:.3}"));
        table.row(&[&c.workload, &c.quality.text(), &measured, &computed, &format!("{:+.1}", c.percent())]);
    }
    output::lines(&format!("\n{}", table.text()));
}

fn as_value(fit: &Fit, predicted: &[(String, Vec<Comparison>)]) -> Value {
    let list = |l: &[Comparison]| l.iter().map(comparison).collect::<Value>();
    let parameter = |(i, v): (usize, &f64)| {
        let p = &Parameters::ALL[i];
        let error = fit.errors.map(|e| e[i]);
        json!({ "name": p.name, "value": v, "unit": p.unit, "meaning": p.meaning, "error_percent": error })
    };
    json!({
        "parameters": fit.parameters.0.iter().enumerate().map(parameter).collect::<Value>(),
        "numbers": fit.numbers,
        "rms_percent": fit.rms,
        "fitted": list(&fit.comparisons),
        "predicted": predicted.iter().map(|(f, l)| json!({ "file": f, "rows": list(l) })).collect::<Value>(),
    })
}

fn comparison(c: &Comparison) -> Value {
    let (number, unit) = match c.quality {
        Quality::Cpu => ("cpu", "mJ"),
        Quality::Storage => ("storage", "mJ"),
        Quality::Rest => ("rest", "mJ"),
        Quality::Total => ("total", "mJ"),
        Quality::Times => ("time", "ratio"),
    };
    json!({
        "workload": c.workload, "number": number, "unit": unit,
        "measured": c.measured, "computed": c.computed, "difference_percent": c.percent(),
    })
}
