//! Volumes with known contents, and requirements on damaged and repaired ones.
#![allow(dead_code)] // each test program uses a part

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag, VirtualClock};
use joulefs_scherlfs_fsck as fsck;
use scherlfs::{MountOptions, Volume};
use scherlfs_format::extent::Extent;
use scherlfs_format::{Addr, Block, Ino, chain, ifile, inode};
use vfs::{Allocate, Caller, DeviceNumber, FileKind, FileSystem, Flow, NewNode, WriteFlags, XattrFlags};

pub const ME: Caller = Caller { uid: 0, gid: 0 };

pub fn block(dev: &dyn BlockDevice, at: u64) -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    dev.read(Lba(at), &mut block[..], Tag::default()).unwrap();
    block
}

pub fn write_block(dev: &dyn BlockDevice, at: u64, block: &Block) {
    dev.write(Lba(at), block, Tag::default()).unwrap();
}

/// Known data of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub paths: BTreeSet<Vec<u8>>,
    pub kind: FileKind,
    pub bytes: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its own blocks, and those of its contents.
    pub blocks: BTreeSet<u64>,
}

pub type Truth = BTreeMap<u64, Known>;

fn own_blocks(dev: &dyn BlockDevice, at: u64) -> BTreeSet<u64> {
    let read = inode::Inode::read(&block(dev, at)).unwrap();
    let mut out = BTreeSet::from([at]);
    let mut runs = read.runs.clone();
    if inode::indexes(read.continuations) > 0 {
        out.extend(runs.iter().flat_map(|r| r.addrs().map(|a| a.0)));
        let index: Vec<Addr> = runs.iter().flat_map(|r| r.addrs()).collect();
        runs = index.iter().flat_map(|a| chain::read_runs(&block(dev, a.0), chain::Kind::Index).unwrap()).collect();
    }
    let conts: Vec<u64> = runs.iter().flat_map(|r| r.addrs().map(|a| a.0)).collect();
    let more = conts.iter().flat_map(|at| chain::read_continuation(&block(dev, *at)).unwrap().extents);
    for e in read.extents.into_iter().chain(more) {
        if let Extent::Stored { start, blocks } = e {
            out.extend(start.0..start.0 + u64::from(blocks));
        }
    }
    out.extend(conts);
    out
}

/// The whole contents of a mounted volume.
pub fn look(dev: &Arc<Memory>) -> Result<Truth, String> {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let volume = Volume::mount(dev.clone(), Arc::new(VirtualClock::default()), options).map_err(|e| e.to_string())?;
    let told = |e: vfs::Error| e.to_string();
    let map_ino = vfs::Ino(1);
    let size = volume.getattr(map_ino).map_err(told)?.size as usize;
    let mut map = vec![0; size];
    volume.read(map_ino, 0, &mut map).map_err(told)?;
    let place = |ino: u64| {
        let (n, entry) = ifile::at(Ino(ino as u32));
        let block: &Block = map[n as usize * BLOCK..][..BLOCK].try_into().unwrap();
        ifile::get(block, entry).addr
    };
    let mut truth = Truth::new();
    let mut waiting = vec![(volume.root(), Vec::new())];
    while let Some((ino, path)) = waiting.pop() {
        let attr = volume.getattr(ino).map_err(told)?;
        let mut bytes = Vec::new();
        match attr.kind {
            FileKind::Regular => {
                bytes = vec![0; attr.size.min(8 << 20) as usize];
                let n = volume.read(ino, 0, &mut bytes).map_err(told)?;
                bytes.truncate(n);
            }
            FileKind::Symlink => bytes = volume.readlink(ino).map_err(told)?,
            FileKind::Directory => volume
                .readdir(ino, 0, &mut |e| {
                    if ![&b"."[..], b"..", b".ifile"].contains(&e.name) {
                        waiting.push((e.ino, [&path[..], b"/", e.name].concat()));
                    }
                    Flow::Continue
                })
                .map_err(told)?,
            _ => {}
        }
        let names = volume.listxattr(ino).map_err(told)?;
        let xattrs = names.into_iter().map(|n| (n.to_vec(), volume.getxattr(ino, &n).unwrap_or_default())).collect();
        let blocks = place(ino.0).map(|at| own_blocks(&**dev, at.0)).ok_or(format!("inode {} has no place", ino.0))?;
        let known = Known { paths: BTreeSet::new(), kind: attr.kind, bytes, xattrs, blocks };
        truth.entry(ino.0).or_insert(known).paths.insert(path);
    }
    Ok(truth)
}

/// Kind of volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Unmounted.
    Clean,
    /// With a log behind the checkpoint.
    Logged,
    /// With many overwritten versions of its files.
    Worn,
    /// The same, with blocks kept for undo.
    Kept,
}

pub const SHAPES: [Shape; 4] = [Shape::Clean, Shape::Logged, Shape::Worn, Shape::Kept];

fn contents(n: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; n];
    rng.fill(&mut bytes);
    bytes
}

