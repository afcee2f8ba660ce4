//! Where would the logs place blocks if nobody had cleaned, and how many requests would they need?
//!
//! A *shadow* is a second set of logs and segments without contents. It begins as a copy when a section is first
//! cleaned, and follows every change: what users write is placed by the shadow's own logs and rules, and what cleaning
//! moves stays where it is. The difference between its requests and the real ones is what cleaning has saved until
//! now, or cost if it is negative.
//!
//! The shadow takes 4 bytes for each block written since it began, besides its valid maps. It ends, and with it further
//! credit, when it has no space, or more than [`MOST`] segments were written; the next cleaning begins another.
//!
//! Left out on purpose: cleaning in the foreground, which the shadow would need on a full volume and does not do, so
//! that too little counts as saved; requests of readers; and what follows for cleaning (`gc::ledger`).

use std::sync::Arc;

use device::Blank;
use format::sit::LogType;
use format::summary::Summary;
use format::superblock::SuperBlock;
use format::BlockAddr;

use super::Segments;
use super::tally::Placing;
use crate::error::Result;

/// Most segments with blocks that are elsewhere in the shadow: 32 MiB of memory.
const MOST: usize = 1 << 14;

/// What cleaning saved the logs; negative: what it cost them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Saved {
    /// Requests.
    pub requests: i64,
    /// Segments opened for threaded logging.
    pub opened: i64,
}

impl Saved {
    fn between(without: Placing, with: Placing, began: Placing) -> Saved {
        let less = |without: u64, with: u64, began: u64| without.saturating_add(began).cast_signed() - with.cast_signed();
        Saved {
            requests: less(without.requests, with.requests, began.requests),
            opened: less(without.opened, with.opened, began.opened),
        }
    }
    fn plus(self, more: Saved) -> Saved {
        Saved { requests: self.requests + more.requests, opened: self.opened + more.opened }
    }
}

/// The segments as they would be.
struct Shadow {
    segments: Segments,
    places: Places,
    /// What the real logs had placed when the shadow began.
    began: Placing,
}

/// Where blocks are in the shadow; by default where they really are.
#[derive(Default)]
struct Places {
    by_segment: Vec<Option<Box<[BlockAddr; 512]>>>,
    known: usize,
}

impl Places {
    fn of(&self, sb: &SuperBlock, addr: BlockAddr) -> BlockAddr {
        let Some((seg, off)) = sb.locate(addr) else { return addr };
        let known = self.by_segment.get(seg.0 as usize).and_then(Option::as_ref);
        known.map_or(addr, |places| places[usize::from(off)])
    }
    fn set(&mut self, sb: &SuperBlock, addr: BlockAddr, there: BlockAddr) {
        let Some((seg, off)) = sb.locate(addr) else { return };
        let Some(known) = self.by_segment.get_mut(seg.0 as usize) else { return };
        let start = sb.seg_start(seg);
        let places = known.get_or_insert_with(|| {
            self.known += 1;
            Box::new(std::array::from_fn(|off| start.plus(off as u32)))
        });
        places[usize::from(off)] = there;
    }
}

impl Shadow {
    fn of(real: &Segments) -> Shadow {
        let table = real.table.apart();
        let places = Places { by_segment: vec![None; real.sb.main_segs as usize], known: 0 };
        let mut segments = Segments::new(
            Arc::new(Blank::new(real.dev.blocks())),
            real.sb.clone(),
            table,
            real.logs.clone(),
            real.reserved_segs,
            real.pressure.clone(),
            real.chooser.clone(),
        );
        segments.only_appends = real.only_appends;
        Shadow { segments, places, began: real.tally.placing() }
    }

    fn place(&mut self, log: LogType, (old, new): (BlockAddr, BlockAddr), age: u64) -> Result<()> {
        let old = self.places.of(&self.segments.sb, old);
        let there = self.segments.allocate(log, Summary::default(), old, age)?;
        self.places.set(&self.segments.sb, new, there.addr);
        Ok(())
    }

    fn saved(&self, with: Placing) -> Saved {
        Saved::between(self.segments.tally.placing(), with, self.began)
    }
}

/// The shadow, if there is one, and what earlier ones have shown.
#[derive(Default)]
pub(crate) struct Shadowing {
    now: Option<Box<Shadow>>,
    before: Saved,
}

impl Segments {
    /// Begins a shadow unless there is one. Call it before cleaning moves a block.
    pub(crate) fn begin_shadow(&mut self) {
        if self.shadow.now.is_none() {
            self.shadow.now = Some(Box::new(Shadow::of(self)));
        }
    }

    /// Ends the shadow, and forgets what was saved.
    pub(crate) fn forget_shadow(&mut self) {
        self.shadow = Shadowing::default();
    }

    /// What cleaning has saved the logs since the first shadow began.
    pub(crate) fn saved(&self) -> Saved {
        let now = self.shadow.now.as_ref().map(|shadow| shadow.saved(self.tally.placing()));
        self.shadow.before.plus(now.unwrap_or_default())
    }

    /// Repeats a change in the shadow, which ends if it cannot follow.
    fn follow(&mut self, change: impl FnOnce(&mut Shadow) -> Result<()>) {
        let Some(mut shadow) = self.shadow.now.take() else { return };
        match change(&mut shadow) {
            Ok(()) if shadow.places.known <= MOST => self.shadow.now = Some(shadow),
            _ => {
                let saved = shadow.saved(self.tally.placing());
                self.shadow.before = self.shadow.before.plus(saved);
            }
        }
    }

    pub(super) fn follow_request(&mut self) {
        self.follow(|shadow| {
            shadow.segments.begin_request();
            Ok(())
        });
    }
    pub(super) fn follow_place(&mut self, log: LogType, places: (BlockAddr, BlockAddr), age: u64) {
        self.follow(|shadow| shadow.place(log, places, age));
    }
    pub(super) fn follow_relocate(&mut self, from: BlockAddr, to: BlockAddr) {
        self.follow(|shadow| {
            let there = shadow.places.of(&shadow.segments.sb, from);
            shadow.places.set(&shadow.segments.sb, to, there);
            Ok(())
        });
    }
    pub(super) fn follow_invalidate(&mut self, addr: BlockAddr, age: Option<u64>) {
        self.follow(|shadow| {
            let (seg, off) = shadow.segments.place(shadow.places.of(&shadow.segments.sb, addr))?;
            shadow.segments.table.clear_valid(seg, off, age)
        });
    }
    /// A checkpoint is durable.
    pub(crate) fn follow_checkpoint(&mut self) {
        self.follow(|shadow| {
            shadow.segments.summaries = Default::default();
            shadow.segments.seat_full_logs()?;
            shadow.segments.table.commit();
            Ok(())
        });
    }
}
