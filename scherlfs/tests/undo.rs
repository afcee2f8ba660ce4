//! An undone volume equals its earlier state to the byte; after a power cut in the middle it has the old or the new
//! state; and an undo can be undone.
//!
//! The judge is a copy of the whole tree after every transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BlockDevice, Loss, Memory, PowerCut, Rng, VirtualClock};
use joulefs_scherlfs as scherlfs;
use scherlfs::undo::What;
use scherlfs::{Clean, MountOptions, Strategy, Volume, make};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Flow, Ino, NewNode, Power, RenameFlags, SetAttr, WriteFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };
const FILE: NewNode =
    NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber { major: 0, minor: 0 } };

/// Every path with its mode, size and contents.
type Tree = BTreeMap<String, (u16, u32, Vec<u8>)>;

fn tree(volume: &Volume) -> Tree {
    let mut all = Tree::new();
    let mut todo = vec![(volume.root(), String::new())];
    while let Some((dir, path)) = todo.pop() {
        let mut names: Vec<(Vec<u8>, Ino)> = Vec::new();
        let each = &mut |e: vfs::DirEntry<'_>| {
            if ![&b"."[..], b"..", b".ifile"].contains(&e.name) {
                names.push((e.name.to_vec(), e.ino));
            }
            Flow::Continue
        };
        volume.readdir(dir, 0, each).unwrap();
        for (name, ino) in names {
            let (path, attr) = (format!("{path}/{}", String::from_utf8_lossy(&name)), volume.getattr(ino).unwrap());
            let mut bytes = Vec::new();
            match attr.kind {
                FileKind::Directory => todo.push((ino, path.clone())),
                FileKind::Regular => {
                    bytes = vec![0; attr.size as usize];
                    assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), bytes.len());
                }
                _ => bytes = volume.readlink(ino).unwrap(),
            }
            all.insert(path, (attr.perm, attr.nlink, bytes));
        }
    }
    all
}

fn check(dev: &dyn BlockDevice, what: &str) {
    let report = scherlfs_fsck::check(dev);
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
}

fn mounted(dev: Arc<dyn BlockDevice>, options: MountOptions) -> Volume {
    Volume::mount(dev, Arc::new(VirtualClock::default()), options).unwrap()
}

fn kept(blocks: u64) -> MountOptions {
    MountOptions { undo: Some(blocks), checkpoint_blocks: 200, ..MountOptions::default() }
}

fn number(volume: &Volume, name: &str) -> u64 {
    volume.report().into_iter().find(|(n, _)| n == name).unwrap().1.parse().unwrap()
}

/// Some calls; their results do not matter, as long as they change much.
fn calls(volume: &Volume, rng: &mut Rng, count: u64) {
    let root = volume.root();
    for _ in 0..count {
        let name = format!("n{}", rng.below(12));
        let found = volume.lookup(root, name.as_bytes()).map(|e| (e.attr.ino, e.attr.kind)).ok();
        match (rng.below(9), found) {
            (0..=2, None) => drop(volume.mknod(ME, root, name.as_bytes(), &FILE).map(|e| volume.forget(e.attr.ino, 1))),
            (3, None) => drop(volume.mkdir(ME, root, name.as_bytes(), 0o755, 0).map(|e| volume.forget(e.attr.ino, 1))),
            (4, None) => drop(volume.symlink(ME, root, name.as_bytes(), b"n1").map(|e| volume.forget(e.attr.ino, 1))),
            (0..=4, Some((ino, FileKind::Regular))) => {
                let bytes = vec![rng.below(255) as u8; 1 + rng.below(30_000) as usize];
                drop(volume.write(ino, rng.below(80_000), &bytes, WriteFlags::empty()));
            }
            (5, Some((ino, FileKind::Regular))) => {
                drop(volume.setattr(ino, &SetAttr { size: Some(rng.below(60_000)), ..SetAttr::default() }));
            }
            (6, Some((_, FileKind::Directory))) => drop(volume.rmdir(root, name.as_bytes())),
            (6, Some(_)) => drop(volume.unlink(root, name.as_bytes())),
            (7, Some(_)) => {
                let to = format!("n{}", rng.below(12));
                drop(volume.rename(ME, (root, name.as_bytes()), (root, to.as_bytes()), RenameFlags::empty()));
            }
            (8, Some((ino, _))) => {
                let perm = Some(0o600 + rng.below(8) as u16);
                drop(volume.setattr(ino, &SetAttr { perm, ..SetAttr::default() }));
            }
            _ => {}
        }
        if let Some((ino, _)) = found {
            volume.forget(ino, 1);
        }
    }
}

