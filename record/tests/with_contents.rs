//! Recordings with contents restore written data and old state byte for byte.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::rng::Rng;
use device::{Counting, Memory};
use f2fs::{MountOptions, Volume, mkfs};
use judges::memfs::MemFs;
use judges::oracle::tree::assert_same;
use judges::zoo::{Size, in_process, plan};
use record::Tempo;
use record::calls::{Call, Contents, Event, Events, Prepared, Recorder, Replayed, prepare, replay, without_contents};
use vfs::{Caller, FileSystem, RenameFlags, SetAttr};

use crate::old_tree::{change, chunks, clock, find, listing, noise, old_tree, recorder, regular, write};
use crate::sink::Sink;

fn events(sink: &Sink) -> Events {
    Events::new(sink.reader()).expect("a recording of a file system")
}

/// Prepares `fs` from the recording and replays its calls.
fn prepare_and_replay(fs: &dyn FileSystem, sink: &Sink) -> (Prepared, Replayed) {
    let all = events(sink);
    let (prepared, whole) = prepare(all.root(), all, fs, || ()).expect("room for it");
    whole.expect("whole");
    let all = events(sink);
    let (done, whole) = replay(all.root(), all, fs, &Tempo::BackToBack, |_| {});
    whole.expect("whole");
    assert_eq!((done.diverged, done.left_out), (0, 0), "{done:?}");
    (prepared, done)
}

fn volume(options: &mkfs::Options) -> Arc<Volume> {
    let (dev, clock) = (Arc::new(Counting::new(Memory::new(64 << 8))), clock());
    mkfs::format(&dev, &*clock, options).expect("formats");
    let volume = Volume::mount(dev, clock, MountOptions::default()).expect("mounts");
    // As empty as a memory file system.
    volume.rmdir(volume.root(), b"lost+found").expect("made with the volume");
    volume
}

fn with_deltas() -> mkfs::Options {
    let mut options = mkfs::Options::modern();
    options.features |= format::superblock::Features::DELTA;
    options
}

#[test]
fn the_zoo_replayed_is_the_same_tree_byte_for_byte() {
    let sink = Sink::default();
    let fs = recorder(Arc::new(MemFs::new(1 << 40)), &sink);
    in_process::perform(&fs, &plan(3, Size::Small)).expect("the zoo in memory");
    fs.finish().expect("memory is never full");
    let original = listing(fs.inner());
    let memory = MemFs::new(1 << 40);
    let (prepared, done) = prepare_and_replay(&memory, &sink);
    assert_eq!((prepared, done.generated), (Prepared::default(), 0));
    assert!(done.written > 1 << 20, "{done:?}");
    assert_same(("recorded", &original), ("replayed", &listing(&memory)));
}

#[test]
fn old_files_are_restored_on_every_file_system() {
    for (options, deltas) in [(mkfs::Options::modern(), false), (with_deltas(), true)] {
        let sink = Sink::default();
        let old = volume(&options);
        old_tree(&*old, &mut Rng::new(5));
        let fs = recorder(old, &sink);
        change(&fs);
        fs.finish().expect("memory is never full");
        let original = listing(fs.inner());

        let memory = MemFs::new(1 << 40);
        let (prepared, done) = prepare_and_replay(&memory, &sink);
        // One file is emptied before its first write: its old contents do not matter, and are not recorded.
        assert!(prepared.files > 15 && prepared.recorded > 500_000 && prepared.generated > 0, "{prepared:?}");
        assert_eq!(done.generated, 0);
        assert_same(("recorded", &original), ("replayed in memory", &listing(&memory)));

        let other = volume(&options);
        prepare_and_replay(&*other, &sink);
        assert_same(("recorded", &original), ("replayed on F2FS", &listing(&*other)));
        assert_eq!(other.counters.deltas.load(Relaxed) > 0, deltas);
        other.unmount().expect("clean");

        // On a copy of the old state, nothing needs to be created.
        let copy = volume(&options);
        old_tree(&*copy, &mut Rng::new(5));
        let (prepared, _) = prepare_and_replay(&*copy, &sink);
        assert_eq!(prepared, Prepared::default());
        assert_same(("recorded", &original), ("replayed on a copy", &listing(&*copy)));
    }
}

