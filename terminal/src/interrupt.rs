//! Ctrl-C during work that needs an orderly end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;

use crate::Failure;

/// Signals that end this process: all but those that its parent (`nohup`, a shell that runs it in the background) set
/// to ignored.
pub fn signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

/// Records the first signal that would end the process. The second one ends it at once.
pub struct Interrupt {
    number: Arc<AtomicUsize>,
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// Starts catching signals.
    pub fn catch() -> Result<Self, Failure> {
        let (number, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in signals() {
            // Order matters: the first handler arms the second.
            flag::register_conditional_default(signal, again.clone())
                .and_then(|_| flag::register(signal, again.clone()))
                .and_then(|_| flag::register_usize(signal, number.clone(), signal.unsigned_abs() as usize))
                .map_err(|e| format!("signals: {e}"))?;
        }
        Ok(Interrupt { number, flag: Arc::default() })
    }

    /// An interrupt triggered by a flag instead of a signal.
    pub fn by(flag: Arc<AtomicBool>) -> Self {
        Interrupt { number: Arc::default(), flag }
    }

    /// True after a signal, or after the flag was set.
    pub fn came(&self) -> bool {
        self.number.load(Ordering::Relaxed) != 0 || self.flag.load(Ordering::Relaxed)
    }

    /// Ends the process as the received signal would have.
    pub fn end(&self) {
        if let Ok(signal @ 1..) = i32::try_from(self.number.load(Ordering::Relaxed)) {
            let _ = emulate_default_handler(signal);
        }
    }
}