/// A volume, and its tree after each of its last undoable transactions, the oldest first.
fn lived(seed: u64, options: &MountOptions) -> (Arc<Memory>, Vec<(u64, Tree)>) {
    let dev = Arc::new(Memory::new(16 * 256));
    make::format(dev.clone(), &VirtualClock::default(), &make::Options { segment_blocks: 16, ..Default::default() })
        .unwrap();
    let mut rng = Rng::new(seed);
    let mut states = Vec::new();
    for _ in 0..3 {
        let volume = mounted(dev.clone(), options.clone());
        states.push((number(&volume, "transaction"), tree(&volume)));
        for _ in 0..12 {
            calls(&volume, &mut rng, 6);
            volume.sync().unwrap();
            if options.power == Power::Powered && rng.below(4) == 0 {
                volume.tidy().unwrap();
            }
            states.push((number(&volume, "transaction"), tree(&volume)));
        }
        volume.unmount().unwrap();
    }
    (dev, states)
}

/// The tree after all transactions up to this one.
fn then(states: &[(u64, Tree)], seq: u64) -> &Tree {
    &states.iter().rev().find(|(s, _)| *s <= seq).expect("the first is empty").1
}

fn options() -> [MountOptions; 3] {
    let charged = MountOptions { power: Power::Powered, clean: Clean::Always(Strategy::Copying), ..kept(3000) };
    [kept(3000), kept(120), charged]
}

#[test]
fn a_volume_goes_back_to_any_transaction_down_to_the_floor_and_forward_again() {
    for (n, options) in options().into_iter().enumerate() {
        let (mut reached, mut floors) = (0, Vec::new());
        for seed in 0..8 {
            let (dev, states) = lived(seed * 10 + n as u64, &options);
            check(&*dev, "before");
            let events = mounted(dev.clone(), MountOptions { read_only: true, ..options.clone() }).history().unwrap();
            floors.push(events.len());
            for count in 1..=events.len() {
                let what = format!("options {n}, seed {seed}, {count} back of {}", events.len());
                let copy = Arc::new(dev.fork());
                let volume = mounted(copy.clone(), options.clone());
                let before = tree(&volume);
                volume.undo_last(count).unwrap_or_else(|e| panic!("{what}: {e}"));
                if count % 3 == 0 {
                    // Restored files are changed again immediately.
                    let busy = Arc::new(dev.fork());
                    let volume = mounted(busy.clone(), options.clone());
                    volume.undo_last(count).unwrap();
                    let mut rng = Rng::new(seed + 77);
                    for _ in 0..6 {
                        calls(&volume, &mut rng, 8);
                        volume.sync().unwrap_or_else(|e| panic!("{what}, and changed: {e}"));
                    }
                    let lived = tree(&volume);
                    volume.unmount().unwrap();
                    check(&*busy, &what);
                    assert_eq!(tree(&mounted(busy, options.clone())), lived, "{what}, and changed");
                }
                // The state before a transaction is the one after all earlier ones.
                assert_eq!(tree(&volume), *then(&states, events[count - 1].seq - 1), "{what}");
                volume.unmount().unwrap();
                check(&*copy, &what);
                let volume = mounted(copy.clone(), options.clone());
                assert_eq!(tree(&volume), *then(&states, events[count - 1].seq - 1), "{what}, mounted again");
                if volume.history().unwrap().len() > count {
                    volume.undo_last(1).unwrap_or_else(|e| panic!("{what}, and forward: {e}"));
                    assert_eq!(tree(&volume), before, "{what}, and forward");
                }
                volume.unmount().unwrap();
                check(&*copy, &what);
                reached += 1;
            }
            let volume = mounted(Arc::new(dev.fork()), options.clone());
            assert!(volume.undo_last(events.len() + 1).is_err());
            assert!(volume.undo_last(0).is_err());
        }
        println!("options {n}: {reached} times back, up to {floors:?} transactions");
        assert!(reached > 40, "{reached}");
    }
}

