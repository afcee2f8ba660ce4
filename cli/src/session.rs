//! How is a recording read, and which part of it does a command use?

use std::path::PathBuf;

use sim::replay::opening::Part;
use trace::session::Span;
use trace::{Columns, Options};

use crate::Failure;

/// How a recording is read.
#[derive(Debug, Clone, Default, clap::Args)]
struct ReadArgs {
    /// Read a table with one request per line, by its columns, e.g. time=1:us,op=2,offset=3:sector,bytes=4. Columns
    /// count from 1. Units: s, ms, us, 100ns, ns or datetime for time (default: s); byte, sector, KiB or block for offset
    /// and bytes (default: byte). op has read, write, discard or flush, their first letters, 0 (read) and 1 (write), or
    /// texts of its own: op=2:rd=read:wr=write; op=read if all are. Optional: took (duration), device, host, pid,
    /// process, and end=5:ms instead of time. Separated by commas, semicolons, tabs or spaces; a header is skipped.
    #[arg(long, value_name = "COLUMNS")]
    columns: Option<Columns>,
    /// Stop at the first invalid line. By default up to 5 invalid lines are skipped, in a long recording up to 1 % of its
    /// lines; their number and the first one are printed.
    #[arg(long)]
    strict: bool,
    /// Further files of the recording.
    #[arg(skip)]
    further: Vec<PathBuf>,
}

/// A part of a recording.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SessionArgs {
    /// Skip everything before this time, counted from the start of the recording, e.g. 90s, 5m, 1h30m, 2d.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Skip everything from this time on, counted from the start of the recording.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Shorten longer pauses without events to this time, so that rates and idle energy are those of the time in use.
    /// The number of pauses and their total time are printed.
    #[arg(long, value_name = "TIME")]
    max_gap: Option<String>,
    /// The option for the end is called otherwise.
    #[arg(skip)]
    until: bool,
    #[command(flatten)]
    read: ReadArgs,
}

/// The same where `--to` says something else.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct UntilArgs {
    /// Skip everything before this time, counted from the start of the recording, e.g. 90s, 5m, 1h30m, 2d.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Skip everything from this time on, counted from the start of the recording.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Shorten longer pauses without events to this time.
    #[arg(long, value_name = "TIME")]
    max_gap: Option<String>,
    #[command(flatten)]
    read: ReadArgs,
}

impl UntilArgs {
    /// The same as other commands name it.
    pub fn session(&self) -> SessionArgs {
        let UntilArgs { from, until, max_gap, read } = self.clone();
        SessionArgs { from, to: until, max_gap, until: true, read }
    }
}

impl SessionArgs {
    /// The same for a recording with further files.
    pub fn with(&self, further: &[PathBuf]) -> SessionArgs {
        let mut all = self.clone();
        all.read.further = further.to_vec();
        all
    }

    fn end(&self) -> &'static str {
        if self.until { "--until" } else { "--to" }
    }

    /// The requested part.
    pub fn part(&self) -> Result<Part, Failure> {
        let of = |option: &str, text: &Option<String>| text.as_deref().map(|t| time(option, t)).transpose();
        let (from, to) = (of("--from", &self.from)?.unwrap_or(0), of(self.end(), &self.to)?);
        if to.is_some_and(|to| to <= from) {
            return Err(Failure::usage(format!("{}: must be after --from", self.end())));
        }
        let span = Span { from, to, max_gap: of("--max-gap", &self.max_gap)? };
        let ReadArgs { columns, strict, further } = self.read.clone();
        Ok(Part { span, option: self.given(), read: Options { strict, columns, further } })
    }

    /// The first option given.
    pub fn given(&self) -> Option<&'static str> {
        let all = [("--from", &self.from), (self.end(), &self.to), ("--max-gap", &self.max_gap)];
        all.into_iter().find(|(_, value)| value.is_some()).map(|(name, _)| name)
    }
}

/// Nanoseconds of `1h30m`, `90s`, `1.5s`, `250ms`; a plain number means seconds.
fn time(option: &str, text: &str) -> Result<u64, Failure> {
    parse(text).ok_or_else(|| Failure::usage(format!("{option} {text}: not a time; give e.g. 90s, 5m or 1h30m")))
}

fn parse(text: &str) -> Option<u64> {
    let (mut rest, mut sum, mut last) = (text.trim(), 0.0_f64, f64::INFINITY);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let unit = rest[number..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |n| number + n);
        let seconds = match &rest[number..unit] {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" | "min" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            "ns" => 1e-9,
            "" if last.is_infinite() => 1.0,
            _ => return None,
        };
        // Larger units first, each once: anything else is probably a typo.
        if seconds >= last {
            return None;
        }
        sum += rest[..number].parse::<f64>().ok()? * seconds;
        (rest, last) = (&rest[unit..], seconds);
    }
    let ns = (sum * 1e9).round();
    (ns < u64::MAX as f64).then_some(ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_write_them() {
        const S: u64 = 1_000_000_000;
        for (text, ns) in [
            ("90s", 90 * S),
            ("5m", 300 * S),
            ("1h30m", 5400 * S),
            ("60d", 60 * 86_400 * S),
            ("1.5s", 3 * S / 2),
            ("250ms", S / 4),
            ("1m0.5s", 60 * S + S / 2),
            ("12", 12 * S),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Some(ns), "{text}");
        }
        for text in ["", "s", "5x", "-1s", "1s1s", "1s5m", "5m3", ".", "1e9s", "99999999999d"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
