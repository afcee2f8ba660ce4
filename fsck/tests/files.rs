//! Damage to nodes, block maps, inodes and attributes is found, named and repaired.

use format::inode::{Inline, RawInode};
use format::node::{self, Footer};
use format::{BLOCK, BlockAddr, Ino, Nid};
use fsck::{Action, FindingKind as K, NodeFault, Referrer, XattrFault};

use crate::rig::{FEATURES, Volume, volume};

/// Direct node number `k` of `big`.
fn direct(v: &Volume, k: usize) -> (Ino, Nid) {
    let ino = v.ino("big");
    (ino, RawInode::of(&v.node(ino.nid())).nid(k))
}

#[test]
fn a_node_the_nat_has_lost_is_found_again_by_its_footer() {
    let v = volume(&[]);
    let (ino, nid) = direct(&v, 1);
    let addr = v.nat(nid).addr;
    v.edit_nat(nid, |e| e.addr = BlockAddr::NULL);
    let done = v.finds_and_repairs(|k| {
        matches!(k, K::NodeUnusable { nid: n, fault: NodeFault::Unmapped, from: Referrer::Index(s) }
            if *n == nid && s.ino == ino)
    });
    assert_eq!(done.actions, [Action::NodeFound { nid, addr }]);
}

#[test]
fn each_fault_of_a_node_is_a_different_finding() {
    let wrong = |change: &dyn Fn(&Volume, Nid), fault: &dyn Fn(NodeFault) -> bool| {
        let v = volume(&[]);
        let (_, nid) = direct(&v, 1);
        change(&v, nid);
        v.finds_and_repairs(|k| matches!(k, K::NodeUnusable { fault: f, .. } if fault(*f)));
    };
    wrong(&|v, nid| v.edit_nat(nid, |e| e.addr = BlockAddr(7)), &|f| f == NodeFault::Outside { addr: BlockAddr(7) });
    wrong(
        &|v, nid| {
            v.edit_node(nid, |b| {
                let f = node::footer(b);
                node::set_footer(b, &Footer { nid: Nid(f.nid.0 ^ 64), ..f });
            })
        },
        &|f| matches!(f, NodeFault::FooterNid { .. }),
    );
    wrong(
        &|v, nid| {
            v.edit_node(nid, |b| {
                let f = node::footer(b);
                node::set_footer(b, &Footer { ino: Ino(f.ino.0 ^ 64), ..f });
            })
        },
        &|f| matches!(f, NodeFault::FooterIno { .. }),
    );
    let to = |f: fn(&Volume, Nid) -> Nid| {
        move |v: &Volume, nid: Nid| {
            let other = f(v, nid);
            v.edit_inode(v.ino("big"), |raw| raw.i_nid[1] = other.0.into());
        }
    };
    wrong(&to(|_, _| Nid(u32::MAX)), &|f| f == NodeFault::OutOfRange);
    wrong(&to(|v, _| direct(v, 0).1), &|f| f == NodeFault::Twice);
}

#[test]
fn a_node_whose_pointer_was_damaged_is_put_back() {
    for k in [1, 2] {
        let v = volume(&[]);
        let (ino, nid) = direct(&v, k);
        v.edit_inode(ino, |raw| raw.i_nid[k] = 60_000.into());
        let done = v.finds_and_repairs(|k| matches!(k, K::NodeUnusable { nid: Nid(60_000), .. }));
        assert!(done.actions.contains(&Action::NodeAttached { ino, nid }), "{:?}", done.actions);
        assert_eq!(done.after.counts, volume(&[]).check().counts);
    }
}

#[test]
fn two_nodes_in_one_block_are_distinguished_by_its_footer() {
    let v = volume(&[]);
    let (_, nid) = direct(&v, 1);
    let tiny = v.ino("tiny").nid();
    let theirs = v.nat(tiny).addr;
    v.edit_nat(nid, |e| e.addr = theirs);
    v.finds_and_repairs(|k| matches!(k, K::NodeUnusable { fault: NodeFault::FooterNid { .. }, .. }));
}

