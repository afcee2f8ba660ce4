//! Into which classes does the volume put an application's files?
//!
//! MedFS FAST'25, section 6.2.5 and Figure 11 (a): each minute, K-means divides the files read or written into four
//! classes. Here they are counted by class and by kind of file. Left out: the effects of a class.

use std::collections::BTreeMap;
use std::time::Duration;

use f2fs::Volume;
use f2fs::delta::Class;

use crate::apps::play::Player;
use crate::error::LabError;
use sim::result::Phase;

/// Kinds of files by name.
const KINDS: [&str; 3] = ["sqlite", "temporary", "other"];
const CLASSES: [(Class, &str); 4] =
    [(Class::Quiet, "quiet"), (Class::Read, "read"), (Class::Written, "written"), (Class::Both, "both")];

/// Number of files in all minutes, by kind and class; and their reads and writes.
#[derive(Default)]
pub(super) struct Classes {
    seen: Duration,
    minutes: u64,
    files: BTreeMap<(&'static str, &'static str), (u64, u64, u64)>,
}

fn kind(name: &str) -> &'static str {
    let sqlite = name.ends_with(".db") || name.contains(".db-");
    if sqlite { KINDS[0] } else { KINDS[if name.contains("todelete_") { 1 } else { 2 }] }
}

impl Classes {
    /// Counts the last window if not yet counted. Deleted files have no name and count as `other`.
    pub fn look(&mut self, volume: &Volume, player: &Player<'_>) -> Result<(), LabError> {
        let (since, files) = volume.file_heat();
        if since == self.seen {
            return Ok(());
        }
        self.seen = since;
        self.minutes += 1;
        let names: BTreeMap<u64, &str> = player.files().map(|(ino, name)| (ino.0, name)).collect();
        for f in files {
            let kind = names.get(&u64::from(f.ino.0)).map_or(KINDS[2], |name| kind(name));
            let class = CLASSES.iter().find(|(c, _)| *c == f.class).map_or("quiet", |(_, name)| name);
            let sum = self.files.entry((kind, class)).or_default();
            *sum = (sum.0 + 1, sum.1 + u64::from(f.reads), sum.2 + u64::from(f.writes));
        }
        Ok(())
    }

    /// Notes, for each kind and class, the number of files in all minutes and the mean reads and writes per file.
    pub fn note(self, phase: &mut Phase) {
        phase.note("minutes", self.minutes as f64, "minutes");
        for kind in KINDS {
            for (_, class) in CLASSES {
                let (n, reads, writes) = self.files.get(&(kind, class)).copied().unwrap_or_default();
                phase.note(&format!("{kind}_{class}"), n as f64, "files");
                if n > 0 {
                    phase.note(&format!("{kind}_{class}_reads"), reads as f64 / n as f64, "reads");
                    phase.note(&format!("{kind}_{class}_writes"), writes as f64 / n as f64, "writes");
                }
            }
        }
    }
}
