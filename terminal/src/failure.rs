//! How does a command fail? With one line for a person, and an exit code that separates usage errors from other
//! failures.
//!
//! Failures have three sources: clap rejects the command line, the command rejects it for reasons that clap cannot
//! check, or something fails later.

use std::fmt;

use clap::error::ErrorKind;
use device::energy::profile::ProfileError;
use sim::aging::AgeError;
use sim::replay;

use crate::meant;

/// A failure in one line.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong. Nothing was done; running it again fails the same way.
    Usage(String),
    /// The command line is right, and the command failed.
    Failed(String),
}

/// Error messages of Rust's number parsers, and their replacements.
const ACCEPTED: [(&str, &str); 4] = [
    ("invalid digit found in string", "not a whole number"),
    ("number too large to fit in target type", "too large a number"),
    ("number would be zero for non-zero type", "must be 1 or more"),
    ("invalid float literal", "not a number"),
];

impl Failure {
    /// A command-line error.
    pub fn usage(text: impl fmt::Display) -> Self {
        Self::Usage(text.to_string())
    }

    /// Clap's message without its help.
    pub fn of_clap(e: &clap::Error) -> Self {
        let text = e.to_string();
        let parts = text.trim_start_matches("error: ").split("\n\n").map(one_line);
        let parts = parts.filter(|p| !p.is_empty() && !p.starts_with("For more information"));
        let text = parts.collect::<Vec<_>>().join("; ").replace("; Usage: ", "; usage: ");
        Self::Usage(ACCEPTED.iter().fold(text, |text, (said, meant)| text.replace(said, meant)))
    }

    /// Like [`of_clap`](Self::of_clap), but for `--help` and `--version` prints the text and ends the process.
    pub fn of_clap_or_help(e: &clap::Error) -> Self {
        if !e.use_stderr() || e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            e.exit();
        }
        Self::of_clap(e)
    }

    /// Prefixes the message with the name of the option or file.
    pub fn named(self, what: impl fmt::Display) -> Self {
        match self {
            Self::Usage(text) => Self::Usage(format!("{what}: {text}")),
            Self::Failed(text) => Self::Failed(format!("{what}: {text}")),
        }
    }

    /// The same message as a command-line error.
    pub fn into_usage(self) -> Self {
        match self {
            Self::Usage(text) | Self::Failed(text) => Self::Usage(text),
        }
    }

    /// The message for the user.
    pub fn text(&self) -> &str {
        match self {
            Self::Usage(text) | Self::Failed(text) => text,
        }
    }

    /// The exit code of the process.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
        }
    }
}

/// Reduces a text to one line. A parser's multi-line drawing of the position is dropped: line and column precede it.
pub fn one_line(text: &str) -> String {
    let drawn = |line: &str| line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().starts_with('|');
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !drawn(line));
    let mut out = String::new();
    for line in lines {
        let after = if out.is_empty() { "" } else { " " };
        let parsed = line.find("parse error at line ").is_some();
        out += &format!("{after}{line}{}", if parsed { ":" } else { "" });
    }
    out
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Failed(one_line(&text))
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Failed(text.into())
    }
}

impl From<ProfileError> for Failure {
    fn from(e: ProfileError) -> Self {
        match e {
            ProfileError::Unknown { ref name, ref known } => {
                let tip = meant::tip_of_list(name, known);
                Self::usage(format!("{e}{tip}"))
            }
            _ => e.to_string().into(),
        }
    }
}

impl From<AgeError> for Failure {
    fn from(e: AgeError) -> Self {
        match e {
            AgeError::Unknown { ref name, ref known } => {
                let tip = meant::tip_of_list(name, known);
                Self::usage(format!("{e}{tip}"))
            }
            _ => e.to_string().into(),
        }
    }
}

impl From<replay::Error> for Failure {
    fn from(e: replay::Error) -> Self {
        match e {
            replay::Error::Profile(e) => e.into(),
            replay::Error::Recipe(e) => e.into(),
            replay::Error::Named { what, error } => Self::from(*error).named(what),
            e if e.is_of_settings() => Self::usage(e),
            e => e.to_string().into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsers_drawing_becomes_one_line() {
        let e = "x = 1\ny 2 | 3".parse::<toml::Table>().unwrap_err();
        assert!(e.to_string().lines().count() > 3, "nothing is drawn any more: {e}");
        let text = Failure::from(format!("plan.toml: {e}")).text().to_owned();
        assert!(text.starts_with("plan.toml: TOML parse error at line 2, column 3: "), "{text}");
        assert!(!text.contains('|') && !text.contains('^'), "{text}");
    }
}
