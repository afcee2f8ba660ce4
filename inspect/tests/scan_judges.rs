//! The scan's counts equal those of our checker, the file system and `victim`, which read in other ways.

use std::sync::Arc;

use device::{BlockDevice, Memory, Tag};
use f2fs::{MountOptions, RollForward, mkfs};
use format::superblock::Features;
use inspect::file::Extent;
use inspect::{Finding, Findings, Options, Progress, Volume, begin, space, tables};
use judges::churn;
use judges::damage;
use judges::zoo::{self, Size, in_process};
use trials::populated;
use vfs::{FileSystem, Flow};
use victim::fragmentation::Fragmentation;

fn inspected(dev: &dyn BlockDevice) -> Volume {
    let options = Options { extents: true, ..Options::default() };
    Volume::read(dev, &options, &mut Progress::new(&mut |_| true)).unwrap()
}

fn mounted(dev: &Memory) -> Arc<f2fs::Volume> {
    // Files fsynced after the checkpoint are not part of it.
    let options = MountOptions { read_only: true, roll_forward: RollForward::Leave, ..MountOptions::default() };
    f2fs::Volume::mount(Arc::new(dev.fork()), damage::clock(), options).unwrap()
}

/// Compares with the checker, the file system and the policies' view of segments.
fn agree(dev: &Memory) -> Volume {
    let seen = inspected(dev);
    assert_eq!(seen.findings, []);
    let checked = fsck::check(dev, &fsck::Options::default()).unwrap();
    assert!(checked.is_clean(), "{checked}");
    let (c, f) = (seen.counts, checked.counts);
    assert_eq!((c.dirs, c.files, c.nodes, c.blocks), (f.dirs, f.files, f.nodes, f.blocks));

    let vol = mounted(dev);
    let (st, state) = (vol.statfs().unwrap(), vol.state());
    assert_eq!(st.blocks - st.blocks_free, c.blocks);
    assert_eq!((u64::from(state.inodes), u64::from(state.nodes)), (c.dirs + c.files, c.nodes));
    let free = vol.free_fragments();
    assert_eq!((seen.space.pieces, seen.space.piece_blocks), (free.count, free.blocks));
    segments(dev, &seen);
    paths(&seen, &vol, vol.root(), b"");
    seen
}

/// f of each segment as the policies compute it.
fn segments(dev: &Memory, seen: &Volume) {
    let mut found = Findings::default();
    let sb = begin::superblock(dev, &mut found).unwrap();
    let pack = begin::pack(dev, &sb, &mut found).unwrap();
    let (sit, _) = tables::read(dev, &sb, &pack, &mut found, &mut Progress::new(&mut |_| true)).unwrap();
    let (mut valid, mut fragmentation) = (0, 0.0);
    for (_, segment) in sit.iter() {
        let theirs = Fragmentation::scan(&segment.map).factor.value();
        // Their result is rounded down; ours is a sum of fractions.
        assert_eq!((space::fragmentation(segment) + 1e-6) as u32, theirs);
        valid += u64::from(segment.valid);
        fragmentation += if segment.valid > 0 { space::fragmentation(segment) } else { 0.0 };
    }
    assert_eq!(valid, seen.space.valid());
    assert!((fragmentation - seen.space.mean_fragmentation() * seen.space.used() as f64).abs() < 1e-3);
}

/// Every name in the file system equals that of the scan, unless the scan is unsure.
fn paths(seen: &Volume, vol: &f2fs::Volume, dir: vfs::Ino, path: &[u8]) {
    let mut entries = Vec::new();
    let all = &mut |e: vfs::DirEntry<'_>| {
        entries.push((e.ino, e.name.to_vec()));
        Flow::Continue
    };
    vol.readdir(dir, 0, all).unwrap();
    for (ino, name) in entries.into_iter().filter(|(_, name)| name != b"." && name != b"..") {
        let path = [path, b"/", &name].concat();
        let at = seen.files.binary_search_by_key(&(ino.0 as u32), |f| f.ino.0).unwrap();
        let file = &seen.files[at];
        let ours = seen.path(file);
        if ours.is_sure {
            assert_eq!(ours.text(), String::from_utf8_lossy(&path), "inode {ino:?}");
        }
        let text = path.escape_ascii();
        let attr = vol.getattr(ino).unwrap();
        assert_eq!((file.size, u64::from(file.links)), (attr.size, u64::from(attr.nlink)), "{text}");
        assert_eq!(file.mtime_ns, attr.mtime.sec * 1_000_000_000 + i64::from(attr.mtime.nsec), "{text}");
        if attr.kind == vfs::FileKind::Directory {
            paths(seen, vol, ino, &path);
        }
    }
}

fn options(more: Features) -> mkfs::Options {
    let features = mkfs::Options::modern().features | more;
    mkfs::Options { features, ..mkfs::Options::modern() }
}

fn filled(blocks: u64, options: &mkfs::Options, fill: impl FnOnce(&f2fs::Volume)) -> Memory {
    let dev = Arc::new(Memory::new(blocks));
    mkfs::format(&*dev, &*damage::clock(), options).unwrap();
    let vol = f2fs::Volume::mount(dev.clone(), damage::clock(), MountOptions::default()).unwrap();
    fill(&vol);
    vol.unmount().unwrap();
    drop(vol);
    Arc::into_inner(dev).unwrap()
}