#[test]
fn an_inode_block_that_a_file_claims_as_data_stays_an_inode() {
    let v = volume(&[]);
    // `mid` comes before `tiny` in its directory, so it claims the block first.
    let (mid, tiny) = (v.ino("mid"), v.ino("tiny"));
    let meant = v.addr(mid, 0);
    let bytes = v.read(meant);
    let addr = v.nat(tiny.nid()).addr;
    let division = v.division(mid);
    v.edit_inode(mid, |raw| raw.set_addr(division, 0, addr));
    v.finds_and_repairs(
        |k| matches!(k, K::NodeUnusable { fault: NodeFault::BlockTaken { .. }, nid, .. } if *nid == tiny.nid()),
    );
    assert_eq!(v.check().counts, volume(&[]).check().counts);
    let v = Volume::of(v.dev);
    assert!(v.read(v.addr(mid, 0)) == bytes, "the file has its block again");
}

#[test]
fn a_mode_of_no_type_is_mended_by_the_name() {
    let v = volume(&[]);
    let ino = v.ino("tiny");
    v.edit_inode(ino, |raw| raw.i_mode = (raw.i_mode.get() & 0o7777).into());
    v.finds_and_repairs(|k| matches!(k, K::NodeUnusable { fault: NodeFault::Mode { .. }, .. }));
    let v = Volume::of(v.dev);
    assert_eq!(RawInode::of(&v.node(ino.nid())).i_mode.get() & 0o170_000, 0o100_000);
}

#[test]
fn a_wrong_place_in_the_node_tree_is_found() {
    let v = volume(&[]);
    let (ino, nid) = direct(&v, 1);
    v.edit_node(nid, |b| {
        let f = node::footer(b);
        node::set_footer(b, &Footer { offset: 9, ..f });
    });
    v.finds_and_repairs(|k| *k == K::NodeOffsetWrong { ino, nid, stored: 9, is: 2 });
}

#[test]
fn an_address_outside_the_main_area_is_replaced_by_the_block_that_was_meant() {
    let v = volume(&[]);
    let (ino, nid) = direct(&v, 1);
    let meant = BlockAddr(node::word(&v.node(nid), 10));
    v.edit_node(nid, |b| node::set_word(b, 10, 0x8000_0000 | meant.0));
    let done = v.finds_and_repairs(|k| matches!(k, K::AddrOutside { at, .. } if at.nid == nid && at.index == 10));
    assert!(
        done.actions.iter().any(|a| matches!(a, Action::DataFound { addr, at } if *addr == meant && at.ino == ino))
    );
}

#[test]
fn a_block_of_two_files_is_copied_for_the_second() {
    let v = volume(&[]);
    let (a, b) = (v.ino("mid"), v.ino("other"));
    let shared = v.addr(a, 2);
    let division = v.division(b);
    let lost = v.addr(b, 1);
    v.edit_inode(b, |raw| raw.set_addr(division, 1, shared));
    // No record of the lost block's owner is left.
    let (seg, off) = v.sb.locate(lost).unwrap();
    v.edit_sit(seg, |e| {
        format::bits::msb_put(&mut e.valid_map, off.into(), false);
        e.vblocks = (e.vblocks.get() - 1).into();
    });
    let bytes = v.read(shared);
    let done = v.finds_and_repairs(|k| matches!(k, K::BlockTaken { addr, .. } if *addr == shared));
    assert!(done.actions.iter().any(|x| matches!(x, Action::BlockCopied { .. })), "{:?}", done.actions);
    let v = Volume::of(v.dev);
    assert_ne!(v.addr(a, 2), v.addr(b, 1));
    assert!(v.read(v.addr(a, 2)) == bytes && v.read(v.addr(b, 1)) == bytes);
}

#[test]
fn a_cluster_mark_in_a_plain_file_is_found() {
    let v = volume(&[]);
    let ino = v.ino("mid");
    let division = v.division(ino);
    v.edit_inode(ino, |raw| raw.set_addr(division, 1, BlockAddr::COMPRESS));
    v.finds_and_repairs(|k| matches!(k, K::ClusterMark { at } if at.ino == ino && at.index == 1));
}

