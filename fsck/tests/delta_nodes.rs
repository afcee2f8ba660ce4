//! Deltas in delta nodes: each fault is found and repaired with the least loss, and losses are reported.

use device::{BlockDevice, Lba, Tag};
use format::inode::RawInode;
use format::node::delta;
use format::node::kept::{self, KEPT};
use fsck::{Action, FindingKind as K};
use judges::damage::block;

use crate::delta_rig::{Fixture, changed, page};

#[test]
fn lawful_delta_nodes_are_no_finding_and_count_as_nodes_of_their_file() {
    let f = Fixture::new();
    let report = f.check();
    assert!(report.is_clean() && report.findings.is_empty(), "{report}");
    f.holds(&[]);
    f.places.edit(&f.dev, f.a.nid(), true, |b| {
        let raw = RawInode::of_mut(b);
        raw.i_blocks = (raw.i_blocks.get() - 1).into();
    });
    f.finds(|k| matches!(k, K::BlocksWrong { ino, .. } if *ino == f.a));
    f.repairs(&[]);
    f.holds(&[]);
}

#[test]
fn empty_delta_nodes_are_lawful() {
    let f = Fixture::new();
    f.forge(1, |b| assert!(delta::rewrite(b, |_| false, &[])));
    assert!(f.check().findings.is_empty(), "{}", f.check());
    f.holds(&[(4, page(1, 4))]);
}

#[test]
fn one_flipped_bit_of_a_delta_node_is_turned_back() {
    for k in 0..3 {
        let f = Fixture::new();
        f.places.edit(&f.dev, f.nids[k], false, |b| b[130] ^= 4);
        f.finds(|k| matches!(k, K::DeltaNodeBad { .. }));
        let done = f.repairs(&[]);
        assert!(done.contains(&Action::BitRestored { ino: f.a }), "{done:?}");
        f.holds(&[]);
    }
}

#[test]
fn a_delta_node_that_cannot_be_read_is_dropped_and_its_blocks_are_named() {
    let f = Fixture::new();
    f.places.edit(&f.dev, f.nids[2], false, |b| b[4060..4064].fill(0x33));
    f.finds(|k| matches!(k, K::DeltaNodeBad { nid, .. } if *nid == f.nids[2]));
    let done = f.repairs(&[None, Some(2), Some(3000)]);
    assert!(done.contains(&Action::NodeDropped { nid: f.nids[2], ino: f.a }), "{done:?}");
    f.holds(&[(2, changed(1, 2, 1)), (3000, page(1, 3000))]);
}

#[test]
fn a_root_that_cannot_be_read_costs_its_own_deltas_and_not_those_of_the_nodes_that_it_names() {
    let f = Fixture::new();
    f.places.edit(&f.dev, f.nids[0], false, |b| b[4060..4064].fill(0x33));
    f.finds(|k| matches!(k, K::DeltaNodeBad { nid, .. } if *nid == f.nids[0]));
    f.repairs(&[None, Some(1), Some(1000)]);
    f.holds(&[(1, page(1, 1)), (1000, page(1, 1000))]);
}

#[test]
fn a_delta_that_does_not_fit_its_base_is_given_up_with_older_ones_for_its_block() {
    let f = Fixture::new();
    // The check of the first entry, which is for block 2.
    f.forge(2, |b| b[48 + 8] ^= 1);
    f.finds(|k| matches!(k, K::DeltaWrong { block: 2, .. }));
    f.repairs(&[Some(2)]);
    f.holds(&[(2, page(1, 2))]);
}

#[test]
fn a_delta_that_no_longer_counts_may_be_wrong() {
    let f = Fixture::new();
    f.forge(1, |b| b[48 + 8] ^= 1);
    assert!(f.check().findings.is_empty(), "{}", f.check());
    f.holds(&[]);
}

#[test]
fn a_base_that_changed_below_a_direct_node_is_found() {
    let f = Fixture::new();
    let base = f.places.base(&f.dev, f.a, 3000);
    let mut bytes = block(&f.dev, base.0.into());
    bytes[9] ^= 1;
    f.dev.write(Lba(base.0.into()), &bytes[..], Tag::default()).unwrap();
    f.finds(|k| matches!(k, K::DeltaWrong { block: 3000, .. }));
    f.repairs(&[Some(3000)]);
    f.holds(&[(3000, bytes.to_vec())]);
}

