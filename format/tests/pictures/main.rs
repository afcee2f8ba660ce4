//! The pictures in docs/deltas.md match the code. Each shows blocks that the code itself encoded. The position of a
//! field is found by changing it and comparing bytes; the start of an area comes from the code's functions.
//! `JOULEFS_RENEW=1 cargo test -p joulefs-format --test together pictures::` redraws them.

mod svg;

use std::ops::Range;
use std::path::Path;

use format::inode::delta::{self, codec};
use format::inode::{ADDR_OFFSET, Division, Inline, RawInode};
use format::node::delta as in_node;
use format::node::{self, Footer, kept};
use format::superblock::Features;
use format::{Block, BlockAddr, Ino, Nid};
use std::mem::offset_of;
use svg::{Ink, Picture};

type Area = (Range<usize>, Ink, String);
type Field = (Option<Range<usize>>, Ink, String);

const SEED: u32 = 7;

/// The range from the first to the last byte in which two blocks of equal length differ.
fn differing(a: &[u8], b: &[u8]) -> Range<usize> {
    let differs = |i: &usize| a[*i] != b[*i];
    let first = (0..a.len()).find(differs).expect("something differs");
    let last = (0..a.len()).rev().find(differs).expect("something differs");
    first..last + 1
}

fn features() -> Features {
    Features::DELTA | Features::EXTRA_ATTR | Features::FLEXIBLE_INLINE_XATTR
}

/// An inode as written by `joulefs mkfs`, of a file with `blocks` blocks.
fn inode(blocks: u32) -> Box<Block> {
    let mut block = Box::new([0; 4096]);
    let raw = RawInode::of_mut(&mut block);
    raw.i_mode = 0o100_644.into();
    raw.i_inline = (Inline::EXTRA_ATTR | Inline::XATTR).bits();
    if let Some(extra) = raw.extra_mut() {
        extra.i_extra_isize = format::inode::EXTRA_FULL.into();
        extra.i_inline_xattr_size = (format::inode::DEFAULT_INLINE_XATTR as u16).into();
    }
    let d = raw.divide(features()).unwrap();
    for slot in 0..blocks {
        raw.set_addr(d, slot, BlockAddr(5000 + slot));
    }
    block
}

fn division(block: &Block) -> Division {
    RawInode::of(block).divide(features()).unwrap()
}

/// The zone's bytes: between the address slots and the attributes.
fn zone(block: &Block) -> Range<usize> {
    let d = division(block);
    let end = d.xattr_area().start;
    end - 4 * d.zone as usize..end
}

fn put(block: &mut Block, entry: &delta::Entry<'_>) {
    let d = division(block);
    assert!(delta::insert(RawInode::of_mut(block), d, entry));
    delta::verify(RawInode::of(block), features()).unwrap();
}

/// A database page with `changed` bytes that differ from its base, and the encoded difference.
fn small_change(changed: usize, limit: usize) -> (codec::Codec, Vec<u8>) {
    let mut base = [0; 4096];
    base.iter_mut().enumerate().for_each(|(i, b)| *b = (i * i / 64) as u8);
    let mut page = base;
    for i in 0..changed {
        page[600 + i + i / 12 * 40] ^= 0x5A;
    }
    let mut payload = Vec::new();
    let codec = codec::encode(&base, &page, limit, &mut payload).unwrap();
    (codec, payload)
}

