//! How do runs become Parquet files for notebooks, which combine and group the rows freely?
//!
//! * `runs.parquet` has a row for each run with everything it depends on; its columns depend on the rows ([`cells`]).
//! * `energy.parquet` has a row for each run, owner, cause and component: whole picojoules whose sum is the ledger's
//!   total.
//! * `timeline.parquet` has the energy of each component over time.
//! * `latency.parquet` has the duration of each kind of request or call.
//!
//! Every row has the run's number and its key, so that rows of several directories stay apart. `runs.parquet` gets its
//! name last: if it exists, the other files are complete.

pub mod cells;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use device::energy::{Component, Energy, Power};
use sim::labels::Cause;
use trace::replay::blocks::Latency;
use trace::write::parquet::Table;

use self::cells::Cells;
use crate::Failure;
use crate::whole::Part;

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
    OPTIONAL INT64 power_uw (INTEGER(64, false));
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

/// A file of rows.
pub type Out = Table<BufWriter<File>>;

/// What a component spent for an owner and a cause.
pub struct Amount<'a> {
    /// The owner's inode, or another number that identifies the owner.
    pub owner: u64,
    /// Its path, or a label in place of a path.
    pub owner_name: &'a str,
    /// The number of the cause.
    pub number: u8,
    /// The cause.
    pub cause: &'a Cause,
    /// The component.
    pub component: Component,
    /// What it spent.
    pub energy: Energy,
}

/// A run to write as rows.
pub trait Run {
    /// Its number, key and name: the first columns of every row.
    fn begin(&self) -> (usize, &str, &str);

    /// Passes every amount of its account to `tell`, each owner, cause and component once.
    fn energy(&self, tell: &mut dyn FnMut(&Amount<'_>) -> io::Result<()>) -> io::Result<()>;

    /// Cumulative energy by component, in the order of [`Component::ALL`], at each time.
    fn timeline(&self) -> Vec<(u64, [Energy; Component::ALL.len()])>;

    /// Latencies by kind of request or call.
    fn latencies(&self) -> &[Latency];
}

/// The word for a component in rows and in JSON.
pub fn word(component: Component) -> String {
    component.text().to_lowercase()
}

/// Writes the files into a directory, creating it if needed. Their metadata has `schema`: its name and version.
pub fn write(dir: &Path, schema: (&str, &str), runs: &[impl Run], cells: &[Cells]) -> Result<(), Failure> {
    write_with(dir, schema, runs, cells, &[])
}

/// Like [`write()`], with further tables of such cells.
pub fn write_with(
    dir: &Path,
    schema: (&str, &str),
    runs: &[impl Run],
    cells: &[Cells],
    more: &[(&str, &[Cells])],
) -> Result<(), Failure> {
    let named = |what: &Path, e: io::Error| Failure::from(format!("--parquet {}: {e}", what.display()));
    fs::create_dir_all(dir).map_err(|e| named(dir, e))?;
    type Rows<'a> = Box<dyn Fn(&mut Out) -> io::Result<()> + 'a>;
    let of_cells = |name: &str, cells| {
        let table = cells::Table::of(cells);
        let rows: Rows<'_> = Box::new(move |out| table.write(out));
        (format!("{name}.parquet"), cells::Table::of(cells).schema(name), rows)
    };
    let each = |name: &str, schema: &str, rows: fn(&_, &mut Out) -> io::Result<()>| {
        let rows: Rows<'_> = Box::new(move |out| runs.iter().try_for_each(|run| rows(run, out)));
        (format!("{name}.parquet"), schema.to_owned(), rows)
    };
    let mut files =
        vec![each("energy", ENERGY, energy), each("timeline", TIMELINE, timeline), each("latency", LATENCY, latency)];
    files.extend(more.iter().map(|(name, cells)| of_cells(name, cells)));
    files.push(of_cells("runs", cells));
    let mut parts = Vec::new();
    for (name, of, rows) in files {
        let path = dir.join(name);
        let made = || {
            let (part, open) = Part::create(&path, true)?;
            let mut table = Table::new(BufWriter::new(open), &of, &[], schema)?;
            rows(&mut table)?;
            table.finish()?.flush()?;
            Ok(part)
        };
        parts.push((made().map_err(|e| named(&path, e))?, path));
    }
    // An old `runs.parquet` must not mark the new files as complete.
    let old = dir.join("runs.parquet");
    match fs::remove_file(&old) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(named(&old, e)),
        _ => {}
    }
    parts.into_iter().try_for_each(|(part, path)| part.finish().map_err(|e| named(&path, e)))
}

fn begin(run: &impl Run, out: &mut Out) {
    let (number, key, name) = run.begin();
    out.short(number as u32);
    out.bytes(Some(key.as_bytes()));
    out.bytes(Some(name.as_bytes()));
}

fn energy<R: Run>(run: &R, out: &mut Out) -> io::Result<()> {
    run.energy(&mut |amount| {
        begin(run, out);
        out.long(Some(amount.owner));
        out.bytes(Some(amount.owner_name.as_bytes()));
        out.short(amount.number.into());
        for text in [&amount.cause.key, &amount.cause.text, &word(amount.component)] {
            out.bytes(Some(text.as_bytes()));
        }
        out.long(Some(amount.energy.0));
        out.end_of_row()
    })
}

fn timeline<R: Run>(run: &R, out: &mut Out) -> io::Result<()> {
    let mut last: Option<(u64, [Energy; Component::ALL.len()])> = None;
    for (at, spent) in run.timeline() {
        let seconds = last.map(|(before, _)| at.saturating_sub(before) as f64 / 1e9).filter(|s| *s > 0.0);
        for (n, component) in Component::ALL.into_iter().enumerate() {
            let since = last.map_or(Energy::ZERO, |(_, spent)| spent[n]);
            begin(run, out);
            out.long(Some(at));
            out.bytes(Some(word(component).as_bytes()));
            out.long(Some(spent[n].0));
            out.long(seconds.map(|seconds| Power::from_watts((spent[n] - since).joules() / seconds).0));
            out.end_of_row()?;
        }
        last = Some((at, spent));
    }
    Ok(())
}

fn latency<R: Run>(run: &R, out: &mut Out) -> io::Result<()> {
    for latency in run.latencies() {
        let s = &latency.spread;
        begin(run, out);
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
