//! How is a file written so that nobody finds half of it?
//!
//! It is written beside its place, as `NAME.part`, and then renamed. A pipe or a terminal is written directly.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::half_made::HalfMade;

/// True if a path is a plain file, or is nothing yet.
pub fn is_plain(file: &Path) -> bool {
    file.metadata().map_or(true, |m| m.is_file())
}

/// Where a file lies: a symlink that leads to one stays.
fn real(file: &Path) -> PathBuf {
    fs::canonicalize(file).unwrap_or_else(|_| file.to_owned())
}

/// A file that gets its name at the end.
pub struct Part {
    made: HalfMade,
    part: PathBuf,
    file: PathBuf,
}

impl Part {
    /// Makes `NAME.part` for `file`. If `watched`, a signal removes it too.
    pub fn create(file: &Path, watched: bool) -> io::Result<(Self, File)> {
        let file = real(file);
        let mut part = file.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let open = File::create(&part)?;
        let made = if watched { HalfMade::watched(&part) } else { HalfMade::new(&part) };
        Ok((Part { made, part, file }, open))
    }

    /// Gives the whole file its name.
    pub fn finish(self) -> io::Result<()> {
        fs::rename(&self.part, &self.file)?;
        self.made.keep();
        Ok(())
    }
}

/// Writes a file. A reader finds these bytes or those from before, whole.
pub fn write(file: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let bytes = bytes.as_ref();
    let written = if !is_plain(file) { fs::write(file, bytes) } else { beside(file, bytes) };
    Ok(written.map_err(|e| format!("{}: {e}", file.display()))?)
}

fn beside(file: &Path, bytes: &[u8]) -> io::Result<()> {
    match Part::create(file, false) {
        // A file that may be written in a directory that may not.
        Err(e) if e.kind() == ErrorKind::PermissionDenied && file.exists() => fs::write(file, bytes),
        Err(e) => Err(e),
        Ok((part, mut open)) => io::Write::write_all(&mut open, bytes).and_then(|()| part.finish()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_a_link_and_nothing_stays_beside_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        write(&at("link"), "new").unwrap();
        assert_eq!(fs::read(at("file")).unwrap(), b"new");
        assert!(at("link").is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_not_finished_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "old").unwrap();
        let (part, mut open) = Part::create(&file, false).unwrap();
        io::Write::write_all(&mut open, b"half").unwrap();
        drop(part);
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
