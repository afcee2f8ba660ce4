//! Which segments to clean, and where to move their blocks? Pure functions of the free space.
//!
//! The four strategies of Scherl 2004, section 4.2.2. Full segments are never chosen, because copying them gains
//! nothing; in this the copying strategy here differs from the thesis.

use vfs::Power;

/// Cleaning strategies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// None: the log goes through every hole (4.2.2.1).
    Threading,
    /// Copy the next segments in the log's way to its end (4.2.2.2).
    Copying,
    /// Move the next segments in the log's way into holes elsewhere (4.2.2.3).
    Plugging,
    /// Copy the most profitable segments to the log's end, or on a full volume into holes (4.2.2.4).
    Combined,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 4] = [Strategy::Threading, Strategy::Copying, Strategy::Plugging, Strategy::Combined];

    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Threading => "threading",
            Strategy::Copying => "copying",
            Strategy::Plugging => "plugging",
            Strategy::Combined => "combined",
        }
    }
}

/// The user's choice of strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clean {
    /// Threading on a battery, combined on the charger.
    #[default]
    ByPower,
    /// This strategy, with any power source.
    Always(Strategy),
}

impl Clean {
    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Clean::ByPower => "auto",
            Clean::Always(strategy) => strategy.name(),
        }
    }
    /// Parses a choice. The error completes the sentence "clean ...".
    pub fn parse(name: &str) -> Result<Clean, String> {
        let all = [Clean::ByPower].into_iter().chain(Strategy::ALL.map(Clean::Always));
        let found = all.into_iter().find(|c| c.name() == name);
        found.ok_or_else(|| "is auto, threading, copying, plugging or combined".to_owned())
    }
    /// The strategy for a power source.
    pub fn strategy(self, power: Power) -> Strategy {
        match (self, power) {
            (Clean::Always(strategy), _) => strategy,
            (Clean::ByPower, Power::Battery) => Strategy::Threading,
            (Clean::ByPower, Power::Powered) => Strategy::Combined,
        }
    }
}

/// A segment that is neither empty nor full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its index.
    pub index: u64,
    /// Free blocks in it.
    pub free: u64,
    /// Transactions since its last write.
    pub age: u64,
}

/// Limits of a choice.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Blocks per segment.
    pub segment: u64,
    /// The segment at the log's head.
    pub head: u64,
    /// Least number of blocks to gain, if available.
    pub want: u64,
    /// Most blocks that may be copied to the log's end: the room in long runs.
    pub room: u64,
    /// Blocks in holes, including those of victims.
    pub holes: u64,
    /// Used share of the volume, in thousandths.
    pub full: u64,
}

/// Destination of the victims' blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To the log's end.
    Log,
    /// Into holes.
    Holes,
}

/// Used share, in thousandths, from which the combined strategy plugs holes.
const PLUG_ABOVE: u64 = 800;
/// The combined strategy skips segments with a larger used share, in thousandths.
const DENSE: u64 = 875;

/// The segments to clean, and the destination.
pub fn victims(strategy: Strategy, segments: &[Segment], limits: &Limits) -> (Vec<u64>, Target) {
    let live = |s: &Segment| limits.segment - s.free;
    let mut order: Vec<&Segment> = segments.iter().filter(|s| s.free > 0 && live(s) > 0).collect();
    let target = match strategy {
        Strategy::Threading => return (Vec::new(), Target::Log),
        Strategy::Copying => Target::Log,
        Strategy::Plugging => Target::Holes,
        Strategy::Combined if limits.full > PLUG_ABOVE => Target::Holes,
        Strategy::Combined => Target::Log,
    };
    match strategy {
        Strategy::Combined => {
            order.retain(|s| live(s) * 1000 <= limits.segment * DENSE);
            // Rosenblum and Ousterhout's benefit over cost: blocks gained, times age, over blocks read and written.
            let worth = |s: &Segment| u128::from(s.free) * u128::from(s.age + 1) * 1_000_000 / u128::from(live(s) * 2);
            order.sort_by_key(|s| (std::cmp::Reverse(worth(s)), s.index));
        }
        _ => order.sort_by_key(|s| (s.index <= limits.head, s.index)),
    }
    let (mut chosen, mut won, mut moved, mut own_holes) = (Vec::new(), 0, 0, 0);
    for s in order {
        if won >= limits.want {
            break;
        }
        let fits = match target {
            Target::Log => moved + live(s) <= limits.room,
            // Holes of a victim do not count for its own blocks. Small pieces take an additional block per inode.
            Target::Holes => (moved + live(s)) * 5 / 4 + own_holes + s.free <= limits.holes,
        };
        if !fits {
            continue;
        }
        chosen.push(s.index);
        moved += live(s);
        own_holes += s.free;
        // Gain of a victim: all of it with holes, its free blocks with the log's end.
        won += if target == Target::Log { s.free } else { limits.segment };
    }
    (chosen, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(index: u64, free: u64, age: u64) -> Segment {
        Segment { index, free, age }
    }
    fn limits(want: u64, room: u64, holes: u64, full: u64) -> Limits {
        Limits { segment: 256, head: 5, want, room, holes, full }
    }

    #[test]
    fn threading_clears_nothing_copying_and_plugging_what_is_next_in_the_way() {
        let all = [segment(1, 200, 0), segment(4, 100, 0), segment(6, 10, 0), segment(7, 0, 9), segment(8, 256, 9)];
        assert_eq!(victims(Strategy::Threading, &all, &limits(900, 9000, 9000, 500)).0, [0; 0]);
        let (chosen, target) = victims(Strategy::Copying, &all, &limits(110, 9000, 0, 500));
        assert_eq!((chosen, target), (vec![6, 1], Target::Log), "neither the full one nor the empty one");
        let (chosen, target) = victims(Strategy::Plugging, &all, &limits(257, 0, 800, 500));
        assert_eq!((chosen, target), (vec![6, 1], Target::Holes));
        assert_eq!(victims(Strategy::Copying, &all, &limits(900, 200, 0, 500)).0, [1], "what there is room for");
        assert_eq!(victims(Strategy::Plugging, &all, &limits(900, 0, 290, 500)).0, [1], "holes of its own are no room");
    }

    #[test]
    fn the_combined_way_takes_what_pays_best_leaves_dense_segments_and_plugs_when_full() {
        let all = [segment(1, 128, 0), segment(2, 128, 9), segment(3, 250, 0), segment(4, 20, 999)];
        let (chosen, target) = victims(Strategy::Combined, &all, &limits(9999, 9999, 0, 500));
        assert_eq!((chosen, target), (vec![3, 2, 1], Target::Log));
        let (chosen, target) = victims(Strategy::Combined, &all, &limits(256, 9999, 9999, 801));
        assert_eq!((chosen, target), (vec![3], Target::Holes));
    }

    #[test]
    fn a_choice_has_a_name_and_follows_the_power() {
        for choice in [Clean::ByPower].into_iter().chain(Strategy::ALL.map(Clean::Always)) {
            assert_eq!(Clean::parse(choice.name()), Ok(choice));
        }
        assert!(Clean::parse("sweeping").is_err());
        assert_eq!(Clean::ByPower.strategy(Power::Battery), Strategy::Threading);
        assert_eq!(Clean::ByPower.strategy(Power::Powered), Strategy::Combined);
        assert_eq!(Clean::Always(Strategy::Copying).strategy(Power::Battery), Strategy::Copying);
    }
}
