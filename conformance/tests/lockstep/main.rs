//! Runs a volume and the simplest possible tree side by side, for volumes of every kind.
//!
//! The tree shares no code with the rest; it reimplements the Linux rules. Inodes without a name are compared, too,
//! while they are referenced.

mod op;
mod run;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use device::{Memory, RealClock, Rng};
use f2fs::delta::Places;
use f2fs::gc::settings::{Intervals, Pace, Settings, Urgency};
use f2fs::mkfs::Options;
use f2fs::{Mode, MountOptions};
use format::superblock::Features;
use judges::medium::Medium;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use trials::subject::{F2fs, ScherlFs, Subject};
use vfs::{Allocate, Caller, Error, FileKind, FileSystem, Moving, NewNode, WriteFlags};
use victim::Policy;

use op::{Dir, Name, Op, Which};
use run::Lockstep;

const BLOCK: u64 = 4096;

/// Offsets at which F2FS changes a file's layout: the inline area, a page, the inode's own blocks (923, minus an
/// attribute area and extra fields), the two direct nodes' 1018, the indirect and double indirect nodes. (ScherlFS
/// depends on how a file's blocks are placed, not on their offset.)
const EDGES: [u64; 13] = [
    0,
    3400,
    3488,
    3692,
    BLOCK,
    3 * BLOCK,
    864 * BLOCK,
    873 * BLOCK,
    923 * BLOCK,
    1891 * BLOCK,
    (873 + 2 * 1018) * BLOCK,
    (923 + 2 * 1018) * BLOCK,
    (923 + 2 * 1018 + 2 * 1018 * 1018) * BLOCK,
];

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..40_000,
        3 => (prop::sample::select(&EDGES[..]), -60i64..60).prop_map(|(e, d)| e.saturating_add_signed(d)),
        1 => (0u64..12).prop_map(|n| n * BLOCK),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    any::<u8>().prop_map(Which)
}
fn dir() -> impl Strategy<Value = Dir> {
    any::<u8>().prop_map(Dir)
}
fn name() -> impl Strategy<Value = Name> {
    any::<u8>().prop_map(Name)
}

