//! ScherlFS is correct in any thread order, with any disk failure and any power cut.
//!
//! `JOULEFS_DEEP=1` runs two hundred times as many schedules. A failure is printed with the command that reproduces it.

use std::sync::atomic::AtomicBool;

use joulefs_schedules::course::{Name, Range};
use joulefs_schedules::hand::{Answer, Call, Event, filled};
use joulefs_schedules::tree::Tree;
use joulefs_schedules::{Case, Type, durable, many, order, run};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode, WriteFlags};

#[test]
fn fifteen_hundred_schedules_break_no_promise_of_scherlfs() {
    let count = if std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1") { 300_000 } else { 1_500 };
    let told = |f: &joulefs_schedules::Failure| {
        println!("{}\n    cargo run --release -p joulefs-schedules -- replay {} --show --shrink", f.what, f.case);
    };
    let sum = many(Type::Scherlfs, 0, count, &AtomicBool::new(false), &told);
    println!("{sum}");
    assert_eq!(sum.failures, 0, "{sum}");
    assert!(sum.distinct_schedules() as u64 > count * 95 / 100, "schedules repeat: {sum}");
    assert!(sum.distinct_crashes() as u64 > count / 10, "the power hardly ever goes: {sum}");
    assert!(sum.moved > count, "blocks are hardly ever moved: {sum}");
    assert!(sum.together > count, "blocks are hardly ever brought together: {sum}");
}

/// An inode appended to call by call was evicted before its series ended. The end then treated both of the inode's
/// places as unused, and the next checkpoint freed the one in use.
#[test]
fn the_inode_of_a_series_stays_in_memory_until_its_end() {
    for seed in [13, 34, 64, 206] {
        assert!(run(&Case::on(Type::Scherlfs, seed)).is_ok(), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_digest_of_scherlfs() {
    let of = |s| run(&Case::on(Type::Scherlfs, s));
    let (once, again): (Vec<_>, Vec<_>) = ((0..100).map(of).collect(), (0..100).rev().map(of).collect());
    assert_eq!(once, again.into_iter().rev().collect::<Vec<_>>());
    assert!(once.windows(2).all(|pair| pair[0] != pair[1]), "and another seed another");
}

/// Two writes and an fsync between them, by one thread; then a third write by another thread, without overlap.
#[test]
fn a_tree_that_was_never_there_is_at_no_place_of_an_order() {
    let clock = std::sync::Arc::new(device::VirtualClock::default());
    let dev = std::sync::Arc::new(device::Memory::new(8 * 256));
    scherlfs::make::format(dev.clone(), &*clock, &scherlfs::make::Options::default()).expect("a volume");
    let vol = scherlfs::Volume::mount(dev, clock, scherlfs::MountOptions::default()).expect("mounts");
    let (root, new) =
        (vol.root(), NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() });
    let make = |n: u8| vol.mknod(Caller::default(), root, &Name(n).bytes(), &new).expect("a file").attr.ino;
    let (a, b) = (make(0), make(1));
    let write = |ino, token| vol.write(ino, 0, &filled(token, 8), WriteFlags::empty()).expect("writes");
    let calls = [
        (Call::Create(root.0, Name(0), false), Answer::Ino(a.0)),
        (Call::Create(root.0, Name(1), false), Answer::Ino(b.0)),
        (Call::Write(a.0, 0, 8, 1), Answer::Done),
        (Call::Fsync(a.0), Answer::Done),
        (Call::Write(a.0, 0, 8, 2), Answer::Done),
        (Call::Write(b.0, 0, 8, 3), Answer::Done),
        (Call::Allocate(b.0, Range::Punch, 0, 8), Answer::Failed),
    ];
    let at = |i: usize| (2 * i as u64 + 1, 2 * i as u64 + 2);
    let events: Vec<Event> = (calls.into_iter().enumerate())
        .map(|(i, (call, answer))| Event { thread: usize::from(i > 4), call, answer, from: at(i).0, to: at(i).1 })
        .collect();
    let judge = || {
        let start = Tree::new(&[root.0]);
        let found = durable::look(&vol).expect("looks");
        order::find_seen(&events, &start, &|tree| durable::is(tree, &found)).map(drop)
    };
    assert!(judge().is_err(), "what was synced is not there");
    write(a, 1);
    assert_eq!(judge(), Ok(()), "what came after the sync may be missing");
    write(b, 3);
    assert!(judge().is_err(), "the later of two writes is there, and the earlier is not");
    write(a, 2);
    assert_eq!(judge(), Ok(()));
    vol.fallocate(b, vfs::Allocate::PunchHole, 0, 4096).expect("a hole");
    assert_eq!(judge(), Ok(()), "what failed may have happened");
    vol.unlink(root, &Name(1).bytes()).expect("unlinks");
    assert!(judge().is_err(), "nobody took the name away");
}
