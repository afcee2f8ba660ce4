//! A mounted image on a metered device. Contents go to the image. The energy that the device of a profile would have
//! spent is metered, and written to a file every second.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use device::clock::RealClock;
use device::energy::profile::Profile;
use device::energy::{Component, Draws, Meter, Processor};
use device::model::{self, Pace, Simulated};
use device::{BlockDevice, Lba};
use sim::labels::{Words, deleted, name};
use vfs::{Look, Volume};

use crate::account::{self, Moment, Moments};
use crate::spent::{self, Spent};
use crate::{Failure, joules, output, whole};

/// A metered device under a volume.
pub struct Metered {
    device: Arc<Simulated<Arc<dyn BlockDevice>>>,
    profile: Profile,
    /// Maximum number of files listed by name.
    most: usize,
    /// Moments reported to polling clients.
    moments: Moments,
    /// Names found before, for files whose inode is no longer in memory.
    known: Mutex<BTreeMap<u64, String>>,
}

impl Metered {
    /// The device of a profile over `contents`, in which the `held` blocks contain data.
    pub fn new(
        contents: Arc<dyn BlockDevice>,
        held: &[(Lba, u64)],
        profile: &Profile,
        paced: bool,
        most: usize,
    ) -> Result<Self, Failure> {
        let mut model = model::build(profile, contents.blocks()).map_err(|e| e.to_string())?;
        let clock = Arc::new(RealClock::new());
        let pace = if paced { Pace::Paced(clock) } else { Pace::Unpaced(clock) };
        model.fill(device::energy::Nanos(0), held);
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let device = Arc::new(Simulated::new(contents, model, meter, pace));
        Ok(Metered { device, profile: profile.clone(), most, moments: Moments::default(), known: Mutex::default() })
    }

    /// The device.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        self.device.clone()
    }

    /// The processor model used with the device.
    pub fn processor(&self) -> Arc<dyn Processor> {
        self.device.clone()
    }

    /// Everything spent so far. The cost of searching for names on the device is not in the returned ledger.
    pub fn spent(&self, volume: &dyn Volume, look: Look) -> Spent {
        let ledger = self.device.ledger();
        let took = self.device.time().0;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |owner| match name(volume, owner, look) {
            Some(name) => {
                known.insert(owner, name.clone());
                name
            }
            None => match (look, known.get(&owner)) {
                (Look::InMemory, Some(name)) => name.clone(),
                _ => format!("<inode {owner}>"),
            },
        };
        let words = Words::of(volume);
        let files = spent::by_file(&ledger, self.most, &words.rest, |owner| deleted(volume, owner), named);
        Spent {
            profile: self.profile.name.clone(),
            range: Draws::of(&self.profile, &ledger).range(),
            causes: spent::by_cause(&ledger, |n| words.named(n)),
            files,
            owners: "file",
            took,
            counters: self.device.counters(),
            ledger,
        }
    }

    /// What was spent, for a polling client: in total, and since the answer with the token `since`.
    pub fn account(&self, volume: &dyn Volume, files: usize, since: u64) -> String {
        let now = Moment { took: self.device.time().0, ledger: self.device.ledger() };
        let (token, before) = self.moments.keep(now.clone(), since);
        let name = |owner| {
            name(volume, owner, Look::InMemory).unwrap_or_else(|| {
                let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                known.get(&owner).cloned().unwrap_or_else(|| format!("<inode {owner}>"))
            })
        };
        account::answer(
            &self.profile.name,
            &Words::of(volume),
            token,
            &now,
            before.as_ref(),
            files,
            |owner| deleted(volume, owner),
            name,
        )
    }

    /// What was spent, for a volume's report, in microjoules: the total, each component, and cleaning, which has these
    /// causes.
    pub fn report(&self, cleaning: &[u8]) -> Vec<(String, String)> {
        let out = self.device.look(|ledger| {
            let mut out = vec![("uj_total".to_owned(), ledger.total())];
            out.extend(Component::ALL.map(|c| (format!("uj_{}", c.text().to_lowercase()), ledger.component(c))));
            out.push(("uj_cleaning".to_owned(), cleaning.iter().map(|c| ledger.cause(*c)).sum()));
            out
        });
        out.into_iter().map(|(name, energy)| (name, (energy.0 / 1_000_000).to_string())).collect()
    }

    /// A ledger as text: JSON if the file's name ends in `.json`, otherwise tables.
    fn text(spent: &Spent, file: &Path) -> String {
        if file.extension().is_some_and(|e| e == "json") {
            crate::hidden::shown_json(&format!("{:#}\n", serde_json::Value::Object(spent.json())))
        } else {
            output::shown(&format!("{}\n", Self::table(spent)))
        }
    }

    /// A ledger for people.
    pub fn table(spent: &Spent) -> String {
        let (total, took) = (spent.total(), joules::time(spent.took));
        format!("{}: {total} in {took} of the device's time\n\n{}", spent.profile, spent.tables())
    }

    /// Writes a ledger to a file atomically: a reader finds this ledger or the one before.
    pub fn write(spent: &Spent, file: &Path) -> Result<(), Failure> {
        whole::write(file, Self::text(spent, file))
    }

    /// Like [`write`](Self::write), for repeated writes while more is spent.
    pub fn write_often(spent: &Spent, file: &Path) -> Result<(), Failure> {
        whole::write_often(file, Self::text(spent, file))
    }
}
