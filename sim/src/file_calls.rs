//! What do reads and writes of one file cost, in order or at random?
//!
//! Left out: the state of the volume and the device before them.

use device::{BLOCK, Rng, generate};
use vfs::{SetAttr, WriteFlags};

use crate::bench::Bench;
use crate::error::SimError;
use crate::progress::Progress;
use crate::result::Phase;

/// The name of the file.
pub const FILE: &str = "measured";

/// Calls of one size and kind.
pub struct Calls<'a> {
    /// The name of the phase in results.
    pub name: &'a str,
    /// Write instead of read. The last write is followed by an fsync: a phase pays for what it writes.
    pub writes: bool,
    /// Visit the places in random order, every one before any is visited again, as fio does.
    pub random: bool,
    /// Bytes of a call: whole blocks that divide the size of the file.
    pub io: u64,
    /// How many.
    pub count: u64,
    /// An fsync after each write.
    pub fsync_each: bool,
    /// Make the file one hole first: every write allocates a block.
    pub holes: bool,
}

impl Calls<'_> {
    /// Measures the calls on the file of `size` bytes, whose blocks have the contents of `seed`.
    pub fn measure(
        &self,
        bench: &Bench,
        size: u64,
        seed: u64,
        rng: &mut Rng,
        progress: &Progress<'_>,
    ) -> Result<Phase, SimError> {
        let mut order: Vec<u64> = (0..size / self.io).collect();
        if self.random {
            rng.shuffle(&mut order);
        }
        let fs = bench.volume()?;
        let ino = bench.file(FILE)?;
        if self.holes {
            for size in [0, size] {
                fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
            }
            fs.fsync(ino, false)?;
        }
        let mut buf = vec![0; self.io as usize];
        let mut phase = bench.measure(self.name, self.count, progress, |recorder| {
            for place in order.iter().cycle().take(self.count as usize) {
                let at = place * self.io;
                if self.writes {
                    generate(seed, (at / BLOCK as u64) as u32, &mut buf);
                    fs.write(ino, at, &buf, WriteFlags::empty())?;
                    if self.fsync_each {
                        fs.fsync(ino, false)?;
                    }
                } else {
                    fs.read(ino, at, &mut buf)?;
                }
                recorder.step()?;
            }
            if self.writes {
                fs.fsync(ino, false)?;
            }
            Ok(self.count * self.io)
        })?;
        let megabytes = phase.bytes as f64 / 1_048_576.0;
        phase.note("speed", megabytes * 1e9 / phase.took.0 as f64, "MB/s");
        Ok(phase)
    }
}
