//! Streams of other compressors are read, damaged ones are refused, and none causes a panic.

use device::Rng;
use format::compress::{Algorithm, CompressError, Method};
use format::crc;

const ALGORITHMS: [(u8, Algorithm); 4] =
    [(0, Algorithm::Lzo), (1, Algorithm::Lz4), (2, Algorithm::Zstd), (3, Algorithm::LzoRle)];

fn method(algorithm: u8, log: u8) -> Method {
    Method::of_inode(algorithm, log, 1).expect("a lawful method")
}

/// A stream from another compressor.
fn compress(algorithm: u8, data: &[u8]) -> Vec<u8> {
    match algorithm {
        0 | 3 => lzokay_native::compress(data).expect("lzo compresses"),
        1 => lz4_flex::block::compress(data),
        _ => {
            let mut frame = ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest);
            // This compressor always requests the same window size. No copy reaches farther back than the data, so the
            // window may be as small as the data, rounded up to a power of two.
            assert_eq!(frame[4] & 0x20, 0, "a frame with a window");
            frame[5] = ((data.len().next_power_of_two().ilog2().max(10) - 10) << 3) as u8;
            frame
        }
    }
}

/// The blocks of a cluster as Linux writes them: header, stream, zeroes to the block's end.
fn blocks(stream: &[u8]) -> Vec<u8> {
    let mut out = (stream.len() as u32).to_le_bytes().to_vec();
    out.extend(crc::crc32(0xF2F5_2010, stream).to_le_bytes());
    out.extend([0; 16]);
    out.extend(stream);
    out.resize(out.len().next_multiple_of(4096), 0);
    out
}

/// Words, runs, zeroes and noise in changing proportions.
fn contents(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < bytes {
        let n = rng.range(1..6000) as usize;
        match rng.below(4) {
            0 => out.resize(out.len() + n, 0),
            1 => out.resize(out.len() + n, rng.below(256) as u8),
            2 => out.extend((0..n).map(|i| b"the log cleans its segments "[i % 28])),
            _ => out.extend((0..n / 8).flat_map(|_| rng.next_u64().to_le_bytes())),
        }
    }
    out.truncate(bytes);
    out
}

#[test]
fn clusters_of_every_size_and_algorithm_are_read() {
    let mut rng = Rng::new(1);
    for log in 2..=8 {
        for (number, algorithm) in ALGORITHMS {
            let m = method(number, log);
            assert_eq!((m.algorithm, m.cluster_blocks(), m.checksum), (algorithm, 1 << log, true));
            let data = contents(&mut rng, m.cluster_bytes());
            let mut out = vec![1; data.len()];
            m.decompress(&blocks(&compress(number, &data)), &mut out)
                .unwrap_or_else(|e| panic!("{algorithm:?}, 2^{log} blocks: {e}"));
            assert!(out == data, "{algorithm:?}, 2^{log} blocks");
        }
    }
}

#[test]
fn headers_are_checked() {
    let m = method(1, 2);
    let data = contents(&mut Rng::new(3), m.cluster_bytes());
    let good = blocks(&compress(1, &data));
    let mut out = vec![0; data.len()];
    let mut with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        m.decompress(&bytes, &mut out)
    };
    assert_eq!(with(&|_| ()), Ok(()));
    assert!(matches!(with(&|b| b[4] ^= 1), Err(CompressError::Checksum { .. })));
    assert!(matches!(with(&|b| b[30] ^= 1), Err(CompressError::Checksum { .. })));
    assert!(matches!(with(&|b| b[..4].fill(0)), Err(CompressError::Length { clen: 0, .. })));
    assert!(matches!(with(&|b| b[..4].fill(0xFF)), Err(CompressError::Length { clen: u32::MAX, .. })));
    assert!(matches!(with(&|b| b.truncate(23)), Err(CompressError::Length { room: 0, .. })));
    assert!(matches!(with(&|b| b.clear()), Err(CompressError::Length { .. })));
    // Reserved words and padding are ignored.
    assert_eq!(with(&|b| b[8..24].fill(0xFF)), Ok(()));
    assert_eq!(with(&|b| b.extend([7; 4096])), Ok(()));

    let trusting = Method { checksum: false, ..m };
    let mut bytes = good.clone();
    bytes[4] ^= 1;
    assert_eq!(trusting.decompress(&bytes, &mut out), Ok(()));
    assert!(matches!(m.decompress(&good, &mut out[1..]), Err(CompressError::Room { .. })));
}

#[test]
fn a_stream_must_hold_exactly_a_cluster() {
    for (number, algorithm) in ALGORITHMS {
        let m = method(number, 3);
        let data = contents(&mut Rng::new(4), m.cluster_bytes() + 1);
        let mut out = vec![0; m.cluster_bytes()];
        let mut said = |bytes: usize| m.decompress(&blocks(&compress(number, &data[..bytes])), &mut out);
        assert_eq!(said(data.len() - 1), Ok(()), "{algorithm:?}");
        assert!(
            matches!(said(data.len() - 2), Err(CompressError::Incomplete { have, need }) if have + 1 == need),
            "{algorithm:?}"
        );
        assert!(said(data.len()).is_err(), "{algorithm:?}");
    }
}

#[test]
fn methods_that_linux_does_not_make_are_refused() {
    assert_eq!(Method::of_inode(4, 2, 0), Err(CompressError::Algorithm(4)));
    assert_eq!(Method::of_inode(0, 1, 0), Err(CompressError::ClusterSize(1)));
    assert_eq!(Method::of_inode(0, 9, 0), Err(CompressError::ClusterSize(9)));
    // The upper half of the flag is a level.
    let m = Method::of_inode(2, 8, 0x0300).expect("lawful");
    assert!(!m.checksum);
}

#[test]
fn no_bytes_at_all_do_harm() {
    let mut rng = Rng::new(5);
    for round in 0..12_000u32 {
        let (number, _) = ALGORITHMS[round as usize % 4];
        let m = Method { checksum: false, ..method(number, 2) };
        let stream = if round % 3 == 0 {
            // Noise, after the header that a decoder expects.
            let mut s = vec![0; rng.range(1..3000) as usize];
            rng.fill(&mut s);
            match number {
                2 => s.splice(..0, [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x20]).for_each(drop),
                3 => s.splice(..0, [17, 1]).for_each(drop),
                _ => {}
            }
            s
        } else {
            // A valid stream with a few bytes changed, truncated or extended.
            let data = contents(&mut rng, m.cluster_bytes());
            let mut s = compress(number, &data);
            for _ in 0..rng.range(1..6) {
                let at = rng.index(s.len());
                s[at] = rng.next_u64() as u8;
            }
            if rng.chance(1, 4) {
                s.truncate(rng.range(1..s.len() as u64) as usize);
            }
            s
        };
        let mut out = vec![0; m.cluster_bytes()];
        // Any result is fine, but no panic.
        let _ = m.decompress(&blocks(&stream), &mut out);
    }
}
