//! How are the numbers shown and compared?

use std::fmt::Write as _;

use super::rows::Row;
use super::sides::Side;
use super::{in_process, median};

/// Every row for every side that was measured.
pub struct Comparison {
    /// The sides, in the order of the columns.
    pub sides: Vec<Side>,
    /// Row name, unit, and for each side the values of its passes.
    pub rows: Vec<(String, &'static str, Vec<Vec<f64>>)>,
    /// For each row and side, the CPU time of the side's server, if it has one.
    pub cpu: Vec<Vec<Vec<f64>>>,
}

/// Our sides; each is compared with the others.
const OURS: [Side; 2] = [Side::JouleFs, Side::ScherlFs];
const OTHERS: [Side; 2] = [Side::MemFs, Side::Fuse2Fs];

/// Which columns are divided by which: each of ours by each other side that was measured.
fn ratios(at: impl Fn(Side) -> Option<usize>) -> Vec<(usize, usize)> {
    OURS.iter().flat_map(|ours| OTHERS.iter().filter_map(|other| at(*ours).zip(at(*other)))).collect()
}

/// Goal of every row, as a fraction of the in-memory file system behind the same FUSE adapter.
const AIM: f64 = 0.70;

/// The median of the ratios of consecutive passes: a slow period of the machine affects both. If a side missed a pass,
/// the ratio of the medians.
fn ratio(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() {
        return median(a) / median(b);
    }
    median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<f64>>())
}

