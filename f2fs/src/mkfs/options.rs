//! Which options does mkfs have, and which of them go together?

use format::superblock::{Features, MAX_EXTENSIONS};

use super::MkfsError;

/// Suffixes of files in the cold log: media, archives, programs (the list of `mkfs.f2fs` 1.15). The first four are
/// prefixes of suffixes, because the kernel does not match up to the end.
pub const COLD_EXTENSIONS: [&str; 36] = [
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus", "flac", "gif",
    "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc", "ttc", "ttf", "exe", "apk", "cnt",
    "exo", "odex", "vdex", "so",
];

/// Suffixes of files in the hot log: databases and disk images (same source).
pub const HOT_EXTENSIONS: [&str; 4] = ["db", "vmdk", "vdi", "qcow2"];

/// Bytes of a suffix, including its final zero.
const EXTENSION_LEN: usize = 8;
/// UTF-16 units of a label, including its final zero.
const LABEL_LEN: usize = 512;

/// The options. [`Options::default`] is plain `mkfs.f2fs`.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Name of the volume, at most 511 UTF-16 units.
    pub label: String,
    /// Identity; drawn at random if `None`.
    pub uuid: Option<[u8; 16]>,
    /// Feature bits. [`Features::QUOTA_INO`] creates quota files for users and groups, [`Features::PRJQUOTA`] for
    /// projects (the volume then has both bits).
    pub features: Features,
    /// Blocks to use from the start of the device; all of them if `None`.
    pub blocks: Option<u64>,
    /// Percent of the main area reserved for cleaning; the best for the size if `None`.
    pub overprovision: Option<f64>,
    /// Segments in a section, the unit of cleaning.
    pub segs_per_sec: u32,
    /// Sections in a zone; each log starts in its own zone.
    pub secs_per_zone: u32,
    /// Suffixes of cold files.
    pub cold_extensions: Vec<String>,
    /// Suffixes of hot files.
    pub hot_extensions: Vec<String>,
    /// User and group that own the root directory.
    pub root_owner: (u32, u32),
    /// A fifth of the device's blocks may be nodes, whatever its size; otherwise the node table ends where its version
    /// bitmap fills the checkpoint block (`mkfs.f2fs -i`). Linux mounts such volumes of any size; `fsck.f2fs` 1.15
    /// finds no checkpoint on one of 2 TiB or more, even if `mkfs.f2fs` created it.
    pub large_nat_bitmap: bool,
    /// Discard the device first, and record in the checkpoint that free space is trimmed.
    pub discard: bool,
    /// The device already reads as zeroes (a new sparse file, a new memory device): zero and discard nothing. On any
    /// other device the volume is damaged from the start.
    pub assume_zeroed: bool,
    /// Version of the first checkpoint; drawn at random if `None`.
    pub checkpoint_version: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect();
        Options {
            label: String::new(),
            uuid: None,
            features: Features::empty(),
            blocks: None,
            overprovision: None,
            segs_per_sec: 1,
            secs_per_zone: 1,
            cold_extensions: own(&COLD_EXTENSIONS),
            hot_extensions: own(&HOT_EXTENSIONS),
            root_owner: (0, 0),
            large_nat_bitmap: false,
            discard: true,
            assume_zeroed: false,
            checkpoint_version: None,
        }
    }
}

/// Features whose fields are extra attributes of the inode.
const NEED_EXTRA_ATTR: Features = Features::PRJQUOTA
    .union(Features::INODE_CHECKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::INODE_CRTIME)
    .union(Features::COMPRESSION)
    .union(Features::DELTA);

/// Features that a new volume can have. Encryption, verity, casefolding and compression only allow files to use them:
/// an empty volume is the same without.
const MAKEABLE: Features = NEED_EXTRA_ATTR
    .union(Features::ENCRYPT)
    .union(Features::BLKZONED)
    .union(Features::EXTRA_ATTR)
    .union(Features::QUOTA_INO)
    .union(Features::LOST_FOUND)
    .union(Features::VERITY)
    .union(Features::CASEFOLD)
    .union(Features::SB_CHKSUM);

