//! Volumes of JouleFS and of `mkfs.f2fs` are the same bytes, and `fsck.f2fs` finds nothing in those of JouleFS.
//!
//! Intended differences, each masked only in its place:
//! * the two version texts of the superblock name the tool, so its checksum differs too;
//! * lost+found is in the node table and not only in the journal that overrides it;
//! * a quota file's radix tree leads to the owner's id even if that is not 0, and the group's file
//!   records the group;
//! * without user quota, the footer of a project quota inode still has the block after its own as next.
//!
//! Sections of several segments: `mkfs.f2fs` counts segments behind the last whole section as free and lets them
//! inflate the reserve. The sizes here leave no such segments.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use device::{FileDevice, Time, VirtualClock};
use f2fs::mkfs::{MkfsError, Options, Summary};
use format::sit::LogType;
use format::superblock::{Features, SuperBlock};
use format::{BLOCK, Block};
use joulefs_f2fs as f2fs;
use judges::oracle::tools::{Mkfs, assert_fsck_clean};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const UUID: [u8; 16] = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
/// The version that `mkfs.f2fs -r` draws from a generator seeded with zero.
const VERSION: u32 = 1_804_289_383;

fn ours(path: &Path, bytes: u64, opts: &Options) -> Result<Summary, MkfsError> {
    let dev = FileDevice::create(path, bytes).expect("an image file");
    let clock = VirtualClock::new(Time::new(1000, 0));
    let fixed = Options { uuid: Some(UUID), checkpoint_version: Some(VERSION), assume_zeroed: true, ..opts.clone() };
    f2fs::mkfs::format(&dev, &clock, &fixed)
}

/// The same options as arguments of `mkfs.f2fs`.
fn arguments(opts: &Options) -> Mkfs {
    let mut extra: Vec<String> =
        ["-q", "-r", "-T", "1000", "-U", "00112233-4455-6677-8899-aabbccddeeff"].map(Into::into).to_vec();
    if opts.large_nat_bitmap {
        extra.push("-i".into());
    }
    if opts.features.contains(Features::CASEFOLD) {
        // Without it the superblock has no encoding.
        extra.extend(["-C".into(), "utf8".into()]);
    }
    extra.extend(["-R".into(), format!("{}:{}", opts.root_owner.0, opts.root_owner.1)]);
    Mkfs {
        features: opts
            .features
            .names()
            .into_iter()
            .map(|n| if n == "quota_ino" { "quota".into() } else { n })
            .collect(),
        segments_per_section: Some(opts.segs_per_sec),
        sections_per_zone: Some(opts.secs_per_zone),
        overprovision: opts.overprovision,
        label: Some(opts.label.clone()).filter(|l| !l.is_empty()),
        extra,
    }
}

fn read(file: &File, at: u64) -> Block {
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, at * BLOCK as u64).expect("the image is that long");
    block
}

/// Blocks to compare: all of a small volume; of a large volume those that a format may write.
fn places(sb: &SuperBlock, logs: &[u32]) -> Vec<u64> {
    let end = sb.block_count.min(u64::from(sb.main.0) + u64::from(sb.main_segs) * 512);
    if end < 1 << 15 {
        return (0..end).collect();
    }
    let head = |at: u32, n: u32| u64::from(at)..u64::from(at) + u64::from(n);
    let mut out: Vec<u64> = (0..4).chain(head(sb.cp.0, 1024)).collect();
    for at in [sb.sit.0, sb.nat.0, sb.ssa.0].into_iter().chain(logs.iter().copied()) {
        out.extend(head(at, 16));
    }
    out
}

fn mask(at: u64, block: &mut Block, sb: &SuperBlock, opts: &Options, logs: &[u32]) {
    let has = |f| opts.features.contains(f);
    if at < 2 {
        block[1024 + 1668..1024 + 2180].fill(0);
        block[1024 + 3068..].fill(0);
    }
    if at == u64::from(sb.nat.0) && has(Features::LOST_FOUND) {
        let quota_files = sb.quota_inos.iter().filter(|i| i.0 != 0).count();
        block[(4 + quota_files) * 9..(5 + quota_files) * 9].fill(0);
    }
    let hot_data = u64::from(logs[LogType::HotData.index()]);
    if has(Features::QUOTA_INO) && opts.root_owner != (0, 0) && (1..5).contains(&(at.wrapping_sub(hot_data))) {
        block.fill(0);
    }
    let hot_node = u64::from(logs[LogType::HotNode.index()]);
    if has(Features::PRJQUOTA) && !has(Features::QUOTA_INO) && at == hot_node + 1 {
        block[format::node::FOOTER + 20..].fill(0);
    }
}