fn allocate() -> impl Strategy<Value = Op> {
    let soft = prop_oneof![
        any::<bool>().prop_map(|keep_size| Allocate::Reserve { keep_size }),
        any::<bool>().prop_map(|keep_size| Allocate::Zero { keep_size }),
        Just(Allocate::PunchHole),
    ];
    let shift = prop_oneof![Just(Allocate::Collapse), Just(Allocate::Insert)];
    let odd = prop::bool::weighted(0.1).prop_map(u64::from);
    prop_oneof![
        (which(), soft, offset(), 0u64..30_000).prop_map(|(w, a, o, l)| Op::Allocate(w, a, o, l)),
        (which(), shift, 0u64..8, 0u64..5, odd).prop_map(|(w, a, o, l, odd)| Op::Allocate(
            w,
            a,
            o * BLOCK + odd,
            l * BLOCK
        )),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    use FileKind::{BlockDevice, CharDevice, Fifo, Regular, Socket};
    let kind = prop::sample::select(&[Regular, Regular, Regular, Regular, Fifo, Socket, CharDevice, BlockDevice][..]);
    let flags = prop_oneof![3 => Just(0u32), 4 => 0u32..8];
    prop_oneof![
        8 => (dir(), name(), kind, any::<u16>()).prop_map(|(d, n, k, p)| Op::Create(d, n, k, p)),
        4 => (dir(), name(), any::<u16>()).prop_map(|(d, n, p)| Op::Mkdir(d, n, p)),
        2 => (dir(), name(), 0u16..4200).prop_map(|(d, n, l)| Op::Symlink(d, n, l)),
        2 => (which(), dir(), name()).prop_map(|(w, d, n)| Op::Link(w, d, n)),
        3 => (dir(), name()).prop_map(|(d, n)| Op::Unlink(d, n)),
        2 => (dir(), name()).prop_map(|(d, n)| Op::Rmdir(d, n)),
        6 => (dir(), name(), dir(), name(), flags).prop_map(|(a, b, c, e, f)| Op::Rename(a, b, c, e, f)),
        12 => (which(), offset(), 1u32..20_000, any::<u8>()).prop_map(|(w, o, l, t)| Op::Write(w, o, l, t)),
        6 => (which(), any::<u64>(), any::<u8>(), any::<u8>()).prop_map(|(w, o, l, t)| Op::Nudge(w, o, l, t)),
        4 => (which(), offset()).prop_map(|(w, o)| Op::Truncate(w, o)),
        6 => allocate(),
        4 => (which(), offset(), 0u32..30_000).prop_map(|(w, o, l)| Op::Read(w, o, l)),
        2 => (which(), offset()).prop_map(|(w, o)| Op::Seek(w, o)),
        4 => (which(), any::<u8>(), any::<u16>()).prop_map(|(w, n, l)| Op::SetAttribute(w, n, l)),
        2 => (which(), any::<u8>()).prop_map(|(w, n)| Op::RemoveAttribute(w, n)),
        2 => (which(), any::<u16>()).prop_map(|(w, p)| Op::Chmod(w, p)),
        3 => (which(), any::<bool>()).prop_map(|(w, d)| Op::Fsync(w, d)),
        2 => (which(), 0u64..20, any::<bool>()).prop_map(|(w, from, share)| {
            Op::Defragment(w, from, if share { Moving::Share } else { Moving::Copy })
        }),
        1 => Just(Op::Sync),
        1 => Just(Op::Tick),
        2 => dir().prop_map(Op::List),
        1 => Just(Op::Remount),
    ]
}

fn f2fs(options: &Options, mount: &MountOptions, deltas: bool) -> F2fs {
    let made = Options { uuid: Some([7; 16]), checkpoint_version: Some(1), ..options.clone() };
    F2fs { made, mounted: mount.clone(), deltas }
}

fn lockstep(mib: u64, options: &Options, mount: &MountOptions) {
    assert_eq!(lockstep_of(mib, &f2fs(options, mount, false), op()), 0, "deltas on a plain volume");
}

/// Returns the number of pages that became deltas.
fn lockstep_of(mib: u64, subject: &impl Subject, op: impl Strategy<Value = Op>) -> u64 {
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let mut runner = TestRunner::new(ProptestConfig {
        cases: if deep { 20_000 } else { 800 },
        max_shrink_iters: 3000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/lockstep.txt"))),
        ..ProptestConfig::default()
    });
    let all = AtomicU64::new(0);
    let judge = |ops: Vec<Op>| {
        let both = Lockstep::new(mib, subject.clone()).map_err(TestCaseError::fail)?;
        let made = both.run(&ops).map_err(TestCaseError::fail)?;
        all.fetch_add(made, Relaxed);
        Ok(())
    };
    if let Err(e) = runner.run(&prop::collection::vec(op, 1..150), judge) {
        panic!("{e}");
    }
    all.into_inner()
}

#[test]
fn a_plain_volume_answers_as_the_model() {
    lockstep(64, &Options::default(), &MountOptions::default());
}

#[test]
fn a_modern_volume_answers_as_the_model() {
    lockstep(64, &Options::modern(), &MountOptions::default());
}

#[test]
fn sections_of_two_segments_answer_as_the_model() {
    lockstep(128, &Options { segs_per_sec: 2, ..Options::default() }, &MountOptions::default());
}

#[test]
fn a_volume_without_inline_contents_answers_as_the_model() {
    let mount = MountOptions { inline: false, dirty_limit: 16, ..MountOptions::default() };
    lockstep(64, &Options::modern(), &mount);
}

#[test]
fn a_volume_that_only_appends_answers_as_the_model() {
    lockstep(96, &Options::modern(), &MountOptions { mode: Mode::Lfs, dirty_limit: 16, ..MountOptions::default() });
}

/// With everything that moves blocks: deltas, compression, permanent cleaning, defragmentation, quotas.
#[test]
fn a_volume_on_zones_answers_as_the_model() {
    let modern = Options::modern;
    let little = MountOptions { dirty_limit: 16, inline: false, ..MountOptions::default() };
    lockstep_of(96, &f2fs(&modern().zoned(1), &MountOptions::default(), false), brought_together());
    let deltas = lockstep_of(192, &f2fs(&modern().zoned(2), &little, true), small_changes());
    assert!(deltas > 300, "{deltas} deltas");
    let features = modern().features | Features::COMPRESSION | Features::QUOTA_INO | Features::PRJQUOTA;
    let mut packing = MountOptions { gc: cleaning(Policy::Joule, Urgency::High), ..little };
    packing.compress.extensions.push("*".into());
    lockstep_of(96, &f2fs(&Options { features, ..modern() }.zoned(1), &packing, false), unshifted());
}

/// Files grow in turn and are defragmented as often as all other operations together. On a volume with enough space: on
/// a smaller one logs fill holes, and nothing is moved.
fn brought_together() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => op(),
        1 => (which(), offset(), 1u32..20_000, any::<u8>()).prop_map(|(w, o, l, t)| Op::Write(w, o, l, t)),
        1 => (which(), any::<bool>()).prop_map(|(w, d)| Op::Fsync(w, d)),
        1 => (which(), 0u64..20, any::<bool>()).prop_map(|(w, from, share)| {
            Op::Defragment(w, from, if share { Moving::Share } else { Moving::Copy })
        }),
    ]
}

