//! In which ways may a volume keep small updates?
//!
//! Whole or as deltas, in place or in a new place, compressed by F2FS or not: what a volume is made with for each, and how
//! it is mounted. One more way is one more line of [`Keeping`]. Left out: who writes what.

use f2fs::delta::{Beside, Places, Study};
use f2fs::{MountOptions, mkfs};
use format::compress::Algorithm;
use format::node::delta::LONGEST_WHOLE;
use format::superblock::Features;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a volume keeps small updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Keeping {
    /// Whole, each in a new place: F2FS as MedFS FAST'25 measures against it.
    Log,
    /// Whole, in place where an fsync is of few blocks: F2FS as it is mounted everywhere.
    InPlace,
    /// As deltas in inodes; what is none gets a new place.
    Dci,
    /// As deltas in inodes; what is none stays in place where an fsync is of few blocks.
    DciInPlace,
    /// As deltas in delta nodes; what is none gets a new place.
    Dcm,
    /// As deltas in compact pages that a meta page names, which the inode names: MedFS's own DCM, three blocks an fsync.
    DcmPaper,
    /// As deltas in inodes and such compact pages: MedFS's own layout of both.
    DeltasPaper,
    /// As pages compressed by themselves and packed: a stand-in for FPC (Ji et al., FAST'21), two blocks an fsync.
    Fpc,
    /// As deltas in inodes and delta nodes; what is none gets a new place.
    Deltas,
    /// As deltas in inodes and delta nodes; what is none stays in place where an fsync is of few blocks.
    DeltasInPlace,
    /// Whole, compressed by F2FS in clusters of four pages where that saves one.
    Lzo,
    /// The same by LZ4.
    Lz4,
    /// The same by Zstandard.
    Zstd,
}

impl Keeping {
    /// What the volume is made with, and how it is mounted.
    pub fn of(self) -> (Features, MountOptions) {
        let plain = mkfs::Options::modern().features;
        let usual = MountOptions::default();
        let log = MountOptions { in_place_blocks: 0, ..usual.clone() };
        let compressed = |algorithm| {
            let mut compress = f2fs::compress::options::Options::default();
            compress.method.algorithm = algorithm;
            compress.extensions = vec!["*".into()];
            (plain | Features::COMPRESSION, MountOptions { compress, ..log.clone() })
        };
        let of_medfs = Study { beside: Beside::MetaAndInode, ..Study::default() };
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
                let delta_study = Study { alone: true, longest: LONGEST_WHOLE, beside: Beside::Inode };
                (plain | Features::DELTA, MountOptions { delta_places: Places::Nodes, delta_study, ..log })
            }
            Keeping::Deltas => (plain | Features::DELTA, log),
            Keeping::DeltasInPlace => (plain | Features::DELTA, usual),
        }
    }
}
