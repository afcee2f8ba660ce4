//! Writes fitted numbers into a profile.
//!
//! The model adds its own share to both energy and time: flash pages are sensed and programmed, the map is looked
//! up. The link's numbers are the remainder of the fitted ones after the model, run with the profile's other
//! numbers, has taken its share; they are found by running it. The scale of times comes from the profile's anchor,
//! the duration of a random read of 4 KB.

use toml_edit::{DocumentMut, Item, TableLike, value};

use super::FitError;
use super::parameters::Parameters;
use super::probe::probe;
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

/// Replaces the numbers of `base`, the text of a profile, by fitted ones whose source is `sources`. Numbers that
/// the fit does not determine stay unchanged, including comments and order. `anchor` replaces the base's own.
pub fn calibrate(
    base: &str,
    from: &str,
    p: &Parameters,
    sources: &str,
    anchor: Option<Nanos>,
) -> Result<String, FitError> {
    let profile = Profile::parse(base, from)?;
    let name = profile.name.clone();
    let not_flash = || FitError::NotFlash(name.clone());
    let own_anchor = profile.anchor.as_ref().ok_or_else(not_flash)?.time.value;
    let DeviceSpec::Flash(spec) = &profile.device else { return Err(not_flash()) };

    let pass = own_anchor.0 as f64 / 1e6 / (1.0 / RANDOM + p.request_time());
    let aim = Aim { pass, request: pass * p.request_time(), p: *p };
    let link = settle(spec, &aim)?;

    let source = if sources.is_empty() { "fitted".to_owned() } else { format!("fit to {sources}") };
    let why = |text: &str| format!("{source}{text}");
    let plain = why("");
    let left = why(", less the model's own share");
    let scaled = why(", at this anchor");
    let timed = why(", at this anchor, less the model's own share");
    let mut document: DocumentMut = base.parse().map_err(|e: toml_edit::TomlError| malformed(from, e.to_string()))?;
    let mut set = |path: &[&str], amount: f64, unit: &str, source: &str| {
        set_number(&mut document, path, amount, unit, source, from)
    };
    set(&["host", "cpu_request"], p.cpu_request() * 1e3, "uJ", &plain)?;
    set(&["host", "cpu_byte"], p.cpu_byte(), "mJ/MB", &plain)?;
    set(&["host", "dram_byte"], p.dram_byte(), "mJ/MB", &plain)?;
    set(&["host", "board"], p.board() / pass * 1e3, "mW", &scaled)?;
    set(&["device", "map", "access_energy"], p.storage_request() * 1e3, "uJ", &why(": the price of a request"))?;
    set(&["device", "flush_energy"], p.storage_request() * 1e3, "uJ", &why(": the price of a request"))?;
    set(&["device", "link", "request"], link.request * 1e3, "us", &timed)?;
    set(&["device", "link", "write_request"], link.write_request * 1e3, "us", &timed)?;
    set(&["device", "link", "read"], link.read, "ms/MB", &timed)?;
    set(&["device", "link", "write"], link.write, "ms/MB", &timed)?;
    set(&["device", "link", "request_energy"], link.request_energy * 1e3, "uJ", &left)?;
    set(&["device", "link", "read_energy"], link.read_energy, "mJ/MB", &left)?;
    set(&["device", "link", "write_energy"], link.write_energy, "mJ/MB", &left)?;
    let text = document.to_string();
    let fitted = Profile::parse(&text, from)?;
    let Some(anchor) = anchor else { return Ok(text) };
    let scaled = toml::Value::try_from(fitted.anchored(anchor)).map_err(|e| malformed(from, e.to_string()))?;
    take_values(document.as_item_mut(), &scaled);
    Ok(document.to_string())
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
fn take_values(item: &mut Item, other: &toml::Value) {
    if let Some(table) = item.as_table_like_mut() {
        take_table(table, other);
    } else if let Some(array) = item.as_array_mut() {
        for (inner, other) in array.iter_mut().zip(other.as_array().into_iter().flatten()) {
            if let Some(table) = inner.as_inline_table_mut() {
                take_table(table, other);
            }
        }
    } else if let Some(tables) = item.as_array_of_tables_mut() {
        for (table, other) in tables.iter_mut().zip(other.as_array().into_iter().flatten()) {
            take_table(table, other);
        }
    }
}

fn take_table(table: &mut dyn TableLike, other: &toml::Value) {
    if let (Some(number), Some(other)) = (table.get_mut("value"), other.get("value").and_then(toml::Value::as_float)) {
        let own = number.as_float().or_else(|| number.as_integer().map(|n| n as f64));
        if own.is_some_and(|own| (own - other).abs() > own.abs() * 1e-9) {
            *number = value(digits(other));
        }
        return;
    }
    for (key, inner) in table.iter_mut() {
        if let Some(other) = other.get(key.get()) {
            take_values(inner, other);
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
    number.insert("source", source.into());
    table[*last] = value(number);
    Ok(())
}

/// Rounds to four digits.
fn digits(amount: f64) -> f64 {
    format!("{amount:.3e}").parse().unwrap_or(amount)
}
