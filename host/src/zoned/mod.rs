//! How is a host-managed zoned disk of the host written? At the write pointers reported by the kernel, bypassing its
//! page cache, which guarantees no order.
//!
//! Requests use direct I/O from aligned memory; the kernel keeps those of a zone in order. The disk is claimed like any
//! other ([`FileDevice`]). Left out: disks whose zone capacity is below the zone size or that limit the number of
//! active zones (both are read-only here), writes elsewhere on host-aware disks, and simulated zoned devices.

pub mod report;

use std::fs::{self, File, OpenOptions};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use device::{Access, BLOCK, BlockDevice, DeviceError, FileDevice, Lba, Result, Tag, Zones};
use parking_lot::Mutex;
use report::Zone;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// A device with its zones, if the disk has any; otherwise the device that `plain` makes.
///
/// # Errors
/// If the zones are not supported.
pub fn over(
    claimed: FileDevice,
    access: Access,
    plain: impl FnOnce(FileDevice) -> Arc<dyn BlockDevice>,
) -> std::result::Result<Arc<dyn BlockDevice>, String> {
    let path = claimed.path().to_owned();
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let write = access == Access::ReadWrite;
    // Opened without `O_EXCL`: the claim is exclusive.
    let direct = OFlags::DIRECT.bits().cast_signed();
    let is_disk = fs::metadata(&path).is_ok_and(|m| m.file_type().is_block_device());
    if !is_disk {
        return Ok(plain(claimed));
    }
    let disk = File::open(&path).map_err(failed)?;
    let Some(zone) = report::zone_blocks(&disk).map_err(|e| failed(e.into()))? else {
        return Ok(plain(claimed));
    };
    let zones = report::zones(&disk).map_err(|e| failed(e.into()))?;
    let zones = usable(&zones, zone, claimed.blocks()).map_err(|why| format!("{}: {why}", path.display()))?;
    if write && let Some(most) = most_active(&path) {
        return Err(format!("{}: JouleFS cannot respect the disk's limit of {most} active zones", path.display()));
    }
    let disk = OpenOptions::new().read(true).write(write).custom_flags(direct).open(&path).map_err(failed)?;
    Ok(Arc::new(Disk { claimed, disk, zone, pointers: Mutex::new(zones), flush_failed: AtomicBool::new(false) }))
}

/// The disk's limit of active zones, if it has one.
fn most_active(path: &Path) -> Option<u64> {
    let id = fs::metadata(path).ok()?.st_rdev();
    let (major, minor) = (rustix::fs::major(id), rustix::fs::minor(id));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/queue/max_active_zones")).ok()?;
    text.trim().parse().ok().filter(|n| *n > 0)
}

/// The write pointers, if the zones are supported: of one size, whole, and all writable.
fn usable(zones: &[Zone], zone: u64, blocks: u64) -> std::result::Result<Vec<Option<u64>>, String> {
    let fits = |(n, z): (usize, &Zone)| {
        let start = n as u64 * zone;
        z.start == start && z.len == zone.min(blocks.saturating_sub(start))
    };
    if zones.len() as u64 != blocks.div_ceil(zone) || !zones.iter().enumerate().all(fits) {
        return Err("its zones are not of one size".into());
    }
    for (n, z) in zones.iter().enumerate() {
        if z.is_worn {
            return Err(format!("zone {n} is read-only or offline"));
        }
        if z.capacity < z.len {
            return Err(format!(
                "zone {n} has a capacity of {} of its {} blocks, which JouleFS does not support",
                z.capacity, z.len
            ));
        }
    }
    Ok(zones.iter().map(|z| z.pointer).collect())
}

/// A zoned disk of the host.
struct Disk {
    /// Keeps other users away while the value lives.
    claimed: FileDevice,
    /// Open for direct I/O.
    disk: File,
    zone: u64,
    /// Of each zone, in disk blocks; `None` for a zone without a write pointer.
    pointers: Mutex<Vec<Option<u64>>>,
    flush_failed: AtomicBool,
}

/// Memory aligned for direct I/O.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + BLOCK];
        let from = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
        Aligned { bytes, from }
    }
    /// All but the tail, which alignment may take.
    fn all(&mut self) -> &mut [u8] {
        let len = self.bytes.len() - BLOCK;
        &mut self.bytes[self.from..][..len]
    }
}

fn io_error(op: &'static str, at: u64) -> impl FnOnce(std::io::Error) -> DeviceError {
    move |source| DeviceError::Io { op, at: Lba(at), source }
}

impl Disk {
    fn check(&self, op: &'static str, at: Lba, bytes: usize) -> Result<u64> {
        let blocks = (bytes / BLOCK) as u64;
        if !bytes.is_multiple_of(BLOCK) {
            return Err(DeviceError::Misaligned { op, at, bytes });
        }
        match at.0.checked_add(blocks) {
            Some(end) if end <= self.blocks() => Ok(blocks),
            _ => Err(DeviceError::OutOfRange { op, at, blocks, size: self.blocks() }),
        }
    }

    fn writable(&self, op: &'static str) -> Result<()> {
        if self.read_only() { Err(DeviceError::ReadOnly { op }) } else { Ok(()) }
    }

    fn end(&self, zone: u64) -> u64 {
        ((zone + 1) * self.zone).min(self.blocks())
    }
}

impl Zones for Disk {
    fn zone_blocks(&self) -> u64 {
        self.zone
    }

