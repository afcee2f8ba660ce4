//! Forged fields under valid checksums: a repair leaves no findings, and untouched files are unchanged.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::rig::{Known, SHAPES, Truth, block, judge, look, volume, write_block};
use device::{BLOCK, BlockDevice, Rng};
use joulefs_scherlfs_fsck as fsck;
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Block, checksum};
use vfs::FileKind;

/// Fields of a structure: offset and length of each.
type Fields = &'static [(usize, usize)];

const SUPERBLOCK: Fields = &[
    (12, 1),
    (13, 1),
    (120, 8),
    (128, 4),
    (132, 4),
    (136, 8),
    (144, 8),
    (152, 4),
    (160, 4),
    (168, 8),
    (176, 8),
    (184, 8),
    (192, 8),
    (200, 8),
    (208, 8),
    (216, 8),
    (248, 6),
    (254, 4),
    (258, 2),
    (260, 6),
];
/// Offset of the checkpoint number in a superblock.
const NUMBER_AT: usize = 136;
const HEADER: Fields = &[(8, 4), (12, 4), (16, 8), (24, 4), (28, 2), (30, 2)];
const INODE: Fields = &[
    (32, 4),
    (36, 4),
    (40, 4),
    (44, 4),
    (48, 2),
    (50, 2),
    (52, 2),
    (56, 8),
    (64, 4),
    (76, 4),
    (80, 8),
    (88, 8),
    (96, 8),
    (104, 4),
    (144, 8),
    (152, 4),
    (160, 6),
    (166, 4),
    (170, 2),
    (256, 6),
    (262, 4),
    (266, 2),
    (268, 6),
    (274, 4),
    (278, 2),
    (4090, 2),
];
const RUNS: Fields = &[(32, 4), (36, 6), (42, 4), (46, 2), (48, 6), (54, 4)];
const ENTRIES: Fields = &[(0, 4), (4, 2), (6, 1), (7, 1), (8, 1), (24, 4), (28, 2), (30, 1), (31, 1), (32, 4)];

