//! How is one line of Alumet's CSV output read, with the columns of the header?

/// The first columns of every file.
const FIRST: [&str; 7] =
    ["metric", "timestamp", "value", "resource_kind", "resource_id", "consumer_kind", "consumer_id"];
/// The last column: attributes added after the header was written, as `name=value,name=value`.
const LATE: &str = "__late_attributes";
/// Name of the whole machine.
const MACHINE: &str = "local_machine";

/// The columns of the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    delimiter: char,
    /// The columns after the first seven.
    attributes: Vec<String>,
}

/// A measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The metric, followed by the unit if Alumet is configured to write it.
    pub metric: String,
    /// Nanoseconds since 1970, wall clock.
    pub time: u64,
    /// The value.
    pub value: f64,
    /// The resource: kind and identifier.
    pub resource: (String, String),
    /// The consumer: kind and identifier.
    pub consumer: (String, String),
    /// Attributes that are not empty, by name.
    pub attributes: Vec<(String, String)>,
}

/// A measurement of energy or power.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Energy since the previous measurement.
    Joules(f64),
    /// Power.
    Watts(f64),
}

/// The fields of a line; a field that contains the delimiter or a quote is quoted.
fn fields(line: &str, delimiter: char) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let mut rest = line;
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut field = String::new();
            let mut inside = quoted;
            loop {
                let end = inside.find('"')?;
                field.push_str(&inside[..end]);
                inside = &inside[end + 1..];
                match inside.strip_prefix('"') {
                    Some(more) => {
                        field.push('"');
                        inside = more;
                    }
                    None => break,
                }
            }
            all.push(field);
            match inside.strip_prefix(delimiter) {
                Some(more) => rest = more,
                None => return inside.is_empty().then_some(all),
            }
        } else {
            match rest.split_once(delimiter) {
                Some((field, more)) => {
                    all.push(field.to_owned());
                    rest = more;
                }
                None => {
                    all.push(rest.to_owned());
                    return Some(all);
                }
            }
        }
    }
}

/// Late attributes; a backslash escapes a comma in a value.
fn late(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut part = String::new();
    let mut chars = text.chars().peekable();
    let mut end = |part: &mut String| {
        if let Some((name, value)) = part.split_once('=') {
            all.push((name.to_owned(), value.to_owned()));
        }
        part.clear();
    };
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek().is_some_and(|next| matches!(next, ',' | '=')) => part.extend(chars.next()),
            ',' => end(&mut part),
            c => part.push(c),
        }
    }
    end(&mut part);
    all
}

/// Days from 1970-01-01 to a Gregorian date; `None` for an invalid date.
fn days(year: i64, month: u64, day: u64) -> Option<i64> {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    let before = BEFORE.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let length = BEFORE.get(month as usize).copied().unwrap_or(365) - before + u64::from(month == 2 && leap(year));
    if !(1..=length).contains(&day) {
        return None;
    }
    // Leap years before this year.
    let leaps = |y: i64| y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    let of_years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    Some(of_years + (before + day - 1 + u64::from(month > 2 && leap(year))) as i64)
}

/// Nanoseconds since 1970 of an RFC 3339 time; `None` before 1970 and after 2554.
pub fn time(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let digits = text.get(range)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, what: &[u8]| text.as_bytes().get(at).is_some_and(|b| what.contains(b));
    let all = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !all || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        let nine: String = fraction[..digits].chars().chain("000000000".chars()).take(9).collect();
        nanos = nine.parse().ok()?;
        rest = &fraction[digits..];
    }
    let east = match rest.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (rest.get(1..3)?.parse::<i64>().ok()?, rest.get(4..6)?.parse::<i64>().ok()?);
            let seconds = hours * 3600 + minutes * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let seconds = days(year as i64, month, day)? * 86_400 + (hour * 3600 + minute * 60 + second) as i64 - east;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

impl Columns {
    /// Parses the header; `None` if it is not Alumet's.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let delimiter = line.strip_prefix(FIRST[0])?.chars().next()?;
        if delimiter.is_alphanumeric() || matches!(delimiter, '"' | '_') {
            return None;
        }
        let all = fields(line, delimiter)?;
        let (first, attributes) = all.split_at_checked(FIRST.len())?;
        (first == FIRST).then(|| Columns { delimiter, attributes: attributes.to_vec() })
    }

    /// Parses a line.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn row(&self, line: &str) -> Result<Row, String> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let all = fields(line, self.delimiter).ok_or("a quote without end")?;
        let has = FIRST.len() + self.attributes.len();
        if all.len() != has {
            return Err(format!("{} values, where the header names {has}", all.len()));
        }
        let mut all = all.into_iter();
        let mut field = || all.next().unwrap_or_default();
        let (metric, timestamp, value) = (field(), field(), field());
        let time = time(&timestamp).ok_or_else(|| format!("timestamp is {timestamp:?}"))?;
        let value = value.parse().map_err(|_| format!("value is {value:?}"))?;
        let (resource, consumer) = ((field(), field()), (field(), field()));
        let mut attributes = Vec::new();
        for (name, value) in self.attributes.iter().zip(all) {
            match (name.as_str(), value.is_empty()) {
                (_, true) => {}
                (LATE, _) => attributes.extend(late(&value)),
                _ => attributes.push((name.clone(), value)),
            }
        }
        attributes.sort();
        Ok(Row { metric, time, value, resource, consumer, attributes })
    }
}

