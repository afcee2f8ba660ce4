//! Where is the inode of a file placed that is written call by call? (Scherl 2004, section 5.4 and Fig. 5.1)
//!
//! A file's inode before each piece of its contents cuts the contents into small extents. Three of the four
//! placements avoid that. While the last transaction belongs to one file and has nothing written behind it, they
//! continue it ([`crate::series`]): they add contents and rewrite the inode with the checksum of all of them. A
//! reader of the log takes the newest complete attempt. An inode at the end is overwritten only before it was
//! requested to be durable.
//!
//! A series that cannot be ended properly leaves a log that cannot be followed past it ([`State::torn`]): then a
//! checkpoint provides durability. Left out: transactions of several inodes ([`crate::commit`]), and how a reader
//! finds all this ([`crate::recovery`]).

use scherlfs_format::chain::Header;
use scherlfs_format::inode::Form;
use scherlfs_format::superblock::Placement;
use scherlfs_format::{Addr, Checksum, Ino, Run, Seq};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::inode::{Inode, own_blocks};
use crate::path::Slot;
use crate::plan::{Laid, Plan};
use crate::series::{Attempt, BLOCKS, Place, Series};
use crate::space::Blocks;
use crate::volume::{SPARE, State};

/// The first piece of a transaction, which begins or continues a series.
pub(crate) struct Piece {
    pub laid: Laid,
    /// The series after the piece is written.
    series: Series,
    /// True if no inode of it was written before.
    first: bool,
    /// The block of the previous inode, which contents take.
    given_back: Option<Addr>,
}

impl Piece {
    /// Address of the inode before the series, unless this is its first attempt.
    pub fn address_before(&self) -> Option<Option<Addr>> {
        (!self.first).then_some(self.series.was)
    }
}

impl State {
    /// Begins a series for this inode, if possible.
    fn begin(&self, inode: &Inode) -> Option<Series> {
        let place = match self.placement {
            Placement::Before => return None,
            Placement::After => Place::End { at: Addr::default(), path: None },
            Placement::InPlace | Placement::Delayed => {
                Place::Slots { slots: [Addr::default(); 2], last: None, durable: None, flushing: false }
            }
        };
        let apt = inode.is_file() && !inode.pages.is_empty() && self.care.cause == Cause::Log;
        (apt && self.unclaimed() > SPARE).then(|| Series {
            ino: inode.ino,
            seq: Seq(self.seq.0 + 1),
            attempt: None,
            was: inode.addr,
            sum: Checksum::default(),
            blocks: 0,
            contents: Blocks::default(),
            place,
            open: false,
        })
    }

    /// The series that a transaction of these inodes continues or begins. Ends any other series.
    pub(crate) fn series_for(&mut self, order: &[Ino]) -> Result<Option<Series>> {
        let gone = !self.gone.is_empty();
        match &self.series {
            Some(series) if order.contains(&series.ino) && series.goes_on(self.seq, order, gone) => {
                return Ok(Some(series.clone()));
            }
            _ => self.end_series()?,
        }
        match order {
            [ino] if !gone => Ok(self.inodes.get(ino).and_then(|inode| self.begin(inode))),
            _ => Ok(None),
        }
    }

    /// Ends the series, if there is one.
    pub(crate) fn end_series(&mut self) -> Result<()> {
        let Some(ino) = self.series.as_ref().map(|s| s.ino) else { return Ok(()) };
        let addr = self.inodes.get(&ino).and_then(|i| i.addr);
        self.end_series_of(ino, addr)
    }

    /// Marks a series whose inode could not be written, possibly over the one that proves the earlier contents.
    pub(crate) fn spoil_series(&mut self) -> Result<()> {
        self.torn |= self.series.is_some();
        self.end_series()
    }

    /// Ends the series of an inode at `addr`. Its unused places become free.
    pub(crate) fn end_series_of(&mut self, ino: Ino, addr: Option<Addr>) -> Result<()> {
        let Some(series) = self.series.take_if(|s| s.ino == ino) else { return Ok(()) };
        self.torn |= series.open;
        series.idle(addr).into_iter().try_for_each(|run| self.die_for_good(run))
    }

