//! Recordings being written.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{BlockDevice, RealClock};
use record::{blocks, calls};
use vfs::FileSystem;

use crate::Failure;
use crate::half_made::HalfMade;

/// A new recording.
pub struct Recording {
    file: File,
    path: PathBuf,
    made: Option<HalfMade>,
}

/// Ends a recording.
pub struct End {
    finish: Box<dyn FnOnce() -> std::io::Result<u64>>,
    path: PathBuf,
    made: Option<HalfMade>,
}

impl Recording {
    /// Creates or truncates the file. A new file is removed if the command fails before anything is recorded.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let named = |e| format!("{}: {e}", path.display());
        // The background process has another working directory.
        let path = std::path::absolute(path).map_err(named)?;
        let missing = !path.exists();
        let file = File::create(&path).map_err(named)?;
        let made = missing.then(|| HalfMade::new(&path));
        Ok(Recording { file, path, made })
    }

    /// Like [`create`](Self::create), for a recording with file contents: only its owner can read it. It replaces an
    /// existing file instead of writing to it, so that a process with that file open sees none of the data.
    pub fn create_private(path: &Path) -> Result<Self, Failure> {
        let named = |e: std::io::Error| format!("{}: {e}", path.display());
        let path = std::path::absolute(path).map_err(named)?;
        let there = match path.symlink_metadata() {
            Ok(there) => Some(there),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(named(e).into()),
        };
        match &there {
            Some(m) if m.is_symlink() => {
                let why = "is a symbolic link; file contents are recorded only to a regular file";
                return Err(format!("{}: {why}; give its target", path.display()).into());
            }
            Some(m) if m.is_file() => std::fs::remove_file(&path).map_err(named)?,
            _ => {}
        }
        let new = there.as_ref().is_none_or(std::fs::Metadata::is_file);
        let file = OpenOptions::new().write(true).create_new(new).mode(0o600).open(&path).map_err(named)?;
        let made = new.then(|| HalfMade::new(&path));
        Ok(Recording { file, path, made })
    }

    /// Records the requests to a device.
    pub fn of_device(
        self,
        device: Arc<dyn BlockDevice>,
        causes: &[(u8, &str)],
    ) -> Result<(Arc<dyn BlockDevice>, End), Failure> {
        let Recording { file, path, made } = self;
        let recorder = blocks::Recorder::new(device, file, Arc::new(RealClock::new()), causes);
        let recorder = Arc::new(recorder.map_err(|e| format!("{}: {e}", path.display()))?);
        Ok((recorder.clone(), End { finish: Box::new(move || recorder.finish()), path, made }))
    }

    /// Records the calls to a file system, with contents or without.
    pub fn of_calls(self, fs: Arc<dyn FileSystem>, contents: bool) -> Result<(Arc<dyn FileSystem>, End), Failure> {
        let Recording { file, path, made } = self;
        let clock = Arc::new(RealClock::new());
        let recorder = match contents {
            true => calls::Recorder::with_contents(fs, file, clock),
            false => calls::Recorder::new(fs, file, clock),
        };
        let recorder = Arc::new(recorder.map_err(|e| format!("{}: {e}", path.display()))?);
        Ok((recorder.clone(), End { finish: Box::new(move || recorder.finish()), path, made }))
    }
}

impl End {
    /// Ends the recording; fails if a part could not be written.
    pub fn finish(self) -> Result<(), Failure> {
        if let Some(made) = self.made {
            made.keep();
        }
        (self.finish)().map_err(|e| format!("{}: the recording is incomplete: {e}", self.path.display()))?;
        Ok(())
    }
}
