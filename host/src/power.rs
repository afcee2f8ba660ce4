//! Is this machine on external power?
//!
//! Linux reports it in `/sys/class/power_supply`. An external supply (mains, USB, wireless) that is online, or a
//! battery that is charging or full, means powered; a machine without a battery is powered as well. Deliberately left
//! out: how a file system reacts.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use vfs::FileSystem;
use victim::Power;

/// The directory of Linux's power supplies.
pub const SUPPLIES: &str = "/sys/class/power_supply";

/// True on external power. Unreadable attributes count as absent.
pub fn is_powered(supplies: &Path) -> bool {
    let mut battery_in_use = false;
    let Ok(entries) = fs::read_dir(supplies) else { return true };
    for entry in entries.flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default().trim().to_owned();
        // Batteries of peripherals such as mice and pens.
        if read("scope") == "Device" {
            continue;
        }
        match read("type").as_str() {
            "Battery" => match read("status").as_str() {
                "Charging" | "Full" => return true,
                _ => battery_in_use = true,
            },
            "UPS" | "" => {}
            _ if read("online") != "0" => return true,
            _ => {}
        }
    }
    !battery_in_use
}

/// The current power source.
pub fn now() -> Power {
    if is_powered(Path::new(SUPPLIES)) { Power::Powered } else { Power::Battery }
}

/// Notifies a mounted file system when the power source changes, until dropped.
pub struct Watch {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watch {
    /// Polling interval.
    const EVERY: Duration = Duration::from_secs(10);

    /// Starts watching. If no thread can be started, the source at mount time stays. `warn` receives errors from the
    /// file system.
    pub fn start(fs: Arc<dyn FileSystem>, warn: fn(&str)) -> Watch {
        let (stop, stopped) = mpsc::channel::<()>();
        let watch = move || {
            let mut last = None;
            while stopped.recv_timeout(Self::EVERY) == Err(RecvTimeoutError::Timeout) {
                let source = now();
                if last != Some(source) {
                    if let Err(why) = fs.tune("power", source.name()) {
                        warn(&format!("power {why}"));
                    }
                    last = Some(source);
                }
            }
        };
        let thread = thread::Builder::new().name("power".to_owned()).spawn(watch);
        Watch { thread: thread.ok().map(|t| (stop, t)) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // A panic in the thread has been printed; there is nothing to undo.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(supplies: &[(&str, &[(&str, &str)])]) -> bool {
        let dir = tempfile::tempdir().unwrap();
        for (name, files) in supplies {
            fs::create_dir(dir.path().join(name)).unwrap();
            for (file, text) in *files {
                fs::write(dir.path().join(name).join(file), format!("{text}\n")).unwrap();
            }
        }
        is_powered(dir.path())
    }

    #[test]
    fn a_discharging_battery_with_the_charger_off_is_the_only_way_to_run_on_battery() {
        let discharging: &[_] = &[("type", "Battery"), ("status", "Discharging")];
        let off: &[_] = &[("type", "Mains"), ("online", "0")];
        let on: &[_] = &[("type", "USB"), ("online", "1")];
        assert!(!with(&[("BAT0", discharging)]));
        assert!(!with(&[("BAT0", discharging), ("AC", off)]));
        assert!(with(&[("BAT0", discharging), ("AC", off), ("usb", on)]));
        assert!(with(&[("BAT0", &[("type", "Battery"), ("status", "Charging")])]));
        assert!(with(&[("AC", off)]));
        assert!(with(&[]));
        assert!(with(&[("mouse", &[("type", "Battery"), ("scope", "Device"), ("status", "Discharging")])]));
        assert!(is_powered(Path::new("/nowhere/at/all")));
    }
}
