//! F2FS's CRC-32: reflected, polynomial 0xEDB88320, the seed is the starting register, and nothing
//! is inverted before or after (kernel `crc32_le`).

/// The seed of superblock and checkpoint checksums: the file system's magic.
pub const SEED: u32 = crate::MAGIC;

/// Continues `seed` over `bytes`.
#[inline]
pub fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    let mut h = crc32fast::Hasher::new_with_initial(!seed);
    h.update(bytes);
    !h.finalize()
}
