//! Which of an inode's deltas stay if not all fit?
//!
//! MedFS FAST'25, section 4.1.3, case 2: a delta in the zone is evicted for a smaller one if the bytes that this frees
//! are worth more than writing its page. `alpha` bytes of a zone save one page write, `beta`; the evicted page is
//! rebuilt from its base (in memory or read) and written. [`Costs`] has the prices.
//!
//! Which pages are compared at all? Reading a base can cost as much as writing the page: the choice takes the fewest
//! joules at the device's prices ([`compared`]).
//!
//! Which delta node gets the deltas of a writeback? An fsync writes the nodes that it changes, so fewer are better; and
//! pages that changed together will change together again.

use victim::joule::Prices;

use super::costs::Costs;

/// Pages in one writeback that have bases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// Number of pages.
    pub(super) count: u64,
    /// Number of requests to read or overwrite their blocks; adjacent blocks share one.
    pub(super) runs: u64,
}

/// Which pages are compared with their bases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    /// All; missing bases are read.
    All,
    /// Only pages whose bases are in memory.
    InMemory,
}

/// Chooses for pages whose bases are in memory (`warm`) and those whose bases are not (`cold`). Pages not compared are
/// written `in_place` or to new places, which changes the file's node. Left out: the extra flush for new places, and
/// the further nodes that many deltas fill; their effects are opposite. Later savings by a delta are not predicted, but
/// a page written now is then in memory.
pub(super) fn compared(prices: &Prices, warm: Pages, cold: Pages, in_place: bool) -> Compared {
    let write = |blocks: u64| if blocks == 0 { 0 } else { prices.request + blocks * prices.write_block_sequential };
    let deltas = |pages: Pages| u64::from(pages.count > 0);
    let reading = cold.runs * prices.request + cold.count * prices.read_block;
    let whole = match in_place {
        true => cold.runs * prices.request + cold.count * prices.write_block_random + write(deltas(warm)),
        false => write(cold.count) + write(deltas(warm) + 1),
    };
    if reading + write(1) <= whole { Compared::All } else { Compared::InMemory }
}

/// An old or new delta that competes for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Want {
    /// Its slot.
    pub(super) slot: u32,
    /// Its size in bytes.
    pub(super) bytes: usize,
}

/// The chosen actions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Slots whose old deltas are evicted (folded).
    pub(super) fold: Vec<u32>,
    /// Slots whose new contents are written as whole blocks.
    pub(super) whole: Vec<u32>,
}

/// Chooses between `new` deltas and `old` ones of other slots in a zone of `room` bytes. Smaller new deltas come first;
/// if one does not fit, the largest old delta is evicted if that pays.
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
            // OK to unwrap: there is a delta of at least `lack` bytes.
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

/// How full a delta node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Occupancy {
    /// Bytes of live entries that stay live.
    pub(super) live: usize,
    /// Bytes available for entries.
    pub(super) capacity: usize,
    /// Whether the node will be written anyway.
    pub(super) dirty: bool,
    /// Age: higher means that it got deltas more recently.
    pub(super) age: u32,
}

impl Occupancy {
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.live)
    }
}

/// Where deltas go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Into this node, as far as they fit.
    Node(usize),
    /// Into a new node.
    New,
    /// Nowhere.
    None,
}