#[test]
fn a_power_cut_while_going_back_leaves_the_state_before_or_the_one_after() {
    let mut images = 0;
    for (n, options) in options().into_iter().enumerate() {
        for seed in 0..3 {
            let (dev, states) = lived(500 + seed, &options);
            let events = mounted(dev.clone(), MountOptions { read_only: true, ..options.clone() }).history().unwrap();
            let count = 1 + events.len() / 2;
            let (last, then) = (&states.last().unwrap().1, then(&states, events[count - 1].seq - 1));
            for cut in 1.. {
                let cutting = Arc::new(PowerCut::new(dev.fork()));
                cutting.cut_after(cut);
                let volume = mounted(cutting.clone(), options.clone());
                let done = volume.undo_last(count).and_then(|_| volume.unmount());
                for loss in Loss::PLAIN.into_iter().chain([Loss::LastTorn(3), Loss::Random(cut)]) {
                    let what = format!("options {n}, seed {seed}, cut {cut}, {loss}");
                    let image = Arc::new(cutting.image(loss));
                    check(&*image, &what);
                    let volume = mounted(image.clone(), options.clone());
                    let found = tree(&volume);
                    assert!(found == *then || found == *last, "{what}");
                    volume.unmount().unwrap();
                    check(&*image, &what);
                    images += 1;
                }
                if done.is_ok() {
                    break;
                }
            }
        }
    }
    println!("{images} images");
    assert!(images > 300, "{images}");
}

#[test]
fn one_file_gets_its_contents_back_or_its_name_and_no_other_changes() {
    let dev = Arc::new(Memory::new(16 * 256));
    make::format(dev.clone(), &VirtualClock::default(), &make::Options::default()).unwrap();
    let volume = mounted(dev.clone(), kept(3000));
    let root = volume.root();
    let dir = volume.mkdir(ME, root, b"dir", 0o755, 0).unwrap().attr.ino;
    let write = |name: &[u8], bytes: &[u8]| {
        let ino = match volume.lookup(dir, name) {
            Ok(entry) => entry.attr.ino,
            Err(_) => volume.mknod(ME, dir, name, &FILE).unwrap().attr.ino,
        };
        volume.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        volume.write(ino, 0, bytes, WriteFlags::empty()).unwrap();
        volume.forget(ino, 1);
        volume.sync().unwrap();
    };
    write(b"a", &[1; 9000]);
    write(b"b", &[2; 5000]);
    write(b"a", &[3; 20_000]);
    write(b"b", &[4; 100]);
    let whole = tree(&volume);
    volume.undo_file(&[b"dir", b"a"]).unwrap();
    let mut wanted = whole.clone();
    wanted.get_mut("/dir/a").unwrap().2 = vec![1; 9000];
    assert_eq!(tree(&volume), wanted);
    volume.unlink(dir, b"b").unwrap();
    volume.sync().unwrap();
    let events = volume.history().unwrap();
    assert!(
        events[0].changes.contains(&(
            What::Removed,
            Some(b"/dir/b".to_vec()),
            events[0].changes.iter().find(|c| c.0 == What::Removed).unwrap().2
        )),
        "{events:?}"
    );
    volume.undo_file(&[b"dir", b"b"]).unwrap();
    assert_eq!(tree(&volume), wanted);
    assert_eq!(volume.undo_file(&[b"dir", b"c"]), Err(vfs::Error::NotFound));
    assert!(volume.undo_file(&[b"dir"]).is_err());
    volume.unmount().unwrap();
    check(&*dev, "in the end");
    // Mounted with a budget of 0, nothing is kept.
    let volume = mounted(dev.clone(), MountOptions { undo: Some(0), ..MountOptions::default() });
    volume.mknod(ME, volume.root(), b"x", &FILE).unwrap();
    volume.unmount().unwrap();
    check(&*dev, "without a history");
    assert_eq!(mounted(dev, MountOptions::default()).history().unwrap(), []);
}

#[test]
fn what_is_kept_makes_way_when_the_volume_is_full() {
    let dev = Arc::new(Memory::new(8 * 256));
    make::format(dev.clone(), &VirtualClock::default(), &make::Options::default()).unwrap();
    let volume = mounted(dev.clone(), kept(1 << 30));
    for round in 0..6u8 {
        let file = volume.mknod(ME, volume.root(), &[b'a' + round], &FILE).unwrap().attr.ino;
        let mut at = 0;
        let free = volume.statfs().unwrap().blocks_free;
        while let Ok(n) = volume.write(file, at, &[round; 1 << 16], WriteFlags::empty()) {
            at += n as u64;
        }
        assert!(at / 4096 + 60 > free, "round {round}: {} of {free} blocks", at / 4096);
        volume.sync().unwrap();
        volume.unlink(volume.root(), &[b'a' + round]).unwrap();
        volume.forget(file, 1);
    }
    volume.unmount().unwrap();
    check(&*dev, "in the end");
}
