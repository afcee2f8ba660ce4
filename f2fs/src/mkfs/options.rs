//! What can a user choose when a volume is made, and which choices go together?

use format::superblock::{Features, MAX_EXTENSIONS};

use super::MkfsError;

/// Suffixes whose files go to the cold log: media, archives, programs (the list of `mkfs.f2fs` 1.15).
/// The first four are prefixes of suffixes, as the kernel matches without an end.
pub const COLD_EXTENSIONS: [&str; 36] = [
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus", "flac", "gif",
    "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc", "ttc", "ttf", "exe", "apk", "cnt",
    "exo", "odex", "vdex", "so",
];

/// Suffixes whose files go to the hot log: databases and disk images (same source).
pub const HOT_EXTENSIONS: [&str; 4] = ["db", "vmdk", "vdi", "qcow2"];

/// Bytes of a suffix, with its closing zero.
const EXTENSION_LEN: usize = 8;
/// UTF-16 units of a label, with its closing zero.
const LABEL_LEN: usize = 512;

/// What can be chosen. [`Options::default`] is plain `mkfs.f2fs`.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Name of the volume, at most 511 UTF-16 units.
    pub label: String,
    /// Identity; drawn at random if `None`.
    pub uuid: Option<[u8; 16]>,
    /// Feature bits. [`Features::QUOTA_INO`] makes quota files of users and groups,
    /// [`Features::PRJQUOTA`] that of projects (and the volume then has both bits).
    pub features: Features,
    /// Blocks to use from the start of the device; all of them if `None`.
    pub blocks: Option<u64>,
    /// Percent of the main area kept back for cleaning; the best for the size if `None`.
    pub overprovision: Option<f64>,
    /// Segments in a section, the unit of cleaning.
    pub segs_per_sec: u32,
    /// Sections in a zone; logs start in zones of their own.
    pub secs_per_zone: u32,
    /// Suffixes of cold files.
    pub cold_extensions: Vec<String>,
    /// Suffixes of hot files.
    pub hot_extensions: Vec<String>,
    /// User and group that own the root directory.
    pub root_owner: (u32, u32),
    /// A fifth of the device's blocks may be nodes, however large it is; without it the node table
    /// ends where its version bitmap fills the checkpoint block (`mkfs.f2fs -i`). Linux takes these
    /// volumes at any size; `fsck.f2fs` 1.15 finds no checkpoint on one of 2 TiB or more, whoever made it.
    pub large_nat_bitmap: bool,
    /// Discard the device first, and note in the checkpoint that free space is trimmed.
    pub discard: bool,
    /// The device reads as zeroes already (a new sparse file, a new memory device): zero nothing,
    /// discard nothing. On any other device the volume is damaged from the start.
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

/// Features a fresh volume can have. Encryption, verity, case folding and compression say only that files may come
/// to use them: an empty volume is the same without.
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
    /// Checksums on superblock and inodes, birth times, flexible inline attributes, lost+found: what
    /// guards and describes files and costs no more than a few words of each inode.
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

    /// Names the first choice that is impossible on any device.
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
        // The product is a length in segments, and a volume has 2^23 of them.
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

    /// The bits the superblock gets.
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
