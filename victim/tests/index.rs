//! The index gives the policies the same answers as a scan of every candidate.

use std::collections::BTreeMap;

use format::SegNo;
use victim::Index;
use victim::plain::Plain;
use victim::{Among, Bounds, Candidate, View, end_of};

fn random(rng: &mut device::Rng, seg: u32, per: u32, seconds: u64) -> Candidate {
    let capacity = 512 * per;
    let valid = 1 + rng.below(u64::from(capacity) - 1) as u32;
    let held = valid + rng.below(u64::from(capacity - valid) + 1) as u32;
    let loose = rng.below(u64::from(capacity - valid) + 1) as u32;
    // Few values, so that equals occur.
    let f = rng.below(20) as u32 * 16_002;
    Candidate { seg: SegNo(seg), valid: valid / 40 * 40 + 1, held, mtime: rng.below(seconds), f, loose }
}

fn agree(index: &Index, plain: &Plain, end: u32, rng: &mut device::Rng) {
    assert_eq!(index.count(), plain.count());
    assert_eq!(index.last(), plain.last());
    for _ in 0..8 {
        let (a, b) = (SegNo(rng.below(u64::from(end) + 3) as u32), SegNo(rng.below(u64::from(end) + 200) as u32));
        assert_eq!(index.emptiest(a, b), plain.emptiest(a, b), "{a}..{b}");
        let most = rng.below(90) as usize + 1;
        let scanned = |view: &dyn View| {
            let mut out = Vec::new();
            view.scan(a, b, &mut |c| {
                out.push(c);
                out.len() < most
            });
            out
        };
        assert_eq!(scanned(index), scanned(plain));
        // A gain from fragments minus moved blocks, smaller for younger units.
        let (most, few) = (rng.below(3000), rng.below(5) + 1);
        let gain = |valid: u32, fragments: u32, loose: u32, mtime: u64| {
            let lost = u64::from(valid) / 8 * few + mtime * few + u64::from(loose.min(200)) / 4;
            (u64::from(fragments) * 9 + most).saturating_sub(lost)
        };
        let limit = |b: &Bounds| gain(b.valid.0, b.fragments.1.min(4096), b.loose.0, b.mtime.0);
        let gain = |c: &Candidate, fragments: u32| gain(c.valid, fragments, c.loose, c.mtime);
        assert_eq!(index.most_gained(&limit, &gain), plain.most_gained(&limit, &gain));
        for kind in Among::ALL {
            let mtime = rng.below(130);
            for cut in [end_of(mtime), (mtime, a)] {
                assert_eq!(index.count_to(kind, cut), plain.count_to(kind, cut));
            }
            let n = rng.below(u64::from(plain.count()) + 2) as u32;
            assert_eq!(index.nth_oldest(kind, n), plain.nth_oldest(kind, n));
            let range = n..n + rng.below(300) as u32;
            assert_eq!(index.range_of_f(kind, range.clone()), plain.range_of_f(kind, range.clone()));
            let walked = |view: &dyn View| {
                let mut out = Vec::new();
                view.by_age(kind, range.clone(), &mut |c| out.push(c));
                out
            };
            assert_eq!(walked(index), walked(plain));
            let rank =
                |c: &Candidate| [u64::from(c.f / 50_000) * 3 + (600 - u64::from(c.valid / 40).min(600)), 0, 0, 0];
            assert_eq!(index.best(kind, end_of(mtime), &rank), plain.best(kind, end_of(mtime), &rank));
            let held = |c: &Candidate| [c.held.into(), 0, 0, 0];
            let limit = |b: &Bounds| [b.held.1.into(), 0, 0, 0];
            let found = |view: &dyn View| view.search(kind, range.clone(), &limit, &held);
            assert_eq!(found(index), found(plain));
        }
    }
}

fn life_of_an_index(end: u32, per: u32, seconds: u64, seed: u64) {
    let mut rng = device::Rng::new(seed);
    let mut index = Index::new(end, per);
    let mut truth: BTreeMap<u32, Candidate> = BTreeMap::new();
    for round in 0..60 {
        let growing = round % 20 < 12;
        for _ in 0..rng.below(u64::from(end / per) / 4 + 1) {
            let seg = rng.below(u64::from(end / per)) as u32 * per;
            if rng.chance(if growing { 3 } else { 1 }, 4) {
                let c = random(&mut rng, seg, per, seconds);
                index.set(c.seg, Some(c));
                truth.insert(seg, c);
            } else {
                index.set(SegNo(seg), None);
                truth.remove(&seg);
            }
        }
        if round % 4 == 3 || round < 3 {
            let plain = Plain::new(per, truth.values().copied().collect());
            agree(&index, &plain, end, &mut rng);
        }
    }
    for seg in truth.keys() {
        index.set(SegNo(*seg), None);
    }
    agree(&index, &Plain::new(per, Vec::new()), end, &mut rng);
}

#[test]
fn an_index_shows_what_a_look_at_everything_shows() {
    life_of_an_index(3000, 1, 120, 1);
    life_of_an_index(130, 1, 5, 2);
    life_of_an_index(64, 1, 100, 3);
    life_of_an_index(1, 1, 100, 4);
}

#[test]
fn sections_of_several_segments_and_a_single_second_make_no_difference() {
    life_of_an_index(4 * 700, 4, 90, 5);
    life_of_an_index(2000, 1, 1, 6);
}

#[test]
fn many_units_make_no_difference() {
    let mut rng = device::Rng::new(9);
    let end = 40_000;
    let mut index = Index::new(end, 1);
    let mut truth = BTreeMap::new();
    for (round, share) in [(0, 4), (1, 4), (2, 4), (3, 1), (4, 0), (5, 4)] {
        for _ in 0..30_000 {
            let seg = rng.below(end.into()) as u32;
            // First growing ages, as logs write; at the end any.
            let c = random(&mut rng, seg, 1, if round < 2 { 130 } else { 20 });
            let c = Candidate { mtime: c.mtime + if round == 5 { 0 } else { round * 5 }, ..c };
            let c = rng.chance(share, 4).then_some(c);
            index.set(SegNo(seg), c);
            truth.remove(&seg);
            truth.extend(c.map(|c| (seg, c)));
        }
        agree(&index, &Plain::new(1, truth.values().copied().collect()), end, &mut rng);
    }
}

#[test]
fn what_lies_outside_the_volume_is_not_entered() {
    let mut index = Index::new(100, 2);
    let c = Candidate { seg: SegNo(0), valid: 3, held: 3, mtime: 1, f: 0, loose: 0 };
    index.set(SegNo(128), Some(c));
    index.set(SegNo(3), Some(c));
    assert_eq!((index.count(), index.last()), (0, None));
    index.set(SegNo(98), Some(c));
    assert_eq!(index.last(), Some(SegNo(98)));
}