#[test]
fn one_flipped_bit_of_an_inode_with_a_checksum_is_turned_back() {
    let v = volume(FEATURES);
    let ino = v.ino("mid");
    let addr = v.nat(ino.nid()).addr;
    let good = v.read(addr);
    v.edit(addr, |b| b[17] ^= 0x10);
    let done = v.finds_and_repairs(|k| matches!(k, K::InodeChecksum { ino: i, .. } if *i == ino));
    assert!(done.actions.contains(&Action::BitRestored { ino }));
    let v = Volume::of(v.dev);
    assert_eq!(v.node(ino.nid())[..368], good[..368]);
}

#[test]
fn extra_attributes_of_an_impossible_size_are_found() {
    let v = volume(FEATURES);
    let ino = v.ino("mid");
    v.edit(v.nat(ino.nid()).addr, |b| b[360] ^= 0x40);
    let done = v.finds_and_repairs(|k| matches!(k, K::InodeBad { ino: i, .. } if *i == ino));
    assert!(done.actions.contains(&Action::BitRestored { ino }));
}

#[test]
fn each_sum_of_an_inode_is_compared_with_what_is_counted() {
    type Change = fn(&mut RawInode);
    type What = fn(&K) -> bool;
    let cases: [(&str, Change, What); 7] = [
        ("mid", |r| r.i_blocks = 99.into(), |k| matches!(k, K::BlocksWrong { stored: 99, .. })),
        ("mid", |r| r.i_links = 3.into(), |k| matches!(k, K::LinksWrong { stored: 3, counted: 1, .. })),
        ("twice", |r| r.i_links = 1.into(), |k| matches!(k, K::LinksWrong { stored: 1, counted: 2, .. })),
        ("many", |r| r.i_links = 7.into(), |k| matches!(k, K::LinksWrong { stored: 7, counted: 2, .. })),
        ("mid", |r| r.i_namelen = 300.into(), |k| matches!(k, K::NameLenBad { len: 300, .. })),
        ("mid", |r| r.i_ext = [0.into(), 5.into(), 4.into()], |k| matches!(k, K::ExtentWrong { len: 4, .. })),
        ("mid", |r| r.i_pino = 9.into(), |k| matches!(k, K::ParentWrong { stored: Ino(9), .. })),
    ];
    for (name, change, what) in cases {
        let v = volume(&[]);
        let ino = v.ino(name);
        v.edit_inode(ino, change);
        v.finds(what);
        v.repairs();
    }
}

#[test]
fn inline_flags_and_fields_that_contradict_the_file_are_found() {
    let v = volume(&[]);
    let (mid, bit) = (v.ino("mid"), Inline::DENTRY.bits());
    v.edit_inode(mid, |r| r.i_inline |= bit);
    v.finds_and_repairs(|k| matches!(k, K::InlineWrong { ino, stored, is } if *ino == mid && stored ^ is == bit));

    let tiny = v.ino("tiny");
    let inline = |v: &Volume| RawInode::of(&v.node(tiny.nid())).inline();
    let v = volume(&[]);
    assert!(inline(&v).contains(Inline::DATA | Inline::DATA_EXIST), "tiny is inline");
    v.edit_inode(tiny, |r| r.i_size = 100_000.into());
    v.finds_and_repairs(|k| matches!(k, K::InlineTooLong { size: 100_000, .. }));

    let v = volume(&[]);
    let division = v.division(tiny);
    v.edit_inode(tiny, |r| r.set_addr(division, 0, BlockAddr(8)));
    v.finds_and_repairs(|k| matches!(k, K::InlineReserved { value: 8, .. }));

    let v = volume(&[]);
    v.edit_inode(tiny, |r| r.i_inline &= !Inline::DATA_EXIST.bits());
    v.finds_and_repairs(|k| matches!(k, K::InlineUnmarked { .. }));
}

#[test]
fn extra_attributes_on_a_volume_without_them_are_a_flipped_flag() {
    let v = volume(&[]);
    let ino = v.ino("mid");
    v.edit_inode(ino, |r| r.i_inline |= Inline::EXTRA_ATTR.bits());
    v.finds_and_repairs(|k| matches!(k, K::InlineMisplaced { what: "attributes (extra)", .. }));
    assert_eq!(v.check().counts, volume(&[]).check().counts);
}

