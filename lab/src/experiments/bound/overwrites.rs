//! Which blocks of a file are overwritten, and when?
//!
//! A percentage of the file's blocks is hot, and a percentage of the overwrites hits them; within each class all blocks
//! are equally likely. Hot and cold blocks are interleaved, as in a phone's databases. Left out on purpose: the data
//! written, and the volume.

use std::collections::BTreeSet;

use device::Rng;

use super::Parameters;

/// The file's blocks in order, then batch after batch; each batch is sorted and has no block twice.
pub(super) struct Overwrites {
    /// Blocks of the file.
    pub blocks: u32,
    /// The blocks overwritten between two syncs.
    pub batches: Vec<Vec<u32>>,
}

/// Whether a block is hot. Multiples of the golden ratio are spread evenly, so each part of a file has its share.
pub(super) fn is_hot(block: u32, percent: u64) -> bool {
    u64::from(block.wrapping_mul(0x9e37_79b1) >> 16) % 100 < percent
}

impl Overwrites {
    /// Draws all batches. Each overwrite draws its class first, then a block of that class: redrawing both until they
    /// fit would give both classes the same share, whatever their percentages.
    pub fn draw(p: &Parameters, blocks: u32, rng: &mut Rng) -> Overwrites {
        let (hot, cold) = (0..blocks).partition(|b| is_hot(*b, p.hot_percent));
        let classes: [Vec<u32>; 2] = [hot, cold];
        let size = u64::from(p.batch_blocks.clamp(1, blocks / 4 + 1));
        let mut left = u64::from(blocks) * p.overwrite_percent / 100;
        let mut batches = Vec::new();
        while left > 0 {
            let size = size.min(left);
            left -= size;
            batches.push(batch(&classes, p.hot_writes_percent, size, rng));
        }
        Overwrites { blocks, batches }
    }
}

/// Draws `size` different blocks from both classes, which together have more.
fn batch(classes: &[Vec<u32>; 2], hot_percent: u64, size: u64, rng: &mut Rng) -> Vec<u32> {
    let (mut batch, mut taken) = (BTreeSet::new(), [0, 0]);
    for _ in 0..size {
        let wanted = usize::from(rng.below(100) >= hot_percent);
        // If one class is used up, use the other.
        let class = if taken[wanted] < classes[wanted].len() { wanted } else { 1 - wanted };
        while !batch.insert(classes[class][rng.index(classes[class].len())]) {}
        taken[class] += 1;
    }
    batch.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANS: [&str; 2] = [
        include_str!("../../../../experiments/gc-bound/plan.toml"),
        include_str!("../../../../scripts/demo-plan/plan.toml"),
    ];

    fn planned(plan: &str) -> Parameters {
        let plan: toml::Table = plan.parse().unwrap();
        let mut parameters = plan["parameters"].as_table().unwrap().clone();
        parameters.retain(|name, _| !["volume_mib", "state"].contains(&name));
        parameters.try_into().unwrap()
    }

    /// A share in percent.
    fn share(part: usize, all: usize) -> f64 {
        100.0 * part as f64 / all as f64
    }

    #[test]
    fn of_the_overwrites_as_many_are_hot_and_of_the_blocks_as_many_as_the_plans_say() {
        for (plan, blocks) in PLANS.iter().zip([740_000, 66_000]) {
            let p = planned(plan);
            let work = Overwrites::draw(&p, blocks, &mut Rng::new(1));
            let hot = (0..blocks).filter(|b| is_hot(*b, p.hot_percent)).count();
            let of_blocks = share(hot, blocks as usize);
            assert!((of_blocks - p.hot_percent as f64).abs() < 0.2, "{of_blocks:.2} % of the blocks are hot");
            let all: Vec<u32> = work.batches.concat();
            let of_writes = share(all.iter().filter(|b| is_hot(**b, p.hot_percent)).count(), all.len());
            // Three standard deviations of 66,000 draws are 0.47 points.
            let planned = p.hot_writes_percent as f64;
            assert!((of_writes - planned).abs() < 0.5, "{of_writes:.2} % of the overwrites are hot, not {planned}");
        }
    }

    #[test]
    fn as_many_blocks_are_overwritten_as_the_plans_say() {
        for (plan, blocks) in PLANS.iter().zip([740_000, 66_000]) {
            let p = planned(plan);
            let work = Overwrites::draw(&p, blocks, &mut Rng::new(1));
            let drawn: usize = work.batches.iter().map(Vec::len).sum();
            assert_eq!(drawn as u64, u64::from(blocks) * p.overwrite_percent / 100);
            let (_, full) = work.batches.split_last().unwrap();
            assert!(full.iter().all(|b| b.len() == p.batch_blocks as usize));
            assert!(work.batches.iter().all(|b| b.is_sorted_by(|x, y| x < y)), "a block twice, or out of order");
        }
    }

    #[test]
    fn within_a_class_every_block_is_as_likely_as_any_other_and_hot_lie_beside_cold() {
        let p = planned(PLANS[0]);
        let (blocks, tenths) = (200_000u32, 10);
        let work = Overwrites::draw(&p, blocks, &mut Rng::new(2));
        let all: Vec<u32> = work.batches.concat();
        for hot in [true, false] {
            let of: Vec<u32> = all.iter().copied().filter(|b| is_hot(*b, p.hot_percent) == hot).collect();
            for tenth in 0..tenths {
                let within = of.iter().filter(|b| **b / (blocks / tenths) == tenth).count();
                let found = share(within, of.len());
                assert!((found - 10.0).abs() < 0.6, "hot {hot}: {found:.2} % in tenth {tenth}");
            }
        }
        let longest = (0..blocks).collect::<Vec<_>>();
        let runs = longest.chunk_by(|a, b| is_hot(*a, p.hot_percent) == is_hot(*b, p.hot_percent));
        let (hot, cold): (Vec<&[u32]>, Vec<&[u32]>) = runs.partition(|run| is_hot(run[0], p.hot_percent));
        let most = |runs: &[&[u32]]| runs.iter().map(|r| r.len()).max().unwrap();
        assert!(most(&hot) <= 2 && most(&cold) <= 11, "runs of {} hot and {} cold blocks", most(&hot), most(&cold));
    }

    #[test]
    fn where_a_class_is_used_up_the_other_takes_its_place() {
        let p = Parameters { batch_blocks: 4096, ..planned(PLANS[0]) };
        // A quarter of the file in a batch, a fifth of the file hot: all hot blocks are four fifths of the batch.
        let work = Overwrites::draw(&p, 4000, &mut Rng::new(3));
        assert_eq!(work.batches[0].len(), 1001);
        let p = Parameters { hot_percent: 10, ..p };
        let hot = (0..4000).filter(|b| is_hot(*b, 10)).count();
        let work = Overwrites::draw(&p, 4000, &mut Rng::new(3));
        assert!(work.batches.iter().all(|batch| batch.iter().filter(|b| is_hot(**b, 10)).count() == hot));
        let p = Parameters { hot_percent: 0, ..p };
        assert_eq!(Overwrites::draw(&p, 4000, &mut Rng::new(3)).batches[0].len(), 1001);
    }
}
