//! The division of an inode's words, and the paths to a file's blocks, at every boundary.

use format::inode::{ADDRS_PER_INODE, Division, Inline, InodeFlags, RawInode};
use format::node::{self, NodeKind, Shape};
use format::superblock::Features;
use format::{BLOCK, Block, BlockAddr};

fn inode(extra: Option<u16>, xattr: u16, inline: Inline) -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    let raw = RawInode::of_mut(&mut block);
    raw.i_inline = inline.bits() | if extra.is_some() { Inline::EXTRA_ATTR.bits() } else { 0 };
    if let (Some(size), Some(e)) = (extra, raw.extra_mut()) {
        e.i_extra_isize = size.into();
        e.i_inline_xattr_size = xattr.into();
    }
    block
}

fn flexible() -> Features {
    Features::EXTRA_ATTR | Features::FLEXIBLE_INLINE_XATTR
}

/// Extra attributes, reserved word, inline area, addresses and inline xattrs follow one another in the order of the
/// format.
fn assert_tiles(d: Division) {
    let words = |r: std::ops::Range<usize>| (r.start - 360) / 4..(r.end - 360) / 4;
    assert_eq!(d.extra + d.direct_slots() + d.xattr, ADDRS_PER_INODE);
    assert!(d.direct_slots() >= 1);
    assert_eq!(words(d.xattr_area()), (ADDRS_PER_INODE - d.xattr) as usize..ADDRS_PER_INODE as usize);
    let inline = words(d.inline_area());
    assert_eq!(inline.start, d.extra as usize + 1, "one reserved word");
    assert_eq!(inline.len(), d.direct_slots() as usize - 1);
}

#[test]
fn every_lawful_division_tiles_the_923_words_and_every_other_is_refused() {
    for extra in 0..=80u16 {
        for xattr in 0..=1000u16 {
            let block = inode(Some(extra), xattr, Inline::XATTR);
            let lawful = extra % 4 == 0
                && (4..=36).contains(&extra)
                && u32::from(xattr) + u32::from(extra / 4) < ADDRS_PER_INODE;
            match RawInode::of(&block).divide(flexible()) {
                Ok(d) => {
                    assert!(lawful, "extra {extra}, xattr {xattr}");
                    assert_eq!((d.extra, d.xattr), (u32::from(extra / 4), xattr.into()));
                    assert_tiles(d);
                }
                Err(_) => assert!(!lawful, "extra {extra}, xattr {xattr}"),
            }
        }
    }
    let block = inode(Some(u16::MAX), u16::MAX, Inline::XATTR);
    assert!(RawInode::of(&block).divide(flexible()).is_err());
}

#[test]
fn without_flexible_inline_xattrs_50_words_are_theirs_if_an_inline_bit_says_so() {
    for (inline, want) in [
        (Inline::empty(), 0),
        (Inline::DATA, 0),
        (Inline::XATTR, 50),
        (Inline::DENTRY, 50),
        (Inline::XATTR | Inline::DATA, 50),
    ] {
        for features in [Features::empty(), Features::EXTRA_ATTR] {
            let block = inode(None, 0, inline);
            let d = RawInode::of(&block).divide(features).unwrap();
            assert_eq!((d.extra, d.xattr), (0, want), "{inline:?}");
            assert_tiles(d);
        }
        // The field is ignored without its feature.
        let block = inode(Some(36), 77, inline);
        let d = RawInode::of(&block).divide(Features::EXTRA_ATTR).unwrap();
        assert_eq!((d.extra, d.xattr), (9, want), "{inline:?}");
    }
}

#[test]
fn inline_areas_have_the_sizes_linux_gives_them() {
    let area = |extra, xattr| Division { extra, xattr, zone: 0 }.inline_area().len();
    assert_eq!((area(0, 50), area(9, 50), area(0, 0)), (3488, 3452, 3688));
}

#[test]
fn address_slots_end_where_inline_xattrs_begin() {
    for (extra, xattr) in [(0, 0), (0, 50), (9, 50), (9, 913), (6, 6)] {
        let d = Division { extra, xattr, zone: 0 };
        let mut block = Box::new([0xAA; BLOCK]);
        let raw = RawInode::of_mut(&mut block);
        for slot in [d.direct_slots(), d.direct_slots() + 1, ADDRS_PER_INODE, u32::MAX] {
            raw.set_addr(d, slot, BlockAddr(1));
            assert_eq!(raw.addr(d, slot), BlockAddr::NULL);
        }
        assert!(block.iter().all(|&b| b == 0xAA));
        let raw = RawInode::of_mut(&mut block);
        for slot in [0, d.direct_slots() - 1] {
            raw.set_addr(d, slot, BlockAddr(7 + slot));
            assert_eq!(raw.addr(d, slot), BlockAddr(7 + slot));
        }
        assert!(block[d.xattr_area()].iter().all(|&b| b == 0xAA));
        assert!(block[360..360 + 4 * extra as usize].iter().all(|&b| b == 0xAA));
    }
}

const N: u64 = 1018;

