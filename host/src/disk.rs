//! What does this machine report about a disk?

use std::fs;
use std::path::PathBuf;

use trace::block::DeviceId;

/// A loop device: its requests also appear on the disk below.
pub fn is_loop(disk: DeviceId) -> bool {
    disk.major == 7
}

/// The kernel's information on a disk.
pub struct Disk {
    /// Its name below `/dev`.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// The kernel's information on a disk; `None` if the disk is gone.
pub fn disk(id: DeviceId) -> Option<Disk> {
    let dir = PathBuf::from(format!("/sys/dev/block/{}:{}", id.major, id.minor));
    let event = fs::read_to_string(dir.join("uevent")).ok()?;
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="))?.to_owned();
    let sectors: u64 = fs::read_to_string(dir.join("size")).ok()?.trim().parse().ok()?;
    Some(Disk { name, bytes: sectors.saturating_mul(512) })
}
