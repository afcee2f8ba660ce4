//! Which version of each inode is used, and which blocks belong to it?
//!
//! The version in the map is used if it is readable; otherwise an older one of the same generation, of whose blocks
//! only those are used that certainly still belong to it. If the map is torn, the blocks in use at the checkpoint
//! determine the existing inodes. Without a list of free blocks the newest version of each is used, and names
//! decide later which had been deleted.

use std::collections::{BTreeMap, BTreeSet};

use scherlfs_format::directory::Entries;
use scherlfs_format::extent::Extent;
use scherlfs_format::{Addr, BLOCK, FIRST, FIRST_INO, Ino, ROOT, ifile};

use super::Searched;
use super::action::{Log, What};
use super::file::{File, salvage};
use super::known::Known;
use super::scan::{Hit, Scan, follows};
use crate::Disk;
use crate::blocks::Claimed;

/// Candidate inodes of the repaired volume.
pub(crate) struct Gathered {
    pub files: BTreeMap<Ino, File>,
    /// Numbers in the map whose inodes are lost.
    pub lost: BTreeSet<Ino>,
    /// True if the set of existing inodes is unknown: some may have been deleted.
    pub blind: bool,
}

/// True if a file can have this number: the map has no more blocks than the volume.
fn user(disk: &Disk<'_>, ino: Ino) -> bool {
    (ino == ROOT || ino >= FIRST_INO) && ifile::at(ino).0 < disk.blocks
}

/// Finds a version of every inode.
pub(crate) fn gather(disk: &Disk<'_>, known: &Known, searched: &mut Searched<'_>, log: &mut Log) -> Gathered {
    let mut out = Gathered { files: BTreeMap::new(), lost: BTreeSet::new(), blind: false };
    let mut broken = Vec::new();
    for (&ino, &(at, generation)) in &known.places {
        if !user(disk, ino) {
            log.file(ino, What::NumberFreed);
            continue;
        }
        match salvage(disk, ino, at).filter(|_| at.0 >= FIRST) {
            Some((file, done)) => {
                if file.attributes.generation as u16 != generation {
                    log.file(ino, What::Placed { at });
                }
                done.into_iter().for_each(|what| log.file(ino, what));
                out.files.insert(ino, file);
            }
            None => broken.push((ino, at, generation)),
        }
    }
    let incomplete = known.map_torn || !broken.is_empty() || has_lost(disk, known, &out.files);
    let needs_root = !out.files.contains_key(&ROOT);
    if !incomplete && !needs_root {
        return out;
    }
    // Contents may look like inodes: a file may be the image of another volume.
    let mut contents = Claimed::default();
    for file in out.files.values() {
        file.stored().for_each(|(_, at)| _ = contents.claim(at.0));
    }
    let last = known.sb.seq.0.saturating_add(known.transactions);
    out.blind = known.map_torn && known.free.is_none();
    let scan = searched.scan(disk);
    let mut hits: Vec<Hit> =
        scan.hits.values().flatten().filter(|h| user(disk, h.ino) && !contents.has(h.at.0)).copied().collect();
    hits.retain(|h| out.blind || h.seq.0 <= last);
    let guess = known.kept_unknown && !known.map_torn;
    let mut live = if guess { BTreeMap::new() } else { live(disk, known, scan, &hits, &out) };
    for (ino, at, generation) in broken {
        if live.contains_key(&ino) {
            continue;
        }
        let mine = |h: &&Hit| h.ino == ino && h.generation as u16 == generation;
        let plausible = at.0 >= FIRST && at.0 < disk.blocks && known.free.as_ref().is_none_or(|f| !f.has(at.0));
        let older = hits.iter().filter(mine).filter(|_| plausible).max_by_key(|h| (h.seq, h.epoch, h.attempt));
        match older.and_then(|h| Some((h, salvage(disk, ino, h.at)?))) {
            Some((h, (mut file, done))) => {
                log.file(ino, What::Older { seq: h.seq });
                done.into_iter().for_each(|what| log.file(ino, what));
                let proved = proved(disk, h, &hits);
                let sure = |at: Addr| proved.has(at.0) || (known.was_used(at) && !contents.has(at.0));
                holes(&mut file, ino, log, "the version that is left does not have it any more", |_, at| sure(at));
                file.changed = true;
                out.files.insert(ino, file);
            }
            None => _ = out.lost.insert(ino),
        }
    }
    for (ino, file) in std::mem::take(&mut live) {
        if let Some(at) = file.at {
            log.file(ino, What::Placed { at });
        }
        out.files.insert(ino, file);
    }
    out
}

fn holes(file: &mut File, ino: Ino, log: &mut Log, why: &'static str, keep: impl FnMut(u64, Addr) -> bool) {
    for (from, blocks) in file.keep(keep) {
        log.file(ino, What::Hole { from, blocks, why });
    }
}

