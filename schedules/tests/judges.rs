//! The checks reject wrong histories: answers that fit no order, and promises that a volume breaks.

use std::sync::Arc;

use device::{Memory, RealClock};
use f2fs::{MountOptions, Volume, mkfs};
use joulefs_schedules::course::{Compressing, Name, Range};
use joulefs_schedules::hand::{Answer, Call, Event, NOISE, Refusal, filled, tokens};
use joulefs_schedules::tree::Tree;
use joulefs_schedules::{durable, order};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode, WriteFlags};

const NAME: Name = Name(0);

/// Calls one after the other, by one thread.
fn told(calls: Vec<(Call, Answer)>) -> Vec<Event> {
    let at = |i: usize| (2 * i as u64 + 1, 2 * i as u64 + 2);
    let event = |(i, (call, answer))| Event { thread: 0, call, answer, from: at(i).0, to: at(i).1 };
    calls.into_iter().enumerate().map(event).collect()
}

fn volume() -> Arc<Volume> {
    let (dev, clock) = (Arc::new(Memory::new(64 * 256)), Arc::new(RealClock::new()));
    mkfs::format(&*dev, &*clock, &mkfs::Options::default()).expect("a volume");
    Volume::mount(dev, clock, MountOptions::default()).expect("mounts")
}

#[test]
fn a_name_removed_twice_is_in_no_order() {
    let start = Tree::new(&[3]);
    let once = vec![(Call::Create(3, NAME, false), Answer::Ino(4)), (Call::Unlink(3, NAME, false), Answer::Done)];
    assert!(order::find(&told(once.clone()), &start).is_ok());
    let twice = [once, vec![(Call::Unlink(3, NAME, false), Answer::Done)]].concat();
    assert!(order::find(&told(twice), &start).is_err());
}

#[test]
fn calls_that_overlap_may_have_either_order_and_others_not() {
    let start = Tree::new(&[3]);
    let mut events = told(vec![
        (Call::Lookup(3, NAME), Answer::Refused(Refusal::NotFound)),
        (Call::Create(3, NAME, false), Answer::Ino(4)),
        (Call::Lookup(3, NAME), Answer::Refused(Refusal::NotFound)),
    ]);
    events[2].thread = 1;
    assert!(order::find(&events, &start).is_err(), "the name was there before it was looked for");
    events[2].from = events[1].from;
    assert!(order::find(&events, &start).is_ok(), "it was looked for while it was made");
}

#[test]
fn a_number_handed_out_twice_is_in_no_order() {
    let start = Tree::new(&[3]);
    let events =
        told(vec![(Call::Create(3, NAME, false), Answer::Ino(4)), (Call::Create(3, Name(1), false), Answer::Ino(4))]);
    assert!(order::find(&events, &start).is_err());
}

#[test]
fn a_write_that_failed_may_be_found_in_part_and_only_from_its_beginning() {
    let start = Tree::new(&[3]);
    let found = |cells: &[u64]| {
        order::find(
            &told(vec![
                (Call::Create(3, NAME, false), Answer::Ino(4)),
                (Call::Resize(4, 20), Answer::Done),
                (Call::Write(4, 4, 12, 7), Answer::Failed),
                (Call::Read(4, 0, 20), Answer::Cells(20, cells.iter().map(|c| (*c, 7)).collect())),
            ]),
            &start,
        )
    };
    assert!(found(&[]).is_ok() && found(&[4, 5, 6, 7]).is_ok());
    assert!(found(&[8, 9, 10, 11, 12, 13, 14, 15]).is_err());
}

/// Whatever blocks were being moved, a neighbouring file is unchanged.
#[test]
fn an_insertion_that_failed_leaves_one_file_unknown_and_no_other() {
    let start = Tree::new(&[3]);
    let reading = |ino: u64| {
        order::find(
            &told(vec![
                (Call::Create(3, NAME, false), Answer::Ino(4)),
                (Call::Create(3, Name(1), false), Answer::Ino(5)),
                (Call::Write(4, 0, 16, 7), Answer::Done),
                (Call::Allocate(4, Range::Insert, 8, 8), Answer::Failed),
                (Call::Read(ino, 0, 1), Answer::Cells(1, Vec::new())),
            ]),
            &start,
        )
    };
    assert!(reading(4).is_ok());
    assert!(reading(5).is_err());
}

