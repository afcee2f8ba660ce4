//! The requests that a kernel's file system made for the calls of [`super::calls`], and their file format.
//!
//! The file is a JouleFS recording (`docs/record-format.md`) whose clock counts calls: each begins [`CALL`] nanoseconds
//! after the one before, and takes no time. Request times from the recorded machine do not apply to a disk; the
//! requests are replayed one after the other. A request's cause is its stage; [`MOUNT`] and [`UNMOUNT`] are the causes
//! between two stages. Neither written data nor fingerprints of it are kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use device::{BLOCK, Blank, BlockDevice, Lba, Tag, VirtualClock};
use record::blocks::{Event, Events, Recorder};
use record::{Reader, RecordError};

/// Nanoseconds of the recording's clock between calls.
pub const CALL: u64 = 1_000_000;
/// Cause of requests while mounting.
pub const MOUNT: u8 = 1;
/// Cause of requests while unmounting.
pub const UNMOUNT: u8 = 2;
/// Cause of the first stage; the next stages have the next numbers.
pub const FIRST_STAGE: u8 = 3;

/// Writes a recording.
pub struct Writer {
    device: Recorder<Blank>,
    clock: Arc<VirtualClock>,
    cause: u8,
    zeroes: Vec<u8>,
}

/// A recording cannot be written.
pub type WriteError = Box<dyn std::error::Error + Send + Sync>;

impl Writer {
    /// Starts a recording to `out` for a disk of `blocks` blocks and these stages.
    pub fn new(out: impl Write + Send + 'static, blocks: u64, stages: &[&str]) -> Result<Self, WriteError> {
        let causes: Vec<(u8, &str)> = [(MOUNT, "mount"), (UNMOUNT, "unmount")]
            .into_iter()
            .chain((FIRST_STAGE..).zip(stages.iter().copied()))
            .collect();
        let clock = Arc::new(VirtualClock::default());
        let device = Recorder::new(Blank::new(blocks), out, clock.clone(), &causes)?;
        Ok(Writer { device, clock, cause: MOUNT, zeroes: Vec::new() })
    }

    /// Sets the cause of the next requests.
    pub fn turn(&mut self, cause: u8) {
        self.cause = cause;
    }

    /// Begins the next call.
    pub fn call(&mut self) {
        self.clock.advance(Duration::from_nanos(CALL));
    }

    fn tag(&self) -> Tag {
        Tag { cause: self.cause, owner: 0 }
    }

    /// Records a read.
    pub fn read(&mut self, at: Lba, blocks: u64) -> Result<(), WriteError> {
        let tag = self.tag();
        self.zeroes.resize(blocks as usize * BLOCK, 0);
        Ok(self.device.read(at, &mut self.zeroes, tag)?)
    }

    /// Records a write.
    pub fn write(&mut self, at: Lba, blocks: u64) -> Result<(), WriteError> {
        let tag = self.tag();
        self.zeroes.clear();
        self.zeroes.resize(blocks as usize * BLOCK, 0);
        Ok(self.device.write(at, &self.zeroes, tag)?)
    }

    /// Records a flush.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        Ok(self.device.flush(self.tag())?)
    }

    /// Ends the recording; returns the number of requests.
    pub fn finish(self) -> Result<u64, WriteError> {
        Ok(self.device.finish()?)
    }
}

/// Requests of one stage, or between two.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The stage's name; `mount` or `unmount` between two.
    pub name: String,
    /// The requests, by call.
    pub calls: Vec<Vec<Event>>,
}

/// A whole recording.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Blocks of the recorded disk.
    pub blocks: u64,
    /// The stages, in order.
    pub stages: Vec<Stage>,
}

impl Recording {
    /// Parses a recording, compressed by zstd or not.
    pub fn read(bytes: Cow<'static, [u8]>) -> Result<Self, RecordError> {
        let compressed = bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        let inner: Box<dyn Read + Send> = match compressed {
            true => {
                Box::new(zstd::Decoder::new(Cursor::new(bytes)).map_err(|source| RecordError::Io { at: 0, source })?)
            }
            false => Box::new(Cursor::new(bytes)),
        };
        let mut events = Events::new(Reader::new(inner)?)?;
        let (blocks, names) = (events.blocks(), events.causes().clone());
        Ok(Recording { blocks, stages: stages(&mut events, &names)? })
    }
}

fn stages(events: &mut Events, names: &BTreeMap<u8, String>) -> Result<Vec<Stage>, RecordError> {
    let mut stages: Vec<Stage> = Vec::new();
    let (mut cause, mut call) = (None, 0);
    for event in events {
        let event = event?;
        if cause != Some(event.tag.cause) {
            cause = Some(event.tag.cause);
            call = event.arrival / CALL;
            let name = names.get(&event.tag.cause).cloned().unwrap_or_default();
            stages.push(Stage { name, calls: vec![Vec::new()] });
        }
        let Some(stage) = stages.last_mut() else { continue };
        while call < event.arrival / CALL {
            call += 1;
            stage.calls.push(Vec::new());
        }
        if let Some(last) = stage.calls.last_mut() {
            last.push(event);
        }
    }
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use record::blocks::Request;

    use super::*;

    /// The written bytes, shared with a reader.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn requests_come_back_by_stage_and_call() {
        let out = Shared::default();
        let mut writer = Writer::new(out.clone(), 100, &["create", "read"]).unwrap();
        writer.read(Lba(0), 1).unwrap();
        writer.turn(FIRST_STAGE);
        for call in 0..3 {
            writer.call();
            // The second call makes no requests.
            if call != 1 {
                writer.write(Lba(10 + call), 2).unwrap();
                writer.flush().unwrap();
            }
        }
        writer.turn(UNMOUNT);
        writer.write(Lba(0), 1).unwrap();
        writer.turn(FIRST_STAGE + 1);
        writer.call();
        writer.read(Lba(10), 2).unwrap();
        assert_eq!(writer.finish().unwrap(), 7);
        let plain = out.0.lock().clone();
        let packed = zstd::encode_all(&*plain, 3).unwrap();
        for bytes in [plain, packed] {
            let read = Recording::read(Cow::Owned(bytes)).unwrap();
            assert_eq!(read.blocks, 100);
            let of: Vec<(&str, Vec<usize>)> =
                read.stages.iter().map(|s| (&*s.name, s.calls.iter().map(Vec::len).collect())).collect();
            assert_eq!(of, [("mount", vec![1]), ("create", vec![2, 0, 2]), ("unmount", vec![1]), ("read", vec![1])]);
            let second = read.stages[1].calls[2][0].request;
            assert!(matches!(second, Request::Write { at: Lba(12), blocks: 2, .. }), "{second:?}");
        }
    }
}
