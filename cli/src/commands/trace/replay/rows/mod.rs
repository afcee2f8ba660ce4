//! What came of the runs as Parquet: rows for notebooks, that other programs put together and group as they like.
//!
//! `runs.parquet` has a row for each run with everything it depends on ([`runs`]). `energy.parquet` has one for each run, owner,
//! cause and component: whole picojoules whose sum is the ledger's total. `timeline.parquet` says what each component had spent
//! when; `latency.parquet` how long each kind of request or call took. Every row has the run's number and its key, so that rows of
//! several directories stay apart. The files' metadata has `joulefs.replay`: the version of the schema.
//!
//! `runs.parquet` gets its name last: where it is, the others are whole.

mod cells;
mod runs;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use device::energy::{Component, Energy};
use trace::Kind;
use trace::write::parquet::Table;

use super::Args;
use super::outcome::Outcome;
use super::points::{Known, Point};
use crate::whole::Part;
use crate::{Failure, spent};

/// The version of the schema.
const SCHEMA: (&str, &str) = ("joulefs.replay", "1");

const ENERGY: &str = "message energy {
    REQUIRED INT32 run (INTEGER(32, false));
    REQUIRED BYTE_ARRAY key (STRING);
    REQUIRED BYTE_ARRAY name (STRING);
    REQUIRED INT64 owner (INTEGER(64, false));
    REQUIRED BYTE_ARRAY owner_name (STRING);
    REQUIRED INT32 cause_number (INTEGER(32, false));
    REQUIRED BYTE_ARRAY cause_key (STRING);
    REQUIRED BYTE_ARRAY cause (STRING);
    REQUIRED BYTE_ARRAY component (STRING);
    REQUIRED INT64 pj (INTEGER(64, false));
}";

const TIMELINE: &str = "message timeline {
    REQUIRED INT32 run (INTEGER(32, false));
    REQUIRED BYTE_ARRAY key (STRING);
    REQUIRED BYTE_ARRAY name (STRING);
    REQUIRED INT64 time_ns (INTEGER(64, false));
    REQUIRED BYTE_ARRAY component (STRING);
    REQUIRED INT64 pj (INTEGER(64, false));
    OPTIONAL DOUBLE watts;
}";

const LATENCY: &str = "message latency {
    REQUIRED INT32 run (INTEGER(32, false));
    REQUIRED BYTE_ARRAY key (STRING);
    REQUIRED BYTE_ARRAY name (STRING);
    REQUIRED BYTE_ARRAY kind (STRING);
    REQUIRED INT64 count (INTEGER(64, false));
    REQUIRED DOUBLE mean_ns;
    REQUIRED INT64 min_ns (INTEGER(64, false));
    REQUIRED INT64 p50_ns (INTEGER(64, false));
    REQUIRED INT64 p99_ns (INTEGER(64, false));
    REQUIRED INT64 p999_ns (INTEGER(64, false));
    REQUIRED INT64 max_ns (INTEGER(64, false));
}";

type Out = Table<BufWriter<File>>;

/// A run and what came of it.
struct Run<'a> {
    point: &'a Point,
    known: &'a Known,
    outcome: &'a Outcome,
}

impl Run<'_> {
    /// The columns with which every row begins.
    fn begin(&self, out: &mut Out) {
        out.short(self.point.number as u32);
        out.bytes(Some(self.known.key.as_bytes()));
        out.bytes(Some(self.point.name().as_bytes()));
    }
}

/// The word for a component in rows and in JSON.
fn word(component: Component) -> String {
    component.text().to_lowercase()
}