#[test]
fn volumes_with_one_of_everything_are_counted_alike() {
    for seed in [1, 2] {
        let plan = zoo::plan(seed, Size::Small);
        let dev = filled(160 * 256, &options(Features::empty()), |vol| in_process::perform(vol, &plan).unwrap());
        let seen = agree(&dev);
        assert!(seen.files.iter().any(|f| f.inline) && seen.files.iter().any(|f| f.layout.holes > 0));
        assert!(seen.files.iter().any(|f| f.layout.nodes > 2));
    }
    agree(&populated::unmounted(&options(Features::COMPRESSION)));
}

#[test]
fn an_aged_volume_is_counted_alike() {
    let budget = 60 << 20;
    let dev = filled(128 * 256, &options(Features::empty()), |vol| {
        for round in 0..12 {
            in_process::perform(vol, &churn::round(5, budget, round)).unwrap();
            vol.sync().unwrap();
        }
    });
    let seen = agree(&dev);
    assert!(seen.files.iter().any(|f| f.excess() > 0), "nothing is fragmented");
    assert!(seen.space.pieces[0] > 0 && seen.space.mean_fragmentation() > 0.0);
}

#[test]
fn a_volume_that_was_not_unmounted_is_read_as_of_its_checkpoint() {
    // It holds an inode without a name, and files fsynced after the checkpoint.
    let seen = agree(&populated::volume(&mkfs::Options::default()));
    assert!(seen.files.iter().any(|f| f.links == 0) && !seen.files.iter().any(|f| &*f.name == b"entry_synced"));
}

#[test]
fn deltas_are_counted_like_the_file_system_does_and_described_by_their_bases() {
    let dev = populated::volume(&options(Features::DELTA));
    let seen = agree(&dev);
    let (files, deltas) = seen.files.iter().fold((0, 0), |(n, all), f| (n + u64::from(f.deltas > 0), all + f.deltas));
    let theirs = mounted(&dev).count_deltas().unwrap();
    assert!(theirs.deltas >= 10, "{theirs:?}");
    assert_eq!((files, u64::from(deltas)), (theirs.inodes, theirs.deltas));
    // Settling folds every delta: none is left.
    let plain = Arc::new(dev.fork());
    f2fs::settle::settle(plain.clone(), damage::clock(), &mut |_, _| {}).unwrap();
    let after = inspected(&*plain);
    assert_eq!(after.findings, []);
    assert_eq!(after.files.iter().map(|f| f.deltas).sum::<u32>(), 0);
}

#[test]
fn extents_hold_each_block_of_a_file_once_and_where_it_is() {
    let mut contents = vec![0; 3000 * 4096];
    device::Rng::new(1).fill(&mut contents);
    let dev = filled(128 * 256, &options(Features::empty()), |vol| {
        let file = |name: &str| {
            let kind = vfs::FileKind::Regular;
            let new = vfs::NewNode { kind, perm: 0o644, umask: 0, rdev: Default::default() };
            vol.mknod(vfs::Caller::default(), vol.root(), name.as_bytes(), &new).unwrap().attr.ino
        };
        let (a, b) = (file("a.bin"), file("b.bin"));
        for (i, piece) in contents.chunks(40 * 4096).enumerate() {
            for ino in [a, b] {
                let at = (i * 40 * 4096) as u64;
                vol.write(ino, at, piece, vfs::WriteFlags::empty()).unwrap();
                vol.fsync(ino, false).unwrap();
            }
        }
    });
    let seen = agree(&dev);
    for name in [&b"a.bin"[..], b"b.bin"] {
        let file = seen.files.iter().find(|f| *f.name == *name).unwrap();
        let l = &file.layout;
        assert!(l.extents > 20 && l.min_extents == 1 && l.holes == 0, "{l:?}");
        assert_eq!((l.blocks, l.extents as usize), (3000, file.extents.len()));
        let mut next = 0;
        for Extent { from, addr, blocks } in &file.extents {
            assert_eq!(*from, next);
            next += blocks;
            let mut read = vec![0; *blocks as usize * 4096];
            dev.read(device::Lba(*addr), &mut read, Tag::default()).unwrap();
            assert!(read == contents[*from as usize * 4096..next as usize * 4096], "{from} of {file:?}");
        }
        assert_eq!(next, 3000);
    }
}

#[test]
fn a_file_of_extents_and_holes_is_in_its_fewest_extents() {
    let dev = populated::volume(&mkfs::Options::default());
    let seen = inspected(&dev);
    let sparse = seen.files.iter().find(|f| &*f.name == b"entry_sparse").unwrap();
    let l = &sparse.layout;
    assert_eq!((l.blocks, l.extents, l.min_extents, l.holes), (4, 4, 4, 3));
    assert_eq!((l.requests, l.min_requests), (4, 4));
}

#[test]
fn a_missing_superblock_and_an_incomplete_pack_are_reported() {
    let dev = populated::volume(&mkfs::Options::default());
    dev.write(device::Lba(0), &[0; 4096], Tag::default()).unwrap();
    let seen = inspected(&dev);
    assert!(matches!(seen.findings[..], [Finding::Superblock { copy: 0, .. }]), "{:?}", seen.findings);
    let sb = &seen.superblock;
    for pack in [sb.cp, sb.cp.plus(512)] {
        dev.write(device::Lba(pack.0.into()), &[0xFF; 4096], Tag::default()).unwrap();
    }
    let seen = inspected(&dev);
    assert!(seen.checkpoint.is_none() && seen.files.is_empty());
    assert!(seen.findings.contains(&Finding::NoCheckpoint));
    dev.write(device::Lba(1), &[0; 4096], Tag::default()).unwrap();
    let none = Volume::read(&dev, &Options::default(), &mut Progress::new(&mut |_| true));
    assert!(matches!(none, Err(inspect::InspectError::NotF2fs)));
}
