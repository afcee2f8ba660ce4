//! A file behaves like a vector of bytes, and a full volume stays correct, on both file systems.

use std::sync::Arc;

use device::{Memory, Rng, VirtualClock};
use f2fs::mkfs::Options;
use trials::subject::{F2fs, ScherlFs, Subject};
use vfs::{Allocate, Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, Power, SetAttr, WriteFlags};

const BLOCK: u64 = 4096;
/// Writes end here; inserts may reach twice as far.
const MAX: u64 = 256 << 10;

/// F2FS with these mount options.
fn f2fs(mounted: f2fs::MountOptions) -> F2fs {
    let made = Options { uuid: Some([7; 16]), checkpoint_version: Some(1), ..Options::default() };
    F2fs { made, mounted, deltas: false }
}

/// ScherlFS with these mount options, and with few segments on a small volume.
fn scherlfs(mounted: scherlfs::MountOptions) -> ScherlFs {
    let made = scherlfs::make::Options { segment_blocks: 16, ..Default::default() };
    ScherlFs { made, mounted, beside: false }
}

fn volume<S: Subject>(subject: &S, mib: u64) -> (Arc<Memory>, Arc<S::Volume>) {
    let (dev, clock) = (Arc::new(Memory::new(mib * 256)), Arc::new(VirtualClock::default()));
    subject.format(dev.clone(), &*clock).unwrap();
    let volume = subject.mount(dev.clone(), clock).unwrap();
    (dev, volume)
}

fn mount_again<S: Subject>(subject: &S, dev: Arc<Memory>) -> Arc<S::Volume> {
    subject.mount(dev, Arc::new(VirtualClock::default())).unwrap()
}

fn fsck_clean<S: Subject>(subject: &S, dev: &Memory) {
    subject.check(dev).unwrap();
}

fn new_file(v: &dyn FileSystem, name: &str) -> vfs::Result<Ino> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    v.mknod(Caller::default(), v.root(), name.as_bytes(), &new).map(|e| e.attr.ino)
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::new(seed).fill(&mut out);
    out
}

/// One random operation on the file and on the vector; fails if they differ.
fn step(v: &dyn FileSystem, ino: Ino, model: &mut Vec<u8>, rng: &mut Rng, told: &str) {
    let offset = if rng.chance(1, 4) { rng.below(MAX / BLOCK) * BLOCK } else { rng.below(MAX) };
    let len = (1 + rng.below(24 << 10)).min(MAX - offset);
    let (from, to, size) = (offset as usize, (offset + len) as usize, model.len());
    let (first, blocks) = (from / 4096 * 4096, (len / BLOCK * BLOCK) as usize);
    match rng.below(20) {
        0..6 => {
            let data = random(rng.next_u64(), len as usize);
            assert_eq!(v.write(ino, offset, &data, WriteFlags::empty()), Ok(data.len()), "{told}");
            model.resize(size.max(to), 0);
            model[from..to].copy_from_slice(&data);
        }
        6..12 => {
            let mut found = vec![0xEE; len as usize];
            let n = v.read(ino, offset, &mut found).unwrap();
            assert!(found[..n] == model[from.min(size)..to.min(size)], "{told}: {len} bytes at {offset}");
        }
        12 => {
            v.setattr(ino, &SetAttr { size: Some(offset), ..SetAttr::default() }).unwrap();
            model.resize(from, 0);
        }
        13 => {
            v.fallocate(ino, Allocate::PunchHole, offset, len).unwrap();
            model[from.min(size)..to.min(size)].fill(0);
        }
        14 | 15 => {
            let (keep_size, zero) = (rng.chance(1, 2), rng.chance(1, 2));
            let what = if zero { Allocate::Zero { keep_size } } else { Allocate::Reserve { keep_size } };
            v.fallocate(ino, what, offset, len).unwrap();
            if zero {
                model[from.min(size)..to.min(size)].fill(0);
            }
            model.resize(if keep_size { size } else { size.max(to) }, 0);
        }
        16 => {
            let fits = blocks > 0 && first + blocks < size;
            assert_eq!(v.fallocate(ino, Allocate::Collapse, first as u64, blocks as u64).is_ok(), fits, "{told}");
            if fits {
                model.drain(first..first + blocks);
            }
        }
        17 if size + blocks <= 2 * MAX as usize => {
            let fits = blocks > 0 && first < size;
            assert_eq!(v.fallocate(ino, Allocate::Insert, first as u64, blocks as u64).is_ok(), fits, "{told}");
            if fits {
                model.splice(first..first, std::iter::repeat_n(0, blocks));
            }
        }
        18 if rng.chance(1, 20) => v.fsync(ino, rng.chance(1, 2)).unwrap(),
        19 if rng.chance(1, 200) => v.sync().unwrap(),
        _ => {}
    }
    assert_eq!(v.getattr(ino).unwrap().size, model.len() as u64, "{told}");
}

