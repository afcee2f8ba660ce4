//! What does a user do about a replay that failed?

use volume::MountError;

use super::error::Error;
use super::opening::wrong_before_the_first;
use super::settings::Settings;
use super::variant::Variant;
use crate::error::SimError;
use crate::traces::ReplayError;

/// The error of a run, with the settings that caused it.
pub(super) fn failed(settings: &Settings, variant: &Variant, e: ReplayError) -> Error {
    let file = settings.recording.display();
    match (&e, &settings.of, &variant.size) {
        (ReplayError::NotRecorded { .. }, Some(of), _) => Error::Setting(format!("--of {of}: {file}: {e}")),
        (ReplayError::TooSmall { .. }, _, Some(size)) => Error::Setting(format!("--size {size}: {file}: {e}")),
        (ReplayError::Sim(SimError::Model(_)), _, Some(size)) => Error::Setting(format!("--size {size}: {e}")),
        (ReplayError::Sim(SimError::Mount(MountError::Foreign { .. })), ..) => Error::Setting(e.to_string()),
        (ReplayError::Sim(SimError::Mount(_)), ..) => match &settings.image {
            Some(image) => Error::of_file(image, e),
            None => Error::Failed(e.to_string()),
        },
        (ReplayError::Sim(SimError::Parameters(why)), ..) => match &settings.image {
            Some(image) => Error::Setting(format!("--image {}: {why}", image.display())),
            None => Error::Failed(e.to_string()),
        },
        (ReplayError::NoRoom { would_do, .. } | ReplayError::NoRoomBefore { would_do, .. }, ..) => {
            Error::Failed(format!("{file}: {e}: {}", settings.give(would_do.div_ceil(1 << 20))))
        }
        (ReplayError::Empty(_), ..) => {
            let empty = Error::of_file(&settings.recording, e);
            wrong_before_the_first(&settings.recording, &settings.part, empty)
        }
        _ => Error::Failed(e.to_string()),
    }
}
