//! Zones of deltas and delta nodes: any bytes, and valid ones with a few bytes changed under a correct checksum.

use format::delta::{self, Codec, codec};
use format::inode::{Inline, RawInode};
use format::node::delta as in_node;
use format::node::{self, Footer};
use format::superblock::Features;
use format::{BLOCK, Block, BlockAddr, Ino, Nid};

use super::{WILD, block, change};

const FEATURES: Features = Features::DELTA.union(Features::EXTRA_ATTR).union(Features::FLEXIBLE_INLINE_XATTR);
const CODECS: [Codec; 2] = [Codec::Runs, Codec::Lz4];

/// A page, and the same with a few bytes changed.
fn pages(n: u8) -> (Block, Block) {
    let base: Block = std::array::from_fn(|i| (i * 31 % 251) as u8 ^ n);
    let mut page = base;
    page.iter_mut().skip(usize::from(n)).step_by(700).for_each(|b| *b ^= 0x5A);
    (base, page)
}

/// Every payload is read without a panic; the difference of two pages gives the page again.
fn payload(bytes: &[u8]) {
    let (base, _) = pages(1);
    for c in CODECS {
        let _ = codec::decode(c, bytes, &base);
    }
    let page = {
        let mut page = base;
        change(&mut page, bytes);
        page
    };
    let mut out = Vec::new();
    if let Some(c) = codec::encode(&base, &page, in_node::LONGEST, &mut out) {
        assert!(out.len() <= in_node::LONGEST);
        assert!(codec::decode(c, &out, &base).is_some_and(|found| *found == page));
    }
}

/// An inode with eight addresses and a zone of three deltas.
fn with_zone() -> Block {
    let mut b = [0; BLOCK];
    let raw = RawInode::of_mut(&mut b);
    raw.i_mode = 0o100_644.into();
    raw.i_inline = Inline::EXTRA_ATTR.bits();
    raw.i_addr[0] = 36.into();
    let d = raw.divide(FEATURES).expect("lawful");
    (0..8).for_each(|slot| raw.set_addr(d, slot, BlockAddr(5000 + slot)));
    for slot in [0, 3, 7] {
        let (base, page) = pages(slot as u8);
        let mut payload = Vec::new();
        let codec = codec::encode(&base, &page, delta::LONGEST, &mut payload).expect("little differs");
        let d = raw.divide(FEATURES).expect("lawful");
        assert!(delta::insert(raw, d, &delta::Entry { slot, codec, check: slot, payload: &payload }));
    }
    b
}

/// Inodes of any bytes, and a valid one with changes: a valid zone stays valid under insertions and removals.
pub fn zones(bytes: &[u8]) {
    payload(bytes);
    let mut changed = with_zone();
    assert_eq!(delta::verify(RawInode::of(&changed), FEATURES), Ok(()));
    // Most bytes of a zone lie at the end of the words.
    change(&mut changed[348..4052], bytes);
    let mut at_end = with_zone();
    let end = 4052;
    change(&mut at_end[end - 160..end], bytes);
    for b in [block(bytes), changed, at_end] {
        let raw = RawInode::of(&b);
        let _ = (delta::root(raw, FEATURES), raw.has_zone(), raw.has_extent());
        let Ok(d) = raw.divide(FEATURES) else { continue };
        let lawful = delta::verify(raw, FEATURES).is_ok();
        let count = delta::entries(raw, d).count();
        for e in delta::entries(raw, d) {
            let _ = codec::decode(e.codec, e.payload, &pages(1).0);
            assert!(delta::find(raw, d, e.slot).is_some());
        }
        assert!(delta::room(raw, d) <= 4 * d.direct_slots() as usize);
        let mut bare = b;
        delta::clear(RawInode::of_mut(&mut bare), d);
        assert!(!RawInode::of(&bare).has_zone());
        // Only regular files with blocks get deltas.
        let inline = raw.inline().intersects(Inline::DATA | Inline::DENTRY);
        if !lawful || inline || raw.i_mode.get() >> 12 != 8 {
            continue;
        }
        let mut again = b;
        for slot in [0, 3, 7, 900] {
            let raw = RawInode::of_mut(&mut again);
            let d = raw.divide(FEATURES).expect("it was lawful");
            let entry = delta::Entry { slot, codec: Codec::Runs, check: 9, payload: &bytes[..bytes.len().min(255)] };
            if raw.addr(d, slot).is_real() && delta::insert(raw, d, &entry) {
                let d = raw.divide(FEATURES).expect("ours");
                assert_eq!(delta::find(raw, d, slot), Some(entry));
                assert_eq!(delta::verify(raw, FEATURES), Ok(()));
            }
        }
        let raw = RawInode::of_mut(&mut again);
        let d = raw.divide(FEATURES).expect("ours");
        assert!(delta::entries(raw, d).count() >= count);
        delta::drop_slots(raw, d, 0..u32::MAX);
        assert!(!raw.has_zone() && delta::verify(raw, FEATURES).is_ok());
    }
}

