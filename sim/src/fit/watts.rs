//! What does a drive cost at rest, at work, by request and by byte, given its watts at known loads?
//!
//! Reviews and papers print a drive's power beside the rate of a load. [`Loads`] are such rows. [`Drive`] explains them
//! by five prices, none below 0:
//!
//! ```text
//! watts at rest            rest
//! watts of a load          rest + work + request * requests/s + (read or write) * megabytes/s
//! ```
//!
//! It minimises the squares of the relative differences; of all choices of prices that are 0 the best is taken, which
//! is exact, since there are only sixteen. [`Drive::profile`] writes them over another profile. Left out: rates, which
//! are taken as measured, and the device's own cleaning.

use nalgebra::{DMatrix, DVector};
use serde::Deserialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use device::energy::profile::{DeviceSpec, Profile, ProfileError};

use super::{FitError, check_columns, without_mark};

/// What the drive was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Nothing, but it is ready.
    Idle,
    /// Nothing, and it sleeps as deeply as it does.
    Sleep,
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// A measured load.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Its name.
    pub load: String,
    /// Its requests.
    pub way: Way,
    /// Bytes of each.
    #[serde(default)]
    pub bytes: Option<f64>,
    /// Requests per second.
    #[serde(default)]
    pub per_second: Option<f64>,
    /// Power of the drive.
    pub watts: f64,
    /// Who measured it.
    #[serde(default)]
    pub source: String,
}

const MIB: f64 = 1_048_576.0;

/// Relative difference that loads of one drive have from these prices at least, whatever the fitted ones have: a few may
/// agree by chance. Two sessions of one laboratory are 12 % apart in nine of ten cases, as for all measured numbers.
const LEAST: f64 = 0.12 / 1.645;

/// What a measured number is off at most, as a factor, in nine of ten cases.
const OFF: f64 = 1.0 - 0.12;

impl Load {
    /// Megabytes (of 1,048,576 bytes) per second.
    pub fn rate(&self) -> f64 {
        self.bytes.unwrap_or(0.0) * self.requests() / MIB
    }

    /// Requests per second; 0 for none.
    pub fn requests(&self) -> f64 {
        self.per_second.unwrap_or(0.0)
    }

    fn is_work(&self) -> bool {
        matches!(self.way, Way::Read | Way::Write)
    }
}

/// Measured loads of one drive.
#[derive(Debug, Clone, PartialEq)]
pub struct Loads(pub Vec<Load>);

impl Loads {
    /// Whether this is a table of loads, by its head: it has columns that only these have.
    pub fn is_one(text: &str) -> bool {
        let mut lines = without_mark(text).lines();
        let head = lines.find(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
        let is_own = |column: &str| ["load", "way", "per_second", "watts"].contains(&column.trim().trim_matches('"'));
        head.is_some_and(|head| head.split(',').any(is_own))
    }

    /// Parses a table; `from` is its name in errors.
    ///
    /// # Errors
    /// A row is malformed, or there is none.
    pub fn parse(text: &str, from: &str) -> Result<Self, FitError> {
        let malformed = |message: String| FitError::Malformed { from: from.into(), message };
        let mut reader = csv::ReaderBuilder::new()
            .comment(Some(b'#'))
            .trim(csv::Trim::All)
            .from_reader(without_mark(text).as_bytes());
        let headers = reader.headers().map_err(|e| malformed(e.to_string()))?;
        let needed = ["load", "way", "bytes", "per_second", "watts"];
        check_columns(headers, &needed, "a table of loads").map_err(malformed)?;
        let loads = reader.deserialize().collect::<Result<Vec<Load>, _>>().map_err(|e| malformed(e.to_string()))?;
        for load in &loads {
            let positive = |n: Option<f64>| n.is_some_and(|n| n.is_finite() && n > 0.0);
            if !positive(Some(load.watts)) || load.is_work() && !(positive(load.bytes) && positive(load.per_second)) {
                let what = "watts, and of reads and writes bytes and per_second, must be numbers above 0";
                return Err(malformed(format!("{}: {what}", load.load)));
            }
        }
        if loads.is_empty() {
            return Err(malformed("no rows".into()));
        }
        Ok(Loads(loads))
    }

    /// Their sources, without duplicates.
    pub fn sources(&self) -> String {
        let mut sources: Vec<&str> = Vec::new();
        for load in self.0.iter().filter(|load| !load.source.is_empty()) {
            if !sources.contains(&load.source.as_str()) {
                sources.push(&load.source);
            }
        }
        sources.join("; ")
    }

    fn mean(&self, way: Way) -> Option<f64> {
        let watts: Vec<f64> = self.0.iter().filter(|load| load.way == way).map(|load| load.watts).collect();
        (!watts.is_empty()).then(|| watts.iter().sum::<f64>() / watts.len() as f64)
    }
}

/// A fitted price.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Price {
    /// Watts, joules for a request, or joules for a megabyte.
    pub value: f64,
    /// Limits of nine in ten cases; none if it is 0.
    pub range: Option<(f64, f64)>,
}