/// The factor to joules or watts of a metric's unit; `true` for joules.
fn unit(metric: &str) -> Option<(bool, f64)> {
    const SCALES: [(&str, f64); 13] = [
        ("nano", 1e-9),
        ("micro", 1e-6),
        ("milli", 1e-3),
        ("kilo", 1e3),
        ("mega", 1e6),
        ("giga", 1e9),
        ("n", 1e-9),
        ("μ", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("", 1.0),
    ];
    let (_, text) = metric.rsplit_once('_')?;
    for (base, is_joules, factor) in [("Wh", true, 3600.0), ("W.h", true, 3600.0), ("J", true, 1.0), ("W", false, 1.0)]
    {
        if let Some(prefix) = text.strip_suffix(base)
            && let Some((_, scale)) = SCALES.iter().find(|(name, _)| *name == prefix)
        {
            return Some((is_joules, factor * scale));
        }
    }
    None
}

impl Row {
    /// The energy or power measured. Without a unit, the names in Alumet's own plugins decide.
    pub fn amount(&self) -> Option<Amount> {
        let (is_joules, factor) = match self.metric.as_str() {
            "rapl_consumed_energy" | "estimated_consumed_energy" | "attributed_energy" => (true, 1.0),
            "disk_power" => (false, 1.0),
            metric => unit(metric)?,
        };
        let value = self.value * factor;
        Some(if is_joules { Amount::Joules(value) } else { Amount::Watts(value) })
    }

    /// The process that used the resource.
    pub fn process(&self) -> Option<u32> {
        (self.consumer.0 == "process").then(|| self.consumer.1.parse().ok())?
    }

    /// The channel's name: the metric, then resource, consumer and attributes unless they mean the whole machine.
    pub fn channel(&self) -> String {
        let mut name = self.metric.clone();
        for (kind, id) in [&self.resource, &self.consumer] {
            if kind != MACHINE {
                name += &format!(" {kind}");
                if !id.is_empty() {
                    name += &format!(":{id}");
                }
            }
        }
        self.attributes.iter().for_each(|(attribute, value)| name += &format!(" {attribute}={value}"));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_calendar() {
        assert_eq!(time("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(time("2000-03-01T00:00:00Z"), Some(951_868_800_000_000_000));
        assert_eq!(time("2026-11-24T05:46:09.63960024Z"), Some(1_795_499_169_639_600_240));
        assert_eq!(time("2024-02-29T23:59:59.5+01:00"), Some(1_709_247_599_500_000_000));
        assert_eq!(time("2100-12-31T00:00:00Z"), Some(4_133_894_400_000_000_000));
        for wrong in ["2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-01-01T00:00:00", "1969-12-31T23:59:59Z", ""]
        {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn units_are_scaled_and_other_metrics_are_no_energy() {
        let close = |metric: &str, is: Option<(bool, f64)>| match (unit(metric), is) {
            (Some((a, x)), Some((b, y))) => assert!(a == b && (x / y - 1.0).abs() < 1e-12, "{metric}"),
            (a, b) => assert_eq!(a, b, "{metric}"),
        };
        close("rapl_consumed_energy_J", Some((true, 1.0)));
        close("nvml_energy_consumption_mJ", Some((true, 1e-3)));
        close("nvml_energy_consumption_milliJ", Some((true, 1e-3)));
        close("grid_Wh", Some((true, 3600.0)));
        close("grid_kiloW.h", Some((true, 3.6e6)));
        close("input_power_μW", Some((false, 1e-6)));
        close("cpu_time_delta_ns", None);
        close("cpu_percent_%", None);
        close("J", None);
    }

    #[test]
    fn values_in_quotes_and_late_attributes_are_read() {
        let header =
            "metric,timestamp,value,resource_kind,resource_id,consumer_kind,consumer_id,name,__late_attributes";
        let columns = Columns::parse(header).unwrap();
        let line = "x_J,1970-01-01T00:00:01Z,2,local_machine,,cgroup,\"a,\"\"b\"\"\",,\"kind=user,of=c\\,d\"";
        let row = columns.row(line).unwrap();
        assert_eq!((row.time, row.amount(), row.process()), (1_000_000_000, Some(Amount::Joules(2.0)), None));
        assert_eq!(row.channel(), "x_J cgroup:a,\"b\" kind=user of=c,d");
        assert!(columns.row(&line[..line.len() - 1]).is_err() && columns.row("x_J,1").is_err());
        assert!(Columns::parse("metric;value").is_none() && Columns::parse("metrics;timestamp").is_none());
    }
}
