//! Does every block of a state have one owner, and do the state's counts match?

use std::collections::BTreeMap;

use scherlfs_format::extent::Extent;
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, FIRST, FIRST_INO, FREE_LIST, HISTORY, ROOT};

use crate::blocks::Claimed;
use crate::finding::{Finding, State};
use crate::map::{Map, node, target};
use crate::{Disk, names};

/// Contents of a state.
pub(crate) struct Seen {
    pub used: Claimed,
    pub inodes: u64,
    pub directories: u64,
    promised: u64,
}

/// Checks every inode and every name of a state.
pub(crate) fn judge(disk: &Disk<'_>, sb: &Superblock, map: &Map, state: State, findings: &mut Vec<Finding>) -> Seen {
    let mut seen = Seen { used: Claimed::default(), inodes: 0, directories: 0, promised: 0 };
    let claim = |used: &mut Claimed, ino, at: Addr, findings: &mut Vec<Finding>| {
        if at.0 < FIRST || !used.claim(at.0) {
            findings.push(Finding::Twice { at, ino, state });
        }
    };
    for &(ino, at) in &map.hidden {
        claim(&mut seen.used, ino, at, findings);
    }
    // Transactions undone by the log behind the checkpoint own kept blocks again.
    if state == State::Checkpoint {
        judge_past(disk, sb, map, &mut seen.used, findings);
    }
    let mut nodes = BTreeMap::new();
    for (&ino, &(at, generation)) in &map.places {
        let wrong = |why| Finding::Inode { ino, at, state, why };
        let node = match node(disk, ino, at) {
            Ok(node) => node,
            Err(why) => {
                findings.push(wrong(why));
                continue;
            }
        };
        if let Err(why) = target(disk, &node) {
            findings.push(wrong(why));
        }
        if ino != ROOT && ino < FIRST_INO {
            findings.push(wrong("a hidden file is in the map".into()));
        }
        if node.inode.attributes.generation as u16 != generation {
            findings.push(wrong("it is of another life of this number".into()));
        }
        for at in node.own.iter().copied().chain(node.stored()) {
            claim(&mut seen.used, ino, at, findings);
        }
        let reserved = node.extents.iter().filter(|e| matches!(e, Extent::Reserved { .. }));
        seen.promised += reserved.map(|e| e.blocks()).sum::<u64>();
        nodes.insert(ino, node);
    }
    seen.inodes = map.places.len() as u64;
    seen.directories = names::judge(disk, map, &nodes, state, findings);
    if state == State::Checkpoint {
        if seen.promised > disk.blocks {
            let why = format!("files were promised {} blocks, the volume has {}", seen.promised, disk.blocks);
            findings.push(Finding::Superblock { at: sb.place(), why });
        }
        let mut count = |what, stored, counted| {
            if stored != counted {
                findings.push(Finding::Count { what, stored, counted });
            }
        };
        // The inode map's own inode counts too.
        count("inodes in use", sb.inodes, seen.inodes + 1);
        count("blocks promised", sb.promised, seen.promised);
        count("free blocks", sb.free, map.free.iter().map(|r| u64::from(r.blocks)).sum());
    }
    seen
}

/// Checks undoable transactions: their blocks have no other owner, and each inode is at its recorded address.
fn judge_past(disk: &Disk<'_>, sb: &Superblock, map: &Map, used: &mut Claimed, findings: &mut Vec<Finding>) {
    let wrong = |why| Finding::Hidden { ino: HISTORY, why };
    for at in map.past.iter().flat_map(|p| &p.runs).flat_map(|r| r.addrs()) {
        if at.0 < FIRST || at.0 >= disk.blocks || !used.claim(at.0) {
            findings.push(wrong(format!("block {at} is kept, and somebody else's, or outside of the volume")));
            return;
        }
    }
    for change in map.past.iter().flat_map(|p| &p.changes) {
        let Some(at) = change.was else { continue };
        if let Err(why) = node(disk, change.ino, at) {
            findings.push(wrong(format!("inode {} cannot go back to block {at}: {why}", change.ino)));
        }
    }
    let floor = map.past.first().map_or(sb.undo_floor, |p| scherlfs_format::Seq(p.seq.0.saturating_sub(1)));
    if floor != sb.undo_floor {
        findings.push(Finding::Count { what: "oldest transaction", stored: sb.undo_floor.0, counted: floor.0 });
    }
}

/// Checks that every block is either used or free; returns the free ones.
pub(crate) fn judge_free(
    disk: &Disk<'_>,
    sb: &Superblock,
    map: &Map,
    seen: &Seen,
    findings: &mut Vec<Finding>,
) -> Claimed {
    let mut free = Claimed::default();
    for at in map.free.iter().flat_map(|r| r.addrs()) {
        if at.0 >= disk.blocks {
            findings.push(Finding::Hidden { ino: FREE_LIST, why: format!("block {at} is outside of the volume") });
            return free;
        }
        if seen.used.has(at.0) {
            findings.push(Finding::FreeAndUsed { at });
        }
        free.claim(at.0);
    }
    if sb.path.is_empty() && free.count() > 0 {
        findings.push(Finding::Superblock { at: sb.place(), why: "it has no path, and there are free blocks".into() });
    }
    let mut ahead = Claimed::default();
    for at in sb.path.iter().flat_map(|r| r.addrs()) {
        let why = match () {
            () if !free.has(at.0) => "is not free",
            () if !ahead.claim(at.0) => "is on it twice",
            () => continue,
        };
        findings.push(Finding::Superblock { at: sb.place(), why: format!("the path's block {at} {why}") });
        break;
    }
    let mut lost: Option<(u64, u64)> = None;
    // Blocks that a volume of over 16 TiB leaves out between two free runs have no owner.
    let apart = |at: u64| (at - FIRST + 1).is_multiple_of(1 << 32);
    for at in (FIRST..disk.blocks).chain([disk.blocks]) {
        let gone = at < disk.blocks && !free.has(at) && !seen.used.has(at) && !apart(at);
        match (&mut lost, gone) {
            (Some((_, n)), true) => *n += 1,
            (None, true) => lost = Some((at, 1)),
            (Some((from, n)), false) => {
                findings.push(Finding::Lost { at: Addr(*from), blocks: *n });
                lost = None;
            }
            (None, false) => {}
        }
    }
    free
}