/// Writes the files into a directory, which is made if it is not there.
pub fn write(args: &Args, kind: Kind, points: &[Point], outcomes: &[Outcome], dir: &Path) -> Result<(), Failure> {
    let named = |what: &Path, e: io::Error| Failure::from(format!("--parquet {}: {e}", what.display()));
    fs::create_dir_all(dir).map_err(|e| named(dir, e))?;
    let all = points.iter().zip(outcomes);
    let all: Vec<Run<'_>> =
        all.filter_map(|(point, outcome)| Some(Run { point, known: point.known.as_ref()?, outcome })).collect();
    let cells = all.iter().map(|run| runs::cells(args, kind, run)).collect::<Result<Vec<_>, _>>()?;
    let table = cells::Table::of(&cells);
    let (schema, of_runs) = (table.schema("runs"), |out: &mut Out| table.write(out));
    type Rows<'a> = &'a dyn Fn(&mut Out) -> io::Result<()>;
    let files: [(&str, &str, Rows<'_>); 4] = [
        ("energy.parquet", ENERGY, &|out| all.iter().try_for_each(|run| energy(run, out))),
        ("timeline.parquet", TIMELINE, &|out| all.iter().try_for_each(|run| timeline(run, out))),
        ("latency.parquet", LATENCY, &|out| all.iter().try_for_each(|run| latency(run, out))),
        ("runs.parquet", &schema, &of_runs),
    ];
    let mut parts = Vec::new();
    for (name, schema, rows) in files {
        let path = dir.join(name);
        let made = || {
            let (part, open) = Part::create(&path, true)?;
            let mut table = Table::new(BufWriter::new(open), schema, &[], SCHEMA)?;
            rows(&mut table)?;
            table.finish()?.flush()?;
            Ok(part)
        };
        parts.push((made().map_err(|e| named(&path, e))?, path));
    }
    // What was there from before says of no new file that it is whole.
    let old = dir.join("runs.parquet");
    match fs::remove_file(&old) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(named(&old, e)),
        _ => {}
    }
    parts.into_iter().try_for_each(|(part, path)| part.finish().map_err(|e| named(&path, e)))
}

fn energy(run: &Run<'_>, out: &mut Out) -> io::Result<()> {
    let mut sums: BTreeMap<(u64, u8), [Energy; Component::ALL.len()]> = BTreeMap::new();
    for (purpose, part, energy) in run.outcome.run.ledger.amounts() {
        sums.entry((purpose.owner, purpose.cause)).or_default()[part.component() as usize] += energy;
    }
    let words = run.outcome.cause();
    let (mut owner, mut name) = (None, String::new());
    for ((of, cause), energies) in sums {
        if owner.replace(of) != Some(of) {
            name = run.outcome.owner(of);
        }
        let spent::Cause { key, text } = words(cause);
        for (component, energy) in Component::ALL.into_iter().zip(energies).filter(|(_, e)| *e != Energy::ZERO) {
            run.begin(out);
            out.long(Some(of));
            out.bytes(Some(name.as_bytes()));
            out.short(cause.into());
            for text in [&key, &text, &word(component)] {
                out.bytes(Some(text.as_bytes()));
            }
            out.long(Some(energy.0));
            out.end_of_row()?;
        }
    }
    Ok(())
}

fn timeline(run: &Run<'_>, out: &mut Out) -> io::Result<()> {
    let mut last: Option<&lab::traces::timeline::Look> = None;
    for look in run.outcome.timeline.looks() {
        let seconds = last.map(|last| look.at.saturating_sub(last.at) as f64 / 1e9).filter(|s| *s > 0.0);
        for (n, component) in Component::ALL.into_iter().enumerate() {
            let since = last.map_or(Energy::ZERO, |last| last.components[n]);
            run.begin(out);
            out.long(Some(look.at));
            out.bytes(Some(word(component).as_bytes()));
            out.long(Some(look.components[n].0));
            out.real(seconds.map(|seconds| (look.components[n] - since).joules() / seconds));
            out.end_of_row()?;
        }
        last = Some(look);
    }
    Ok(())
}

fn latency(run: &Run<'_>, out: &mut Out) -> io::Result<()> {
    for latency in run.outcome.latencies() {
        let s = &latency.spread;
        run.begin(out);
        out.bytes(Some(latency.op.as_bytes()));
        out.long(Some(s.count));
        out.real(Some(s.mean_ns));
        for ns in [s.min_ns, s.p50_ns, s.p99_ns, s.p999_ns, s.max_ns] {
            out.long(Some(ns));
        }
        out.end_of_row()?;
    }
    Ok(())
}