/// The fields of an entry in a zone, by their names.
fn zone_fields() -> Vec<Field> {
    let of = |slot, codec, check, payload: &[u8]| {
        let mut block = inode(800);
        put(&mut block, &delta::Entry { slot, codec, check, payload });
        let end = zone(&block).end - delta::TRAILER;
        block[end - delta::HEADER - payload.len()..end].to_vec()
    };
    let zeroes = [0; 16];
    let plain = of(0, codec::Codec::Runs, 0, &zeroes);
    let slot = differing(&plain, &of(771, codec::Codec::Runs, 0, &zeroes));
    let codec = differing(&plain, &of(0, codec::Codec::Lz4, 0, &zeroes));
    let check = differing(&plain, &of(0, codec::Codec::Runs, u32::MAX, &zeroes));
    let payload = differing(&plain, &of(0, codec::Codec::Runs, 0, &[255; 16]));
    let longer = of(0, codec::Codec::Runs, 0, &[0; 200]);
    let length = differing(&longer[..delta::HEADER], &plain[..delta::HEADER]);
    assert_eq!((payload.start, payload.len()), (delta::HEADER, 16));
    let ink = Ink::Delta(0);
    vec![
        (Some(slot.start..codec.end), ink, "slot,\ncodec".into()),
        (Some(length.clone()), ink, "length".into()),
        (Some(length.end..check.start), ink, "0".into()),
        (Some(check), ink, "check of\nthe page".into()),
        (None, Ink::Delta(1), format!("payload,\nup to {}", delta::LONGEST)),
    ]
}

fn trailer_fields() -> Vec<Field> {
    let of = |entries: &[(u32, &[u8])]| {
        let mut block = inode(800);
        for (slot, payload) in entries {
            put(&mut block, &delta::Entry { slot: *slot, codec: codec::Codec::Runs, check: 0, payload });
        }
        let zone = &block[zone(&block)];
        zone[zone.len() - delta::TRAILER..].to_vec()
    };
    // The same number of entries with more bytes, and more entries with the same number of bytes.
    let used = differing(&of(&[(0, &[0; 2])]), &of(&[(0, &[0; 200])]));
    let count = differing(&of(&[(0, &[0; 20])]), &of(&[(0, &[0; 6]), (1, &[0; 6])]));
    let used = used.start..count.start;
    let all = of(&[(0, &[])]);
    assert!(all[count.end] != 0 && all[count.end + 1..].iter().all(|b| *b == 0), "the version is behind the count");
    vec![
        (Some(used), Ink::Head, "bytes used".into()),
        (Some(count.clone()), Ink::Head, "entries".into()),
        (Some(count.end..count.end + 1), Ink::Head, "version".into()),
        (Some(count.end + 1..delta::TRAILER), Ink::Head, "0".into()),
    ]
}

