//! For fsck the chain behind the checkpoint ends where it ends for a mount: at a node with invalid deltas.

use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Tag};
use f2fs::mkfs::Options;
use f2fs::{MountOptions, Volume};
use format::inode::{self, RawInode};
use format::node::{self, NodeKind};
use format::sit::LogType;
use format::superblock::Features;
use format::{BLOCK, Block, Ino};
use fsck::{FindingKind as K, Synced};
use judges::damage::{block, clock};
use judges::delta_nodes::Places;
use vfs::{Caller, FileKind, FileSystem, NewNode, WriteFlags};

/// Changed pages: one whose delta fits the inode, and one below a direct node.
const NEAR: u64 = 0;
const FAR: u64 = 1500;

/// A file that was fsynced three times after a checkpoint, each time with one byte of one page changed; then a
/// power cut.
fn cut(first: u64) -> (Memory, Ino) {
    let dev = Arc::new(Memory::new(64 * 256));
    let features = Options::modern().features | Features::DELTA;
    f2fs::mkfs::format(&*dev, &*clock(), &Options { features, ..Options::modern() }).unwrap();
    let vol = Volume::mount(dev.clone(), clock(), MountOptions::default()).unwrap();
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
    let ino = vol.mknod(Caller::default(), vol.root(), b"file", &new).unwrap().attr.ino;
    let mut bytes = vec![0; 10 * BLOCK];
    device::Rng::new(7).fill(&mut bytes);
    vol.write(ino, first * BLOCK as u64, &bytes, WriteFlags::empty()).unwrap();
    vol.sync().unwrap();
    for n in 0..3 {
        vol.write(ino, (first + n) * BLOCK as u64, &[n as u8], WriteFlags::empty()).unwrap();
        vol.fsync(ino, false).unwrap();
    }
    (dev.fork(), Ino(ino.0 as u32))
}

/// The nodes of the chain.
fn chain(dev: &Memory) -> Vec<u64> {
    let places = Places::of(dev);
    let head = places.cp.logs[LogType::WarmNode.index()];
    let mut at = places.sb.seg_start(head.seg).plus(head.next.into());
    let mut out = Vec::new();
    loop {
        let f = node::footer(&block(dev, at.0.into()));
        if f.cp_ver as u32 != places.cp.version as u32 {
            return out;
        }
        out.push(at.0.into());
        at = f.next;
    }
}

/// Number of nodes that the next mount replays according to fsck.
fn replayed(dev: &Memory) -> u64 {
    let report = fsck::check(dev, &fsck::Options::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    let nodes = |k: &K| match k {
        K::Synced(Synced { nodes, .. }) => Some(*nodes),
        _ => None,
    };
    report.findings.iter().filter_map(|f| nodes(&f.kind)).sum()
}

/// Number of changes that a mount finds.
fn found(dev: &Memory, ino: Ino, first: u64) -> u64 {
    let vol = Volume::mount(Arc::new(dev.fork()), clock(), MountOptions::default()).unwrap();
    let mut page = [0; 1];
    (0..3)
        .filter(|n| {
            vol.read(vfs::Ino(ino.0.into()), (first + n) * BLOCK as u64, &mut page).unwrap();
            page[0] == *n as u8
        })
        .count() as u64
}

/// Changes the first node of this kind in the chain; returns the number of nodes before it.
fn forge(dev: &Memory, wanted: NodeKind, change: impl Fn(&Places, &mut Block)) -> u64 {
    let places = Places::of(dev);
    let links = chain(dev);
    for (n, at) in links.iter().enumerate() {
        let mut b = block(dev, *at);
        if node::kind_of(node::footer(&b).offset) == wanted {
            change(&places, &mut b);
            dev.write(Lba(*at), &b[..], Tag::default()).unwrap();
            return n as u64;
        }
    }
    panic!("no such node among {}", links.len());
}

#[test]
fn a_chain_with_deltas_is_listed_whole() {
    for first in [NEAR, FAR] {
        let (dev, ino) = cut(first);
        assert_eq!(replayed(&dev), chain(&dev).len() as u64);
        assert_eq!(found(&dev, ino, first), 3);
    }
}

#[test]
fn a_chain_ends_at_an_inode_whose_zone_makes_no_sense() {
    let (dev, ino) = cut(NEAR);
    forge(&dev, NodeKind::Inode, |places, b| {
        let d = RawInode::of(b).divide(places.sb.features).unwrap();
        assert!(d.zone > 0);
        let end = d.xattr_area().start;
        b[end - 6] += 1;
        inode::seal(places.sb.features, places.seed(), b);
    });
    assert_eq!((replayed(&dev), found(&dev, ino, NEAR)), (0, 0));
}

#[test]
fn a_chain_ends_at_a_delta_node_that_is_torn() {
    let (dev, ino) = cut(FAR);
    let before = forge(&dev, NodeKind::Delta, |_, b| b[512..1024].fill(0x5A));
    assert!(before > 0);
    assert_eq!(replayed(&dev), before);
    let found = found(&dev, ino, FAR);
    assert!((1..3).contains(&found), "{found} before it");
}