#[test]
fn a_delta_of_a_hole_is_found_and_goes() {
    for block in [7_u32, 900, 2000, 1_000_000, KEPT - 1] {
        let f = Fixture::new();
        f.forge(0, |b| {
            let e = delta::Entry { block, codec: format::delta::Codec::Runs, check: 5, payload: &[] };
            assert!(delta::rewrite(b, |_| true, &[e]));
        });
        f.finds(|k| matches!(k, K::DeltaWithoutBase { block: b, .. } if *b == block));
        f.repairs(&[None]);
        f.holds(&[]);
    }
}

#[test]
fn a_block_made_of_a_kept_page_that_is_not_there_is_found_and_goes() {
    let f = Fixture::new();
    let parts = [kept::Part { id: 9, from: 0, len: 4096 }];
    let payload = kept::encode_parts(&parts, format::delta::Codec::Runs, &[]);
    f.forge(0, |b| {
        let e = delta::Entry { block: 3, codec: format::delta::Codec::Parts, check: 5, payload: &payload };
        // A kept page that no block uses and whose base is missing is harmless.
        let lost = kept::encode_head(7, Some(3), &[]);
        let lost = delta::Entry { block: KEPT + 5, codec: format::delta::Codec::Runs, check: 5, payload: &lost };
        assert!(delta::rewrite(b, |old| old.block != 3, &[e, lost]));
    });
    f.finds(|k| matches!(k, K::DeltaWrong { block: 3, .. }));
    f.repairs(&[Some(3)]);
    f.holds(&[]);
}

#[test]
fn a_block_with_a_delta_in_the_inode_and_one_in_a_node_keeps_the_one_that_fits() {
    let mut small = page(1, 4);
    small[9] ^= 9;
    for wrong in [false, true] {
        let f = Fixture::new();
        f.put_in_zone(4, &small, wrong);
        f.finds(|k| matches!(k, K::DeltaTwice { block: 4, .. }));
        f.repairs(&[Some(4)]);
        let kept = if wrong { changed(1, 4, 1) } else { small.clone() };
        f.holds(&[(4, kept)]);
    }
}

#[test]
fn of_two_nodes_of_one_age_the_first_counts() {
    let f = Fixture::new();
    f.forge(2, |b| delta::set_age(b, 2));
    // The second node's entry for block 2 is superseded, so it may be wrong.
    f.forge(2, |b| b[48 + 8] ^= 1);
    assert!(f.check().findings.is_empty(), "{}", f.check());
    f.forge(1, |b| b[48 + 8] ^= 1);
    f.finds(|k| matches!(k, K::DeltaWrong { block: 2, .. }));
}

#[test]
fn a_root_without_room_for_its_list_gives_up_its_oldest_deltas() {
    let f = Fixture::new();
    let generation = RawInode::of(&f.places.node(&f.dev, f.a.nid())).i_generation.get();
    let wide = |index: u32, bytes: usize| {
        let mut out = page(1, index);
        out[1000..1000 + bytes].iter_mut().for_each(|b| *b ^= 1);
        out
    };
    let pages = [(0, wide(0, 800)), (1, wide(1, 800)), (3, wide(3, 800)), (5, wide(5, 800)), (1000, wide(1000, 540))];
    let encoded: Vec<_> = pages
        .iter()
        .map(|(index, to)| {
            let base = block(&f.dev, f.places.base(&f.dev, f.a, *index).0.into());
            let to: &format::Block = to[..].try_into().unwrap();
            let mut payload = Vec::new();
            let codec = format::delta::codec::encode(&base, to, delta::LONGEST, &mut payload).unwrap();
            (*index, codec, format::delta::check(f.places.seed(), f.a, generation, *index, to), payload)
        })
        .collect();
    f.forge(0, |b| {
        let entries: Vec<delta::Entry<'_>> = encoded
            .iter()
            .map(|(block, codec, check, payload)| delta::Entry { block: *block, codec: *codec, check: *check, payload })
            .collect();
        assert!(delta::rewrite(b, |_| false, &entries));
        assert!(delta::used(b) > delta::ROOT_CAPACITY);
    });
    f.finds(|k| matches!(k, K::DeltaNodeBad { nid, .. } if *nid == f.nids[0]));
    f.repairs(&[Some(0)]);
    f.holds(&pages[1..]);
}
