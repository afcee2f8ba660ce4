//! How may a volume store small updates?
//!
//! Whole or as deltas, in place or elsewhere, compressed by F2FS or not: the features of the volume and the mount
//! options for each. A further way is one more line of [`Keeping`]. Left out: the workload.

use f2fs::delta::{Beside, Places, Study};
use f2fs::{InPlace, MountOptions, mkfs};
use format::compress::Algorithm;
use format::node::delta::LONGEST_WHOLE;
use format::superblock::Features;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a volume stores small updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Keeping {
    /// Whole, each at a new address: the F2FS that MedFS FAST'25 compares with.
    Log,
    /// Whole, in place if an fsync has few blocks: F2FS with default mount options.
    InPlace,
    /// As deltas in inodes; other pages go to new addresses.
    Dci,
    /// As deltas in inodes; other pages stay in place if an fsync has few blocks.
    DciInPlace,
    /// As deltas in delta nodes; other pages go to new addresses.
    Dcm,
    /// As deltas in compact pages listed in a meta page that the inode names: MedFS's own DCM, three blocks per fsync.
    DcmPaper,
    /// As deltas in inodes and such compact pages: MedFS's own layout of both.
    DeltasPaper,
    /// As pages compressed one by one and packed: a stand-in for FPC (Ji et al., FAST'21), two blocks per fsync.
    Fpc,
    /// As deltas in inodes and delta nodes; other pages go to new addresses.
    Deltas,
    /// As deltas in inodes and delta nodes; other pages stay in place if an fsync has few blocks.
    DeltasInPlace,
    /// Whole, compressed by F2FS with LZO in clusters of four pages if that saves a page.
    Lzo,
    /// Whole, compressed by F2FS with LZ4 in the same way.
    Lz4,
    /// Whole, compressed by F2FS with Zstandard in the same way.
    Zstd,
}

impl Keeping {
    /// The volume's features and its mount options.
    pub fn of(self) -> (Features, MountOptions) {
        let plain = mkfs::Options::modern().features;
        let usual = MountOptions::default();
        let log = MountOptions { in_place: InPlace::Few(0), ..usual.clone() };
        let compressed = |algorithm| {
            let mut compress = f2fs::compress::options::Options::default();
            compress.method.algorithm = algorithm;
            compress.extensions = vec!["*".into()];
            (plain | Features::COMPRESSION, MountOptions { compress, ..log.clone() })
        };
        let of_medfs = Study::MEDFS;
        match self {
            Keeping::Lzo => compressed(Algorithm::Lzo),
            Keeping::Lz4 => compressed(Algorithm::Lz4),
            Keeping::Zstd => compressed(Algorithm::Zstd),
            Keeping::Log => (plain, log),
            Keeping::InPlace => (plain, usual),
            Keeping::Dci => (plain | Features::DELTA, MountOptions { delta_places: Places::Inode, ..log }),
            Keeping::DciInPlace => (plain | Features::DELTA, MountOptions { delta_places: Places::Inode, ..usual }),
            Keeping::Dcm => (plain | Features::DELTA, MountOptions { delta_places: Places::Nodes, ..log }),
            Keeping::DcmPaper => {
                (plain | Features::DELTA, MountOptions { delta_places: Places::Nodes, delta_study: of_medfs, ..log })
            }
            Keeping::DeltasPaper => (plain | Features::DELTA, MountOptions { delta_study: of_medfs, ..log }),
            Keeping::Fpc => {
                let delta_study =
                    Study { alone: true, longest: LONGEST_WHOLE, beside: Beside::Inode, ..Study::default() };
                (plain | Features::DELTA, MountOptions { delta_places: Places::Nodes, delta_study, ..log })
            }
            Keeping::Deltas => (plain | Features::DELTA, log),
            Keeping::DeltasInPlace => (plain | Features::DELTA, usual),
        }
    }
}
