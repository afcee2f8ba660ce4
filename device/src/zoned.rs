//! A host-managed zoned disk.
//!
//! Such a disk (ZBC, ZAC: shingled tracks) consists of zones of one size. The first may be *conventional* and
//! accept writes anywhere. Each other zone has a write pointer, and rejects writes that begin elsewhere; a reset
//! moves the pointer to the zone's start. Blocks at and behind the pointer read as zeroes.
//!
//! A write across the end of a zone is split there, as Linux's block layer does for such a disk. A discard of a
//! whole zone resets it; a partial one does nothing, since a discard is only advice. The test decides what a power
//! cut leaves of the pointers ([`Zoned::after_cut`]). Left out: zones with a capacity below their size, limits on
//! open zones, closed or offline zones, and zone append.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::bounds::{check, check_blocks, check_parts};
use crate::{BLOCK, BlockDevice, DeviceError, Lba, Result, Tag, Zones};

/// A device that accepts writes like a host-managed zoned disk.
pub struct Zoned<D> {
    inner: D,
    zone: u64,
    conventional: u64,
    /// The write pointer of each zone, as a block of the device; meaningless for conventional zones.
    pointers: Mutex<Vec<u64>>,
    /// Lower bounds of the pointers after a power cut.
    flushed: Mutex<Vec<u64>>,
    /// True if the device below failed a write.
    failed: AtomicBool,
    refused: AtomicU64,
}

impl<D: BlockDevice> Zoned<D> {
    /// Zones of `zone` blocks (over 0): the first `conventional` are conventional, the others empty. The last may
    /// be shorter.
    pub fn new(inner: D, zone: u64, conventional: u64) -> Self {
        let zone = zone.max(1);
        let pointers: Vec<u64> = (0..inner.blocks().div_ceil(zone)).map(|n| n * zone).collect();
        Self::with(inner, zone, conventional, pointers)
    }

    fn with(inner: D, zone: u64, conventional: u64, pointers: Vec<u64>) -> Self {
        Zoned {
            inner,
            zone,
            conventional,
            flushed: Mutex::new(pointers.clone()),
            pointers: Mutex::new(pointers),
            failed: AtomicBool::new(false),
            refused: AtomicU64::new(0),
        }
    }

    /// The same zones over the device below after a power cut. `choose` receives the least and the greatest
    /// possible pointer of a zone (as of the last flush, and as of the cut) and returns the pointer.
    pub fn after_cut<E: BlockDevice>(&self, inner: E, mut choose: impl FnMut(u64, u64) -> u64) -> Zoned<E> {
        let pointers = self.pointers.lock();
        let flushed = self.flushed.lock();
        let left = flushed.iter().zip(&*pointers).map(|(least, most)| choose(*least, *most).clamp(*least, *most));
        Zoned::with(inner, self.zone, self.conventional, left.collect())
    }

    /// Number of writes rejected because they did not begin at a pointer. Writes after a failure of the device
    /// below do not count: a writer with several under way could not know.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn end(&self, zone: u64) -> u64 {
        ((zone + 1) * self.zone).min(self.inner.blocks())
    }
}

fn refused(op: &'static str, at: Lba) -> DeviceError {
    DeviceError::Io { op, at, source: Errno::IO.into() }
}

impl<D: BlockDevice> Zones for Zoned<D> {
    fn zone_blocks(&self) -> u64 {
        self.zone
    }

    fn conventional(&self) -> u64 {
        self.conventional
    }

    fn pointer(&self, zone: u64) -> Option<Lba> {
        let at = usize::try_from(zone).ok()?;
        (zone >= self.conventional).then(|| self.pointers.lock().get(at).copied()).flatten().map(Lba)
    }

