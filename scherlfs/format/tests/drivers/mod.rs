//! One function for each structure. It applies any bytes as changes to a valid block, updates its checksum, reads
//! it, and checks the invariants: no panic, and what was decoded is encoded again identically. Used by the tests
//! and by the fuzzer.

mod beside;

pub use beside::beside;
use format::chain::{self, Header, Kind};
use format::directory::{self, Entries};
use format::extent::Extent;
use format::inode::{Attributes, Form, Inode, Time, room, xattr_bytes};
use format::superblock::{Placement, Superblock};
use format::{Addr, BLOCK, Block, Epoch, Ino, Run, Seq, checksum, ifile, lists};

/// A driver with its name.
pub type Driver = (&'static str, fn(&[u8]));

/// Every driver.
pub const ALL: [Driver; 9] = [
    ("superblock", superblock),
    ("inodes", inodes),
    ("continuations", continuations),
    ("indexes", indexes),
    ("paths", paths),
    ("gone", gone),
    ("directories", directories),
    ("hidden", hidden),
    ("places", places),
];

/// Applies bytes as changes to a valid structure: each three bytes are a position and a value. Whole random blocks
/// rarely pass the first check of a magic.
fn change(lawful: &mut [u8], changes: &[u8]) {
    for c in changes.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([c[0], c[1]])) % lawful.len();
        lawful[at] = c[2];
    }
}