#[test]
fn a_symbolic_link_with_a_block_but_no_size_is_found() {
    let v = volume(&[]);
    let ino = v.ino("mid");
    // A link with its target in a block: a text file whose type was changed.
    let block = v.addr(ino, 0);
    v.edit(block, |b| {
        b.fill(0);
        b[..6].copy_from_slice(b"target");
    });
    let (at, slot, _) = v.entry(v.sb.root, "mid");
    v.edit(at, |b| format::dentry::redirect(&format::dentry::Layout::BLOCK, b, slot, ino.0, 7));
    v.edit_inode(ino, |r| {
        r.i_mode = 0o120_777.into();
        r.i_size = 0.into();
    });
    v.finds_and_repairs(|k| *k == K::SymlinkEmpty { ino });
    let v = Volume::of(v.dev);
    assert_eq!(RawInode::of(&v.node(ino.nid())).i_size.get(), 6);
}

#[test]
fn a_symbolic_link_is_cut_before_a_nul_byte_and_becomes_a_file_if_nothing_is_before_it() {
    for (target, at, is) in [(&b"to\0here"[..], 2, 7), (b"\0to", 0, 1)] {
        for name in ["mid", "tiny"] {
            let v = volume(&[]);
            let ino = v.ino(name);
            if name == "tiny" {
                let area = v.division(ino).inline_area();
                v.edit_node(ino.nid(), |b| b[area][..target.len()].copy_from_slice(target));
            } else {
                v.edit(v.addr(ino, 0), |b| b[..target.len()].copy_from_slice(target));
            }
            let (place, slot, _) = v.entry(v.sb.root, name);
            v.edit(place, |b| format::dentry::redirect(&format::dentry::Layout::BLOCK, b, slot, ino.0, 7));
            v.edit_inode(ino, |r| {
                r.i_mode = 0o120_777.into();
                r.i_size = (target.len() as u64).into();
            });
            v.finds_and_repairs(|k| *k == K::SymlinkNul { ino, at });
            let v = Volume::of(v.dev);
            let node = v.node(ino.nid());
            let raw = RawInode::of(&node);
            let size = if at == 0 { target.len() } else { at };
            assert_eq!(raw.i_size.get(), size as u64, "{name}");
            assert_eq!(raw.i_mode.get() & 0o170_000 == 0o120_000, is == 7, "{name}: {:#o}", raw.i_mode.get());
            let (place, slot, _) = v.entry(v.sb.root, name);
            let block = v.read(place);
            let entry = format::dentry::entries(&format::dentry::Layout::BLOCK, &block, slot).next().unwrap();
            assert_eq!(entry.kind, is, "{name}");
        }
    }
}

#[test]
fn saved_blocks_of_a_compressed_file_are_counted() {
    let v = volume(FEATURES);
    let ino = v.ino("mid");
    v.edit_inode(ino, |r| {
        r.i_flags = 4.into();
        if let Some(x) = r.extra_mut() {
            x.i_log_cluster_size = 2;
            x.i_compr_blocks = 5.into();
        }
    });
    v.finds_and_repairs(|k| *k == K::ComprBlocksWrong { ino, stored: 5, counted: 0 });
}

/// Gives an inode inline attributes with these bytes.
fn xattrs(v: &Volume, ino: Ino, list: &[u8]) {
    v.edit_inode(ino, |r| r.i_inline |= Inline::XATTR.bits());
    let area = v.division(ino).xattr_area();
    v.edit_node(ino.nid(), |b| {
        let area = &mut b[area];
        area.fill(0);
        area[..4].copy_from_slice(&0xF2F5_2011u32.to_le_bytes());
        area[4..8].copy_from_slice(&1u32.to_le_bytes());
        area[24..24 + list.len()].copy_from_slice(list);
    });
}

#[test]
fn attribute_lists_are_followed_to_their_end() {
    let entry = [1, 1, 2, 0, b'a', b'v', b'v', 0];
    let tiny = |v: &Volume| v.ino("tiny");

    let v = volume(&[]);
    xattrs(&v, tiny(&v), &entry);
    assert!(v.check().is_clean(), "{}", v.check());

    let v = volume(&[]);
    xattrs(&v, tiny(&v), &[&entry[..], &[0; 8], &[7]].concat());
    v.finds_and_repairs(|k| matches!(k, K::XattrBad { fault: XattrFault::StaleTail { at: 32 }, .. }));

    let v = volume(&[]);
    xattrs(&v, tiny(&v), &[&entry[..], &[1, 1, 0xFF, 0xFF, b'b']].concat());
    let done = v.finds_and_repairs(|k| matches!(k, K::XattrBad { fault: XattrFault::Overrun { at: 32, .. }, .. }));
    assert!(done.actions.contains(&Action::XattrsCut { ino: tiny(&v) }));
}

