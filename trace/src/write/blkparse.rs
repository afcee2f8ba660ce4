//! How are events written in blkparse's format, for tools that read it?
//!
//! Times keep their nanoseconds and their origin; sequence numbers per CPU are counted here. Missing data is not
//! invented: a remap with unknown origin comes from device 0,0, and actions without a counterpart in the recording
//! (plugging, bouncing...) are `?`. Response times ([`Event::took`]) have no field and are left out, and so is the
//! process on the CPU at a completion.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::Names;
use crate::block::{Action, DeviceId, Event};
use crate::letters;

/// Writes lines.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// The last sequence number of each CPU.
    sequences: FxHashMap<u32, u32>,
    letters: Vec<u8>,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`, line by line.
    pub fn new(out: W) -> Self {
        Writer { out, sequences: FxHashMap::default(), letters: Vec::new(), line: Vec::new() }
    }

    /// Writes one event; `names` are those of its recording.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn event(&mut self, event: &Event, names: &Names) -> io::Result<()> {
        let sequence = self.sequences.entry(event.cpu).or_default();
        *sequence = sequence.wrapping_add(1);
        self.letters.clear();
        letters::write(event.op, event.flags, &mut self.letters);
        self.line.clear();
        let line = &mut self.line;
        write!(
            line,
            "{:3},{:<3} {:2} {:8} {:5}.{:09} {:5} {:>2} ",
            event.device.major,
            event.device.minor,
            event.cpu,
            sequence,
            event.time / 1_000_000_000,
            event.time % 1_000_000_000,
            event.pid,
            event.action.letter()
        )?;
        line.extend(std::iter::repeat_n(b' ', 3_usize.saturating_sub(self.letters.len())));
        line.extend_from_slice(&self.letters);
        let (sector, sectors) = (event.sector, event.sectors);
        match event.action {
            Action::Complete | Action::Requeue => {
                // A negative number, printed as unsigned 16 bits.
                let error = (event.error.min(0x7fff) as u16).wrapping_neg();
                match sectors {
                    0 => writeln!(line, " {sector} [{error}]")?,
                    _ => writeln!(line, " {sector} + {sectors} [{error}]")?,
                }
            }
            Action::Remap => {
                let (DeviceId { major, minor }, at) = event.from.unwrap_or_default();
                writeln!(line, " {sector} + {sectors} <- ({major},{minor}) {at}")?;
            }
            _ => {
                match (event.action, sectors) {
                    (Action::Split, _) => write!(line, " {sector} / {}", sector.wrapping_add(sectors) as u32)?,
                    (_, 0) => {}
                    _ => write!(line, " {sector} + {sectors}")?,
                }
                line.extend_from_slice(b" [");
                let name = names.name(event.process).bytes();
                line.extend(name.map(|b| if b.is_ascii_control() { b'?' } else { b }));
                line.extend_from_slice(b"]\n");
            }
        }
        self.out.write_all(&self.line)
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
