//! Which superblock is current, which inodes exist, and which blocks are free, according to the volume itself?
//!
//! A superblock copy is used if its inode map exists. If one copy is unusable, it may have been the newer one: then
//! the log is followed from the other to its next checkpoint. Without any copy, the newest checkpoint is searched
//! among all inodes of the volume.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use scherlfs_format::inode::{Attributes, Time};
use scherlfs_format::superblock::{BLOCKS_MIN, PATH_MAX, Placement, Superblock};
use scherlfs_format::{
    Addr, BLOCK, BLOCKS_MAX, Block, Epoch, FIRST, FREE_LIST, HISTORY, IFILE, Ino, ORPHANS, Run, Seq, history, ifile,
    lists,
};

use super::action::{Log, What};
use super::file::{File, salvage};
use super::scan::{Hit, Scan};
use super::{RepairError, Searched};
use crate::blocks::Claimed;
use crate::{Disk, log, unflip};

/// Known data of a volume.
pub(crate) struct Known {
    /// Basis of the next superblock.
    pub sb: Superblock,
    /// Addresses of inodes according to the map and the log behind it.
    pub places: BTreeMap<Ino, (Addr, u16)>,
    pub orphans: BTreeSet<Ino>,
    /// Free blocks at the checkpoint, if the list is readable.
    pub free: Option<Claimed>,
    /// Present blocks of the map, by index.
    pub map: BTreeMap<u64, (Addr, Box<Block>)>,
    /// The attributes of the map's inode.
    pub map_attributes: Option<Attributes>,
    /// True if some of the map is unreadable: inodes may be missing in `places`.
    pub map_torn: bool,
    /// True if unknown blocks are kept for undo: then a used block need not belong to a file.
    pub kept_unknown: bool,
    /// Blocks from which all this was read: they are needed again after an interrupted repair.
    pub needed: Claimed,
    /// Transactions behind the checkpoint.
    pub transactions: u64,
    /// The number of the next checkpoint.
    pub next: u64,
}

/// Readable superblock copies, with a bit restored if necessary; true if both are valid and in place.
fn copies(disk: &Disk<'_>, log: &mut Log) -> (Vec<Superblock>, bool) {
    let (mut found, mut sound) = (Vec::new(), true);
    for at in [0, 1].map(Addr) {
        let Ok(block) = disk.read(at) else {
            sound = false;
            continue;
        };
        match Superblock::read(&block) {
            Ok(sb) => found.push(sb),
            Err(_) => {
                sound = false;
                if let Some(sb) = unflip::of_superblock(&block).and_then(|b| Superblock::read(&b).ok()) {
                    log.volume(What::Superblock { at });
                    found.push(sb);
                }
            }
        }
    }
    found.sort_by(|a, b| later(b, a));
    (found, sound)
}

/// Which of two copies is newer: the majority of their counters decides.
fn later(a: &Superblock, b: &Superblock) -> Ordering {
    let votes = [a.checkpoint.cmp(&b.checkpoint), a.seq.cmp(&b.seq), a.epoch.cmp(&b.epoch)];
    votes.into_iter().map(|v| v as i8).sum::<i8>().cmp(&0)
}

/// True if the inode map or the free list of a superblock belongs to its checkpoint: the other may be damaged.
fn names_a_map(disk: &Disk<'_>, sb: &Superblock) -> bool {
    let of = |ino, at| salvage(disk, ino, at).is_some_and(|(file, _)| file.seq == sb.seq);
    of(IFILE, sb.ifile) || of(FREE_LIST, sb.free_list)
}

/// The free runs from a block on, wrapping around.
pub(crate) fn path_from(free: &[Run], head: Addr) -> Vec<Run> {
    let behind = free.iter().filter(|r| r.end() > head).map(|r| {
        let start = r.start.max(head);
        Run { start, blocks: (r.end().0 - start.0) as u32 }
    });
    let before = free.iter().filter(|r| r.start < head).map(|r| {
        let end = r.end().min(head);
        Run { start: r.start, blocks: (end.0 - r.start.0) as u32 }
    });
    behind.chain(before).take(PATH_MAX).collect()
}

