//! No reader panics on any bytes, even with valid checksums (deliberate damage).

use crate::drivers;

use device::Rng;
use format::chain::{self, Header, Kind};
use format::directory::{self, Entries};
use format::extent::{Extent, RawExtent};
use format::inode::Inode;
use format::superblock::Superblock;
use format::{BLOCK, Block, Ino, ifile, lists};
use zerocopy::FromBytes;

const KINDS: [Kind; 5] = [Kind::Inode, Kind::Continuation, Kind::Index, Kind::Path, Kind::Gone];

/// Reads a block as every structure; returns the number of successes.
fn read_all(block: &Block) -> usize {
    let mut understood = usize::from(Superblock::read(block).is_ok());
    understood += usize::from(Header::read(block).is_ok());
    understood += usize::from(Inode::read(block).is_ok());
    understood += usize::from(chain::read_continuation(block).is_ok());
    understood += usize::from(chain::read_runs(block, Kind::Path).is_ok());
    understood += usize::from(chain::read_runs(block, Kind::Index).is_ok());
    understood += usize::from(chain::read_gone(block).is_ok());
    understood += usize::from(lists::read_free(block).is_ok());
    understood += usize::from(lists::read_orphans(block).is_ok());
    if let Ok(entries) = Entries::read(block, Ino(2), 0) {
        understood += 1 + entries.named().count();
    }
    understood += Entries::unchecked(block).all().count();
    for at in 0..=ifile::ENTRIES {
        understood += usize::from(ifile::get(block, at).addr.is_some());
    }
    understood
}

/// Gives a block a header of some kind, with a valid checksum.
fn with_header(block: &mut Block, rng: &mut Rng) {
    let header = Header {
        kind: KINDS[rng.below(5) as usize],
        epoch: format::Epoch::new(1, 8),
        attempt: 0,
        seq: format::Seq(rng.below(100)),
        ino: Ino(rng.below(20) as u32),
        piece: rng.below(3) as u16,
        pieces: 3,
    };
    header.write(block);
}

#[test]
fn no_bytes_make_a_reader_panic() {
    let (mut rng, mut understood) = (Rng::new(3), 0);
    for round in 0..20_000 {
        let mut block: Box<Block> = Box::new([0; BLOCK]);
        match round % 3 {
            0 => rng.fill(&mut block[..]),
            // Zeroes with a few bytes: small counts, so that some structures are valid.
            _ => (0..rng.below(60)).for_each(|_| block[rng.below(400) as usize] = rng.below(256) as u8),
        }
        with_header(&mut block, &mut rng);
        understood += read_all(&block);
        directory::seal(&mut block, Ino(2), 0);
        understood += read_all(&block);
    }
    assert!(understood > 20_000, "{understood}: nearly nothing is understood, so nothing is tried");
}

#[test]
fn no_bytes_make_a_reader_of_an_index_or_a_stage_panic() {
    let (mut rng, mut understood) = (Rng::new(6), 0);
    for round in 0..20_000 {
        let mut block = vec![0; rng.below(BLOCK as u64 + 1) as usize];
        let end = block.len().min(120) as u64;
        (0..rng.below(60))
            .for_each(|_| _ = block.get_mut(rng.below(end.max(1)) as usize).map(|b| *b = rng.below(8) as u8));
        let magic: [&[u8]; 4] = [b"ScherlIX\x01\0\0\0", b"ScherlST\x01\0\0\0", b"ScherlRE\x02\0\0\0", b""];
        let magic = magic[round % 4];
        if block.len() >= magic.len() {
            block[..magic.len()].copy_from_slice(magic);
        }
        understood += drivers::beside(&block);
    }
    assert!(understood > 10_000, "{understood}: nearly nothing is understood, so nothing is tried");
}

#[test]
fn changes_of_directories_whose_entries_make_no_sense_do_not_panic() {
    let mut rng = Rng::new(4);
    for _ in 0..5_000 {
        let mut block: Box<Block> = Box::new([0; BLOCK]);
        (0..rng.below(40)).for_each(|_| block[rng.below(200) as usize] = rng.below(256) as u8);
        for _ in 0..6 {
            match rng.below(3) {
                0 => _ = directory::insert(&mut block, Ino(9), 1, &vec![b'x'; 1 + rng.below(255) as usize]),
                1 => _ = directory::remove(&mut block, rng.below(400) as usize),
                _ => directory::redirect(&mut block, rng.below(400) as usize, Ino(7), 2),
            }
        }
    }
}

#[test]
fn any_extent_is_refused_or_read_as_it_is_written() {
    let mut rng = Rng::new(5);
    for _ in 0..200_000 {
        let mut bytes = [0; 12];
        rng.fill(&mut bytes);
        bytes[10] = rng.below(4) as u8;
        bytes[11] = 0;
        if rng.below(2) == 0 {
            bytes[..6].fill(0);
        }
        let raw = RawExtent::read_from_bytes(&bytes).unwrap();
        if let Ok(extent) = Extent::try_from(&raw) {
            assert_eq!(extent.raw(), raw);
        }
    }
}