/// The prices of a drive.
#[derive(Debug, Clone, PartialEq)]
pub struct Drive {
    /// Watts while it is ready and nothing is asked, if that was measured.
    pub rest: Option<f64>,
    /// Watts while it sleeps, if that was measured.
    pub sleep: Option<f64>,
    /// Watts more while it works, or all of them if rest was not measured; joules of a request, of a megabyte read and
    /// of one written.
    pub prices: [Price; 4],
    /// Relative differences in percent: root of the mean of squares.
    pub rms: f64,
}

/// The names of [`Drive::prices`], with their units.
pub const PRICES: [(&str, &str); 4] = [("work", "W"), ("request", "J"), ("read", "J/MB"), ("write", "J/MB")];

fn columns(load: &Load) -> [f64; 4] {
    let rate = load.rate();
    match load.way {
        Way::Idle | Way::Sleep => [0.0; 4],
        Way::Read => [1.0, load.requests(), rate, 0.0],
        Way::Write => [1.0, load.requests(), 0.0, rate],
    }
}

impl Drive {
    /// Fits the prices.
    ///
    /// # Errors
    /// Too few loads, or watts that fall with the load.
    pub fn fit(loads: &Loads) -> Result<Self, FitError> {
        let (rest, sleep) = (loads.mean(Way::Idle), loads.mean(Way::Sleep));
        let work: Vec<&Load> = loads.0.iter().filter(|load| load.is_work()).collect();
        let kinds = [Way::Read, Way::Write].iter().filter(|way| work.iter().any(|load| load.way == **way)).count();
        if work.len() < 2 * kinds || kinds == 0 {
            return Err(FitError::TooFewLoads { loads: work.len(), needed: 2 * kinds.max(1) });
        }
        falling(loads, rest)?;
        let mut best: Option<(f64, [Price; 4])> = None;
        let mut choices: Vec<u32> = (1..16).collect();
        // Of equally good ones, that with power of its own at work, and with the fewest prices.
        choices.sort_by_key(|chosen| (chosen & 1 == 0, chosen.count_ones()));
        for chosen in choices {
            let chosen: Vec<usize> = (0..4).filter(|n| chosen >> n & 1 == 1).collect();
            let Some((squares, prices)) = solve(&work, rest.unwrap_or(0.0), &chosen) else { continue };
            if best.as_ref().is_none_or(|(least, _)| squares < least * (1.0 - 1e-9) - 1e-12) {
                best = Some((squares, prices));
            }
        }
        let (squares, prices) = best.ok_or_else(|| FitError::Undetermined("the prices of a drive".to_owned()))?;
        Ok(Drive { rest, sleep, prices, rms: 100.0 * (squares / work.len() as f64).sqrt() })
    }

