//! The result of a guest.
//!
//! Whether the volume was mounted, the script's output and its files in `$OUT`, the kernel's log, and how it ended.

use std::io;
use std::path::Path;

use super::Ending;

/// How a run actually ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The kernel halted (or panicked) by itself.
    Halted,
    /// It was killed as requested.
    Cut,
    /// It was killed at the time limit.
    TimedOut,
}

/// One line of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// 0 (emergency) to 7 (debug); 4 is a warning.
    pub level: u8,
    /// Without level and time.
    pub text: String,
}

/// The result of a run.
#[derive(Debug)]
pub struct KernelRun {
    /// Whether the image could be mounted.
    pub mounted: bool,
    /// The error of `mount`, if it failed.
    pub mount_error: String,
    /// The script's exit code; `None` if it did not finish.
    pub script: Option<i32>,
    /// The script's standard output and standard error.
    pub stdout: String,
    /// Whether the volume was unmounted.
    pub unmounted: bool,
    /// How the kernel ended.
    pub ended: Ended,
    /// The kernel's log. After a cut, up to the script's end; empty if the script itself was cut.
    pub log: Vec<LogLine>,
    /// The console: errors printed while booting, panics.
    pub console: String,
    ending: Ending,
    out: tempfile::TempDir,
}

impl KernelRun {
    pub(super) fn collect(out: tempfile::TempDir, ended: Ended, ending: Ending) -> Self {
        let read = |name: &str| {
            let bytes = std::fs::read(out.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        KernelRun {
            mounted: out.path().join("mounted").exists(),
            mount_error: read("mount-error"),
            script: read("status").trim().parse().ok(),
            stdout: read("stdout"),
            unmounted: out.path().join("unmounted").exists(),
            ended,
            log: read("log").lines().filter_map(log_line).collect(),
            console: read("console"),
            ending,
            out,
        }
    }

    /// The script's output as bytes.
    ///
    /// # Errors
    /// The host's error while reading it.
    pub fn printed(&self) -> io::Result<Vec<u8>> {
        std::fs::read(self.out.path().join("stdout"))
    }

    /// The host's side of `$OUT`; removed when this value is dropped.
    pub fn out(&self) -> &Path {
        self.out.path()
    }

    /// True if everything went as requested: mounted, the script successful (unless it was to be cut), the requested
    /// ending.
    pub fn ok(&self) -> bool {
        self.mounted
            && match self.ending {
                Ending::Unmount => self.script == Some(0) && self.unmounted && self.ended == Ended::Halted,
                Ending::Cut => matches!(self.script, Some(0) | None) && self.ended == Ended::Cut,
                Ending::CutAfter(_) => self.ended == Ended::Cut,
            }
    }

    /// F2FS messages in the kernel's log, oldest first, without times.
    pub fn f2fs_log(&self) -> Vec<&LogLine> {
        self.log.iter().filter(|line| line.text.contains("F2FS-fs")).collect()
    }

    /// Lines of log and console that report problems: F2FS warnings and errors, I/O errors, oopses.
    pub fn complaints(&self) -> Vec<&str> {
        let trouble = |text: &str| {
            ["WARNING: ", "BUG: ", "Kernel panic", "I/O error", "blocked for more than", "Oops"]
                .iter()
                .any(|mark| text.contains(mark))
        };
        let logged = self
            .log
            .iter()
            .filter(|line| line.level <= 4 && line.text.contains("F2FS-fs") || trouble(&line.text))
            .map(|line| line.text.as_str());
        let shown = self.console.lines().filter(|line| trouble(line));
        logged.chain(shown).collect()
    }

    /// Asserts [`ok`](Self::ok).
    ///
    /// # Panics
    /// With everything known about the run if not.
    #[track_caller]
    pub fn expect_ok(self) -> Self {
        assert!(self.ok(), "the kernel's run failed:\n{}", self.describe());
        self
    }

    /// Asserts that the kernel reported no problem with the volume.
    ///
    /// # Panics
    /// With its complaints if it did.
    #[track_caller]
    pub fn assert_no_f2fs_complaints(&self) {
        let complaints = self.complaints();
        assert!(complaints.is_empty(), "the kernel complains:\n{}\n{}", complaints.join("\n"), self.describe());
    }

    /// The run in words: failures, the script's output, the end of the logs.
    pub fn describe(&self) -> String {
        let tail = |text: &str, most: usize| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(most)..].join("\n")
        };
        let log: Vec<&str> = self.f2fs_log().iter().map(|l| l.text.as_str()).collect();
        format!(
            "asked for {:?}, ended {:?}, mounted {} {}, script {:?}, unmounted {}\n\
             ---- script's output ----\n{}\n---- f2fs in the log ----\n{}\n---- console ----\n{}",
            self.ending,
            self.ended,
            self.mounted,
            self.mount_error.trim(),
            self.script,
            self.unmounted,
            tail(&self.stdout, 60),
            tail(&log.join("\n"), 40),
            tail(&self.console, 30),
        )
    }
}

/// Parses `<level>[seconds] text`, where the level has the facility in its upper bits.
fn log_line(line: &str) -> Option<LogLine> {
    let (level, rest) = line.strip_prefix('<')?.split_once('>')?;
    let level = u8::try_from(level.parse::<u32>().ok()? & 7).ok()?;
    let text = rest.split_once("] ").map_or(rest, |(_, text)| text).to_string();
    Some(LogLine { level, text })
}