fn inode_with_deltas() -> String {
    let mut block = inode(500);
    let mut zones = Vec::new();
    let sizes = [30, 9, 80, 4, 45];
    for (n, changed) in sizes.into_iter().enumerate() {
        let (codec, payload) = small_change(changed, delta::LONGEST);
        put(&mut block, &delta::Entry { slot: 40 + 90 * n as u32, codec, check: 0x1234_5678, payload: &payload });
    }
    let (d, area) = (division(&block), zone(&block));
    // The entries end where the trailer begins, the oldest lowest.
    let mut end = area.end - delta::TRAILER;
    let entries: Vec<_> = delta::entries(RawInode::of(&block), d).collect();
    for (n, e) in entries.iter().enumerate().rev() {
        let from = end - delta::HEADER - e.payload.len();
        zones.push((from..end, Ink::Delta(n), format!("delta of slot {}: {} bytes", e.slot, end - from)));
        end = from;
    }
    zones.reverse();
    let at = |slot: u32| ADDR_OFFSET + 4 * (d.extra + slot) as usize;
    let mut areas: Vec<Area> = vec![
        (0..ADDR_OFFSET, Ink::Plain, "mode, size, times, name; i_ext, the mark".into()),
        (ADDR_OFFSET..at(0), Ink::Plain, "extra attributes".into()),
        (at(0)..at(500), Ink::Address, "addresses of 500 blocks, growing ->".into()),
        (at(500)..zones[0].0.start, Ink::Free, "free; the zone grows <-".into()),
    ];
    let trailer = area.end - delta::TRAILER..area.end;
    areas.extend(zones);
    areas.push((trailer, Ink::Head, "trailer of the zone".into()));
    areas.push((d.xattr_area(), Ink::Other, "extended attributes".into()));
    areas.push((d.xattr_area().end..node::FOOTER, Ink::Plain, "numbers of the nodes below".into()));
    areas.push((node::FOOTER..4096, Ink::Plain, "footer".into()));
    let mut p = Picture::new("An inode with five deltas");
    p.line("title", "An inode with five deltas");
    p.line(
        "small",
        &format!("Each row {} bytes. The zone has {} of the 923 words, as many as its entries need.", 256, d.zone),
    );
    p.map(&areas);
    p.line("title", "An entry");
    p.bar(&zone_fields());
    p.line("title", "The trailer");
    p.bar(&trailer_fields());
    p.line("title", &format!("The mark: i_ext, bytes {}..{} of the inode", offset_of!(RawInode, i_ext), ADDR_OFFSET));
    let before = inode(500);
    let mark = offset_of!(RawInode, i_ext);
    let changed = differing(&before[mark..ADDR_OFFSET], &block[mark..ADDR_OFFSET]);
    let mut with_root = block.clone();
    delta::set_root(RawInode::of_mut(&mut with_root), Some(Nid(0x0102_0304)));
    let root = differing(&with_root[mark..ADDR_OFFSET], &block[mark..ADDR_OFFSET]);
    assert_eq!(RawInode::of(&block).i_ext[1].get(), delta::MARK + d.zone);
    p.bar(&[
        (Some(root), Ink::Head, "first delta\nnode, or 0".into()),
        (Some(changed.clone()), Ink::Head, format!("{:#X} +\nwords of the zone", delta::MARK)),
        (Some(changed.end..ADDR_OFFSET - mark), Ink::Head, "0".into()),
    ]);
    p.finish()
}

/// An empty delta node of this number.
fn empty_node(number: u32) -> Box<Block> {
    let mut block = Box::new([0; 4096]);
    let ino = Ino(10);
    let offset = in_node::FIRST_OFFSET + number;
    node::set_footer(
        &mut block,
        &Footer {
            nid: Nid(11 + number),
            ino,
            offset,
            fsync: true,
            dentry: false,
            cp_ver: 5,
            next: BlockAddr(9),
            ..footer()
        },
    );
    in_node::init(&mut block);
    block
}

fn footer() -> Footer {
    node::footer(&[0; 4096])
}

fn filled(number: u32, entries: &[in_node::Entry<'_>]) -> Box<Block> {
    let mut block = empty_node(number);
    assert!(in_node::rewrite(&mut block, |_| false, entries));
    in_node::seal(SEED, &mut block);
    in_node::verify(SEED, &block).unwrap();
    block
}

/// Positions of the entries of a node, in order.
fn places(block: &Block) -> Vec<Range<usize>> {
    let mut at = node::FOOTER - in_node::capacity(block);
    let one = |e: in_node::Entry<'_>| {
        let from = at;
        at += e.bytes();
        from..at
    };
    let all: Vec<_> = in_node::entries(block).map(one).collect();
    assert_eq!(all.last().map_or(0, |r| r.end) - all.first().map_or(0, |r| r.start), in_node::used(block));
    all
}

