//! User options of ScherlFS for all purposes of a mount.

use std::time::Duration;

use scherlfs::{Clean, MountOptions, Placement, Sync};

use super::{commit, commit_idle, number};
use crate::size;

/// Sets an option. False if ScherlFS has none with this name; the error explains a wrong value.
pub fn set(core: &mut MountOptions, name: &str, value: Option<&str>) -> Result<bool, String> {
    match name {
        "sync" => {
            core.sync = match value {
                Some("call") => Sync::Call,
                Some("fsync") => Sync::Fsync,
                Some("burst") => Sync::Burst,
                _ => return Err("call, fsync or burst".into()),
            };
        }
        "dirty" => core.dirty = number(name, value)? as u64 * 256,
        "stage" => {
            let blocks = value.and_then(size::parse).map(|bytes| bytes / 4096);
            core.dirty = blocks.filter(|n| *n > 0).ok_or("write stage=SIZE, 4K or more")?;
        }
        "sleep" => {
            core.beside.sleep = Some(value.and_then(duration).ok_or("write sleep=TIME, such as 90s, 10m or 1h")?);
        }
        "dir_cache" => core.dir_cache = cache(name, value)?,
        "ifile_cache" => core.ifile_cache = cache(name, value)?,
        "commit" => core.commit = commit(value, core.commit)?,
        "commit_idle" => commit_idle(value, &mut core.commit)?,
        "writeback_seconds" => core.writeback = Duration::from_secs(number(name, value)? as u64),
        "checkpoint_bytes" => {
            let blocks = value.and_then(size::parse).map(|bytes| bytes / 4096);
            core.checkpoint_blocks = blocks.filter(|n| *n > 0).ok_or("write checkpoint_bytes=SIZE, 4K or more")?;
        }
        "checkpoint_seconds" => core.checkpoint_every = Some(Duration::from_secs(number(name, value)? as u64)),
        "undo" => {
            let blocks = value.and_then(size::parse).map(|bytes| bytes / 4096);
            core.undo = Some(blocks.ok_or("write undo=SIZE, the replaced data to keep for undo; 0: nothing")?);
        }
        "placement" => {
            core.placement = Some(Placement::parse(value.unwrap_or("")).map_err(|why| format!("{name} {why}"))?);
        }
        "clean" => core.clean = Clean::parse(value.unwrap_or("")).map_err(|why| format!("{name} {why}"))?,
        "power" => core.power = vfs::Power::parse(value.unwrap_or("")).map_err(|why| format!("{name} {why}"))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses a time such as `90`, `90s`, `10m`, `1h`; over 0.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 's') => (&text[..at], 1),
        (at, 'm') => (&text[..at], 60),
        (at, 'h') => (&text[..at], 3600),
        _ => (text, 1),
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Parses MiB into blocks; 0 is allowed.
fn cache(name: &str, value: Option<&str>) -> Result<usize, String> {
    match value {
        Some("0") => Ok(0),
        value => Ok(number(name, value).map_err(|_| format!("write {name}=NUMBER of MiB, 0 or more"))? * 256),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let seconds = |text| duration(text).map(|d| d.as_secs());
        assert_eq!([seconds("90"), seconds("90s"), seconds("10m"), seconds("2h")], [90, 90, 600, 7200].map(Some));
        for wrong in ["", "m", "0", "0h", "-1s", "1.5h", "10 m", "99999999999999999999", "99999999999999999h"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
