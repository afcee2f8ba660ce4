//! A file in memory that can be inspected after writing.
// Each test program uses some of these.
#![allow(dead_code)]

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use record::{Reader, RecordError};

#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics in it").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("nobody panics in it").clone()
    }
    pub fn reader(&self) -> Reader {
        Reader::new(Cursor::new(self.bytes())).expect("a recording")
    }
}

/// Accepts this many bytes and then is full.
pub struct Full(pub usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let n = bytes.len().min(self.0);
        self.0 -= n;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Number of records in a recording, and the error after them.
pub fn counted<T, E>(events: Result<E, RecordError>) -> (u64, Option<RecordError>)
where
    E: Iterator<Item = Result<T, RecordError>>,
{
    let events = match events {
        Ok(events) => events,
        Err(error) => return (0, Some(error)),
    };
    let (mut whole, mut failed) = (0, None);
    for event in events {
        assert!(failed.is_none(), "nothing comes after an error");
        match event {
            Ok(_) => whole += 1,
            Err(error) => failed = Some(error),
        }
    }
    (whole, failed)
}
