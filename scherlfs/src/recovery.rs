//! Replay of the log behind the checkpoint.
//!
//! Transactions follow one another along the path, numbered consecutively, all of the mount that wrote the
//! superblock. A transaction is valid if all its pieces exist and their checksums match; the log ends at the first
//! invalid one. An inode found there replaces the one in the map, and blocks that only the old one had are dead.

use std::sync::Arc;

use device::BlockDevice;
use scherlfs_format::chain::{self, Header, Kind};
use scherlfs_format::history::Change;
use scherlfs_format::inode as raw;
use scherlfs_format::inode::Form;
use scherlfs_format::superblock::Placement;
use scherlfs_format::{Addr, Block, Checksum, FIRST_INO, Ino, ROOT, Run, Seq};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::inode::{Inode, own_blocks};
use crate::load;
use crate::path::Path;
use crate::space::Blocks;
use crate::volume::State;

/// Most blocks of contents before an inode. At the end of the log this number is read in vain.
const AHEAD_MOST: u32 = crate::series::BLOCKS;

/// A complete transaction.
struct Found {
    inodes: Vec<(Ino, Addr)>,
    gone: Vec<Ino>,
    /// All its blocks.
    blocks: Vec<Addr>,
    /// Its path blocks and lists, which are free after the next checkpoint.
    notes: Vec<Addr>,
}

struct Reader<'a> {
    dev: Arc<dyn BlockDevice>,
    path: &'a mut Path,
    last: u64,
    header: Header,
}

