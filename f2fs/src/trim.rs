//! Which free blocks does the device still store?
//!
//! A checkpoint discards the segments that it frees. This module discards the holes in segments that are in use, as
//! `fstrim` does in Linux. Linux also has a thread that discards holes of 64 KiB or more, and every hole if the volume
//! is more than 80 % full; JouleFS has no such thread.

use device::{BlockDevice, Lba};
use format::SegNo;

use crate::cause::Cause;
use crate::error::Error;
use crate::pack::Reason;
use crate::segment::table::SegmentTable;
use crate::volume::Volume;

/// Runs of free blocks in the main area that the last checkpoint does not need: first block and length.
fn runs(table: &SegmentTable, segments: u32, at_least: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let (mut first, mut blocks) = (0, 0);
    for seg in 0..segments {
        for off in 0..512 {
            let at = u64::from(seg) * 512 + u64::from(off);
            if table.is_valid(SegNo(seg), off) || table.is_held(SegNo(seg), off) {
                continue;
            }
            if first + blocks != at {
                if blocks >= at_least {
                    out.push((first, blocks));
                }
                (first, blocks) = (at, 0);
            }
            blocks += 1;
        }
    }
    if blocks >= at_least {
        out.push((first, blocks));
    }
    out
}

impl Volume {
    /// Writes a checkpoint and discards every run of at least `at_least` free blocks; returns the number of blocks
    /// discarded. No other operation changes the volume meanwhile.
    pub fn trim(&self, at_least: u64) -> vfs::Result<u64> {
        let mut pack = self.ctx.cp.write();
        // A block freed since the last checkpoint belongs to that checkpoint until the next one.
        self.cleaning.checkpoint_locked(&mut pack, Reason::Running)?;
        let runs = runs(&self.logs.seg.lock().table, self.ctx.sb.main_segs, at_least.max(1));
        let main = self.ctx.sb.seg_start(SegNo(0));
        let mut told = 0;
        for (first, blocks) in runs {
            self.ctx
                .dev
                .discard(Lba(u64::from(main.0) + first), blocks, Cause::Checkpoint.tag())
                .map_err(Error::from)?;
            told += blocks;
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use vfs::FileSystem;

    use crate::options::MountOptions;
    use crate::rig::{blocks, file, judge, mounted, read, write};

    #[test]
    fn the_device_is_told_of_holes_and_of_nothing_that_is_needed() {
        let (dev, vol) = mounted(64, MountOptions { inline: false, ..MountOptions::default() });
        let names: Vec<String> = (0..40).map(|n| format!("f{n}")).collect();
        let inos: Vec<_> = names.iter().map(|name| file(&vol, name)).collect();
        for (n, ino) in inos.iter().enumerate() {
            write(&vol, *ino, 0, &blocks(1 + n % 4));
        }
        vol.sync().unwrap();
        for name in names.iter().step_by(2) {
            vol.unlink(vol.root(), name.as_bytes()).unwrap();
        }
        let free = vol.logs.free_fragments().total_blocks();
        assert!(vol.trim(2).unwrap() < vol.trim(1).unwrap(), "holes of one block are holes, too");
        let told = vol.trim(1).unwrap();
        assert!(told >= free, "{told} of {free}");
        for (n, ino) in inos.iter().enumerate().skip(1).step_by(2) {
            assert_eq!(read(&vol, *ino), blocks(1 + n % 4), "{}", names[n]);
        }
        judge(&dev, &vol);
    }
}
