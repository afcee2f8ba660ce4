//! References to a file's delta nodes: a root, a list, footers, the NAT. If one of them is wrong, no delta is lost.

use format::delta::{MARK, set_root};
use format::inode::RawInode;
use format::node::delta::{FIRST_OFFSET, set_other};
use format::node::{self, Footer};
use format::{BlockAddr, Nid};
use fsck::{Action, FindingKind as K, NodeFault, Referrer};

use crate::delta_rig::{self, Fixture, nat_edit, page};

/// A direct node of `a`.
fn direct(f: &Fixture) -> Nid {
    RawInode::of(&f.places.node(&f.dev, f.a.nid())).nid(0)
}

fn unusable(f: &Fixture, number: usize, wanted: impl Fn(NodeFault) -> bool) -> impl Fn(&K) -> bool {
    let ino = f.a;
    move |k| {
        matches!(k, K::NodeUnusable { from: Referrer::Delta { ino: i, number: n }, fault, .. }
            if *i == ino && *n == number && wanted(*fault))
    }
}

#[test]
fn a_root_that_leads_elsewhere_is_led_back() {
    type Case = (fn(&Fixture) -> Nid, fn(NodeFault) -> bool);
    let cases: [Case; 5] = [
        (direct, |f| matches!(f, NodeFault::NoDeltaNode { .. })),
        (|f| f.other[0], |f| matches!(f, NodeFault::FooterIno { .. })),
        (|_| Nid(u32::MAX), |f| f == NodeFault::OutOfRange),
        (|_| Nid(2), |f| f == NodeFault::OutOfRange),
        (|_| Nid(400), |f| f == NodeFault::Unmapped),
    ];
    for (to, fault) in cases {
        let f = Fixture::new();
        let nid = to(&f);
        f.forge_inode(|raw| set_root(raw, Some(nid)));
        f.finds(unusable(&f, 0, fault));
        let done = f.repairs(&[]);
        assert!(done.contains(&Action::NodeAttached { ino: f.a, nid: f.nids[0] }), "{done:?}");
        f.holds(&[]);
    }
}

#[test]
fn a_root_that_is_one_of_the_other_delta_nodes_is_led_back() {
    let f = Fixture::new();
    f.forge_inode(|raw| set_root(raw, Some(f.nids[2])));
    f.finds(|k| matches!(k, K::NodeOffsetWrong { .. }));
    f.repairs(&[]);
    f.holds(&[]);
}

#[test]
fn unlisted_delta_nodes_are_reattached() {
    let f = Fixture::new();
    f.forge_inode(|raw| set_root(raw, None));
    f.finds(|k| matches!(k, K::Unreachable { .. }));
    f.repairs(&[]);
    f.holds(&[]);

    let f = Fixture::new();
    f.forge(0, |b| assert!(set_other(b, 1, Nid(0))));
    f.finds(|k| matches!(k, K::Unreachable { nid, .. } if *nid == f.nids[1]));
    f.repairs(&[]);
    f.holds(&[]);
}

#[test]
fn an_unlisted_and_unreadable_delta_node_is_freed_and_reported() {
    let f = Fixture::new();
    f.forge(0, |b| assert!(set_other(b, 1, Nid(0))));
    f.places.edit(&f.dev, f.nids[1], false, |b| b[4060..4064].fill(0x33));
    let done = f.repairs(&[None]);
    assert!(done.contains(&Action::NodeDropped { nid: f.nids[1], ino: f.a }), "{done:?}");
    f.holds(&[(2, delta_rig::changed(1, 2, 2)), (4, page(1, 4))]);
}

#[test]
fn a_list_that_leads_elsewhere_is_mended() {
    for (number, to, given_up) in [
        (1, Nid(u32::MAX), &[][..]),
        (1, Nid(400), &[]),
        (5, Nid(3), &[]),
        // It is unknown whether there was a node with this index.
        (9, Nid(400), &[None]),
    ] {
        let f = Fixture::new();
        f.forge(0, |b| assert!(set_other(b, number, to)));
        f.finds(unusable(&f, number, |_| true));
        f.repairs(given_up);
        f.holds(&[]);
    }
    let f = Fixture::new();
    let direct = direct(&f);
    f.forge(0, |b| assert!(set_other(b, 9, direct)));
    f.finds(unusable(&f, 9, |f| matches!(f, NodeFault::NoDeltaNode { .. })));
    f.repairs(&[None]);
    f.holds(&[]);
}

#[test]
fn a_delta_node_named_twice_is_named_once() {
    for (number, of) in [(9, 1), (1, 2), (5, 1), (9, 0)] {
        let f = Fixture::new();
        f.forge(0, |b| assert!(set_other(b, number, f.nids[of])));
        assert!(!f.check().is_clean());
        f.repairs(&[]);
        f.holds(&[]);
    }
}

#[test]
fn a_wrong_place_in_a_delta_nodes_footer_is_mended() {
    for offset in [FIRST_OFFSET + 7, FIRST_OFFSET, 0, 1, FIRST_OFFSET + 64, node::XATTR_NODE_OFFSET] {
        for k in 0..3 {
            let f = Fixture::new();
            f.forge(k, |b| {
                let footer = node::footer(b);
                node::set_footer(b, &Footer { offset, ..footer });
            });
            if offset != FIRST_OFFSET || k != 0 {
                f.finds(|k| matches!(k, K::NodeOffsetWrong { .. }));
            }
            f.repairs(&[]);
            f.holds(&[]);
        }
    }
}

#[test]
fn a_delta_node_that_the_nat_has_lost_is_found_by_its_footer() {
    for k in 0..3 {
        let f = Fixture::new();
        nat_edit(&f.dev, &f.places, f.nids[k], |e| e.addr = BlockAddr(0));
        f.finds(unusable(&f, [0, 1, 5][k], |fault| fault == NodeFault::Unmapped));
        f.repairs(&[]);
        f.holds(&[]);
    }
}

#[test]
fn an_inode_that_can_have_no_delta_nodes_loses_its_mark_alone() {
    let f = Fixture::new();
    let root = f.places.sb.root;
    f.places.edit(&f.dev, root.nid(), true, |b| RawInode::of_mut(b).i_ext = [5000.into(), MARK.into(), 0.into()]);
    f.finds(|k| matches!(k, K::ZoneBad { ino, .. } if *ino == root));
    let done = fsck::repair(&f.dev, &fsck::Options::default()).unwrap();
    assert_eq!(done.actions, [Action::DeltasGivenUp { ino: root, block: None }]);
    f.repairs(&[]);
    f.holds(&[]);
}
