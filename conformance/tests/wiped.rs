//! A whole block of nodes or of names is destroyed: it reads as zeroes, as ones, as noise, or as another block of the
//! volume. The repair ends, only the file that owned the block may lose data, both checkers find no errors, and Linux
//! mounts the result.
//!
//! `JOULEFS_DEEP=1` checks every image with `fsck.f2fs`; `JOULEFS_REPLAY=<volume>:<block>:<n>` repeats one case and
//! prints its damage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag};
use f2fs::{MountOptions, Volume, mkfs};
use format::inode::{Inline, RawInode};
use format::node;
use format::superblock::{Features, SuperBlock};
use judges::damage::{Targets, block, clock};
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::assert_fsck_clean;
use trials::contents::{Seen, contents};
use vfs::{Caller, FileFlags, FileKind, FileSystem, Ino, NewNode, WriteFlags, XattrFlags};

use crate::endure::{change, watched};
use crate::rig::{deep, work_dir};

const BLOCKS: u64 = 24_576;

fn replayed() -> Option<Vec<u64>> {
    let text = std::env::var("JOULEFS_REPLAY").ok()?;
    Some(text.split(':').map(|n| n.parse().expect("JOULEFS_REPLAY=<volume>:<block>:<n>")).collect())
}

/// Files with contents that differ between all files.
struct Filler<'v> {
    vol: &'v Volume,
    made: u64,
}

impl Filler<'_> {
    fn dir(&self, parent: Ino, name: &str) -> Ino {
        self.vol.mkdir(Caller::default(), parent, name.as_bytes(), 0o755, 0).unwrap().attr.ino
    }
    fn file(&mut self, parent: Ino, name: &str, bytes: usize) -> Ino {
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
        let ino = self.vol.mknod(Caller::default(), parent, name.as_bytes(), &new).unwrap().attr.ino;
        self.write(ino, 0, bytes);
        ino
    }
    fn write(&mut self, ino: Ino, offset: u64, bytes: usize) {
        self.made += 1;
        // Words that are not node numbers.
        let word = (0xa500_0000 | self.made as u32).to_be_bytes();
        let data: Vec<u8> = word.into_iter().cycle().take(bytes).collect();
        assert_eq!(self.vol.write(ino, offset, &data, WriteFlags::empty()).unwrap(), bytes);
    }
    fn files(&mut self, parent: Ino, names: &str, count: u64) {
        for n in 0..count {
            self.file(parent, &format!("entry_{names}_{n}"), 20 + n as usize);
        }
    }
}

/// A volume with directories and files of every layout.
fn filled(options: &mkfs::Options) -> Memory {
    let dev = Arc::new(Memory::new(BLOCKS));
    mkfs::format(&*dev, &*clock(), options).unwrap();
    let vol = Volume::mount(dev.clone(), clock(), MountOptions::default()).unwrap();
    let (root, me) = (vol.root(), Caller::default());
    let mut fill = Filler { vol: &vol, made: 0 };
    // In an inode, in some blocks, and in blocks below a node.
    let small = fill.dir(root, "entry_small");
    fill.files(small, "few", 5);
    let large = fill.dir(root, "entry_large");
    fill.files(large, "many", 400);
    // The chain of nested directories, of both kinds.
    let mut deep = root;
    for n in 0..6 {
        deep = fill.dir(deep, &format!("entry_deep_{n}"));
        fill.files(deep, "level", if n % 2 == 0 { 3 } else { 190 });
    }
    let found = match vol.lookup(root, b"lost+found") {
        Ok(found) => found.attr.ino,
        Err(_) => fill.dir(root, "lost+found"),
    };
    fill.files(found, "found", 4);
    if options.features.contains(Features::CASEFOLD) {
        for (name, count) in [("entry_fold", 250), ("entry_fold_small", 4)] {
            let fold = fill.dir(root, name);
            vol.set_flags(fold, FileFlags::CASEFOLD, None).unwrap();
            fill.files(fold, "FOLDED", count);
        }
    }
    let blocks = fill.file(root, "entry_blocks", 9 * BLOCK);
    vol.setxattr(blocks, b"user.large", &[7; 3000], XattrFlags::empty()).unwrap();
    vol.setxattr(small, b"user.large", &[8; 3000], XattrFlags::empty()).unwrap();
    let sparse = fill.file(root, "entry_sparse", BLOCK);
    for at in [1000, 1001, 1500, 4000, 2_500_000] {
        fill.write(sparse, at * BLOCK as u64, BLOCK);
    }
    vol.symlink(me, root, b"entry_symlink", b"entry_blocks").unwrap();
    vol.symlink(me, root, b"entry_long_symlink", &[b'x'; 3900]).unwrap();
    vol.link(blocks, large, b"entry_hard_link").unwrap();
    if options.features.contains(Features::DELTA) {
        vol.sync().unwrap();
        for turn in 0..6 {
            for at in 0..9 {
                fill.write(blocks, at * BLOCK as u64 + 100 * turn, 60);
            }
            vol.fsync(blocks, false).unwrap();
        }
        vol.sync().unwrap();
    }
    vol.unmount().unwrap();
    drop(vol);
    Arc::into_inner(dev).expect("the volume is gone")
}