    /// Lays out the first piece of a transaction. `None`: it does not fit this form, and nothing was laid out.
    pub(crate) fn piece(
        &self,
        plan: &mut Plan,
        series: &Series,
        inode: &Inode,
        pages: &[u64],
    ) -> Result<Option<Piece>> {
        let mut series = series.clone();
        let first = series.attempt.is_none();
        let attempt = series.attempt.map_or(Some(self.attempt), |a| a.checked_add(1));
        let Some(attempt) = attempt else { return Ok(None) };
        (plan.header.seq, plan.header.attempt) = (series.seq, attempt);
        let mut given_back = None;
        let laid = match &mut series.place {
            Place::End { at, path } => {
                // Contents that a reader could mistake for the inode behind them are written in the other form.
                let ours = |page: &u64| {
                    inode.pages.get(page).is_some_and(|b| Header::read(b).is_ok_and(|h| h.epoch == self.epoch))
                };
                if pages.iter().any(ours) || pages.len() > (BLOCKS - series.blocks.min(BLOCKS)) as usize {
                    return Ok(None);
                }
                if !first {
                    let Some(path) = path.take() else { return Ok(None) };
                    (plan.path, given_back) = (path, Some(*at));
                }
                let Some((laid, before)) = plan.lay_ahead(inode, pages)? else { return Ok(None) };
                (*at, *path) = (laid.at(), before);
                laid
            }
            Place::Slots { slots, last, durable, .. } => {
                if first {
                    *slots = [plan.reserve()?, plan.reserve()?];
                    plan.fill(slots[1], inode.ino);
                }
                let next = Series::next_slot(*last, *durable);
                *last = Some(next);
                let Some(laid) = plan.lay_contents(inode, pages, slots[next])? else { return Ok(None) };
                laid
            }
        };
        series.attempt = Some(attempt);
        let form = match &series.place {
            Place::End { .. } => Form::Ahead,
            Place::Slots { last: Some(1), .. } => Form::Second,
            Place::Slots { .. } => Form::First,
        };
        note(&mut series, plan, &laid, inode)?;
        series.open = false;
        let previous = if first { inode.addr } else { series.was };
        plan.encode_apart(&laid, inode, previous, (form, series.blocks, series.sum.value()))?;
        Ok(Some(Piece { laid, series, first, given_back }))
    }

    /// Log blocks that a piece reuses.
    pub(crate) fn give_back(&mut self, piece: &Piece) -> Result<()> {
        let Some(at) = piece.given_back else { return Ok(()) };
        self.logged = self.logged.saturating_sub(1);
        if self.free.add(at.0, 1) { Ok(()) } else { Err(Error::corrupt(format_args!("block {at} of the log is free"))) }
    }

    /// Updates after a piece was written. `alone`: it was the whole transaction, which may be continued.
    pub(crate) fn apply_piece(&mut self, inode: &mut Inode, piece: Piece, slots: &[Slot], alone: bool) -> Result<()> {
        self.series = None;
        let Piece { laid, series, first, .. } = piece;
        let old: Vec<Run> = if first { own_blocks(inode).collect() } else { Vec::new() };
        (inode.addr, inode.indexes) = (Some(laid.at()), Vec::new());
        self.apply_contents(inode, laid, slots, &series)?;
        old.into_iter().try_for_each(|run| self.die(run))?;
        if alone {
            self.series = Some(series);
            return Ok(());
        }
        series.idle(inode.addr).into_iter().try_for_each(|run| self.die_for_good(run))
    }