/// A root with two other nodes and three entries.
fn root() -> Block {
    let mut b = [0; BLOCK];
    let footer = Footer {
        nid: Nid(9),
        ino: Ino(7),
        cold: true,
        fsync: false,
        dentry: false,
        offset: in_node::FIRST_OFFSET,
        cp_ver: 1,
        next: BlockAddr(0),
    };
    node::set_footer(&mut b, &footer);
    in_node::init(&mut b);
    assert!(in_node::set_other(&mut b, 1, Nid(11)) && in_node::set_other(&mut b, 4, Nid(14)));
    for block in [0, 5, 1_000_000] {
        let (base, page) = pages(block as u8);
        let mut payload = Vec::new();
        let codec = codec::encode(&base, &page, in_node::LONGEST, &mut payload).expect("little differs");
        assert!(in_node::rewrite(
            &mut b,
            |_| true,
            &[in_node::Entry { block, codec, check: block, payload: &payload }]
        ));
    }
    b
}

/// Delta nodes of any bytes, and a valid one with changes, each under a correct checksum.
pub fn delta_nodes(bytes: &[u8]) {
    payload(bytes);
    let mut changed = root();
    in_node::seal(3, &mut changed);
    assert_eq!(in_node::verify(3, &changed), Ok(()));
    change(&mut changed[..200], bytes);
    for mut b in [block(bytes), changed] {
        in_node::seal(3, &mut b);
        let lawful = in_node::verify(3, &b).is_ok();
        let _ = (in_node::age(&b), in_node::stamp(&b), in_node::owner(&b), in_node::used(&b), in_node::capacity(&b));
        for e in in_node::entries(&b) {
            let _ = codec::decode(e.codec, e.payload, &pages(1).0);
            assert!(in_node::find(&b, e.block).is_some());
        }
        assert!(in_node::other_nodes(&b).all(|(n, nid)| (1..in_node::MOST_NODES).contains(&n) && nid != Nid(0)));
        if !lawful {
            continue;
        }
        let holds = |b: &mut Block| {
            in_node::seal(3, b);
            assert_eq!(in_node::verify(3, b), Ok(()));
        };
        let mut again = b;
        for n in [0, 1, 4, 30, 63, 64, usize::MAX] {
            let before = again;
            match in_node::set_other(&mut again, n, Nid(77)) {
                true => assert!(in_node::other_nodes(&again).any(|o| o == (n, Nid(77)))),
                false => assert!(again == before),
            }
            assert!(in_node::entries(&again).eq(in_node::entries(&b)));
            holds(&mut again);
        }
        for block in WILD {
            let new = in_node::Entry { block, codec: Codec::Lz4, check: 1, payload: &bytes[..bytes.len().min(900)] };
            let before = again;
            match in_node::rewrite(&mut again, |e| e.block != block, &[new]) {
                true => assert_eq!(in_node::find(&again, block), Some(new)),
                false => assert!(again == before),
            }
            holds(&mut again);
        }
        let mut other = root();
        if in_node::copy(&mut other, &again) {
            assert!(in_node::entries(&other).eq(in_node::entries(&again)));
            holds(&mut other);
        }
    }
}