#[track_caller]
fn assert_same(bytes: u64, opts: &Options) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (a, b) = (dir.path().join("theirs.img"), dir.path().join("ours.img"));
    let theirs = arguments(opts).format(&a, bytes);
    let made = ours(&b, bytes, opts);
    let what = format!("{} MiB, {opts:?}", bytes / MIB);
    let summary = match (theirs, made) {
        (Ok(_), Ok(summary)) => summary,
        (Err(_), Err(MkfsError::TooSmall { .. })) => return,
        (t, o) => panic!("{what}: mkfs.f2fs: {t:?}, we: {o:?}"),
    };
    let (a, b) = (File::open(&a).expect("theirs"), File::open(dir.path().join("ours.img")).expect("ours"));
    let sb = SuperBlock::check(&read(&b, 0)).expect("a lawful superblock");
    let logs = summary.geometry.logs.map(|s| sb.seg_start(s).0);
    for at in places(&sb, &logs) {
        let (mut x, mut y) = (read(&a, at), read(&b, at));
        mask(at, &mut x, &sb, opts, &logs);
        mask(at, &mut y, &sb, opts, &logs);
        if let Some(i) = (0..BLOCK).find(|&i| x[i] != y[i]) {
            panic!("{what}: block {at} byte {i}: mkfs.f2fs {:#x}, we {:#x}", x[i], y[i]);
        }
    }
}

fn with(features: &[Features]) -> Options {
    let features = features.iter().fold(Features::empty(), |a, b| a | *b);
    Options { features, ..Options::default() }
}

fn everything() -> Options {
    Options {
        label: "Größe".into(),
        features: Options::modern().features
            | Features::PRJQUOTA
            | Features::QUOTA_INO
            | Features::COMPRESSION
            | Features::VERITY,
        ..Options::default()
    }
}

#[test]
fn plain_volumes_of_every_size_are_the_same() {
    let mib = (40..=256).step_by(6).chain([51, 52, 53, 511, 512, 513, 518, 520, 777, 1024, 1500, 4000]);
    let gib = [16, 30, 64, 100, 256, 1024, 3000, 4096, 8192, 15 << 10];
    for bytes in mib.map(|m| m * MIB).chain(gib.map(|g| g * GIB)) {
        assert_same(bytes, &Options::default());
    }
}

#[test]
fn volumes_with_large_sections_and_zones_are_the_same() {
    for (segs_per_sec, secs_per_zone) in [(2, 1), (3, 1), (4, 1), (8, 1), (1, 2), (2, 3)] {
        for zones in [10, 15, 20, 22, 27, 30, 60, 128, 130, 131, 250] {
            let opts = Options { segs_per_sec, secs_per_zone, ..Options::default() };
            assert_same(zones * 2 * MIB * u64::from(segs_per_sec * secs_per_zone), &opts);
        }
    }
}

#[test]
fn volumes_with_a_given_overprovision_are_the_same() {
    for percent in [5.0, 7.5, 20.0, 60.0, 95.0] {
        for mib in [46, 48, 50, 64, 100, 1024] {
            let opts = Options { overprovision: Some(percent), ..Options::default() };
            assert_same(mib * MIB, &opts);
        }
    }
}

#[test]
fn volumes_with_a_large_nat_bitmap_are_the_same() {
    for mib in [64, 1024, 100 << 10, 1 << 20] {
        assert_same(mib * MIB, &Options { large_nat_bitmap: true, ..Options::default() });
    }
}

#[test]
fn volumes_with_each_feature_are_the_same() {
    let extra = Features::EXTRA_ATTR;
    for opts in [
        with(&[extra]),
        with(&[extra, Features::INODE_CHECKSUM]),
        with(&[extra, Features::FLEXIBLE_INLINE_XATTR]),
        with(&[extra, Features::INODE_CRTIME]),
        with(&[extra, Features::COMPRESSION]),
        with(&[extra, Features::PRJQUOTA]),
        with(&[extra, Features::PRJQUOTA, Features::QUOTA_INO]),
        with(&[Features::QUOTA_INO]),
        with(&[Features::LOST_FOUND]),
        with(&[Features::SB_CHKSUM]),
        with(&[Features::VERITY]),
        with(&[Features::ENCRYPT]),
        with(&[Features::CASEFOLD]),
        Options { root_owner: (5, 70_000), ..with(&[Features::QUOTA_INO, Features::LOST_FOUND]) },
        Options::modern(),
        everything(),
    ] {
        assert_same(64 * MIB, &opts);
    }
}

#[test]
fn fsck_finds_nothing_in_volumes_from_48_mib_to_16_tib() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("ours.img");
    let tight = Options { overprovision: Some(95.0), ..Options::default() };
    let owned = Options { root_owner: (1000, 4_000_000_000), ..everything() };
    for (bytes, opts) in [
        (48 * MIB, tight),
        (52 * MIB, Options::default()),
        (52 * MIB, everything()),
        (64 * MIB, owned),
        (GIB, Options::modern()),
        (1024 * GIB, everything()),
        // The largest file of ext4: one block less than the largest volume.
        ((16 << 40) - 4096, Options::modern()),
    ] {
        ours(&image, bytes, &opts).unwrap_or_else(|e| panic!("{bytes} bytes, {opts:?}: {e}"));
        assert_fsck_clean(&image);
    }
}