/// Linux answers reads from the extent in the inode: a stale one exposes blocks that now belong to another file.
#[test]
fn an_extent_that_the_addresses_do_not_bear_out_is_an_error_and_is_cleared() {
    let v = volume(&[]);
    let ino = v.ino("mid");
    let first = v.addr(ino, 0);
    let run = (1..12).take_while(|i| v.addr(ino, *i) == first.plus(*i)).count() as u32 + 1;
    assert!(run > 3, "sload.f2fs writes in order");
    let with = |from: u32, addr: u32, len: u32| {
        let v = volume(&[]);
        v.edit_inode(ino, |r| r.i_ext = [from.into(), addr.into(), len.into()]);
        v
    };
    let right = [(0, 0, run), (0, 0, 1), (2, 2, run - 2)];
    for (from, off, len) in right {
        let v = with(from, first.0 + off, len);
        assert!(v.check().is_clean(), "{from} {off} {len}: {}", v.check());
    }
    // One block too long, one block off, the blocks from before a rewrite, past every file, around the end of 32
    // bits.
    let wrong = [
        (0, first.0, 100),
        (0, first.0 + 1, run - 1),
        (1, first.0, run - 1),
        (0, v.addr(v.ino("other"), 0).0, 2),
        (u32::MAX - 1, first.0, 4),
        (0, u32::MAX - 1, 4),
    ];
    for (from, addr, len) in wrong {
        let v = with(from, addr, len);
        v.finds_and_repairs(|k| matches!(k, K::ExtentWrong { ino: bad, .. } if *bad == ino));
        let after = Volume::of(v.dev);
        assert_eq!(RawInode::of(&after.node(ino.nid())).i_ext.map(|w| w.get())[2], 0);
    }
    // A stale extent in a file whose contents moved into its inode.
    let v = volume(&[]);
    let tiny = v.ino("tiny");
    v.edit_inode(tiny, |r| r.i_ext = [0.into(), first.0.into(), 1.into()]);
    v.finds_and_repairs(|k| matches!(k, K::ExtentWrong { ino, .. } if *ino == tiny));
}

/// No kernel accepts such a size, so the file could be neither read nor removed.
#[test]
fn a_size_that_no_file_can_have_is_found_and_set_to_the_end_of_what_is_there() {
    for (name, size) in [("many", u64::MAX), ("many", 1 << 50), ("big", 1 << 63), ("mid", u64::MAX - 4095)] {
        let v = volume(&[]);
        let ino = v.ino(name);
        let was = RawInode::of(&v.node(ino.nid())).i_size.get();
        v.edit_inode(ino, |raw| raw.i_size = size.into());
        v.finds_and_repairs(|k| matches!(k, K::SizeTooLarge { ino: at, .. } if *at == ino));
        let v = Volume::of(v.dev.fork());
        assert_eq!(RawInode::of(&v.node(ino.nid())).i_size.get(), was.next_multiple_of(BLOCK as u64), "{name}");
    }
}

#[test]
fn attributes_that_do_not_begin_as_such_are_found_and_kept() {
    let v = volume(&["extra_attr", "inode_checksum"]);
    let ino = v.ino("mid");
    let area = v.division(ino).xattr_area();
    v.edit_node(ino.nid(), |b| {
        RawInode::of_mut(b).i_inline |= Inline::XATTR.bits();
        b[area.start] = 7;
        b[area.start + 24..area.start + 32].copy_from_slice(&[1, 1, 1, 0, b'n', b'v', 0, 0]);
    });
    v.finds_and_repairs(|k| matches!(k, K::XattrBad { fault: XattrFault::Magic { stored: 7 }, .. }));
    let node = Volume::of(v.dev.fork()).node(ino.nid());
    assert_eq!(node[area.start..area.start + 4], format::xattr::MAGIC.to_le_bytes());
    assert_eq!(node[area.start + 28..area.start + 30], *b"nv");
}