fn head_fields() -> Vec<Field> {
    let e = |block, payload| in_node::Entry { block, codec: codec::Codec::Runs, check: 0, payload };
    let head = |b: &Block| b[..node::FOOTER - in_node::CAPACITY].to_vec();
    let empty = empty_node(0);
    let change = |f: &dyn Fn(&mut Block)| {
        let mut b = empty.clone();
        f(&mut b);
        differing(&head(&empty), &head(&b))
    };
    let sum = change(&|b| in_node::seal(SEED, b));
    let of = |entries: &[in_node::Entry<'_>]| {
        let mut b = empty.clone();
        assert!(in_node::rewrite(&mut b, |_| false, entries));
        head(&b)
    };
    let used = differing(&of(&[e(0, &[0; 2])]), &of(&[e(0, &[0; 900])]));
    // Twice the number of entries with the same number of bytes.
    let count = differing(&of(&[e(0, &[0; 32])]), &of(&[e(0, &[0; 10]), e(1, &[0; 10])]));
    let version = {
        let mut before = empty.clone();
        before[..node::FOOTER].fill(0);
        differing(&head(&before), &head(&empty))
    };
    let others = change(&|b| assert!(in_node::set_other(b, 1, Nid(0))));
    let age = change(&|b| in_node::set_age(b, 0x0102_0304));
    let of = |size, time| in_node::Stamp { size, mtime: (time, time as u32), ctime: (time, time as u32) };
    let size = change(&|b| in_node::set_stamp(b, &of(u64::MAX, 0)));
    let times = change(&|b| in_node::set_stamp(b, &of(0, u64::MAX)));
    let (ink, to) = (Ink::Head, |r: &Range<usize>, end: &Range<usize>| Some(r.start..end.start));
    vec![
        (Some(sum), ink, "check-\nsum".into()),
        (to(&used, &count), ink, "bytes\nused".into()),
        (to(&count, &version), ink, "entries".into()),
        (Some(version), ink, "version".into()),
        (Some(others.clone()), ink, "others".into()),
        (to(&(others.end..others.end), &age), ink, "0".into()),
        (Some(age), ink, "age".into()),
        (Some(size), ink, "size".into()),
        (Some(times), ink, "times".into()),
    ]
}

fn node_entry_fields() -> Vec<Field> {
    let of = |block, codec, check, payload: &[u8]| {
        let node = filled(1, &[in_node::Entry { block, codec, check, payload }]);
        node[places(&node)[0].clone()].to_vec()
    };
    let zeroes = [0; 16];
    let plain = of(0, codec::Codec::Runs, 0, &zeroes);
    let block = differing(&plain, &of(in_node::KEPT | 0x0102_0304, codec::Codec::Runs, 0, &zeroes));
    let length = differing(&plain[..in_node::HEADER], &of(0, codec::Codec::Runs, 0, &[0; 0x101])[..in_node::HEADER]);
    let codec = differing(&plain, &of(0, codec::Codec::Lz4, 0, &zeroes));
    let check = differing(&plain, &of(0, codec::Codec::Runs, u32::MAX, &zeroes));
    let payload = differing(&plain, &of(0, codec::Codec::Runs, 0, &[255; 16]));
    assert_eq!((payload.start, payload.len()), (in_node::HEADER, 16));
    let ink = Ink::Delta(0);
    vec![
        (Some(block), ink, "file\nblock".into()),
        (Some(length), ink, "length".into()),
        (Some(codec.clone()), ink, "codec".into()),
        (Some(codec.end..check.start), ink, "0".into()),
        (Some(check), ink, "check of\nthe page".into()),
        (None, Ink::Delta(1), "payload".into()),
    ]
}

