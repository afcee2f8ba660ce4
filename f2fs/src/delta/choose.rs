//! Which of an inode's deltas stay when there is not room for all?
//!
//! MedFS FAST'25, section 4.1.3, case 2: a delta in the zone makes way for a smaller one if the bytes that this frees
//! are worth more than writing its page. `alpha` bytes of a zone save one write of a page, `beta`; the page that makes
//! way is put together from its base, found in memory or read, and written. With the paper's times the difference must
//! be 78 bytes or more.

/// What things cost, in microseconds, and how much room an average delta takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    /// Bytes of an average delta (the paper's alpha).
    pub(super) average: f64,
    /// Writing one page (beta).
    pub(super) write: f64,
    /// How often a base is in memory, from 0 to 1 (HR).
    pub(super) hits: f64,
    /// Taking it from there (lambda).
    pub(super) hit: f64,
    /// Reading it from the device (delta).
    pub(super) miss: f64,
    /// Putting the page together (epsilon).
    pub(super) decode: f64,
}

impl Costs {
    /// As the paper measured them on its phones (section 4.1.3).
    pub(super) const PAPER: Costs =
        Costs { average: 72.0, write: 954.0, hits: 0.741, hit: 9.2, miss: 250.0, decode: 6.9 };

    /// How many bytes must become free for the exchange to pay.
    pub(super) fn worth(&self) -> usize {
        let base = self.hits * self.hit + (1.0 - self.hits) * self.miss;
        ((base + self.decode + self.write) * self.average / self.write).ceil() as usize
    }
}

/// A delta that wants to stay, or to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Want {
    /// The slot it is for.
    pub(super) slot: u32,
    /// Bytes that it takes.
    pub(super) bytes: usize,
}

/// What becomes of deltas.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Slots whose old deltas make way.
    pub(super) fold: Vec<u32>,
    /// Slots whose new contents are written whole.
    pub(super) whole: Vec<u32>,
}

/// Decides for `new` deltas in a zone that has `old` ones of other slots and room for so many bytes in all. Smaller new
/// ones come first; where there is no room, the largest old one makes way if that pays.
pub(super) fn choose(costs: &Costs, room: usize, old: &[Want], new: &[Want]) -> Choice {
    let mut out = Choice::default();
    let mut staying = old.to_vec();
    staying.sort_unstable_by_key(|w| w.bytes);
    let mut used: usize = old.iter().map(|w| w.bytes).sum();
    let mut coming = new.to_vec();
    coming.sort_unstable_by_key(|w| w.bytes);
    for w in coming {
        let lack = (used + w.bytes).saturating_sub(room);
        let largest = staying.last().map_or(0, |o| o.bytes);
        if lack > 0 && largest >= lack && largest >= w.bytes + costs.worth() {
            // OK to unwrap: a delta of at least `lack` bytes is there.
            let gone = staying.pop().unwrap();
            used -= gone.bytes;
            out.fold.push(gone.slot);
        }
        if used + w.bytes <= room {
            used += w.bytes;
        } else {
            out.whole.push(w.slot);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(slot: u32, bytes: usize) -> Want {
        Want { slot, bytes }
    }

    #[test]
    fn with_the_papers_times_78_bytes_must_become_free() {
        assert_eq!(Costs::PAPER.worth(), 78);
    }

    #[test]
    fn the_largest_makes_way_only_if_that_pays() {
        let old = [want(1, 100), want(2, 240)];
        let choose = |room, new: &[Want]| choose(&Costs::PAPER, room, &old, new);
        assert_eq!(choose(400, &[want(3, 60)]), Choice::default());
        assert_eq!(choose(340, &[want(3, 162)]), Choice { fold: vec![2], whole: vec![] });
        assert_eq!(choose(340, &[want(3, 163)]), Choice { fold: vec![], whole: vec![3] });
        // The small one comes first.
        assert_eq!(choose(370, &[want(3, 200), want(4, 30)]), Choice { fold: vec![], whole: vec![3] });
    }
}
