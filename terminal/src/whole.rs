//! How is a file written so that readers never see half of it, and the input is never overwritten?
//!
//! It is written to a temporary file in the same directory, synced, and then renamed; it keeps the mode of the file it
//! replaces. A pipe or a terminal is written directly. A command does not overwrite its own input ([`apart`]).

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::half_made::HalfMade;

/// True if a path is a regular file or does not exist.
pub fn is_plain(file: &Path) -> bool {
    file.metadata().map_or(true, |m| m.is_file())
}

/// Resolves symlinks, so that a symlink to the file stays.
fn real(file: &Path) -> PathBuf {
    fs::canonicalize(file).unwrap_or_else(|_| file.to_owned())
}

/// Fails if the output file is the recording being read, under any name: a hard link or symlink, one of the per-CPU
/// files of blktrace, or the file redirected to standard input.
pub fn apart(option: &str, out: &Path, recording: &Path) -> Result<(), Failure> {
    apart_from("the recording", option, out, recording)
}

/// Like [`apart`], for any input; `what` names it.
pub fn apart_from(what: &str, option: &str, out: &Path, recording: &Path) -> Result<(), Failure> {
    let who = |path: &Path| path.metadata().ok().filter(|m| m.is_file()).map(|m| (m.dev(), m.ino()));
    let Some(written) = who(out) else { return Ok(()) };
    let read = match recording.as_os_str() == "-" {
        true => vec![PathBuf::from("/dev/stdin")],
        false => trace::files_of(recording),
    };
    if read.iter().any(|file| who(file) == Some(written)) {
        return Err(Failure::Usage(format!(
            "{option} {}: is {what}, which is being read; give another file",
            out.display()
        )));
    }
    Ok(())
}

/// A file that gets its name when complete.
pub struct Part {
    made: HalfMade,
    part: PathBuf,
    file: PathBuf,
    open: File,
}

impl Part {
    /// Creates a temporary file in the directory of `file`. If `watched`, a signal removes it too.
    pub fn create(file: &Path, watched: bool) -> io::Result<(Self, File)> {
        let file = real(file);
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = file.file_name().ok_or(ErrorKind::IsADirectory)?.to_string_lossy();
        let there = file.metadata().ok().map(|m| m.permissions());
        // A new file's mode follows the umask, as usual.
        let new = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".part")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(dir)?;
        let (open, part) = new.keep()?;
        let made = if watched { HalfMade::watched(&part) } else { HalfMade::new(&part) };
        if let Some(there) = there {
            open.set_permissions(there)?;
        }
        let written = open.try_clone()?;
        Ok((Part { made, part, file, open: written }, open))
    }

    /// Its temporary path.
    pub fn path(&self) -> &Path {
        &self.part
    }

    /// Syncs the file and gives it its name.
    pub fn finish(self) -> io::Result<()> {
        self.open.sync_all()?;
        self.named()
    }

    /// Like [`finish`](Self::finish), without a sync: for a file that is rewritten soon.
    fn named(self) -> io::Result<()> {
        fs::rename(&self.part, &self.file)?;
        self.made.keep();
        Ok(())
    }
}

/// Writes a file atomically: a reader finds the old or the new contents.
pub fn write(file: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    written(file, bytes.as_ref(), Part::finish)
}

/// Like [`write()`], for a file rewritten repeatedly while a command runs: it may be lost if the machine fails.
pub fn write_often(file: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    written(file, bytes.as_ref(), Part::named)
}

fn written(file: &Path, bytes: &[u8], end: fn(Part) -> io::Result<()>) -> Result<(), Failure> {
    let written = if !is_plain(file) { fs::write(file, bytes) } else { beside(file, bytes, end) };
    Ok(written.map_err(|e| format!("{}: {e}", file.display()))?)
}

fn beside(file: &Path, bytes: &[u8], end: fn(Part) -> io::Result<()>) -> io::Result<()> {
    match Part::create(file, false) {
        // A writable file in a directory that is not writable.
        Err(e) if e.kind() == ErrorKind::PermissionDenied && file.exists() => fs::write(file, bytes),
        Err(e) => Err(e),
        Ok((part, mut open)) => io::Write::write_all(&mut open, bytes).and_then(|()| end(part)),
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

    #[test]
    fn a_name_with_part_is_the_users_and_the_mode_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "old").unwrap();
        fs::set_permissions(at("file"), Permissions::from_mode(0o640)).unwrap();
        fs::write(at("file.part"), "mine").unwrap();
        let (one, mut first) = Part::create(&at("file"), false).unwrap();
        let (two, mut second) = Part::create(&at("file"), false).unwrap();
        io::Write::write_all(&mut first, b"one").unwrap();
        io::Write::write_all(&mut second, b"two").unwrap();
        one.finish().unwrap();
        assert_eq!(fs::read(at("file")).unwrap(), b"one");
        two.finish().unwrap();
        assert_eq!(
            (fs::read(at("file")).unwrap(), fs::read(at("file.part")).unwrap()),
            (b"two".into(), b"mine".into())
        );
        assert_eq!(at("file").metadata().unwrap().mode() & 0o777, 0o640);
        // A new file has the usual mode.
        write(&at("new"), "new").unwrap();
        fs::write(at("plain"), "").unwrap();
        assert_eq!(at("new").metadata().unwrap().mode(), at("plain").metadata().unwrap().mode());
    }

    #[test]
    fn what_is_read_is_not_written_by_whatever_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::write(at("other"), "").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        fs::hard_link(at("file"), at("hard")).unwrap();
        for name in ["file", "link", "hard"] {
            assert!(apart("--html", &at(name), &at("file")).is_err(), "{name}");
            assert!(apart("--html", &at("file"), &at(name)).is_err(), "{name}");
        }
        for name in ["other", "new"] {
            assert!(apart("--html", &at(name), &at("file")).is_ok(), "{name}");
        }
    }
}
