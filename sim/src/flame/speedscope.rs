//! How is a flame graph written for speedscope? Frames are listed once; each profile has stacks of frame indices with
//! weights.
//!
//! The schema describes the format (<https://www.speedscope.app/file-format-schema.json>). It has no energy unit:
//! weights are picojoules with the unit `none`. They are integers here; speedscope keeps 53 bits, which is exact up to
//! 9 kJ.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::Flame;

/// Writes named profiles into one file. They are streamed stack by stack, since there may be millions.
///
/// # Errors
/// Errors of `out`.
pub fn write(name: &str, profiles: &[(String, &Flame)], out: &mut dyn Write) -> io::Result<()> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut frames: Vec<&str> = Vec::new();
    for (text, _) in profiles
        .iter()
        .flat_map(|(_, flame)| flame.stacks())
        .flat_map(|(stack, e)| stack.into_iter().map(move |t| (t, e)))
    {
        numbers.entry(text).or_insert_with(|| {
            frames.push(text);
            frames.len() - 1
        });
    }
    let exporter = concat!("joulefs@", env!("CARGO_PKG_VERSION"));
    write!(out, "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",")?;
    write!(out, "\"exporter\":{},\"name\":{},\"activeProfileIndex\":0,", json!(exporter), json!(name))?;
    write!(out, "\"shared\":{{\"frames\":[")?;
    comma(out, frames.iter().map(|text| json!({ "name": text }).to_string()))?;
    write!(out, "]}},\"profiles\":[")?;
    for (n, (name, flame)) in profiles.iter().enumerate() {
        let after = if n > 0 { ",\n" } else { "\n" };
        let (name, total) = (json!(name), flame.total().0);
        write!(
            out,
            "{after}{{\"type\":\"sampled\",\"name\":{name},\"unit\":\"none\",\"startValue\":0,\"endValue\":{total},"
        )?;
        write!(out, "\"samples\":[")?;
        let number = |text: &&str| Value::from(numbers[text]);
        comma(out, flame.stacks().map(|(stack, _)| stack.iter().map(number).collect::<Value>().to_string()))?;
        write!(out, "],\n\"weights\":[")?;
        comma(out, flame.stacks().map(|(_, energy)| energy.0.to_string()))?;
        write!(out, "]}}")?;
    }
    writeln!(out, "]}}")
}

/// Writes values separated by commas.
fn comma(out: &mut dyn Write, values: impl Iterator<Item = String>) -> io::Result<()> {
    for (n, value) in values.enumerate() {
        write!(out, "{}{value}", if n > 0 { "," } else { "" })?;
    }
    Ok(())
}
