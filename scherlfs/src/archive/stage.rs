//! Transactions that are durable on another disk before they reach the archive.
//!
//! A record is a run of log blocks with their address. Only the log is staged, never a checkpoint, and always from
//! the end of the archive's log: the archive's durable blocks and the stage together form one log. The records
//! belong behind the archive's current superblock ([`Mark`]). They are written to the archive in order and flushed
//! there. Only then are they dropped here, and only then may the archive get another superblock. Until then none of
//! their blocks is reused, so writing them again after a power cut changes nothing.
//!
//! Memory: the place of each staged block, some 60 bytes per block.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BlockDevice, Lba, Tag};
use parking_lot::Mutex;
use scherlfs_format::archive::{Mark, RECORD_MAX, StageHead, StageRecord};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, checksum};
use vfs::{Error, Result};

type Done<T> = std::result::Result<T, device::DeviceError>;

/// A record: address of its blocks, their place in the stage, their number.
#[derive(Clone, Copy)]
struct Record {
    addr: u64,
    at: u64,
    blocks: u64,
}

struct Inner {
    life: u64,
    /// Set if the head on disk has this life and this superblock.
    begun: Option<Mark>,
    records: Vec<Record>,
    /// Place of each staged block.
    places: BTreeMap<u64, u64>,
    /// The block behind the last record.
    end: u64,
}

/// A stage.
pub(crate) struct Stage {
    dev: Arc<dyn BlockDevice>,
    uuid: [u8; 16],
    inner: Mutex<Inner>,
}

fn read(dev: &dyn BlockDevice, at: u64, buf: &mut [u8]) -> Done<()> {
    dev.read(Lba(at), buf, Tag::default())
}

impl Stage {
    /// Opens a stage. `life` is a number for a new life, greater than any before.
    ///
    /// # Errors
    /// It holds data of another volume, or of another state of this one; its disk fails.
    pub fn open(dev: Arc<dyn BlockDevice>, sb: &Superblock, life: u64) -> Result<Self> {
        let mut block = [0; BLOCK];
        read(&*dev, 0, &mut block).map_err(Error::device)?;
        let head = StageHead::read(&block).ok();
        let fresh = life;
        let life = head.as_ref().map_or(life, |h| h.life);
        let mut inner = Inner { life, begun: None, records: Vec::new(), places: BTreeMap::new(), end: 1 };
        if let Some(head) = &head {
            inner.begun = Some(head.mark);
            inner.find(&*dev).map_err(Error::device)?;
        }
        let stage = Stage { dev, uuid: sb.uuid, inner: Mutex::new(inner) };
        let mut inner = stage.inner.lock();
        let own = head.is_none_or(|h| h.uuid == sb.uuid && h.mark == Mark::of_superblock(sb));
        if !own && !inner.records.is_empty() {
            let what = "the stage has fsyncs of another volume, or of an older state of this volume";
            return Err(Error::Corrupt(format!("{what}; to discard them, remove the file")));
        }
        if inner.records.iter().any(|r| r.addr + r.blocks > sb.blocks) {
            return Err(Error::Corrupt("the stage holds blocks outside of the volume".into()));
        }
        if inner.records.is_empty() {
            // Records of this life may remain behind a lost one: they must not be mistaken for those of the next
            // fsync.
            (inner.begun, inner.life) = (None, inner.life.max(fresh));
        }
        drop(inner);
        Ok(stage)
    }

    /// True if nothing is staged.
    pub fn is_empty(&self) -> bool {
        self.inner.lock().records.is_empty()
    }

    /// Number of staged blocks.
    pub fn blocks(&self) -> u64 {
        self.inner.lock().places.len() as u64
    }