    fn reset(&self, zone: u64, tag: Tag) -> Result<()> {
        let begin = zone.saturating_mul(self.zone);
        if zone < self.conventional || begin >= self.inner.blocks() {
            return Err(refused("reset outside a sequential zone", Lba(begin)));
        }
        let mut pointers = self.pointers.lock();
        self.inner.discard(Lba(begin), self.end(zone) - begin, tag)?;
        pointers[zone as usize] = begin;
        self.flushed.lock()[zone as usize] = begin;
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Zoned<D> {
    fn zones(&self) -> Option<&dyn Zones> {
        Some(self)
    }

    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        let blocks = check("read", at, buf.len(), self.blocks())?;
        let pointers = self.pointers.lock().clone();
        self.inner.read(at, buf, tag)?;
        for (n, block) in (at.0..at.0 + blocks).zip(buf.chunks_exact_mut(BLOCK)) {
            let zone = n / self.zone;
            if zone >= self.conventional && n >= pointers[zone as usize] {
                block.fill(0);
            }
        }
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        let blocks = check("write", at, data.len(), self.blocks())?;
        let mut pointers = self.pointers.lock();
        let (mut from, end) = (at.0, at.0 + blocks);
        while from < end {
            let zone = from / self.zone;
            let until = self.end(zone).min(end);
            let part = &data[((from - at.0) as usize * BLOCK)..((until - at.0) as usize * BLOCK)];
            let pointer = &mut pointers[zone as usize];
            let sequential = zone >= self.conventional;
            if sequential && *pointer != from {
                if !self.failed.load(Relaxed) {
                    self.refused.fetch_add(1, Relaxed);
                }
                return Err(refused("write not at the zone's write pointer", Lba(from)));
            }
            self.inner.write(Lba(from), part, tag).inspect_err(|_| self.failed.store(true, Relaxed))?;
            if sequential {
                *pointer = until;
            }
            from = until;
        }
        Ok(())
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        check_parts("write", at, parts, self.blocks())?;
        self.write(at, &parts.concat(), tag)
    }

    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        // Writes that return during the flush may or may not be covered by it.
        let before = self.pointers.lock().clone();
        self.inner.flush(tag)?;
        let pointers = self.pointers.lock();
        for ((least, most), now) in self.flushed.lock().iter_mut().zip(before).zip(&*pointers) {
            // A later flush may have ended meanwhile.
            *least = (*least).max(most.min(*now));
        }
        Ok(())
    }

    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        check_blocks("discard", at, blocks, self.blocks())?;
        let mut pointers = self.pointers.lock();
        for zone in at.0.div_ceil(self.zone)..(at.0 + blocks).div_ceil(self.zone) {
            let begin = zone * self.zone;
            if zone >= self.conventional && self.end(zone) <= at.0 + blocks {
                pointers[zone as usize] = begin;
                self.flushed.lock()[zone as usize] = begin;
                self.inner.discard(Lba(begin), self.end(zone) - begin, tag)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Memory, PowerCut};

    const TAG: Tag = Tag { cause: 0, owner: 0 };

    fn filled(n: u8, blocks: usize) -> Vec<u8> {
        vec![n; blocks * BLOCK]
    }

    #[test]
    fn a_sequential_zone_takes_writes_at_its_pointer_alone_and_a_conventional_one_anywhere() {
        let dev = Zoned::new(Memory::new(40), 16, 1);
        dev.write(Lba(9), &filled(1, 2), TAG).unwrap();
        dev.write(Lba(3), &filled(1, 1), TAG).unwrap();
        assert_eq!(
            (dev.pointer(0), dev.pointer(1), dev.pointer(2), dev.pointer(3)),
            (None, Some(Lba(16)), Some(Lba(32)), None)
        );
        assert!(dev.write(Lba(17), &filled(2, 1), TAG).is_err());
        dev.write(Lba(16), &filled(2, 3), TAG).unwrap();
        assert!(dev.write(Lba(16), &filled(3, 1), TAG).is_err(), "over what is written");
        assert_eq!(dev.refused(), 2);
        dev.write_gather(Lba(19), &[&filled(4, 1), &filled(5, 1)], TAG).unwrap();
        let mut bytes = filled(9, 6);
        dev.read(Lba(16), &mut bytes, TAG).unwrap();
        assert_eq!([0, 3, 4, 5].map(|n| bytes[n * BLOCK]), [2, 4, 5, 0], "zeroes from the pointer on");
    }

    #[test]
    fn writes_refused_behind_a_failed_write_are_not_counted() {
        let below = PowerCut::new(Memory::new(40));
        below.cut_after(2);
        let dev = Zoned::new(below, 16, 1);
        dev.write(Lba(16), &filled(1, 1), TAG).unwrap();
        assert!(dev.write(Lba(18), &filled(1, 1), TAG).is_err());
        assert!(dev.write(Lba(17), &filled(1, 1), TAG).is_err() && dev.inner().is_cut());
        assert!(dev.write(Lba(18), &filled(1, 1), TAG).is_err());
        assert_eq!(dev.refused(), 1);
    }

    /// The first flush waits until it is released.
    struct Late {
        inner: Memory,
        first: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
    }

    impl BlockDevice for Late {
        fn blocks(&self) -> u64 {
            self.inner.blocks()
        }
        fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
            self.inner.read(at, buf, tag)
        }
        fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
            self.inner.write(at, data, tag)
        }
        fn flush(&self, tag: Tag) -> Result<()> {
            let first = self.first.lock().take();
            if let Some((under_way, end)) = first {
                under_way.send(()).unwrap();
                end.recv().unwrap();
            }
            self.inner.flush(tag)
        }
        fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
            self.inner.discard(at, blocks, tag)
        }
    }

    #[test]
    fn a_flush_that_ends_late_takes_nothing_back_from_one_that_began_later() {
        let ((under_way, begun), (end, told)) = (mpsc::channel(), mpsc::channel());
        let below = Late { inner: Memory::new(40), first: Mutex::new(Some((under_way, told))) };
        let dev = Zoned::new(below, 16, 1);
        std::thread::scope(|scope| {
            let early = scope.spawn(|| dev.flush(TAG));
            begun.recv().unwrap();
            dev.write(Lba(16), &filled(1, 2), TAG).unwrap();
            dev.flush(TAG).unwrap();
            end.send(()).unwrap();
            early.join().unwrap().unwrap();
        });
        let mut least = Vec::new();
        dev.after_cut(Memory::new(40), |flushed, _| {
            least.push(flushed);
            flushed
        });
        assert_eq!(least[1], 18);
    }

    #[test]
    fn a_write_over_a_border_is_split_and_the_part_behind_it_has_its_own_pointer() {
        let dev = Zoned::new(Memory::new(40), 16, 1);
        dev.write(Lba(14), &filled(1, 6), TAG).unwrap();
        assert_eq!(dev.pointer(1), Some(Lba(20)));
        assert!(dev.write(Lba(15), &filled(1, 2), TAG).is_err());
        dev.write(Lba(20), &filled(1, 20), TAG).unwrap();
        assert_eq!((dev.pointer(1), dev.pointer(2)), (Some(Lba(32)), Some(Lba(40))));
    }

    #[test]
    fn a_reset_puts_the_pointer_back_and_a_conventional_zone_has_none() {
        let dev = Zoned::new(Memory::new(40), 16, 1);
        dev.write(Lba(16), &filled(1, 3), TAG).unwrap();
        dev.flush(TAG).unwrap();
        dev.write(Lba(19), &filled(1, 3), TAG).unwrap();
        let ends = |most: bool| {
            let cut = dev.after_cut(Memory::new(40), |least, end| if most { end } else { least });
            cut.pointer(1)
        };
        assert_eq!((ends(false), ends(true)), (Some(Lba(19)), Some(Lba(22))));
        dev.reset(1, TAG).unwrap();
        assert_eq!((dev.pointer(1), ends(false), ends(true)), (Some(Lba(16)), Some(Lba(16)), Some(Lba(16))));
        dev.write(Lba(16), &filled(2, 1), TAG).unwrap();
        assert!(dev.reset(0, TAG).is_err() && dev.reset(3, TAG).is_err());
        // Flushed blocks of a conventional zone lie before or behind later writes.
        dev.write(Lba(9), &filled(1, 2), TAG).unwrap();
        dev.flush(TAG).unwrap();
        dev.write(Lba(3), &filled(1, 1), TAG).unwrap();
        dev.after_cut(Memory::new(40), |least, _| least).write(Lba(5), &filled(1, 1), TAG).unwrap();
    }

    #[test]
    fn a_discard_of_a_whole_zone_is_a_reset_and_one_of_a_part_is_nothing() {
        let dev = Zoned::new(Memory::new(40), 16, 1);
        dev.write(Lba(16), &filled(1, 24), TAG).unwrap();
        dev.discard(Lba(17), 20, TAG).unwrap();
        assert_eq!((dev.pointer(1), dev.pointer(2)), (Some(Lba(32)), Some(Lba(40))), "of neither all");
        dev.discard(Lba(15), 25, TAG).unwrap();
        assert_eq!((dev.pointer(1), dev.pointer(2)), (Some(Lba(16)), Some(Lba(32))), "the last is shorter");
        let mut bytes = filled(9, 1);
        dev.read(Lba(16), &mut bytes, TAG).unwrap();
        assert_eq!(bytes, filled(0, 1));
        dev.write(Lba(16), &filled(7, 1), TAG).unwrap();
    }
}
