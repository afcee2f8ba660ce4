//! Where would the logs place blocks without cleaning, and how many requests would they need?
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
use format::BlockAddr;
use format::sit::LogType;
use format::summary::Summary;
use format::superblock::SuperBlock;

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
        let less =
            |without: u64, with: u64, began: u64| without.saturating_add(began).cast_signed() - with.cast_signed();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::Rng;
    use vfs::{FileSystem, Ino};

    use super::*;
    use crate::gc::settings::{Settings, Urgency};
    use crate::rig::*;
    use crate::{MountOptions, Volume};

    /// Two volumes with the same files.
    struct Twins {
        both: [Arc<Volume>; 2],
        files: Vec<(u64, [Ino; 2])>,
        made: u64,
    }

    impl Twins {
        fn new(mib: u64) -> Self {
            let options = MountOptions { inline: false, ..MountOptions::default() };
            let volume = || mounted(mib, options.clone()).1;
            Twins { both: [volume(), volume()], files: Vec::new(), made: 0 }
        }
        fn create(&mut self, count: usize) {
            let name = format!("f{}", self.made);
            let inos = self.both.each_ref().map(|vol| {
                let ino = file(vol, &name);
                write(vol, ino, 0, &blocks(count));
                ino
            });
            self.files.push((self.made, inos));
            self.made += 1;
        }
        fn delete(&mut self, at: usize) {
            let (n, inos) = self.files.swap_remove(at);
            for (vol, ino) in self.both.iter().zip(inos) {
                vol.unlink(vol.root(), format!("f{n}").as_bytes()).unwrap();
                vol.forget(ino, 1);
            }
        }
        fn overwrite(&self, at: usize, block: u64) {
            for (vol, ino) in self.both.iter().zip(self.files[at].1) {
                write(vol, ino, block * 4096, &blocks(1));
                vol.fsync(ino, true).unwrap();
            }
        }
        fn sync(&self) {
            self.both.iter().for_each(|vol| vol.sync().unwrap());
        }
        fn placing(&self) -> [Placing; 2] {
            self.both.each_ref().map(|vol| vol.logs.seg.lock().tally.placing())
        }
        /// Percent of the user's blocks that are free.
        fn free(&self) -> u64 {
            let s = self.both[0].statfs().unwrap();
            100 * s.blocks_free / s.blocks
        }
        fn fills_holes(&self) -> bool {
            self.both[0].logs.seg.lock().need_threading()
        }
    }

    /// Random work on two volumes, one of which is cleaned; returns the saving that the shadow shows, and the real one.
    fn lockstep(seed: u64) -> (Saved, Saved) {
        let mut rng = Rng::new(seed);
        let mut twins = Twins::new(160);
        let step = |twins: &mut Twins, rng: &mut Rng| {
            let files = twins.files.len() as u64;
            match rng.below(10) {
                _ if files > 20 && twins.free() < 8 => twins.delete(rng.below(files) as usize),
                8 if files > 20 => twins.delete(rng.below(files) as usize),
                5 if files > 0 => twins.overwrite(rng.below(files) as usize, 0),
                _ => twins.create(1 + rng.below(24) as usize),
            }
            if rng.chance(1, 30) {
                twins.sync();
            }
        };
        while !twins.fills_holes() {
            step(&mut twins, &mut rng);
        }
        twins.sync();
        let before = twins.placing();
        let cleaned = Settings { urgency: Urgency::High, ..Settings::default() };
        for _ in 0..12 {
            twins.both[1].logs.seg.lock().begin_shadow();
            for _ in 0..rng.below(3) {
                twins.both[1].clean_in_background(&cleaned).unwrap();
            }
            twins.sync();
            for _ in 0..60 {
                step(&mut twins, &mut rng);
            }
            twins.sync();
        }
        let after = twins.placing();
        let less = |of: fn(&Placing) -> u64| {
            (of(&after[0]) - of(&before[0])).cast_signed() - (of(&after[1]) - of(&before[1])).cast_signed()
        };
        let saved = twins.both[1].logs.seg.lock().saved();
        (saved, Saved { requests: less(|p| p.requests), opened: less(|p| p.opened) })
    }

    #[test]
    fn a_shadow_shows_what_a_twin_without_cleaning_needs() {
        for seed in 0..4 {
            let (shown, real) = lockstep(seed);
            assert!(real.requests != 0 && shown == real, "seed {seed}: {shown:?}, not {real:?}");
        }
    }
}