    /// The watts of a load at these prices; of rest and sleep, if they were measured.
    pub fn watts(&self, load: &Load) -> Option<f64> {
        match load.way {
            Way::Idle => self.rest,
            Way::Sleep => self.sleep,
            _ => {
                let sum: f64 = columns(load).iter().zip(self.prices).map(|(n, price)| n * price.value).sum();
                Some(self.rest.unwrap_or(0.0) + sum)
            }
        }
    }

    /// The text of a profile with these prices over `base`, the text of the profile `from`. What the loads do not tell
    /// stays the base's, except that a drive whose sleep was not measured does not sleep. `table` is the name of the
    /// loads.
    ///
    /// # Errors
    /// The base is not a flash profile.
    pub fn profile(&self, name: &str, loads: &Loads, table: &str, base: &str, from: &str) -> Result<String, FitError> {
        let own = Profile::parse(base, from)?;
        let DeviceSpec::Flash(spec) = &own.device else { return Err(FitError::NotFlash(own.name)) };
        let malformed = |message: String| ProfileError::Malformed { from: from.into(), message };
        let mut document: DocumentMut = base.parse().map_err(|e: toml_edit::TomlError| malformed(e.to_string()))?;
        let sources = loads.sources();
        document["name"] = value(name);
        let device = table.strip_suffix(".csv").unwrap_or(table);
        document["title"] = value(format!(
            "{device}: prices fitted to the watts of {} loads; size, chips and times of requests are those of {}",
            loads.0.len(),
            own.name
        ));
        let on = format!("{sources}: {} loads of {table}, differences of {:.1} %", loads.0.len(), self.rms);
        document["calibrated_on"] = value([on].into_iter().collect::<Value>());
        let else_ = format!("nothing that was compared: chips, and times of requests, are those of {}", own.name);
        document["predicts"] = value([else_].into_iter().collect::<Value>());
        let fit = |price: Price, factor: f64, unit: &str, why: &str| {
            let range = price.range.map(|(low, high)| (low * factor, high * factor));
            number(price.value * factor, unit, "fitted", range, &format!("fit to {table}{why}"))
        };
        let [work, request, read, write] = self.prices;
        let device = document["device"].as_table_mut().ok_or_else(|| malformed("device is no table".into()))?;
        let rest = self.rest.unwrap_or(0.0);
        let awake = Price { value: rest + work.value, range: work.range.map(|(low, high)| (rest + low, rest + high)) };
        // One number, so with one source: between requests that come one after the other it draws what it draws at work.
        let awake = fit(awake, 1.0, "W", ": what does not depend on the load");
        device["busy"] = awake.clone();
        device["ready"] = match self.rest {
            Some(_) => awake,
            None => {
                let why = "rest was not measured: at most what it draws at work whatever the load";
                number(work.value, "W", "assumed", Some((0.0, work.value)), why)
            }
        };
        self.put_to_rest(device, table, spec.idle.last().map(|state| state.name.as_str()));
        for (way, price) in [("read", read), ("write", write)] {
            let chip = if way == "read" { "read" } else { "program" };
            let share = match way {
                "read" => spec.nand.read_energy.as_written(),
                _ => spec.nand.program_energy.as_written(),
            };
            let fastest = |load: &&Load| matches!((way, load.way), ("read", Way::Read) | ("write", Way::Write));
            let rate = loads.0.iter().filter(fastest).map(Load::rate).fold(0.0, f64::max);
            if rate == 0.0 {
                continue;
            }
            let share = share.min(price.value * 1e3 / 2.0);
            let left = Price {
                value: price.value - share / 1e3,
                range: price.range.map(|(low, high)| ((low - share / 1e3).max(0.0), high - share / 1e3)),
            };
            device["nand"][format!("{chip}_energy")] = number(
                share,
                "mJ/MB",
                "assumed",
                Some((share, share)),
                "a share of the fitted price of a byte, at most half",
            );
            device["link"][format!("{way}_energy")] = fit(left, 1e3, "mJ/MB", ": a byte, less the share of flash");
            device["link"][way] =
                number(1e3 / rate, "ms/MB", "measured", None, &format!("the fastest load of {table}"));
        }
        device["link"]["request_energy"] = fit(request, 1e6, "uJ", ": a request");
        let text = document.to_string();
        Profile::parse(&text, name)?;
        Ok(text)
    }