    /// Updates after contents of a series were written: replaced contents of the same series are not needed for
    /// undo.
    fn apply_contents(&mut self, inode: &mut Inode, laid: Laid, slots: &[Slot], series: &Series) -> Result<()> {
        let replaced = laid.replaced(slots);
        inode.a.blocks = laid.extents().blocks();
        self.promised = self.promised.saturating_sub(laid.promised());
        inode.extents = laid.into_extents();
        for run in replaced {
            let own: Vec<(u64, u64)> = series.contents.within(run.start.0, run.end().0).collect();
            let mut rest = Blocks::default();
            rest.add_run(run);
            for (start, blocks) in own {
                rest.take(start, blocks);
                self.die_for_good(Run { start: Addr(start), blocks: blocks as u32 })?;
            }
            rest.iter().try_for_each(|run| self.die(run))?;
        }
        Ok(())
    }

    /// Writes the result of one call: with delayed inodes only a file's contents, otherwise a transaction.
    pub(crate) fn write_call(&mut self) -> Result<()> {
        if self.placement == Placement::Delayed && self.gone.is_empty() && self.waiting.len() == 1 {
            let ino = self.waiting.values().next().copied().unwrap_or_default();
            if self.extend(ino)? {
                return Ok(());
            }
        }
        self.commit().map(drop)
    }

    /// Writes the waiting contents of a file in a series, and leaves the inode for later; false if that is
    /// impossible. If files are written alternately, contents and inode of each call in one request cost less than
    /// returning for the inode.
    fn extend(&mut self, ino: Ino) -> Result<bool> {
        let Some(inode) = self.inodes.get(&ino).filter(|i| i.is_file() && !i.pages.is_empty()) else {
            return Ok(false);
        };
        let on = self.series.as_ref().filter(|s| s.ino == ino && s.goes_on(self.seq, &[ino], false));
        let Some(mut series) = on.cloned() else { return Ok(false) };
        if series.blocks + inode.pages.len() as u32 > BLOCKS || self.unclaimed() <= SPARE {
            return Ok(false);
        }
        let pages: Vec<u64> = inode.pages.keys().copied().collect();
        let mut plan = Plan::new(self);
        plan.header.seq = series.seq;
        let Some(laid) = plan.lay_contents(inode, &pages, Addr::default())? else { return Ok(false) };
        note(&mut series, &plan, &laid, inode)?;
        series.open = true;
        plan.encode_contents(&laid, inode)?;
        let written = plan.finish();
        written.write(self, Cause::Log)?;
        self.take_slots(&written)?;
        self.path = written.path.clone();
        let Some(mut inode) = self.inodes.remove(&ino) else { return Err(Error::NotFound) };
        let applied = self.apply_contents(&mut inode, laid, &written.slots, &series);
        self.pages_written(&mut inode);
        self.keep(&mut inode);
        self.inodes.insert(ino, inode);
        self.series = Some(series);
        applied?;
        written
            .paths()
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|start| self.die_for_good(Run { start, blocks: 1 }))?;
        Ok(true)
    }

    /// To be called when a flush begins: until it is done, written blocks must not be overwritten.
    pub(crate) fn series_flushes(&mut self) -> Result<Option<Attempt>> {
        match self.series.as_mut().map(|s| (s.seq, s.attempt, &mut s.place)) {
            Some((seq, attempt, Place::Slots { flushing, .. })) => {
                *flushing = true;
                Ok(Some((seq, attempt)))
            }
            Some(_) => self.end_series().map(|()| None),
            None => Ok(None),
        }
    }

    /// To be called when that flush is done.
    pub(crate) fn series_flushed(&mut self, which: Attempt) {
        if let Some(series) = self.series.as_mut().filter(|s| (s.seq, s.attempt) == which)
            && let Place::Slots { last, durable, flushing, .. } = &mut series.place
        {
            (*durable, *flushing) = (*last, false);
        }
    }
}

/// Adds laid-out contents.
fn note(series: &mut Series, plan: &Plan, laid: &Laid, inode: &Inode) -> Result<()> {
    for (addr, block) in plan.contents(laid, inode)? {
        series.sum.add(&block[..]);
        series.blocks += 1;
        series.contents.add(addr.0, 1);
    }
    Ok(())
}