/// A volume with its known contents.
pub struct Made {
    pub dev: Memory,
    pub truth: Truth,
    /// Blocks of the log behind the checkpoint. Noise in one of them ends the log: that is not damage, and later
    /// transactions were never written.
    pub log: BTreeSet<u64>,
}

impl Made {
    /// Files affected by damage to a block.
    pub fn touched(&self, at: u64) -> BTreeSet<u64> {
        if self.log.contains(&at) { self.log.clone() } else { BTreeSet::from([at]) }
    }
}

/// A volume with every structure, and its contents.
pub fn volume(shape: Shape, seed: u64) -> Made {
    let clock = Arc::new(VirtualClock::default());
    let dev = Arc::new(Memory::new(1024));
    let made = scherlfs::make::Options { label: "truth".into(), uuid: [7; 16], ..scherlfs::make::Options::default() };
    scherlfs::make::format(dev.clone(), &*clock, &made).unwrap();
    let mut rng = Rng::new(seed);
    let new = |kind| NewNode { kind, perm: 0o640, umask: 0, rdev: DeviceNumber::default() };
    let undo = (shape == Shape::Kept).then_some(90);
    let mount = || Volume::mount(dev.clone(), clock.clone(), MountOptions { undo, ..MountOptions::default() }).unwrap();
    let worn = matches!(shape, Shape::Worn | Shape::Kept);
    let mut volume = mount();
    let rounds = if worn { 6 } else { 1 };
    for round in 0..rounds {
        fill(&volume, &mut rng, round, &new);
        volume.sync().unwrap();
        if worn {
            volume.unmount().unwrap();
            volume = mount();
        }
    }
    volume.unmount().unwrap();
    let before = image(&dev);
    if shape != Shape::Clean {
        let volume = mount();
        let dir = volume.lookup(volume.root(), b"d0").unwrap().attr.ino;
        for n in 0..12 {
            let name = format!("late{n}");
            let ino = volume.mknod(ME, dir, name.as_bytes(), &new(FileKind::Regular)).unwrap().attr.ino;
            volume.write(ino, 0, &contents(1 + n * 1500, &mut rng), WriteFlags::empty()).unwrap();
            if n % 3 == 0 {
                volume.unlink(dir, format!("f{}", n / 3 * 2).as_bytes()).unwrap();
                volume.fsync(ino, false).unwrap();
            }
        }
        volume.sync().unwrap();
        // Not unmounted.
    }
    let truth = look(&Arc::new(dev.fork())).unwrap();
    let after = image(&dev);
    let changed = |at: &u64| before[*at as usize * BLOCK..][..BLOCK] != after[*at as usize * BLOCK..][..BLOCK];
    Made { dev: dev.fork(), truth, log: (2..dev.blocks()).filter(changed).collect() }
}

fn fill(volume: &Volume, rng: &mut Rng, round: usize, new: &dyn Fn(FileKind) -> NewNode) {
    let root = volume.root();
    let dir = |at, name: &str| match volume.lookup(at, name.as_bytes()) {
        Ok(found) => found.attr.ino,
        Err(_) => volume.mkdir(ME, at, name.as_bytes(), 0o755, 0).unwrap().attr.ino,
    };
    let file = |at, name: &str| match volume.lookup(at, name.as_bytes()) {
        Ok(found) => found.attr.ino,
        Err(_) => volume.mknod(ME, at, name.as_bytes(), &new(FileKind::Regular)).unwrap().attr.ino,
    };
    let d0 = dir(root, "d0");
    let d1 = dir(d0, "d1");
    let d2 = dir(d1, "d2");
    for n in 0..14 {
        let ino = file(if n % 2 == 0 { d0 } else { d2 }, &format!("f{n}"));
        volume.write(ino, (round * 3000) as u64, &contents(1 + n * 900, rng), WriteFlags::empty()).unwrap();
        volume.setxattr(ino, b"user.n", n.to_string().as_bytes(), XattrFlags::empty()).unwrap();
    }
    let _ = volume.symlink(ME, d1, b"link", b"../../somewhere");
    let _ = volume.mknod(ME, d1, b"pipe", &new(FileKind::Fifo));
    let _ = volume.link(file(d0, "f0"), d1, b"hard");
    // Extents that need a continuation.
    let torn = file(root, "torn");
    if round == 0 {
        for n in 0..330 {
            volume.write(torn, n * 2 * 4096, &contents(10, rng), WriteFlags::empty()).unwrap();
        }
    } else {
        volume.write(torn, 4 * 4096 * round as u64, &contents(10, rng), WriteFlags::empty()).unwrap();
    }
    let room = file(root, "room");
    volume.fallocate(room, Allocate::Reserve { keep_size: true }, 0, 5 * 4096).unwrap();
    // A directory of several blocks.
    let many = dir(root, "many");
    for n in 0..40 {
        file(many, &format!("{n:0>200}"));
    }
    let gone = file(d2, "gone");
    volume.write(gone, 0, &contents(30_000, rng), WriteFlags::empty()).unwrap();
    if round.is_multiple_of(2) {
        volume.sync().unwrap();
        volume.unlink(d2, b"gone").unwrap();
    }
}