    /// The states in which it waits: rest is one, since a drive that has just worked draws more.
    fn put_to_rest(&self, device: &mut Table, table: &str, deepest: Option<&str>) {
        let measured = |watts: f64| number(watts, "W", "measured", None, table);
        if self.sleep.is_none() {
            // How deep the base sleeps says nothing of this drive.
            device.remove("idle");
        }
        if let (Some(watts), Some(states)) = (self.sleep, device.get_mut("idle").and_then(Item::as_array_of_tables_mut))
        {
            for state in states.iter_mut().filter(|s| s.get("name").and_then(Item::as_str) == deepest) {
                state["power"] = measured(watts);
            }
        }
        let Some(watts) = self.rest else { return };
        let assumed = |amount: f64, unit: &str, why: &str| number(amount, unit, "assumed", None, why);
        let mut state = Table::new();
        state["name"] = value("rest");
        state["after"] =
            assumed(1.0, "ms", "not published; longer than pauses of a load, shorter than those of people");
        state["power"] = measured(watts);
        state["wake"] = assumed(0.0, "us", "not published");
        state["wake_energy"] = assumed(0.0, "uJ", "not published");
        let mut states = ArrayOfTables::new();
        states.push(state);
        let others = device.get("idle").and_then(Item::as_array_of_tables).cloned().unwrap_or_default();
        others.iter().for_each(|state| states.push(state.clone()));
        device["idle"] = Item::ArrayOfTables(states);
    }
}

fn number(amount: f64, unit: &str, confidence: &str, range: Option<(f64, f64)>, source: &str) -> Item {
    let digits = |n: f64| format!("{n:.3e}").parse().unwrap_or(n);
    let mut number = InlineTable::new();
    number.insert("value", digits(amount).into());
    number.insert("unit", unit.into());
    number.insert("confidence", confidence.into());
    if let Some((low, high)) = range {
        let limits = [digits(low).min(digits(amount)), digits(high).max(digits(amount))];
        number.insert("range", limits.into_iter().collect::<Value>());
    }
    number.insert("source", source.into());
    value(number)
}

/// Fails if reads or writes draw less the faster they are, or all less than rest, by more than measurements are off.
fn falling(loads: &Loads, rest: Option<f64>) -> Result<(), FitError> {
    let told = |rate: f64, watts: f64| format!("draws {watts:.2} W at {rate:.0} MB/s");
    for way in [Way::Read, Way::Write] {
        let mut own: Vec<&Load> = loads.0.iter().filter(|load| load.way == way).collect();
        own.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        let (Some(first), Some(last)) = (own.first(), own.last()) else { continue };
        let most = own.iter().max_by(|a, b| a.watts.total_cmp(&b.watts)).unwrap_or(last);
        let fall = |less_load: &str, more: String| FitError::Falling {
            less_load: less_load.to_owned(),
            more,
            more_load: last.load.clone(),
            less: told(last.rate(), last.watts),
        };
        if let Some(rest) = rest.filter(|rest| most.watts < rest * OFF) {
            return Err(fall("rest", told(0.0, rest)));
        }
        // The straight line through all of them.
        let n = own.len() as f64;
        let mean = |of: &dyn Fn(&Load) -> f64| own.iter().map(|load| of(load)).sum::<f64>() / n;
        let (rate, watts) = (mean(&|load| load.rate()), mean(&|load| load.watts));
        let spread = mean(&|load| (load.rate() - rate).powi(2));
        let slope = mean(&|load| (load.rate() - rate) * (load.watts - watts)) / spread;
        let at = |load: &Load| watts + slope * (load.rate() - rate);
        if spread > 0.0 && at(last) < at(first) * OFF {
            return Err(fall(&first.load, told(first.rate(), first.watts)));
        }
    }
    Ok(())
}

