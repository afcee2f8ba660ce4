//! How do logs follow the write pointers of a zoned device?
//!
//! A section is a zone. A log writes blocks in allocation order, so after a clean unmount its position is the zone's
//! write pointer. After a power cut, the device may have more blocks than the checkpoint: then the log moves to a free
//! zone ([`Segments::leave_unfit`]), and cleaning reclaims the rest of the old one (kernel `fix_curseg_write_pointer`).
//!
//! A zone is reset when a log allocates its first block. The section was free in a durable checkpoint, so its old
//! contents are not needed; after any number of power cuts, the next log that starts there checks again. (Linux resets
//! when the checkpoint is written, and again at mount.)
//!
//! Left out: sending requests in address order (`Volume::in_order`), and which devices fit a volume ([`check`]'s
//! caller).

use device::BlockDevice;
use format::SegNo;
use format::sit::LogType;
use format::superblock::{Features, SuperBlock};

use super::Segments;
use crate::cause::Cause;
use crate::error::Result;

/// Why a volume cannot be written on this device.
pub(crate) fn check(dev: &dyn BlockDevice, sb: &SuperBlock) -> std::result::Result<(), &'static str> {
    let Some(zones) = dev.zones() else { return Ok(()) };
    if !sb.features.contains(Features::BLKZONED) {
        return Err("the device is zoned, and the volume was not made for zones");
    }
    let (zone, main) = (zones.zone_blocks(), u64::from(sb.main.0));
    if zone != u64::from(sb.segs_per_sec) * 512 || !main.is_multiple_of(zone) {
        return Err("the volume's sections are not the device's zones");
    }
    if main > zones.conventional() * zone {
        return Err("tables lie in zones that are only written from begin to end");
    }
    Ok(())
}

impl Segments {
    fn zone_of(&self, seg: SegNo) -> u64 {
        u64::from(self.sb.seg_start(seg).0) / (u64::from(self.sb.segs_per_sec) * 512)
    }

    fn begins_section(&self, seg: SegNo, off: u16) -> bool {
        off == 0 && seg.0.is_multiple_of(self.sb.segs_per_sec)
    }

    /// True if a log may continue at its position. Call it only while no write is in progress.
    pub(super) fn fits(&self, log: LogType) -> bool {
        let l = &self.logs[log.index()];
        if l.threaded {
            return false;
        }
        let Some(zones) = self.dev.zones() else { return true };
        let Some(pointer) = zones.pointer(self.zone_of(l.seg)) else { return true };
        // An empty section is reset before its first block is written.
        let empty = || {
            let mut section = self.table.section(self.sb.section_of(l.seg));
            section.all(|s| self.table.segment(s).held == 0)
        };
        let here = u64::from(self.sb.seg_start(l.seg).0) + u64::from(l.next);
        pointer.0 == here || (self.begins_section(l.seg, l.next) && empty())
    }

    /// Prepares a zone for a log that is about to allocate this block.
    pub(super) fn begin_zone(&self, seg: SegNo, off: u16) -> Result<()> {
        if !self.begins_section(seg, off) {
            return Ok(());
        }
        if let Some(zones) = self.dev.zones() {
            let zone = self.zone_of(seg);
            let begin = u64::from(self.sb.seg_start(seg).0);
            if zones.pointer(zone).is_some_and(|pointer| pointer.0 != begin) {
                zones.reset(zone, Cause::Checkpoint.tag())?;
            }
        }
        Ok(())
    }
}
