//! Volumes of every kind for power cuts: how they are made and mounted, and how full they are.

use std::sync::Arc;
use std::time::Duration;

use device::Memory;
use f2fs::gc::settings::{Pace, Settings};
use f2fs::mkfs::Options;
use f2fs::{Mode, MountOptions};
use format::superblock::Features;
use scherlfs::{Clean, Placement, Strategy};
use trials::subject::{F2fs, ScherlFs, Subject};
use vfs::{Commit, Power};
use victim::Policy;

/// A kind of volume, on some file system.
pub trait Shape: Sync {
    /// The file system.
    type Of: Subject;
    /// How the volume is made and mounted.
    fn subject(&self) -> Self::Of;
    /// Its name.
    fn name(&self) -> &'static str;
    /// Its size.
    fn mib(&self) -> u64;
    /// Percent filled with unchanging, fragmented files.
    fn full(&self) -> u64;
    /// Settings applied after mounting.
    fn tuned(&self) -> &'static [(&'static str, &'static str)];
    /// Further preparation of a new volume.
    fn made(&self, _dev: &Arc<Memory>) {}
    /// Whether its logs only append.
    fn appends(&self) -> bool {
        false
    }
    /// If it may have deltas, whether they are made: Linux does not support it.
    fn deltas(&self) -> Option<bool> {
        None
    }
}

/// A volume of F2FS.
pub struct Kind {
    pub name: &'static str,
    mib: u64,
    options: fn() -> Options,
    mount: fn() -> MountOptions,
    full: u64,
    tuned: &'static [(&'static str, &'static str)],
}

impl Shape for Kind {
    type Of = F2fs;

    fn subject(&self) -> F2fs {
        let made =
            Options { assume_zeroed: true, checkpoint_version: Some(7), uuid: Some([3; 16]), ..(self.options)() };
        // `made` comes before the features that deltas add.
        F2fs { made, mounted: (self.mount)(), deltas: false }
    }
    fn name(&self) -> &'static str {
        self.name
    }
    fn mib(&self) -> u64 {
        self.mib
    }
    fn full(&self) -> u64 {
        self.full
    }
    fn tuned(&self) -> &'static [(&'static str, &'static str)] {
        self.tuned
    }
    fn made(&self, dev: &Arc<Memory>) {
        if let Some((_, blocks)) = PAYLOAD.iter().find(|(name, _)| *name == self.name) {
            judges::payload::give(dev, *blocks);
        }
        if self.deltas().is_some() {
            f2fs::settle::unsettle(&**dev).expect("a new volume becomes one with deltas");
        }
    }
    fn appends(&self) -> bool {
        (self.mount)().mode == Mode::Lfs || (self.options)().features.contains(Features::BLKZONED)
    }
    fn deltas(&self) -> Option<bool> {
        self.name.starts_with("deltas").then(|| (self.mount)().delta)
    }
}

/// A volume of ScherlFS with few segments.
pub struct Scherl {
    name: &'static str,
    mib: u64,
    mount: fn() -> scherlfs::MountOptions,
    full: u64,
}

impl Shape for Scherl {
    type Of = ScherlFs;