/// The areas of a delta node; `name` describes its entries.
fn node_areas(block: &Block, name: impl Fn(usize, &in_node::Entry<'_>) -> (Ink, String)) -> Vec<Area> {
    let (head, start) = (node::FOOTER - in_node::CAPACITY, node::FOOTER - in_node::capacity(block));
    let mut areas = vec![(0..head, Ink::Head, "head".to_owned())];
    let others = in_node::other_nodes(block).count();
    if start > head {
        areas.push((head..start, Ink::Address, format!("the root's list: numbers of {others} other nodes")));
    }
    let mut end = start;
    for (n, (e, place)) in in_node::entries(block).zip(places(block)).enumerate() {
        end = place.end;
        let (ink, name) = name(n, &e);
        areas.push((place, ink, name));
    }
    areas.push((end..node::FOOTER, Ink::Free, "free".into()));
    areas.push((node::FOOTER..4096, Ink::Plain, "footer".into()));
    areas
}

fn delta_node() -> String {
    let changes: Vec<_> = [150, 20, 60, 240, 8, 90].map(|n| small_change(n, in_node::LONGEST)).into();
    let blocks = [3, 70, 71, 2900, 41_007, 41_008];
    let entries: Vec<_> = changes
        .iter()
        .zip(blocks)
        .map(|((codec, payload), block)| in_node::Entry { block, codec: *codec, check: 0x1234_5678, payload })
        .collect();
    let mut block = filled(0, &entries);
    for other in 1..13 {
        assert!(in_node::set_other(&mut block, other, Nid(40 + other as u32)));
    }
    let mut p = Picture::new("The first of thirteen delta nodes of a file: its root");
    p.line("title", "The first of a file's 13 delta nodes: its root");
    let most = in_node::MOST_NODES;
    p.line("small", &format!("The inode's mark names it. A file has up to {most}; the others have no list."));
    p.map(&node_areas(&block, |n, e| (Ink::Delta(n), format!("delta of file block {}: {} bytes", e.block, e.bytes()))));
    p.line("title", "The head");
    p.bar(&head_fields());
    p.line("title", "An entry");
    p.bar(&node_entry_fields());
    p.finish()
}

/// A page of settings as stored by an application.
fn settings(n: usize) -> Block {
    let mut text = String::new();
    let mut state = 77 + n as u64;
    while text.len() < 4096 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (key, value) = (state >> 50, state >> 20 & 0xFFFF_FFFF);
        text.push_str(&format!("{{\"name\": \"option-{key}\", \"value\": {value}, \"shown\": {}}},\n", value % 2 == 0));
    }
    let mut page = [0; 4096];
    page.copy_from_slice(&text.as_bytes()[..4096]);
    page
}

fn packed_pages() -> String {
    let pages: Vec<Block> = (0..6).map(settings).collect();
    let packed: Vec<Vec<u8>> = pages.iter().map(|p| codec::encode_alone(p, in_node::LONGEST_WHOLE).unwrap()).collect();
    let (mut nodes, mut first) = (Vec::new(), 0);
    while first < pages.len() {
        // As many consecutive blocks as a node takes.
        let entry = |n: usize| in_node::Entry {
            block: n as u32,
            codec: codec::Codec::Alone,
            check: delta::check(SEED, Ino(10), 0, n as u32, &pages[n]),
            payload: &packed[n],
        };
        let fits = |last: &usize| {
            let entries: Vec<_> = (first..*last).map(entry).collect();
            in_node::rewrite(&mut empty_node(nodes.len() as u32), |_| false, &entries)
        };
        let last = (first + 1..=pages.len()).take_while(fits).last().expect("a page fits a node");
        let entries: Vec<_> = (first..last).map(entry).collect();
        nodes.push(filled(nodes.len() as u32, &entries));
        first = last;
    }
    let mut block = inode(0);
    let d = division(&block);
    (0..6).for_each(|slot| RawInode::of_mut(&mut block).set_addr(d, slot, BlockAddr::NEW));
    let mut p = Picture::new("Six new pages of settings, packed");
    let count = nodes.len();
    p.line("title", &format!("Six new pages of settings in {count} delta nodes"));
    let reserved = RawInode::of(&block).addr(d, 0).0;
    p.line(
        "small",
        &format!("The inode's slot of each has {reserved:#X}: room is reserved for its block, which is not there yet."),
    );
    let at = |slot: usize| ADDR_OFFSET + 4 * (d.extra as usize + slot);
    let slots = (0..6).map(|n| (Some(at(n)..at(n + 1)), Ink::Address, format!("page {n}")));
    let slots: Vec<Field> = slots.collect();
    p.bar(&slots);
    for (n, node) in nodes.iter().enumerate() {
        for e in in_node::entries(node) {
            assert!(codec::alone(e.payload).is_some_and(|page| *page == pages[e.block as usize]));
        }
        p.line("title", if n == 0 { "The root" } else { "The second" });
        p.map(&node_areas(node, |n, e| (Ink::Delta(n), format!("page {}: 4096 bytes in {}", e.block, e.bytes()))));
    }
    p.finish()
}