impl Comparison {
    /// Combines the passes of each side.
    pub fn of(passes: &[(Side, Vec<Vec<Row>>)]) -> Self {
        let sides = passes.iter().map(|(side, _)| *side).collect();
        let names: Vec<(String, &'static str)> = passes
            .iter()
            .flat_map(|(_, passes)| passes.first())
            .next()
            .map(|rows| rows.iter().map(|r| (r.name.clone(), r.unit)).collect())
            .unwrap_or_default();
        let of_all = |name: &str, value: fn(&Row) -> Option<f64>| -> Vec<Vec<f64>> {
            let of_side = |(_, passes): &(Side, Vec<Vec<Row>>)| -> Vec<f64> {
                passes.iter().flatten().filter(|r| r.name == name).filter_map(value).collect()
            };
            passes.iter().map(of_side).collect()
        };
        let cpu = names.iter().map(|(name, _)| of_all(name, |row| row.cpu)).collect();
        let rows = names
            .into_iter()
            .map(|(name, unit)| {
                let values = of_all(&name, |row| Some(row.value));
                (name, unit, values)
            })
            .collect();
        Comparison { sides, rows, cpu }
    }

    /// A Markdown table, readable as plain text.
    pub fn table(&self) -> String {
        let at = |side| self.sides.iter().position(|s| *s == side);
        let mut head = vec!["".to_owned(), "unit".to_owned()];
        head.extend(self.sides.iter().map(|s| s.name().to_owned()));
        let ratios = ratios(at);
        head.extend(self.ratio_names(&ratios));
        let mut lines = vec![head];
        for (name, unit, values) in &self.rows {
            let mut line = vec![name.clone(), (*unit).to_owned()];
            line.extend(values.iter().map(|v| shown(median(v))));
            line.extend(ratios.iter().map(|(a, b)| format!("{:.2}", ratio(&values[*a], &values[*b]))));
            lines.push(line);
        }
        aligned(&lines)
    }

    /// CPU time of the server processes, as a Markdown table.
    pub fn cpu_table(&self) -> String {
        let served: Vec<usize> =
            (0..self.sides.len()).filter(|side| self.cpu.iter().any(|row| !row[*side].is_empty())).collect();
        let mut head = vec!["us of processor time".to_owned(), "for each".to_owned()];
        head.extend(served.iter().map(|side| self.sides[*side].name().to_owned()));
        let ratios = ratios(|side| served.iter().copied().find(|i| self.sides[*i] == side));
        head.extend(self.ratio_names(&ratios));
        let mut lines = vec![head];
        for ((name, unit, _), cpu) in self.rows.iter().zip(&self.cpu) {
            let each = if *unit == "MB/s" { "MB" } else { "op" };
            let mut line = vec![name.clone(), each.to_owned()];
            line.extend(served.iter().map(|side| format!("{:.1}", median(&cpu[*side]))));
            line.extend(ratios.iter().map(|(a, b)| format!("{:.2}", ratio(&cpu[*a], &cpu[*b]))));
            lines.push(line);
        }
        aligned(&lines)
    }

    /// The heads of the ratio columns.
    fn ratio_names(&self, ratios: &[(usize, usize)]) -> Vec<String> {
        let name = |side: usize| self.sides[side].name();
        ratios.iter().map(|(ours, other)| format!("{} / {}", name(*ours), name(*other))).collect()
    }

    /// The rows that miss their goal, as text.
    fn shortfalls(&self) -> String {
        OURS.iter().map(|ours| self.shortfalls_of(*ours)).collect()
    }

    fn shortfalls_of(&self, ours: Side) -> String {
        let at = |side| self.sides.iter().position(|s| *s == side);
        let below = |other: Side, least: f64| -> Option<String> {
            let (ours, other) = (at(ours)?, at(other)?);
            let short = self.rows.iter().filter(|(_, _, v)| ratio(&v[ours], &v[other]) < least);
            let names: Vec<&str> = short.map(|(name, _, _)| name.as_str()).collect();
            Some(if names.is_empty() { "none".to_owned() } else { names.join("; ") })
        };
        let mut text = String::new();
        if let Some(names) = below(Side::MemFs, AIM) {
            let _ = writeln!(text, "Rows of {} under the aim of {AIM:.2} of in-memory FUSE: {names}.", ours.name());
        }
        if let Some(names) = below(Side::Fuse2Fs, 1.0) {
            let _ = writeln!(text, "Rows of {} behind fuse2fs: {names}.", ours.name());
        }
        text
    }
}

/// A table of the measurements without FUSE.
pub fn in_process_table(rows: &[in_process::Measured]) -> String {
    let mut lines = vec![["", "measured", "unit", "aim"].map(String::from).to_vec()];
    for row in rows {
        lines.push(vec![row.name.clone(), shown(row.value), row.unit.into(), row.aim.into()]);
    }
    aligned(&lines)
}

fn shown(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value < 10.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| lines.iter().filter_map(|l| l.get(c)).map(|t| t.chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (n, line) in lines.iter().enumerate() {
        for (c, w) in widths.iter().enumerate() {
            let cell = line.get(c).map_or("", String::as_str);
            let _ = if c == 0 { write!(text, "| {cell:<w$} ") } else { write!(text, "| {cell:>w$} ") };
        }
        text.push_str("|\n");
        if n == 0 {
            for (c, w) in widths.iter().enumerate() {
                let dashes = "-".repeat(w + 1);
                let _ = if c == 0 { write!(text, "|{dashes}-") } else { write!(text, "|{dashes}:") };
            }
            text.push_str("|\n");
        }
    }
    text
}

/// The whole document.
#[allow(clippy::too_many_arguments)] // its parts
pub fn document(
    comparison: Option<&Comparison>,
    alone: &[in_process::Measured],
    deltas: &[in_process::Measured],
    simulated: &[in_process::Measured],
    chosen: &[in_process::Measured],
    large_volume: &[in_process::Measured],
    traces: &[in_process::Measured],
    images: &[in_process::Measured],
    passes: usize,
) -> String {
    let mut text = format!(
        "# Benchmarks\n\n\
         Written by `make bench`; passes: {passes}; medians, and medians of the passes' ratios. {}{}\n\n",
        commit(),
        machine()
    );
    if let Some(comparison) = comparison {
        text += "## Mount against mount\n\n\
            Every image lies in memory that it was given beforehand, as a partition has its blocks, so this \
            compares software, not media. *JouleFS* is F2FS, *ScherlFS* the log for disks. *In-memory FUSE* is a plain \
            file system in memory behind the same FUSE adapter as both: what FUSE leaves possible. Writes \
            end with an `fsync`, which is in the time; sequential reads start with an empty page cache. The \
            clients share the work: 256 MiB of data, 16,000 files. All are mounted at once and take turns, an \
            eighth of a row's work each time.\n\n";
        text += &comparison.table();
        text.push('\n');
        text += &comparison.shortfalls();
        text += "\nWhat the servers in user space take of the processors for it, the kernel's work on their behalf \
            included. This varies less from run to run than the rates do, which also hold how fast the machine \
            wakes a thread:\n\n";
        text += &comparison.cpu_table();
        text += "\nWhere data is written, JouleFS does what a file system in memory is spared: it copies every block \
            once more, into the image, at the head of a log; every `fsync` writes a node block besides.\n\n";
    }
    if !alone.is_empty() {
        text += "## The core alone\n\n\
            Calls of the core in one thread, without FUSE, on a device in memory; the last rows on a sparse \
            image file.\n\n";
        text += &in_process_table(alone);
    }
    if !deltas.is_empty() {
        text += "\n## Deltas\n\n\
            One thread, on a volume in memory.\n\n";
        text += &in_process_table(deltas);
    }
    if !simulated.is_empty() {
        text += "\n## The simulated flash\n\n\
            Requests of 4 KiB to the phone's 256 GiB (`kirin9000-ufs31`), with translation layer and meter, on one \
            thread, in virtual time; the last row with the file system on it, cleaning in the background.\n\n";
        text += &in_process_table(simulated);
    }
    if !chosen.is_empty() {
        text += "\n## Choosing what to clean\n\n\
            A choice among 400,000 dirty segments of a volume of 1 TB, of which 300 changed since the last one: the mean, \
            over volumes of three shapes. Targets are segments whose holes are filled.\n\n";
        text += &in_process_table(chosen);
    }
    if !large_volume.is_empty() {
        text += "\n## A phone's whole volume in memory\n\n\
            256 GiB, 60 % full of generated contents, made by a process of its own.\n\n";
        text += &in_process_table(large_volume);
    }
    if !images.is_empty() {
        text += "\n## Images of trees\n\n\
            Tree and images in memory.\n\n";
        text += &in_process_table(images);
    }
    if !traces.is_empty() {
        text += "\n## Recordings of others\n\n\
            256 MB of each format in memory, parsed on one thread to the last record.\n\n";
        text += &in_process_table(traces);
        text += "\nPerfetto's events are below the aim in bytes, since each takes but 36 of them; they are put in order of time, too.\n";
    }
    text
}

/// The measured commit, if the sources are in a git repository.
fn commit() -> String {
    let git = std::process::Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"])
        .output();
    match git {
        Ok(out) if out.status.success() => {
            format!("Commit {}, and no later one. ", String::from_utf8_lossy(&out.stdout).trim())
        }
        _ => String::new(),
    }
}

/// The machine's description.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name").and_then(|l| l.split_once(':')))
        .map_or("an unnamed processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The benchmarks themselves use about two processors.
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').nth(1).unwrap_or("unknown");
    format!(
        "Machine: {model}, {cores} cores, Linux {}; load average over the last five minutes: {load}.",
        kernel.trim()
    )
}
