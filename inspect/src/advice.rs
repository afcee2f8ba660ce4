//! Which actions would help, given a verdict and the free space?
//!
//! The rules use only numbers, and each action comes with its cost. Copying is advised if it makes reads cheaper,
//! together with the number of reads after which it has paid off: the tool cannot know how often a file is read.
//! Cleaning is advised in the range where Linux's F2FS cleans in the background without waiting long: less than two
//! fifths of the unused space lie in free segments, and more than two fifths in used segments. Databases are mentioned
//! if they cause half of the excess, because they grow in small steps and fragment again.
//!
//! Left out: carrying out the advice, and how the volume will be used.

use std::fmt;

use format::BLOCKS_PER_SEG;

use crate::File;
use crate::class::Class;
use crate::price::{Cost, Prices, Work};
use crate::space::{LEVELS, Look, Space};
use crate::tables::Sit;
use crate::verdict::{MOST, Verdict};

/// Fifths of the unused space: the least share in free segments, and the largest share in used ones.
const FIFTHS: u64 = 2;

/// One action, with its cost and effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Advice {
    /// Copy the most fragmented files into their fewest extents.
    Defragment {
        /// Number of files.
        files: usize,
        /// Their share of the excess extents, in percent.
        share: u64,
        /// What copying costs.
        cost: Cost,
        /// What each whole read of all these files saves.
        saved: Cost,
        /// Number of such reads after which copying has paid off.
        reads: u64,
    },
    /// Copying saves no energy.
    DoNotDefragment,
    /// The files that copying would help need more space than the largest pieces of free space have together.
    NoRoom {
        /// Blocks to copy.
        blocks: u64,
        /// Blocks in pieces of more than 512 KiB.
        free: u64,
    },
    /// Clean segments.
    Clean {
        /// Segments to empty: those with the fewest valid blocks.
        segments: u64,
        /// Blocks to move.
        blocks: u64,
        /// Net gain of free segments.
        freed: u64,
        /// What moving costs.
        cost: Cost,
    },
    /// Databases cause at least half of the excess, because of how they grow.
    Databases {
        /// Their share of the excess extents, in percent.
        share: u64,
        /// True if reserved blocks are contiguous, so that reserving helps.
        reserving_places: bool,
    },
    /// Nothing would help.
    Nothing,
}

impl Advice {
    /// Identifier for JSON.
    pub fn what(&self) -> &'static str {
        match self {
            Advice::Defragment { .. } => "defragment",
            Advice::DoNotDefragment => "do_not_defragment",
            Advice::NoRoom { .. } => "no_room",
            Advice::Clean { .. } => "clean",
            Advice::Databases { .. } => "databases",
            Advice::Nothing => "nothing",
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |n: u64| if n == 1 { "" } else { "s" };
        match self {
            Advice::Defragment { files, share, cost, saved, reads } => write!(
                f,
                "Defragmenting {files} file{} ({share} % of the excess extents) costs {} and saves {} a read: worth it \
                 if each is fully read {reads} time{} or more",
                s(*files as u64),
                cost.energy,
                saved.energy,
                s(*reads)
            ),
            Advice::DoNotDefragment => {
                write!(f, "Do not defragment: reading the most fragmented files would not cost less")
            }
            Advice::NoRoom { blocks, free } => write!(
                f,
                "Clean before defragmenting: {blocks} blocks must be copied, but only {free} are free in fragments \
                 above 512 KiB"
            ),
            Advice::Clean { segments, blocks, freed, cost } => write!(
                f,
                "Clean {segments} segment{} before heavy writing: this moves {blocks} blocks for {} and frees {freed} \
                 segment{}. An idle volume needs no cleaning",
                s(*segments),
                cost.energy,
                s(*freed)
            ),
            Advice::Databases { share, reserving_places: true } => write!(
                f,
                "Reserve room for databases ahead ({share} % of the excess extents): fallocate, or SQLite's \
                 SQLITE_FCNTL_CHUNK_SIZE; otherwise they fragment again as they grow"
            ),
            Advice::Databases { share, reserving_places: false } => write!(
                f,
                "Databases have {share} % of the excess extents: they fragment again as they grow, unless the mount \
                 reserves space for them (joulefs mount -o prealloc=db)"
            ),
            Advice::Nothing => write!(f, "Nothing to do"),
        }
    }
}