fn kept_pages() -> String {
    // Behind a header of 32 bytes and one of 24 for each page, as in a write-ahead log.
    let log = [(5, 400..4096), (0, 0..24), (6, 0..376)];
    let parts: Vec<_> =
        log.iter().map(|(id, r)| kept::Part { id: *id, from: r.start as u16, len: r.len() as u16 }).collect();
    let payload = kept::encode_parts(&parts, codec::Codec::Runs, &[0; 30]);
    let entry = in_node::Entry { block: 7, codec: codec::Codec::Parts, check: 0x1234_5678, payload: &payload };
    let (read, _, difference) = kept::parts(entry.payload).unwrap();
    assert_eq!(read, parts);
    let mut p = Picture::new("A block of a log that is made of kept pages");
    p.line("title", "Block 7 of a write-ahead log");
    p.line("small", "Made of parts of two kept pages, and of zeroes where the head of a frame is.");
    let mut at = 0;
    let mut areas: Vec<Area> = Vec::new();
    for (n, part) in read.iter().enumerate() {
        let len = usize::from(part.len);
        let name = match part.id {
            0 => "zeroes, over which the difference goes".to_owned(),
            id => format!("kept page {id}, bytes {}..{}", part.from, usize::from(part.from) + len),
        };
        areas.push((at..at + len, if part.id == 0 { Ink::Head } else { Ink::Delta(n) }, name));
        at += len;
    }
    p.map(&areas);
    let bytes = entry.bytes();
    p.line("title", &format!("Its entry in a delta node: {bytes} bytes in place of 4096"));
    let one = kept::encode_parts(&parts[..1], codec::Codec::Runs, &[]).len();
    let none = kept::encode_parts(&[], codec::Codec::Runs, &[]).len();
    let part = one - none;
    let mut fields: Vec<Field> = vec![(Some(0..in_node::HEADER), Ink::Head, "as above".into())];
    let mut at = in_node::HEADER + 1;
    fields.push((Some(in_node::HEADER..at), Ink::Head, "3".into()));
    for part_of in &read {
        let name = if part_of.id == 0 { "zeroes".into() } else { format!("page {}", part_of.id) };
        fields.push((Some(at..at + part), Ink::Delta(0), format!("{name},\nfrom, len")));
        at += part;
    }
    fields.push((Some(at..at + 1), Ink::Head, "codec".into()));
    fields.push((Some(at + 1..at + 1 + difference.len()), Ink::Delta(1), "differ-\nence".into()));
    assert_eq!(at + 1 + difference.len(), bytes);
    p.bar(&fields);
    p.finish()
}

#[test]
fn the_pictures_of_deltas_are_what_the_code_makes() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let pages = std::fs::read_to_string(docs.join("deltas.md")).unwrap();
    let pictures: [(&str, fn() -> String); 4] = [
        ("inode-with-deltas.svg", inode_with_deltas),
        ("delta-node.svg", delta_node),
        ("packed-pages.svg", packed_pages),
        ("kept-pages.svg", kept_pages),
    ];
    for (name, draw) in pictures {
        let (path, ours) = (docs.join("pictures").join(name), draw());
        if std::env::var_os("JOULEFS_RENEW").is_some() {
            std::fs::create_dir_all(docs.join("pictures")).unwrap();
            std::fs::write(&path, &ours).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap();
        for (n, (stored, ours)) in stored.lines().zip(ours.lines()).enumerate() {
            assert_eq!(stored, ours, "docs/pictures/{name}, line {}", n + 1);
        }
        assert!(stored == ours, "docs/pictures/{name} has more or fewer lines than it should");
        assert!(pages.contains(&format!("(pictures/{name})")), "docs/deltas.md shows {name}");
    }
}
