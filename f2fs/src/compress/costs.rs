//! How long does compression take?
//!
//! Times per block of uncompressed contents come from a profile, so that runs are reproducible; the device's meter
//! counts their energy. Left out: the time saved when incompressible contents are given up early, and levels of
//! Zstandard.

use device::energy::profile::{HostSpec, Profile};
use device::energy::{Nanos, Work};
use format::compress::{Algorithm, Method};

/// Times for one block of uncompressed contents, by LZO or LZ4 and by Zstandard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    pack: [Nanos; 2],
    unpack: [Nanos; 2],
}

impl Costs {
    /// Costs on the machine of a profile.
    pub fn of(profile: &Profile) -> Costs {
        let HostSpec { compress, decompress, zstd_compress, zstd_decompress, .. } = &profile.host;
        Costs { pack: [compress.value, zstd_compress.value], unpack: [decompress.value, zstd_decompress.value] }
    }

    fn of_cluster(works: [Work; 2], times: [Nanos; 2], method: Method) -> (Work, Nanos) {
        let n = usize::from(method.algorithm == Algorithm::Zstd);
        (works[n], Nanos(times[n].0 * u64::from(method.cluster_blocks())))
    }

    /// Compressing a cluster, whether the stream is kept or not: the kind of work, and its time.
    pub fn pack(&self, method: Method) -> (Work, Nanos) {
        Self::of_cluster([Work::Compress, Work::ZstdCompress], self.pack, method)
    }

    /// Decompressing a cluster, likewise.
    pub fn unpack(&self, method: Method) -> (Work, Nanos) {
        Self::of_cluster([Work::Decompress, Work::ZstdDecompress], self.unpack, method)
    }
}

/// Costs for a profile that has none.
impl Default for Costs {
    fn default() -> Self {
        let [compress, decompress, zstd_compress, zstd_decompress] = HostSpec::COMPRESSING;
        Costs { pack: [compress, zstd_compress], unpack: [decompress, zstd_decompress] }
    }
}