/// Advice for a volume or a directory tree. `segments` is `None` if free space is unknown.
pub fn advise(
    files: &[File],
    verdict: &Verdict,
    segments: Option<(&Sit, &Space)>,
    reserving_places: bool,
    prices: &Prices,
    window: u64,
) -> Vec<Advice> {
    let mut out = Vec::new();
    let excess = verdict.all.excess();
    let share = |part: u64| (part * 100 + excess / 2) / excess.max(1);
    if excess > 0 {
        let priced = &verdict.few_priced;
        match priced.pays_after() {
            Some(reads) => {
                out.push(Advice::Defragment {
                    files: verdict.few,
                    share: share(verdict.few_excess),
                    cost: priced.treatment,
                    saved: Cost {
                        energy: priced.saved(),
                        time: device::energy::Nanos(priced.read.time.0.saturating_sub(priced.ideal.time.0)),
                    },
                    reads,
                });
                let blocks = verdict.worst.iter().take(verdict.few).map(|&i| files[i].layout.blocks).sum();
                if let Some(free) = segments.map(|(_, s)| s.piece_blocks[LEVELS - 1]).filter(|free| *free < blocks) {
                    out.push(Advice::NoRoom { blocks, free });
                }
            }
            None => out.push(Advice::DoNotDefragment),
        }
        let databases = verdict.classes[Class::Database as usize].excess();
        if databases * 2 >= excess && excess * 100 >= verdict.all.extents * (100 - MOST) {
            out.push(Advice::Databases { share: share(databases), reserving_places });
        }
    }
    out.extend(segments.and_then(|(sit, space)| cleaning(sit, space, prices, window)));
    if out.is_empty() {
        out.push(Advice::Nothing);
    }
    out
}

/// The cleaning that brings two fifths of the unused space into free segments; `None` if they are already there.
fn cleaning(sit: &Sit, space: &Space, prices: &Prices, window: u64) -> Option<Advice> {
    let per = u64::from(BLOCKS_PER_SEG);
    let room = (space.segments * per).saturating_sub(space.valid());
    let torn = (space.used() * per).saturating_sub(space.valid());
    let goal = room * FIFTHS / 5;
    if space.free_segments * per >= goal || torn <= goal {
        return None;
    }
    let mut partly: Vec<(u16, u16)> = sit
        .iter()
        .filter(|(_, s)| s.valid > 0 && u32::from(s.valid) < BLOCKS_PER_SEG)
        .map(|(_, s)| (s.valid, Look::examine(s).runs))
        .collect();
    partly.sort_unstable();
    let wanted = (goal / per).saturating_sub(space.free_segments);
    let (mut segments, mut blocks, mut runs, mut freed) = (0, 0, 0, 0);
    for (valid, holes) in partly {
        if freed >= wanted {
            break;
        }
        segments += 1;
        blocks += u64::from(valid);
        // `holes` holes lie between at most `holes + 1` runs.
        runs += u64::from(holes) + 1;
        freed = segments - u64::div_ceil(blocks, per);
    }
    if freed == 0 {
        return None;
    }
    let read = prices.read(&Work { blocks, requests: runs, places: runs, map_pages: segments, map_turns: segments });
    let into = blocks.div_ceil(per);
    let requests = blocks.div_ceil(window.max(1));
    let write = prices.write(&Work { blocks, requests, places: into, map_pages: into, map_turns: into });
    Some(Advice::Clean { segments, blocks, freed, cost: read + write })
}

#[cfg(test)]
mod tests {
    use device::energy::profile::Profile;
    use format::SegNo;

    use super::*;
    use crate::space::Space;

    fn prices() -> Prices {
        Prices::from_profile(&Profile::find("kirin9000-ufs31").unwrap())
    }

    /// A volume whose segments have these numbers of valid blocks: first the even blocks are valid, then the odd ones.
    fn volume(valid: &[u16]) -> (Sit, Space) {
        let mut sit = Sit::new(valid.len() as u32);
        for (n, &count) in valid.iter().enumerate().filter(|(_, n)| **n > 0) {
            let segment = sit.segment_mut(SegNo(n as u32)).unwrap();
            let order = (0..512).step_by(2).chain((1..512).step_by(2));
            order.take(count.into()).for_each(|o| segment.set(o));
        }
        let space = Space::from_sit(&sit, 0);
        (sit, space)
    }

    #[test]
    fn a_volume_with_free_segments_needs_no_cleaning_and_a_fragmented_one_does() {
        let of = |valid: &[u16]| {
            let (sit, space) = volume(valid);
            cleaning(&sit, &space, &prices(), 128)
        };
        assert_eq!(of(&[512, 512, 0, 0]), None);
        assert_eq!(of(&[512, 512, 512, 512]), None, "nothing is free at all");
        // Every segment is half full and none is free: two fifths of five segments must become free.
        let Some(Advice::Clean { segments, blocks, freed, cost }) = of(&[256; 10]) else { panic!() };
        assert_eq!((segments, blocks, freed), (4, 1024, 2));
        assert!(cost.energy.0 > 0);
    }

    #[test]
    fn without_excess_nothing_is_to_be_done() {
        let verdict = Verdict::new(&[], &prices(), 128);
        assert_eq!(advise(&[], &verdict, None, false, &prices(), 128), [Advice::Nothing]);
    }
}