fn free_runs(disk: &Disk<'_>, at: Addr) -> Option<Vec<Run>> {
    let (file, _) = salvage(disk, FREE_LIST, at)?;
    lists::read_free(&contents(disk, &file)).ok()
}

/// The bytes of a hidden file; unreadable ones are zeroes.
fn contents(disk: &Disk<'_>, file: &File) -> Vec<u8> {
    let size = file.attributes.size.min(disk.blocks * BLOCK as u64) as usize;
    let mut out = vec![0; size];
    for (n, at) in file.stored() {
        let Some(to) = usize::try_from(n).ok().and_then(|n| out.get_mut(n * BLOCK..)) else { break };
        if let Ok(block) = disk.read(at) {
            let n = to.len().min(BLOCK);
            to[..n].copy_from_slice(&block[..n]);
        }
    }
    out
}

/// Builds the superblock of a checkpoint without one.
fn of_checkpoint(
    disk: &Disk<'_>,
    like: Option<&Superblock>,
    found: &log::Unsaid,
    after: Option<(Addr, Epoch)>,
) -> Superblock {
    let blank = Superblock {
        uuid: [0; 16],
        label: String::new(),
        blocks: disk.blocks,
        segment_blocks: 256,
        placement: Placement::Before,
        clean: false,
        checkpoint: found.seq.0,
        seq: found.seq,
        epoch: found.epoch,
        secret: 0,
        ifile: found.ifile,
        free_list: found.free_list,
        orphans: found.orphans,
        history: found.history,
        undo_floor: Seq(0),
        free: 0,
        inodes: 0,
        promised: 0,
        begun: Time::default(),
        path: Vec::new(),
    };
    let (head, epoch) = after.map_or((found.head, found.epoch), |(at, epoch)| (Some(at), epoch));
    let free = free_runs(disk, found.free_list).unwrap_or_default();
    let path = head.map(|head| path_from(&free, head)).unwrap_or_default();
    match like {
        Some(like) => Superblock {
            checkpoint: like.checkpoint + 1,
            path,
            epoch,
            uuid: like.uuid,
            label: like.label.clone(),
            secret: like.secret,
            segment_blocks: like.segment_blocks,
            placement: like.placement,
            undo_floor: like.undo_floor,
            ..blank
        },
        None => Superblock { path, epoch, ..blank },
    }
}

fn unsaid_of(scan: &Scan, (map, list): &(Hit, Hit)) -> log::Unsaid {
    let same = |h: &&Hit| (h.seq, h.epoch, h.attempt) == (map.seq, map.epoch, map.attempt);
    let of = |ino| scan.of_inode(ino).iter().find(same).map(|h| h.at);
    let (orphans, history) = (of(ORPHANS), of(HISTORY));
    log::Unsaid { seq: map.seq, epoch: map.epoch, ifile: map.at, free_list: list.at, orphans, history, head: None }
}

