//! How few blocks does a good cleaner move if it knows when each block will be overwritten?
//!
//! The cleaner works on a model of the log: segments, blocks that die after known batches, an open segment for writes.
//! After each batch it empties segments until at most `most` are in use. Left out of the model: nodes, directories,
//! blocks that a checkpoint holds.
//!
//! The cleaner moves blocks either to new segments, sorted by time of death so that they die together, or into the
//! holes of the fullest segments, which takes no new space ([`Into`]). Its victim is the segment with the lowest cost
//! per space gained. The cost is the number of blocks to move, plus a weighted count of those that would be dead some
//! batches later anyway. Several weights and look-ahead times are tried, and the lowest count is used. **No bound:** a
//! better choice may exist.

use super::{Overwrites, SEGMENT};

/// Where moved blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Into {
    /// To new segments.
    New,
    /// Into the holes of used segments.
    Holes,
}

/// The combinations tried: number of batches to look ahead, and weight of blocks that die by then.
const TRIED: [(u32, u64); 9] = [(0, 0), (2, 1), (5, 1), (10, 1), (20, 1), (40, 1), (5, 3), (20, 3), (80, 2)];

/// A segment: when its blocks die, earliest first.
struct Segment(Vec<u32>);

impl Segment {
    fn new(mut deaths: Vec<u32>) -> Segment {
        deaths.sort_unstable();
        Segment(deaths)
    }
    /// Live blocks after a batch.
    fn live(&self, batch: u32) -> u64 {
        (self.0.len() - self.0.partition_point(|d| *d <= batch)) as u64
    }
}

/// When each block dies, in order of writing: the batch that overwrites it.
fn deaths(work: &Overwrites) -> Vec<u32> {
    let mut newest: Vec<usize> = (0..work.blocks as usize).collect();
    let mut deaths = vec![u32::MAX; work.blocks as usize];
    for (n, batch) in work.batches.iter().enumerate() {
        for b in batch {
            deaths[newest[*b as usize]] = n as u32;
            newest[*b as usize] = deaths.len();
            deaths.push(u32::MAX);
        }
    }
    deaths
}

/// Blocks moved so that at most `most` segments are in use after each batch.
pub(super) fn moved(work: &Overwrites, most: &[u32], into: Into) -> u64 {
    let deaths = deaths(work);
    TRIED.into_iter().map(|(ahead, weight)| one(work, &deaths, most, into, ahead, weight)).min().unwrap_or(0)
}

fn one(work: &Overwrites, deaths: &[u32], most: &[u32], into: Into, ahead: u32, weight: u64) -> u64 {
    let full = SEGMENT as usize;
    let (first, mut rest) = deaths.split_at(work.blocks as usize);
    let whole = first.len() / full * full;
    let mut segments: Vec<Segment> = first[..whole].chunks(full).map(|c| Segment::new(c.to_vec())).collect();
    let (mut log, mut cold) = (first[whole..].to_vec(), Vec::new());
    let mut moved = 0;
    for ((batch, written), most) in (0..).zip(&work.batches).zip(most) {
        let (new, later) = rest.split_at(written.len());
        rest = later;
        log.extend_from_slice(new);
        while log.len() >= full {
            segments.push(Segment::new(log.drain(..full).collect()));
        }
        segments.retain(|s| s.live(batch) > 0);
        let mut moving: Vec<u32> = Vec::new();
        let room = (*most as usize).saturating_sub(1);
        let taken = |moving: &Vec<u32>, cold: &Vec<u32>| match into {
            Into::New => (cold.len() + moving.len()).div_ceil(full),
            Into::Holes => cold.len().div_ceil(full),
        };
        while segments.len() + taken(&moving, &cold) > room {
            let Some(n) = cheapest(&segments, into, batch, ahead, weight) else { break };
            let victim = segments.swap_remove(n);
            moving.extend(victim.0.iter().filter(|d| **d > batch));
            moved += victim.live(batch);
        }
        moving.sort_unstable();
        if into == Into::Holes {
            fill(&mut segments, &mut moving, batch);
        }
        cold.extend(moving);
        while cold.len() >= full {
            segments.push(Segment::new(cold.drain(..full).collect()));
        }
    }
    moved
}

/// Moves blocks into holes, the longest-lived into the fullest segments, until blocks or holes run out.
fn fill(segments: &mut [Segment], moving: &mut Vec<u32>, batch: u32) {
    let mut fullest: Vec<&mut Segment> = segments.iter_mut().filter(|s| s.live(batch) < SEGMENT.into()).collect();
    fullest.sort_by_key(|s| std::cmp::Reverse(s.live(batch)));
    for segment in fullest {
        if moving.is_empty() {
            return;
        }
        segment.0.retain(|d| *d > batch);
        let holes = SEGMENT as usize - segment.0.len();
        segment.0.extend(moving.drain(moving.len().saturating_sub(holes)..));
        segment.0.sort_unstable();
    }
}

/// The segment with the lowest cost per space gained; none if all are full.
fn cheapest(segments: &[Segment], into: Into, batch: u32, ahead: u32, weight: u64) -> Option<usize> {
    let price = |s: &Segment| {
        let live = s.live(batch);
        let wasted = live - s.live(batch.saturating_add(ahead));
        let gain = u64::from(SEGMENT) - live;
        // Blocks that go into holes take no new space.
        (live + weight * wasted, if into == Into::Holes { gain.min(1) } else { gain })
    };
    let priced = segments.iter().map(price).enumerate().filter(|(_, (_, free))| *free > 0);
    priced.min_by(|(_, (a, x)), (_, (b, y))| (a * y).cmp(&(b * x))).map(|(n, _)| n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(blocks: u32, batches: &[&[u32]]) -> Overwrites {
        Overwrites { blocks, batches: batches.iter().map(|b| b.to_vec()).collect() }
    }

    #[test]
    fn a_block_dies_in_the_batch_that_overwrites_it() {
        assert_eq!(deaths(&work(3, &[&[1], &[1, 2]])), [u32::MAX, 0, 1, 1, u32::MAX, u32::MAX]);
    }

    #[test]
    fn nothing_moves_while_there_is_room_and_the_emptiest_does_when_there_is_none() {
        let half: Vec<u32> = (0..300).collect();
        let more: Vec<u32> = (600..1000).collect();
        let w = work(1536, &[&half, &more]);
        // Segments of 212, 112 and 512 live blocks, one of 512, and 188 in the open segment.
        for into in [Into::New, Into::Holes] {
            assert_eq!(moved(&w, &[9, 9], into), 0);
            assert_eq!(moved(&w, &[9, 5], into), 0);
        }
        assert_eq!(moved(&w, &[9, 4], Into::Holes), 112);
        assert_eq!(moved(&w, &[9, 4], Into::New), 112 + 212);
    }
}