/// Chooses a node for deltas of these sizes. First the youngest node that fits all, preferably one that will be written
/// anyway; else the emptiest, if it fits all; else a new node, if allowed, which costs one more block. If no node fits
/// all: the node with the most room, provided the first delta fits.
pub(super) fn choose_node(nodes: &[Occupancy], wanted: &[usize], most: usize) -> Target {
    let total: usize = wanted.iter().sum();
    let last = nodes.iter().map(|n| n.age).max();
    let fits = |n: &Occupancy| n.room() >= total;
    let young = |n: &Occupancy| n.dirty || Some(n.age) == last;
    let pick = |of: &dyn Fn(&Occupancy) -> bool, rank: &dyn Fn(&Occupancy) -> (bool, usize)| {
        nodes.iter().enumerate().filter(|(_, n)| of(n)).max_by_key(|(_, n)| rank(n)).map(|(at, _)| Target::Node(at))
    };
    pick(&|n| fits(n) && young(n), &|n| (n.dirty, n.age as usize))
        .or_else(|| pick(&|n| fits(n), &|n| (false, n.room())))
        .or_else(|| (nodes.len() < most).then_some(Target::New))
        .or_else(|| pick(&|n| wanted.first().is_some_and(|first| n.room() >= *first), &|n| (false, n.room())))
        .unwrap_or(Target::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(live: usize, age: u32, dirty: bool) -> Occupancy {
        Occupancy { live, capacity: 4000, dirty, age }
    }

    #[test]
    fn deltas_that_come_together_go_to_the_youngest_node_or_to_one_that_is_written_anyway() {
        let nodes = [node(100, 1, false), node(3000, 5, false), node(2000, 3, false)];
        assert_eq!(choose_node(&nodes, &[500, 500], 64), Target::Node(1));
        assert_eq!(choose_node(&nodes, &[500, 501], 64), Target::Node(0), "the emptiest");
        let dirty = [node(100, 1, false), node(3000, 5, false), node(2000, 3, true)];
        assert_eq!(choose_node(&dirty, &[500], 64), Target::Node(2));
    }

    #[test]
    fn a_new_node_comes_when_none_has_room_for_all_and_none_when_there_are_too_many() {
        let nodes = [node(3900, 1, false), node(2500, 2, false), node(3950, 3, false)];
        assert_eq!(choose_node(&nodes, &[800, 700], 64), Target::Node(1));
        assert_eq!(choose_node(&nodes, &[800, 701], 64), Target::New);
        assert_eq!(choose_node(&nodes, &[800, 701], 3), Target::Node(1), "the first of them");
        assert_eq!(choose_node(&nodes, &[1501], 3), Target::None);
        assert_eq!(choose_node(&[], &[10], 64), Target::New);
    }

    #[test]
    fn bases_are_read_if_that_costs_no_more_joules_than_writing_the_pages() {
        let pages = |count, runs| Pages { count, runs };
        let none = Pages::default();
        let phone = |warm, cold, in_place| compared(&Prices::default(), warm, cold, in_place);
        // A read costs as much as a page in place, and the node adds to that.
        assert_eq!(phone(none, pages(1, 1), true), Compared::InMemory);
        assert_eq!(phone(none, pages(3, 3), true), Compared::InMemory);
        // If other pages are compared, the node is written anyway, and reading a block costs less than writing one.
        assert_eq!(phone(pages(2, 2), pages(3, 3), true), Compared::All);
        // Many pages go to new places in one request: scattered bases cost more, adjacent ones do not.
        assert_eq!(phone(none, pages(9, 9), false), Compared::InMemory);
        assert_eq!(phone(none, pages(9, 1), false), Compared::All);
        // If no base must be read, there is no choice.
        assert_eq!(phone(pages(1, 1), none, true), Compared::All);
        // A disk seeks for each base.
        let disk = Prices { request: 1_000_000_000, ..Prices::default() };
        assert_eq!(compared(&disk, none, pages(9, 2), false), Compared::InMemory);
    }

    fn want(slot: u32, bytes: usize) -> Want {
        Want { slot, bytes }
    }

    #[test]
    fn the_largest_makes_way_only_if_that_pays() {
        let old = [want(1, 100), want(2, 240)];
        let choose = |room, new: &[Want]| choose(&Costs::PAPER, room, &old, new);
        assert_eq!(choose(400, &[want(3, 60)]), Choice::default());
        assert_eq!(choose(340, &[want(3, 162)]), Choice { fold: vec![2], whole: vec![] });
        assert_eq!(choose(340, &[want(3, 163)]), Choice { fold: vec![], whole: vec![3] });
        // The smaller delta comes first.
        assert_eq!(choose(370, &[want(3, 200), want(4, 30)]), Choice { fold: vec![], whole: vec![3] });
    }
}