fn options(volume: u64) -> mkfs::Options {
    let modern = mkfs::Options::modern();
    match volume {
        1 => mkfs::Options::default(),
        2 => modern,
        3 => mkfs::Options { features: modern.features | Features::CASEFOLD, ..modern },
        4 => mkfs::Options { features: modern.features | Features::DELTA, ..modern },
        _ => unreachable!("volumes are 1 to 4"),
    }
}

/// What happens to a block.
const WAYS: u64 = 5;

fn wiped(base: &Memory, others: &[u64], at: u64, way: u64) -> (Memory, String) {
    let image = base.fork();
    let mut rng = Rng::new(at << 8 | way);
    let mut bytes = Box::new([0; BLOCK]);
    let how = match way {
        0 => "zeroed".to_owned(),
        1 => {
            bytes.fill(0xFF);
            "all ones".to_owned()
        }
        2 => {
            rng.fill(&mut bytes[..]);
            "noise".to_owned()
        }
        n => {
            let from = match n {
                // Usually the next of its kind.
                3 => others[(others.iter().position(|o| *o == at).unwrap_or(0) + 1) % others.len()],
                _ => others[rng.index(others.len())],
            };
            bytes = block(base, from);
            format!("is {from}")
        }
    };
    image.write(Lba(at), &bytes[..], Tag::default()).unwrap();
    (image, how)
}

/// Checks that the image with one destroyed block is repaired, and that everything except the block's owner is intact.
fn judge(image: &Memory, base: &Memory, at: u64, before: &BTreeMap<Vec<u8>, Seen>, tools: bool) {
    let told = replayed().is_some();
    let owner = u64::from(node::footer(&block(base, at)).ino.0);
    let is_node = before.values().any(|seen| seen.ino == owner) || owner == 3;
    let done = fsck::repair(image, &fsck::Options::default());
    if told {
        println!("{}", fsck::check(image, &fsck::Options::default()).unwrap());
    }
    let done = done.unwrap_or_else(|e| {
        if told {
            e.actions().iter().for_each(|action| println!("{action}"));
        }
        panic!("{e}")
    });
    if told {
        println!("{}", done.before);
        done.actions.iter().for_each(|action| println!("{action}"));
    }
    assert!(done.after.is_clean(), "{}", done.after);
    let after = contents(image);
    let has: BTreeSet<u64> = after.values().map(|seen| seen.digest).collect();
    let gone: Vec<_> = before
        .iter()
        .filter(|(_, seen)| !(is_node && seen.ino == owner) && seen.kind != FileKind::Directory)
        .filter(|(_, seen)| !has.contains(&seen.digest))
        .map(|(path, _)| String::from_utf8_lossy(path))
        .collect();
    assert!(gone.is_empty(), "{} files are gone: {:?}", gone.len(), &gone[..gone.len().min(5)]);
    if tools {
        let work = work_dir();
        let path = work.path().join("image");
        image.save(&path).unwrap();
        assert_fsck_clean(&path);
    }
    let dev = Arc::new(image.fork());
    let vol = Volume::mount(dev.clone(), clock(), MountOptions::default()).unwrap_or_else(|e| panic!("mount: {e}"));
    change(&vol);
    drop(vol);
    let report = fsck::check(&*dev, &fsck::Options::default()).unwrap();
    assert!(report.is_clean(), "after use: {report}");
}

fn every_block_may_be_wiped(volume: u64) {
    let options = options(volume);
    let deltas = options.features.contains(Features::DELTA);
    let base = filled(&options);
    let before = contents(&base);
    assert!(fsck::check(&base, &fsck::Options::default()).unwrap().is_clean());
    let of = |kind: &'static str| -> Vec<u64> {
        Targets::of(&base).all().filter(|(k, _)| *k == kind).map(|(_, at)| at).collect()
    };
    let live = live(&base);
    let (mut nodes, names) = (of("node"), of("dentry"));
    nodes.retain(|at| live.contains(at));
    let mut cases: Vec<(u64, u64)> =
        nodes.iter().chain(&names).flat_map(|at| (0..WAYS).map(|way| (*at, way))).collect();
    // Files inside their inodes are many, and all equivalent.
    let inline = |at: u64| {
        let bytes = block(&base, at);
        let f = node::footer(&bytes);
        f.nid == f.ino.nid() && RawInode::of(&bytes).inline().contains(Inline::DATA)
    };
    let mut kept = 0;
    if !deep() {
        cases.retain(|(at, way)| {
            let many = inline(*at);
            kept += u64::from(many);
            !many || kept % 97 == way % 97
        });
    }
    if let Some(replay) = replayed() {
        if replay[0] != volume {
            return;
        }
        cases = vec![(replay[1], replay[2])];
    }
    let all = cases.len();
    assert!(replayed().is_some() || all > 150, "{all} cases");
    let numbers = (0..all as u64).collect();
    let (base, cases) = (Arc::new(base), Arc::new(cases));
    let make = {
        let (base, cases) = (base.clone(), cases.clone());
        move |n: u64| {
            let (at, way) = cases[n as usize];
            let others = if names.contains(&at) { &names } else { &nodes };
            let (image, how) = wiped(&base, others, at, way);
            (image, format!("{volume}:{at}:{way} (block {at} {how})#{n}"))
        }
    };
    let (done, failed) = watched(numbers, make, move |image, name| {
        let n: usize = name.rsplit_once('#').expect("numbered").1.parse().expect("a number");
        // `fsck.f2fs` refuses volumes with deltas.
        let tools = !deltas && (deep() || n.is_multiple_of(10));
        judge(image, &base, cases[n].0, &before, tools);
        true
    });
    assert!(failed.is_empty(), "{} of {all} cases failed:\n{}", failed.len(), failed.join("\n"));
    println!("volume {volume}: {done} blocks");
}

