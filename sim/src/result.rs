//! What did a piece of work cost: how much energy, for which owner and cause, and how long did it take?
//!
//! Results hold whole picojoules and nanoseconds, and nothing about the machine or the time of the run.

use std::collections::BTreeMap;

use device::energy::{Component, Energy, Ledger, Nanos, Operation, Part};
use device::{BLOCK, CountSnapshot};
use serde::{Deserialize, Serialize};
use vfs::FreeFragments;
use volume::Kind;

use crate::account::{self, Account, Amount};

/// Counts by class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Subject.
    pub name: String,
    /// What the classes are, with their unit.
    #[serde(default)]
    pub by: String,
    /// Unit of the counts.
    pub unit: String,
    /// Classes and counts, in order.
    pub bars: Vec<(String, u64)>,
}

impl Histogram {
    /// A histogram of free-space pieces by size.
    pub fn of_free_space(free: &FreeFragments, when: &str) -> Self {
        let bars = free.count.iter().enumerate().map(|(level, n)| (FreeFragments::name(level), *n));
        Histogram {
            name: format!("pieces of free space by size, {when}"),
            by: "size (L1 is 4 KB, each level twice the one before, L9 over 512 KB)".into(),
            unit: "pieces".into(),
            bars: bars.collect(),
        }
    }
}

/// A number with its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

/// Energy of a part for a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    /// The cause.
    pub cause: u8,
    /// The part.
    pub part: Part,
    /// The energy.
    #[serde(rename = "pj", alias = "energy")]
    pub energy: Energy,
}

/// Energy of a part for a cause and an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    /// The inode.
    pub owner: u64,
    /// The cause.
    pub cause: u8,
    /// The part.
    pub part: Part,
    /// The energy.
    #[serde(rename = "pj", alias = "energy")]
    pub energy: Energy,
}

/// Value in [`Phase::files`] for a deleted inode.
pub const DELETED: &str = "deleted";

/// Cost of a type of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCost {
    /// The type.
    pub operation: Operation,
    /// Number of operations.
    pub count: u64,
    /// Their total energy.
    #[serde(rename = "pj", alias = "energy")]
    pub energy: Energy,
}

/// Blocks transferred over the link for a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The cause.
    pub cause: u8,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks written.
    pub blocks_written: u64,
}

/// Energy spent up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the phase began.
    #[serde(rename = "at_ns", alias = "at")]
    pub at: Nanos,
    /// By component, in the order of [`Component::ALL`].
    #[serde(rename = "spent_pj", alias = "spent")]
    pub spent: [Energy; Component::ALL.len()],
}

/// Purpose of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Brings the volume into the initial state.
    Preparation,
    /// Is the subject of the experiment.
    #[default]
    Measured,
    /// Work after it, the same for all.
    After,
}

impl Stage {
    /// True for the default.
    pub fn is_measured(&self) -> bool {
        *self == Stage::Measured
    }
}

/// One measured piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "Stage::is_measured")]
    pub stage: Stage,
    /// The file system that defines its causes.
    #[serde(default, skip_serializing_if = "is_f2fs")]
    pub fs: Kind,
    /// Bytes that the work requested or processed.
    pub bytes: u64,
    /// Duration.
    #[serde(rename = "took_ns", alias = "took")]
    pub took: Nanos,
    /// All energy spent, by cause and part.
    pub spent: Vec<Spending>,
    /// The range of the total, since the profile's numbers may be off ([`device::energy::Draws`]); filled in by who knows
    /// the profile.
    #[serde(rename = "range_pj", default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[Energy; 2]>,
    /// The same by type of operation.
    pub operations: Vec<OperationCost>,
    /// The same by inode: the most expensive ones; the rest under 0, with energy that belongs to no inode.
    #[serde(rename = "owners_pj", alias = "owners")]
    pub owners: Vec<(u64, Energy)>,
    /// The same by inode, cause and part, for the same inodes; empty if owners are foreign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owned: Vec<Owned>,
    /// Known paths of these inodes.
    #[serde(default)]
    pub files: BTreeMap<u64, String>,
    /// Transfers over the link.
    pub traffic: Vec<Traffic>,
    /// Counters inside the device.
    pub counters: BTreeMap<String, u64>,
    /// Energy over time.
    pub timeline: Vec<Sample>,
    /// Sampled writes for a plot: index, and first block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes_at: Vec<(u64, u64)>,
    /// The metrics used in papers, by name.
    pub measures: BTreeMap<String, Measure>,
    /// Costs of all owners; not serialized.
    #[serde(skip)]
    pub account: Account,
    /// What ranges are made from ([`Ledger::sums`]); not serialized.
    #[serde(skip)]
    pub sums: Ledger,
}

/// Number of owners listed in a result; the others are added up.
const OWNERS: usize = 10;

