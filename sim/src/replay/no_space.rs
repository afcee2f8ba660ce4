//! What does a user do about a volume that was too small, or about a recording without calls?

use trace::timing::Timing;

use super::outcome::{Done, Outcome};
use super::settings::Settings;
use crate::words;

impl Settings {
    /// The option for a volume of `mib` MiB.
    pub(super) fn give(&self, mib: u64) -> String {
        match &self.image {
            Some(image) => format!("{} is too small: give an image of {mib}M", image.display()),
            None => format!("give --size {mib}M"),
        }
    }

    /// Why an undamaged recording had no calls to replay.
    pub(super) fn no_call(&self, timing: &Timing) -> String {
        let file = self.recording.display();
        match timing.before + timing.after {
            0 => format!("{file}: has no call on a file that can be replayed"),
            _ => format!("{file}: no call in the session: {} are before it, {} after it", timing.before, timing.after),
        }
    }
}

impl Outcome {
    /// Why no call was replayed, if none was.
    pub(super) fn made_no_call(&self, settings: &Settings) -> Option<String> {
        match (&self.done, self.damage()) {
            (Done::Calls(done), None) if done.calls.calls + done.calls.left_out == 0 => {
                Some(settings.no_call(&self.timing))
            }
            _ => None,
        }
    }

    /// Why the numbers are not valid, and what to do: calls failed because the volume was full.
    pub fn too_small(&self, settings: &Settings) -> Option<String> {
        let Done::Calls(done) = &self.done else { return None };
        let calls = done.calls.no_space;
        (calls > 0).then(|| {
            // Larger by the ratio of all calls to successful calls.
            let (all, made) = (done.calls.calls.max(1) as f64, done.calls.calls.saturating_sub(calls).max(1) as f64);
            let would_do = (done.device_bytes as f64 * (all / made).max(1.25)).min(1e18) as u64;
            let would_do = would_do.next_multiple_of(64 << 20) >> 20;
            format!(
                "{}: {calls} calls failed with ENOSPC on a volume of {}, so the numbers above are not valid: {}",
                settings.recording.display(),
                words::bytes(done.device_bytes),
                settings.give(would_do)
            )
        })
    }
}
