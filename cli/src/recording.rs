//! Recordings that are being made.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{BlockDevice, RealClock};
use record::{blocks, calls};
use vfs::FileSystem;

use crate::Failure;

/// A new recording.
pub struct Recording {
    file: File,
    path: PathBuf,
}

/// Ends a recording.
pub struct End {
    finish: Box<dyn FnOnce() -> std::io::Result<u64>>,
    path: PathBuf,
}

impl Recording {
    /// Makes the file, or empties it.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let named = |e| format!("{}: {e}", path.display());
        // The background part has another working directory.
        let path = std::path::absolute(path).map_err(named)?;
        Ok(Recording { file: File::create(&path).map_err(named)?, path })
    }

    /// Records what a device is asked.
    pub fn of_device(
        self,
        device: Arc<dyn BlockDevice>,
        causes: &[(u8, &str)],
    ) -> Result<(Arc<dyn BlockDevice>, End), Failure> {
        let Recording { file, path } = self;
        let recorder = blocks::Recorder::new(device, file, Arc::new(RealClock::new()), causes);
        let recorder = Arc::new(recorder.map_err(|e| format!("{}: {e}", path.display()))?);
        Ok((recorder.clone(), End { finish: Box::new(move || recorder.finish()), path }))
    }

    /// Records what a file system is asked.
    pub fn of_calls(self, fs: Arc<dyn FileSystem>) -> Result<(Arc<dyn FileSystem>, End), Failure> {
        let Recording { file, path } = self;
        let recorder = calls::Recorder::new(fs, file, Arc::new(RealClock::new()));
        let recorder = Arc::new(recorder.map_err(|e| format!("{}: {e}", path.display()))?);
        Ok((recorder.clone(), End { finish: Box::new(move || recorder.finish()), path }))
    }
}

impl End {
    /// Ends it; fails if not all of it could be written.
    pub fn finish(self) -> Result<(), Failure> {
        (self.finish)().map_err(|e| format!("{}: the recording is not whole: {e}", self.path.display()))?;
        Ok(())
    }
}