/// A phase's raw numbers.
#[derive(Debug)]
pub struct Raw<'a> {
    /// The energy.
    pub ledger: &'a Ledger,
    /// Requests to the device.
    pub counts: &'a CountSnapshot,
    /// Counters inside the device.
    pub counters: BTreeMap<String, u64>,
    /// Duration.
    pub took: Nanos,
    /// Energy over time.
    pub timeline: Vec<Sample>,
}

impl Phase {
    /// Builds a phase; `bytes` is what the work requested or processed.
    pub fn new(name: &str, bytes: u64, raw: Raw<'_>) -> Self {
        let ledger = raw.ledger;
        let parts = |cause| Part::ALL.iter().map(move |part| (cause, *part));
        let spent = ledger.causes().flat_map(parts).filter_map(|(cause, part)| {
            let energy = ledger.part_for(part, cause);
            (energy != Energy::ZERO).then_some(Spending { cause, part, energy })
        });
        let operations = Operation::ALL.into_iter().filter_map(|operation| {
            let s = ledger.operation(operation);
            (s.operations > 0).then_some(OperationCost { operation, count: s.operations, energy: s.energy })
        });
        let traffic = raw.counts.causes().map(|(cause, c)| Traffic {
            cause,
            reads: c.reads,
            writes: c.writes,
            blocks_read: c.blocks_read,
            blocks_written: c.blocks_written,
        });
        let owners = dearest(ledger);
        let mut phase = Phase {
            name: name.into(),
            stage: Stage::default(),
            fs: Kind::default(),
            bytes,
            took: raw.took,
            spent: spent.collect(),
            range: None,
            operations: operations.collect(),
            owned: owned(ledger, &owners),
            owners,
            files: BTreeMap::new(),
            traffic: traffic.collect(),
            counters: raw.counters,
            timeline: raw.timeline,
            writes_at: Vec::new(),
            measures: BTreeMap::new(),
            account: Account::from_ledger(ledger),
            sums: ledger.sums(),
        };
        phase.derive();
        phase
    }

    /// Total energy.
    pub fn total(&self) -> Energy {
        self.spent.iter().map(|s| s.energy).sum()
    }

    /// Energy of a component.
    pub fn component(&self, c: Component) -> Energy {
        self.spent.iter().filter(|s| s.part.component() == c).map(|s| s.energy).sum()
    }

    /// Energy for a cause.
    pub fn cause(&self, cause: u8) -> Energy {
        self.spent.iter().filter(|s| s.cause == cause).map(|s| s.energy).sum()
    }