/// Blocks of a compressed file cannot be shifted.
fn unshifted() -> impl Strategy<Value = Op> {
    brought_together().prop_map(|op| match op {
        Op::Allocate(w, Allocate::Collapse | Allocate::Insert, o, l) => Op::Allocate(w, Allocate::PunchHole, o, l),
        op => op,
    })
}

#[test]
fn a_volume_whose_files_are_brought_together_answers_as_the_model() {
    let before = run::MOVED.load(Relaxed);
    let compressed = Options { features: Options::modern().features | Features::COMPRESSION, ..Options::modern() };
    let mut packing = MountOptions { dirty_limit: 16, ..MountOptions::default() };
    packing.compress.extensions.push("*".into());
    let modern = Options::modern();
    lockstep_of(256, &f2fs(&modern, &MountOptions::default(), false), brought_together());
    let apart = MountOptions { inline: false, ..MountOptions::default() };
    lockstep_of(256, &f2fs(&modern, &apart, true), brought_together());
    lockstep_of(256, &f2fs(&compressed, &packing, false), unshifted());
    let moved = run::MOVED.load(Relaxed) - before;
    println!("{moved} blocks brought together");
    assert!(moved > 10_000, "{moved} blocks brought together");
}

/// Small changes, syncs and cleaning as often as all other operations together.
fn small_changes() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => op(),
        1 => (which(), any::<u64>(), any::<u8>(), any::<u8>()).prop_map(|(w, o, l, t)| Op::Nudge(w, o, l, t)),
        1 => (which(), any::<bool>()).prop_map(|(w, d)| Op::Fsync(w, d)),
    ]
}

#[test]
fn a_volume_with_deltas_answers_as_the_model() {
    let mounts = [
        MountOptions::default(),
        MountOptions { delta_places: Places::Nodes, inline: false, dirty_limit: 16, ..MountOptions::default() },
        MountOptions { delta_places: Places::Inode, node_cache: 64, ..MountOptions::default() },
    ];
    for mount in mounts {
        let deltas = lockstep_of(64, &f2fs(&Options::modern(), &mount, true), small_changes());
        println!("{:?}: {deltas} deltas", mount.delta_places);
        assert!(deltas > 300, "{deltas} deltas in {:?}", mount.delta_places);
    }
    let off = MountOptions { delta: false, ..MountOptions::default() };
    assert_eq!(lockstep_of(64, &f2fs(&Options::modern(), &off, true), small_changes()), 0);
}

/// At every tick. `joule` cleans at any price until enough is free.
fn cleaning(policy: Policy, urgency: Urgency) -> Settings {
    let at_once = Intervals {
        urgent: Duration::ZERO,
        min: Duration::ZERO,
        max: Duration::ZERO,
        none: Duration::ZERO,
        idle: Duration::ZERO,
    };
    let (pace, keep_free) = (Pace::of(policy), 90);
    Settings { policy, urgency, pace, keep_free, intervals: at_once, step_blocks: 7, ..Settings::default() }
}

/// Whatever the background moves at every tick, to any place.
#[test]
fn a_volume_cleaned_all_the_time_answers_as_the_model() {
    let normal = Urgency::Normal;
    for (policy, urgency) in [(Policy::Fagc, normal), (Policy::Greedy, Urgency::High), (Policy::Joule, normal)] {
        let gc = cleaning(policy, urgency);
        lockstep(64, &Options::modern(), &MountOptions { gc, ..MountOptions::default() });
    }
}