    fn subject(&self) -> ScherlFs {
        let made = scherlfs::make::Options { segment_blocks: 16, ..Default::default() };
        ScherlFs { made, mounted: (self.mount)(), beside: false }
    }
    fn name(&self) -> &'static str {
        self.name
    }
    fn mib(&self) -> u64 {
        self.mib
    }
    fn full(&self) -> u64 {
        self.full
    }
    fn tuned(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

fn scherlfs_options(clean: Clean, power: Power) -> scherlfs::MountOptions {
    scherlfs::MountOptions { clean, power, dirty: 500, checkpoint_blocks: 1000, ..Default::default() }
}

fn each_call() -> scherlfs::MountOptions {
    let sync = scherlfs::Sync::Call;
    scherlfs::MountOptions { sync, ..scherlfs_options(Clean::ByPower, Power::Battery) }
}

/// Space freed in every way, with little memory or none, full or not.
pub const SCHERLFS: &[Scherl] = &[
    Scherl { name: "scherlfs", mib: 32, mount: Default::default, full: 0 },
    Scherl { name: "scherlfs-battery", mib: 32, mount: || scherlfs_options(Clean::ByPower, Power::Battery), full: 85 },
    Scherl { name: "scherlfs-charger", mib: 32, mount: || scherlfs_options(Clean::ByPower, Power::Powered), full: 85 },
    Scherl {
        name: "scherlfs-copying",
        mib: 32,
        mount: || scherlfs_options(Clean::Always(Strategy::Copying), Power::Powered),
        full: 80,
    },
    Scherl {
        name: "scherlfs-plugging",
        mib: 32,
        mount: || scherlfs_options(Clean::Always(Strategy::Plugging), Power::Powered),
        full: 90,
    },
    Scherl {
        name: "scherlfs-call",
        mib: 32,
        mount: || scherlfs::MountOptions { dir_cache: 0, ifile_cache: 1, inode_cache: 4, ..each_call() },
        full: 60,
    },
    Scherl {
        name: "scherlfs-after",
        mib: 32,
        mount: || scherlfs::MountOptions { placement: Some(Placement::After), ..each_call() },
        full: 70,
    },
    Scherl {
        name: "scherlfs-in-place",
        mib: 32,
        mount: || scherlfs::MountOptions { placement: Some(Placement::InPlace), inode_cache: 4, ..each_call() },
        full: 85,
    },
    Scherl {
        name: "scherlfs-delayed",
        mib: 32,
        mount: || scherlfs::MountOptions { placement: Some(Placement::Delayed), ..each_call() },
        full: 40,
    },
    Scherl { name: "scherlfs-full", mib: 32, mount: || scherlfs_options(Clean::ByPower, Power::Battery), full: 98 },
];

/// Kinds whose packs have payload blocks, and how many.
const PAYLOAD: &[(&str, u32)] = &[("payload", 2), ("payload-full-sections", 1)];

fn by(policy: Policy) -> MountOptions {
    // `joule` cleans at any price until enough is free.
    let gc = Settings { policy, pace: Pace::of(policy), keep_free: 90, ..MountOptions::default().gc };
    MountOptions { gc, ..MountOptions::default() }
}

/// Changes are durable three seconds later.
fn commits() -> MountOptions {
    MountOptions { commit: Some(Commit::within(Duration::from_secs(3))), ..MountOptions::default() }
}

fn little_memory() -> MountOptions {
    MountOptions { node_cache: 64, dirty_limit: 32, dir_cache: 16, ..MountOptions::default() }
}

/// However much space inodes have.
fn deltas_in_nodes() -> MountOptions {
    MountOptions { delta_places: f2fs::delta::Places::Nodes, ..little_memory() }
}

fn may_compress() -> Options {
    Options { features: Options::modern().features | Features::COMPRESSION, ..Options::modern() }
}

/// All new files are compressed.
fn compressed(mut options: MountOptions) -> MountOptions {
    options.compress.extensions.push("*".into());
    options
}

const URGENT: &[(&str, &str)] = &[("gc_urgent", "1")];
const NO_AGE: &[(&str, &str)] = &[("atgc_age_threshold", "0")];

/// F2FS volumes of every kind.
pub const KINDS: &[Kind] = &[
    Kind { name: "plain", mib: 64, options: Options::modern, mount: MountOptions::default, full: 0, tuned: &[] },
    Kind { name: "commits", mib: 64, options: Options::modern, mount: commits, full: 40, tuned: &[] },
    Kind { name: "little-memory", mib: 64, options: Options::modern, mount: little_memory, full: 50, tuned: &[] },
    Kind {
        name: "no-inline",
        mib: 64,
        options: Options::modern,
        mount: || MountOptions { inline: false, discard: false, ..MountOptions::default() },
        full: 60,
        tuned: &[],
    },
    Kind {
        name: "sections-of-three",
        mib: 128,
        options: || Options { segs_per_sec: 3, ..Options::modern() },
        mount: MountOptions::default,
        full: 80,
        tuned: &[],
    },
    Kind {
        name: "zones",
        mib: 128,
        options: || Options { segs_per_sec: 2, secs_per_zone: 2, ..Options::modern() },
        mount: little_memory,
        full: 70,
        tuned: URGENT,
    },
    Kind {
        name: "large-nat",
        mib: 64,
        options: || Options { large_nat_bitmap: true, ..Options::modern() },
        mount: MountOptions::default,
        full: 30,
        tuned: &[],
    },
    Kind {
        name: "every-feature",
        mib: 64,
        options: || Options {
            features: Options::modern().features | Features::COMPRESSION | Features::QUOTA_INO | Features::PRJQUOTA,
            ..Options::modern()
        },
        mount: MountOptions::default,
        full: 40,
        tuned: &[],
    },
    Kind {
        name: "compressed",
        mib: 64,
        options: may_compress,
        mount: || compressed(MountOptions::default()),
        full: 60,
        tuned: &[],
    },
    Kind {
        name: "compressed-full",
        mib: 64,
        options: may_compress,
        mount: || compressed(little_memory()),
        full: 95,
        tuned: URGENT,
    },
    Kind { name: "deltas", mib: 64, options: Options::modern, mount: MountOptions::default, full: 40, tuned: &[] },
    Kind { name: "deltas-full", mib: 64, options: Options::modern, mount: little_memory, full: 95, tuned: URGENT },
    Kind { name: "deltas-nodes", mib: 64, options: Options::modern, mount: deltas_in_nodes, full: 80, tuned: URGENT },
    Kind {
        name: "deltas-off",
        mib: 64,
        options: Options::modern,
        mount: || MountOptions { delta: false, ..MountOptions::default() },
        full: 60,
        tuned: &[],
    },
    Kind {
        name: "deltas-sections",
        mib: 128,
        options: || Options { segs_per_sec: 2, ..Options::modern() },
        mount: MountOptions::default,
        full: 90,
        tuned: &[],
    },
    // For defragmentation: on smaller volumes logs fill holes.
    Kind { name: "roomy", mib: 256, options: Options::modern, mount: MountOptions::default, full: 0, tuned: &[] },
    Kind { name: "roomy-deltas", mib: 256, options: Options::modern, mount: little_memory, full: 10, tuned: &[] },
    Kind { name: "payload", mib: 64, options: Options::modern, mount: little_memory, full: 60, tuned: &[] },
    Kind {
        name: "payload-full-sections",
        mib: 128,
        options: || Options { segs_per_sec: 4, ..Options::default() },
        mount: MountOptions::default,
        full: 90,
        tuned: URGENT,
    },
    Kind { name: "nearly-full", mib: 64, options: Options::modern, mount: MountOptions::default, full: 95, tuned: &[] },
    Kind { name: "full", mib: 64, options: Options::modern, mount: little_memory, full: 99, tuned: &[] },
    Kind {
        name: "full-sections",
        mib: 128,
        options: || Options { segs_per_sec: 2, ..Options::modern() },
        mount: MountOptions::default,
        full: 98,
        tuned: &[],
    },
    Kind {
        name: "greedy-urgent",
        mib: 64,
        options: Options::modern,
        mount: || by(Policy::Greedy),
        full: 85,
        tuned: URGENT,
    },
    Kind { name: "atgc", mib: 64, options: Options::modern, mount: || by(Policy::Atgc), full: 80, tuned: NO_AGE },
    Kind { name: "fagc", mib: 64, options: Options::modern, mount: || by(Policy::Fagc), full: 90, tuned: NO_AGE },
    Kind { name: "mwhfb", mib: 64, options: Options::modern, mount: || by(Policy::Mwhfb), full: 85, tuned: &[] },
    Kind { name: "joule", mib: 64, options: Options::modern, mount: || by(Policy::Joule), full: 90, tuned: &[] },
];

fn appending(mount: MountOptions) -> MountOptions {
    MountOptions { mode: Mode::Lfs, ..mount }
}

/// F2FS whose logs only append: by option, or because they are on zones. A section is a zone.
pub const APPENDING: &[Kind] = &[
    Kind {
        name: "appending",
        mib: 96,
        options: Options::modern,
        mount: || appending(little_memory()),
        full: 60,
        tuned: &[],
    },
    Kind {
        name: "appending-joule",
        mib: 96,
        options: Options::modern,
        mount: || appending(by(Policy::Joule)),
        full: 90,
        tuned: URGENT,
    },
    Kind {
        name: "zoned",
        mib: 96,
        options: || Options::modern().zoned(1),
        mount: MountOptions::default,
        full: 0,
        tuned: &[],
    },
    Kind {
        name: "zoned-full",
        mib: 128,
        options: || Options::modern().zoned(1),
        mount: little_memory,
        full: 90,
        tuned: URGENT,
    },
    Kind {
        name: "zoned-fagc",
        mib: 192,
        options: || Options::modern().zoned(2),
        mount: || by(Policy::Fagc),
        full: 80,
        tuned: NO_AGE,
    },
    Kind {
        name: "compressed-zoned",
        mib: 96,
        options: || may_compress().zoned(1),
        mount: || compressed(little_memory()),
        full: 70,
        tuned: URGENT,
    },
    Kind {
        name: "deltas-zoned",
        mib: 96,
        options: || Options::modern().zoned(1),
        mount: little_memory,
        full: 60,
        tuned: &[],
    },
    Kind {
        name: "deltas-zoned-nodes",
        mib: 192,
        options: || Options::modern().zoned(2),
        mount: deltas_in_nodes,
        full: 80,
        tuned: URGENT,
    },
    Kind {
        name: "quota-zoned",
        mib: 96,
        options: || {
            let features = Options::modern().features | Features::QUOTA_INO | Features::PRJQUOTA;
            Options { features, ..Options::modern() }.zoned(1)
        },
        mount: MountOptions::default,
        full: 50,
        tuned: &[],
    },
];
