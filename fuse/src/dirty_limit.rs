//! How much may the kernel hold of a mount that it has not written back?
//!
//! By default 1 % of what all file systems together may have dirty (`vm.dirty_ratio`): 0.2 % of the memory. That is what a
//! power cut takes from a program that does not sync, and what has to be brought under when the volume becomes full
//! ([`crate::admission`]). Root may set it for each mount, since Linux 6.2.

use std::fs;

use crate::memory;

/// The most that root's mounts hold.
const LIMIT: u64 = 16 << 20;

/// Lowers the limit of the mount with this device number to [`LIMIT`], where that is allowed, and returns what it is then.
pub(crate) fn lower(device: (u32, u32)) -> u64 {
    let path = format!("/sys/class/bdi/{}:{}/max_bytes", device.0, device.1);
    let read = || fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if read().is_some_and(|limit| limit > LIMIT) {
        // Refused to everybody but root.
        let _ = fs::write(&path, LIMIT.to_string());
    }
    read().unwrap_or_else(|| (memory::of_machine() / 500).max(LIMIT))
}