fn seal(block: &mut Block, at: usize) {
    block[at..at + 4].fill(0);
    let crc = checksum(&[&block[..]]);
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn header(kind: Kind) -> Header {
    Header { kind, epoch: Epoch::new(3, 8), attempt: 1, seq: Seq(77), ino: Ino(9), piece: 1, pieces: 3 }
}

fn run(start: u64, blocks: u32) -> Run {
    Run { start: Addr(start), blocks }
}

/// A superblock.
pub fn superblock(bytes: &[u8]) {
    let lawful = Superblock {
        uuid: [7; 16],
        label: "archive".into(),
        blocks: 1024,
        segment_blocks: 256,
        placement: Placement::InPlace,
        secret: 8,
        clean: false,
        checkpoint: 9,
        seq: Seq(77),
        epoch: Epoch::new(3, 8),
        ifile: Addr(40),
        free_list: Addr(42),
        orphans: Some(Addr(44)),
        history: Some(Addr(46)),
        begun: Time { secs: 1_700_000_000, nanos: 5 },
        undo_floor: Seq(5),
        free: 900,
        inodes: 12,
        promised: 4,
        path: vec![run(50, 100), run(200, 1), run(300, 724)],
    };
    let mut block = lawful.write();
    assert_eq!(Superblock::read(&block).as_ref(), Ok(&lawful));
    change(&mut block[..], bytes);
    seal(&mut block, BLOCK - 4);
    if let Ok(sb) = Superblock::read(&block) {
        // An invalid UTF-8 label comes back with replacement characters, which may be longer.
        let again = Superblock::read(&sb.write()).expect("what was read can be written");
        assert_eq!(Superblock { label: String::new(), ..again }, Superblock { label: String::new(), ..sb });
    }
}

/// An inode, with attributes and extents of every kind.
pub fn inodes(bytes: &[u8]) {
    let xattrs = vec![(b"user.a".to_vec(), vec![1; 300]), (b"user.b".to_vec(), Vec::new())];
    let extents: Vec<Extent> = (0..room(xattr_bytes(&xattrs)) as u64)
        .map(|n| match n % 3 {
            0 => Extent::Stored { start: Addr(10 + 2 * n), blocks: 1 },
            1 => Extent::Hole { blocks: 1 << 40 },
            _ => Extent::Reserved { blocks: 3 },
        })
        .collect();
    let attributes = Attributes {
        mode: 0o100_644,
        nlink: 1,
        size: 1 << 40,
        times: [Time { secs: -5, nanos: 999_999_999 }; 4],
        parent: Ino(2),
        ..Attributes::default()
    };
    let lawful = Inode {
        header: header(Kind::Inode),
        form: Form::Second,
        follow: 5,
        follow_crc: 6,
        previous: Some(Addr(4)),
        attributes,
        xattrs,
        extents_in_all: extents.len() as u32 + 339,
        extents,
        continuations: 2,
        runs: vec![run(7, 1), run(9, 1)],
    };
    let mut block = lawful.write();
    assert_eq!(Inode::read(&block), Ok(lawful));
    change(&mut block[..], bytes);
    seal(&mut block, 4);
    if let Ok(inode) = Inode::read(&block) {
        assert_eq!(Inode::read(&inode.write()), Ok(inode));
    }
}

/// Continuations of an inode.
pub fn continuations(bytes: &[u8]) {
    let all =
        [Extent::Stored { start: Addr(99), blocks: 4 }, Extent::Hole { blocks: 7 }, Extent::Reserved { blocks: 1 }];
    let mut block = chain::write_continuation(&header(Kind::Continuation), 0x5_0000_0007, &all);
    let says = chain::read_continuation(&block).unwrap();
    assert_eq!((says.first, &says.extents[..]), (7, &all[..]));
    change(&mut block[..], bytes);
    seal(&mut block, 4);
    if let (Ok(says), Ok(h)) = (chain::read_continuation(&block), Header::read(&block)) {
        let again = chain::write_continuation(&h, says.first.into(), &says.extents);
        assert_eq!(chain::read_continuation(&again), Ok(says));
    }
}

fn runs(kind: Kind, bytes: &[u8]) {
    let all = [run(9, 1), run(40, 7), run(1 << 40, 1)];
    let mut block = chain::write_runs(&header(kind), &all);
    assert_eq!(chain::read_runs(&block, kind).as_deref(), Ok(&all[..]));
    change(&mut block[..], bytes);
    seal(&mut block, 4);
    if let (Ok(runs), Ok(h)) = (chain::read_runs(&block, kind), Header::read(&block)) {
        assert_eq!(chain::read_runs(&chain::write_runs(&h, &runs), kind), Ok(runs));
    }
}

/// Index blocks.
pub fn indexes(bytes: &[u8]) {
    runs(Kind::Index, bytes);
}

/// Path blocks.
pub fn paths(bytes: &[u8]) {
    runs(Kind::Path, bytes);
}

/// Lists of deleted inodes.
pub fn gone(bytes: &[u8]) {
    let all = [Ino(9), Ino(u32::MAX), Ino(8)];
    let mut block = chain::write_gone(&header(Kind::Gone), &all);
    assert_eq!(chain::read_gone(&block).as_deref(), Ok(&all[..]));
    change(&mut block[..], bytes);
    seal(&mut block, 4);
    if let (Ok(inodes), Ok(h)) = (chain::read_gone(&block), Header::read(&block)) {
        assert_eq!(chain::read_gone(&chain::write_gone(&h, &inodes)), Ok(inodes));
    }
}

/// A directory block, which is changed if it is valid.
pub fn directories(bytes: &[u8]) {
    let mut block = directory::empty();
    for (n, name) in [&b"a"[..], b"bc", &[b'x'; 255], b"four"].into_iter().enumerate() {
        directory::insert(&mut block, Ino(9 + n as u32), 1 + n as u8, name);
    }
    change(&mut block[..], bytes);
    directory::seal(&mut block, Ino(2), 3);
    let Ok(entries) = Entries::read(&block, Ino(2), 3) else { return };
    let names: Vec<_> = entries.named().map(|e| (e.at, e.ino, e.name.to_vec())).collect();
    let most = directory::largest_room(entries);
    for (at, ino, name) in &names {
        let mut less = block.clone();
        directory::redirect(&mut less, *at, Ino(77), 2);
        assert!(directory::remove(&mut less, *at));
        directory::seal(&mut less, Ino(2), 3);
        let left = Entries::read(&less, Ino(2), 3).expect("a name taken out leaves entries").named().count();
        assert_eq!(left, names.len() - 1);
        assert!(directory::insert(&mut less, *ino, 1, name).is_some(), "a name finds its own room again");
    }
    let long = bytes.len() % 255 + 1;
    let fits = directory::insert(&mut block, Ino(5), 1, &vec![b'n'; long]);
    assert_eq!(fits.is_some(), directory::least(long) <= most);
    directory::seal(&mut block, Ino(2), 3);
    assert!(Entries::read(&block, Ino(2), 3).is_ok());
}

/// Contents of the hidden files.
pub fn hidden(bytes: &[u8]) {
    for (n, mut list) in
        [lists::write_free(&[run(2, 1), run(4, 7), run(1 << 40, u32::MAX)]), lists::write_orphans(&[Ino(9), Ino(77)])]
            .into_iter()
            .enumerate()
    {
        change(&mut list, bytes);
        let crc = checksum(&[&list[8..]]);
        list[4..8].copy_from_slice(&crc.to_le_bytes());
        match n {
            0 => {
                if let Ok(runs) = lists::read_free(&list) {
                    assert_eq!(lists::read_free(&lists::write_free(&runs)), Ok(runs));
                }
            }
            _ => {
                if let Ok(inodes) = lists::read_orphans(&list) {
                    assert_eq!(lists::read_orphans(&lists::write_orphans(&inodes)), Ok(inodes));
                }
            }
        }
        // Also unchanged.
        let _ = (lists::read_free(bytes), lists::read_orphans(bytes));
    }
}

/// A block of the inode map.
pub fn places(bytes: &[u8]) {
    let mut block = Box::new([0; BLOCK]);
    change(&mut block[..], bytes);
    for at in 0..=ifile::ENTRIES {
        let place = ifile::get(&block, at);
        let mut again = block.clone();
        ifile::set(&mut again, at, place);
        // A free entry has only one encoding.
        assert_eq!(*again == *block, place.addr.is_some() || at == ifile::ENTRIES || ifile::get(&again, at) == place);
    }
}
