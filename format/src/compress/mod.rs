//! Compressed clusters.
//!
//! Linux compresses a file in clusters of 4 to 256 blocks. The blocks of a compressed cluster hold a header of 24
//! bytes, one stream of the file's algorithm, and padding to the end of the last block. The decompressed data is
//! always a whole cluster, with zeroes past the end of the file.
//!
//! Pure functions from bytes to bytes: any input gives a result or an error, never a panic and never more output
//! than requested. Left out: where a cluster's blocks are (its first address slot is
//! [`crate::BlockAddr::COMPRESS`]), and how streams are made.
//!
//! lz4 and zstd are libraries. The zstd decoder is in pure Rust: it reads every stream, and users need no C
//! compiler. LZO is decoded here: only the older of its two dialects has a library with a suitable licence, that
//! library panics on damaged streams, and the newer dialect is a superset of the older.

mod lzo;
mod zstd;

use crate::crc;

pub use lzo::LzoError;

/// Bytes before the stream: length, checksum, four reserved words.
const HEADER: usize = 24;
/// Fewest blocks in a cluster, as a power of two (kernel `MIN_COMPRESS_LOG_SIZE`).
const MIN_LOG: u8 = 2;
/// Most blocks in a cluster, as a power of two (kernel `MAX_COMPRESS_LOG_SIZE`).
const MAX_LOG: u8 = 8;
/// `i_compress_flag`: the checksum in the header is valid.
const CHECKSUM: u16 = 1;

/// How a file's clusters are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// LZO1X.
    Lzo,
    /// LZ4 block format, of either compressor.
    Lz4,
    /// Zstandard frame.
    Zstd,
    /// LZO1X with runs of zeroes (bitstream version 1).
    LzoRle,
}

/// Compression parameters in an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Algorithm of the streams.
    pub algorithm: Algorithm,
    /// Blocks in a cluster as a power of two, 2..=8.
    pub log_cluster_size: u8,
    /// True if headers carry a checksum.
    pub checksum: bool,
    /// Compression level for writing, in the algorithm's own numbers; 0 is the algorithm's default. Readers do not
    /// need it.
    pub level: u8,
}

/// Why a cluster cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressError {
    /// Unknown `i_compress_algorithm`.
    #[error("compression algorithm {0} is not known (0 lzo, 1 lz4, 2 zstd, 3 lzo-rle)")]
    Algorithm(u8),
    /// `i_log_cluster_size` is outside Linux's range.
    #[error("cluster size 2^{0} blocks is not between 2^2 and 2^8")]
    ClusterSize(u8),
    /// The output buffer is not one cluster long.
    #[error("{have} bytes of room for a cluster of {need}")]
    Room {
        /// Bytes given.
        have: usize,
        /// Bytes of a cluster.
        need: usize,
    },
    /// The length in the header exceeds the blocks of the cluster.
    #[error("compressed length is {clen}, the cluster's blocks hold {room} bytes after the header")]
    Length {
        /// `clen` of the header.
        clen: u32,
        /// Bytes available.
        room: usize,
    },
    /// The checksum over the stream does not match.
    #[error("cluster checksum is {stored:#010x}, contents give {computed:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// The LZO stream is damaged.
    #[error("lzo stream: {0}")]
    Lzo(#[from] LzoError),
    /// The LZ4 or Zstandard stream is damaged.
    #[error("{algorithm} stream: {reason}")]
    Stream {
        /// The algorithm.
        algorithm: &'static str,
        /// The decoder's message.
        reason: String,
    },
    /// The stream is complete but holds less than a cluster.
    #[error("the stream holds {have} bytes of a cluster of {need}")]
    Incomplete {
        /// Bytes decompressed.
        have: usize,
        /// Bytes of a cluster.
        need: usize,
    },
}

impl Method {
    /// Checks the extra attributes of an inode: `i_compress_algorithm`, `i_log_cluster_size`, `i_compress_flag`.
    ///
    /// # Errors
    /// [`CompressError::Algorithm`], [`CompressError::ClusterSize`].
    pub fn of_inode(algorithm: u8, log_cluster_size: u8, compress_flag: u16) -> Result<Self, CompressError> {
        let algorithm = match algorithm {
            0 => Algorithm::Lzo,
            1 => Algorithm::Lz4,
            2 => Algorithm::Zstd,
            3 => Algorithm::LzoRle,
            n => return Err(CompressError::Algorithm(n)),
        };
        if !(MIN_LOG..=MAX_LOG).contains(&log_cluster_size) {
            return Err(CompressError::ClusterSize(log_cluster_size));
        }
        let [_, level] = compress_flag.to_le_bytes();
        Ok(Method { algorithm, log_cluster_size, checksum: compress_flag & CHECKSUM != 0, level })
    }

