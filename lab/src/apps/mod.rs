//! What do a phone's applications write, byte by byte?
//!
//! MedFS FAST'25 replays half an hour of writes by seven applications; the recordings are not published. These seven
//! applications replace them: SQLite databases with similar schemas and text, temporary files, stores, preferences and
//! media, mixed so that each application's shares are close to the paper's Table 1 ([`census`] measures how close). The
//! same seed gives the same bytes.
//!
//! * [`database`], [`files`]: the actions; [`text`]: generated text.
//! * [`tape`]: records the calls; [`salts`]: replaces SQLite's random numbers.
//! * [`census`]: counts what the calls write, without any file system.
//! * [`play`]: replays the calls on a volume.
//!
//! Left out: the behaviour of the paper's applications. These are mixtures with the published shares, not copies.

pub mod census;
pub mod database;
mod files;
pub mod play;
mod salts;
pub mod tape;
pub mod text;

use std::time::Duration;

use device::Rng;

use crate::error::LabError;
use crate::sqlite_disk::ONE_AT_A_TIME;
use database::{Database, Journal, Purpose};
use tape::{Script, Tape};
use text::Writer;

/// An action of an application.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// A transaction that inserts something new into the database with this index.
    Arrives(usize),
    /// A transaction that changes an existing row in the database with this index.
    Changes(usize),
    /// A file of this many KiB, written once.
    Media(u64),
    /// A temporary file of this many KiB, changed in this many steps.
    Temporary(u64, u64),
    /// This many preferences, rewritten.
    Preferences(u64),
    /// A line in a text log.
    Line,
    /// A value in a store of this many KiB.
    Value(u64),
    /// A state file of this many KiB, with this many values changed on each page.
    State(u64, usize),
}

/// An application.
pub struct App {
    /// The paper's abbreviation.
    pub name: &'static str,
    journal: Journal,
    /// Databases: name, purpose, initial rows.
    databases: &'static [(&'static str, Purpose, u64)],
    /// Actions per minute, with their counts.
    minute: &'static [(Deed, u64)],
}

use Deed::{Arrives, Changes, Line, Media, Preferences, State, Temporary, Value};

/// The applications of MedFS FAST'25, Table 2, in its order.
pub const APPS: &[App] = &[
    App {
        name: "GM",
        journal: Journal::Persist,
        databases: &[("mail.db", Purpose::Mail, 600), ("state.db", Purpose::Settings, 0)],
        minute: &[(Arrives(0), 7), (Changes(0), 12), (Changes(1), 1), (Media(110), 1), (Preferences(60), 1)],
    },
    App {
        name: "PS",
        journal: Journal::Truncate,
        databases: &[("edits.db", Purpose::Settings, 0)],
        minute: &[(Temporary(96, 8), 2), (Changes(0), 4), (Media(160), 2), (Preferences(90), 1), (State(16, 6), 5)],
    },
    App {
        name: "ST",
        journal: Journal::Persist,
        databases: &[("cache.db", Purpose::Cache, 1500)],
        minute: &[(Changes(0), 6), (Arrives(0), 2), (Media(220), 1), (Value(64), 10), (Line, 4), (State(8, 4), 12)],
    },
    App {
        name: "TG",
        journal: Journal::Persist,
        databases: &[("cache4.db", Purpose::Chat, 4000)],
        minute: &[(Arrives(0), 1), (Changes(0), 1), (State(24, 3), 30), (Media(90), 1)],
    },
    App {
        name: "TW",
        journal: Journal::Persist,
        databases: &[("timeline.db", Purpose::Timeline, 400), ("cache.db", Purpose::Cache, 1500)],
        minute: &[
            (Arrives(0), 1),
            (Changes(0), 7),
            (Changes(1), 7),
            (Media(90), 2),
            (Value(64), 4),
            (State(16, 6), 12),
        ],
    },
    App {
        name: "WC",
        journal: Journal::Wal,
        databases: &[("enmicromsg.db", Purpose::Chat, 4000), ("settings.db", Purpose::Settings, 0)],
        minute: &[
            (Arrives(0), 2),
            (Changes(0), 2),
            (Changes(1), 1),
            (Value(128), 40),
            (Media(160), 1),
            (State(8, 3), 12),
        ],
    },
    App {
        name: "ZM",
        journal: Journal::Persist,
        databases: &[("meeting.db", Purpose::Chat, 500)],
        minute: &[(Line, 20), (Value(256), 10), (Changes(0), 8), (Arrives(0), 4), (Media(40), 1), (State(16, 8), 20)],
    },
];

/// An addition in the paper's section 6.2.2: a hundred contacts are imported from a card, one after the other.
pub const IMPORT: App = App {
    name: "IM",
    journal: Journal::Persist,
    databases: &[("contacts2.db", Purpose::Contacts, 500)],
    minute: &[(Arrives(0), 100)],
};

impl App {
    /// Finds an application by name.
    pub fn find(name: &str) -> Result<&'static App, LabError> {
        let all = || APPS.iter().chain([&IMPORT]);
        all().find(|a| a.name == name).ok_or_else(|| {
            let known: Vec<_> = all().map(|a| a.name).collect();
            LabError::parameters(format!("apps: no {name:?}: there are {}", known.join(", ")))
        })
    }

    /// The script of this many minutes. `journal` replaces the application's own SQLite journal mode.
    pub fn script(&self, minutes: u64, seed: u64, journal: Option<Journal>) -> Result<Script, LabError> {
        let _alone = ONE_AT_A_TIME.lock();
        let (tape, writer) = (Tape::default(), Writer::default());
        let name: u64 = self.name.bytes().fold(0, |n, b| n << 8 | u64::from(b));
        let mut rng = Rng::new(seed ^ name << 32);
        let mut databases = Vec::new();
        for &(name, purpose, rows) in self.databases {
            let journal = journal.unwrap_or(self.journal);
            databases.push(Database::make(&tape, name, purpose, journal, rows, seed, (&writer, &mut rng))?);
        }
        files::preferences(&tape, 40, &writer, &mut rng);
        tape.begin();
        let mut media = 0;
        for _ in 0..minutes {
            let mut deeds: Vec<Deed> =
                self.minute.iter().flat_map(|(deed, times)| (0..*times).map(|_| *deed)).collect();
            rng.shuffle(&mut deeds);
            let pause = Duration::from_secs(60) / deeds.len() as u32;
            for deed in deeds {
                media += 1;
                match deed {
                    Arrives(n) => databases[n].arrives(&writer, &mut rng)?,
                    Changes(n) => databases[n].changes(&mut rng)?,
                    Media(kib) => files::media(&tape, media, kib, &mut rng),
                    Temporary(kib, steps) => files::temporary(&tape, media, kib, steps, &mut rng),
                    Preferences(entries) => files::preferences(&tape, entries, &writer, &mut rng),
                    Line => files::line(&tape, &writer, &mut rng),
                    State(kib, changes) => files::state(&tape, kib, changes, &mut rng),
                    Value(kib) => files::store(&tape, kib, &writer, &mut rng),
                }
                tape.wait(pause);
            }
        }
        // Exclude the calls with which SQLite closes: a phone stops its applications without closing databases.
        tape.stop();
        let mut script = tape.script();
        for (database, (name, ..)) in databases.iter().zip(self.databases) {
            script.databases.push(((*name).into(), database::summary(database.connection())?));
        }
        Ok(script)
    }
}