/// Repairs a copy of a damaged volume and judges the result; returns the actions.
pub fn judge(damaged: &Memory, truth: &Truth, touched: &BTreeSet<u64>, place: &str) -> Vec<fsck::Action> {
    let dev = Arc::new(damaged.fork());
    let done = fsck::repair(&*dev, &|_, _| {}).unwrap_or_else(|e| panic!("{place}: {e}"));
    whole(&dev, truth, touched, place, &done.actions);
    done.actions
}

/// All bytes of a device.
pub fn image(dev: &Memory) -> Vec<u8> {
    let mut out = vec![0; dev.blocks() as usize * BLOCK];
    dev.read(Lba(0), &mut out, Tag::default()).unwrap();
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A repaired volume has no findings, contains all untouched files, and is usable.
pub fn whole(dev: &Arc<Memory>, truth: &Truth, touched: &BTreeSet<u64>, place: &str, actions: &[fsck::Action]) {
    let report = fsck::check(&**dev);
    let told = || actions.iter().map(|a| a.to_string()).collect::<Vec<_>>();
    assert!(report.is_clean() && report.notes.is_empty(), "{place}: {:?} after {:#?}", report, told());
    let before = image(dev);
    let again = fsck::repair(&**dev, &|_, _| {}).unwrap();
    assert!(again.actions.is_empty() && image(dev) == before, "{place}: a second repair: {:?}", again.actions);
    let found = look(dev).unwrap_or_else(|e| panic!("{place}: {e} after {:#?}", told()));
    // No ancestor directory was touched.
    let clean = |path: &[u8]| {
        truth.values().filter(|k| k.kind == FileKind::Directory).all(|k| {
            let above = k.paths.iter().any(|p| path.starts_with(&[&p[..], b"/"].concat()));
            !above || k.blocks.is_disjoint(touched)
        })
    };
    for (ino, known) in truth.iter().filter(|(_, k)| k.blocks.is_disjoint(touched)) {
        let is = found
            .get(ino)
            .unwrap_or_else(|| panic!("{place}: inode {ino} {:?} is gone after {:#?}", known.paths, told()));
        let same = (is.kind, &is.bytes, &is.xattrs) == (known.kind, &known.bytes, &known.xattrs);
        assert!(
            same,
            "{place}: inode {ino} is not what it was: {:?} {} bytes, {:?} {} bytes after {:#?}",
            is.kind,
            is.bytes.len(),
            known.kind,
            known.bytes.len(),
            told()
        );
        for path in known.paths.iter().filter(|p| clean(p)) {
            let told = told();
            assert!(is.paths.contains(path), "{place}: {:?} is {:?} after {told:#?}", text(path), is.paths);
        }
    }
    live(dev, place);
}

/// Uses the volume further. A nearly full volume may report that.
pub fn live(dev: &Arc<Memory>, place: &str) {
    let dev = Arc::new(dev.fork());
    // A checkpoint and operations that free room have their share of the last blocks.
    let full = dev.blocks() - fsck::check(&*dev).used.min(dev.blocks()) < 100;
    let volume = Volume::mount(dev.clone(), Arc::new(VirtualClock::default()), MountOptions::default())
        .unwrap_or_else(|e| panic!("{place}: {e}"));
    match work(&volume) {
        Ok(()) => {}
        Err(vfs::Error::NoSpace) if full => {}
        Err(e) => panic!("{place}, living on: {e}"),
    }
    volume.unmount().unwrap_or_else(|e| panic!("{place}, unmounting: {e}"));
    let report = fsck::check(&*dev);
    assert!(report.is_clean(), "{place}, after living on: {:?}", report.findings);
}

/// Creates, writes, renames and removes files, and overwrites those in the root.
fn work(volume: &Volume) -> vfs::Result<()> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
    let root = volume.root();
    let dir = volume.mkdir(ME, root, b"afterwards", 0o700, 0)?.attr.ino;
    for n in 0..6u8 {
        let ino = volume.mknod(ME, dir, &[b'a' + n], &new)?.attr.ino;
        volume.write(ino, 0, &[n; 9000], WriteFlags::empty())?;
    }
    volume.rename(ME, (dir, b"a"), (root, b"moved"), vfs::RenameFlags::empty())?;
    volume.unlink(dir, b"b")?;
    let mut names = Vec::new();
    volume.readdir(root, 0, &mut |e| {
        names.push(e.name.to_vec());
        Flow::Continue
    })?;
    for name in names.iter().filter(|n| ![&b"."[..], b"..", b".ifile"].contains(&&n[..])) {
        let at = volume.lookup(root, name)?.attr;
        if at.kind == FileKind::Regular {
            volume.write(at.ino, 0, b"over", WriteFlags::empty())?;
        }
    }
    volume.sync()
}
