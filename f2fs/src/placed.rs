//! Tells the device, before a write, which blocks it should keep apart.
//!
//! Left out on purpose: which handle a block has ([`crate::streams`]).

use device::Lba;
use format::BlockAddr;

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
}
