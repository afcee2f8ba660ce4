//! Replays the shipped recordings with contents (`recordings/`): every file that the programs left exists, byte for
//! byte, on a volume with deltas, and both checkers accept the volume, with deltas and settled.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Access, open_image};
use f2fs::{MountOptions, Volume, mkfs, settle};
use format::superblock::Features;
use judges::oracle::tools::assert_fsck_clean;
use record::calls::{Events, prepare, replay, without_contents};
use record::{Reader, Tempo};
use sha2::{Digest, Sha256};
use vfs::path::walk;
use vfs::{FileKind, FileSystem, Flow};

use crate::rig::clock;

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recordings");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = all.filter(|path| path.extension().is_some_and(|e| e == "rec")).collect();
    all.sort();
    all
}

fn events(source: impl Read + Send + 'static) -> Events {
    Events::new(Reader::new(source).unwrap()).unwrap()
}

/// An image of 512 MiB that may hold deltas.
fn volume(image: &Path) -> Arc<Volume> {
    File::create(image).unwrap().set_len(512 << 20).unwrap();
    let device = open_image(image, Access::ReadWrite).unwrap();
    let options =
        mkfs::Options { features: mkfs::Options::modern().features | Features::DELTA, ..mkfs::Options::modern() };
    mkfs::format(&device, &*clock(), &options).unwrap();
    Volume::mount(device, clock(), MountOptions::default()).unwrap()
}

/// The contents of files, in the format of `scripts/record-programs`: length and SHA-256, or a link's target.
fn held(fs: &dyn FileSystem) -> BTreeMap<String, String> {
    let (mut all, mut todo) = (BTreeMap::new(), vec![String::new()]);
    while let Some(dir) = todo.pop() {
        let mut names = Vec::new();
        fs.readdir(walk(fs, dir.as_bytes()).unwrap().ino(), 0, &mut |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            Flow::Continue
        })
        .unwrap();
        for name in names.into_iter().filter(|name| name != "." && name != "..") {
            let path = format!("{dir}/{name}");
            let found = walk(fs, path.as_bytes()).unwrap();
            let attr = fs.getattr(found.ino()).unwrap();
            let line = match attr.kind {
                FileKind::Directory => {
                    todo.push(path);
                    continue;
                }
                FileKind::Symlink => format!("link {}", String::from_utf8(fs.readlink(attr.ino).unwrap()).unwrap()),
                FileKind::Regular => {
                    let mut bytes = vec![0; attr.size as usize];
                    assert_eq!(fs.read(attr.ino, 0, &mut bytes), Ok(bytes.len()), "{path}");
                    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
                    format!("{} {digest}", attr.size)
                }
                _ => continue,
            };
            all.insert(path[1..].to_owned(), line);
        }
    }
    all
}

/// What the programs left. For files that they did not change, a recording may have only the length.
fn left(recording: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(recording.with_extension("sums")).unwrap();
    text.lines().map(|line| line.split_once("  ").unwrap()).map(|(held, path)| (path.into(), held.into())).collect()
}

/// Files that differ from what the programs left, including missing and extra names. A name that no call looked up is
/// not in the recording.
fn differing(left: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let same = |name: &String, held: &String| match (held.strip_suffix(" as before"), now.get(name)) {
        (Some(length), Some(now)) => now.split(' ').next() == Some(length),
        (Some(_), None) => true,
        (None, now) => now == Some(held),
    };
    let changed = left.iter().filter(|(name, held)| !same(name, held)).map(|(name, _)| name.clone());
    changed.chain(now.keys().filter(|name| !left.contains_key(*name)).cloned()).collect()
}

#[test]
fn every_recorded_program_leaves_the_same_files_on_a_volume_with_deltas_that_settles() {
    let room = tempfile::tempdir().unwrap();
    let image = room.path().join("image");
    let (mut all, mut with_deltas) = (0, 0);
    for recording in recordings() {
        let name = recording.display();
        let again = || events(BufReader::new(File::open(&recording).unwrap()));
        let volume = volume(&image);
        let (_, whole) = prepare(again().root(), again(), &*volume, || ()).unwrap();
        whole.unwrap();
        let (done, whole) = replay(again().root(), again(), &*volume, &Tempo::BackToBack, |_| ());
        whole.unwrap();
        assert_eq!((done.left_out, done.generated), (0, 0), "{name}: {done:?}");
        // In programs with several threads, a replayed lookup may race differently with a removal.
        assert!(done.diverged * 1000 <= done.calls, "{name}: {done:?}");
        with_deltas += u64::from(volume.counters.deltas.load(Relaxed) > 0);
        let same = |what: &str| {
            let device = open_image(&image, Access::ReadWrite).unwrap();
            let volume = Volume::mount(device, clock(), MountOptions::default()).unwrap();
            assert_eq!(differing(&left(&recording), &held(&*volume)), [""; 0], "{name}, {what}");
            volume.unmount().unwrap();
        };
        volume.unmount().unwrap();
        drop(volume);
        same("with deltas");
        let device = open_image(&image, Access::ReadWrite).unwrap();
        settle::settle(device, clock(), &mut |_, _| ()).unwrap();
        assert_fsck_clean(&image);
        same("settled");
        all += 1;
    }
    assert!(all >= 8 && with_deltas >= 5, "{with_deltas} of {all}");
}

#[test]
fn without_contents_the_same_recording_leaves_other_files() {
    let room = tempfile::tempdir().unwrap();
    let recording = recordings().into_iter().find(|path| path.ends_with("settings.rec")).unwrap();
    let stripped = room.path().join("stripped");
    without_contents(events(File::open(&recording).unwrap()), File::create(&stripped).unwrap()).unwrap();
    let stripped = std::fs::read(stripped).unwrap();
    let again = || events(Cursor::new(stripped.clone()));
    let volume = volume(&room.path().join("image"));
    // The initial files, from the recording with contents.
    let before = events(File::open(&recording).unwrap());
    prepare(before.root(), before, &*volume, || ()).unwrap().1.unwrap();
    let (done, _) = replay(again().root(), again(), &*volume, &Tempo::BackToBack, |_| ());
    assert_eq!((done.left_out, done.diverged, done.generated), (0, 0, done.written));
    assert_eq!(differing(&left(&recording), &held(&*volume)), ["counters", "events.log", "state.json"]);
    volume.unmount().unwrap();
}
