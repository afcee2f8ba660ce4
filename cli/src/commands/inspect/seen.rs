//! What was found, where, and at which prices?
//!
//! One interface to volumes and to directories queried through the kernel, so that output code need not distinguish
//! them.

use device::energy::profile::Profile;
use inspect::advice::{self, Advice};
use inspect::names::Path;
use inspect::price::Prices;
use inspect::space::Space;
use inspect::tables::Sit;
use inspect::verdict::Verdict;
use inspect::{File, Volume};

use super::ground::{self, Ground, Shows};
use super::mounted::Mounted;

/// The source of the files.
pub enum Found {
    /// In an F2FS volume.
    Volume(Volume),
    /// Below a mounted directory, or in an image of another file system.
    Mounted(Mounted),
}

/// Everything found, with prices.
pub struct Seen<'a> {
    /// The name of the inspected volume or directory.
    pub source: String,
    /// The source of the files.
    pub found: &'a Found,
    /// The main result, and all prices.
    pub verdict: Verdict,
    /// Suggestions; empty if too little is known.
    pub advice: Vec<Advice>,
    /// The profile of the prices.
    pub profile: &'a Profile,
}

impl Found {
    /// Everything with an inode.
    pub fn files(&self) -> &[File] {
        match self {
            Found::Volume(v) => &v.files,
            Found::Mounted(m) => &m.files,
        }
    }
    /// What could not be determined, or is inconsistent.
    pub fn damage(&self) -> Vec<String> {
        match self {
            Found::Volume(v) => v.findings.iter().map(ToString::to_string).collect(),
            Found::Mounted(m) => m.damage.clone(),
        }
    }
    /// The segments and their counts, if known.
    pub fn segments(&self) -> Option<(&Sit, &Space)> {
        match self {
            Found::Volume(v) => v.checkpoint.is_some().then_some((&v.segments, &v.space)),
            Found::Mounted(m) => m.known.as_ref().map(|k| (&k.segments, &k.space)),
        }
    }
    /// Calls `draw` with the drawable part of the device.
    pub fn with_ground<T>(&self, draw: impl FnOnce(&Ground<'_>) -> T) -> T {
        match self {
            Found::Volume(v) => draw(&Ground {
                segments: &v.segments,
                first: v.superblock.main.0.into(),
                per_section: v.superblock.segs_per_sec,
                now: v.checkpoint.as_ref().map(|cp| cp.elapsed),
                has_logs: true,
                shows: Shows::Valid,
            }),
            Found::Mounted(m) => match m.known.as_ref().and_then(|k| Some((k, k.first?))) {
                Some((k, first)) => draw(&Ground {
                    segments: &k.segments,
                    first,
                    per_section: 1,
                    now: k.now,
                    has_logs: k.has_logs,
                    shows: Shows::Valid,
                }),
                None => {
                    let segments = &ground::of_files(&m.files, m.bytes / 4096);
                    let (first, per_section, shows) = (0, 1, Shows::Files);
                    draw(&Ground { segments, first, per_section, now: None, has_logs: false, shows })
                }
            },
        }
    }
}

impl<'a> Seen<'a> {
    /// Prices what was found. `window` is that of [`inspect::Options`].
    pub fn of(source: String, found: &'a Found, profile: &'a Profile, window: u64) -> Self {
        let (files, prices) = (found.files(), Prices::from_profile(profile));
        let verdict = Verdict::new(files, &prices, window);
        let (is_known, reserving_places) = match found {
            Found::Volume(v) => (v.checkpoint.is_some(), false),
            Found::Mounted(m) => (true, m.file_system != "f2fs"),
        };
        // Only segments with a log are cleaned.
        let cleaned = found.segments().filter(|_| match found {
            Found::Volume(_) => true,
            Found::Mounted(m) => m.known.as_ref().is_some_and(|k| k.has_logs),
        });
        let advise = || advice::advise(files, &verdict, cleaned, reserving_places, &prices, window);
        let advice = if is_known { advise() } else { Vec::new() };
        Seen { source, found, verdict, advice, profile }
    }
}

impl Seen<'_> {
    /// Everything with an inode.
    pub fn files(&self) -> &[File] {
        self.found.files()
    }
    /// A file's path.
    pub fn path(&self, i: usize) -> Path {
        match self.found {
            Found::Volume(v) => v.path(&v.files[i]),
            Found::Mounted(m) => Path { bytes: m.paths[i].clone(), is_sure: true },
        }
    }
    /// A file's inode number.
    pub fn ino(&self, i: usize) -> Option<u64> {
        match self.found {
            Found::Volume(v) => Some(v.files[i].ino.0.into()),
            Found::Mounted(m) => m.numbers.get(i).copied(),
        }
    }
    /// The path of a file relative to the inspected root: the volume's, or the directory.
    pub fn path_inside(&self, i: usize) -> String {
        let path = self.path(i).text().into_owned();
        match self.found {
            Found::Volume(_) => path,
            Found::Mounted(_) => {
                let inside = path.strip_prefix(self.source.trim_end_matches('/')).unwrap_or(&path);
                format!("/{}", inside.trim_start_matches('/'))
            }
        }
    }
}