#[test]
fn a_random_program_leaves_the_same_bytes_wherever_its_recording_begins() {
    let mut deltas = 0;
    for seed in 0..if std::env::var_os("JOULEFS_DEEP").is_some() { 60 } else { 12 } {
        let (mut rng, sink) = (Rng::new(seed), Sink::default());
        let old = volume(&with_deltas());
        nudge(&*old, &mut rng, 60);
        let fs = recorder(old, &sink);
        nudge(&fs, &mut rng, 200);
        fs.finish().expect("memory is never full");
        let original = listing(fs.inner());
        let other = volume(&with_deltas());
        // For files that no recorded call changes, the recording has only the length. So each file is looked up here,
        // and changed by one byte.
        let (_, done) = prepare_and_replay(&*other, &sink);
        assert_eq!(done.generated, 0);
        assert_same(("recorded", &original), ("replayed", &listing(&*other)));
        deltas += other.counters.deltas.load(Relaxed);
    }
    assert!(deltas > 100, "{deltas}");
}

#[test]
fn concurrent_changes_of_an_old_file_replay_to_the_same_contents() {
    let (sink, old) = (Sink::default(), volume(&with_deltas()));
    let (files, threads) = (24_u64, 6_u64);
    for n in 0..files {
        let ino =
            old.mknod(Caller::default(), old.root(), format!("f{n}").as_bytes(), &regular()).expect("made").attr.ino;
        write(&*old, ino, 0, &vec![n as u8; 20_000]);
        old.forget(ino, 1);
    }
    let fs = recorder(old, &sink);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let fs = &fs;
            scope.spawn(move || {
                for n in 0..files {
                    // Each thread writes its part of every file, and creates files that the other threads look up.
                    let ino = find(fs, &format!("f{n}"));
                    write(fs, ino, thread * 3000 + n * 7, &[b'a' + thread as u8; 50]);
                    let name = |of: u64| format!("new{of}-{n}").into_bytes();
                    let made =
                        fs.mknod(Caller::default(), fs.root(), &name(thread), &regular()).expect("made").attr.ino;
                    write(fs, made, 0, &name(thread));
                    if let Ok(there) = fs.lookup(fs.root(), &name((thread + 1) % threads)) {
                        write(fs, there.attr.ino, 100, &[thread as u8; 9]);
                        fs.forget(there.attr.ino, 1);
                    }
                    fs.fsync(ino, false).expect("durable");
                    fs.forget(ino, 1);
                    fs.forget(made, 1);
                }
            });
        }
    });
    fs.finish().expect("memory is never full");
    let other = volume(&with_deltas());
    let (prepared, done) = prepare_and_replay(&*other, &sink);
    assert_eq!((prepared.files, prepared.recorded, done.generated), (files, files * 20_000, 0));
    assert_same(("recorded", &listing(fs.inner())), ("replayed", &listing(&*other)));
}

/// Small changes to a few files, which are created, changed, renamed and removed.
fn nudge(fs: &dyn FileSystem, rng: &mut Rng, steps: u32) {
    let root = fs.root();
    let name = |n: u64| format!("n{n}").into_bytes();
    for n in 0..8 {
        // Each is looked up once, and changed.
        if let Ok(entry) = fs.lookup(root, &name(n)) {
            write(fs, entry.attr.ino, 3, b"x");
            fs.forget(entry.attr.ino, 1);
        }
    }
    for _ in 0..steps {
        let n = rng.below(8);
        let Ok(entry) = fs.lookup(root, &name(n)) else {
            let ino = fs.mknod(Caller::default(), root, &name(n), &regular()).expect("made").attr.ino;
            let bytes = noise(rng, 1 + n as usize * 9000);
            write(fs, ino, 0, &bytes);
            fs.forget(ino, 1);
            continue;
        };
        let (ino, size) = (entry.attr.ino, entry.attr.size);
        match rng.below(12) {
            0 => fs.unlink(root, &name(n)).expect("there"),
            1 => {
                let to = name(rng.below(8));
                // The kernel first looks up both names.
                if let Ok(there) = fs.lookup(root, &to) {
                    fs.forget(there.attr.ino, 1);
                }
                fs.rename(Caller::default(), (root, &name(n)), (root, &to), RenameFlags::empty()).expect("renamed");
            }
            2 => drop(
                fs.setattr(ino, &SetAttr { size: Some(rng.below(size + 5000)), ..SetAttr::default() }).expect("room"),
            ),
            _ => {
                let length = 1 + rng.index(40);
                let bytes = noise(rng, length);
                write(fs, ino, rng.below(size + 1), &bytes);
                if rng.below(2) == 0 {
                    fs.fsync(ino, rng.below(2) == 0).expect("durable");
                }
            }
        }
        fs.forget(ino, 1);
    }
}