/// The current superblock, or a rebuilt one. `damaged`: the state of the usable copy is damaged.
fn superblock(
    disk: &Disk<'_>,
    damaged: bool,
    searched: &mut Searched<'_>,
    log: &mut Log,
) -> Result<(Superblock, u64), RepairError> {
    let (found, sound) = copies(disk, log);
    searched.settled = found.iter().map(|sb| sb.seq).max().unwrap_or_default();
    searched.secret = found.first().map(|sb| sb.secret);
    let next = found.iter().map(|sb| sb.checkpoint).max().map_or(0, |c| c.saturating_add(1));
    let usable = found.iter().find(|sb| names_a_map(disk, sb));
    let newest = found.first();
    if let (Some(sb), Some(top)) = (usable, newest)
        && sound
        && sb == top
        && found.iter().all(|other| other.uuid == sb.uuid)
    {
        return Ok((sb.clone(), next));
    }
    if let Some(sb) = usable {
        // The other copy may have been that of a later checkpoint.
        let base = Superblock { clean: false, ..sb.clone() };
        let later = log::unsaid(disk, &base).map(|unsaid| of_checkpoint(disk, Some(sb), &unsaid, None));
        if let Some(later) = later.filter(|sb| names_a_map(disk, sb)) {
            log.volume(What::Found { seq: later.seq });
            return Ok((later, next));
        }
        if !damaged {
            return Ok((sb.clone(), next));
        }
    }
    let scan = searched.scan(disk);
    let like = usable.or(newest);
    let last = scan.newest().map_or(Seq(0), |(seq, _)| seq);
    let newer = |map: &Hit| like.is_none_or(|sb| map.seq > sb.seq || (usable.is_none() && map.seq == sb.seq));
    for pair in scan.checkpoints().iter().filter(|(map, _)| newer(map)) {
        let unsaid = unsaid_of(scan, pair);
        let sb = of_checkpoint(disk, like, &unsaid, scan.next_first(unsaid.seq).filter(|(_, e)| *e >= unsaid.epoch));
        // If the volume has more transactions than its log reaches, it is an old one.
        let reached = sb.seq.0 + log::follow(disk, &sb).transactions;
        if names_a_map(disk, &sb) && reached >= last.0 {
            log.volume(What::Found { seq: sb.seq });
            let next = next.max(sb.checkpoint.saturating_add(1));
            return Ok((sb, next));
        }
    }
    // An older copy whose log ends before the newest transaction would restore an old state.
    let whole = usable.filter(|sb| Some(*sb) == newest || sb.seq.0 + log::follow(disk, sb).transactions >= last.0);
    match (whole.or(newest), scan.newest()) {
        (Some(sb), _) => Ok((sb.clone(), next)),
        (None, Some((seq, epoch))) => {
            let none = log::Unsaid {
                seq,
                epoch,
                ifile: Addr(0),
                free_list: Addr(0),
                orphans: None,
                history: None,
                head: None,
            };
            log.volume(What::Found { seq });
            Ok((of_checkpoint(disk, None, &none, None), seq.0.saturating_add(1)))
        }
        (None, None) => Err(RepairError::NoVolume),
    }
}

/// Reads all this data.
pub(crate) fn read<'d>(
    dev: &'d dyn device::BlockDevice,
    damaged: bool,
    searched: &mut Searched<'_>,
    log: &mut Log,
) -> Result<(Disk<'d>, Known), RepairError> {
    let all = Disk { dev, blocks: dev.blocks().min(BLOCKS_MAX) };
    let (mut sb, next) = superblock(&all, damaged, searched, log)?;
    if let Some(epoch) = log::other_epoch(&all, &sb) {
        log.volume(What::Field { field: "epoch" });
        (sb.epoch, sb.clean) = (epoch, false);
    }
    // A volume does not change its size, so the smaller value is wrong.
    let copies = copies(&all, &mut Log::default()).0;
    let long = copies.iter().filter(|c| c.uuid == sb.uuid && c.blocks <= all.blocks).map(|c| c.blocks).max();
    if let Some(long) = long.filter(|long| *long > sb.blocks) {
        log.volume(What::Field { field: "blocks" });
        sb.blocks = long;
    }
    if sb.blocks > all.blocks {
        log.volume(What::Cut { from: sb.blocks, to: all.blocks });
        sb.blocks = all.blocks;
    }
    if sb.blocks < BLOCKS_MIN {
        return Err(RepairError::NoVolume);
    }
    let disk = Disk { dev, blocks: sb.blocks };
    let mut known = Known {
        places: BTreeMap::new(),
        orphans: BTreeSet::new(),
        free: None,
        map: BTreeMap::new(),
        map_attributes: None,
        map_torn: false,
        kept_unknown: false,
        needed: Claimed::default(),
        transactions: 0,
        next,
        sb,
    };
    known.read_map(&disk, searched, log);
    known.read_lists(&disk, searched, log);
    let found = log::follow(&disk, &known.sb);
    found.blocks.iter().for_each(|at| _ = known.needed.claim(at.0));
    known.transactions = found.transactions;
    let before = known.places.clone();
    found.apply_to(&mut known.places, &mut known.orphans);
    for (ino, (at, _)) in before.into_iter().filter(|(ino, place)| known.places.get(ino) != Some(place)) {
        if let Some((file, _)) = salvage(&disk, ino, at) {
            file.blocks().for_each(|at| _ = known.needed.claim(at.0));
        }
    }
    if known.transactions > 0 {
        log.volume(What::LogTaken { transactions: known.transactions });
    }
    Ok((disk, known))
}