fn seal(block: &mut Block, at: usize) {
    block[at..at + 4].fill(0);
    let crc = checksum(&[&block[..]]);
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Structure of a block: its fields, and how to correct its checksum.
enum Shape {
    Sealed(Vec<Fields>, usize),
    Directory,
}

fn shape(block: &Block) -> Option<Shape> {
    Some(match &block[..4] {
        b"Sche" => Shape::Sealed(vec![SUPERBLOCK], BLOCK - 4),
        b"SINO" => Shape::Sealed(vec![HEADER, INODE], 4),
        b"SEXT" | b"SIDX" | b"SPTH" | b"SDEL" => Shape::Sealed(vec![HEADER, RUNS], 4),
        _ if block[BLOCK - 12..BLOCK - 4] == [0, 0, 0, 0, 12, 0, 0, 0xde] => Shape::Directory,
        _ => return None,
    })
}

/// Values for a field.
fn lies(old: u64, bytes: usize, blocks: u64, rng: &mut Rng) -> Vec<u64> {
    let most = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
    let mut all =
        vec![0, 1, most, most / 2 + 1, old.wrapping_add(1), old.wrapping_sub(1), rng.below(blocks), 1 << rng.below(63)];
    all.iter_mut().for_each(|v| *v &= most);
    all.retain(|v| *v != old);
    all
}

fn deep() -> bool {
    std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1")
}

#[test]
fn a_target_that_holds_a_nul_byte_is_refused_named_and_cut_there() {
    for of in SHAPES {
        let dev = Arc::new(volume(of, 3).dev.fork());
        let link = |dev: &Arc<_>| {
            let link = |known: &Known| known.kind == FileKind::Symlink && known.bytes.starts_with(b"..");
            look(dev).map(|truth: Truth| truth.into_values().find(link))
        };
        let known = link(&dev).unwrap().expect("a symbolic link");
        let is_target = |at: &u64| block(&*dev, *at).starts_with(&known.bytes);
        let at = known.blocks.iter().copied().find(is_target).expect("its target is stored");
        let mut target = block(&*dev, at);
        target[2] = 0;
        write_block(&*dev, at, &target);
        assert!(look(&dev).is_err_and(|why| why.contains("NUL")), "{of:?}: the reader serves it");
        let named = |report: &fsck::Report| report.findings.iter().any(|f| f.to_string().contains("NUL"));
        assert!(named(&fsck::check(&*dev)), "{of:?}: not named");
        let done = fsck::repair(&*dev, &|_, _| {}).unwrap();
        assert!(done.after.is_clean(), "{of:?}: {:?}", done.after);
        assert_eq!(link(&dev).unwrap().expect("the link is there").bytes, b"..", "{of:?}");
    }
}

#[test]
fn a_field_that_lies_costs_no_other_file() {
    let (mut tried, mut found) = (0, 0);
    for (n, of) in SHAPES.into_iter().enumerate() {
        let made = volume(of, 11);
        let mut rng = Rng::new(12 + n as u64);
        for at in 0..made.dev.blocks() {
            let right = block(&made.dev, at);
            let Some(what) = shape(&right) else { continue };
            let fields: Vec<(usize, usize)> = match &what {
                Shape::Sealed(all, _) => all.iter().flat_map(|f| f.iter().copied()).collect(),
                Shape::Directory => ENTRIES.to_vec(),
            };
            for (from, bytes) in fields {
                let mut eight = [0; 8];
                eight[..bytes].copy_from_slice(&right[from..from + bytes]);
                let old = u64::from_le_bytes(eight);
                let lies = lies(old, bytes, made.dev.blocks(), &mut rng);
                let few = if at < 2 || deep() { lies.len() } else { usize::from(rng.below(12) == 0) };
                for _ in 0..few {
                    let value = lies[rng.index(lies.len())];
                    let mut forged = right.clone();
                    forged[from..from + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
                    match &what {
                        Shape::Sealed(_, crc) => seal(&mut forged, *crc),
                        Shape::Directory => {
                            let Some((ino, index)) = owner(&right) else { continue };
                            let crc = checksum(&[&ino.to_le_bytes(), &index.to_le_bytes(), &forged[..BLOCK - 4]]);
                            forged[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
                        }
                    }
                    let image = made.dev.fork();
                    write_block(&image, at, &forged);
                    let place = format!("{of:?}, block {at}, field at {from}: {value:#x}, not {old:#x}");
                    let mut touched = made.touched(at);
                    // Files whose blocks are claimed by a forged inode may lose them to it.
                    touched.extend(claimed(&forged));
                    if let Ok(inode) = scherlfs_format::inode::Inode::read(&forged) {
                        // So may the file whose number it has.
                        let is = made.truth.get(&inode.header.ino.0.into());
                        touched.extend(is.iter().flat_map(|k| &k.blocks));
                    }
                    if at < 2 && (from == 160 || from >= 248) {
                        // The path leads to the log: without it the log cannot be found.
                        touched.extend(&made.log);
                    }
                    tried += 1;
                    found += usize::from(!fsck::check(&image).is_clean());
                    judge(&image, &made.truth, &touched, &place);
                }
            }
        }
    }
    println!("{tried} lies, of which {found} were found");
    // The others are valid values, such as times, or end the log like a power cut.
    assert!(tried > 300 && found * 5 > tried, "{tried} lies, {found} found");
}

/// Blocks that an inode or a continuation claims as contents.
fn claimed(block: &Block) -> BTreeSet<u64> {
    use scherlfs_format::extent::Extent;
    let inode = scherlfs_format::inode::Inode::read(block).map(|i| i.extents);
    let all =
        inode.or_else(|_| scherlfs_format::chain::read_continuation(block).map(|c| c.extents)).unwrap_or_default();
    let of = |e: Extent| match e {
        Extent::Stored { start, blocks } => start.0..start.0 + u64::from(blocks).min(5000),
        _ => 0..0,
    };
    all.into_iter().flat_map(of).collect()
}

/// The directory of a block, and its index there, according to its checksum.
fn owner(block: &Block) -> Option<(u32, u64)> {
    let stored = &block[BLOCK - 4..];
    let all = (2..200u32).flat_map(|ino| (0..8u64).map(move |n| (ino, n)));
    all.into_iter()
        .find(|(ino, n)| checksum(&[&ino.to_le_bytes(), &n.to_le_bytes(), &block[..BLOCK - 4]]).to_le_bytes() == stored)
}

/// Of two superblocks with valid checksums the newer one is current, whatever its other fields contain: the
/// previous state is no substitute.
#[test]
fn a_newest_superblock_whose_checksum_holds_is_never_passed_over_in_silence() {
    let mut refused = 0;
    for (n, of) in SHAPES.into_iter().enumerate() {
        let made = volume(of, 11);
        let before = look(&Arc::new(made.dev.fork())).unwrap();
        let number = |at: &u64| Superblock::read(&block(&made.dev, *at)).map_or(0, |sb| sb.checkpoint);
        let newest = [0, 1].into_iter().max_by_key(number).unwrap();
        assert!(number(&newest) > number(&(1 - newest)), "two checkpoints");
        let right = block(&made.dev, newest);
        let mut rng = Rng::new(20 + n as u64);
        for &(from, bytes) in SUPERBLOCK.iter().filter(|(from, _)| *from != NUMBER_AT) {
            let mut eight = [0; 8];
            eight[..bytes].copy_from_slice(&right[from..from + bytes]);
            let old = u64::from_le_bytes(eight);
            for value in lies(old, bytes, made.dev.blocks(), &mut rng) {
                let mut forged = right.clone();
                forged[from..from + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
                seal(&mut forged, BLOCK - 4);
                if Superblock::read(&forged).is_ok() {
                    continue;
                }
                let image = Arc::new(made.dev.fork());
                write_block(&image, newest, &forged);
                let place = format!("{of:?}, field at {from}: {value:#x}, not {old:#x}");
                assert!(look(&image).is_err(), "{place}: mounted");
                assert!(!fsck::check(&*image).is_clean(), "{place}: clean");
                fsck::repair(&*image, &|_, _| {}).unwrap_or_else(|e| panic!("{place}: {e}"));
                let after = look(&image).unwrap_or_else(|e| panic!("{place}: after repair: {e}"));
                let contents =
                    |truth: &Truth| truth.values().map(|f| (f.paths.clone(), f.bytes.clone())).collect::<Vec<_>>();
                assert_eq!(contents(&after), contents(&before), "{place}");
                refused += 1;
            }
        }
    }
    assert!(refused > 50, "{refused}");
}
