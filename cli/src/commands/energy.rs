//! `joulefs energy`: profiles of devices, and fitting one to measurements.

use std::path::PathBuf;

use clap::Subcommand;
use device::energy::Nanos;
use device::energy::fit::{Comparison, Fit, Parameters, Quality, Rows, calibrate};
use device::energy::profile::{DeviceSpec, Profile, SHIPPED, Unit};
use device::model::disk::break_even;
use serde_json::{Value, json};
use toml_edit::{DocumentMut, Item};

use crate::{Failure, output};

/// What devices cost: list profiles, show one, fit one to measurements.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Profiles(ProfilesArgs),
    Show(ShowArgs),
    Fit(FitArgs),
}

/// List the profiles that come with joulefs.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs energy profiles")]
struct ProfilesArgs {}

/// Print every number of a profile with its source and how far it can be trusted.
///
/// Confidence is one of: measured (in the source named), vendor (a vendor's statement or data sheet), simulator
/// (the default of a simulator), derived (computed from measured or vendor's numbers), fitted (to measured
/// rows), assumed (chosen, since no source gives it).
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    joulefs energy show microdrive\n  \
    joulefs energy show ./my-phone.toml --json")]
struct ShowArgs {
    /// A shipped profile's name, or a profile file (with a slash in it, or ending in .toml).
    profile: String,
}

/// Fit a profile's prices and times to measured rows.
///
/// MEASURED.csv has one workload a line: how much it read and wrote in how many requests, and what energy that
/// took, in millijoules, for processor (cpu), storage device (storage) and the rest of the board with its memory
/// (rest), or in total. Columns: workload, mb_read, mb_written (megabytes of 1,048,576 bytes), read_requests,
/// write_requests, map_accesses (pages of the device's map it had to fetch), total, cpu, storage, rest (each a
/// number, a share of the total such as 17.91%, or empty), times and as_long_as (so many times as long as the
/// row of that name), source. Lines that begin with # are comments.
///
/// Eight parameters are fitted by least squares on the logarithms. They are printed with their standard errors,
/// and every measured number beside the one the parameters give. With --output, a profile is written: the base
/// profile with the fitted numbers in place of its own, each marked as fitted to the rows' sources. The device's
/// link gets what is left of the fitted numbers once the simulated flash has taken its own share.
///
/// Only the ratios of times are fitted. Seconds come from the anchor of the base profile, the time of a random
/// read of 4 KB, or from --anchor; energies of requests do not depend on it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    joulefs energy fit profiles/calibration/kirin9000.csv\n  \
    joulefs energy fit profiles/calibration/kirin9000.csv \\\n      \
        --predict profiles/calibration/kirin9000-held-out.csv\n  \
    joulefs energy fit my-phone.csv --profile kirin9000-ufs31 --anchor 120us -o my-phone.toml")]
struct FitArgs {
    /// The measured rows.
    #[arg(value_name = "MEASURED.csv")]
    measured: PathBuf,
    /// Rows that are only predicted, with what was measured beside; may be given again.
    #[arg(long, value_name = "HELD-OUT.csv")]
    predict: Vec<PathBuf>,
    /// The profile to begin with: a shipped one or a file. What the fit does not determine stays as it is there.
    #[arg(long, value_name = "PROFILE", default_value = "kirin9000-ufs31")]
    profile: String,
    /// How long a random read of 4 KB takes (ns, us, ms, s), if not as long as the base profile says.
    #[arg(long, value_name = "TIME", value_parser = time)]
    anchor: Option<Nanos>,
    /// Write the fitted profile here.
    #[arg(short, long, value_name = "OUT.toml")]
    output: Option<PathBuf>,
}

fn time(text: &str) -> Result<Nanos, String> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or("a time needs a unit: 250us")?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.trim().parse().map_err(|_| format!("{:?} is no number", number.trim()))?;
    let (_, factor) = Nanos::UNITS.iter().find(|(name, _)| *name == unit).ok_or("units are ns, us, ms, s")?;
    let ns = number * factor;
    if (1.0..1e15).contains(&ns) { Ok(Nanos::from_smallest(ns)) } else { Err("out of range".into()) }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    match &args.command {
        Command::Profiles(_) => profiles(as_json),
        Command::Show(a) => show(a, as_json),
        Command::Fit(a) => fit(a, as_json),
    }
}

fn profiles(as_json: bool) -> Result<(), Failure> {
    let all = SHIPPED.iter().map(|(name, text)| Profile::parse(text, name)).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|e| e.to_string())?;
    if as_json {
        let one = |p: &Profile| {
            json!({
                "name": p.name, "title": p.title, "kind": p.kind(),
                "calibrated_on": p.calibrated_on, "predicts": p.predicts,
            })
        };
        output::print(&all.iter().map(one).collect::<Value>());
        return Ok(());
    }
    for p in &all {
        output::line(&format!("{:<20} {:<6} {}", p.name, p.kind(), p.title));
    }
    Ok(())
}

