//! Which files belong to one recording?
//!
//! `blktrace -d /dev/sda` creates `sda.blktrace.0`, `sda.blktrace.1`..., one per CPU. Any of them selects all of them,
//! and so does `sda`, as in blkparse. Each may be compressed and end with `.gz` or `.zst`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::open_files;
use super::record::{Stream, magic};
use crate::{Input, Opened, TraceError};

/// The part of a name before `.blktrace.`, and the CPU.
fn parts(name: &OsStr) -> Option<(&str, u32)> {
    let name = name.to_str()?;
    let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
    let (base, processor) = name.rsplit_once(".blktrace.")?;
    let digits = !processor.is_empty() && processor.bytes().all(|b| b.is_ascii_digit());
    Some((base, processor.parse().ok().filter(|_| digits)?))
}

/// All files of the recording that `path` belongs to or is the base name of, ordered by CPU; empty if it is neither.
pub(crate) fn of_all_processors(path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name() else { return Vec::new() };
    let base = match parts(name) {
        Some((base, _)) => base,
        None if path.exists() => return Vec::new(),
        None => name.to_str().unwrap_or_default(),
    };
    let place = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(place)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let (its, processor) = parts(&name)?;
            (its == base).then(|| (processor, path.with_file_name(&name)))
        })
        .collect();
    found.sort();
    // Keep one per CPU: a file and its compressed copy may both exist.
    found.dedup_by_key(|(processor, _)| *processor);
    found.into_iter().map(|(_, path)| path).collect()
}

/// Opens the files of a recording; `None` if they are something else. Empty files belong to idle CPUs.
pub(crate) fn open(paths: &[PathBuf]) -> Result<Option<Opened>, TraceError> {
    let mut streams = Vec::new();
    for path in paths {
        let mut input = Input::open(path)?;
        let head = input.peek(4)?;
        if !head.is_empty() && magic(head).is_none() {
            return Ok(None);
        }
        streams.push(Stream::new(input));
    }
    Ok(Some(open_files(streams)))
}