impl Options {
    /// Checksums of superblock and inodes, birth times, flexible inline attributes, lost+found: features that protect
    /// and describe files for a few words in each inode.
    #[must_use]
    pub fn modern() -> Self {
        Options {
            features: Features::EXTRA_ATTR
                | Features::INODE_CHECKSUM
                | Features::FLEXIBLE_INLINE_XATTR
                | Features::INODE_CRTIME
                | Features::LOST_FOUND
                | Features::SB_CHKSUM,
            ..Options::default()
        }
    }

    /// The same for a zoned device: a section is a zone (`mkfs.f2fs -m`).
    #[must_use]
    pub fn zoned(self, segments_in_zone: u32) -> Self {
        Options {
            features: self.features | Features::BLKZONED,
            segs_per_sec: segments_in_zone,
            secs_per_zone: 1,
            ..self
        }
    }

    /// Reports the first option that is impossible on any device.
    ///
    /// # Errors
    /// [`MkfsError::Needs`], [`MkfsError::Unsupported`] or [`MkfsError::Option`].
    pub fn check(&self) -> Result<(), MkfsError> {
        self.check_features()?;
        let option = |option, value: String, must| Err(MkfsError::Option { option, value, must });
        let label = self.label.encode_utf16().count();
        if label >= LABEL_LEN || self.label.contains('\0') {
            return option("label", format!("{label} UTF-16 units"), "at most 511, none of them zero");
        }
        if let Some(p) = self.overprovision
            && !(p.is_finite() && p > 0.0 && p < 100.0)
        {
            return option("overprovision", p.to_string(), "above 0 and below 100 percent");
        }
        // The product is a number of segments, and a volume has at most 2^23.
        let zone = u64::from(self.segs_per_sec) * u64::from(self.secs_per_zone);
        if zone == 0 || zone > 1 << 20 {
            return option("segs_per_sec * secs_per_zone", zone.to_string(), "1..=1048576");
        }
        if self.features.contains(Features::BLKZONED) && self.secs_per_zone != 1 {
            return option("secs_per_zone", self.secs_per_zone.to_string(), "1 with blkzoned: a section is a zone");
        }
        let listed = self.cold_extensions.len() + self.hot_extensions.len();
        if listed > MAX_EXTENSIONS || self.hot_extensions.len() > 255 {
            return option("extensions", listed.to_string(), "at most 64, cold and hot together");
        }
        let bad = |e: &&String| e.is_empty() || e.len() >= EXTENSION_LEN || e.contains('\0');
        if let Some(e) = self.cold_extensions.iter().chain(&self.hot_extensions).find(bad) {
            return option("extension", format!("{e:?}"), "1..=7 bytes, none of them zero");
        }
        Ok(())
    }

    /// The feature bits of the superblock.
    pub(super) fn volume_features(&self) -> Features {
        let implied = self.features.contains(Features::PRJQUOTA);
        self.features | if implied { Features::QUOTA_INO } else { Features::empty() }
    }

    fn check_features(&self) -> Result<(), MkfsError> {
        let name =
            |f: Features| Features::NAMES.iter().find(|(bit, _)| f.contains(*bit)).map_or("?", |(_, name)| *name);
        let strange = self.features.difference(MAKEABLE);
        if let Some(feature) = strange.names().into_iter().next() {
            let reason = match feature.as_str() {
                "ro" => "a volume that can never be written needs its files: give --from",
                "device_alias" | "packed_ssa" => "its layout is not supported",
                "atomic_write" => "the bit has no meaning on disk",
                _ => "the bit is not known",
            };
            return Err(MkfsError::Unsupported { feature, reason });
        }
        let hungry = self.features.intersection(NEED_EXTRA_ATTR);
        if !hungry.is_empty() && !self.features.contains(Features::EXTRA_ATTR) {
            return Err(MkfsError::Needs { feature: name(hungry), needs: "extra_attr" });
        }
        if self.features.contains(Features::DELTA) && !self.features.contains(Features::INODE_CHECKSUM) {
            return Err(MkfsError::Needs { feature: name(Features::DELTA), needs: "inode_checksum" });
        }
        Ok(())
    }
}
