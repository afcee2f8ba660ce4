//! The rows of disks and processes at a refresh, from their current and previous accounts.

use std::collections::BTreeMap;

use device::energy::{Component, Energy};
use sim::traces::live::{Asked, Reading, Terms};
use trace::askers::WRITEBACK;
use trace::block::DeviceId;
use trace::{Names, Process};

use crate::output;

/// Energies by component, in the order of [`Component::ALL`].
pub type Amounts = [Energy; Component::ALL.len()];

/// Information on a disk in addition to its account.
#[derive(Debug, Clone)]
pub struct About {
    /// What it is called.
    pub name: String,
    /// The simulated device.
    pub profile: String,
    /// Its bytes.
    pub bytes: u64,
    /// It is full of data.
    pub full: bool,
    /// It is smaller than the disk.
    pub folded: bool,
}

impl About {
    /// For a disk with these terms.
    pub fn new(name: String, terms: &Terms, full: bool) -> Self {
        let (profile, bytes) = (terms.profile.name.clone(), terms.plan.blocks * 4096);
        About { name, profile, bytes, full, folded: terms.folded }
    }
}

/// A process on a disk.
#[derive(Debug, Clone)]
pub struct Row {
    /// The name; [`WRITEBACK`] for a file being written back.
    pub process: String,
    /// The file being written back, if known, and the processes that dirtied it.
    pub file: Option<(String, Vec<String>)>,
    /// Energy since the start.
    pub energy: Amounts,
    /// Current watts.
    pub watts: f64,
    /// Requests since the start.
    pub asked: Asked,
    /// Current requests per second.
    pub requests: f64,
    /// Current bytes per second.
    pub bytes: f64,
}

/// A disk.
#[derive(Debug, Clone)]
pub struct DiskRow {
    /// Its numbers.
    pub id: DeviceId,
    /// Other information on it.
    pub about: About,
    /// Energy since its first request.
    pub energy: Amounts,
    /// Energy according to a replay of its requests, which ends with the last one.
    pub of_requests: Energy,
    /// Current watts.
    pub watts: f64,
    /// Requests since the start.
    pub requests: u64,
    /// Number of requests that the simulated device refused, and the first reason.
    pub failed: (u64, Option<String>),
    /// Its processes, the costliest first; waiting last.
    pub rows: Vec<Row>,
}

/// A count of events that are not shown as requests.
#[derive(Debug, Clone, Copy)]
pub struct Note {
    /// Its key in JSON.
    pub key: &'static str,
    /// Its text on the screen, after the count.
    pub text: &'static str,
    pub count: u64,
}

impl Note {
    pub fn new(key: &'static str, text: &'static str, count: u64) -> Note {
        Note { key, text, count }
    }
}

/// A refresh.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Seconds since the start.
    pub since: f64,
    /// Seconds since the previous refresh.
    pub interval: f64,
    /// True for the last refresh.
    pub ended: bool,
    /// The disks.
    pub disks: Vec<DiskRow>,
    /// Counts of events that are not shown as requests.
    pub notes: Vec<Note>,
    /// Why reading a recording ended early.
    pub damage: Option<String>,
}

pub fn sum(amounts: &Amounts) -> Energy {
    amounts.iter().copied().sum()
}

/// Energy of no process.
pub const WAITING: &str = "<waiting>";

/// A file being written back, and the processes that dirtied it.
type File = Option<(String, Vec<String>)>;

fn name(names: &Names, owner: u64) -> (String, File) {
    let Some(process) = owner.checked_sub(1) else { return (WAITING.into(), None) };
    let process = Process(u32::try_from(process).unwrap_or(0));
    if let Some(writeback) = names.writeback(process) {
        let mut by: Vec<String> = writeback.by.iter().map(|name| output::plain(name)).collect();
        by.extend(writeback.more.then(|| "others".to_owned()));
        return (WRITEBACK.into(), Some((output::plain(&writeback.file), by)));
    }
    match names.name(process) {
        "" => ("<process not known>".into(), None),
        name => (output::plain(name), None),
    }
}

