//! Which of the two checkpoint packs is valid?

use device::{BlockDevice, Lba};
use format::checkpoint::{self, Checkpoint};
use format::superblock::SuperBlock;
use format::{BLOCK, Block, BlockAddr, FormatError};

use super::{MountError, read};
use crate::cause::Cause;
use crate::error::{At, Error, Result};
use crate::options::CheckpointChoice;

/// A pack with valid checksums, whatever its fields contain.
struct Whole {
    version: u64,
    /// Empty if its head has no valid number of blocks.
    bytes: Vec<Block>,
    checked: std::result::Result<Checkpoint, FormatError>,
}

/// Reads one pack if it is complete: the checksums of its head and tail are right and have one version. A head with an
/// impossible number of blocks counts as complete: no power cut produces it.
fn read_pack(dev: &dyn BlockDevice, sb: &SuperBlock, start: BlockAddr) -> Result<Whole> {
    let place = || format!("checkpoint pack at block {start}");
    let head = read(dev, start, Cause::Checkpoint)?;
    let version = checkpoint::version(&head).at(place)?;
    let n = match checkpoint::pack_blocks(&head) {
        Ok(n) => n,
        Err(fault) => return Ok(Whole { version, bytes: Vec::new(), checked: Err(fault) }),
    };
    let mut bytes = vec![[0u8; BLOCK]; n as usize];
    dev.read(Lba(start.0.into()), bytes.as_flattened_mut(), Cause::Checkpoint.tag())?;
    let tail = checkpoint::version(&bytes[n as usize - 1]).at(place)?;
    if tail != version {
        return Err(Error::corrupt(format_args!("{}: head has version {version}, tail {tail}", place())));
    }
    let checked = Checkpoint::check(sb, bytes.as_flattened());
    Ok(Whole { version, bytes, checked })
}

/// The valid pack, by checksum and version only: the newer complete one, the first on a tie. Its fields are checked
/// later. True if it is the second. If the older one is requested, only that one.
pub(super) fn choose_pack(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    which: CheckpointChoice,
) -> std::result::Result<(Checkpoint, Vec<Block>, bool), MountError> {
    let packs = [read_pack(dev, sb, sb.cp), read_pack(dev, sb, sb.cp.plus(512))];
    let (newest, other) = match packs {
        [Ok(a), Ok(b)] if b.version > a.version => ((b, true), Ok((a, false))),
        [Ok(a), b] => ((a, false), b.map(|b| (b, true))),
        [Err(a), Ok(b)] => ((b, true), Err(a)),
        [Err(a), Err(b)] => {
            return Err(MountError::NoCheckpoint { first: a.to_string(), second: b.to_string() });
        }
    };
    let (Whole { version, bytes, checked }, second, older) = match (which, other) {
        (CheckpointChoice::Older, other) => {
            let (whole, second) = other.map_err(|why| MountError::NoOlder(Box::new(why)))?;
            (whole, second, None)
        }
        (CheckpointChoice::Newest, other) => {
            let older = other.ok().filter(|(whole, _)| whole.checked.is_ok()).map(|(whole, _)| whole.version);
            (newest.0, newest.1, older)
        }
    };
    match checked {
        Ok(checkpoint) => Ok((checkpoint, bytes, second)),
        Err(fault) => {
            Err(MountError::Checkpoint { version, pack: 1 + u8::from(second), fault: Box::new(fault), older })
        }
    }
}