/// A file whose saved space was released, and calls with their answers.
#[test]
fn what_compressed_files_answer_is_judged() {
    let how = Compressing { algorithm: "lz4", log_cluster: 2, all: false, by_user: false };
    let start = Tree::new(&[3]).mounted(Some(how), false);
    let after = |call: Call, answer: Answer| {
        let calls = vec![
            (Call::Create(3, NAME, false), Answer::Ino(4)),
            (Call::Compress(4, true), Answer::Done),
            (Call::Write(4, 0, 64, 7), Answer::Done),
            (Call::Release(4), Answer::Done),
            (call, answer),
        ];
        order::find(&told(calls), &start).is_ok()
    };
    let refused = |refusal| Answer::Refused(refusal);
    assert!(after(Call::Write(4, 0, 8, 8), refused(Refusal::NotPermitted)));
    assert!(!after(Call::Write(4, 0, 8, 8), Answer::Done), "it has no room");
    assert!(after(Call::Resize(4, 32), Answer::Done), "it may be cut between clusters");
    assert!(!after(Call::Resize(4, 33), Answer::Done), "and not within one");
    assert!(after(Call::Retake(4), Answer::Done) && !after(Call::Retake(4), refused(Refusal::Invalid)));
    assert!(!after(Call::Release(4), Answer::Done), "its room is given back already");
    assert!(!after(Call::Compress(4, false), Answer::Done), "it has blocks");
    assert!(after(Call::Read(4, 8, 1), Answer::Cells(1, vec![(8, 7)])));
    assert!(!after(Call::Read(4, 8, 1), Answer::Cells(1, Vec::new())), "its contents are the same");
}

#[test]
fn noise_is_one_token_a_cell_and_no_other_noise() {
    let mut bytes = filled(NOISE | 9, 3);
    assert_eq!(tokens(&bytes, 5), Ok(vec![(5, NOISE | 9), (6, NOISE | 9), (7, NOISE | 9)]));
    bytes[700] ^= 1;
    assert!(tokens(&bytes, 5).is_err());
    assert_ne!(filled(NOISE | 9, 2)[..512], filled(NOISE | 9, 2)[512..], "no compressor finds anything in it");
}

/// The device failed permanently: of the later calls only the first happened, and many could have.
#[test]
fn a_call_that_happened_among_many_that_were_refused_is_found() {
    let start = Tree::new(&[3]);
    let mut calls = vec![
        (Call::Create(3, NAME, false), Answer::Ino(4)),
        (Call::Write(4, 0, 64, 7), Answer::Done),
        (Call::Sync, Answer::Failed),
        (Call::Resize(4, 0), Answer::Failed),
    ];
    calls.extend((0..12).map(|k| (Call::Write(4, k * 8, 40, 10 + k as u32), Answer::Failed)));
    calls.push((Call::Stat(4), Answer::Stat { size: 0, links: 1 }));
    assert!(order::find(&told(calls.clone()), &start).is_ok());
    calls.drain(6..16);
    calls.push((Call::Read(4, 0, 1), Answer::Cells(1, vec![(0, 7)])));
    assert!(order::find(&told(calls), &start).is_err(), "a file that is empty holds nothing");
}

/// A file of eight cells, synced; then the volume's contents are changed without the checker's knowledge.
#[test]
fn contents_and_names_that_were_synced_are_missed() {
    let vol = volume();
    let root = vol.root();
    let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
    let ino = vol.mknod(Caller::default(), root, &NAME.bytes(), &new).expect("a file").attr.ino;
    let write = |token| vol.write(ino, 0, &filled(token, 8), WriteFlags::empty()).expect("writes");
    write(7);
    let calls = |sync: bool| {
        let mut calls = vec![
            (Call::Create(root.0, NAME, false), Answer::Ino(ino.0)),
            (Call::Write(ino.0, 0, 8, 7), Answer::Done),
            (Call::Write(ino.0, 0, 8, 8), Answer::Done),
        ];
        if sync {
            calls.push((Call::Fsync(ino.0), Answer::Done));
        }
        told(calls)
    };
    let judge = |sync: bool| {
        let start = Tree::new(&[root.0]);
        let order = order::find(&calls(sync), &start).expect("an order");
        durable::judge(&start, &calls(sync), &order, &durable::look(&*vol).expect("looks"))
    };
    assert_eq!(judge(false), Ok(()), "without a sync the older contents may be there");
    assert!(judge(true).is_err(), "with one they may not");
    write(8);
    assert_eq!(judge(true), Ok(()));
    vol.unlink(root, &NAME.bytes()).expect("unlinks");
    assert!(judge(true).is_err(), "nor may the name be gone");
    assert_eq!(judge(false), Ok(()));
}