    fn conventional(&self) -> u64 {
        self.pointers.lock().iter().take_while(|pointer| pointer.is_none()).count() as u64
    }

    fn pointer(&self, zone: u64) -> Option<Lba> {
        let pointers = self.pointers.lock();
        usize::try_from(zone).ok().and_then(|n| *pointers.get(n)?).map(Lba)
    }

    fn reset(&self, zone: u64, _: Tag) -> Result<()> {
        self.writable("reset of a zone")?;
        let begin = zone.saturating_mul(self.zone);
        let mut pointers = self.pointers.lock();
        let failed = io_error("reset of a zone", begin);
        match usize::try_from(zone).ok().and_then(|n| pointers.get_mut(n)?.as_mut()) {
            None => Err(failed(Errno::IO.into())),
            Some(pointer) => {
                report::reset(&self.disk, begin, self.end(zone) - begin).map_err(|e| failed(e.into()))?;
                *pointer = begin;
                Ok(())
            }
        }
    }
}

impl BlockDevice for Disk {
    fn zones(&self) -> Option<&dyn Zones> {
        Some(self)
    }

    fn blocks(&self) -> u64 {
        self.claimed.blocks()
    }

    fn read_only(&self) -> bool {
        self.claimed.read_only()
    }

    /// Blocks from the write pointer on are not read: their contents are undefined.
    fn read(&self, at: Lba, buf: &mut [u8], _: Tag) -> Result<()> {
        let (mut from, end) = (at.0, at.0 + self.check("read", at, buf.len())?);
        while from < end {
            let zone = from / self.zone;
            let until = self.end(zone).min(end);
            let written = self.pointer(zone).map_or(until, |pointer| pointer.0.clamp(from, until));
            let part = &mut buf[(from - at.0) as usize * BLOCK..(until - at.0) as usize * BLOCK];
            let (there, empty) = part.split_at_mut((written - from) as usize * BLOCK);
            if !there.is_empty() {
                let mut bytes = Aligned::new(there.len());
                self.disk.read_exact_at(bytes.all(), from * BLOCK as u64).map_err(io_error("read", from))?;
                there.copy_from_slice(bytes.all());
            }
            empty.fill(0);
            from = until;
        }
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.write_gather(at, &[data], tag)
    }

    /// Writes the parts, one request per zone; the lock is held until completion, so that requests stay in order.
    fn write_gather(&self, at: Lba, parts: &[&[u8]], _: Tag) -> Result<()> {
        self.writable("write")?;
        let len = parts.iter().map(|part| part.len()).sum();
        let (mut from, end) = (at.0, at.0 + self.check("write", at, len)?);
        let mut bytes = Aligned::new(len);
        let mut room = bytes.all();
        for part in parts {
            let (here, rest) = room.split_at_mut(part.len());
            here.copy_from_slice(part);
            room = rest;
        }
        let mut pointers = self.pointers.lock();
        while from < end {
            let zone = from / self.zone;
            let until = self.end(zone).min(end);
            let pointer = &mut pointers[zone as usize];
            if pointer.is_some_and(|pointer| pointer != from) {
                return Err(io_error("write not at the zone's write pointer", from)(Errno::IO.into()));
            }
            let part = &bytes.all()[(from - at.0) as usize * BLOCK..(until - at.0) as usize * BLOCK];
            self.disk.write_all_at(part, from * BLOCK as u64).map_err(io_error("write", from))?;
            *pointer = pointer.map(|_| until);
            from = until;
        }
        Ok(())
    }

    fn flush(&self, _: Tag) -> Result<()> {
        self.writable("flush")?;
        if self.flush_failed.load(Relaxed) {
            let source = std::io::Error::other("an earlier flush failed; what was written before it may be lost");
            return Err(io_error("flush", 0)(source));
        }
        self.disk.sync_data().map_err(|source| {
            self.flush_failed.store(true, Relaxed);
            io_error("flush", 0)(source)
        })
    }

    /// Advisory: zones are reset by [`Zones::reset`].
    fn discard(&self, at: Lba, blocks: u64, _: Tag) -> Result<()> {
        self.writable("discard")?;
        self.check("discard", at, blocks.saturating_mul(BLOCK as u64) as usize).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_direct_requests_is_aligned_and_as_long_as_asked() {
        for len in [BLOCK, 3 * BLOCK, 100 * BLOCK] {
            let mut bytes = Aligned::new(len);
            assert_eq!((bytes.all().len(), bytes.all().as_ptr() as usize % BLOCK), (len, 0));
        }
    }

    #[test]
    fn zones_of_other_sizes_worn_ones_and_those_that_take_less_are_refused() {
        let zone = |n: u64| Zone { start: n * 16, len: 16, capacity: 16, pointer: Some(n * 16), is_worn: false };
        let all = [zone(0), Zone { pointer: None, ..zone(1) }, Zone { len: 8, capacity: 8, ..zone(2) }];
        assert_eq!(usable(&all, 16, 40), Ok(vec![Some(0), None, Some(32)]));
        for (n, wrong) in [
            Zone { start: 1, ..zone(0) },
            Zone { len: 15, ..zone(0) },
            Zone { capacity: 15, ..zone(0) },
            Zone { is_worn: true, ..zone(0) },
        ]
        .into_iter()
        .enumerate()
        {
            assert!(usable(&[wrong, all[1], all[2]], 16, 40).is_err(), "{n}");
        }
        assert!(usable(&all[..2], 16, 40).is_err() && usable(&all, 16, 48).is_err());
    }
}
