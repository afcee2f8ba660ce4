//! `joulefs energy profiles` and `joulefs energy show`: which prices are built in, and what are their sources?

use std::collections::HashMap;

use device::energy::profile::{DeviceSpec, Profile, SHIPPED};
use device::model::disk::break_even;
use serde_json::{Value, json};
use toml_edit::{DocumentMut, Item};

use crate::table::{self, Table};
use crate::{Failure, output};

/// List the shipped profiles.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs energy profiles")]
pub struct ProfilesArgs {}

/// Print a profile's numbers, with range, source and confidence.
///
/// Nine in ten times the true number lies in the range: its own, or that of its confidence. Sizes and numbers of things
/// have none.
///
/// Confidence is one of: measured (in the named source), vendor (a vendor's statement or data sheet), simulator (a
/// simulator's default), derived (computed from measured or vendor numbers), fitted (to measured rows), assumed (no
/// source has the number).
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    joulefs energy show microdrive\n  \
    joulefs energy show ./my-phone.toml --json")]
pub struct ShowArgs {
    /// A shipped profile's name, or a profile file (with a slash in it, or ending in .toml).
    profile: String,
}

/// Lists them.
pub fn list(as_json: bool) -> Result<(), Failure> {
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
    let mut table = Table::new([table::word("").least(20), table::word("").least(6), table::text("")]).between(1);
    all.iter().for_each(|p| table.row(&[&p.name, &p.kind(), &p.title]));
    output::lines(&table.text());
    Ok(())
}

/// Shows one.
pub fn show(args: &ShowArgs, as_json: bool) -> Result<(), Failure> {
    let text = Profile::text(&args.profile)?;
    let profile = Profile::parse(&text, &args.profile)?;
    let limits: HashMap<String, (f64, f64)> = profile.numbers().iter().map(|n| (n.name.clone(), n.limits())).collect();
    if as_json {
        let mut value = serde_json::to_value(&profile).map_err(|e| e.to_string())?;
        add_ranges("", &mut value, &limits);
        output::print(&value);
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
            None => "never: standby saves no power".into(),
        };
        output::line(&format!("{:<15}stopping and spinning up again saves energy {pays}", "break-even"));
    }
    // Parsed as a document, to keep its order and digits.
    let file: DocumentMut = text.parse().map_err(|e| format!("{}: {e}", args.profile))?;
    let mut rows: Vec<[String; 4]> = Vec::new();
    numbers("", file.as_item(), &mut rows);
    let rows = rows.into_iter().map(|[name, amount, confidence, source]| {
        let (low, high) = limits.get(&name).copied().unwrap_or_default();
        let unit = amount.split_once(' ').map_or("", |(_, unit)| unit);
        let range = if is_count(unit) { String::new() } else { format!("{}..{}", short(low), short(high)) };
        [name, amount, range, confidence, source]
    });
    let columns = [table::text(""), table::number(""), table::number("range"), table::word(""), table::text("")];
    let mut table = Table::new(columns);
    rows.for_each(|row| table.cells(row));
    output::lines(&format!("\n{}", table.text()));
    Ok(())
}

/// Whether a number with this unit is a size, or a number of things, and so what it is.
fn is_count(unit: &str) -> bool {
    ["", "B", "KiB", "MiB", "GiB", "rpm"].contains(&unit)
}

/// Adds the range to every number below a value that has none of its own, in the number's unit.
fn add_ranges(name: &str, value: &mut Value, limits: &HashMap<String, (f64, f64)>) {
    let inner = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(number) if number.contains_key("confidence") => {
            let unit = number.get("unit").and_then(Value::as_str).unwrap_or_default();
            if let Some((low, high)) = limits.get(name).filter(|_| !is_count(unit)) {
                number.insert("range".into(), json!([low, high]));
            }
        }
        Value::Object(table) => table.iter_mut().for_each(|(key, value)| add_ranges(&inner(key), value, limits)),
        Value::Array(list) => {
            for (n, value) in list.iter_mut().enumerate() {
                let key = value.get("name").and_then(Value::as_str).map_or(n.to_string(), str::to_owned);
                add_ranges(&inner(&key), value, limits);
            }
        }
        _ => {}
    }
}

/// A limit with three digits.
fn short(limit: f64) -> String {
    let rounded: f64 = format!("{limit:.2e}").parse().unwrap_or(limit);
    rounded.to_string()
}

/// Every number below an item: name, value with unit, confidence, source.
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
