//! Recordings that are being made.

use std::fs::File;
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
    /// Makes the file, or empties it. A new file is removed if the command fails before anything is recorded.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let named = |e| format!("{}: {e}", path.display());
        // The background part has another working directory.
        let path = std::path::absolute(path).map_err(named)?;
        let missing = !path.exists();
        let file = File::create(&path).map_err(named)?;
        let made = missing.then(|| HalfMade::new(&path));
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

    /// Records the calls to a file system.
    pub fn of_calls(self, fs: Arc<dyn FileSystem>) -> Result<(Arc<dyn FileSystem>, End), Failure> {
        let Recording { file, path, made } = self;
        let recorder = calls::Recorder::new(fs, file, Arc::new(RealClock::new()));
        let recorder = Arc::new(recorder.map_err(|e| format!("{}: {e}", path.display()))?);
        Ok((recorder.clone(), End { finish: Box::new(move || recorder.finish()), path, made }))
    }
}

impl End {
    /// Ends the recording; fails if not all of it could be written.
    pub fn finish(self) -> Result<(), Failure> {
        if let Some(made) = self.made {
            made.keep();
        }
        (self.finish)().map_err(|e| format!("{}: the recording is not whole: {e}", self.path.display()))?;
        Ok(())
    }
}
