//! Which file calls did a program make, in order and with every byte?
//!
//! A [`Tape`] holds files in memory and records every call that changes or reads them. SQLite runs on one
//! ([`sqlite_disk`](crate::sqlite_disk)); later [`play`](super::play) replays the calls on volumes, with identical
//! bytes. Left out: directories (all names are in one), and reads of data that was not written before.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::salts::Salts;
use crate::sqlite_disk::{Files, SyncsDirectory};

/// A file's number on the tape.
pub type File = usize;

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Creates a file with a name.
    Make(File, String),
    /// Writes a range of the tape's bytes at an offset.
    Write(File, u64, Range<usize>),
    /// Reads a number of bytes at an offset.
    Read(File, u64, usize),
    /// Sets the size.
    Size(File, u64),
    /// Makes contents durable, like `fdatasync`.
    Sync(File),
    /// Makes names durable.
    SyncDirectory,
    /// Unlinks the file.
    Delete(File),
    /// Renames; an existing file with that name is replaced.
    Rename(File, String),
    /// Pause until the next action of the user or the network.
    Wait(Duration),
}

/// Calls with their bytes, and how many of them are preparation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    /// The calls.
    pub calls: Vec<Call>,
    /// The bytes written.
    pub bytes: Vec<u8>,
    /// Number of calls, from the first, that are preparation.
    pub prepares: usize,
    /// The databases at the end: names and contents ([`summary`](super::database::summary)).
    pub databases: Vec<(String, String)>,
}

#[derive(Default)]
struct Recorded {
    names: BTreeMap<String, File>,
    files: Vec<Vec<u8>>,
    script: Script,
    salts: Salts,
    /// Recording has stopped.
    stopped: bool,
}

impl Recorded {
    fn note(&mut self, call: Call) {
        if !self.stopped {
            self.script.calls.push(call);
        }
    }

    fn make(&mut self, name: &str) -> File {
        let file = self.files.len();
        self.files.push(Vec::new());
        self.names.insert(name.into(), file);
        self.note(Call::Make(file, name.into()));
        file
    }

    fn write(&mut self, file: File, at: u64, bytes: &[u8]) {
        let (from, to) = (at as usize, at as usize + bytes.len());
        let contents = &mut self.files[file];
        if contents.len() < to {
            contents.resize(to, 0);
        }
        contents[from..to].copy_from_slice(bytes);
        if !self.stopped {
            let start = self.script.bytes.len();
            self.script.bytes.extend_from_slice(bytes);
            self.script.calls.push(Call::Write(file, at, start..start + bytes.len()));
        }
    }

    fn named(&self, name: &str) -> Result<File, Error> {
        self.names.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

/// Files and what was done to them.
#[derive(Clone, Default)]
pub struct Tape(Arc<Mutex<Recorded>>);

impl Tape {
    /// Ends the preparation.
    pub fn begin(&self) {
        let mut tape = self.0.lock();
        tape.script.prepares = tape.script.calls.len();
    }

    /// Stops recording.
    pub fn stop(&self) {
        self.0.lock().stopped = true;
    }

    /// The recorded script.
    pub fn script(&self) -> Script {
        let mut tape = self.0.lock();
        std::mem::take(&mut tape.script)
    }

    /// Opens a file; creates it if it does not exist.
    pub fn open(&self, name: &str) -> File {
        let mut tape = self.0.lock();
        match tape.named(name) {
            Ok(file) => file,
            Err(_) => tape.make(name),
        }
    }

    /// A file's bytes.
    pub fn contents(&self, file: File) -> Vec<u8> {
        self.0.lock().files[file].clone()
    }

    /// Writes.
    pub fn put(&self, file: File, at: u64, bytes: &[u8]) {
        self.0.lock().write(file, at, bytes);
    }

    /// `fdatasync`.
    pub fn durable(&self, file: File) {
        self.0.lock().note(Call::Sync(file));
    }

    /// Unlinks a name.
    pub fn remove(&self, name: &str) {
        let mut tape = self.0.lock();
        if let Some(file) = tape.names.remove(name) {
            tape.note(Call::Delete(file));
        }
    }

    /// Renames a file.
    pub fn rename(&self, from: &str, to: &str) {
        let mut tape = self.0.lock();
        if let Some(file) = tape.names.remove(from) {
            tape.names.insert(to.into(), file);
            tape.note(Call::Rename(file, to.into()));
        }
    }

    /// Time passes.
    pub fn wait(&self, time: Duration) {
        self.0.lock().note(Call::Wait(time));
    }
}

impl Files for Tape {
    fn find(&self, name: &str) -> Result<u64, Error> {
        self.0.lock().named(name).map(|f| f as u64)
    }
    fn make(&self, name: &str) -> Result<u64, Error> {
        Ok(self.0.lock().make(name) as u64)
    }
    fn forget(&self, _file: u64) {}
    fn delete(&self, name: &str) -> Result<(), Error> {
        self.find(name)?;
        self.remove(name);
        Ok(())
    }
    fn size(&self, file: u64) -> Result<u64, Error> {
        Ok(self.0.lock().files[file as usize].len() as u64)
    }
    fn read(&self, file: u64, at: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let mut tape = self.0.lock();
        let contents = tape.files[file as usize].get(at as usize..).unwrap_or_default();
        let n = contents.len().min(buf.len());
        buf[..n].copy_from_slice(&contents[..n]);
        if n > 0 {
            tape.note(Call::Read(file as usize, at, n));
        }
        Ok(n)
    }
    fn write(&self, file: u64, at: u64, bytes: &[u8]) -> Result<usize, Error> {
        let mut tape = self.0.lock();
        let written = tape.salts.drawn_from_a_seed(file, at, bytes);
        for (at, bytes) in written {
            tape.write(file as usize, at, &bytes);
        }
        Ok(bytes.len())
    }
    fn set_size(&self, file: u64, size: u64) -> Result<(), Error> {
        let mut tape = self.0.lock();
        tape.files[file as usize].resize(size as usize, 0);
        tape.note(Call::Size(file as usize, size));
        Ok(())
    }
    fn sync(&self, file: u64, _data_only: bool) -> Result<(), Error> {
        // SQLite on Unix always calls fdatasync, whatever the flags.
        self.durable(file as usize);
        Ok(())
    }
    fn sync_directory(&self, how: SyncsDirectory) -> Result<(), Error> {
        if how != SyncsDirectory::Never {
            self.0.lock().note(Call::SyncDirectory);
        }
        Ok(())
    }
}