    /// The matching `i_compress_algorithm`, `i_log_cluster_size` and `i_compress_flag`.
    pub fn for_inode(self) -> (u8, u8, u16) {
        let algorithm = match self.algorithm {
            Algorithm::Lzo => 0,
            Algorithm::Lz4 => 1,
            Algorithm::Zstd => 2,
            Algorithm::LzoRle => 3,
        };
        let flag = u16::from(self.level) << 8 | if self.checksum { CHECKSUM } else { 0 };
        (algorithm, self.log_cluster_size, flag)
    }

    /// Blocks in a cluster, 4..=256.
    pub fn cluster_blocks(self) -> u32 {
        1 << self.log_cluster_size.clamp(MIN_LOG, MAX_LOG)
    }

    /// Bytes in a cluster.
    pub fn cluster_bytes(self) -> usize {
        self.cluster_blocks() as usize * crate::BLOCK
    }

    /// Decompresses the blocks of a cluster (`cluster`, concatenated) into `out`, which must be
    /// [`Self::cluster_bytes`] long. After an error the contents of `out` are undefined.
    ///
    /// # Errors
    /// Every variant of [`CompressError`] but the first two.
    pub fn decompress(self, cluster: &[u8], out: &mut [u8]) -> Result<(), CompressError> {
        let need = self.cluster_bytes();
        if out.len() != need {
            return Err(CompressError::Room { have: out.len(), need });
        }
        let stream = self.stream(cluster)?;
        let have = match self.algorithm {
            // Linux decodes both dialects by the mark in the stream, whatever the inode records.
            Algorithm::Lzo | Algorithm::LzoRle => lzo::decompress(stream, out)?,
            Algorithm::Lz4 => lz4_flex::block::decompress_into(stream, out)
                .map_err(|e| CompressError::Stream { algorithm: "lz4", reason: e.to_string() })?,
            Algorithm::Zstd => {
                zstd::decompress(stream, out).map_err(|reason| CompressError::Stream { algorithm: "zstd", reason })?
            }
        };
        if have == need { Ok(()) } else { Err(CompressError::Incomplete { have, need }) }
    }

    /// Length of the longest stream that saves a block.
    pub fn most(self) -> usize {
        self.cluster_bytes() - crate::BLOCK - HEADER
    }

    /// The blocks of a cluster with this stream. `None` if it saves no block: Linux then writes the cluster
    /// uncompressed, and rejects such a stream.
    pub fn pack(self, stream: &[u8]) -> Option<Vec<crate::Block>> {
        if stream.is_empty() || stream.len() > self.most() {
            return None;
        }
        let mut out = vec![[0; crate::BLOCK]; (HEADER + stream.len()).div_ceil(crate::BLOCK)];
        let bytes = out.as_flattened_mut();
        bytes[..4].copy_from_slice(&(stream.len() as u32).to_le_bytes());
        if self.checksum {
            bytes[4..8].copy_from_slice(&crc::crc32(crc::SEED, stream).to_le_bytes());
        }
        bytes[HEADER..HEADER + stream.len()].copy_from_slice(stream);
        Some(out)
    }

    /// The stream behind the header, after checks.
    fn stream(self, cluster: &[u8]) -> Result<&[u8], CompressError> {
        let (header, rest) = cluster.split_at_checked(HEADER).unwrap_or((&[], &[]));
        let word = |at: usize| header.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let clen = word(0);
        let stream = usize::try_from(clen).ok().and_then(|n| rest.get(..n)).filter(|s| !s.is_empty());
        let stream = stream.ok_or(CompressError::Length { clen, room: rest.len() })?;
        if self.checksum {
            let (stored, computed) = (word(4), crc::crc32(crc::SEED, stream));
            if stored != computed {
                return Err(CompressError::Checksum { stored, computed });
            }
        }
        Ok(stream)
    }
}
