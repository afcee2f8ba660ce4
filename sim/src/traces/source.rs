//! Where do the calls come from that are made on a volume?
//!
//! From recordings of other programs: calls by path, which need files that are made up ([`ByPath`]). Or from our own:
//! calls by inode, on files that the recording has if it has contents ([`ByInode`](super::by_inode::ByInode)).

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

/// How much of the recording has been used, from 0 to 1.
pub type Progressed<'a> = &'a mut dyn FnMut(f64);

/// How calls are made.
pub struct Making<'a> {
    /// Below a host's memory, which reads ahead; heeded by calls by path.
    pub ahead: bool,
    /// The volume's clock.
    pub clock: &'a dyn Clock,
    /// How its time passes.
    pub tempo: &'a Tempo,
    /// Heeded where a recording tells which thread called.
    pub pauses: Pauses,
    /// Nothing is done on the volume after it, but an unmount.
    pub is_last: bool,
    /// Called where the part of the recording begins that is paid for, if that is not the beginning.
    pub begins: &'a mut dyn FnMut(),
}

/// A recording of calls.
pub trait Source {
    /// Bytes of room that its calls need.
    fn room(&self) -> u64;
    /// Of them, those that are not there before the first call.
    fn grows(&self) -> u64;
    /// Whether a call that ends otherwise than it did when it was recorded counts as failed.
    fn is_compared(&self) -> bool;
    /// Puts on a new volume, or on one that holds a part of it, what the calls need.
    fn prepare(&mut self, fs: &dyn FileSystem, part: Progressed<'_>) -> Result<Prepared, ReplayError>;
    /// Makes the calls.
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
    /// What must be there.
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
