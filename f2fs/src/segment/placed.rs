//! What must a writer to the log do before and after a request, on devices with placement handles or zones?
//!
//! Left out on purpose: which handle a block has ([`crate::streams`]).

use device::Lba;
use format::BlockAddr;
use parking_lot::MutexGuard;

use crate::cause::Cause;
use crate::segment::Logs;
use crate::streams::Streams;

impl Logs {
    /// Sets the placement handle for blocks that are about to be written there for this cause. The caller does not hold
    /// the segment lock.
    pub(crate) fn place(&self, at: BlockAddr, blocks: u32, cause: u8) {
        let streams = self.ctx.options.streams;
        if streams == Streams::One {
            return;
        }
        let moves = [Cause::ForegroundGcData, Cause::BackgroundGcData].map(|c| c as u8);
        let moved = moves.contains(&cause);
        let (mut at, end) = (at, at.plus(blocks));
        while at.0 < end.0 {
            // Outside the main area there are no logs.
            let Some((seg, off)) = self.ctx.sb.locate(at) else { return };
            let count = (end.0 - at.0).min(512 - u32::from(off));
            let log = self.seg.lock().table.segment(seg).log;
            self.ctx.dev.place(Lba(at.0.into()), count.into(), streams.handle(log, moved));
            at = at.plus(count);
        }
    }

    /// On a zoned device, blocks other data writers until the caller's blocks from a log have reached the device.
    pub(crate) fn in_order(&self) -> Option<MutexGuard<'_, ()>> {
        self.ctx.dev.zones().map(|_| self.data_io.lock())
    }

    /// Handles a failed write to a log: on a zoned device nothing can be written after the gap. A mount finds the log's
    /// zone as after a power cut.
    pub(crate) fn left_a_gap(&self) {
        if self.ctx.dev.zones().is_some() {
            self.ctx.health.fail_for_good("a write to a zone failed, and nothing can be written after the gap it left");
        }
    }
}
