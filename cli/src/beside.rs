//! Which companion files does a ScherlFS volume have on another disk, and may they be used?
//!
//! Mount option `index=FILE`: FILE, which is mostly holes, and next to it `FILE.stage` and `FILE.keep`. Only their
//! owner may access them, for they hold names and contents. Unrelated files are not touched.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Access, BLOCK, BlockDevice, FileDevice};
use scherlfs_format::archive::{INDEX_MAGIC, STAGE_MAGIC};
use scherlfs_format::keep::KEEP_MAGIC;
use volume::MountOptions;

use crate::Failure;

/// Size of a stage for up to `dirty` waiting blocks: each may need a block that records its destination.
fn stage_blocks(dirty: u64) -> u64 {
    2 * dirty + 256
}

/// The index's path with `more` appended.
fn beside(index: &Path, more: &str) -> PathBuf {
    let mut name = index.as_os_str().to_owned();
    name.push(more);
    name.into()
}

/// The size of an existing file, if it may be used: it is all holes, has `magic` at the start of its first or second
/// block, or has the expected size for this volume. A companion file that was never written is all holes.
fn look(path: &Path, magic: [u8; 8], bytes: u64, what: &str) -> Result<Option<u64>, Failure> {
    let failed = |e: std::io::Error| Failure::from(format!("{}: {e}", path.display()));
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    if !meta.is_file() {
        return Err(format!("{}: no regular file, and so no {what}", path.display()).into());
    }
    let mut begin = Vec::new();
    fs::File::open(path).and_then(|f| f.take(2 * BLOCK as u64).read_to_end(&mut begin)).map_err(failed)?;
    let begins = [0, BLOCK].iter().any(|at| begin.get(*at..*at + 8) == Some(&magic[..]));
    let hole = meta.blocks() == 0 && begin.iter().all(|b| *b == 0);
    match begins || meta.len() == bytes || hole {
        true => Ok(Some(meta.len())),
        false => Err(format!(
            "{}: not the {what} of a volume, so it is not overwritten; give another name, or remove the file",
            path.display()
        )
        .into()),
    }
}

/// Opens a companion file with at least `blocks` blocks; `exact`: with exactly that number, and emptied if its size
/// differs.
fn open(path: &Path, magic: [u8; 8], blocks: u64, exact: bool, what: &str) -> Result<Arc<dyn BlockDevice>, Failure> {
    let bytes = blocks * BLOCK as u64;
    let failed = |e: std::io::Error| {
        let why = match e.kind() {
            ErrorKind::FileTooLarge | ErrorKind::InvalidInput => {
                format!("its file system does not support a sparse file of {bytes} bytes; XFS and btrfs do")
            }
            _ => e.to_string(),
        };
        Failure::from(format!("{}: {why}", path.display()))
    };
    let found = look(path, magic, bytes, what)?;
    if found.is_none_or(|len| len < bytes || (exact && len != bytes)) {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
        if exact {
            file.set_len(0).map_err(failed)?;
        }
        file.set_len(bytes).map_err(failed)?;
    }
    let device = FileDevice::open(path, Access::ReadWrite).map_err(|e| e.to_string())?;
    Ok(Arc::new(device))
}

/// Opens the index of a volume, a keep of the given size, and the stage if requested or present: staged data is moved
/// to the volume.
pub fn open_index(
    index: &Path,
    keep: Option<u64>,
    disk: &dyn BlockDevice,
    options: &mut MountOptions,
) -> Result<(), Failure> {
    // An unreadable volume is reported when it is mounted.
    let Ok(sb) = scherlfs::superblock(disk) else { return Ok(()) };
    let blocks = scherlfs::index_blocks(sb.blocks).map_err(|e| e.to_string())?;
    let options = &mut options.scherlfs;
    options.beside.index = Some(open(index, INDEX_MAGIC, blocks, true, "index")?);
    if let Some(bytes) = keep {
        let blocks = scherlfs::keep_blocks(bytes / BLOCK as u64).map_err(|e| e.to_string())?;
        options.beside.keep = Some(open(&beside(index, ".keep"), KEEP_MAGIC, blocks, true, "keep")?);
    }
    let stage = beside(index, ".stage");
    if options.sync == scherlfs::Sync::Burst || stage.exists() {
        options.beside.stage = Some(open(&stage, STAGE_MAGIC, stage_blocks(options.dirty), false, "stage")?);
    }
    Ok(())
}

/// The name of a process.
pub fn program_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(crate::output::plain(name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_ours_that_was_never_written_to_is_taken_again_and_a_strangers_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.stage");
        let of = |blocks| open(&path, STAGE_MAGIC, blocks, false, "stage").map(drop);
        of(100).unwrap();
        of(300).unwrap();
        of(200).unwrap();
        fs::write(&path, b"what somebody wrote").unwrap();
        assert!(of(200).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"what somebody wrote");
    }
}
