//! Which requests are under way, and what share of their common cost does each pay?
//!
//! A board that waits for requests draws its power once, whatever their number. Requests share it equally: with k
//! under way, each pays a k-th of each moment. Together they pay exactly the board's energy for the time in which
//! any is under way; the last of overlapping requests pays the rounding remainder.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Tag;
use crate::energy::{Energy, Nanos, Operation, Power};

/// Who pays for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Kind of operation.
    pub operation: Operation,
    /// Owner and cause.
    pub tag: Tag,
    /// One owner per block if the blocks belong to several, otherwise empty.
    pub owners: Box<[u64]>,
}

#[derive(Debug)]
struct UnderWay {
    ends: Nanos,
    /// Sequence number, so that requests with equal ends leave in order.
    number: u64,
    /// `share` when this request arrived, in 2^-20 femtojoules.
    paid: u128,
    asker: Asker,
}

impl PartialEq for UnderWay {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for UnderWay {}
impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for UnderWay {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.ends, self.number).cmp(&(other.ends, other.number))
    }
}

/// The requests under way.
#[derive(Debug)]
pub struct Flight {
    board: Power,
    all: BinaryHeap<Reverse<UnderWay>>,
    /// The latest end of those under way.
    last: Nanos,
    numbers: u64,
    /// The time up to which shares are computed.
    at: Nanos,
    /// Cost of a hypothetical request that was always present, in 2^-20 femtojoules.
    share: u128,
    /// Start of the current uninterrupted activity.
    since: Nanos,
    /// Energy paid since then.
    booked: Energy,
}

impl Flight {
    /// No requests, on a board with this power.
    pub fn new(board: Power) -> Self {
        Flight {
            board,
            all: BinaryHeap::new(),
            last: Nanos(0),
            numbers: 0,
            at: Nanos(0),
            share: 0,
            since: Nanos(0),
            booked: Energy::ZERO,
        }
    }

    /// Number of requests under way.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Earliest end of the requests under way.
    pub fn first_end(&self) -> Option<Nanos> {
        self.all.peek().map(|r| r.0.ends)
    }

    /// Latest end of the requests under way.
    pub fn last_end(&self) -> Option<Nanos> {
        (!self.all.is_empty()).then_some(self.last)
    }

    /// Adds a request that arrives at `now` and ends at `ends`. The time must have advanced to `now`
    /// ([`pass`](Self::pass)).
    pub fn push(&mut self, now: Nanos, ends: Nanos, asker: Asker) {
        if self.all.is_empty() {
            (self.at, self.since, self.share, self.booked, self.last) = (now, now, 0, Energy::ZERO, ends);
        }
        self.last = self.last.max(ends);
        self.all.push(Reverse(UnderWay { ends, number: self.numbers, paid: self.share, asker }));
        self.numbers += 1;
    }

    fn reckon(&mut self, to: Nanos) {
        let femto = u128::from(self.board.0) * u128::from(to.since(self.at).0);
        if femto > 0 {
            self.share += (femto << 20) / self.all.len() as u128;
        }
        self.at = self.at.max(to);
    }

    /// Advances the time to `now`, and calls `book` with the cost of each request that ended.
    pub fn pass(&mut self, now: Nanos, mut book: impl FnMut(&Asker, Energy)) {
        while let Some(ends) = self.first_end().filter(|ends| *ends <= now) {
            self.reckon(ends);
            let Some(Reverse(ended)) = self.all.pop() else { return };
            let energy = if self.all.is_empty() {
                self.board.over(ends.since(self.since)) - self.booked
            } else {
                Energy(u64::try_from(((self.share - ended.paid) >> 20) / 1000).unwrap_or(u64::MAX))
            };
            self.booked += energy;
            book(&ended.asker, energy);
        }
        if !self.all.is_empty() {
            self.reckon(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn asker(owner: u64) -> Asker {
        Asker { operation: Operation::Read, tag: Tag { cause: 0, owner }, owners: [].into() }
    }

    /// A microwatt over a microsecond is a picojoule.
    const WATT: Power = Power(1_000_000);

    fn paid(flight: &mut Flight, until: u64) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        flight.pass(Nanos(until), |who, energy| all.push((who.tag.owner, energy.0)));
        all
    }

    #[test]
    fn a_single_request_pays_all_and_two_pay_half_of_their_common_time() {
        let mut flight = Flight::new(WATT);
        flight.push(Nanos(0), Nanos(100), asker(1));
        assert_eq!(paid(&mut flight, 60), []);
        flight.push(Nanos(60), Nanos(200), asker(2));
        assert_eq!(paid(&mut flight, 300), [(1, 80_000), (2, 120_000)]);
        flight.push(Nanos(300), Nanos(310), asker(3));
        assert_eq!(paid(&mut flight, 400), [(3, 10_000)]);
    }

    #[test]
    fn all_together_pay_the_time_in_which_any_is_under_way() {
        let mut rng = Rng::new(3);
        for power in [Power(1), Power(333_333), Power(2_500_001)] {
            let mut flight = Flight::new(power);
            let (mut now, mut sum, mut union, mut covered) = (0, 0, Energy::ZERO, 0);
            let mut since = 0;
            for n in 0..5_000 {
                now += rng.below(150);
                paid(&mut flight, now).into_iter().for_each(|(_, e)| sum += e);
                let ends = now + 1 + rng.below(1000);
                if now >= covered {
                    union += power.over(Nanos(covered - since));
                    since = now;
                }
                covered = covered.max(ends);
                flight.push(Nanos(now), Nanos(ends), asker(n));
            }
            paid(&mut flight, u64::MAX).into_iter().for_each(|(_, e)| sum += e);
            union += power.over(Nanos(covered - since));
            assert_eq!(Energy(sum), union);
            assert_eq!(flight.len(), 0);
        }
    }
}
