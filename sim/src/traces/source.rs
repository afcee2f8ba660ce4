//! Where do the calls on a volume come from?
//!
//! From recordings of other programs: calls by path, which need generated files ([`ByPath`]). Or from JouleFS
//! recordings: calls by inode, on recorded files if the recording has contents ([`ByInode`](super::by_inode::ByInode)).

use device::clock::Clock;
use record::Tempo;
use record::calls::Prepared;
use trace::TraceError;
use trace::call::Calls;
use trace::replay::calls::{Pauses, Replayed, replay};
use trace::replay::needs::Needs;
use trace::replay::place::OnVolume;
use vfs::FileSystem;

use super::ReplayError;
use super::host_memory::ReadAhead;

/// Share of the recording done, from 0 to 1.
pub type Progressed<'a> = &'a mut dyn FnMut(f64);

/// How to replay calls.
pub struct Making<'a> {
    /// Read ahead above a page cache; only for calls by path.
    pub ahead: bool,
    /// The volume's clock.
    pub clock: &'a dyn Clock,
    /// How time passes.
    pub tempo: &'a Tempo,
    /// Used if the recording has threads.
    pub pauses: Pauses,
    /// No operation follows on the volume, except an unmount.
    pub is_last: bool,
    /// Called at the beginning of the counted part, unless it is the beginning of the recording.
    pub begins: &'a mut dyn FnMut(),
}

/// A recording of calls.
pub trait Source {
    /// Bytes that its calls need.
    fn room(&self) -> u64;
    /// Bytes among them that do not exist before the first call.
    fn grows(&self) -> u64;
    /// Whether a call with another result than in the recording counts as failed.
    fn is_compared(&self) -> bool;
    /// Creates what the calls need, on a new volume or on one that has a part of it.
    fn prepare(&mut self, fs: &dyn FileSystem, part: Progressed<'_>) -> Result<Prepared, ReplayError>;
    /// Replays the calls.
    fn replay(
        &mut self,
        fs: &dyn FileSystem,
        making: &mut Making<'_>,
        part: Progressed<'_>,
    ) -> Result<(Replayed, Option<TraceError>), ReplayError>;
}

/// Calls by path.
pub struct ByPath<'a> {
    /// Opens the recording at its beginning.
    pub open: &'a dyn Fn() -> Result<Box<dyn Calls>, ReplayError>,
    /// The files they need.
    pub needs: &'a Needs,
    /// Bytes of the recording's file.
    pub length: u64,
}

impl Source for ByPath<'_> {
    fn room(&self) -> u64 {
        self.needs.peak.max(self.needs.bytes())
    }

    fn grows(&self) -> u64 {
        self.needs.peak.saturating_sub(self.needs.bytes())
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn prepare(&mut self, fs: &dyn FileSystem, part: Progressed<'_>) -> Result<Prepared, ReplayError> {
        let all = self.needs.bytes();
        let done = self.needs.prepare(&mut OnVolume::new(fs), |done| part(done as f64 / all.max(1) as f64));
        done.map_err(|(path, why)| ReplayError::Prepare {
            path: String::from_utf8_lossy(&path).into_owned(),
            no_space: why.no_space,
            why: why.to_string(),
        })?;
        Ok(Prepared { files: self.needs.files.len() as u64, recorded: 0, generated: all })
    }

    fn replay(
        &mut self,
        fs: &dyn FileSystem,
        making: &mut Making<'_>,
        part: Progressed<'_>,
    ) -> Result<(Replayed, Option<TraceError>), ReplayError> {
        let Making { ahead, clock, tempo, pauses, .. } = *making;
        let mut calls = (self.open)()?;
        let mut plain = OnVolume::new(fs);
        let moved = |bytes| part(bytes as f64 / self.length.max(1) as f64);
        let (done, whole) = if ahead {
            replay(&mut *calls, &mut ReadAhead::new(&mut plain), clock, tempo, pauses, moved)
        } else {
            replay(&mut *calls, &mut plain, clock, tempo, pauses, moved)
        };
        Ok((done, whole.err()))
    }
}
