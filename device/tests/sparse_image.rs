//! Android sparse images read as their expanded image, or are rejected with a reason.

use std::fs;
use std::path::PathBuf;

use device::{Access, BLOCK, BlockDevice, Lba, OpenError, Rng, SparseError, SparseImage, Tag, open_image};
use tempfile::TempDir;

const TAG: Tag = Tag { cause: 0, owner: 0 };

fn chunk(kind: u16, blocks: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(kind.to_le_bytes());
    out.extend([0, 0]);
    out.extend(blocks.to_le_bytes());
    out.extend((12 + payload.len() as u32).to_le_bytes());
    out.extend(payload);
    out
}

fn image(block: u32, blocks: u32, checksum: u32, chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(0xED26_FF3Au32.to_le_bytes());
    for half in [1u16, 0, 28, 12] {
        out.extend(half.to_le_bytes());
    }
    for word in [block, blocks, chunks.len() as u32, checksum] {
        out.extend(word.to_le_bytes());
    }
    out.extend(chunks.concat());
    out
}

/// A raw, a filled, an absent and another raw range of `block`-sized blocks, and the expansion.
fn sample(block: u32, units: u32, spoil_crc: u32) -> (Vec<u8>, Vec<u8>) {
    let mut rng = Rng::new(u64::from(block));
    let mut raw = |blocks: u32| {
        let mut bytes = vec![0; (blocks * block) as usize];
        rng.fill(&mut bytes);
        bytes
    };
    let (a, b) = (raw(2 * units), raw(units));
    let mut expanded = a.clone();
    expanded.extend([1, 2, 3, 4].repeat((3 * units * block / 4) as usize));
    let first_crc = crc32fast::hash(&expanded);
    expanded.extend(vec![0; (5 * units * block) as usize]);
    expanded.extend(&b);
    let chunks = [
        chunk(0xCAC1, 2 * units, &a),
        chunk(0xCAC2, units, &[1, 2, 3, 4]),
        chunk(0xCAC2, 2 * units, &[1, 2, 3, 4]),
        chunk(0xCAC4, 0, &(first_crc ^ spoil_crc).to_le_bytes()),
        chunk(0xCAC3, 5 * units, &[]),
        chunk(0xCAC1, units, &b),
    ];
    (image(block, 11 * units, crc32fast::hash(&expanded), &chunks), expanded)
}

