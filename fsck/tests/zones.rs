//! The zone of deltas in an inode: its mark is restored if the zone is intact, and no word of it becomes an
//! address.

use format::BlockAddr;
use format::delta::{self, MARK};
use format::inode::{Inline, RawInode};
use format::node::delta as in_node;
use fsck::{Action, FindingKind as K};

use crate::delta_rig::{Fixture, changed, page};

/// A page with a delta that fits a zone.
fn small(index: u32) -> Vec<u8> {
    let mut out = page(1, index);
    out[1234] ^= 0x77;
    out
}

/// A fixture with deltas of blocks 0 and 3 in the zone of `a`.
fn with_zone() -> (Fixture, u32) {
    let f = Fixture::new();
    for slot in [0, 3] {
        f.put_in_zone(slot, &small(slot), false);
    }
    let inode = f.places.node(&f.dev, f.a.nid());
    let words = RawInode::of(&inode).divide(f.places.sb.features).unwrap().zone;
    assert!(f.check().findings.is_empty(), "{}", f.check());
    f.holds(&[(0, small(0)), (3, small(3))]);
    (f, words)
}

#[test]
fn a_wrong_mark_of_a_zone_costs_nothing() {
    let marks: [fn(u32) -> [u32; 3]; 8] = [
        |_| [0, MARK + 1, 0],
        |words| [0, MARK + words + 5, 0],
        |words| [0, MARK + words - 1, 0],
        |_| [0, MARK + 600, 0],
        |_| [0, u32::MAX, 0],
        |_| [0, 0, 0],
        |_| [0, 77, 0],
        |words| [0, MARK + words, 9],
    ];
    for (n, mark) in marks.into_iter().enumerate() {
        let (f, words) = with_zone();
        f.forge_inode(|raw| {
            let [_, mark, length] = mark(words);
            (raw.i_ext[1], raw.i_ext[2]) = (mark.into(), length.into());
        });
        f.finds(|k| matches!(k, K::ZoneBad { ino, .. } if *ino == f.a));
        let done = f.repairs(&[]);
        assert!(done.iter().all(|a| matches!(a, Action::Mended { .. } | Action::NodeAttached { .. })), "{n}: {done:?}");
        f.holds(&[(0, small(0)), (3, small(3))]);
    }
}

#[test]
fn no_word_of_a_zone_that_is_given_up_becomes_an_address() {
    let (f, _) = with_zone();
    // Its words are addresses of the other file's blocks, and its trailer is invalid.
    let theirs: Vec<u32> = [0, 1, 2, 3, 4, 5].map(|index| f.places.base(&f.dev, f.b, index).0).to_vec();
    f.forge_inode(|raw| {
        let d = raw.divide(f.places.sb.features).unwrap();
        let end = d.extra + d.direct_slots();
        let words = raw.i_addr[(end - d.zone) as usize..end as usize].iter_mut();
        words.zip(theirs.iter().cycle()).for_each(|(word, addr)| *word = (*addr).into());
        raw.i_ext[1] = (MARK + 1).into();
    });
    f.finds(|k| matches!(k, K::ZoneBad { ino, .. } if *ino == f.a));
    let done = f.repairs(&[None]);
    assert!(done.is_empty(), "{done:?}");
    f.holds(&[]);
}

#[test]
fn a_mark_that_is_too_long_costs_no_address() {
    // Everything in the zone is wrong except its mark, which covers the file's addresses.
    let (f, _) = with_zone();
    f.forge_inode(|raw| {
        let d = raw.divide(f.places.sb.features).unwrap();
        let end = (d.extra + d.direct_slots()) as usize;
        raw.i_addr[end - 2] = 0.into();
        raw.i_ext[1] = (MARK + d.direct_slots() - 2).into();
    });
    f.finds(|k| matches!(k, K::ZoneBad { ino, .. } if *ino == f.a));
    f.repairs(&[None]);
    f.holds(&[]);
}

#[test]
fn a_damaged_mark_is_no_reason_to_divide_an_inode_anew() {
    let (f, _) = with_zone();
    let size = |f: &Fixture| {
        let inode = f.places.node(&f.dev, f.a.nid());
        RawInode::of(&inode).extra().unwrap().i_inline_xattr_size.get()
    };
    // Valid sizes that differ from the root directory's. The blocks below direct nodes are now different ones of
    // the file.
    f.forge(0, |b| assert!(in_node::rewrite(b, |e| e.block < 1000, &[])));
    f.forge(2, |b| assert!(in_node::rewrite(b, |e| e.block < 1000, &[])));
    f.forge_inode(|raw| {
        let features = f.places.sb.features;
        let d = raw.divide(features).unwrap();
        delta::clear(raw, d);
        raw.extra_mut().unwrap().i_inline_xattr_size = 60.into();
    });
    for slot in [0, 3] {
        f.put_in_zone(slot, &small(slot), false);
    }
    assert!(f.check().findings.is_empty(), "{}", f.check());
    let at = u64::from(f.places.nat(&f.dev, f.a.nid()).addr.0);
    let mut inode = judges::damage::block(&f.dev, at);
    RawInode::of_mut(&mut inode).i_ext[1] = (MARK + 0x7FFF).into();
    device::BlockDevice::write(&f.dev, device::Lba(at), &inode[..], device::Tag::default()).unwrap();
    f.finds(|k| matches!(k, K::InodeChecksum { ino, .. } if *ino == f.a));
    let done = fsck::repair(&f.dev, &fsck::Options::default()).unwrap().actions;
    assert!(!done.iter().any(|a| matches!(a, Action::ExtraReset { .. })), "{done:?}");
    let f = Fixture { places: judges::delta_nodes::Places::of(&f.dev), ..f };
    assert_eq!(size(&f), 60);
    f.repairs(&[]);
    for (index, page) in [(0, small(0)), (1, changed(1, 1, 1)), (2, changed(1, 2, 2)), (3, small(3)), (5, page(1, 5))] {
        assert!(f.page_of(f.a, index) == page, "block {index}");
    }
}

#[test]
fn a_file_with_a_zone_that_says_it_is_inline_keeps_its_blocks() {
    let (f, _) = with_zone();
    f.forge_inode(|raw| raw.i_inline |= Inline::DATA.bits());
    f.finds(|k| matches!(k, K::InlineWrong { ino, .. } if *ino == f.a));
    f.repairs(&[]);
    f.holds(&[(0, small(0)), (3, small(3))]);
}

#[test]
fn a_base_that_is_found_again_keeps_its_delta() {
    for wrong in [|_: &Fixture| 7, |f: &Fixture| f.places.base(&f.dev, f.b, 0).0] {
        let (f, _) = with_zone();
        let to = wrong(&f);
        f.forge_inode(|raw| {
            let d = raw.divide(f.places.sb.features).unwrap();
            raw.move_addr(d, 0, BlockAddr(to));
        });
        assert!(!f.check().is_clean());
        f.repairs(&[]);
        f.holds(&[(0, small(0)), (3, small(3))]);
    }
}
