//! How are requests written as an iolog, for `fio --read_iolog`?
//!
//! A device is a file in the log: with its name in the recording, or `/dev/block/MAJOR:MINOR` if fio could not parse
//! that name. With `--replay_redirect=FILE` fio uses a single file, whatever is named.
//!
//! Operations that fio lacks are replaced or [counted as left out](Writer::left_out): a durable write (FUA) becomes a
//! write and a `datasync`, a secure erase becomes a `trim`; zeroes without data and commands passed through are left
//! out. Times begin at the first request and never decrease. Version 2 has only milliseconds, as `wait` lines: fio
//! waits until this many have passed since its start.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::block::{DeviceId, Flags, Op, SECTOR};
use crate::requests::Request;

/// Version of the iolog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// For every fio since 1.17.
    V2,
    /// With a time on every line; for fio 3.31 and later.
    V3,
}

/// Most bytes in a line: fio reads 32 bits.
const PIECE: u64 = 1 << 31;
/// Longest name that fio reads.
const LONGEST_NAME: usize = 255;

/// Writes lines.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    version: Version,
    devices: BTreeMap<DeviceId, String>,
    /// Arrival of the first request, in nanoseconds.
    first: Option<u64>,
    /// Microseconds since then.
    now: u64,
    /// Milliseconds waited so far.
    waited: u64,
    left_out: u64,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`, beginning with the first line.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn new(mut out: W, version: Version) -> io::Result<Self> {
        writeln!(out, "fio version {} iolog", if version == Version::V2 { 2 } else { 3 })?;
        Ok(Writer { out, version, devices: BTreeMap::new(), first: None, now: 0, waited: 0, left_out: 0 })
    }

    /// Number of requests that fio cannot make.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Writes one request; `name` is called once per device ([`Events::device`](crate::block::Events::device)).
    ///
    /// # Errors
    /// Errors of the output.
    pub fn request(&mut self, request: &Request, name: impl FnOnce(DeviceId) -> Option<String>) -> io::Result<()> {
        let action = match request.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "sync",
            Op::Discard | Op::SecureErase => "trim",
            Op::WriteZeroes | Op::Other => {
                self.left_out += 1;
                return Ok(());
            }
        };
        let first = *self.first.get_or_insert(request.time);
        self.now = self.now.max(request.time.saturating_sub(first) / 1000);
        let device = request.device;
        if !self.devices.contains_key(&device) {
            let fits = |n: &String| {
                !n.is_empty() && n.len() <= LONGEST_NAME && !n.bytes().any(|b| b.is_ascii_whitespace() || b == 0)
            };
            // An open file must not be opened again.
            let free = |n: &String| !self.devices.values().any(|other| other == n);
            let name = name(device).filter(|n| fits(n) && free(n));
            let name = name.unwrap_or_else(|| format!("/dev/block/{}:{}", device.major, device.minor));
            self.devices.insert(device, name);
            self.line(device, "add")?;
            self.line(device, "open")?;
        }
        if self.version == Version::V2 && self.now / 1000 > self.waited {
            self.waited = self.now / 1000;
            self.line(device, &format!("wait {} 0", self.waited))?;
        }
        let (mut at, end) = (request.sector.saturating_mul(SECTOR), request.sectors.saturating_mul(SECTOR));
        let end = at.saturating_add(end);
        if request.op == Op::Flush {
            return self.line(device, "sync 0 0");
        }
        while at < end {
            let bytes = PIECE.min(end - at);
            self.line(device, &format!("{action} {at} {bytes}"))?;
            at += bytes;
        }
        if request.flags.contains(Flags::FUA) {
            self.line(device, "datasync 0 0")?;
        }
        Ok(())
    }

    fn line(&mut self, device: DeviceId, action: &str) -> io::Result<()> {
        let name = self.devices.get(&device).map_or("", String::as_str);
        match self.version {
            Version::V2 => writeln!(self.out, "{name} {action}"),
            Version::V3 => writeln!(self.out, "{} {name} {action}", self.now),
        }
    }

    /// Closes the files; flushes and returns the output.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(mut self) -> io::Result<W> {
        for device in self.devices.keys().copied().collect::<Vec<_>>() {
            self.line(device, "close")?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}
