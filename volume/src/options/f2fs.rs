//! User options of F2FS for all purposes of a mount.

use f2fs::delta::{Places, Reads, Study};
use f2fs::file::prealloc::{DEFAULT_BLOCKS, MOST_BLOCKS};
use f2fs::streams::Streams;
use f2fs::{FsyncMode, Holes, InPlace, Mode, MountOptions};
use format::superblock::Features;

use super::{commit, commit_idle, number, on};
use crate::size;

/// Sets an option. False if F2FS has none with this name; the error explains a wrong value.
pub fn set(core: &mut MountOptions, name: &str, value: Option<&str>) -> Result<bool, String> {
    let known = set_value(core, name, value)?;
    // The last option with a name wins.
    core.needs.retain(|(given, _)| given.split('=').next() != Some(name));
    if known && let Some(feature) = needed_by(name, value) {
        let given = value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}"));
        core.needs.push((given, feature));
    }
    Ok(known)
}

/// The feature without which an option has no effect.
fn needed_by(name: &str, value: Option<&str>) -> Option<Features> {
    match name {
        "delta" | "delta_return" if value == Some("off") => None,
        "delta" | "delta_return" | "delta_layout" | "delta_reads" => Some(Features::DELTA),
        "compress_algorithm"
        | "compress_log_size"
        | "compress_chksum"
        | "compress_mode"
        | "compress_extension"
        | "nocompress_extension" => Some(Features::COMPRESSION),
        _ => None,
    }
}

fn set_value(core: &mut MountOptions, name: &str, value: Option<&str>) -> Result<bool, String> {
    match name {
        "discard" => core.discard = on(value)?,
        "nodiscard" if value.is_some() => return Err("nodiscard takes no value".into()),
        "nodiscard" => core.discard = false,
        "discard_unit" => {
            core.discard_holes = match value {
                Some("segment") => Holes::Kept,
                Some("block") => Holes::AsLinux,
                Some("price") => Holes::Worth,
                _ => return Err("segment, block or price".into()),
            };
        }
        "wear" => {
            let microjoules = value.and_then(|v| v.parse().ok()).filter(|n: &u64| *n <= 1 << 20);
            core.wear = microjoules.ok_or("a number of microjoules, up to 1048576")? * 1_000_000;
        }
        "fsync_mode" => {
            core.fsync_mode = match value {
                Some("strict") => FsyncMode::Strict,
                Some("posix") => FsyncMode::Posix,
                Some("nobarrier") => FsyncMode::NoBarrier,
                _ => return Err("strict, posix or nobarrier".into()),
            };
        }
        "in_place" => {
            core.in_place = match value {
                Some("price") => InPlace::Price,
                other => InPlace::Few(other.and_then(|v| v.parse().ok()).ok_or("a number of blocks, or price")?),
            };
        }
        "mode" => {
            core.mode = match value {
                Some("lfs") => Mode::Lfs,
                Some("adaptive") => Mode::Adaptive,
                _ => return Err("lfs or adaptive".into()),
            };
        }
        "commit" => core.commit = commit(value, core.commit)?,
        "commit_idle" => commit_idle(value, &mut core.commit)?,
        "inline" => core.inline = on(value)?,
        "delta" => {
            core.delta_places = match value {
                Some("inode") => Places::Inode,
                Some("nodes") => Places::Nodes,
                _ => Places::Both,
            };
            let places = matches!(value, Some("inode" | "nodes"));
            core.delta = places || on(value).map_err(|_| "on, off, inode or nodes")?;
        }
        "delta_layout" => {
            core.delta_study = match value {
                Some("joulefs") => Study::default(),
                Some("medfs") => Study::MEDFS,
                _ => return Err("joulefs or medfs".into()),
            };
        }
        "delta_reads" => {
            core.delta_reads = match value {
                Some("all") => Reads::All,
                Some("few") => Reads::Few,
                Some("joules") => Reads::Joules,
                _ => return Err("all, few or joules".into()),
            };
        }
        "prealloc" => core.prealloc = prealloc(value)?,
        "streams" => core.streams = streams(value)?,
        "delta_return" => core.delta_return = on(value)?,
        "node_cache" => core.node_cache = number(name, value)? * 256,
        "dirty" => core.dirty_limit = number(name, value)? * 256,
        "dir_cache" => core.dir_cache = number(name, value)? * 256,
        "gc" | "power" | "background_gc" => {
            core.gc.set(name, value.unwrap_or_default()).map_err(|why| format!("{name} {why}"))?;
        }
        _ => return core.compress.set(name, value),
    }
    Ok(true)
}

/// Parses a name in [`Streams::ALL`].
fn streams(value: Option<&str>) -> Result<Streams, String> {
    let found = Streams::ALL.into_iter().find(|(name, _)| Some(*name) == value);
    found.map(|(_, s)| s).ok_or_else(|| Streams::ALL.map(|(name, _)| name).join(", "))
}

/// `db`, `db:SIZE` or `off`.
fn prealloc(value: Option<&str>) -> Result<Option<u32>, String> {
    let blocks = match value {
        Some("db") => Some(DEFAULT_BLOCKS),
        Some("off") => None,
        Some(text) => {
            let size = text.strip_prefix("db:").and_then(size::parse);
            let blocks = size.map(|bytes| bytes.div_ceil(4096)).filter(|n| (2..=u64::from(MOST_BLOCKS)).contains(n));
            Some(blocks.ok_or("db, db:SIZE with 8K to 2M, or off")? as u32)
        }
        None => return Err("db, db:SIZE with 8K to 2M, or off".into()),
    };
    Ok(blocks)
}
