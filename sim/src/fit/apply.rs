//! Writes fitted numbers into a profile.
//!
//! The model adds its own share to both energy and time: flash pages are sensed and programmed, the map is looked
//! up. The link's numbers are the remainder of the fitted ones after the model, run with the profile's other
//! numbers, has taken its share; they are found by running it. The scale of times comes from the profile's anchor,
//! the duration of a random read of 4 KB.

use nalgebra::SMatrix;
use toml_edit::{DocumentMut, Item, TableLike, value};

use super::FitError;
use super::fitted::Fit;
use super::outliers::Outlier;
use super::parameters::{N, Parameters};
use super::probe::probe;
use super::solve::Comparison;
use device::energy::profile::{DeviceSpec, FlashSpec, Profile, ProfileError, Unit};
use device::energy::{Energy, Nanos};

/// Megabytes of the file in model runs: far more than a buffer, and less than the map covers.
const FILE: u64 = 64;
/// Requests of 4 KB per megabyte.
const RANDOM: f64 = 256.0;

/// Target results of the four workloads: milliseconds and millijoules per megabyte.
struct Aim {
    /// Time per megabyte read and per request, ms.
    pass: f64,
    request: f64,
    p: Parameters,
}

impl Aim {
    fn read(&self, requests: f64) -> f64 {
        self.pass + self.request * requests
    }
    fn write(&self, requests: f64) -> f64 {
        self.pass * self.p.write_time() + self.request * requests
    }
    fn energy(&self, requests: f64) -> f64 {
        self.p.storage_byte() + self.p.storage_request() * requests
    }
}

/// The link's numbers, in ms and mJ.
#[derive(Debug, Clone, Copy)]
struct Link {
    request: f64,
    write_request: f64,
    read: f64,
    write: f64,
    request_energy: f64,
    read_energy: f64,
    write_energy: f64,
}

/// Measured rows, as a profile names them.
#[derive(Debug, Clone, Copy)]
pub struct Data<'a> {
    /// The file's name.
    pub file: &'a str,
    /// Sources of the rows; empty if unknown.
    pub sources: &'a str,
    /// The numbers next to the computed ones.
    pub comparisons: &'a [Comparison],
}

impl Data<'_> {
    /// One line: what they are, and how far the computed numbers are off, without those that were left out.
    fn line(&self, numbers: usize, left_out: &[Outlier]) -> String {
        let is_left_out = |c: &Comparison| {
            left_out.iter().any(|o| (&o.comparison.workload, o.comparison.quality) == (&c.workload, c.quality))
        };
        let mut off: Vec<&Comparison> = self.comparisons.iter().filter(|c| !is_left_out(c)).collect();
        off.sort_by(|a, b| a.percent().abs().total_cmp(&b.percent().abs()));
        let sources = if self.sources.is_empty() { String::new() } else { format!(" ({})", self.sources) };
        let mut out = format!("{}{sources}: {numbers} numbers", self.file);
        if let (Some(typical), Some(most)) = (off.get(off.len() / 2), off.last()) {
            let quality = most.quality.text().split(',').next().unwrap_or_default();
            let (typical, largest) = (typical.percent().abs(), most.percent().abs());
            out += &format!(", off by {typical:.1} % typically, {largest:.1} % at most ({}, {quality})", most.workload);
        }
        out
    }
}

