//! How large a device do recorded requests need, and where does it initially hold data?

use std::collections::BTreeMap;

use device::Lba;
use roaring::RoaringTreemap;

use crate::TraceError;
use crate::block::{DeviceId, Op};
use crate::requests::{Request, Requests, Seen};

/// Sectors per block.
const SECTORS: u64 = 8;
/// Longest request whose location is remembered, in blocks: 4 GiB.
const LONGEST: u64 = 1 << 20;

/// The blocks that a request touches; a partly touched block counts.
pub fn blocks(request: &Request) -> (Lba, u64) {
    let first = request.sector / SECTORS;
    (Lba(first), request.sector.saturating_add(request.sectors).div_ceil(SECTORS) - first)
}

/// Needs of one device.
#[derive(Debug, Clone, Default)]
pub struct Extent {
    /// Blocks of the smallest device with all requested addresses.
    pub blocks: u64,
    /// Number of requests.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    read_first: RoaringTreemap,
    known: RoaringTreemap,
}

impl Extent {
    fn add(&mut self, request: &Request) {
        self.requests += 1;
        let (at, count) = blocks(request);
        let end = at.0.saturating_add(count);
        self.blocks = self.blocks.max(end);
        if !matches!(request.op, Op::Read | Op::Write) {
            return;
        }
        self.bytes = self.bytes.saturating_add(request.sectors.saturating_mul(512));
        if count > LONGEST {
            return;
        }
        if request.op == Op::Read {
            for block in at.0..end {
                if self.known.insert(block) {
                    self.read_first.insert(block);
                }
            }
        } else {
            self.known.insert_range(at.0..end);
        }
    }

    /// The combined needs of this recording and an `earlier` one on the same device: blocks written there hold data
    /// here.
    #[must_use]
    pub fn behind(self, earlier: &Extent) -> Extent {
        Extent {
            blocks: self.blocks.max(earlier.blocks),
            requests: self.requests + earlier.requests,
            bytes: self.bytes.saturating_add(earlier.bytes),
            read_first: (self.read_first - &earlier.known) | &earlier.read_first,
            known: self.known | &earlier.known,
        }
    }

    /// Runs of blocks that are read before they are written, so they must hold data initially.
    pub fn held(&self) -> Vec<(Lba, u64)> {
        let mut runs: Vec<(Lba, u64)> = Vec::new();
        for block in &self.read_first {
            match runs.last_mut() {
                Some((at, n)) if at.0 + *n == block => *n += 1,
                _ => runs.push((Lba(block), 1)),
            }
        }
        runs
    }
}

/// Reads a recording to its end, or up to damage, and returns the needs of each device up to there. `progress` receives
/// the number of bytes read so far, at intervals.
pub fn scan(
    requests: &mut Requests,
    mut progress: impl FnMut(u64),
) -> (BTreeMap<DeviceId, Extent>, Result<(), TraceError>) {
    let mut all: BTreeMap<DeviceId, Extent> = BTreeMap::new();
    let mut seen = 0_u64;
    let whole = loop {
        match requests.seen() {
            Ok(Some(Seen::Asked(request))) => all.entry(request.device).or_default().add(&request),
            Ok(Some(Seen::Done { .. })) => {}
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
        seen += 1;
        if seen.is_multiple_of(1 << 14) {
            progress(requests.events().consumed());
        }
    };
    (all, whole)
}

/// The device that moved the most bytes, among those that `counts`.
pub fn busiest(all: &BTreeMap<DeviceId, Extent>, counts: impl Fn(&DeviceId) -> bool) -> Option<DeviceId> {
    all.iter()
        .filter(|(id, _)| counts(id))
        .max_by_key(|(id, e)| (e.bytes, e.requests, std::cmp::Reverse(**id)))
        .map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;
    use crate::block::Flags;

    fn extent_of(asked: &[(Op, u64, u64)]) -> Extent {
        let mut extent = Extent::default();
        for (op, at, blocks) in asked {
            let (sector, sectors) = (at * SECTORS, blocks * SECTORS);
            let (flags, device, process) = (Flags::empty(), DeviceId::default(), Process::default());
            extent.add(&Request { time: 0, op: *op, flags, sector, sectors, device, pid: 0, process });
        }
        extent
    }

    #[test]
    fn data_written_or_found_by_an_earlier_recording_is_not_needed_for_a_later_one() {
        let earlier = [(Op::Write, 0, 10), (Op::Read, 20, 2), (Op::Write, 21, 5)];
        let later = [(Op::Read, 5, 10), (Op::Read, 21, 6), (Op::Write, 40, 1)];
        let both = extent_of(&later).behind(&extent_of(&earlier));
        assert_eq!(both.held(), [(Lba(10), 5), (Lba(20), 2), (Lba(26), 1)]);
        let one = extent_of(&[&earlier[..], &later].concat());
        assert_eq!((both.held(), both.blocks, both.requests, both.bytes), (one.held(), 41, one.requests, one.bytes));
        assert_eq!(one.clone().behind(&Extent::default()).held(), one.held());
    }
}
