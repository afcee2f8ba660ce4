//! `joulefs energy fit` of a table of loads: which prices explain a drive's published watts?
//!
//! Prints the result of `sim::fit::watts`, and writes a profile with it.

use std::path::{Path, PathBuf};

use device::energy::profile::Profile;
use serde_json::{Value, json};
use sim::fit::watts::{Drive, Load, Loads, PRICES, Price};

use crate::table::{self, Table};
use crate::{Failure, output, whole};

/// The profile whose chips are taken if none is named.
const BASE: &str = "samsung-970evoplus";

fn read(path: &Path) -> Result<Loads, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Loads::parse(&text, &path.display().to_string()).map_err(|e| e.to_string())?)
}

/// A table of loads, and what is to be done with it.
pub struct Given<'a> {
    /// Its file.
    pub measured: &'a Path,
    /// Tables that are predicted.
    pub predict: &'a [PathBuf],
    /// The base profile, if one was named.
    pub profile: Option<&'a str>,
    /// Where the profile is written, if anywhere.
    pub output: Option<&'a Path>,
}

/// Runs it on the text of the table.
pub fn run(args: &Given<'_>, text: &str, as_json: bool) -> Result<(), Failure> {
    let from = args.measured.display().to_string();
    let loads = Loads::parse(text, &from).map_err(|e| e.to_string())?;
    let drive = Drive::fit(&loads).map_err(|e| e.to_string())?;
    let predicted: Vec<(String, Loads)> = (args.predict.iter())
        .map(|file| Ok::<_, Failure>((file.display().to_string(), read(file)?)))
        .collect::<Result<_, _>>()?;
    if let Some(out) = args.output {
        let base = args.profile.unwrap_or(BASE);
        let stem = |path: &Path| path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let table = args.measured.file_name().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let text = drive.profile(&stem(out), &loads, &table, &Profile::text(base)?, base);
        whole::write(out, text.map_err(|e| e.to_string())?)?;
    }
    if as_json {
        output::print(&value(&drive, &loads, &predicted));
        return Ok(());
    }
    let heads = [table::word("price").least(8), table::number("value").least(9), table::word("unit").least(6)];
    let mut prices = Table::new(heads.into_iter().chain([table::text("nine in ten")])).between(1);
    for (name, watts) in [("rest", drive.rest), ("sleep", drive.sleep)] {
        watts.iter().for_each(|watts| prices.row(&[&name, &format!("{watts:.3}"), &"W", &"measured"]));
    }
    for (name, factor, unit, price) in shown(&drive) {
        let range =
            price.range.map_or("-".into(), |(low, high)| format!("{:.3} to {:.3}", low * factor, high * factor));
        prices.row(&[&name, &format!("{:.3}", price.value * factor), &unit, &range]);
    }
    output::lines(&prices.text());
    let work = loads.0.iter().filter(|load| load.requests() > 0.0).count();
    let unchecked = match drive.prices.iter().filter(|price| price.value > 0.0).count() {
        prices if prices >= work => ": as many prices as loads of work, so nothing checks them",
        _ => "",
    };
    output::lines(&format!(
        "\n{} loads, differences of {:.1} % (root mean square){unchecked}",
        loads.0.len(),
        drive.rms
    ));
    output::lines(&format!("\n{}", compared("fitted", &drive, &loads)));
    for (file, loads) in &predicted {
        output::lines(&format!(
            "\nnot fitted to, {}:\n\n{}",
            output::plain(file),
            compared("predicted", &drive, loads)
        ));
    }
    Ok(())
}

/// The prices as people read them: name, factor, unit.
fn shown(drive: &Drive) -> [(&'static str, f64, &'static str, Price); 4] {
    let [work, request, read, write] = drive.prices;
    [
        ("work", 1.0, "W", work),
        ("request", 1e6, "uJ", request),
        ("read", 1e3, "mJ/MB", read),
        ("write", 1e3, "mJ/MB", write),
    ]
}

fn off(computed: f64, load: &Load) -> f64 {
    100.0 * (computed / load.watts - 1.0)
}

fn compared(computed: &str, drive: &Drive, loads: &Loads) -> String {
    let numbers = [("MB/s", 8), ("requests/s", 10), ("W", 7), (computed, 9), ("diff %", 6)];
    let numbers = numbers.map(|(head, least)| table::number(head).least(least));
    let mut table = Table::new([table::text("load")].into_iter().chain(numbers)).between(1);
    for load in &loads.0 {
        let Some(watts) = drive.watts(load) else { continue };
        let [rate, many] = [load.rate(), load.requests()].map(|n| format!("{n:.0}"));
        let [measured, found] = [load.watts, watts].map(|n| format!("{n:.2}"));
        table.row(&[&load.load, &rate, &many, &measured, &found, &format!("{:+.1}", off(watts, load))]);
    }
    table.text()
}

fn value(drive: &Drive, loads: &Loads, predicted: &[(String, Loads)]) -> Value {
    let micro = |watts: f64| (watts * 1e6).round() as u64;
    let list = |loads: &Loads| {
        let one = |load: &Load| {
            let watts = drive.watts(load)?;
            Some(json!({
                "load": load.load, "measured_uw": micro(load.watts), "computed_uw": micro(watts),
                "difference_percent": off(watts, load),
            }))
        };
        loads.0.iter().filter_map(one).collect::<Value>()
    };
    let price = |(name, unit): (&str, &str), price: &Price| {
        let (key, factor) = if unit == "W" { ("uw", 1e6) } else { ("pj", 1e12) };
        let range = price.range.map(|(low, high)| [low, high].map(|n| (n * factor).round() as u64));
        let per = unit.strip_prefix("J/").map_or(String::new(), |of| format!("_per_{}", of.to_lowercase()));
        let mut row = json!({ "name": name });
        row[format!("{key}{per}")] = json!((price.value * factor).round() as u64);
        row[format!("range_{key}{per}")] = json!(range);
        row
    };
    json!({
        "rest_uw": drive.rest.map(micro),
        "sleep_uw": drive.sleep.map(micro),
        "prices": PRICES.into_iter().zip(&drive.prices).map(|(name, p)| price(name, p)).collect::<Value>(),
        "rms_percent": drive.rms,
        "fitted": list(loads),
        "predicted": predicted.iter().map(|(f, l)| json!({ "file": f, "rows": list(l) })).collect::<Value>(),
    })
}
