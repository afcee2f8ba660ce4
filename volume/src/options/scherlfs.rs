//! Options of ScherlFS that a person may set, whatever a volume is mounted for.

use std::time::Duration;

use scherlfs::{Clean, MountOptions, Sync};

use super::number;
use crate::size;

/// Sets an option. False if ScherlFS has none of this name; the error says what is wrong with its value.
pub fn set(core: &mut MountOptions, name: &str, value: Option<&str>) -> Result<bool, String> {
    match name {
        "sync" => {
            core.sync = match value {
                Some("call") => Sync::Call,
                Some("fsync") => Sync::Fsync,
                _ => return Err("call or fsync".into()),
            };
        }
        "dirty" => core.dirty = number(name, value)? as u64 * 256,
        "dir_cache" => core.dir_cache = cache(name, value)?,
        "ifile_cache" => core.ifile_cache = cache(name, value)?,
        "writeback_seconds" => core.writeback = Duration::from_secs(number(name, value)? as u64),
        "checkpoint_bytes" => {
            let blocks = value.and_then(size::parse).map(|bytes| bytes / 4096);
            core.checkpoint_blocks = blocks.filter(|n| *n > 0).ok_or("write checkpoint_bytes=SIZE, 4K or more")?;
        }
        "checkpoint_seconds" => core.checkpoint_every = Some(Duration::from_secs(number(name, value)? as u64)),
        "undo" => {
            let blocks = value.and_then(size::parse).map(|bytes| bytes / 4096);
            core.undo = Some(blocks.ok_or("write undo=SIZE, what is kept so that changes can be undone; 0: nothing")?);
        }
        "clean" => core.clean = Clean::parse(value.unwrap_or("")).map_err(|why| format!("{name} {why}"))?,
        "power" => core.power = vfs::Power::parse(value.unwrap_or("")).map_err(|why| format!("{name} {why}"))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// MiB in blocks; nothing may be kept at all.
fn cache(name: &str, value: Option<&str>) -> Result<usize, String> {
    match value {
        Some("0") => Ok(0),
        value => Ok(number(name, value).map_err(|_| format!("write {name}=NUMBER of MiB, 0 or more"))? * 256),
    }
}
