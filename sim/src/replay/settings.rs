//! What is replayed, on which device and volume, and how?

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use trace::Kind;
use trace::replay::calls::Pauses;

use super::error::Error;
use super::opening::Part;
use super::sizes;
use crate::traces::Speed;

/// The default profile.
const PROFILE: &str = "kirin9000-ufs31";

/// Default page cache in bytes: file pages that a phone with a few gigabytes of memory keeps for the foreground app.
const PAGE_CACHE: u64 = 256 << 20;

/// Whether energy over time is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverTime {
    /// No.
    #[default]
    No,
    /// By component.
    Components,
    /// By component and by owner; for recordings of block devices.
    Owners,
}

/// The settings of a replay. Texts have the form of the options of `joulefs trace replay`, which name them in errors.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The recording, or its first file; `part` has the others.
    pub recording: PathBuf,
    /// The part of it to replay.
    pub part: Part,
    /// The device: the name of a shipped profile, or the path of a profile file; default: kirin9000-ufs31.
    pub profile: Option<String>,
    /// The file system of a new volume, or that the image must have; default: F2FS. For recordings of calls.
    pub fs: Option<volume::Kind>,
    /// Mount options of the volume, each as NAME or NAME=VALUE. For recordings of calls.
    pub options: Vec<String>,
    /// What changes from run to run: for each name NAME=A,B,...
    pub compare: Vec<String>,
    /// The device's size, such as 2G; default: as large as the recording needs.
    pub size: Option<String>,
    /// The recorded device to replay, by number or name; default: the one that moved most data. For recordings of
    /// block devices.
    pub of: Option<String>,
    /// The whole device holds data at the start. For recordings of block devices.
    pub full: bool,
    /// Maximum number of requests in flight; default: the profile's. For recordings of block devices.
    pub queue: Option<NonZeroUsize>,
    /// Numbers of the profile to replace, each as NAME=NUMBER with a unit.
    pub assume: Vec<String>,
    /// The image with the initial contents of the volume; default: a new volume. For recordings of calls.
    pub image: Option<PathBuf>,
    /// The recipe that ages a new volume. For recordings of calls.
    pub age: Option<String>,
    /// Seed for a new volume and its recipe; default: 1. For recordings of calls.
    pub seed: Option<u64>,
    /// Number of seeds with which each run of a comparison is repeated; default: 5 where something is random (`age`,
    /// `fill`), otherwise 1. For recordings of calls.
    pub seeds: Option<NonZeroU32>,
    /// The share of the volume to fill before the calls, such as 90%. For recordings of calls.
    pub fill: Option<String>,
    /// Recordings to replay first, without counting them.
    pub after: Vec<PathBuf>,
    /// Number of times to replay the calls; default: 1. For recordings of calls.
    pub repeat: Option<NonZeroU32>,
    /// Clean in the background without waiting for idle time. For recordings of calls.
    pub hurry: bool,
    /// Size of the host's page cache, such as 64M, or "none"; default: 256M, but none for JouleFS recordings. For
    /// recordings of calls.
    pub page_cache: Option<String>,
    /// Start with a freshly mounted volume. For recordings of calls.
    pub cold: bool,
    /// Make each call at its recorded time. For recordings of calls.
    pub on_time: bool,
    /// Keep the recorded pauses between calls, also of a JouleFS recording. For recordings of calls.
    pub closed_loop: bool,
    /// How time passes.
    pub speed: Speed,
    /// Whether energy over time is kept.
    pub over_time: OverTime,
}

impl Settings {
    /// The profile as given, or the default one.
    pub(super) fn profile(&self) -> &str {
        self.profile.as_deref().unwrap_or(PROFILE)
    }

    /// Blocks of the page cache; `ours` for a recording made below one.
    pub(super) fn page_cache(&self, ours: bool) -> Result<Option<usize>, Error> {
        let bytes = match self.page_cache.as_deref() {
            None if ours => return Ok(None),
            None => PAGE_CACHE,
            Some("none") => return Ok(None),
            Some(text) => sizes::within("--page-cache", text, 1 << 20..=1 << 40)?,
        };
        Ok(Some((bytes / 4096) as usize))
    }

    /// When a thread makes its next call.
    pub(super) fn pauses(&self) -> Pauses {
        if self.on_time { Pauses::Recorded } else { Pauses::Thinking }
    }

    /// A setting that does not apply to recordings of this kind. It is refused rather than ignored.
    pub(super) fn misplaced(&self, kind: Kind) -> Option<&'static str> {
        let of_calls = [
            ("-o", !self.options.is_empty()),
            ("--fs", self.fs.is_some()),
            ("--image", self.image.is_some()),
            ("--age", self.age.is_some()),
            ("--seed", self.seed.is_some()),
            ("--seeds", self.seeds.is_some()),
            ("--page-cache", self.page_cache.is_some()),
            ("--fill", self.fill.is_some()),
            ("--repeat", self.repeat.is_some()),
            ("--hurry", self.hurry),
            ("--cold", self.cold),
            ("--on-time", self.on_time),
            ("--closed-loop", self.closed_loop),
        ];
        let of_blocks = [("--full", self.full), ("--of", self.of.is_some()), ("--queue", self.queue.is_some())];
        let list: &[_] = match kind {
            Kind::Blocks => &of_calls,
            Kind::Calls => &of_blocks,
            Kind::Power => &[],
        };
        list.iter().find(|(_, given)| *given).map(|(name, _)| *name)
    }
}
