//! How do logs keep to the write pointers of a zoned device?
//!
//! A section is a zone. A log writes its blocks in the order in which it hands them out, so after a clean end it stands at
//! the zone's pointer. After a power cut, the device may have taken more than the checkpoint knows: then the log leaves the
//! zone for a free one ([`Segments::leave_unfit`]), and cleaning wins back what is left of it (kernel
//! `fix_curseg_write_pointer`).
//!
//! A zone is reset when a log hands out its first block. The section was free then in a checkpoint that is durable, so
//! nobody needs what it held; and however often a power cut comes between, the next log that begins there looks again.
//! (Linux resets when the checkpoint is written, and once more at mount.)
//!
//! Left out: that requests are given to the device in the order of their places (`Volume::in_order`), and which devices fit
//! a volume ([`check`]'s caller).

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

    /// True if a log may go on where it stands. Asked only while nothing is on its way to the device.
    pub(super) fn fits(&self, log: LogType) -> bool {
        let l = &self.logs[log.index()];
        if l.threaded {
            return false;
        }
        let Some(zones) = self.dev.zones() else { return true };
        let Some(pointer) = zones.pointer(self.zone_of(l.seg)) else { return true };
        // An empty section is reset before its first block.
        let empty = || {
            let mut section = self.table.section(self.sb.section_of(l.seg));
            section.all(|s| self.table.segment(s).held == 0)
        };
        let here = u64::from(self.sb.seg_start(l.seg).0) + u64::from(l.next);
        pointer.0 == here || (self.begins_section(l.seg, l.next) && empty())
    }

    /// Makes a zone ready for a log that is about to hand out this block of it.
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
