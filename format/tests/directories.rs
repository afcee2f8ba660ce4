//! A directory's area behaves as a map from names to inodes under any sequence of operations.

use std::collections::BTreeMap;

use format::dentry::{self, Layout};
use format::{BLOCK, bits, hash};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

#[derive(Debug, Clone)]
enum Step {
    Insert {
        name: Vec<u8>,
        ino: u32,
        kind: u8,
    },
    /// Removes the n-th existing name.
    Remove(usize),
    Redirect {
        nth: usize,
        ino: u32,
        kind: u8,
    },
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    // Few letters, so that names repeat; mostly short, sometimes of the maximum length.
    prop_oneof![vec(b'a'..=b'c', 1..4), vec(b'a'..=b'b', 1..40), vec(any::<u8>(), 1..=255)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (names(), 1..u32::MAX, 1..=7u8).prop_map(|(name, ino, kind)| Step::Insert { name, ino, kind }),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => (any::<usize>(), 1..u32::MAX, 1..=7u8)
            .prop_map(|(nth, ino, kind)| Step::Redirect { nth, ino, kind }),
    ]
}

/// The first run of `n` clear bits, the slow way.
fn first_run(l: &Layout, area: &[u8], n: usize) -> Option<usize> {
    let free = |i: usize| !bits::lsb_test(area, i);
    (0..(l.slots + 1).saturating_sub(n)).find(|&at| n > 0 && (at..at + n).all(free))
}

fn check(l: &Layout, area: &[u8], model: &BTreeMap<Vec<u8>, (u32, u8)>) {
    let listed: BTreeMap<_, _> = dentry::entries(l, area, 0).map(|d| (d.name.to_vec(), (d.ino, d.kind))).collect();
    assert_eq!(listed, *model);
    let used: usize = model.keys().map(|n| dentry::slots_for(n.len())).sum();
    assert_eq!(bits::count(&area[..l.bitmap_len()]) as usize, used);
    assert_eq!(dentry::is_empty(l, area), model.is_empty());
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(2), failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_area_is_a_map_from_names_to_inodes(
        bytes in prop_oneof![Just(BLOCK), Just(3488), 0..=3692usize],
        steps in vec(step(), 1..150),
    ) {
        let l = if bytes == BLOCK { Layout::BLOCK } else { Layout::inline(bytes) };
        let mut area = vec![0; bytes];
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert { name, ino, kind } => {
                    let h = hash::name_hash(&name);
                    let found = dentry::find(&l, &area, &name, h).map(|d| (d.ino, d.kind));
                    prop_assert_eq!(found, model.get(&name).copied());
                    let n = dentry::slots_for(name.len());
                    let room = dentry::free_run(&l, &area, n);
                    prop_assert_eq!(room, first_run(&l, &area, n));
                    if let (None, Some(slot)) = (found, room) {
                        dentry::insert(&l, &mut area, slot, &name, h, ino, kind);
                        let d = dentry::at(&l, &area, slot).unwrap();
                        prop_assert_eq!((d.slot, d.hash, d.name), (slot, h, &name[..]));
                        model.insert(name, (ino, kind));
                    }
                }
                Step::Remove(nth) if !model.is_empty() => {
                    let name = model.keys().nth(nth % model.len()).unwrap().clone();
                    let d = dentry::find(&l, &area, &name, hash::name_hash(&name)).unwrap();
                    let slot = d.slot;
                    dentry::remove(&l, &mut area, slot);
                    model.remove(&name);
                    prop_assert!(dentry::find(&l, &area, &name, hash::name_hash(&name)).is_none());
                }
                Step::Redirect { nth, ino, kind } if !model.is_empty() => {
                    let name = model.keys().nth(nth % model.len()).unwrap().clone();
                    let slot = dentry::find(&l, &area, &name, hash::name_hash(&name)).unwrap().slot;
                    dentry::redirect(&l, &mut area, slot, ino, kind);
                    model.insert(name, (ino, kind));
                }
                _ => {}
            }
            check(&l, &area, &model);
        }
    }

    #[test]
    fn room_is_the_first_run_of_free_slots_for_any_bitmap(
        bytes in prop_oneof![Just(BLOCK), 0..=3692usize],
        map in vec(prop_oneof![Just(0u8), Just(0xFF), any::<u8>()], 27),
        n in 0..=220usize,
    ) {
        let l = if bytes == BLOCK { Layout::BLOCK } else { Layout::inline(bytes) };
        let mut area = vec![0; bytes];
        let len = l.bitmap_len();
        area[..len].copy_from_slice(&map[..len]);
        prop_assert_eq!(dentry::free_run(&l, &area, n), first_run(&l, &area, n));
    }
}

#[test]
fn every_inline_area_is_divided_as_linux_divides_it() {
    for bytes in 0..=3692 {
        let l = Layout::inline(bytes);
        assert_eq!(l.slots, bytes * 8 / ((11 + 8) * 8 + 1), "{bytes}");
        assert_eq!(l.len(), bytes, "names end at the end");
        assert_eq!(l.names_at() - l.entries_at(), l.slots * 11);
        assert!(l.bitmap_len() <= l.entries_at());
    }
}

#[test]
fn buckets_double_with_every_level_until_their_limit() {
    assert_eq!((dentry::buckets(0, 0), dentry::buckets(5, 0), dentry::buckets(5, 3)), (1, 32, 256));
    assert_eq!(dentry::buckets(29, 0), 1 << 29);
    assert_eq!((dentry::buckets(30, 0), dentry::buckets(62, 255)), (1 << 30, 1 << 30));
    assert_eq!((dentry::bucket_blocks(30), dentry::bucket_blocks(31)), (2, 4));
}

#[test]
fn buckets_of_a_level_lie_behind_those_of_all_levels_before() {
    for dir_level in [0, 1, 7] {
        let mut end = 0;
        for level in 0..dentry::MAX_DEPTH {
            let n = dentry::buckets(level, dir_level);
            assert_eq!(dentry::bucket(level, dir_level, 0).start, end);
            let last = dentry::bucket(level, dir_level, (n - 1) as u32);
            end += n * dentry::bucket_blocks(level);
            assert_eq!(last.end, end);
            let wrapped = dentry::bucket(level, dir_level, n as u32);
            assert_eq!(wrapped, dentry::bucket(level, dir_level, 0));
        }
    }
}

#[test]
fn an_entry_that_does_not_fit_is_not_found() {
    let l = Layout::BLOCK;
    let mut area = [0u8; BLOCK];
    dentry::insert(&l, &mut area, 212, b"sixteen bytes ..", 5, 9, 1);
    assert!(dentry::find(&l, &area, b"sixteen bytes ..", 5).is_some());
    // With one byte more the name would need a slot that does not exist.
    area[l.entries_at() + 212 * 11 + 8] = 17;
    assert_eq!(dentry::at(&l, &area, 212), None);
    assert_eq!(dentry::entries(&l, &area, 0).count(), 0);
}