/// True if some blocks in use belong to none of these files.
fn has_lost(disk: &Disk<'_>, known: &Known, files: &BTreeMap<Ino, File>) -> bool {
    let Some(free) = &known.free else { return true };
    let mut used = known.needed.clone();
    for file in files.values() {
        file.blocks().for_each(|at| _ = used.claim(at.0));
    }
    (FIRST..disk.blocks).any(|at| !free.has(at) && !used.has(at))
}

/// Inodes that are in use but not in the map.
fn live(disk: &Disk<'_>, known: &Known, scan: &Scan, hits: &[Hit], out: &Gathered) -> BTreeMap<Ino, File> {
    let mut found: BTreeMap<Ino, File> = BTreeMap::new();
    let mut newest: Vec<&Hit> = Vec::new();
    for hit in hits.iter().filter(|h| !out.files.contains_key(&h.ino)) {
        let deleted = scan
            .gone
            .get(&hit.ino)
            .is_some_and(|seq| *seq > hit.seq && seq.0 <= known.sb.seq.0.saturating_add(known.transactions));
        let used = known.was_used(hit.at) && !known.needed.has(hit.at.0);
        if (out.blind && !deleted) || (!out.blind && used && known.free.is_some()) {
            newest.push(hit);
        }
    }
    newest.sort_by_key(|h| (h.ino, std::cmp::Reverse((h.seq, h.epoch, h.attempt, h.at))));
    // Blocks that some version claims as contents are tried last.
    let mut claimed = Claimed::default();
    let all: Vec<(&Hit, File)> = newest.iter().filter_map(|h| Some((*h, salvage(disk, h.ino, h.at)?.0))).collect();
    // A root that is not a directory is wrong.
    let all: Vec<(&Hit, File)> = all.into_iter().filter(|(h, f)| h.ino != ROOT || f.is_dir()).collect();
    let mut by: Claimed = Claimed::default();
    for (_, file) in &all {
        file.stored().for_each(|(_, at)| _ = by.claim(at.0));
    }
    for doubtful in [false, true] {
        for (hit, file) in &all {
            let suspect = by.has(hit.at.0);
            if suspect != doubtful || claimed.has(hit.at.0) || found.contains_key(&hit.ino) {
                continue;
            }
            file.stored().for_each(|(_, at)| _ = claimed.claim(at.0));
            found.insert(hit.ino, file.clone());
        }
    }
    found
}

/// Blocks of contents that pieces of this generation of an inode prove, up to one version.
fn proved(disk: &Disk<'_>, version: &Hit, hits: &[Hit]) -> Claimed {
    let mut out = Claimed::default();
    let same = |h: &&Hit| (h.ino, h.generation) == (version.ino, version.generation) && h.seq <= version.seq;
    for hit in hits.iter().filter(same) {
        follows(disk, hit).into_iter().flatten().for_each(|at| _ = out.claim(at.0));
    }
    out
}

/// Gives every block one owner: an inode that proves its ownership, the directory of a directory block, or the
/// later written of two files that claim a block as contents.
pub(crate) fn divide(disk: &Disk<'_>, known: &Known, files: &mut BTreeMap<Ino, File>, log: &mut Log) {
    let mut used = Claimed::default();
    for file in files.values() {
        file.own.iter().for_each(|at| _ = used.claim(at.0));
    }
    let mut dirs = Claimed::default();
    for (&ino, file) in files.iter().filter(|(_, f)| f.is_dir()) {
        for (n, at) in file.stored() {
            if disk.read(at).is_ok_and(|b| Entries::read(&b, ino, n).is_ok()) {
                dirs.claim(at.0);
            }
        }
    }
    let mut order: Vec<(bool, std::cmp::Reverse<scherlfs_format::Seq>, Ino)> =
        files.iter().map(|(ino, f)| (!f.is_dir(), std::cmp::Reverse(f.seq), *ino)).collect();
    order.sort_unstable();
    // Reservations are limited by the available room; an invalid one is dropped.
    let mut room = disk.blocks.saturating_sub(used.count());
    for (&ino, file) in files.iter_mut() {
        let mut promised = 0;
        for e in &mut file.extents {
            if let Extent::Reserved { blocks } = *e {
                if u64::from(blocks) > room {
                    *e = Extent::Hole { blocks: blocks.into() };
                    promised += u64::from(blocks);
                } else {
                    room -= u64::from(blocks);
                }
            }
        }
        if promised > 0 {
            file.changed = true;
            log.file(ino, What::Mended { field: "room that was promised" });
        }
    }
    // Blocks past a file's end belong to it only if no other file claims them: no writer stores any there.
    for behind in [false, true] {
        for (regular, _, ino) in &order {
            let Some(file) = files.get_mut(ino) else { continue };
            let end = if *regular { file.attributes.size.div_ceil(BLOCK as u64) } else { u64::MAX };
            let claim = |n: u64, at: Addr| match n >= end {
                true if !behind => true,
                false if behind => true,
                is => {
                    let may = at.0 >= FIRST && !(*regular && dirs.has(at.0)) && (!is || known.was_used(at));
                    may && used.claim(at.0)
                }
            };
            holes(file, *ino, log, "another file has it, or it is free", claim);
        }
    }
}
