//! Checks a ScherlFS volume, and repairs it.
//!
//! A second reader: it shares only structures with the first (`scherlfs_format`), and follows maps, extents, names
//! and the log with its own code. It checks two states: the checkpoint, in which every block must be free or have
//! one owner, and the state after the log behind it. Damage is a finding, never an error. No panic on any bytes.
//!
//! [`repair()`] turns a volume in any state into one without findings.
//!
//! Left out: file contents, which have no checksum of their own.
#![forbid(unsafe_code)]

mod blocks;
mod finding;
mod kind;
mod log;
mod map;
mod names;
mod repair;
mod tree;
mod unflip;

use device::BlockDevice;
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, Block, FIRST};

pub use finding::{Finding, State};
pub use repair::{Action, RepairError, Repaired, What, repair, seems};

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Faults in order of discovery.
    pub findings: Vec<Finding>,
    /// Harmless faults: a superblock copy that a power cut may have torn, and that the next checkpoint rewrites.
    pub notes: Vec<Finding>,
    /// Number of used inodes.
    pub inodes: u64,
    /// Number of directories.
    pub directories: u64,
    /// Number of used blocks.
    pub used: u64,
    /// Number of transactions behind the checkpoint.
    pub transactions: u64,
}

impl Report {
    /// True if there are no findings.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// A device, limited to the blocks of a volume.
pub(crate) struct Disk<'d> {
    dev: &'d dyn BlockDevice,
    blocks: u64,
}

impl Disk<'_> {
    /// Reads a block, or returns why it is unreadable.
    fn read(&self, at: Addr) -> Result<Box<Block>, String> {
        if at.0 >= self.blocks {
            return Err("it is outside of the volume".into());
        }
        let mut block = Box::new([0; BLOCK]);
        self.dev.read(device::Lba(at.0), &mut block[..], device::Tag::default()).map_err(|e| e.to_string())?;
        Ok(block)
    }
}

/// Checks a volume.
pub fn check(dev: &dyn BlockDevice) -> Report {
    let mut report = Report::default();
    let Some(sb) = superblock(dev, &mut report) else { return report };
    let disk = Disk { dev, blocks: sb.blocks };
    let Some(map) = map::Map::of_checkpoint(&disk, &sb, &mut report.findings) else { return report };
    let at_checkpoint = tree::judge(&disk, &sb, &map, State::Checkpoint, &mut report.findings);
    let free = tree::judge_free(&disk, &sb, &map, &at_checkpoint, &mut report.findings);
    let mut last = at_checkpoint;
    let log = log::follow(&disk, &sb);
    if let Some(epoch) = log::other_epoch(&disk, &sb) {
        let why = format!("it says epoch {}, and what follows in the log is of epoch {}", sb.epoch.count, epoch.count);
        report.findings.push(Finding::Superblock { at: sb.place(), why });
    }
    if sb.clean && log.transactions > 0 {
        let why = format!("it says that nothing follows in the log, and {} transactions do", log.transactions);
        report.findings.push(Finding::Superblock { at: sb.place(), why });
    } else {
        report.transactions = log.transactions;
        let wrong = |at: &Addr, why: &str| Finding::Log { at: *at, why: why.into() };
        report.findings.extend(log.flipped.iter().map(|at| wrong(at, "one bit of it flipped")));
        let mut written = blocks::Claimed::default();
        let mut count = 0;
        for &(ino, at, taken) in &log.inodes {
            log.blocks[count..taken].iter().for_each(|at| _ = written.claim(at.0));
            count = taken;
            let twice = |node: map::Node| {
                let mut own = blocks::Claimed::default();
                let both = node.own.iter().copied().chain(node.stored()).find(|at| !own.claim(at.0));
                if let Some(at) = both {
                    return Err(format!("two of its parts lie at block {at}"));
                }
                let ahead =
                    node.own.iter().copied().chain(node.stored()).find(|at| free.has(at.0) && !written.has(at.0));
                ahead.map_or(Ok(()), |at| Err(format!("block {at} is its own, and the log had not come there yet")))
            };
            if let Err(why) = map::node(&disk, ino, at).and_then(twice) {
                report.findings.push(wrong(&at, &format!("inode {ino}: {why}")));
            }
        }
        let mut taken = blocks::Claimed::default();
        let used = log.blocks.iter().find(|at| !free.has(at.0) || !taken.claim(at.0));
        report.findings.extend(used.map(|at| wrong(at, "it was not free")));
        if log.transactions > 0 {
            let now = log.apply(map);
            last = tree::judge(&disk, &sb, &now, State::Log, &mut report.findings);
            // Every block in use now was in use at the checkpoint, or was written by the log.
            let both = |at: &u64| free.has(*at) && last.used.has(*at) && !taken.has(*at);
            let both = (FIRST..disk.blocks).find(both).map(Addr);
            report
                .findings
                .extend(both.map(|at| wrong(&at, "it is in use and was free, and the log did not write it")));
        }
    }
    report.inodes = last.inodes;
    report.directories = last.directories;
    report.used = last.used.count();
    report
}

/// The current superblock. One damaged copy is a note. Two damaged copies are a finding, and so are copies of
/// different volumes, and a damaged newer copy with a valid checksum, which no power cut leaves.
fn superblock(dev: &dyn BlockDevice, report: &mut Report) -> Option<Superblock> {
    let Report { findings, notes, .. } = report;
    let disk = Disk { dev, blocks: dev.blocks() };
    let (mut found, mut torn, mut number) = (Vec::<Superblock>::new(), Vec::new(), None);
    for at in [0, 1] {
        let block = disk.read(Addr(at));
        number = number.max(block.as_ref().ok().and_then(|b| Superblock::sealed_number(b)));
        match block.and_then(|b| Superblock::read(&b).map_err(|e| e.to_string())) {
            Ok(sb) => found.push(sb),
            Err(why) => torn.push(Finding::Superblock { at: Addr(at), why }),
        }
    }
    if found.len() == 2 && found[0].uuid != found[1].uuid {
        findings.push(Finding::Superblock { at: Addr(1), why: "it is another volume's than the first".into() });
        return None;
    }
    if let [a, b] = &found[..] {
        let (old, new) = if a.checkpoint <= b.checkpoint { (a, b) } else { (b, a) };
        if old.seq > new.seq || old.epoch > new.epoch || old.blocks != new.blocks {
            let why = "what it counts contradicts the other copy".into();
            findings.push(Finding::Superblock { at: new.place(), why });
        }
    }
    match found.iter().all(|sb| number > Some(sb.checkpoint)) {
        true => findings.append(&mut torn),
        false => notes.append(&mut torn),
    }
    let sb = found.into_iter().max_by_key(|sb| sb.checkpoint)?;
    if sb.blocks > dev.blocks() || sb.blocks <= FIRST {
        let why = format!("the volume has {} blocks, the device {}", sb.blocks, dev.blocks());
        findings.push(Finding::Superblock { at: sb.place(), why });
        return None;
    }
    Some(sb)
}
