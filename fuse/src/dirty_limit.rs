//! How much dirty data may the kernel hold for a mount?
//!
//! By default 1 % of the dirty limit for all file systems together (`vm.dirty_ratio`): 0.2 % of memory. This is what a
//! power cut loses from a program that does not sync, and what needs space when the volume becomes full
//! ([`crate::admission`]). Since Linux 6.2, root may set the limit per mount.

use std::fs;

use crate::memory;

/// Limit for mounts made by root.
const LIMIT: u64 = 16 << 20;

/// Lowers the limit of the mount with this device number to [`LIMIT`], if permitted, and returns the limit in force.
pub(crate) fn lower(device: (u32, u32)) -> u64 {
    let path = format!("/sys/class/bdi/{}:{}/max_bytes", device.0, device.1);
    let read = || fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if read().is_some_and(|limit| limit > LIMIT) {
        // Only root may write this.
        let _ = fs::write(&path, LIMIT.to_string());
    }
    read().unwrap_or_else(|| (memory::of_machine() / 500).max(LIMIT))
}
