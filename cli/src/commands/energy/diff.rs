//! `joulefs energy diff`: how do measured joules divide into components?
//!
//! Reads the plan and its recordings, and prints the result of `sim::differential`.

use std::path::PathBuf;
use unicode_width::UnicodeWidthStr;

use serde_json::{Value, json};
use sim::differential::{Answer, Number, Per, Plan};

use crate::table::{self, Table};
use crate::{Failure, joules, output, progress, whole};

const EXAMPLES: &str = r#"PLAN.toml:
  of = "memory"                     # the run to divide; default: the last one
  [[component]]
  name = "screen"                   # per = "second" (a power), "operation", "byte" or "run"
  [[component]]
  name = "cpu and memory"
  fit = "cpu"                       # its column in --rows: cpu, storage or rest
  [[run]]
  name = "idle"
  active = ["screen"]
  recording = ["idle-1.csv", { file = "idle-2.csv", from = 2.0, to = 62.0, channel = "main" }]
  [[run]]
  name = "memory"
  active = ["screen", "cpu and memory"]
  joules = [75.1, 74.2, 75.9]       # numbers in place of recordings
  seconds = 60                      # or one per repeat

Examples:
  joulefs energy diff phone.toml
  joulefs energy diff phone.toml --json
  joulefs energy diff phone.toml --rows phone.csv && joulefs energy fit phone.csv -o my-phone.toml"#;

/// Divide measured energy among components.
///
/// A meter in a device's power supply measures all components together. Measure the same work several times and add
/// one component at a time: idle with the screen on; writing to memory (a tmpfs); writing over the network; writing to
/// flash. The difference between two runs is the energy of the added component (differential analysis, Mohan
/// HotStorage'17). Each run is one equation; least squares solves all of them together. Intervals are 95 % intervals
/// from the spread of each run's repeats: measure each run at least three times.
///
/// Recordings are the output of a meter's program: Monsoon (PyMonsoon's CSV), the power rails of a Perfetto trace,
/// joulefs energy measure; gzip and zstd are unpacked. `from` and `to` are seconds after the first reading; `channel`
/// names one channel, or several to add up, and can be set at the top of the plan for all runs; `volts` is for a
/// Monsoon recording without voltage. Runs can have `operations` and `bytes`, and, if they were not repeated,
/// `joules_error`, the standard error of the measurement.
///
/// --rows writes the input of joulefs energy fit: one line for each run that has the I/O of a device (workload = {
/// mb_read = 0, mb_written = 100, read_requests = 0, write_requests = 25600, source = "my meter" }). Energy fit needs
/// at least eight measured numbers, one per parameter: put several workloads into one file.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The plan: runs, components and measurements.
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// Write the runs as rows for joulefs energy fit.
    #[arg(long, value_name = "OUT.csv")]
    rows: Option<PathBuf>,
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let bar = progress::bytes(0, "reading");
    let plan = Plan::read(&args.plan, |path, consumed| {
        if consumed == 0 {
            bar.set_message(path.display().to_string());
            bar.set_length(std::fs::metadata(path).map_or(0, |m| m.len()));
        }
        bar.set_position(consumed);
        progress::show_if_slow(&bar);
    });
    bar.finish_and_clear();
    let plan = plan.map_err(|e| e.to_string())?;
    let answer = plan.solve().map_err(|e| format!("{}: {e}", args.plan.display()))?;
    if let Some(out) = &args.rows {
        let rows = plan.rows(&answer).map_err(|e| format!("{}: {e}", args.plan.display()))?;
        whole::write(out, rows)?;
    }
    if as_json {
        output::print(&as_value(&plan, &answer)?);
    } else {
        people(&plan, &answer);
    }
    Ok(())
}

