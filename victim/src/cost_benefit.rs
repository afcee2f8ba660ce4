//! Cost-benefit: the kernel's default in the background (`GC_CB`).
//!
//! `u` is the share of valid blocks. `age` is the position of the unit's write time between the youngest (0)
//! and the oldest (100) section ever seen. Both are integers in percent. The benefit is 100 (100 - u) age /
//! (100 + u), rounded down, and the cost is 2^32 - 1 less the benefit. A unit with benefit 0 is never chosen,
//! so the youngest never is. The scan starts where the last cost-benefit choice ended. In the background it
//! examines at most `max_victim_search` units. The first of equals wins.

use crate::memory::{Ask, Choice, Look, Memory, Tuning};
use crate::view::{Bounds, Candidate, View};

/// The benefit of emptying a unit that is `u` percent full and `age` percent old.
const fn benefit(u: u32, age: u32) -> u32 {
    100 * (100 - u) * age / (100 + u)
}

/// [`benefit`] at the greatest age, by `u`.
const MOST: [u32; 101] = {
    let mut most = [0; 101];
    let mut u = 0;
    while u <= 100 {
        most[u as usize] = benefit(u, 100);
        u += 1;
    }
    most
};

/// Searches for the first unit with the greatest benefit.
struct Most {
    memory: Memory,
    unit: u32,
    found: Option<Candidate>,
    benefit: u32,
}

impl Most {
    fn benefit(&self, valid: u32, mtime: u64) -> u32 {
        let u = (valid / self.unit * 100 / 512).min(100);
        match MOST[u as usize] <= self.benefit {
            true => 0,
            false => benefit(u, age(&self.memory, mtime)),
        }
    }
}

impl Look for Most {
    fn hopeless(&self, b: &Bounds) -> bool {
        // A write time outside the known range is remembered, and shifts the ages of all later units.
        let seen = self.memory.min_mtime <= b.mtime.0 && b.mtime.1 <= self.memory.max_mtime;
        seen && self.benefit(b.valid.0, b.mtime.0) <= self.benefit
    }
    fn take(&mut self, c: Candidate) {
        self.memory.see(c.mtime);
        let b = self.benefit(c.valid, c.mtime);
        if b > self.benefit {
            (self.found, self.benefit) = (Some(c), b);
        }
    }
}

/// The unit with the greatest benefit; `None` if none has a benefit above 0.
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask<'_>) -> (Option<Choice>, Memory) {
    let mut most = Most { memory: *memory, unit: ask.unit, found: None, benefit: 0 };
    let next = ask.look(view, memory.last_victim_cb, ask.window(view, tuning), &mut most);
    most.memory.last_victim_cb = next;
    (most.found.map(|victim| Choice { victim, cost: u32::MAX - most.benefit }), most.memory)
}

/// Age in percent: 0 for the youngest ever seen, 100 for the oldest. The range seen includes `mtime`.
fn age(memory: &Memory, mtime: u64) -> u32 {
    let span = memory.max_mtime - memory.min_mtime;
    if span == 0 {
        return 0;
    }
    let since = mtime - memory.min_mtime;
    // Only on a damaged image does a time overflow 64 bits when multiplied by 100.
    let percent = match since.checked_mul(100) {
        Some(n) => n / span,
        None => (u128::from(since) * 100 / u128::from(span)) as u64,
    };
    100 - percent as u32
}

#[cfg(test)]
mod tests {
    use format::SegNo;

    use super::*;
    use crate::plain::Plain;

    fn c(seg: u32, valid: u32, mtime: u64) -> Candidate {
        Candidate { seg: SegNo(seg), valid, held: valid, mtime, f: 0, loose: 0 }
    }
    const ASK: Ask<'_> = Ask { foreground: false, urgent: false, end: SegNo(10), unit: 1, passed: &[] };

    fn chosen(state: &[Candidate], memory: Memory) -> (Option<(u32, u32)>, Memory) {
        let (choice, memory) = choose(&Plain::new(1, state.into()), &memory, &Tuning::default(), ASK);
        (choice.map(|c| (c.victim.seg.0, u32::MAX - c.cost)), memory)
    }
    fn at(min_mtime: u64, max_mtime: u64) -> Memory {
        Memory { max_mtime, ..Memory::at_mount(0, min_mtime) }
    }

    #[test]
    fn benefit_weighs_age_against_what_must_be_moved() {
        // u = 50, age 100: the oldest. u = 12, age 50.
        let (choice, _) = chosen(&[c(1, 256, 0), c(2, 64, 500)], at(0, 1000));
        assert_eq!(choice, Some((2, 100 * 88 * 50 / 112)));
        let (choice, _) = chosen(&[c(1, 256, 0), c(2, 64, 700)], at(0, 1000));
        assert_eq!(choice, Some((1, 100 * 50 * 100 / 150)));
    }

    #[test]
    fn the_youngest_is_never_chosen_and_the_first_of_equals_is() {
        assert_eq!(chosen(&[c(1, 1, 1000)], at(0, 1000)).0, None);
        assert_eq!(chosen(&[c(4, 5, 7), c(6, 5, 7)], at(0, 1000)).0.map(|c| c.0), Some(4));
        let later = Memory { last_victim_cb: SegNo(5), ..at(0, 1000) };
        let (choice, next) = chosen(&[c(4, 5, 7), c(6, 5, 7)], later);
        assert_eq!((choice.map(|c| c.0), next.last_victim_cb), (Some(6), SegNo(6)));
        // All units have the same age, so none is old.
        assert_eq!(chosen(&[c(4, 5, 7)], at(7, 7)).0, None);
    }

    #[test]
    fn ages_once_seen_stay_in_mind() {
        let (choice, memory) = chosen(&[c(1, 100, 40), c(2, 100, 2000)], at(100, 1000));
        assert_eq!((memory.min_mtime, memory.max_mtime), (40, 2000));
        // When the scan reached the first unit, 1000 was the youngest known time.
        assert_eq!(choice, Some((1, 100 * 81 * 100 / 119)));
        let (choice, _) = chosen(&[c(1, 100, 1020)], memory);
        assert_eq!(choice, Some((1, 100 * 81 * 50 / 119)));
    }

    #[test]
    fn a_section_counts_by_the_mean_of_its_segments() {
        let ask = Ask { unit: 2, ..ASK };
        let view = Plain::new(2, vec![c(2, 513, 0), c(6, 512, 0)]);
        let (choice, _) = choose(&view, &at(0, 1000), &Tuning::default(), ask);
        // 513 / 2 and 512 / 2 are both 256, so the first wins.
        assert_eq!(choice.map(|c| c.victim.seg.0), Some(2));
    }

    #[test]
    fn times_of_a_damaged_image_do_no_harm() {
        let (choice, memory) = chosen(&[c(1, 9, u64::MAX), c(2, 9, u64::MAX / 2)], at(0, 5));
        assert_eq!(memory.max_mtime, u64::MAX);
        assert_eq!(choice, Some((2, benefit(1, 51))));
    }
}