impl Known {
    /// A hidden file of the checkpoint, at the superblock's address or anywhere else.
    fn hidden(&mut self, disk: &Disk<'_>, ino: Ino, at: Addr, searched: &mut Searched<'_>) -> Option<File> {
        let of_it = |(file, _): &(File, Vec<What>)| file.seq == self.sb.seq;
        let (file, done) = salvage(disk, ino, at).filter(of_it).or_else(|| {
            let hits = searched.scan(disk).of_inode(ino);
            hits.iter().find_map(|h| salvage(disk, ino, h.at).filter(of_it))
        })?;
        file.blocks().for_each(|at| _ = self.needed.claim(at.0));
        let torn = done.iter().any(|w| !matches!(w, What::Bit { .. }));
        (!torn).then_some(file)
    }

    fn read_map(&mut self, disk: &Disk<'_>, searched: &mut Searched<'_>, log: &mut Log) {
        let Some(file) = self.hidden(disk, IFILE, self.sb.ifile, searched) else {
            self.map_torn = true;
            log.volume(What::MapRebuilt);
            return;
        };
        self.map_attributes = Some(file.attributes);
        for (n, at) in file.stored() {
            let Some(first) = n.checked_mul(ifile::ENTRIES as u64).and_then(|i| u32::try_from(i).ok()) else { break };
            let Ok(block) = disk.read(at) else {
                self.map_torn = true;
                continue;
            };
            for entry in 0..ifile::ENTRIES {
                let place = ifile::get(&block, entry);
                if let Some(addr) = place.addr {
                    self.places.insert(Ino(first + entry as u32), (addr, place.generation));
                }
            }
            self.map.insert(n, (at, block));
        }
        if file.attributes.size.div_ceil(BLOCK as u64) < file.extents.iter().map(|e| e.blocks()).sum() {
            self.map_torn = true;
        }
    }

    fn read_lists(&mut self, disk: &Disk<'_>, searched: &mut Searched<'_>, log: &mut Log) {
        let list = self.hidden(disk, FREE_LIST, self.sb.free_list, searched).map(|file| contents(disk, &file));
        match list.and_then(|bytes| lists::read_free(&bytes).ok()) {
            Some(runs) => {
                let mut free = Claimed::default();
                let inside = runs.iter().flat_map(|r| r.addrs()).take_while(|at| at.0 < disk.blocks);
                inside.for_each(|at| _ = free.claim(at.0));
                self.free = Some(free);
            }
            None => log.volume(What::FreeList),
        }
        if let Some(at) = self.sb.history {
            // The undo history is not part of the repaired volume. Its blocks are neither lost nor owned.
            log.volume(What::Undone);
            let list = self.hidden(disk, HISTORY, at, searched).map(|file| contents(disk, &file));
            match list.and_then(|bytes| history::read(&bytes).ok()) {
                Some(past) => {
                    let kept = past.iter().flat_map(|p| &p.runs).flat_map(|r| r.addrs());
                    kept.take_while(|at| at.0 < disk.blocks).for_each(|at| _ = self.needed.claim(at.0));
                }
                None => self.kept_unknown = true,
            }
        }
        if let Some(at) = self.sb.orphans {
            let list = self.hidden(disk, ORPHANS, at, searched).map(|file| contents(disk, &file));
            match list.and_then(|bytes| lists::read_orphans(&bytes).ok()) {
                Some(all) => self.orphans.extend(all),
                None => log.volume(What::Orphans),
            }
        }
    }

    /// True if a block was in use at the checkpoint, as far as known.
    pub fn was_used(&self, at: Addr) -> bool {
        at.0 >= FIRST && self.free.as_ref().is_some_and(|free| !free.has(at.0))
    }
}