#[test]
fn long_contents_are_split_below_the_limit_of_a_chunk_and_come_back_in_one_piece() {
    let (sink, mut rng) = (Sink::default(), Rng::new(9));
    let fs = recorder(Arc::new(MemFs::new(1 << 30)), &sink);
    let ino = fs.mknod(Caller::default(), fs.root(), b"a", &regular()).expect("made").attr.ino;
    let mut written = Vec::new();
    let part = 256 << 10;
    for length in [0, 1, part - 1, part, part + 1, 640 << 10, (1 << 20) - 1, 1 << 20, (5 << 20) + 77, 3] {
        // Incompressible data is the longest.
        let bytes = noise(&mut rng, length);
        write(&fs, ino, 7, &bytes);
        written.push(bytes);
    }
    write(&fs, ino, 0, &vec![b'z'; 9 << 20]);
    written.push(vec![b'z'; 9 << 20]);
    drop(fs);
    let bytes = sink.bytes();
    let all = chunks(&bytes);
    assert!(all.len() > 8 && all.iter().all(|(_, length)| *length <= 1 << 20), "{all:?}");
    let read: Vec<Vec<u8>> = events(&sink)
        .filter_map(|event| match event.expect("whole").call {
            Call::Write { contents: Contents::Given(bytes), .. } => Some(bytes),
            _ => None,
        })
        .collect();
    assert!(read == written, "{:?}", read.iter().map(Vec::len).collect::<Vec<_>>());
}

#[test]
fn contents_that_are_too_long_are_recorded_by_length_and_counted_in_a_replay() {
    let sink = Sink::default();
    let fs = recorder(Arc::new(MemFs::new(1 << 30)), &sink);
    let ino = fs.mknod(Caller::default(), fs.root(), b"a", &regular()).expect("made").attr.ino;
    write(&fs, ino, 0, &vec![1; 64 << 20]);
    write(&fs, ino, 0, &vec![2; (64 << 20) + 1]);
    drop(fs);
    let (_, done) = prepare_and_replay(&MemFs::new(1 << 30), &sink);
    assert_eq!((done.written, done.generated), ((128 << 20) + 1, (64 << 20) + 1));
}

#[test]
fn without_a_request_a_recording_has_no_contents_and_the_old_version() {
    let secret = b"nobody but the user's own files have this";
    let record = |contents: bool| {
        let sink = Sink::default();
        let fs = Arc::new(MemFs::new(1 << 20));
        let old = fs.mknod(Caller::default(), fs.root(), b"old", &regular()).expect("made").attr.ino;
        write(&*fs, old, 0, secret);
        let fs: Arc<dyn FileSystem> = match contents {
            true => Arc::new(recorder(fs, &sink)),
            false => Arc::new(Recorder::new(fs, sink.clone(), clock()).expect("memory is never full")),
        };
        fs.lookup(fs.root(), b"old").expect("there");
        write(&*fs, old, 0, b"changed");
        let new = fs.mknod(Caller::default(), fs.root(), b"new", &regular()).expect("made").attr.ino;
        write(&*fs, new, 0, secret);
        drop(fs);
        sink
    };
    let plain = record(false).bytes();
    assert_eq!(plain[8..10], [1, 0]);
    assert!(!plain.windows(secret.len()).any(|w| w == secret));
    let sink = record(true);
    let whole = sink.bytes();
    assert_eq!(whole[8..10], [2, 0]);
    // The notice at the beginning warns readers.
    assert!(String::from_utf8_lossy(&whole[..200]).contains("contains the contents of the files"));
    let held = |event: Event| match event.call {
        Call::WasContents { bytes, .. } | Call::Write { contents: Contents::Given(bytes), .. } => bytes == secret,
        _ => false,
    };
    assert_eq!(events(&sink).map(|e| held(e.expect("whole"))).filter(|held| *held).count(), 2, "old and new");
}

#[test]
fn a_recording_that_lost_its_contents_is_the_one_that_never_had_them() {
    let record = |contents: bool| {
        let (sink, old) = (Sink::default(), Arc::new(MemFs::new(1 << 30)));
        old_tree(&*old, &mut Rng::new(5));
        let fs: Arc<dyn FileSystem> = match contents {
            true => Arc::new(recorder(old, &sink)),
            false => Arc::new(Recorder::new(old, sink.clone(), clock()).expect("memory is never full")),
        };
        change(&*fs);
        drop(fs);
        sink
    };
    let (with, without) = (record(true), record(false));
    let stripped = Sink::default();
    let calls = without_contents(events(&with), stripped.clone()).expect("whole");
    assert!(calls > 50 && stripped.bytes() == without.bytes(), "{calls}");
}
