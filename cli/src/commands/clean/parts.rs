//! Which parts of a volume's files does a recording read together?

use std::collections::BTreeMap;
use std::path::Path;

use inspect::treatment::Use;
use sim::replay::{Error, opening};
use trace::Opened;
use trace::together::{Parts, scan};

use crate::{Failure, recorded};

/// The reads of a recording, by the paths in the recording.
pub struct Read {
    files: BTreeMap<Vec<u8>, Parts>,
}

/// Reads a recording of calls.
pub fn of_recording(path: &Path) -> Result<Read, Failure> {
    let recorded = opening::open(path)?;
    let mut calls = match recorded.opened {
        Opened::Calls(calls) => calls,
        Opened::Blocks(_) => {
            return Err(Error::of_kind(path, "requests to a block device", "calls to a file system").into());
        }
        Opened::Power(_) => return Err(Error::of_kind(path, "a meter", "calls to a file system").into()),
    };
    let (bar, moved) = recorded::bar(recorded.length, "reading");
    let (files, whole) = scan(&mut *calls, moved);
    bar.finish_and_clear();
    whole.map_err(|e| e.to_string())?;
    if files.is_empty() {
        return Err(format!("{}: this recording reads no file that still has a name at its end", path.display()).into());
    }
    Ok(Read { files })
}

impl Read {
    /// The parts of a file of the volume that are read together. A recording of another mount may have a longer or
    /// shorter path: it matches if one path ends with the other and the match is unique.
    pub fn of(&self, path: &str) -> Vec<Use> {
        let wanted = path.as_bytes();
        let parts = self.files.get(wanted).or_else(|| {
            let mut alike =
                self.files.iter().filter(|(theirs, _)| ends_with(theirs, wanted) || ends_with(wanted, theirs));
            alike.next().filter(|_| alike.next().is_none()).map(|(_, parts)| parts)
        });
        let all = parts.into_iter().flatten();
        all.map(|((from, to), times)| Use { blocks: *from..*to, times: *times }).collect()
    }
}

/// True if a path ends with all the names of `end`.
fn ends_with(path: &[u8], end: &[u8]) -> bool {
    let end = end.strip_prefix(b"/").unwrap_or(end);
    path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_the_end_of_its_path_if_no_other_is_like_it() {
        let parts = |n| Parts::from([((0, n), 1)]);
        let files = [("/mnt/a/db", 1), ("/mnt/b/db", 2), ("/mnt/b/log", 3)];
        let read = Read { files: files.into_iter().map(|(p, n)| (p.as_bytes().to_vec(), parts(n))).collect() };
        let of = |path: &str| read.of(path).first().map(|u| u.blocks.end);
        assert_eq!(
            (of("/a/db"), of("/b/db"), of("/db"), of("/log"), of("/g")),
            (Some(1), Some(2), None, Some(3), None)
        );
        assert_eq!(of("/mnt/b/log"), Some(3));
        assert_eq!(of("/deep/mnt/b/log"), Some(3));
    }
}
