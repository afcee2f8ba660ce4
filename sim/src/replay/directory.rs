//! How are the calls of a recording replayed in a directory of the host?

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use device::clock::RealClock;
use record::Tempo;
use trace::TraceError;
use trace::replay::calls::{Replayed, replay};
use trace::replay::place::{OnDirectory, Place};
use trace::timing::Timing;

use super::calls::{Looked, needed};
use super::error::Error;
use super::opening;
use super::program::{Progress, Total, share};
use super::settings::Settings;
use crate::traces::Speed;

/// The result of a replay in a directory.
pub struct InDirectory {
    /// The calls.
    pub done: Replayed,
    /// Real time in nanoseconds.
    pub took: u64,
    /// Notes about the recording.
    pub notes: Vec<String>,
    /// The recording's times.
    pub timing: Timing,
    /// Why reading the recording ended early.
    pub damage: Option<TraceError>,
    /// Why the numbers are not valid, and what to do.
    pub wrong: Option<String>,
}

/// Replays the calls in an empty directory.
pub(super) fn into(settings: &Settings, dir: &Path, progress: &dyn Progress) -> Result<InDirectory, Error> {
    let is_left = |entry: std::io::Result<std::fs::DirEntry>| entry.is_ok_and(|e| e.file_name() != "lost+found");
    if std::fs::read_dir(dir).map_err(|e| Error::of_file(dir, e))?.any(is_left) {
        let why = "not empty; the calls remove and rename files, so give an empty directory";
        return Err(Error::of_file(dir, why));
    }
    let Looked { needs, notes, timing } = needed(&settings.recording, &settings.part, progress)?;
    let (mut calls, length) = opening::calls(&settings.recording, &settings.part)?;
    let mut place = OnDirectory::new(dir);
    let job = progress.begin("preparing", Total::Bytes(needs.bytes()));
    let prepared = needs.prepare(&mut place, share(&*job, needs.bytes(), needs.bytes()));
    drop(job);
    prepared.map_err(|(path, why)| Error::Failed(format!("{}: {why}", String::from_utf8_lossy(&path))))?;
    let clock = Arc::new(RealClock::new());
    let tempo = if settings.speed == Speed::BackToBack { Tempo::BackToBack } else { Tempo::Real(clock.clone()) };
    let job = progress.begin("replaying", Total::Bytes(length));
    let from = clock.monotonic();
    let moved = share(&*job, length, length);
    let (done, whole) = replay(&mut *calls, &mut place, &*clock, &tempo, settings.pauses(), moved);
    let synced = place.sync_all();
    drop(job);
    synced.map_err(|e| Error::of_file(dir, e))?;
    let took = Duration::as_nanos(&(clock.monotonic() - from));
    let damage = whole.err();
    if damage.is_none() && done.calls + done.left_out == 0 {
        return Err(Error::Failed(settings.no_call(&timing)));
    }
    let why = "calls failed with ENOSPC, so the numbers above are not valid; give a directory on a larger file system";
    let wrong = (done.no_space > 0).then(|| format!("{}: {} {why}", dir.display(), done.no_space));
    let took = u64::try_from(took).unwrap_or(u64::MAX);
    Ok(InDirectory { done, took, notes, timing, damage, wrong })
}