impl Reader<'_> {
    fn block(&self, at: Addr) -> Result<Option<Box<Block>>> {
        if at.0 >= self.last {
            return Ok(None);
        }
        load::block(&*self.dev, at, Cause::Recovery, Ino(0)).map(Some)
    }

    /// The next block along the path.
    fn next(&mut self, found: &mut Found) -> Result<Option<(Addr, Box<Block>)>> {
        if found.blocks.len() as u64 > self.last {
            // The path is a circle.
            return Ok(None);
        }
        let (dev, last, want) = (self.dev.clone(), self.last, self.header);
        let mut failed = None;
        let read = |at: Addr| {
            if at.0 >= last {
                return None;
            }
            let block = match load::block(&*dev, at, Cause::Recovery, Ino(0)) {
                Ok(block) => block,
                Err(e) => {
                    failed = Some(e);
                    return None;
                }
            };
            let header = Header::expect(&block, Kind::Path).ok()?;
            let own = (header.epoch, header.seq) == (want.epoch, want.seq);
            if own { chain::read_runs(&block, Kind::Path).ok() } else { None }
        };
        let next = self.path.follow(read);
        if let Some(e) = failed {
            return Err(e);
        }
        let Some((at, paths)) = next else { return Ok(None) };
        found.blocks.extend(&paths);
        found.notes.extend(&paths);
        found.blocks.push(at);
        Ok(self.block(at)?.map(|block| (at, block)))
    }

    /// The next transaction, or `None` at the end of the log. Of a continued transaction the newest complete
    /// attempt.
    fn transaction(&mut self, placement: Placement) -> Result<Option<Found>> {
        let start = self.path.clone();
        let mut newest: Option<(u8, Found, Path)> = None;
        let forms: &[Form] = match placement {
            Placement::Before => &[Form::Behind],
            Placement::After => &[Form::Behind, Form::Ahead],
            Placement::InPlace | Placement::Delayed => &[Form::Behind, Form::First, Form::Second],
        };
        for form in forms {
            *self.path = start.clone();
            if let Some((attempt, found)) = self.in_form(*form)?
                && newest.as_ref().is_none_or(|(newest, ..)| attempt > *newest)
            {
                newest = Some((attempt, found, self.path.clone()));
            }
        }
        Ok(newest.map(|(_, found, path)| {
            *self.path = path;
            found
        }))
    }

    /// The next transaction and its attempt, if its first piece has this form.
    fn in_form(&mut self, form: Form) -> Result<Option<(u8, Found)>> {
        let mut found = Found { inodes: Vec::new(), gone: Vec::new(), blocks: Vec::new(), notes: Vec::new() };
        let (mut piece, mut pieces, mut attempt) = (0, 1, 0);
        while piece < pieces {
            let form = if piece == 0 { form } else { Form::Behind };
            let Some((at, block, before)) = self.head(form, &mut found)? else { return Ok(None) };
            let Ok(header) = Header::read(&block) else { return Ok(None) };
            let own = (header.epoch, header.seq, header.piece) == (self.header.epoch, self.header.seq, piece);
            let same = header.pieces == pieces && header.attempt == attempt;
            if !own || (piece > 0 && !same) {
                return Ok(None);
            }
            (pieces, attempt) = (header.pieces, header.attempt);
            match header.kind {
                Kind::Inode => {
                    let Ok(inode) = raw::Inode::read(&block) else { return Ok(None) };
                    if inode.form != form || (inode.header.ino != ROOT && inode.header.ino < FIRST_INO) {
                        // A checkpoint whose superblock was not written never took effect.
                        return Ok(None);
                    }
                    let mut sum = before;
                    if form != Form::Ahead {
                        for _ in 0..inode.follow {
                            match self.next(&mut found)? {
                                Some((_, block)) => sum.add(&block[..]),
                                None => return Ok(None),
                            }
                        }
                    }
                    if sum.value() != inode.follow_crc {
                        return Ok(None);
                    }
                    found.inodes.push((inode.header.ino, at));
                }
                Kind::Gone if form == Form::Behind => {
                    let Ok(gone) = chain::read_gone(&block) else { return Ok(None) };
                    found.gone.extend(gone);
                    found.notes.push(at);
                }
                _ => return Ok(None),
            }
            piece += 1;
        }
        Ok(Some((attempt, found)))
    }

    /// The first block of a piece in this form, and the checksum of the blocks before it that belong to it.
    fn head(&mut self, form: Form, found: &mut Found) -> Result<Option<(Addr, Box<Block>, Checksum)>> {
        let mut before = Checksum::default();
        match form {
            Form::Behind => {}
            Form::First => {
                let first = self.next(found)?;
                return Ok(match (first, self.next(found)?) {
                    (Some((at, block)), Some(_)) => Some((at, block, before)),
                    _ => None,
                });
            }
            Form::Second => _ = self.next(found)?,
            Form::Ahead => {
                for count in 0..=u32::try_from(self.last).unwrap_or(u32::MAX) {
                    let Some((at, block)) = self.next(found)? else { return Ok(None) };
                    // Contents that look like an inode are never written in this form.
                    let ends = |i: &raw::Inode| {
                        (i.header.epoch, i.header.seq, i.form) == (self.header.epoch, self.header.seq, form)
                            && i.follow == count
                    };
                    if block.starts_with(b"SINO") && raw::Inode::read(&block).is_ok_and(|i| ends(&i)) {
                        return Ok(Some((at, block, before)));
                    }
                    if count == AHEAD_MOST {
                        return Ok(None);
                    }
                    before.add(&block[..]);
                }
                return Ok(None);
            }
        }
        Ok(self.next(found)?.map(|(at, block)| (at, block, before)))
    }
}

/// The blocks of an inode: its own, its continuations, its contents.
fn blocks_of(inode: &Inode) -> Result<Blocks> {
    let mut all = Blocks::default();
    for run in own_blocks(inode).chain(inode.extents.runs()) {
        if !all.add_run(run) {
            return Err(Error::corrupt(format_args!(
                "inode {}: two of its parts lie at block {}",
                inode.ino, run.start
            )));
        }
    }
    Ok(all)
}

/// Blocks of `all` that are not in `but`.
fn without(all: &Blocks, but: &Blocks) -> Vec<Run> {
    let mut left = all.clone();
    for run in but.iter() {
        for at in run.addrs().filter(|a| all.contains(*a)) {
            left.take(at.0, 1);
        }
    }
    left.iter().collect()
}