fn stored(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn refused(bytes: &[u8]) -> SparseError {
    let (_dir, path) = stored(bytes);
    match SparseImage::open(&path) {
        Err(OpenError::Sparse { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_expanded_image_is_read_whatever_the_block_size() {
    for (block, units) in [(4096, 1), (1024, 4), (512, 24), (65536, 1), (12, 1024)] {
        let (bytes, expanded) = sample(block, units, 0);
        let (_dir, path) = stored(&bytes);
        let device = open_image(&path, Access::ReadOnly).unwrap();
        assert!(device.read_only());
        assert_eq!(device.blocks(), (expanded.len() / BLOCK) as u64);
        let whole = &expanded[..expanded.len() / BLOCK * BLOCK];
        let mut all = vec![0; whole.len()];
        device.read(Lba(0), &mut all, TAG).unwrap();
        assert!(all == whole, "block size {block}");
        for (i, wanted) in whole.chunks_exact(BLOCK).enumerate() {
            let mut one = [0; BLOCK];
            device.read(Lba(i as u64), &mut one, TAG).unwrap();
            assert!(one == wanted, "block size {block}, block {i}");
        }
        SparseImage::open(&path).unwrap().verify().unwrap();
        assert!(device.write(Lba(0), &[0; BLOCK], TAG).is_err() && device.flush(TAG).is_err());
    }
}

#[test]
fn a_wrong_checksum_is_found() {
    let (bytes, _) = sample(4096, 1, 1);
    let (_dir, path) = stored(&bytes);
    let found = SparseImage::open(&path).unwrap().verify();
    assert!(matches!(found, Err(SparseError::Checksum { bytes: 20480, .. })), "{found:?}");
}

#[test]
fn writing_a_sparse_image_is_refused_with_the_way_out() {
    let (_dir, path) = stored(&sample(4096, 1, 0).0);
    let Err(error) = open_image(&path, Access::ReadWrite) else { panic!("opened") };
    assert!(error.to_string().contains("simg2img"), "{error}");
}

#[test]
fn broken_headers_are_refused_by_name() {
    let (good, _) = sample(4096, 1, 0);
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    assert!(matches!(refused(&with(0, &[0])), SparseError::Magic { .. }));
    assert!(matches!(refused(&with(4, &[2])), SparseError::Version { major: 2 }));
    assert!(matches!(refused(&with(8, &[27])), SparseError::Header { field: "header size", .. }));
    assert!(matches!(refused(&with(10, &[11])), SparseError::Header { field: "chunk header size", .. }));
    assert!(matches!(refused(&with(12, &[0, 0])), SparseError::Header { field: "block size", value: 0, .. }));
    assert!(matches!(refused(&with(12, &[2])), SparseError::Header { field: "block size", .. }));
    assert!(matches!(refused(&with(16, &[10])), SparseError::BlockCount { found: 11, .. }));
    assert!(matches!(refused(&with(16, &[12])), SparseError::BlockCount { found: 11, wanted: 12, .. }));
    assert!(matches!(refused(&with(20, &[0xFF; 4])), SparseError::Header { field: "chunk count", .. }));
    assert!(matches!(refused(&with(20, &[9])), SparseError::Truncated { what: "a chunk", .. }));
    assert!(matches!(refused(&with(28, &[0])), SparseError::ChunkType { chunk: 0, at: 28, .. }));
    assert!(matches!(refused(&with(32, &[0xFF; 4])), SparseError::ChunkSize { chunk: 0, .. }));
    assert!(matches!(refused(&with(36, &[1])), SparseError::ChunkSize { chunk: 0, .. }));
    assert!(matches!(refused(&good[..20]), SparseError::Truncated { what: "the header", .. }));
    assert!(matches!(refused(&good[..good.len() - 1]), SparseError::Truncated { .. }));
    let none = image(4096, 0, 0, &[]);
    let (_dir, path) = stored(&none);
    assert!(matches!(SparseImage::open(&path), Err(OpenError::TooSmall { .. })));
}

#[test]
fn an_image_of_the_largest_sizes_costs_no_memory() {
    // 2^32 - 1 blocks of nearly 4 GiB each: close to 2^64 bytes.
    let bytes = image(u32::MAX - 3, u32::MAX, 0, &[chunk(0xCAC3, u32::MAX, &[])]);
    let (_dir, path) = stored(&bytes);
    let device = SparseImage::open(&path).unwrap();
    let mut buf = [1; BLOCK];
    device.read(Lba(device.blocks() - 1), &mut buf, TAG).unwrap();
    assert_eq!(buf, [0; BLOCK]);
}

#[test]
fn damaged_images_never_break_the_reader() {
    let (good, _) = sample(512, 8, 0);
    let mut rng = Rng::new(99);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    // Positions of the structures; the rest is data.
    let headers: Vec<usize> = (0..40).chain(8232..8300).chain(8300..good.len()).filter(|i| *i < good.len()).collect();
    let (mut opened, mut closed) = (0, 0);
    for _ in 0..4000 {
        let mut bad = good.clone();
        for _ in 0..=rng.below(3) {
            bad[headers[rng.index(headers.len().min(180))]] ^= 1 << rng.below(8);
        }
        if rng.chance(1, 4) {
            bad.truncate(rng.index(bad.len()));
        }
        fs::write(&path, &bad).unwrap();
        match SparseImage::open(&path) {
            Ok(device) => {
                opened += 1;
                let mut buf = [0; BLOCK];
                for at in [0, 1, device.blocks() / 2, device.blocks() - 1] {
                    let _ = device.read(Lba(at), &mut buf, TAG);
                }
            }
            Err(_) => closed += 1,
        }
    }
    assert!(opened > 100 && closed > 100, "{opened} opened, {closed} refused");
}
