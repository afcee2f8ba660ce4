//! What does a replay need from the program that calls it?

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{BlockDevice, Lba};
use trace::Names;
use trace::replay::blocks::Made;

use super::cache::Cache;
use super::error::Error;

/// The unit of a job's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Total {
    /// Bytes of a file.
    Bytes(u64),
    /// Steps.
    Steps(u64),
}

/// Shows how far jobs are.
pub trait Progress: Sync {
    /// Begins to show a job; it ends when the returned value is dropped.
    fn begin(&self, what: &str, total: Total) -> Box<dyn Job + '_>;
}

/// A job that is shown.
pub trait Job: Sync {
    /// Some more bytes or steps are done.
    fn add(&self, more: u64);
    /// The job's next step has this name.
    fn name(&self, step: &str);
}

/// Shows nothing.
impl Progress for () {
    fn begin(&self, _: &str, _: Total) -> Box<dyn Job + '_> {
        Box::new(())
    }
}

impl Job for () {
    fn add(&self, _: u64) {}
    fn name(&self, _: &str) {}
}

/// A function that receives the position in a job of `length` units, and moves a display of `steps` units.
pub(super) fn share<'a>(job: &'a dyn Job, length: u64, steps: u64) -> impl FnMut(u64) + use<'a> {
    let mut last = 0;
    move |at| {
        let now = (u128::from(at) * u128::from(steps) / u128::from(length.max(1))) as u64;
        job.add(now.saturating_sub(last));
        last = last.max(now);
    }
}

/// An image with the initial contents of a volume.
pub struct Image {
    /// Its file.
    pub path: PathBuf,
    /// The open file; it is not changed.
    pub device: Arc<dyn BlockDevice>,
    /// Runs of blocks with data.
    pub held: Vec<(Lba, u64)>,
}

/// The calling program.
pub trait Program: Progress {
    /// Opens an image for reading.
    ///
    /// # Errors
    /// The image cannot be opened or read.
    fn image(&self, path: &Path) -> Result<Image, Error>;

    /// Identifies the program's sources: results of one build have other keys than those of another.
    fn build(&self) -> &str;

    /// Keeps aged volumes for later commands, if wanted.
    fn cache(&self) -> Option<Cache> {
        None
    }

    /// Called before each run of a block device's recording. The returned function receives every request when its end
    /// is known.
    ///
    /// # Errors
    /// Whatever keeps the program from receiving requests.
    fn requests(&self) -> Result<Box<dyn FnMut(&Made, &Names) + '_>, Error> {
        Ok(Box::new(|_, _| {}))
    }
}
