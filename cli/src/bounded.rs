//! How much may be written when files are copied out of an image?
//!
//! An image can claim anything: a file of 5 TiB in one block, or a million files that share their blocks. So a copy
//! writes at most what the volume can hold, and it stops before the host's file system is full. Holes are not written,
//! and do not count.

use std::cell::RefCell;
use std::os::fd::AsFd;

use crate::output;

/// Maximum number of bytes kept free on the host.
const KEPT: u64 = 256 << 20;
/// Maximum number of inodes kept free on the host.
const KEPT_FILES: u64 = 1024;

/// Bytes of a volume's files that may still be written.
pub struct Allowance {
    /// The volume's capacity; `None`: no limit.
    holds: Option<u64>,
    written: u64,
    reached: bool,
}

impl Allowance {
    /// The capacity of a volume of `holds` bytes; no limit without one or with `--really`.
    pub fn new(holds: Option<u64>, really: bool) -> Self {
        Allowance { holds: holds.filter(|_| !really), written: 0, reached: false }
    }

    /// Counts `bytes` more, or fails if they exceed the volume's capacity.
    pub fn take(&mut self, bytes: u64) -> Result<(), String> {
        let written = self.written.saturating_add(bytes);
        match self.holds {
            Some(holds) if written > holds => {
                self.reached = true;
                Err(format!(
                    "stopped: its files claim more contents than the {} that the volume can hold; check it with \
                     joulefs fsck, or copy everything with --really (needed if files share blocks or are compressed)",
                    output::bytes(holds)
                ))
            }
            _ => {
                self.written = written;
                Ok(())
            }
        }
    }

    /// Bytes that may still be written, if there is a limit.
    pub fn left(&self) -> Option<u64> {
        self.holds.map(|holds| holds.saturating_sub(self.written))
    }

    /// True if the limit was exceeded.
    pub fn is_reached(&self) -> bool {
        self.reached
    }
}

/// Space to keep free on one file system of the host.
#[derive(Clone, Copy)]
struct Kept {
    id: u64,
    bytes: u64,
    files: u64,
}

/// The space that a copy leaves free on the host: one percent of each file system, at most 256 MiB, and at most a
/// quarter of what was free before the copy's first write to it.
#[derive(Default)]
pub struct HostReserve {
    kept: RefCell<Vec<Kept>>,
}

impl HostReserve {
    /// Fails if `bytes` more, or one file more, would leave too little free on the file system of an open file.
    pub fn check(&self, file: impl AsFd, bytes: u64) -> Result<(), String> {
        // A file system without statistics fails by itself when full.
        let Ok(now) = rustix::fs::fstatvfs(file) else { return Ok(()) };
        let unit = now.f_frsize.max(1);
        let free = now.f_bavail.saturating_mul(unit);
        let mut all = self.kept.borrow_mut();
        let kept = all.iter().find(|kept| kept.id == now.f_fsid).copied().unwrap_or_else(|| {
            let hundredth = now.f_blocks.saturating_mul(unit) / 100;
            let bytes = hundredth.min(KEPT).min(free / 4);
            let files = (now.f_files / 100).min(KEPT_FILES).min(now.f_favail / 4);
            let kept = Kept { id: now.f_fsid, bytes, files };
            all.push(kept);
            kept
        });
        if free < kept.bytes.saturating_add(bytes) {
            return Err(format!(
                "stopped: the host's file system has only {} free, and {} stay reserved; free some space there, or \
                 copy to another place",
                output::bytes(free),
                output::bytes(kept.bytes)
            ));
        }
        // Some file systems create inodes on demand and report no count.
        if now.f_files > 0 && now.f_favail <= kept.files {
            return Err(format!(
                "stopped: the host's file system has only {} free inodes, which stay reserved; copy to another place",
                now.f_favail
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_gives_what_it_can_hold_and_not_a_byte_more() {
        let mut some = Allowance::new(Some(100), false);
        assert!(some.take(60).is_ok() && some.take(40).is_ok());
        assert_eq!(some.left(), Some(0));
        assert!(!some.is_reached());
        let why = some.take(1).unwrap_err();
        assert!(why.contains("--really") && some.is_reached(), "{why}");
        let mut all = Allowance::new(Some(100), true);
        assert!(all.take(u64::MAX).is_ok() && all.left().is_none());
    }

    #[test]
    fn a_host_keeps_something_free() {
        let here = std::fs::File::open("/").unwrap();
        let reserve = HostReserve::default();
        assert!(reserve.check(&here, u64::MAX / 2).is_err());
    }
}