/// Blocks of nodes in the NAT: others belong to earlier states.
fn live(base: &Memory) -> BTreeSet<u64> {
    let sb = SuperBlock::check(&block(base, 0)).unwrap();
    let main = u64::from(sb.main.0);
    let nodes = Targets::of(base);
    let all = nodes.all().filter(|(kind, at)| *kind == "node" && *at >= main).map(|(_, at)| at);
    all.filter(|at| is_live(base, *at)).collect()
}

/// Whether the volume is damaged without this block.
fn is_live(base: &Memory, at: u64) -> bool {
    let image = base.fork();
    image.write(Lba(at), &[0; BLOCK], Tag::default()).unwrap();
    !fsck::check(&image, &fsck::Options::default()).unwrap().is_clean()
}

#[test]
fn a_block_lost_on_a_plain_volume_costs_its_file_alone() {
    every_block_may_be_wiped(1);
}

#[test]
fn a_block_lost_on_a_volume_with_modern_features_costs_its_file_alone() {
    every_block_may_be_wiped(2);
}

#[test]
fn a_block_lost_on_a_volume_that_folds_case_costs_its_file_alone() {
    every_block_may_be_wiped(3);
}

#[test]
fn a_block_lost_on_a_volume_with_deltas_costs_its_file_alone() {
    every_block_may_be_wiped(4);
}

/// Address of the inode of a path.
fn inode_at(base: &Memory, ino: u64) -> u64 {
    let is = |at: &u64| {
        let f = node::footer(&block(base, *at));
        u64::from(f.ino.0) == ino && u64::from(f.nid.0) == ino
    };
    let nodes = Targets::of(base);
    let mut all = nodes.all().filter(|(kind, _)| *kind == "node").map(|(_, at)| at).filter(is);
    all.find(|at| is_live(base, *at)).expect("an inode")
}

/// Counts the files and reads all their data. Of the sparse file, which has ten GB of holes, it reads the blocks.
const READ: &str = "
    find . -type f | wc -l >$OUT/files
    cat $(find . -type f -size -1048576k) | wc -c
    for f in $(find . -type f -size +1048576k); do
        for at in 0 1000 1001 1500 4000 2500000; do dd if=$f bs=4096 skip=$at count=1 status=none | wc -c; done
    done
    echo new >new";

#[test]
fn linux_mounts_a_volume_whose_directories_were_wiped_and_repaired() {
    let base = filled(&options(2));
    let before = contents(&base);
    let mut of: Vec<(&str, u64)> = vec![("the root", 3)];
    of.extend(
        ["/lost+found", "/entry_small", "/entry_large", "/entry_deep_0/entry_deep_1"]
            .map(|path| (path, before[path.as_bytes()].ino)),
    );
    for (path, ino) in of {
        let image = base.fork();
        image.write(Lba(inode_at(&base, ino)), &[0; BLOCK], Tag::default()).unwrap();
        fsck::repair(&image, &fsck::Options::default()).unwrap_or_else(|e| panic!("{path}: {e}"));
        let work = work_dir();
        let file = work.path().join("image");
        image.save(&file).unwrap();
        assert_fsck_clean(&file);
        let run = Kernel::new().run(&file, READ).expect_ok();
        assert!(run.complaints().is_empty(), "{path}: {:?}\n{}", run.complaints(), run.describe());
        let files: u64 = std::fs::read_to_string(run.out().join("files")).unwrap().trim().parse().unwrap();
        let had = before.values().filter(|seen| seen.kind == FileKind::Regular).count() as u64;
        // A second name in a lost directory is lost.
        assert!(files + 1 >= had, "{path}: {files} of {had} files");
        assert_fsck_clean(&file);
    }
}
