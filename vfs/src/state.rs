//! Health of a mounted volume: can it make changes durable, and how old is its durable state?
//!
//! A file system adds these lines to its [`report`](crate::FileSystem::report); `joulefs ctl`, `joulefs unmount`
//! and the metrics read them from it.

/// The line with `ok` or `failed`. It is the only mandatory one.
pub const STATE: &str = "state";
/// Value of [`STATE`] for a volume that accepts changes.
pub const OK: &str = "ok";
/// Value of [`STATE`] after a failed checkpoint, until one succeeds.
pub const FAILED: &str = "failed";
/// The reason in words; present only after a failure.
pub const REASON: &str = "state_reason";
/// The version of the last durable checkpoint.
pub const CHECKPOINT: &str = "durable_checkpoint";
/// Seconds since the last checkpoint became durable, or since the mount.
pub const AGE: &str = "durable_age_s";

/// The state in these lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Why the last checkpoint failed, if it did.
    pub failed: Option<String>,
    /// The version of the last durable checkpoint.
    pub checkpoint: Option<u64>,
    /// Seconds since then, or since the mount.
    pub age_s: Option<u64>,
}

impl State {
    /// The lines of a report. A reason with a newline would break its line.
    pub fn lines(&self) -> Vec<(String, String)> {
        let state = if self.failed.is_some() { FAILED } else { OK };
        let mut lines = vec![(STATE.to_owned(), state.to_owned())];
        lines.extend(self.failed.as_ref().map(|why| (REASON.to_owned(), why.replace('\n', " "))));
        let numbers = [(CHECKPOINT, self.checkpoint), (AGE, self.age_s)];
        lines.extend(numbers.into_iter().filter_map(|(name, n)| Some((name.to_owned(), n?.to_string()))));
        lines
    }

    /// Parses a report; `None` if it has no such lines.
    pub fn of_report(report: &[(String, String)]) -> Option<State> {
        let line = |wanted: &str| report.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let number = |wanted: &str| line(wanted).and_then(|value| value.parse().ok());
        let why = || Some(line(REASON).unwrap_or("an earlier write failed").to_owned());
        let failed = if line(STATE)? == OK { None } else { why() };
        Some(State { failed, checkpoint: number(CHECKPOINT), age_s: number(AGE) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_was_put_into_it() {
        let ok = State { failed: None, checkpoint: Some(17), age_s: Some(3) };
        let failed = State { failed: Some("no space\nleft".to_owned()), checkpoint: None, age_s: Some(95) };
        assert_eq!(State::of_report(&ok.lines()), Some(ok.clone()));
        let read = State::of_report(&failed.lines()).unwrap();
        assert_eq!(read, State { failed: Some("no space left".to_owned()), ..failed });
        assert_eq!(State::of_report(&[("gc".to_owned(), "atgc".to_owned())]), None);
        assert_eq!(ok.lines()[0], ("state".to_owned(), "ok".to_owned()));
    }
}