    /// Stages blocks; false if there is no room.
    pub fn append(&self, at: Addr, data: &[u8], mark: Mark) -> Done<bool> {
        let mut inner = self.inner.lock();
        let blocks = (data.len() / BLOCK) as u64;
        let heads = blocks.div_ceil(RECORD_MAX.into());
        if inner.end + blocks + heads > self.dev.blocks() {
            return Ok(false);
        }
        if inner.begun != Some(mark) {
            // All records of the previous life were dropped.
            inner.life += 1;
            self.write_head(&mut inner, mark)?;
        }
        for (n, some) in data.chunks(RECORD_MAX as usize * BLOCK).enumerate() {
            let addr = at.0 + n as u64 * u64::from(RECORD_MAX);
            let record = StageRecord {
                life: inner.life,
                number: inner.records.len() as u64,
                addr: Addr(addr),
                blocks: (some.len() / BLOCK) as u32,
                contents: checksum(&[some]),
            };
            let place = inner.end;
            self.dev.write_gather(Lba(place), &[&record.write()[..], some], Tag::default())?;
            inner.note(Record { addr, at: place + 1, blocks: record.blocks.into() });
        }
        Ok(true)
    }

    fn write_head(&self, inner: &mut Inner, mark: Mark) -> Done<()> {
        let head = StageHead { uuid: self.uuid, life: inner.life, mark };
        inner.begun = None;
        self.dev.write(Lba(0), &head.write()[..], Tag::default())?;
        inner.begun = Some(mark);
        Ok(())
    }

    /// Makes staged blocks durable.
    pub fn flush(&self) -> Done<()> {
        self.dev.flush(Tag::default())
    }

    /// True if all of these blocks are staged.
    pub fn has_all(&self, at: Addr, blocks: u64) -> bool {
        let inner = self.inner.lock();
        inner.places.range(at.0..at.0.saturating_add(blocks)).count() as u64 == blocks
    }

    /// Replaces blocks read from the archive by their staged versions.
    pub fn overlay(&self, at: Addr, buf: &mut [u8]) -> Done<()> {
        let inner = self.inner.lock();
        let blocks = (buf.len() / BLOCK) as u64;
        for (addr, place) in inner.places.range(at.0..at.0.saturating_add(blocks)) {
            let from = (addr - at.0) as usize * BLOCK;
            read(&*self.dev, *place, &mut buf[from..from + BLOCK])?;
        }
        Ok(())
    }

    /// Calls `each` with all staged blocks, in order.
    pub fn each(&self, mut each: impl FnMut(Lba, &[u8]) -> Done<()>) -> Done<()> {
        let records = self.inner.lock().records.clone();
        for record in records {
            let mut bytes = vec![0; record.blocks as usize * BLOCK];
            read(&*self.dev, record.at, &mut bytes)?;
            each(Lba(record.addr), &bytes)?;
        }
        Ok(())
    }

    /// Drops all records after the archive has them durably.
    pub fn forget(&self) -> Done<()> {
        let mut inner = self.inner.lock();
        let Some(mark) = inner.begun else { return Ok(()) };
        inner.life += 1;
        self.write_head(&mut inner, mark)?;
        self.dev.flush(Tag::default())?;
        inner.records.clear();
        inner.places.clear();
        inner.end = 1;
        Ok(())
    }
}

impl Inner {
    fn note(&mut self, record: Record) {
        for n in 0..record.blocks {
            self.places.insert(record.addr + n, record.at + n);
        }
        self.end = record.at + record.blocks;
        self.records.push(record);
    }

    /// Finds the records of this life, up to the first incomplete one.
    fn find(&mut self, dev: &dyn BlockDevice) -> Done<()> {
        let mut block = [0; BLOCK];
        while self.end < dev.blocks() {
            read(dev, self.end, &mut block)?;
            let Ok(record) = StageRecord::read(&block) else { return Ok(()) };
            let own = record.life == self.life && record.number == self.records.len() as u64;
            let blocks = u64::from(record.blocks);
            if !own || self.end + blocks >= dev.blocks() {
                return Ok(());
            }
            let mut bytes = vec![0; record.blocks as usize * BLOCK];
            read(dev, self.end + 1, &mut bytes)?;
            if checksum(&[&bytes]) != record.contents {
                return Ok(());
            }
            self.note(Record { addr: record.addr.0, at: self.end + 1, blocks });
        }
        Ok(())
    }
}
