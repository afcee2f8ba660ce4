//! Occupancy of the link.
//!
//! There is one link, which transfers the bytes of one request at a time. A request whose bytes come later (its
//! pages are still being read) leaves the link free until then, and a later request may use that time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::energy::Nanos;

/// Occupied times in order, with gaps between them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Link {
    taken: VecDeque<(Nanos, Nanos)>,
}

impl Link {
    /// Drops times before `now`, for which no more requests come.
    pub fn passed(&mut self, now: Nanos) {
        while self.taken.front().is_some_and(|(_, to)| *to <= now) {
            self.taken.pop_front();
        }
    }

    /// Takes `time` at the first sufficient gap not before `from`; returns when that ends.
    pub fn reserve(&mut self, from: Nanos, time: Nanos) -> Nanos {
        let (mut begin, mut at) = (from, 0);
        while let Some((busy_from, busy_to)) = self.taken.get(at) {
            if begin + time <= *busy_from {
                break;
            }
            begin = begin.max(*busy_to);
            at += 1;
        }
        let end = begin + time;
        if time == Nanos(0) {
            return end;
        }
        let joins_before = at > 0 && self.taken[at - 1].1 == begin;
        let joins_after = self.taken.get(at).is_some_and(|(from, _)| *from == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.taken[at - 1].1 = self.taken[at].1;
                self.taken.remove(at);
            }
            (true, false) => self.taken[at - 1].1 = end,
            (false, true) => self.taken[at].0 = begin,
            (false, false) => self.taken.insert(at, (begin, end)),
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn a_later_request_uses_the_time_before_an_earlier_one_whose_bytes_come_late() {
        let mut link = Link::default();
        assert_eq!(link.reserve(Nanos(100), Nanos(50)), Nanos(150));
        assert_eq!(link.reserve(Nanos(10), Nanos(90)), Nanos(100));
        assert_eq!(link.reserve(Nanos(10), Nanos(1)), Nanos(151), "there is no room before");
        assert_eq!(link.taken, [(Nanos(10), Nanos(151))], "times that touch are one");
        link.passed(Nanos(151));
        assert_eq!(link.taken, []);
    }

    #[test]
    fn no_two_requests_have_the_link_at_once_and_each_has_it_as_early_as_it_can() {
        let mut rng = Rng::new(5);
        for _ in 0..200 {
            let (mut link, mut busy) = (Link::default(), [false; 400]);
            for _ in 0..20 {
                let (from, time) = (rng.index(200), rng.index(9) + 1);
                let end = link.reserve(Nanos(from as u64), Nanos(time as u64)).0 as usize;
                let free = |at: usize, busy: &[bool]| !busy[at..at + time].contains(&true);
                let earliest = (from..400).find(|at| free(*at, &busy)).unwrap();
                assert_eq!(end, earliest + time);
                busy[earliest..end].fill(true);
            }
        }
    }
}