#[test]
fn the_way_to_a_block_changes_exactly_at_the_borders_of_the_tree() {
    for direct in [1u32, 864, 873, 923] {
        let d = u64::from(direct);
        let way = |i: u64| node::path(i, direct).map(|p| (p.depth, p.slots, p.offsets));
        assert_eq!(way(0), Some((0, [0; 4], [0; 3])));
        assert_eq!(way(d - 1), Some((0, [direct - 1, 0, 0, 0], [0; 3])));
        assert_eq!(way(d), Some((1, [0, 0, 0, 0], [1, 0, 0])));
        assert_eq!(way(d + N - 1), Some((1, [0, 1017, 0, 0], [1, 0, 0])));
        assert_eq!(way(d + N), Some((1, [1, 0, 0, 0], [2, 0, 0])));
        let first = d + 2 * N;
        assert_eq!(way(first - 1), Some((1, [1, 1017, 0, 0], [2, 0, 0])));
        assert_eq!(way(first), Some((2, [2, 0, 0, 0], [3, 4, 0])));
        assert_eq!(way(first + N), Some((2, [2, 1, 0, 0], [3, 5, 0])));
        let second = first + N * N;
        assert_eq!(way(second - 1), Some((2, [2, 1017, 1017, 0], [3, 4 + 1017, 0])));
        assert_eq!(way(second), Some((2, [3, 0, 0, 0], [4 + 1018, 5 + 1018, 0])));
        let double = second + N * N;
        assert_eq!(way(double - 1), Some((2, [3, 1017, 1017, 0], [4 + 1018, 5 + 1018 + 1017, 0])));
        let at = 5 + 2 * 1018;
        assert_eq!(way(double), Some((3, [4, 0, 0, 0], [at, at + 1, at + 2])));
        assert_eq!(way(double + N * N), Some((3, [4, 1, 0, 0], [at, at + 1 + 1019, at + 2 + 1019])));
        let end = double + N * N * N;
        let last = at + 1 + 1017 * 1019;
        assert_eq!(way(end - 1), Some((3, [4, 1017, 1017, 1017], [at, last, last + 1018])));
        assert_eq!((way(end), way(u64::MAX)), (None, None));
        assert_eq!(node::max_blocks(direct), end);
    }
}

#[test]
fn every_node_offset_names_one_node_and_no_offset_past_the_tree_names_any() {
    let last = 5 + 2 * 1018 + 1018 * 1019;
    let (mut direct, mut indirect, mut next) = (0u64, 0u32, 0u64);
    for offset in 1..=last {
        match node::kind_of(offset) {
            NodeKind::Direct { first } => {
                assert_eq!(first, next, "offset {offset}");
                let p = node::path(1 + first, 1).unwrap();
                assert_eq!(p.offsets[p.depth - 1], offset);
                next += N;
                direct += 1;
            }
            NodeKind::Indirect => indirect += 1,
            NodeKind::DoubleIndirect => assert_eq!(offset, 5 + 2 * 1018),
            other => panic!("offset {offset}: {other:?}"),
        }
    }
    assert_eq!((direct, indirect), (2 + 2 * N + N * N, 2 + 1018));
    assert_eq!(node::kind_of(0), NodeKind::Inode);
    assert_eq!(node::kind_of(node::XATTR_NODE_OFFSET), NodeKind::Xattr);
    for beyond in [last + 1, last + 2, node::XATTR_NODE_OFFSET - 1, u32::MAX] {
        assert_eq!(node::kind_of(beyond), NodeKind::Nothing);
    }
}

#[test]
fn nodes_of_compressed_files_hold_whole_clusters() {
    let features = Features::EXTRA_ATTR | Features::COMPRESSION;
    let compressed = |log: u8, mode: u16, extra: u16| {
        let mut block = inode(Some(extra), 0, Inline::XATTR);
        let raw = RawInode::of_mut(&mut block);
        raw.i_mode = mode.into();
        raw.i_flags = InodeFlags::COMPRESS.bits().into();
        raw.extra_mut().unwrap().i_log_cluster_size = log;
        block
    };
    for (log, direct_slots, per_node) in [(2, 864, 1016), (3, 864, 1016), (6, 832, 960), (8, 768, 768)] {
        let block = compressed(log, 0o100_644, 36);
        let shape = Shape { direct_slots, per_node };
        assert_eq!(RawInode::of(&block).shape(features), Ok(shape));
        assert_eq!(RawInode::of(&block).log_cluster(features), Ok(Some(log)));
        // The end of a node splits no cluster.
        let cluster = 1u64 << log;
        for index in (0..10_000).chain(shape.max_blocks() - 5000..shape.max_blocks()) {
            let (p, first) = (shape.path(index).unwrap(), shape.path(index - index % cluster).unwrap());
            assert_eq!(p.offsets, first.offsets);
            assert_eq!(u64::from(p.slots[p.depth]), u64::from(first.slots[p.depth]) + index % cluster);
        }
        assert_eq!(shape.path(shape.max_blocks()), None);
    }
    let plain = Ok(Shape::plain(864));
    let directory = compressed(2, 0o040_755, 36);
    assert_eq!(RawInode::of(&directory).shape(features), plain);
    let file = compressed(2, 0o100_644, 36);
    assert_eq!(RawInode::of(&file).shape(Features::EXTRA_ATTR), plain);
    let short = compressed(2, 0o100_644, 24);
    assert_eq!(RawInode::of(&short).shape(features), Ok(Shape::plain(867)));
    for log in [0, 1, 9, 255] {
        assert!(RawInode::of(&compressed(log, 0o100_644, 36)).shape(features).is_err());
    }
}

#[test]
fn every_offset_on_a_path_of_a_compressed_file_names_its_first_block() {
    let shape = Shape { direct_slots: 864, per_node: 1016 };
    for index in (864..shape.max_blocks()).step_by(1_000_003).chain(864..3_000_000) {
        let p = shape.path(index).unwrap();
        let NodeKind::Direct { first } = shape.kind_of(p.offsets[p.depth - 1]) else {
            panic!("block {index}: {p:?}");
        };
        assert_eq!(864 + first + u64::from(p.slots[p.depth]), index);
    }
}
