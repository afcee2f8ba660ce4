//! For which disks are accounts kept, and on which simulated devices?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device::energy::profile::Profile;
use sim::replay::opening::{self, Part};
use sim::traces::ReplayError;
use sim::traces::blocks::{Options, Plan};
use sim::traces::live::{Terms, everywhere};
use trace::block::DeviceId;

use crate::{Failure, size};
use host::disk::{self, Disk};

/// The default profile of a disk.
const DEFAULT: &str = "kirin9000-ufs31";

/// The choices made on the command line.
pub struct Choice {
    plain: Profile,
    /// By name or numbers.
    of_disks: BTreeMap<String, Profile>,
    wanted: Vec<String>,
    /// Maximum number of flash blocks.
    most: u64,
    /// The recording.
    from: Option<PathBuf>,
}

/// The notations of a disk's numbers.
fn numbers(id: DeviceId) -> [String; 2] {
    [format!("{},{}", id.major, id.minor), format!("{}:{}", id.major, id.minor)]
}

impl Choice {
    /// Reads options.
    pub fn new(profiles: &[String], of: &[String], most: &str, from: Option<&Path>) -> Result<Self, Failure> {
        let find = |name: &str, given: &str| {
            Profile::find(name).map_err(|e| Failure::from(e).named(format!("--profile {given}")))
        };
        let (mut plain, mut of_disks) = (None, BTreeMap::new());
        for given in profiles {
            let before = match given.split_once('=') {
                Some((disk, name)) => of_disks.insert(disk.to_owned(), find(name, given)?).map(drop),
                None => plain.replace(find(given, given)?).map(drop),
            };
            if before.is_some() {
                return Err(Failure::Usage(format!("--profile {given}: given twice")));
            }
        }
        let most = size::within("--most", most, 1 << 30..=1 << 43)? / 4096;
        let plain = plain.map_or_else(|| find(DEFAULT, DEFAULT), Ok)?;
        Ok(Choice { plain, of_disks, wanted: of.to_vec(), most, from: from.map(Path::to_owned) })
    }

    /// True if devices are full of data from the start.
    pub fn full(&self) -> bool {
        self.from.is_none()
    }

    /// The name and terms of a disk's account; `None` if the disk is not selected.
    pub fn terms(&self, id: DeviceId) -> Result<Option<(String, Terms)>, Failure> {
        let known = if self.from.is_none() { disk::disk(id) } else { None };
        let [written, other] = numbers(id);
        let name = known.as_ref().map_or_else(|| written.clone(), |d: &Disk| d.name.clone());
        let is = |said: &String| *said == name || *said == written || *said == other;
        let wanted =
            if self.wanted.is_empty() { self.from.is_some() || !disk::is_loop(id) } else { self.wanted.iter().any(is) };
        if !wanted {
            return Ok(None);
        }
        let profile = self.of_disks.iter().find(|(said, _)| is(said)).map_or(&self.plain, |(_, p)| p).clone();
        let (plan, folded) = match (&self.from, known) {
            (Some(file), _) => (of_recording(file, id)?, false),
            // Gone since, or invisible in a container: the largest size is assumed.
            (None, known) => {
                let blocks = known.map_or(self.most, |d| d.bytes.div_ceil(4096).max(1));
                let flash = profile.kind() == "flash";
                let kept = if flash { blocks.min(self.most) } else { blocks };
                (Plan { of: id, blocks: kept, held: everywhere(kept), requests: 0, before: Vec::new() }, kept < blocks)
            }
        };
        Ok(Some((name, Terms { profile, plan, folded })))
    }
}

/// The device that a replay of a recording uses for this disk.
fn of_recording(file: &Path, id: DeviceId) -> Result<Plan, Failure> {
    let (requests, _) = opening::requests(file, &Part::default())?;
    let options = Options { of: Some(id), ..Options::default() };
    let plan = options.plan(requests, |_| {});
    plan.map_err(|e: ReplayError| format!("{}: {e}", file.display()).into())
}
