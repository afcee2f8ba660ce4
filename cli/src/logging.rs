//! Where do the messages of a mount go?
//!
//! In the foreground to standard error; in the background to the system log, as datagrams to `/dev/log`, where journald
//! and every syslogd listen. With `-o log=FILE` they also go to FILE, which is opened for each line, so that it may be
//! rotated at any time.
//!
//! A line has no control characters, whatever names or errors it contains. A repeating fault does not fill a disk: in
//! each [`SPAN`], lines beyond [`MOST`] are dropped, and their number is logged.
#![allow(clippy::disallowed_methods, reason = "a log has the time of this machine")]

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Metadata, Record};
use parking_lot::Mutex;

use crate::output;

/// The system log's socket.
const SYSTEM: &str = "/dev/log";
/// syslog's daemon facility, as the upper bits of a priority.
const DAEMON: u8 = 3 << 3;
/// Maximum number of lines per [`SPAN`].
const MOST: u32 = 100;
/// The period of [`MOST`].
const SPAN: Duration = Duration::from_secs(10);
/// Maximum number of characters per line; longer lines are cut.
const LONGEST: usize = 4000;

/// The log of this process.
static LOG: OnceLock<Log> = OnceLock::new();

/// Where messages go.
pub struct Log {
    system: Option<UnixDatagram>,
    file: Option<PathBuf>,
    stderr: bool,
    flood: Mutex<Flood>,
}

impl Log {
    /// Starts logging: in the background to the system log, otherwise to standard error; also to the file, if one is
    /// given by its absolute path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(background: bool, file: Option<PathBuf>) -> io::Result<()> {
        if let Some(file) = &file {
            OpenOptions::new().append(true).create(true).open(file)?;
        }
        // The system log is optional. Its reader must not block a mount.
        let system = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).ok();
        let system = system.filter(|_| background);
        let log = Log { system, file, stderr: !background, flood: Mutex::new(Flood::new(Instant::now())) };
        if log::set_logger(LOG.get_or_init(|| log)).is_ok() {
            log::set_max_level(LevelFilter::Info);
        }
        if background {
            std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
        }
        Ok(())
    }

    fn write(&self, level: Level, text: &str) {
        let text: String = output::plain(text).chars().take(LONGEST).collect();
        if self.stderr && level <= Level::Warn {
            eprintln!("joulefs: {text}");
        }
        let process = std::process::id();
        if let Some(system) = &self.system {
            // The receiver adds the time. If there is no receiver, the message is dropped.
            let _ =
                system.send_to(format!("<{}>joulefs[{process}]: {text}", DAEMON + severity(level)).as_bytes(), SYSTEM);
        }
        if let Some(file) = &self.file {
            let line = format!("{} joulefs[{process}] {level}: {text}\n", utc(SystemTime::now()));
            let open = OpenOptions::new().append(true).create(true).open(file);
            // A failing log cannot be reported anywhere.
            let _ = open.and_then(|mut file| file.write_all(line.as_bytes()));
        }
    }
}

impl log::Log for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // From libraries, only errors matter.
        let most = if metadata.target().starts_with("joulefs") { Level::Info } else { Level::Error };
        metadata.level() <= most
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let admitted = self.flood.lock().admit(Instant::now());
        let Some(left_out) = admitted else { return };
        if left_out > 0 {
            self.write(Level::Warn, &format!("{left_out} messages before this one were dropped"));
        }
        self.write(record.level(), &record.args().to_string());
    }

    fn flush(&self) {}
}

/// Rate limiter.
struct Flood {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Flood {
    fn new(now: Instant) -> Self {
        Flood { since: now, lines: 0, left_out: 0 }
    }

    /// The number of lines dropped before this one if it is written; `None` if it is dropped too.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= SPAN {
            (self.since, self.lines) = (now, 0);
        }
        self.lines += 1;
        if self.lines > MOST {
            self.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

/// syslog's severity of a level.
fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// A time as `2026-11-28T05:02:42Z`.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last day of a year; eras have 400 years.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let begin = Instant::now();
        let mut flood = Flood::new(begin);
        let admitted = (0..250).filter(|_| flood.admit(begin).is_some()).count();
        assert_eq!(admitted, 100);
        assert_eq!(flood.admit(begin + SPAN), Some(150));
        assert_eq!(flood.admit(begin + SPAN), Some(0));
    }

    #[test]
    fn a_line_holds_no_control_characters_and_ends_somewhere() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let flood = Mutex::new(Flood::new(Instant::now()));
        let log = Log { system: None, file: Some(file.clone()), stderr: false, flood };
        log.write(Level::Error, "a\nb\x1b[2Jc\td\u{9b}");
        log.write(Level::Info, &"é".repeat(LONGEST + 9));
        let text = std::fs::read_to_string(file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines.iter().all(|line| line.chars().all(|c| !c.is_control())), "{text:?}");
        assert!(lines[0].contains(" ERROR: a") && lines[0].contains("[2Jc"), "{text:?}");
        assert_eq!(lines[1].matches('é').count(), LONGEST);
    }
}