/// Least squares of the relative differences with these prices, the others being 0: the sum of squares, and the prices.
/// `None` if one is negative, or not determined.
fn solve(work: &[&Load], rest: f64, chosen: &[usize]) -> Option<(f64, [Price; 4])> {
    let rows = work.len();
    let weighted = DMatrix::from_fn(rows, chosen.len(), |row, n| columns(work[row])[chosen[n]] / work[row].watts);
    let target = DVector::from_fn(rows, |row, _| (work[row].watts - rest) / work[row].watts);
    // Columns of the same size, so that whether they are independent can be told.
    let sizes: Vec<f64> = weighted.column_iter().map(|column| column.norm()).collect();
    if rows < chosen.len() || sizes.contains(&0.0) {
        return None;
    }
    let scaled = DMatrix::from_fn(rows, chosen.len(), |row, n| weighted[(row, n)] / sizes[n]);
    let normal = scaled.transpose() * &scaled;
    if normal.symmetric_eigenvalues().min() < 1e-6 {
        return None;
    }
    let inverse = normal.try_inverse()?;
    let found = &inverse * scaled.transpose() * &target;
    if found.iter().any(|price| *price < 0.0) {
        return None;
    }
    let squares = (&target - &scaled * &found).norm_squared();
    let free = rows - chosen.len();
    let t = StudentsT::new(0.0, 1.0, free as f64).ok().map(|t| t.inverse_cdf(0.95));
    let spread = t.map_or(0.0, |t| t * (squares / free as f64).sqrt()).max(1.645 * LEAST);
    let mut prices = [Price::default(); 4];
    for (n, price) in chosen.iter().enumerate() {
        let value = found[n] / sizes[n];
        let half = spread * inverse[(n, n)].sqrt() / sizes[n];
        prices[*price] = Price { value, range: Some(((value - half).max(0.0), value + half)) };
    }
    Some((squares, prices))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "load,way,bytes,per_second,watts\n";

    fn fit(rows: &str) -> Result<Drive, String> {
        let loads = Loads::parse(&format!("{HEAD}{rows}"), "mine.csv").map_err(|e| e.to_string())?;
        Drive::fit(&loads).map_err(|e| e.to_string())
    }

    #[test]
    fn watts_that_fall_with_the_load_are_refused_by_the_names_of_the_loads() {
        let said = fit("slow,read,1048576,100,5\nmiddle,read,1048576,500,4\nfast,read,1048576,900,3\n").unwrap_err();
        let expected =
            "watts fall with the load: slow draws 5.00 W at 100 MB/s, fast draws 3.00 W at 900 MB/s; check the columns";
        assert!(said.starts_with(expected), "{said}");
        let said = fit("idle,idle,,,6\na,write,1048576,100,4\nb,write,1048576,200,4.5\n").unwrap_err();
        assert!(said.contains("rest draws 6.00 W at 0 MB/s, b draws 4.50 W at 200 MB/s"), "{said}");
        // As little as measurements are off is no fall.
        assert!(fit("a,read,1048576,100,5\nb,read,1048576,900,4.8\n").is_ok());
    }

    #[test]
    fn a_table_with_a_byte_order_mark_is_read_and_a_missing_column_is_named() {
        let rows = "a,read,1048576,100,4\nb,read,1048576,900,5\n";
        let marked = format!("\u{feff}{HEAD}{rows}");
        assert!(Loads::is_one(&marked));
        assert_eq!(Loads::parse(&marked, "mine.csv").unwrap().0.len(), 2);
        for column in ["load", "way", "bytes", "per_second", "watts"] {
            let text = format!("{}{rows}", HEAD.replace(column, "other"));
            let said = Loads::parse(&text, "mine.csv").unwrap_err().to_string();
            let expected =
                format!("mine.csv: no column {column}: a table of loads has load, way, bytes, per_second, watts");
            assert_eq!((Loads::is_one(&text), said), (true, expected));
        }
    }
}