/// Writes a fit into `base`, the text of a profile, as the profile `name`. Fitted numbers get their source and the range
/// in which the true one lies in nine of ten cases; `calibrated_on` and `predicts` are those of the fit. Numbers that
/// the fit does not determine stay unchanged, including comments and order. `anchor` replaces the base's own.
pub fn calibrate(
    base: &str,
    from: &str,
    name: &str,
    fit: &Fit,
    data: &Data<'_>,
    predicted: &[Data<'_>],
    anchor: Option<Nanos>,
) -> Result<String, FitError> {
    let profile = Profile::parse(base, from)?;
    let not_flash = || FitError::NotFlash(profile.name.clone());
    let own_anchor = profile.anchor.as_ref().ok_or_else(not_flash)?.time.value;
    let DeviceSpec::Flash(spec) = &profile.device else { return Err(not_flash()) };

    let numbers = numbers(spec, own_anchor, &fit.parameters)?;
    let ranges = ranges(spec, own_anchor, fit, &numbers);

    let source = format!("fit to {}", if data.sources.is_empty() { data.file } else { data.sources });
    let why = |text: &str| format!("{source}{text}");
    let plain = why("");
    let left = why(", less the model's own share");
    let scaled = why(", at this anchor");
    let timed = why(", at this anchor, less the model's own share");
    let mut document: DocumentMut = base.parse().map_err(|e: toml_edit::TomlError| malformed(from, e.to_string()))?;
    let price = why(": the price of a request");
    let sources: [&str; NUMBERS.len()] =
        [&plain, &plain, &plain, &scaled, &price, &price, &timed, &timed, &timed, &timed, &left, &left, &left];
    for (n, (path, unit)) in NUMBERS.iter().enumerate() {
        let range = ranges.map(|ranges| ranges[n]);
        set_number(&mut document, path, numbers[n], range, unit, sources[n], from)?;
    }
    if name != profile.name {
        document["name"] = value(name);
        let device = data.file.strip_suffix(".csv").unwrap_or(data.file);
        document["title"] = value(format!(
            "{device}: prices and times fitted to {} measured numbers; the others are those of {}",
            fit.numbers, profile.name
        ));
    }
    let (left_out, word) = if fit.left_out { (&fit.outliers[..], "without") } else { (&[][..], "with") };
    let mut line = data.line(fit.numbers, left_out);
    for o in &fit.outliers {
        let quality = o.comparison.quality.text().split(',').next().unwrap_or_default();
        line += &format!("; {word} the outlier in line {} ({}, {quality})", o.line, o.comparison.workload);
    }
    document["calibrated_on"] = lines([line]);
    if predicted.is_empty() {
        document.remove("predicts");
    } else {
        document["predicts"] = lines(predicted.iter().map(|data| data.line(data.comparisons.len(), &[])));
    }
    let text = document.to_string();
    let fitted = Profile::parse(&text, from)?;
    let Some(anchor) = anchor else { return Ok(text) };
    let scaled = toml::Value::try_from(fitted.anchored(anchor)).map_err(|e| malformed(from, e.to_string()))?;
    let why = format!(", scaled to the anchor of {} us", anchor.0 as f64 / 1e3);
    take_values(document.as_item_mut(), &scaled, &why);
    if let Some(time) = document["anchor"]["time"].as_inline_table_mut() {
        time.insert("source", "given to the fit".into());
        time.insert("confidence", "assumed".into());
    }
    Ok(document.to_string())
}

fn lines(all: impl IntoIterator<Item = String>) -> Item {
    value(all.into_iter().collect::<toml_edit::Array>())
}

/// The fitted numbers of a profile, with their units.
const NUMBERS: [(&[&str], &str); 13] = [
    (&["host", "cpu_request"], "uJ"),
    (&["host", "cpu_byte"], "mJ/MB"),
    (&["host", "dram_byte"], "mJ/MB"),
    (&["host", "board"], "mW"),
    (&["device", "map", "access_energy"], "uJ"),
    (&["device", "flush_energy"], "uJ"),
    (&["device", "link", "request"], "us"),
    (&["device", "link", "write_request"], "us"),
    (&["device", "link", "read"], "ms/MB"),
    (&["device", "link", "write"], "ms/MB"),
    (&["device", "link", "request_energy"], "uJ"),
    (&["device", "link", "read_energy"], "mJ/MB"),
    (&["device", "link", "write_energy"], "mJ/MB"),
];
/// Step of a parameter's logarithm for slopes.
const STEP: f64 = 0.01;

/// The values of [`NUMBERS`] for these parameters.
fn numbers(spec: &FlashSpec, anchor: Nanos, p: &Parameters) -> Result<[f64; NUMBERS.len()], FitError> {
    let pass = anchor.0 as f64 / 1e6 / (1.0 / RANDOM + p.request_time());
    let link = settle(spec, &Aim { pass, request: pass * p.request_time(), p: *p })?;
    Ok([
        p.cpu_request() * 1e3,
        p.cpu_byte(),
        p.dram_byte(),
        p.board() / pass * 1e3,
        p.storage_request() * 1e3,
        p.storage_request() * 1e3,
        link.request * 1e3,
        link.write_request * 1e3,
        link.read,
        link.write,
        link.request_energy * 1e3,
        link.read_energy,
        link.write_energy,
    ])
}

/// Limits between which the true numbers lie in nine of ten cases, from the spread of the measured ones: the parameters'
/// covariances, by the slopes of the numbers. `None` if the rows are too few to know them.
fn ranges(spec: &FlashSpec, anchor: Nanos, fit: &Fit, at: &[f64]) -> Option<[(f64, f64); NUMBERS.len()]> {
    let (covariances, within) = (fit.covariances?, fit.within()?);
    let mut slopes = SMatrix::<f64, N, { NUMBERS.len() }>::zeros();
    for i in 0..N {
        let stepped = |step: f64| {
            let mut p = fit.parameters;
            p.0[i] *= step.exp();
            numbers(spec, anchor, &p).ok().map(|numbers| (step, numbers))
        };
        // A step may leave nothing for the link.
        let (step, numbers) = stepped(STEP).or_else(|| stepped(-STEP))?;
        for (n, number) in numbers.iter().enumerate() {
            slopes[(i, n)] = (number - at[n]) / step;
        }
    }
    Some(std::array::from_fn(|n| {
        let slope = slopes.column(n);
        let variance = (slope.transpose() * covariances * slope)[(0, 0)];
        let half = within * variance.max(0.0).sqrt();
        ((at[n] - half).max(0.0), at[n] + half)
    }))
}

/// Finds the link's numbers with which the model matches `aim`. Times come first, since the work of the flash, and
/// so its energy, may depend on them.
fn settle(spec: &FlashSpec, aim: &Aim) -> Result<Link, FitError> {
    let mut bare = spec.clone();
    bare.map.access_energy.value = Energy::from_joules(aim.p.storage_request() / 1e3);
    let link = &mut bare.link;
    (link.request_energy.value, link.read_energy.value.0, link.write_energy.value.0) = (Energy::ZERO, 0, 0);
    let [mut request, mut write_request, mut read, mut write] =
        [aim.request, aim.request, aim.read(0.0), aim.write(0.0)];
    let by_request = |sequential: f64, random: f64| (random - sequential) / (RANDOM - 1.0);
    let mut own = None;
    for _ in 0..8 {
        bare.link.request.value = nanos(request);
        bare.link.read.value = Unit::from_smallest(read * ms_per_mb());
        bare.link.write.value = Unit::from_smallest(write * ms_per_mb());
        let mut for_writes = bare.link.request.clone();
        for_writes.value = nanos(write_request);
        bare.link.write_request = Some(for_writes);
        let p = own.insert(probe(&bare, FILE));
        let (reads, writes) = (p.sequential_read.ms, p.sequential_write.ms);
        let late = [
            ("time of a read request", by_request(reads, p.random_read.ms) - aim.request, &mut request),
            ("time of a write request", by_request(writes, p.random_write.ms) - aim.request, &mut write_request),
            ("time of a megabyte read", reads - aim.read(1.0), &mut read),
            ("time of a megabyte written", writes - aim.write(1.0), &mut write),
        ];
        for (what, late, number) in late {
            if late >= *number {
                return Err(FitError::NothingLeft { what, flash: late, left: *number, unit: "ms" });
            }
            *number -= late;
        }
    }
    let own = own.unwrap_or_else(|| probe(&bare, FILE));
    let (reads, writes) = (own.sequential_read.mj, own.sequential_write.mj);
    // One price for requests of both kinds: the remainder for the mean of the two.
    let taken = (by_request(reads, own.random_read.mj) + by_request(writes, own.random_write.mj)) / 2.0;
    let request_energy = aim.p.storage_request() - taken;
    let read_energy = aim.energy(1.0) - request_energy - reads;
    let write_energy = aim.energy(1.0) - request_energy - writes;
    for (what, flash, left) in [
        ("energy of a request", taken, request_energy),
        ("energy of a megabyte read", reads, read_energy),
        ("energy of a megabyte written", writes, write_energy),
    ] {
        if left <= 0.0 {
            return Err(FitError::NothingLeft { what, flash, left: left + flash, unit: "mJ" });
        }
    }
    Ok(Link { request, write_request, read, write, request_energy, read_energy, write_energy })
}

fn ms_per_mb() -> f64 {
    1e12 / f64::from(1 << 20)
}

fn nanos(ms: f64) -> Nanos {
    Nanos((ms * 1e6).round() as u64)
}

/// Sets every number that differs in `other`, in place.
///
/// `why` is added to the source of those that were not fitted.
fn take_values(item: &mut Item, other: &toml::Value, why: &str) {
    if let Some(table) = item.as_table_like_mut() {
        take_table(table, other, why);
    } else if let Some(array) = item.as_array_mut() {
        for (inner, other) in array.iter_mut().zip(other.as_array().into_iter().flatten()) {
            if let Some(table) = inner.as_inline_table_mut() {
                take_table(table, other, why);
            }
        }
    } else if let Some(tables) = item.as_array_of_tables_mut() {
        for (table, other) in tables.iter_mut().zip(other.as_array().into_iter().flatten()) {
            take_table(table, other, why);
        }
    }
}

fn take_table(table: &mut dyn TableLike, other: &toml::Value, why: &str) {
    let range = other.get("range").and_then(toml::Value::as_array).cloned();
    if let (Some(number), Some(other)) = (table.get_mut("value"), other.get("value").and_then(toml::Value::as_float)) {
        let own = number.as_float().or_else(|| number.as_integer().map(|n| n as f64));
        // The model rounds to whole units, far behind the digits of a file.
        if own.is_none_or(|own| digits(own) == digits(other)) {
            return;
        }
        *number = value(digits(other));
        match range {
            Some(range) => {
                let limits = range.iter().filter_map(toml::Value::as_float).map(digits);
                table.insert("range", value(limits.collect::<toml_edit::Array>()));
            }
            None => _ = table.remove("range"),
        }
        let is_fitted = table.get("confidence").and_then(Item::as_str) == Some("fitted");
        if let (false, Some(source)) = (is_fitted, table.get_mut("source")) {
            *source = value(format!("{}{why}", source.as_str().unwrap_or_default()));
        }
        return;
    }
    for (key, inner) in table.iter_mut() {
        if let Some(other) = other.get(key.get()) {
            take_values(inner, other, why);
        }
    }
}

fn malformed(from: &str, message: String) -> ProfileError {
    ProfileError::Malformed { from: from.into(), message }
}

/// Sets a number, rounded to four digits, in place.
fn set_number(
    document: &mut DocumentMut,
    path: &[&str],
    amount: f64,
    range: Option<(f64, f64)>,
    unit: &str,
    source: &str,
    from: &str,
) -> Result<(), FitError> {
    let missing = || malformed(from, format!("{} is no table", path.join(".")));
    let (last, tables) = path.split_last().ok_or_else(missing)?;
    let mut table = document.as_table_mut();
    for name in tables {
        table = table.get_mut(name).and_then(Item::as_table_mut).ok_or_else(missing)?;
    }
    let mut number = toml_edit::InlineTable::new();
    number.insert("value", digits(amount).into());
    number.insert("unit", unit.into());
    number.insert("confidence", "fitted".into());
    if let Some((low, high)) = range {
        number.insert("range", [low, high].into_iter().map(digits).collect::<toml_edit::Array>().into());
    }
    number.insert("source", source.into());
    table[*last] = value(number);
    Ok(())
}

/// Rounds to four digits.
fn digits(amount: f64) -> f64 {
    format!("{amount:.3e}").parse().unwrap_or(amount)
}