fn people(plan: &Plan, answer: &Answer) {
    if !plan.title.is_empty() {
        output::lines(&format!("{}\n", output::plain(&plan.title)));
    }
    // Both tables have the same width.
    let names = answer.parts.iter().map(|p| p.name.width());
    let width = names.chain(answer.runs.iter().map(|r| r.name.width())).max().unwrap_or(0).max(9);
    output::lines(&format!("of {} ({} J):\n", output::plain(&answer.of), with_bar(&answer.total, 3)));
    let numbers = [table::number("J").least(22), table::number("%").least(18)];
    let columns = [table::text("component").least(width)].into_iter().chain(numbers);
    let mut table = Table::new(columns.chain([table::text("price")]));
    for p in &answer.parts {
        let (joules, percent) = (with_bar(&p.joules, 3), with_bar(&p.percent, 2));
        table.row(&[&p.name, &joules, &percent, &format!("{} {}", exact(&p.price), p.per.unit())]);
    }
    output::lines(&table.text());
    let numbers = [("repeats", 7), ("measured J", 22), ("computed J", 12), ("residual J", 12)];
    let numbers = numbers.map(|(head, least)| table::number(head).least(least));
    let columns = [table::text("run").least(width)].into_iter().chain(numbers);
    let mut table = Table::new(columns.chain([table::text("")]));
    for r in &answer.runs {
        let mark = if r.is_contradicted() { "larger than the spread of the repeats" } else { "" };
        let (measured, computed) = (with_bar(&r.measured, 3), format!("{:.3}", r.computed));
        table.row(&[&r.name, &r.repeats, &measured, &computed, &residual(r.residual()), &mark]);
    }
    output::lines(&format!("\n{}", table.text()));
    output::lines("\n+- is the half of a 95 % interval");
    if answer.parts.iter().any(|p| p.percent.bar.is_none()) {
        let once: Vec<_> = answer.runs.iter().filter(|r| r.measured.bar.is_none()).map(|r| r.name.as_str()).collect();
        output::line(&format!("no +-: measured only once, so the error is unknown: {}", once.join(", ")));
    }
    for note in &plan.notes {
        output::line(note);
    }
}

fn with_bar(n: &Number, places: usize) -> String {
    match n.bar {
        Some(bar) => format!("{:.places$} +- {bar:.places$}", n.value),
        None => format!("{:.places$}", n.value),
    }
}

/// To four significant figures.
fn exact(n: &Number) -> String {
    let number =
        |v: f64| if v == 0.0 || (1e-3..1e5).contains(&v.abs()) { format!("{v:.4}") } else { format!("{v:.3e}") };
    match n.bar {
        Some(bar) => format!("{} +- {}", number(n.value), number(bar)),
        None => number(n.value),
    }
}

fn residual(joules: f64) -> String {
    // A value that rounds to zero gets no sign.
    if joules.abs() < 5e-4 { "0.000".into() } else { format!("{joules:+.3}") }
}

/// A number with its half interval, as whole multiples of a smaller unit.
fn scaled(n: &Number, factor: f64) -> Value {
    let whole = |x: f64| (x * factor).round() as i64;
    json!({ "value": whole(n.value), "bar": n.bar.map(whole) })
}

fn pj(joules: &Number) -> Value {
    scaled(joules, 1e12)
}

fn as_value(plan: &Plan, answer: &Answer) -> Result<Value, Failure> {
    let run = |r: &sim::differential::RunFit| {
        json!({
            "name": r.name, "repeats": r.repeats, "measured_pj": pj(&r.measured),
            "computed_pj": joules::picojoules(r.computed), "residual_pj": joules::picojoules(r.residual()),
            "contradicted": r.is_contradicted(),
            "components_pj": r.parts.iter().map(|j| joules::picojoules(*j)).collect::<Value>(),
        })
    };
    let part = |p: &sim::differential::Part| {
        let (price, scaled) = match p.per {
            Per::Second => ("price_uw", scaled(&p.price, 1e6)),
            Per::Operation => ("price_pj_per_operation", pj(&p.price)),
            Per::Byte => ("price_pj_per_byte", pj(&p.price)),
            Per::Run => ("price_pj_per_run", pj(&p.price)),
        };
        json!({ "name": p.name, "pj": pj(&p.joules), "percent": p.percent, price: scaled })
    };
    Ok(json!({
        "title": plan.title,
        "of": answer.of,
        "total_pj": pj(&answer.total),
        "confidence_percent": 95,
        "components": answer.parts.iter().map(part).collect::<Value>(),
        "runs": answer.runs.iter().map(run).collect::<Value>(),
        "notes": plan.notes,
    }))
}