/// Writes random files until the volume is full, deletes them, and remounts.
fn fill_and_empty(mib: u64, subject: &impl Subject) {
    let medium = Medium::new(mib * 256, subject.zoning(mib * 256));
    let (dev, clock) = (medium.device(), Arc::new(RealClock::default()));
    subject.format(dev.clone(), &*clock).expect("a volume");
    let mounted = || subject.mount(dev.clone(), clock.clone()).expect("mounts");
    let mut volume = mounted();
    let empty = volume.statfs().expect("statfs").blocks_free;
    for round in 0..6 {
        let (root, mut rng) = (volume.root(), Rng::new(round));
        let node = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
        let inos: Vec<_> = (0..8u8)
            .map(|n| volume.mknod(Caller::default(), root, &[b'a' + n], &node).expect("a file").attr.ino)
            .collect();
        let mut written = 0;
        let full = loop {
            let (ino, at) = (inos[rng.below(8) as usize], rng.below(1800) * 4096);
            let data = vec![round as u8; 1 + rng.below(600_000) as usize];
            match volume.write(ino, at, &data, WriteFlags::empty()) {
                Ok(_) => written += 1,
                Err(e) => break e,
            }
            assert!(written < 5000, "{mib} MiB never fill");
            if written % 50 == 0 {
                volume.sync().expect("sync");
            }
        };
        assert_eq!(full, Error::NoSpace, "round {round}, after {written} writes");
        volume.sync().expect("a full volume still syncs");
        for (n, ino) in inos.into_iter().enumerate() {
            volume.unlink(root, &[b'a' + n as u8]).expect("deleting always works");
            volume.forget(ino, 1);
        }
        volume.unmount().expect("unmounts");
        medium.in_order().and_then(|()| subject.check(&*dev)).unwrap_or_else(|e| panic!("round {round}: {e}"));
        volume = mounted();
        let free = volume.statfs().expect("statfs").blocks_free;
        assert!(free + 8 >= empty, "round {round}: {free} blocks free of {empty}");
    }
}

#[test]
fn a_volume_filled_and_emptied_again_and_again_stays_what_it_is() {
    fill_and_empty(64, &f2fs(&Options::default(), &MountOptions::default(), false));
    fill_and_empty(64, &f2fs(&Options::modern(), &MountOptions::default(), false));
    let little = MountOptions { inline: false, dirty_limit: 4, ..MountOptions::default() };
    fill_and_empty(64, &f2fs(&Options::default(), &little, false));
    let appending = MountOptions { mode: Mode::Lfs, ..little };
    fill_and_empty(64, &f2fs(&Options::default(), &appending, false));
    fill_and_empty(96, &f2fs(&Options::modern().zoned(1), &MountOptions::default(), false));
}

/// ScherlFS as in its author's measurements: no caches, and every call is written immediately.
fn without_caches() -> ScherlFs {
    let mounted = scherlfs::MountOptions {
        sync: scherlfs::Sync::Call,
        dir_cache: 0,
        ifile_cache: 0,
        inode_cache: 0,
        checkpoint_blocks: 100,
        ..scherlfs::MountOptions::default()
    };
    ScherlFs { mounted, ..ScherlFs::default() }
}

#[test]
fn a_volume_of_scherlfs_answers_as_the_model() {
    lockstep_of(16, &ScherlFs::default(), op());
    lockstep_of(64, &without_caches(), op());
}

/// ScherlFS on a disk that spins down: no caches, one index and one keep for all of its mounts, fsyncs go to a stage.
fn archive(mib: u64) -> ScherlFs {
    let beside = scherlfs::Beside {
        index: Some(Arc::new(Memory::new(scherlfs::index_blocks(mib << 8).unwrap()))),
        keep: Some(Arc::new(Memory::new(scherlfs::keep_blocks(300).unwrap()))),
        sleep: Some(Duration::from_secs(600)),
        ..scherlfs::Beside::default()
    };
    let mounted = scherlfs::MountOptions {
        sync: scherlfs::Sync::Burst,
        dirty: 200,
        dir_cache: 0,
        ifile_cache: 0,
        inode_cache: 0,
        checkpoint_blocks: 300,
        beside,
        ..scherlfs::MountOptions::default()
    };
    ScherlFs { mounted, beside: true, ..ScherlFs::default() }
}

#[test]
fn a_volume_of_scherlfs_whose_disk_sleeps_answers_as_the_model() {
    lockstep_of(16, &archive(16), op());
}

#[test]
fn a_volume_of_scherlfs_filled_and_emptied_again_and_again_stays_what_it_is() {
    fill_and_empty(40, &ScherlFs::default());
    let little = scherlfs::MountOptions { dirty: 16, ..scherlfs::MountOptions::default() };
    fill_and_empty(40, &ScherlFs { mounted: little, ..ScherlFs::default() });
    fill_and_empty(40, &without_caches());
    fill_and_empty(40, &archive(40));
}
