//! Transactions that are durable on another disk and on their way to the archive.
//!
//! A record is a run of blocks of the log with the place where they belong. Only the log is staged, never a checkpoint, and
//! always from where the archive's log ends: what the archive has durably and what the stage has together are one log.
//! The records belong behind the superblock that the archive has ([`Mark`]). They are written to the archive, in order; it
//! makes them durable; only then are they forgotten here, and only then may the archive get another superblock. Until then no
//! block of them is used for anything else, so that writing them again, after a power cut, changes nothing.
//!
//! Memory: where each staged block is, some 60 bytes a block.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BlockDevice, Lba, Tag};
use parking_lot::Mutex;
use scherlfs_format::archive::{Mark, RECORD_MAX, StageHead, StageRecord};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, checksum};
use vfs::{Error, Result};

type Done<T> = std::result::Result<T, device::DeviceError>;

/// A record: where its blocks belong, where they are in the stage, how many.
#[derive(Clone, Copy)]
struct Record {
    addr: u64,
    at: u64,
    blocks: u64,
}

struct Inner {
    life: u64,
    /// The head on disk names this life and this superblock.
    begun: Option<Mark>,
    records: Vec<Record>,
    /// Where each staged block is.
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
    /// Looks at what a stage holds. `life` is a number for a new life, greater than any before.
    ///
    /// # Errors
    /// It holds what belongs to another volume, or to another state of this one; its disk fails.
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
        let own = head.is_none_or(|h| h.uuid == sb.uuid && h.mark == Mark::of(sb));
        if !own && !inner.records.is_empty() {
            let what = "the stage has fsyncs of another volume, or of an older state of this volume";
            return Err(Error::Corrupt(format!("{what}; to discard them, remove the file")));
        }
        if inner.records.iter().any(|r| r.addr + r.blocks > sb.blocks) {
            return Err(Error::Corrupt("the stage holds blocks outside of the volume".into()));
        }
        if inner.records.is_empty() {
            // Records of this life may stand behind one that was lost: they must not be taken for those of the next fsync.
            (inner.begun, inner.life) = (None, inner.life.max(fresh));
        }
        drop(inner);
        Ok(stage)
    }

    /// Nothing is staged.
    pub fn is_empty(&self) -> bool {
        self.inner.lock().records.is_empty()
    }

    /// Blocks that are staged.
    pub fn blocks(&self) -> u64 {
        self.inner.lock().places.len() as u64
    }

    /// Stages blocks; false: there is no room.
    pub fn append(&self, at: Addr, data: &[u8], mark: Mark) -> Done<bool> {
        let mut inner = self.inner.lock();
        let blocks = (data.len() / BLOCK) as u64;
        let heads = blocks.div_ceil(RECORD_MAX.into());
        if inner.end + blocks + heads > self.dev.blocks() {
            return Ok(false);
        }
        if inner.begun != Some(mark) {
            // Records of the life before were all forgotten.
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

    /// Makes what is staged durable.
    pub fn flush(&self) -> Done<()> {
        self.dev.flush(Tag::default())
    }

    /// Whether all of these blocks are staged.
    pub fn has_all(&self, at: Addr, blocks: u64) -> bool {
        let inner = self.inner.lock();
        inner.places.range(at.0..at.0.saturating_add(blocks)).count() as u64 == blocks
    }

    /// Puts what is staged of these blocks over what the archive said of them.
    pub fn overlay(&self, at: Addr, buf: &mut [u8]) -> Done<()> {
        let inner = self.inner.lock();
        let blocks = (buf.len() / BLOCK) as u64;
        for (addr, place) in inner.places.range(at.0..at.0.saturating_add(blocks)) {
            let from = (addr - at.0) as usize * BLOCK;
            read(&*self.dev, *place, &mut buf[from..from + BLOCK])?;
        }
        Ok(())
    }

    /// Gives all that is staged to `each`, in order.
    pub fn each(&self, mut each: impl FnMut(Lba, &[u8]) -> Done<()>) -> Done<()> {
        let records = self.inner.lock().records.clone();
        for record in records {
            let mut bytes = vec![0; record.blocks as usize * BLOCK];
            read(&*self.dev, record.at, &mut bytes)?;
            each(Lba(record.addr), &bytes)?;
        }
        Ok(())
    }

    /// The archive has all of it durably.
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

    /// The records of this life, up to the first that is not whole.
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
