//! How is a cluster compressed, and which new files are compressed?
//!
//! Linux's rule: a cluster's stream is kept if it saves at least a block; else the cluster is written as it is.
//! Compressors, and so streams, may differ from those of Linux; each system reads the other's streams.
//!
//! * [`options`]: mount options for new files. [`costs`]: how long it takes.
//! * [`lzo`]: both dialects of LZO, written here; LZ4 and Zstandard are libraries.
//!
//! Left out: the format of a cluster's blocks and reading them ([`format::compress`]), their places
//! ([`crate::file::compressed`]), and LZ4's slow compressor, which no Rust library has.

pub mod costs;
mod lzo;
pub mod options;

use format::Block;
use format::compress::{Algorithm, Method};

use crate::error::{Error, Result};

/// Default level of Zstandard (kernel `F2FS_ZSTD_DEFAULT_CLEVEL`).
const ZSTD_LEVEL: i32 = 1;

/// The compressor of one file's clusters.
pub(crate) struct Packer {
    method: Method,
    stream: Vec<u8>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Packer {
    pub(crate) fn new(method: Method) -> Result<Self> {
        let zstd = match method.algorithm {
            Algorithm::Zstd => {
                let level = if method.level == 0 { ZSTD_LEVEL } else { method.level.into() };
                let new = zstd::bulk::Compressor::new(level);
                Some(new.map_err(|e| Error::from(vfs::Error::Unsupported(format!("zstd at level {level}: {e}"))))?)
            }
            _ => None,
        };
        Ok(Packer { method, stream: Vec::new(), zstd })
    }

    /// The blocks that store a cluster packed, or `None` if packing saves no block.
    pub(crate) fn pack(&mut self, plain: &[u8]) -> Option<Vec<Block>> {
        self.stream.clear();
        match self.method.algorithm {
            Algorithm::Lzo => lzo::compress(plain, false, &mut self.stream),
            Algorithm::LzoRle => lzo::compress(plain, true, &mut self.stream),
            Algorithm::Lz4 => {
                self.stream.resize(lz4_flex::block::get_maximum_output_size(plain.len()), 0);
                let n = lz4_flex::block::compress_into(plain, &mut self.stream).ok()?;
                self.stream.truncate(n);
            }
            Algorithm::Zstd => {
                // A stream that does not fit saves nothing; the library stops at the end of the buffer.
                self.stream.resize(self.method.most(), 0);
                let n = self.zstd.as_mut()?.compress_to_buffer(plain, self.stream.as_mut_slice()).ok()?;
                self.stream.truncate(n);
            }
        }
        self.method.pack(&self.stream)
    }
}

#[cfg(test)]
mod tests {
    use device::Rng;

    use super::*;

    const ALL: [Algorithm; 4] = [Algorithm::Lzo, Algorithm::Lz4, Algorithm::Zstd, Algorithm::LzoRle];

    #[test]
    fn what_is_packed_is_unpacked_and_what_saves_no_block_is_not_packed() {
        let mut rng = Rng::new(1);
        let noise: Vec<u8> = (0..1 << 20).map(|_| rng.below(256) as u8).collect();
        for algorithm in ALL {
            for (log, checksum, level) in [(2, false, 0), (3, true, 0), (5, false, 3), (8, true, 0)] {
                let m = Method { algorithm, log_cluster_size: log, checksum, level };
                let mut packer = Packer::new(m).unwrap();
                let bytes = m.cluster_bytes();
                let mut kept = 0;
                // From one block of noise to all of them, the rest zeroes.
                for noisy in (0..=8).map(|k| bytes * k / 8) {
                    let plain = [&noise[..noisy], &vec![0; bytes - noisy]].concat();
                    let Some(packed) = packer.pack(&plain) else {
                        assert!(noisy + 8192 > bytes, "{algorithm:?}: {noisy} bytes of noise in {bytes}");
                        continue;
                    };
                    kept += 1;
                    assert!(packed.len() < m.cluster_blocks() as usize);
                    let mut out = vec![1; bytes];
                    m.decompress(packed.as_flattened(), &mut out).unwrap();
                    assert!(out == plain, "{algorithm:?}");
                }
                assert!((5..=8).contains(&kept), "{algorithm:?}: {kept}");
            }
        }
    }
}
