//! What `mkfs` refuses and why, its result on used devices, and that it is reproducible.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use device::{BLOCK, BlockDevice, DeviceError, Lba, Memory, Tag, Time, VirtualClock};
use format::Block;
use format::checkpoint::Checkpoint;
use format::superblock::{Features, SuperBlock};
use joulefs_f2fs::mkfs::{self, Geometry, MAX_BLOCKS, MkfsError, Options, Summary};
use judges::oracle::tools::assert_fsck_clean;

const MIB: u64 = 256;

fn make(dev: &dyn BlockDevice, opts: &Options) -> Result<Summary, MkfsError> {
    mkfs::format(dev, &VirtualClock::new(Time::new(1_700_000_000, 5)), opts)
}

fn block(dev: &dyn BlockDevice, at: u64) -> Block {
    let mut out = [0; BLOCK];
    dev.read(Lba(at), &mut out, Tag::default()).expect("a block");
    out
}

fn refusal(opts: Options) -> String {
    let dev = Memory::new(64 * MIB);
    let said = make(&dev, &opts).expect_err("refused").to_string();
    assert_eq!(dev.allocated_bytes(), 0, "{said}: and yet something was written");
    said
}

#[test]
fn features_without_what_they_need_are_refused_by_name() {
    for (feature, name) in [
        (Features::PRJQUOTA, "project_quota"),
        (Features::INODE_CHECKSUM, "inode_checksum"),
        (Features::FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr"),
        (Features::INODE_CRTIME, "inode_crtime"),
        (Features::COMPRESSION, "compression"),
    ] {
        let said = refusal(Options { features: feature, ..Options::default() });
        assert_eq!(said, format!("feature {name} needs extra_attr"));
    }
    for (feature, name) in [
        (Features::RO, "ro"),
        (Features::PACKED_SSA, "packed_ssa"),
        (Features::from_bits_retain(0x4000_0000), "bit 0x40000000"),
    ] {
        let said = refusal(Options { features: feature, ..Options::default() });
        assert!(said.starts_with(&format!("feature {name} cannot be made: ")), "{said}");
    }
}

#[test]
fn options_outside_their_range_are_refused_by_name() {
    let plain = Options::default;
    for (opts, name) in [
        (Options { label: "x".repeat(512), ..plain() }, "label"),
        // A character outside the basic plane counts twice.
        (Options { label: "🦀".repeat(256), ..plain() }, "label"),
        (Options { overprovision: Some(0.0), ..plain() }, "overprovision"),
        (Options { overprovision: Some(100.0), ..plain() }, "overprovision"),
        (Options { overprovision: Some(f64::NAN), ..plain() }, "overprovision"),
        (Options { segs_per_sec: 0, ..plain() }, "segs_per_sec"),
        (Options { secs_per_zone: 0, ..plain() }, "segs_per_sec"),
        (Options { segs_per_sec: u32::MAX, secs_per_zone: u32::MAX, ..plain() }, "segs_per_sec"),
        (Options { hot_extensions: vec!["x".into(); 29], ..plain() }, "extensions"),
        (Options { cold_extensions: vec!["12345678".into()], ..plain() }, "extension "),
        (Options { hot_extensions: vec![String::new()], ..plain() }, "extension "),
    ] {
        let said = refusal(opts);
        assert!(said.starts_with(name), "{said}");
    }
    let said = refusal(Options { blocks: Some(65 * MIB), ..plain() });
    assert_eq!(said, "16640 blocks requested, but the device has 16384");
    let said = refusal(Options { overprovision: Some(1e-6), ..plain() });
    assert!(said.contains("the reserve"), "{said}");
}

#[test]
fn a_label_of_511_units_is_kept_whole() {
    let (dev, label) = (Memory::new(64 * MIB), "🦀".repeat(255) + "x");
    make(&dev, &Options { label: label.clone(), ..Options::default() }).expect("a volume");
    assert_eq!(SuperBlock::check(&block(&dev, 0)).expect("a superblock").label, label);
}

#[test]
fn the_minimal_size_named_works_and_nothing_smaller_does() {
    for opts in [
        Options::default(),
        Options { overprovision: Some(95.0), ..Options::default() },
        Options { overprovision: Some(0.5), ..Options::default() },
        Options { segs_per_sec: 5, secs_per_zone: 3, ..Options::default() },
        Options { large_nat_bitmap: true, ..Options::modern() },
    ] {
        let Err(MkfsError::TooSmall { minimum, .. }) = Geometry::plan(1000, &opts) else {
            panic!("1000 blocks are too few");
        };
        make(&Memory::new(minimum), &opts).unwrap_or_else(|e| panic!("{minimum}: {e}"));
        let zone = u64::from(opts.segs_per_sec * opts.secs_per_zone) * 512;
        for smaller in (0..minimum / zone).map(|n| n * zone).chain([minimum - 1, 0, 1, 1023]) {
            assert!(
                matches!(Geometry::plan(smaller, &opts), Err(MkfsError::TooSmall { minimum: m, .. }) if m == minimum),
                "{smaller} of {minimum}"
            );
        }
    }
    assert_eq!(
        make(&Memory::new(10 * MIB), &Options::default()).expect_err("too small").to_string(),
        "device is too small: 2560 blocks (10 MiB), with these options a volume needs at least 13312 blocks (52 MiB)"
    );
}

#[test]
fn a_device_beyond_16_tib_is_used_up_to_the_last_address() {
    let opts = Options { assume_zeroed: true, ..Options::default() };
    let made = make(&Memory::new(1 << 33), &opts).expect("a volume");
    assert_eq!(made.geometry.block_count, MAX_BLOCKS);
    let g = made.geometry;
    assert!(u64::from(g.main) + u64::from(g.main_segs) * 512 <= MAX_BLOCKS);
    assert!(u64::from(g.segment_count) * 512 + u64::from(g.segment0) <= MAX_BLOCKS);
}

/// A device with no guarantee after discard, which records the position of flushes and can fail.
struct Worn {
    medium: Memory,
    /// Operations left before it fails.
    left: AtomicI64,
}

impl Worn {
    fn full_of(garbage: &dyn Fn(u64) -> Block, blocks: u64) -> Self {
        let medium = Memory::new(blocks);
        for at in 0..blocks {
            medium.write(Lba(at), &garbage(at), Tag::default()).expect("garbage");
        }
        Worn { medium, left: AtomicI64::new(i64::MAX) }
    }
    fn step(&self) -> Result<(), DeviceError> {
        let alive = self.left.fetch_sub(1, Relaxed) > 0;
        if alive { Ok(()) } else { Err(DeviceError::PowerCut { op: "anything" }) }
    }
}

impl BlockDevice for Worn {
    fn blocks(&self) -> u64 {
        self.medium.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<(), DeviceError> {
        self.medium.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<(), DeviceError> {
        self.step()?;
        self.medium.write(at, data, tag)
    }
    fn flush(&self, tag: Tag) -> Result<(), DeviceError> {
        self.step()?;
        self.medium.flush(tag)
    }
    fn discard(&self, _: Lba, _: u64, _: Tag) -> Result<(), DeviceError> {
        self.step()
    }
}

fn fixed(opts: Options) -> Options {
    Options { uuid: Some([7; 16]), checkpoint_version: Some(99), ..opts }
}

#[test]
fn garbage_on_the_device_does_not_show_in_the_volume() {
    let clean = Memory::new(52 * MIB);
    let opts = fixed(Options::modern());
    make(&clean, &opts).expect("a volume");
    let sparse = Memory::new(52 * MIB);
    make(&sparse, &Options { assume_zeroed: true, ..opts.clone() }).expect("a volume");
    assert_eq!(clean.first_difference(&sparse), None, "a zeroed device needs no zeroing");

    let worn = Worn::full_of(&|_| [0xA5; BLOCK], 52 * MIB);
    let made = make(&worn, &opts).expect("a volume");
    let g = &made.geometry;
    let sb = SuperBlock::check(&block(&worn, 0)).expect("a superblock");
    let warm_nodes = u64::from(sb.seg_start(g.logs[4]).0);
    // Everything before the second copies of SIT and NAT, and the warm node log.
    let read_by_mount = (0..512 + 1024 + 512).chain([2560, 3071]).chain(warm_nodes..warm_nodes + 512);
    for at in read_by_mount {
        assert_eq!(block(&worn, at), block(&clean, at), "block {at}");
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("worn.img");
    worn.medium.save(&image).expect("an image");
    assert_fsck_clean(&image);
}

#[test]
fn a_format_cut_short_leaves_no_volume_or_the_new_one() {
    let fresh = || {
        let old = Worn::full_of(&|_| [0; BLOCK], 52 * MIB);
        make(&old, &Options { uuid: Some([1; 16]), ..Options::default() }).expect("the old volume");
        old
    };
    let opts = fixed(Options::modern());
    let mut cuts = 0;
    for n in 0.. {
        let dev = fresh();
        dev.left.store(n, Relaxed);
        let done = make(&dev, &opts).is_ok();
        let found: Vec<_> = [0, 1].into_iter().filter_map(|at| SuperBlock::check(&block(&dev, at)).ok()).collect();
        if n == 0 {
            assert!(found.iter().all(|sb| sb.uuid == [1; 16]), "nothing was done yet");
            continue;
        }
        for sb in &found {
            assert_eq!(sb.uuid, [7; 16], "after {n} operations an old superblock leads to new tables");
            let pack = block(&dev, u64::from(sb.cp.0));
            assert_eq!(Checkpoint::check(sb, &pack).expect("a checkpoint").version, 99);
        }
        cuts += usize::from(found.is_empty());
        if done {
            assert_eq!(found.len(), 2);
            break;
        }
    }
    assert!(cuts > 10, "most cuts fall before the superblocks stand: {cuts}");
}

#[test]
fn the_same_options_make_the_same_volume_and_otherwise_volumes_differ() {
    let of = |opts: &Options| {
        let dev = Arc::new(Memory::new(64 * MIB));
        let made = make(&dev, opts).expect("a volume");
        (dev, made)
    };
    let opts = fixed(Options::modern());
    assert!(of(&opts).0.same_as(&of(&opts).0));
    let drawn = Options::default();
    let (a, b) = (of(&drawn).1, of(&drawn).1);
    assert_ne!(a.uuid, b.uuid);
    assert_ne!(a.checkpoint_version, b.checkpoint_version);
    assert_eq!((a.uuid[6] >> 4, a.uuid[8] >> 6), (4, 2), "a random UUID says so");
    assert!(a.checkpoint_version % 2 == 1 && a.checkpoint_version < 1 << 31);
}
