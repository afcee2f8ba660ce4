//! How many blocks must any cleaner move, whatever it knows?
//!
//! **Given.** The log writes blocks in the order of requests, 512 per segment: a *group*. `live(g, j)` is the number of
//! group `g`'s blocks that are still the newest version after batch `j`. It depends only on the overwrites, not on
//! cleaning, and never grows after the group is full. After batch `j` a cleaner may have at most `most(j)` segments in
//! use. Everything else is free: when it cleans, and where it moves blocks (new segments, holes of others).
//!
//! **Claim.** It moves at least as many blocks as the optimum of this linear program: for groups `g` and batches `k`
//! with `live(g, k) > 0`, shares `x(g, k) >= 0` that add up to at most 1 for each group, minimise
//!
//! ```text
//! sum of x(g, k) live(g, k)
//! ```
//!
//! so that for each batch `j`
//!
//! ```text
//! sum of x(g, k) over k <= j and g with live(g, j) > 0   >=   D(j) = groups alive after j - most(j)
//! ```
//!
//! *Proof.* A group *stands* if one of its live blocks is still where the log wrote it. No segment has two standing
//! groups, because the log cannot write it again before it is free. So at most `most(j)` groups stand after batch `j`,
//! and at least `D(j)` of the live groups do not. For each group that at some time is alive and does not stand, take
//! the first batch `k` after which this is so: set x(g, k) = 1. Each of its live(g, k) blocks was moved by then, and
//! these moves concern only this group's blocks, so all groups together cost at least the sum. A moved block never
//! returns to where the log wrote it as the same version, so the group can stand again only if the log had not finished
//! it; the program still counts it as gone, and every constraint holds. So every cleaner is a solution of the program.
//! ∎
//!
//! **Computation.** By weak duality, any prices p(j) >= 0 for a segment after batch `j` give a number that is not
//! larger than the optimum:
//!
//! ```text
//! sum of p(j) D(j)  -  sum over g of max(0, max over k of  p(k) + ... + p(end of g) - live(g, k))
//! ```
//!
//! where the end of `g` is the last batch after which it is alive. Subgradient ascent searches for prices, and the best
//! result counts: even bad prices give a valid bound.

/// Steps of the ascent.
const STEPS: u32 = 600;

/// A group's life: its first and last batch alive, and its live blocks in between.
struct Life {
    first: usize,
    live: Vec<u16>,
}

impl Life {
    fn end(&self) -> usize {
        self.first + self.live.len()
    }
}

/// The groups' lives, from their live blocks after each batch.
fn lives(live: &[Vec<u16>]) -> Vec<Life> {
    let groups = live.last().map_or(0, Vec::len);
    let of = |g: usize| {
        let counts: Vec<u16> = live.iter().map(|after| after.get(g).copied().unwrap_or(0)).collect();
        let first = counts.iter().position(|n| *n > 0)?;
        let last = counts.iter().rposition(|n| *n > 0)?;
        Some(Life { first, live: counts[first..=last].to_vec() })
    };
    (0..groups).filter_map(of).collect()
}

/// Minimum number of blocks that any cleaner moves. `live`: by batch and group; `most`: segments in use, by batch.
pub(super) fn bound(live: &[Vec<u16>], most: &[u32]) -> f64 {
    let lives = lives(live);
    let mut alive = vec![0i64; most.len()];
    for life in &lives {
        alive[life.first..life.end()].iter_mut().for_each(|n| *n += 1);
    }
    let demand: Vec<f64> = alive.iter().zip(most).map(|(n, most)| (n - i64::from(*most)) as f64).collect();
    let mut best = 0.0f64;
    // A segment is worth at most its blocks; try several step sizes for the prices.
    for scale in [512.0, 128.0, 32.0] {
        let mut prices = vec![0.0; demand.len()];
        for step in 0..STEPS {
            let (value, slope) = dual(&lives, &demand, &prices);
            best = best.max(value);
            let length = slope.iter().map(|s| s * s).sum::<f64>().sqrt().max(1.0);
            let stride = scale / f64::from(step + 1).sqrt() / length;
            for (price, slope) in prices.iter_mut().zip(&slope) {
                *price = (*price + stride * slope).max(0.0);
            }
        }
    }
    best.floor()
}

/// The bound for given prices, and the direction in which it improves.
fn dual(lives: &[Life], demand: &[f64], prices: &[f64]) -> (f64, Vec<f64>) {
    // Sums of the prices before each batch.
    let mut before = Vec::with_capacity(prices.len() + 1);
    before.push(0.0);
    for p in prices {
        before.push(before[before.len() - 1] + p);
    }
    let mut value: f64 = prices.iter().zip(demand).map(|(p, d)| p * d).sum();
    // Groups removed minus groups past their end, as differences to be summed.
    let mut change = vec![0.0; prices.len() + 1];
    for life in lives {
        let gain = |k: usize| before[life.end()] - before[life.first + k] - f64::from(life.live[k]);
        let (mut best, mut when) = (0.0, None);
        for k in 0..life.live.len() {
            let g = gain(k);
            if g > best {
                (best, when) = (g, Some(k));
            }
        }
        if let Some(k) = when {
            value -= best;
            change[life.first + k] += 1.0;
            change[life.end()] -= 1.0;
        }
    }
    let mut taken = 0.0;
    let slope = demand.iter().zip(&change).map(|(d, c)| {
        taken += c;
        d - taken
    });
    (value, slope.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_need_move_while_there_is_room() {
        assert_eq!(bound(&[vec![512, 300], vec![500, 200, 100]], &[2, 3]), 0.0);
    }

    #[test]
    fn the_emptiest_group_is_what_one_segment_costs() {
        let b = bound(&[vec![512, 300, 40]], &[2]);
        assert!((39.0..=40.0).contains(&b), "{b}");
    }

    #[test]
    fn a_group_that_dies_in_time_costs_nothing_and_one_that_dies_late_is_waited_for() {
        // Two segments too few after the second batch, when group 0 is dead and group 1 has 10 live blocks.
        let live = [vec![400, 300, 500, 500], vec![0, 10, 500, 500, 500]];
        let b = bound(&live, &[4, 3]);
        assert!((9.0..=10.0).contains(&b), "{b}");
    }

    #[test]
    fn no_schedule_beats_it() {
        // All schedules of a small case, by exhaustive search: each group is emptied after some batch or never.
        let live = [vec![9, 5, 7, 3], vec![6, 5, 4, 3, 8], vec![2, 4, 4, 0, 8, 7], vec![2, 1, 3, 0, 6, 7, 9]];
        let most = [4, 3, 3, 3];
        let never = live.len();
        let groups = live[3].len();
        let at = |g: usize, j: usize| live[j].get(g).copied().unwrap_or(0);
        let mut least = u32::MAX;
        for code in 0..(never + 1).pow(groups as u32) {
            let when: Vec<usize> = (0..groups).map(|g| code / (never + 1).pow(g as u32) % (never + 1)).collect();
            let stand = |j: usize| (0..groups).filter(|&g| at(g, j) > 0 && when[g] > j).count();
            // A group is not emptied before it is written.
            let written = |g: usize| when[g] == never || (0..=when[g]).any(|j| at(g, j) > 0);
            if (0..groups).all(written) && (0..never).all(|j| stand(j) <= most[j] as usize) {
                let cost = (0..groups).filter(|&g| when[g] < never).map(|g| u32::from(at(g, when[g]))).sum();
                least = least.min(cost);
            }
        }
        let b = bound(&live.map(|l| l.to_vec()), &most);
        assert!(b <= f64::from(least) && b >= 0.8 * f64::from(least), "{b} of {least}");
    }
}