impl Row {
    /// The row's name, on one line.
    pub fn text(&self) -> String {
        match &self.file {
            Some((file, by)) if by.is_empty() => format!("{} {file}", self.process),
            Some((file, by)) => format!("{} {file} ({})", self.process, by.join(", ")),
            None => self.process.clone(),
        }
    }

    /// Adds the amounts of another row.
    pub fn add(&mut self, other: &Row) {
        self.energy.iter_mut().zip(other.energy).for_each(|(sum, e)| *sum += e);
        self.watts += other.watts;
        self.asked.requests += other.asked.requests;
        self.asked.read += other.asked.read;
        self.asked.written += other.asked.written;
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

/// The rows; written-back files after the first `most` are merged into one, the last row.
pub fn lumped(rows: &[Row], most: usize) -> Vec<Row> {
    let (mut out, mut files, mut others) = (Vec::new(), 0, None::<(Row, usize)>);
    for row in rows {
        files += usize::from(row.file.is_some());
        match &mut others {
            _ if row.file.is_none() || files <= most => out.push(row.clone()),
            Some((sum, n)) => {
                sum.add(row);
                *n += 1;
            }
            None => others = Some((row.clone(), 1)),
        }
    }
    out.extend(others.map(|(row, n)| Row { file: Some((format!("<{n} other files>"), Vec::new())), ..row }));
    out
}

/// A disk's rows.
pub fn disk(
    id: DeviceId,
    about: &About,
    now: &Reading,
    before: Option<&Reading>,
    interval: f64,
    names: &Names,
) -> DiskRow {
    // Floating-point differences may be slightly negative.
    let per = |x: f64| if interval > 0.0 { (x / interval).max(0.0) } else { 0.0 };
    let owners = now.ledger.owners();
    let process = |owner: u64| owner.checked_sub(1).map(|p| Process(u32::try_from(p).unwrap_or(0)));
    let asked = |reading: Option<&Reading>, owner: u64| {
        process(owner).and_then(|p| reading?.asked.get(&p).copied()).unwrap_or_default()
    };
    let mut rows: Vec<Row> = owners
        .iter()
        .map(|(owner, energy)| {
            let was = before.map_or([Energy::ZERO; Component::ALL.len()], |b| b.ledger.owner(*owner));
            let (asked, had) = (asked(Some(now), *owner), asked(before, *owner));
            let bytes = |a: &Asked| (a.read + a.written) as f64;
            let (process, file) = name(names, *owner);
            Row {
                process,
                file,
                energy: *energy,
                watts: per(sum(energy).joules() - sum(&was).joules()),
                requests: per((asked.requests - had.requests) as f64),
                bytes: per(bytes(&asked) - bytes(&had)),
                asked,
            }
        })
        .collect();
    rows.sort_by_cached_key(|r| (r.process == WAITING, std::cmp::Reverse(sum(&r.energy)), r.text()));
    let total = now.ledger.total();
    DiskRow {
        id,
        about: about.clone(),
        energy: Component::ALL.map(|c| now.ledger.component(c)),
        of_requests: now.of_requests,
        watts: per(total.joules() - before.map_or(0.0, |b| b.ledger.total().joules())),
        requests: now.asked.values().map(|a| a.requests).sum(),
        failed: now.failed.clone(),
        rows,
    }
}

impl Shown {
    /// Total energy.
    pub fn total(&self) -> Energy {
        self.disks.iter().map(|d| sum(&d.energy)).sum()
    }
    /// Watts on all disks.
    pub fn watts(&self) -> f64 {
        self.disks.iter().map(|d| d.watts).fold(0.0, |a, b| a + b)
    }
}

/// Readings by disk.
pub type Readings = BTreeMap<DeviceId, Reading>;