fn exercise<S: Subject>(seed: u64, subject: &S, operations: u64) {
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let (dev, v) = volume(subject, 64);
    let (ino, mut rng, mut model) = (new_file(&*v, "f").unwrap(), Rng::new(seed), Vec::new());
    for n in 0..if deep { 200 * operations } else { operations } {
        step(&*v, ino, &mut model, &mut rng, &format!("operation {n}"));
    }
    v.unmount().unwrap();
    fsck_clean(subject, &dev);
    let v = mount_again(subject, dev);
    let ino = v.lookup(v.root(), b"f").unwrap().attr.ino;
    let mut found = vec![0; model.len()];
    assert_eq!(v.read(ino, 0, &mut found), Ok(model.len()));
    assert!(found == model, "after remounting");
}

#[test]
fn a_file_under_fifty_thousand_operations_is_what_a_vector_is() {
    exercise(1, &f2fs(f2fs::MountOptions::default()), 50_000);
}

#[test]
fn so_is_one_without_inline_contents_and_with_little_memory() {
    exercise(2, &f2fs(f2fs::MountOptions { inline: false, dirty_limit: 16, ..Default::default() }), 50_000);
}

#[test]
fn so_is_one_of_scherlfs() {
    exercise(3, &scherlfs(scherlfs::MountOptions::default()), 50_000);
}

/// The log wraps around, and space is freed before it must be.
#[test]
fn so_is_one_of_scherlfs_with_little_memory_and_every_call_written() {
    let mounted = scherlfs::MountOptions { dirty: 16, dir_cache: 0, ifile_cache: 0, ..Default::default() };
    exercise(4, &scherlfs(mounted.clone()), 20_000);
    let sync = scherlfs::Sync::Call;
    exercise(5, &scherlfs(scherlfs::MountOptions { sync, checkpoint_blocks: 300, ..mounted }), 5_000);
}

/// Writes files of random sizes until the volume is full.
fn fill(v: &dyn FileSystem, rng: &mut Rng) -> Vec<(Ino, Vec<u8>)> {
    let mut files = Vec::new();
    loop {
        let data = random(files.len() as u64, 1 + rng.index(300_000));
        let (mut done, mut full) = (0, None);
        match new_file(v, &format!("f{}", files.len())) {
            Err(e) => full = Some(e),
            Ok(ino) => {
                while done < data.len() && full.is_none() {
                    match v.write(ino, done as u64, &data[done..], WriteFlags::empty()) {
                        Ok(n) => done += n,
                        Err(e) => full = Some(e),
                    }
                }
                files.push((ino, data[..done].to_vec()));
            }
        }
        if let Some(e) = full {
            assert_eq!(e, vfs::Error::NoSpace);
            return files;
        }
    }
}

fn used(v: &dyn FileSystem) -> u64 {
    let s = v.statfs().unwrap();
    s.blocks - s.blocks_free
}

/// Filled to the last block, then overwritten five times, then emptied.
fn fill_and_overwrite<S: Subject>(subject: &S, mib: u64) {
    let (dev, v) = volume(subject, mib);
    let new = used(&*v);
    let mut rng = Rng::new(9);
    let mut files = fill(&*v, &mut rng);
    v.sync().unwrap();
    fsck_clean(subject, &dev);
    let drop_last = |files: &mut Vec<(Ino, Vec<u8>)>| {
        let (ino, _) = files.pop().unwrap();
        v.unlink(v.root(), format!("f{}", files.len()).as_bytes()).unwrap();
        v.forget(ino, 1);
    };
    // Down to 95 %.
    while v.statfs().unwrap().blocks_free * 20 < v.statfs().unwrap().blocks {
        drop_last(&mut files);
    }
    for n in 0..5 * mib * 256 {
        let which = rng.index(files.len());
        let (ino, data) = &mut files[which];
        let at = rng.index(data.len());
        let piece = random(n, (data.len() - at).min(4096));
        assert_eq!(v.write(*ino, at as u64, &piece, WriteFlags::empty()), Ok(piece.len()), "overwrite {n}");
        data[at..at + piece.len()].copy_from_slice(&piece);
    }
    for (ino, data) in &files {
        let mut found = vec![0; data.len()];
        assert_eq!(v.read(*ino, 0, &mut found), Ok(data.len()));
        assert!(&found == data, "inode {}", ino.0);
    }
    v.sync().unwrap();
    fsck_clean(subject, &dev);
    while !files.is_empty() {
        drop_last(&mut files);
    }
    v.unmount().unwrap();
    fsck_clean(subject, &dev);
    let left = used(&*mount_again(subject, dev));
    println!("{new} blocks were used at first, {left} are left");
    assert!(left < new + 8, "{new} blocks were used at first, {left} are left");
}

#[test]
fn a_volume_filled_to_the_last_block_then_overwritten_five_times_stays_correct() {
    fill_and_overwrite(&f2fs(f2fs::MountOptions::default()), 64);
}

#[test]
fn so_does_one_of_scherlfs_on_a_battery_and_on_the_charger() {
    let on = |power| scherlfs(scherlfs::MountOptions { power, checkpoint_blocks: 300, ..Default::default() });
    fill_and_overwrite(&on(Power::Battery), 16);
    fill_and_overwrite(&on(Power::Powered), 16);
}
