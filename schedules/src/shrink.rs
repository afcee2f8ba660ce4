//! Which operations does a failure need?
//!
//! Removing an operation changes every later choice, so the same schedule seldom fails again: each smaller course is
//! tried under many schedules.

use crate::course::{Case, Course};
use crate::run::{Failure, run};

/// Number of schedules per smaller course.
const TRIES: u64 = 60;

/// Returns a smaller case that also fails, or the same. `stop` returns true when time is up.
pub fn shrink(failure: &Failure, mut stop: impl FnMut() -> bool) -> Failure {
    let mut best = failure.clone();
    let mut only: Vec<usize> = Course::of(&failure.case).threads.iter().flatten().map(|(number, _)| *number).collect();
    let mut piece = only.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < only.len() {
            let mut fewer = only.clone();
            fewer.drain(at..(at + piece).min(fewer.len()));
            let first = failure.case.schedule_seed();
            let smaller =
                |n| Case { schedule: Some(first.wrapping_add(n)), only: Some(fewer.clone()), ..failure.case.clone() };
            let found = (0..TRIES).take_while(|_| !stop()).find_map(|n| run(&smaller(n)).err());
            match found {
                Some(found) => {
                    best = found;
                    only = fewer;
                }
                None => at += piece,
            }
        }
        piece /= 2;
    }
    best
}
