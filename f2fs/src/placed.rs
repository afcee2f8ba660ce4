//! What must a writer to the log do before and after a request, for devices that keep blocks apart or have zones?
//!
//! Left out on purpose: which handle a block has ([`crate::streams`]).

use device::Lba;
use format::BlockAddr;
use parking_lot::MutexGuard;

use crate::cause::Cause;
use crate::streams::Streams;
use crate::volume::Volume;

impl Volume {
    /// Says to the device which handle the blocks have that are about to be written there for this reason. The caller
    /// does not hold the segments.
    pub(crate) fn place(&self, at: BlockAddr, blocks: u32, cause: u8) {
        let streams = self.options.streams;
        if streams == Streams::One {
            return;
        }
        let moves = [Cause::ForegroundGcData, Cause::BackgroundGcData].map(|c| c as u8);
        let moved = moves.contains(&cause);
        let (mut at, end) = (at, at.plus(blocks));
        while at.0 < end.0 {
            // Outside of the main area nothing has a log.
            let Some((seg, off)) = self.sb.locate(at) else { return };
            let count = (end.0 - at.0).min(512 - u32::from(off));
            let log = self.seg.lock().table.segment(seg).log;
            self.dev.place(Lba(at.0.into()), count.into(), streams.handle(log, moved));
            at = at.plus(count);
        }
    }

    /// On a zoned device, keeps other writers of data away until what the caller takes from a log has reached the device.
    pub(crate) fn in_order(&self) -> Option<MutexGuard<'_, ()>> {
        self.dev.zones().map(|_| self.data_io.lock())
    }

    /// A write to a log failed: on a zoned device nothing can be written behind the gap it leaves. A mount finds the log's zone
    /// as a power cut leaves it.
    pub(crate) fn left_a_gap(&self) {
        if self.dev.zones().is_some() {
            self.health.fail_for_good("a write to a zone failed, and nothing can be written after the gap it left");
        }
    }
}