fn show(args: &ShowArgs, as_json: bool) -> Result<(), Failure> {
    let text = Profile::text(&args.profile).map_err(|e| e.to_string())?;
    let profile = Profile::parse(&text, &args.profile).map_err(|e| e.to_string())?;
    if as_json {
        output::print(&serde_json::to_value(&profile).map_err(|e| e.to_string())?);
        return Ok(());
    }
    output::line(&format!("{}: {}", profile.name, profile.title));
    for (what, lines) in [("calibrated on", &profile.calibrated_on), ("predicts", &profile.predicts)] {
        for line in lines {
            output::line(&format!("{what:<15}{line}"));
        }
    }
    if let Some(anchor) = &profile.anchor {
        output::line(&format!("{:<15}time of {}; other times are in proportion to it", "anchor", anchor.what));
    }
    if let DeviceSpec::Disk(disk) = &profile.device {
        let pays = match break_even(disk) {
            Some(t) => format!("after {:.2} s without a request", t.duration().as_secs_f64()),
            None => "never: standing saves no power".into(),
        };
        output::line(&format!("{:<15}standing still and spinning up again pays {pays}", "break-even"));
    }
    // The file itself, for its order and its digits.
    let file: DocumentMut = text.parse().map_err(|e| format!("{}: {e}", args.profile))?;
    let mut rows = Vec::new();
    numbers("", file.as_item(), &mut rows);
    let width = |i: usize| rows.iter().map(|r: &[String; 4]| r[i].chars().count()).max().unwrap_or(0);
    let [name, number, trust] = [0, 1, 2].map(width);
    output::line("");
    for [n, v, t, source] in &rows {
        output::line(&format!("{n:<name$}  {v:>number$}  {t:<trust$}  {source}"));
    }
    Ok(())
}

/// Every number below an item: its name, itself with its unit, confidence, source.
fn numbers(name: &str, item: &Item, rows: &mut Vec<[String; 4]>) {
    let inner = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    if let (Some(number), Some(confidence)) = (item.get("value"), item.get("confidence")) {
        let text = |i: Option<&Item>| i.and_then(Item::as_str).unwrap_or_default().to_owned();
        let amount = format!("{} {}", number.to_string().trim(), text(item.get("unit")));
        rows.push([name.into(), amount.trim().into(), text(Some(confidence)), text(item.get("source"))]);
    } else if let Some(table) = item.as_table_like() {
        table.iter().for_each(|(key, item)| numbers(&inner(key), item, rows));
    } else if let Some(array) = item.as_array() {
        let items = array.iter().map(|v| Item::Value(v.clone()));
        items.enumerate().for_each(|(i, item)| numbers(&inner(&i.to_string()), &item, rows));
    } else if let Some(tables) = item.as_array_of_tables() {
        for (i, table) in tables.iter().enumerate() {
            let key = table.get("name").and_then(Item::as_str).map_or(i.to_string(), str::to_owned);
            numbers(&inner(&key), &Item::Table(table.clone()), rows);
        }
    }
}

fn fit(args: &FitArgs, as_json: bool) -> Result<(), Failure> {
    let rows = Rows::read(&args.measured).map_err(|e| e.to_string())?;
    let fit = Fit::new(&rows).map_err(|e| e.to_string())?;
    let mut predicted = Vec::new();
    for file in &args.predict {
        let held_out = Rows::read(file).map_err(|e| e.to_string())?;
        predicted.push((file.display().to_string(), fit.predict(&held_out)));
    }
    if let Some(out) = &args.output {
        let base = Profile::text(&args.profile).map_err(|e| e.to_string())?;
        let profile = calibrate(&base, &args.profile, &fit.parameters, &rows.sources(), args.anchor);
        std::fs::write(out, profile.map_err(|e| e.to_string())?).map_err(|e| format!("{}: {e}", out.display()))?;
    }
    if as_json {
        output::print(&as_value(&fit, &predicted));
        return Ok(());
    }
    output::line(&format!("{:<16} {:>10} {:<6} {:>6}", "parameter", "value", "unit", "+-%"));
    for (i, (p, v)) in Parameters::ALL.iter().zip(fit.parameters.0).enumerate() {
        let error = fit.errors.map_or("-".into(), |e| format!("{:.1}", e[i]));
        output::line(&format!("{:<16} {v:>10.5} {:<6} {error:>6}  {}", p.name, p.unit, p.meaning));
    }
    output::line(&format!(
        "\n{} numbers, {} parameters, differences of {:.1} % (root mean square)",
        fit.numbers,
        Parameters::ALL.len(),
        fit.rms
    ));
    comparisons("fitted", &fit.comparisons);
    for (file, list) in &predicted {
        output::line(&format!("\nnot fitted to, {file}:"));
        comparisons("predicted", list);
    }
    Ok(())
}

fn comparisons(computed: &str, list: &[Comparison]) {
    let width = list.iter().map(|c| c.workload.chars().count()).max().unwrap_or(0).max(8);
    output::line(&format!(
        "\n{:<width$}  {:<11} {:>10} {computed:>10} {:>7}",
        "workload", "number", "measured", "diff %"
    ));
    for c in list {
        let number = c.quality.text();
        let percent = c.percent();
        output::line(&format!(
            "{:<width$}  {number:<11} {:>10.3} {:>10.3} {percent:>+7.1}",
            c.workload, c.measured, c.computed
        ));
    }
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