    /// Text of a cause.
    pub fn cause_text(&self, cause: u8) -> &'static str {
        cause_text(self.fs, cause)
    }

    /// All energy, sorted by owner, cause and component, for every owner; only owner 0 if owners are unknown.
    pub fn amounts(&self) -> Vec<Amount> {
        match self.account.amounts() {
            [] => account::added(self.spent.iter().map(|s| Amount {
                owner: 0,
                cause: s.cause,
                component: s.part.component(),
                energy: s.energy,
            })),
            amounts => amounts.to_vec(),
        }
    }

    /// Marks the owners as unknown: those of foreign requests are not inodes.
    pub fn forget_owners(&mut self) {
        self.owners = vec![(0, self.total())];
        self.owned.clear();
        self.account.forget_owners();
    }

    /// Adds a phase on another volume. The sum has no owners, whose numbers mean other files there, no course over time,
    /// and no range; measures that the caller noted are those of the first phase.
    pub fn add(&mut self, other: Phase) {
        for s in other.spent {
            match self.spent.iter_mut().find(|all| (all.cause, all.part) == (s.cause, s.part)) {
                Some(all) => all.energy += s.energy,
                None => self.spent.push(s),
            }
        }
        for o in other.operations {
            match self.operations.iter_mut().find(|all| all.operation == o.operation) {
                Some(all) => (all.count, all.energy) = (all.count + o.count, all.energy + o.energy),
                None => self.operations.push(o),
            }
        }
        for t in other.traffic {
            let Some(all) = self.traffic.iter_mut().find(|all| all.cause == t.cause) else {
                self.traffic.push(t);
                continue;
            };
            all.reads += t.reads;
            all.writes += t.writes;
            all.blocks_read += t.blocks_read;
            all.blocks_written += t.blocks_written;
        }
        for (name, n) in other.counters {
            *self.counters.entry(name).or_default() += n;
        }
        self.bytes += other.bytes;
        self.took += other.took;
        self.files.clear();
        self.timeline.clear();
        self.writes_at.clear();
        (self.range, self.sums) = (None, Ledger::default());
        self.forget_owners();
        self.derive();
    }

    /// Known names of the most expensive owners.
    pub fn named(&self) -> BTreeMap<u64, String> {
        let name = |owner: &u64| Some((*owner, self.account.names.get(owner)?.clone()));
        self.owners.iter().filter_map(|(owner, _)| name(owner)).collect()
    }

    /// Records a measure.
    pub fn note(&mut self, name: &str, value: f64, unit: &str) {
        if value.is_finite() {
            self.measures.insert(name.into(), Measure { value, unit: unit.into() });
        }
    }

    /// The measures specific to this work, without those that every phase has.
    pub fn own_measures(&self) -> impl Iterator<Item = (&str, &Measure)> {
        const ALL_HAVE: [&str; 9] = [
            "energy",
            "time",
            "time_per_mb",
            "power",
            "read",
            "written",
            "read_amplification",
            "write_amplification",
            "requests_per_mb",
        ];
        let common = |n: &str| {
            ALL_HAVE.contains(&n) || ["energy_", "power_", "share_"].iter().any(|prefix| n.starts_with(prefix))
        };
        self.measures.iter().map(|(n, m)| (n.as_str(), m)).filter(move |(n, _)| !common(n))
    }

    /// Derives the measures that every phase has. A megabyte is 2^20 bytes and a kilobyte 2^10, as in the profiles.
    fn derive(&mut self) {
        const MB: f64 = 1_048_576.0;
        let total = self.total();
        let megabytes = self.bytes as f64 / MB;
        let seconds = self.took.0 as f64 / 1e9;
        let blocks = |f: fn(&Traffic) -> u64, t: &[Traffic]| t.iter().map(f).sum::<u64>() as f64 * BLOCK as f64 / MB;
        let (read, written) = (blocks(|t| t.blocks_read, &self.traffic), blocks(|t| t.blocks_written, &self.traffic));
        let requests: u64 = self.traffic.iter().map(|t| t.reads + t.writes).sum();
        self.note("energy", total.millijoules(), "mJ");
        self.note("energy_per_mb", total.millijoules() / megabytes, "mJ/MB");
        self.note("energy_per_kb", total.millijoules() * 1e3 / (megabytes * 1024.0), "uJ/KB");
        self.note("time", seconds, "s");
        self.note("time_per_mb", seconds * 1e3 / megabytes, "ms/MB");
        self.note("power", total.millijoules() / seconds, "mW");
        self.note("read", read, "MB");
        self.note("written", written, "MB");
        self.note("read_amplification", read / megabytes, "x");
        self.note("write_amplification", written / megabytes, "x");
        self.note("requests_per_mb", requests as f64 / megabytes, "1/MB");
        for c in Component::ALL {
            let (name, energy) = (c.text().to_lowercase(), self.component(c));
            self.note(&format!("energy_{name}"), energy.millijoules(), "mJ");
            self.note(&format!("energy_per_mb_{name}"), energy.millijoules() / megabytes, "mJ/MB");
            self.note(&format!("power_{name}"), energy.millijoules() / seconds, "mW");
            self.note(&format!("share_{name}"), 100.0 * energy.joules() / total.joules(), "%");
        }
    }
}

fn dearest(ledger: &Ledger) -> Vec<(u64, Energy)> {
    let total = |by: [Energy; Component::ALL.len()]| by.into_iter().sum::<Energy>();
    let mut named: Vec<_> = ledger.owners().into_iter().map(|(o, by)| (o, total(by))).collect();
    let mut rest: Energy = named.extract_if(.., |(o, _)| *o == 0).map(|(_, e)| e).sum();
    // The sort is stable: equal costs stay in order of inode.
    named.sort_by_key(|(_, e)| std::cmp::Reverse(*e));
    rest += named.drain(OWNERS.min(named.len())..).map(|(_, e)| e).sum();
    if rest != Energy::ZERO {
        named.push((0, rest));
    }
    named
}

/// Energy of each of these owners, by cause and part; 0 has that of all others.
fn owned(ledger: &Ledger, owners: &[(u64, Energy)]) -> Vec<Owned> {
    let mut out: BTreeMap<(u64, u8, Part), Energy> = BTreeMap::new();
    for (purpose, part, energy) in ledger.amounts().filter(|(.., energy)| *energy != Energy::ZERO) {
        let owner = if owners.iter().any(|(o, _)| *o == purpose.owner) { purpose.owner } else { 0 };
        *out.entry((owner, purpose.cause, part)).or_default() += energy;
    }
    out.into_iter().map(|((owner, cause, part), energy)| Owned { owner, cause, part, energy }).collect()
}

/// Text of a file system's cause.
pub fn cause_text(fs: Kind, cause: u8) -> &'static str {
    fs.reasons().iter().find(|r| r.number == cause).map_or("unknown", |r| r.text)
}

fn is_f2fs(fs: &Kind) -> bool {
    *fs == Kind::F2fs
}
