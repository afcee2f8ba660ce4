//! Calls to a file system are recorded, read and replayed on others.

use std::sync::Arc;
use std::time::Duration;

use device::clock::Clock;
use device::{Counting, Memory};
use f2fs::{MountOptions, Volume, mkfs};
use judges::memfs::MemFs;
use judges::oracle::tree::assert_same;
use judges::zoo::{Size, in_process, plan};
use record::Tempo;
use record::calls::{Call, Contents, Divergence, Event, Events, Failure, Recorder, Replayed, Replayer, replay};
use vfs::{Caller, FileSystem, Flow, Ino, SetAttr, WriteFlags, XattrFlags};

use crate::old_tree::{clock, listing, regular};
use crate::sink::Sink;

fn replay_on(fs: &dyn FileSystem, sink: &Sink) -> Replayed {
    let events = Events::new(sink.reader()).expect("a recording of a file system");
    let (done, whole) = replay(events.root(), events, fs, &Tempo::BackToBack, |_| {});
    whole.expect("whole");
    done
}

fn volume() -> Arc<Volume> {
    let (dev, clock) = (Arc::new(Counting::new(Memory::new(64 << 8))), clock());
    mkfs::format(&dev, &*clock, &mkfs::Options::modern()).expect("formats");
    let volume = Volume::mount(dev, clock, MountOptions::default()).expect("mounts");
    // As empty as a memory file system.
    volume.rmdir(volume.root(), b"lost+found").expect("made with the volume");
    volume
}