impl State {
    /// Continues from the checkpoint while the log is valid; returns the number of transactions.
    pub(crate) fn follow_log(&mut self) -> Result<u64> {
        let (mut count, placement) = (0, self.sb.placement);
        loop {
            let header = Header {
                kind: Kind::Inode,
                epoch: self.sb.epoch,
                attempt: 0,
                seq: Seq(self.seq.0 + 1),
                ino: Ino(0),
                piece: 0,
                pieces: 1,
            };
            let mut path = self.path.clone();
            let mut reader = Reader { dev: self.dev.clone(), path: &mut path, last: self.sb.blocks, header };
            let Some(found) = reader.transaction(placement)? else { break };
            self.replay(header.seq, found)?;
            self.path = path;
            self.seq = header.seq;
            count += 1;
        }
        Ok(count)
    }

    fn replay(&mut self, seq: Seq, found: Found) -> Result<()> {
        let dev = self.dev.clone();
        let mut old = Blocks::default();
        let mut new = Blocks::default();
        let twice = |ino: Ino| Error::corrupt(format_args!("inode {ino}: its blocks are another's, too"));
        let (mut written, mut changes) = (Vec::new(), Vec::new());
        for &(ino, at) in &found.inodes {
            let inode = load::inode_at(&*dev, ino, at, Cause::Recovery)?;
            let before = self.inode_before(ino)?;
            self.imap.used += u64::from(before.is_none());
            changes.push(Change { ino, was: before.as_ref().and_then(|b| b.addr), is: Some(at) });
            self.promised += inode.extents.reserved();
            if let Some(before) = before {
                self.promised = self.promised.saturating_sub(before.extents.reserved());
                if !old.add_all(&blocks_of(&before)?) {
                    return Err(twice(ino));
                }
            }
            if !new.add_all(&blocks_of(&inode)?) {
                return Err(twice(ino));
            }
            written.push(inode);
        }
        for &ino in &found.gone {
            if let Some(before) = self.inode_before(ino)? {
                changes.push(Change { ino, was: before.addr, is: None });
                self.imap.used = self.imap.used.saturating_sub(1);
                self.promised = self.promised.saturating_sub(before.extents.reserved());
                if !old.add_all(&blocks_of(&before)?) {
                    return Err(twice(ino));
                }
            }
        }
        for at in &found.blocks {
            if !self.free.take(at.0, 1) {
                return Err(Error::corrupt(format_args!("block {at} of the log was not free")));
            }
        }
        // An inode must not refer to blocks that the log reaches later.
        let ahead = new.iter().find_map(|run| self.free.within(run.start.0, run.end().0).next());
        if let Some((at, _)) = ahead {
            return Err(Error::corrupt(format_args!("block {at} is a file's and free")));
        }
        self.logged += found.blocks.len() as u64;
        for run in without(&old, &new) {
            self.die(run)?;
        }
        // Written blocks that no inode has: lists, path blocks, and unneeded continuations.
        let mut wrote = Blocks::default();
        found.blocks.iter().for_each(|at| _ = wrote.add(at.0, 1));
        for run in without(&wrote, &new) {
            self.die_for_good(run)?;
        }
        // An undo uses kept blocks again.
        self.history.give_back(&new);
        let secs = written.iter().map(|i: &Inode| i.a.times[crate::inode::CHANGED].secs).max();
        self.remember(seq, secs.unwrap_or(i64::MIN), changes)?;
        for inode in written {
            let at = inode.addr.unwrap_or_default();
            self.imap.written(&*dev, inode.ino, at, inode.a.generation)?;
            if inode.a.nlink == 0 {
                self.orphans.insert(inode.ino);
            } else {
                self.orphans.remove(&inode.ino);
            }
        }
        for ino in found.gone {
            self.orphans.remove(&ino);
            self.imap.gone(&*dev, ino)?;
        }
        Ok(())
    }

    /// The inode in the map so far.
    fn inode_before(&mut self, ino: Ino) -> Result<Option<Inode>> {
        let dev = self.dev.clone();
        match self.imap.get(&*dev, ino)?.addr {
            Some(at) => load::inode_at(&*dev, ino, at, Cause::Recovery).map(Some),
            None => Ok(None),
        }
    }
}