/// Removes what generated contents change.
fn without_contents(listing: &str) -> String {
    let word = |w: &&str| !w.starts_with("hash=") && !w.starts_with("user.") && !w.starts_with("trusted.");
    listing.lines().map(|l| l.split(' ').filter(word).collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn the_zoo_replayed_is_the_same_tree_with_other_contents() {
    let sink = Sink::default();
    let fs = Recorder::new(Arc::new(MemFs::new(1 << 40)), sink.clone(), clock()).expect("memory is never full");
    in_process::perform(&fs, &plan(3, Size::Small)).expect("the zoo in memory");
    fs.finish().expect("memory is never full");
    let original = listing(fs.inner());

    let memory = MemFs::new(1 << 40);
    let done = replay_on(&memory, &sink);
    assert_eq!((done.diverged, done.left_out), (0, 0), "{done:?}");
    assert!(done.calls > 1000 && done.written > 1 << 20, "{done:?}");
    let again = listing(&memory);
    assert_same(("recorded", &without_contents(&original)), ("replayed", &without_contents(&again)));
    assert_ne!(original, again, "contents are not recorded");
    let third = MemFs::new(1 << 40);
    replay_on(&third, &sink);
    assert_same(("replayed", &again), ("replayed again", &listing(&third)));
}

#[test]
fn recordings_replayed_side_by_side_each_below_a_directory_leave_two_trees() {
    let sink = Sink::default();
    let fs = Recorder::new(Arc::new(MemFs::new(1 << 40)), sink.clone(), clock()).expect("memory is never full");
    let file = fs.mknod(Caller::default(), fs.root(), b"file", &regular()).expect("made").attr.ino;
    fs.write(file, 0, &[7; 5000], WriteFlags::empty()).expect("written");
    fs.mkdir(Caller::default(), fs.root(), b"dir", 0o755, 0).expect("made");
    fs.finish().expect("memory is never full");

    let other = MemFs::new(1 << 40);
    let [one, two] = [b"one", b"two"]
        .map(|name| other.mkdir(Caller::default(), other.root(), name, 0o755, 0).expect("made").attr.ino);
    let mut calls = [one, two].map(|dir| {
        let events = Events::new(sink.reader()).expect("a recording of a file system");
        (Replayer::below(dir, events.root(), &other), events)
    });
    for n in 0.. {
        let next = calls.each_mut().map(|(calls, events)| (calls, events.next()));
        if next.iter().all(|(_, event)| event.is_none()) {
            break;
        }
        next.into_iter().for_each(|(calls, event)| calls.make(n, &event.expect("as many").expect("whole")));
    }
    for (calls, _) in calls {
        let done = calls.end();
        assert_eq!((done.left_out, done.diverged, done.written), (0, 0, 5000), "{done:?}");
    }
    for dir in [one, two] {
        assert_eq!(other.lookup(dir, b"file").expect("there").attr.size, 5000);
        assert!(other.lookup(dir, b"dir").is_ok());
    }
    assert!(other.lookup(other.root(), b"file").is_err());
}

#[test]
fn a_recording_of_one_file_system_runs_on_another_that_numbers_inodes_otherwise() {
    let sink = Sink::default();
    let fs = Recorder::new(volume(), sink.clone(), clock()).expect("memory is never full");
    let root = fs.root();
    let mut kept = Vec::new();
    for round in 0..40u8 {
        let dir = fs.mkdir(Caller::default(), root, &[b'd', b'0' + round], 0o755, 0).expect("made").attr.ino;
        let file = fs.mknod(Caller::default(), dir, b"file", &regular()).expect("made").attr.ino;
        fs.write(file, u64::from(round) * 1000, &vec![round; 5000], WriteFlags::empty()).expect("room");
        fs.symlink(Caller::default(), dir, b"to", b"file").expect("made");
        fs.link(file, root, &[b'l', b'0' + round]).expect("linked");
        if round % 3 == 0 {
            // After the forget its number is free again.
            fs.unlink(dir, b"file").expect("there");
            fs.unlink(root, &[b'l', b'0' + round]).expect("there");
        }
        fs.fsync(file, false).expect("durable");
        fs.forget(file, 2);
        kept.push(dir);
    }
    assert_eq!(fs.lookup(root, b"nothing").map(drop), Err(vfs::Error::NotFound));
    let mut names = 0;
    let mut cookie = 0;
    // Seven names at a time, like a program with a small buffer.
    loop {
        let mut taken = 0;
        fs.readdir(root, cookie, &mut |entry| {
            if taken == 7 {
                return Flow::Stop;
            }
            taken += 1;
            cookie = entry.next;
            Flow::Continue
        })
        .expect("a listing");
        names += taken;
        if taken < 7 {
            break;
        }
    }
    assert!(names > 60);
    fs.setattr(kept[1], &SetAttr { perm: Some(0o700), ..SetAttr::default() }).expect("changed");
    fs.finish().expect("memory is never full");
    let original = listing(fs.inner());

    let memory = MemFs::new(1 << 30);
    let done = replay_on(&memory, &sink);
    assert_eq!((done.diverged, done.left_out), (0, 0), "{done:?}");
    assert_same(
        ("recorded on F2FS", &without_contents(&original)),
        ("replayed in memory", &without_contents(&listing(&memory))),
    );
    let other = volume();
    let done = replay_on(&*other, &sink);
    assert_eq!((done.diverged, done.left_out), (0, 0), "{done:?}");
    assert_same(("replayed in memory", &listing(&memory)), ("replayed on F2FS", &listing(&*other)));
    other.unmount().expect("clean");
}

#[test]
fn calls_are_read_as_they_were_made() {
    let (sink, clock) = (Sink::default(), clock());
    let fs = Recorder::new(Arc::new(MemFs::new(1 << 20)), sink.clone(), clock.clone()).expect("memory is never full");
    let root = fs.root();
    clock.advance(Duration::from_millis(5));
    let ino = fs.mknod(Caller { uid: 7, gid: 8 }, root, b"\xff\0bad".split_at(1).0, &regular()).expect("made").attr.ino;
    clock.advance(Duration::from_millis(1));
    fs.write(root, 1 << 40, b"abc", WriteFlags::FROM_CACHE).expect_err("a directory");
    fs.setxattr(ino, b"user.x", b"value", XattrFlags::CREATE).expect("room");
    fs.setxattr(ino, b"security.capability", b"whole", XattrFlags::empty()).expect("room");
    fs.tick().expect("nothing to do");
    drop(fs);
    let events: Vec<Event> = Events::new(sink.reader()).expect("of a file system").map(|e| e.expect("whole")).collect();
    let value = Contents::fingerprint(b"value");
    let expected = [
        (
            5_000_000,
            Call::Mknod { caller: Caller { uid: 7, gid: 8 }, parent: root, name: vec![0xff], new: regular() },
            Ok(ino.0),
        ),
        (
            6_000_000,
            Call::Write {
                ino: root,
                offset: 1 << 40,
                contents: Contents::fingerprint(b"abc"),
                flags: WriteFlags::FROM_CACHE,
            },
            Err(Failure::IsDirectory),
        ),
        (6_000_000, Call::Setxattr { ino, name: b"user.x".to_vec(), value, flags: XattrFlags::CREATE }, Ok(0)),
        (
            6_000_000,
            Call::Setxattr {
                ino,
                name: b"security.capability".to_vec(),
                value: Contents::Given(b"whole".to_vec()),
                flags: XattrFlags::empty(),
            },
            Ok(0),
        ),
        (6_000_000, Call::Tick {}, Ok(0)),
    ];
    let expected: Vec<Event> = expected.map(|(arrival, call, answer)| Event { arrival, took: 0, call, answer }).into();
    assert_eq!(events, expected);
}

#[test]
fn calls_with_another_result_are_counted_and_calls_without_an_inode_skipped() {
    let sink = Sink::default();
    let inner = Arc::new(MemFs::new(1 << 20));
    let before = inner.mknod(Caller::default(), inner.root(), b"before", &regular()).expect("made").attr.ino;
    let fs = Recorder::new(inner, sink.clone(), clock()).expect("memory is never full");
    let root = fs.root();
    fs.getattr(before).expect("there");
    fs.lookup(root, b"before").expect("there");
    let new = fs.mknod(Caller::default(), root, b"new", &regular()).expect("made").attr.ino;
    fs.write(new, 0, &[1; 4096], WriteFlags::empty()).expect("room");
    drop(fs);

    let other = MemFs::new(1 << 20);
    other.mknod(Caller::default(), other.root(), b"new", &regular()).expect("made");
    let done = replay_on(&other, &sink);
    assert_eq!((done.calls, done.left_out, done.diverged), (2, 2, 2));
    let first = Divergence { record: 1, call: "Lookup", then: Ok(before.0), now: Err(Failure::NotFound) };
    assert_eq!(done.first_divergence, Some(first));
}

#[test]
fn two_listings_of_one_directory_go_on_side_by_side() {
    let sink = Sink::default();
    let fs = Recorder::new(volume(), sink.clone(), clock()).expect("memory is never full");
    let root = fs.root();
    for n in 0..20 {
        let name = format!("file{n}");
        fs.mknod(Caller::default(), root, name.as_bytes(), &regular()).expect("made");
    }
    let mut cookies = [0, 0];
    for _ in 0..5 {
        for cookie in &mut cookies {
            let mut taken = 0;
            let from = *cookie;
            let list = &mut |entry: vfs::DirEntry<'_>| {
                if taken == 4 {
                    return Flow::Stop;
                }
                taken += 1;
                *cookie = entry.next;
                Flow::Continue
            };
            fs.readdir(root, from, list).expect("a listing");
        }
    }
    // From the middle of a listing, like a kernel without room for all names.
    let (mut taken, mut middle) = (0, 0);
    let list = &mut |entry: vfs::DirEntry<'_>| {
        taken += 1;
        if taken == 2 {
            middle = entry.next;
        }
        Flow::Continue
    };
    fs.readdir(root, 0, list).expect("a listing");
    fs.readdir(root, middle, &mut |_| Flow::Continue).expect("a listing");
    drop(fs);
    let done = replay_on(&*volume(), &sink);
    assert_eq!((done.diverged, done.left_out, done.calls), (0, 0, 32), "{done:?}");
}

#[test]
fn references_are_given_back_and_gaps_kept() {
    let (sink, clock) = (Sink::default(), clock());
    let fs = Recorder::new(Arc::new(MemFs::new(1 << 20)), sink.clone(), clock.clone()).expect("memory is never full");
    let root = fs.root();
    let ino = fs.mknod(Caller::default(), root, b"a", &regular()).expect("made").attr.ino;
    clock.advance(Duration::from_secs(3));
    fs.lookup(root, b"a").expect("there");
    fs.forget(ino, 1);
    drop(fs);
    let (other, later) = (MemFs::new(1 << 20), self::clock());
    let events = Events::new(sink.reader()).expect("a recording of a file system");
    let (done, whole) = replay(events.root(), events, &other, &Tempo::Virtual(later.clone()), |_| {});
    whole.expect("whole");
    assert_eq!(done.span, 3_000_000_000);
    assert_eq!(later.monotonic(), Duration::from_secs(3));
    let Ok(found) = other.lookup(other.root(), b"a") else { panic!("a is there") };
    assert_eq!(other.references(found.attr.ino), Ok(1));
    assert_ne!(found.attr.ino, Ino(0));
}
