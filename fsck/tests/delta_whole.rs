//! Entries of delta nodes with a whole block do not depend on the block's own address.

use std::sync::Arc;

use device::Memory;
use f2fs::delta::{Places as Where, Study};
use f2fs::mkfs::Options;
use f2fs::{MountOptions, Volume};
use format::delta::Codec;
use format::inode::RawInode;
use format::node::delta::{self, Entry};
use format::node::kept::{self, KEPT};
use format::superblock::Features;
use format::{BLOCK, BlockAddr, Ino, node};
use fsck::{Action, FindingKind as K};
use judges::damage::clock;
use judges::delta_nodes::Places;
use vfs::{Caller, FileKind, FileSystem, NewNode, WriteFlags};

use crate::delta_rig::{Fixture, page};

/// A page that compresses.
fn text(index: u32) -> Vec<u8> {
    (0..BLOCK).map(|i| (i as u32 / 50 * (index + 3)) as u8).collect()
}

/// The second delta node holds block 4 and the third block 1000, both whole.
fn whole() -> Fixture {
    let f = Fixture::new();
    for (k, index) in [(1, 4), (0, 1000)] {
        let payload = format::delta::codec::encode_alone(&text(index).try_into().unwrap(), BLOCK).unwrap();
        let generation = RawInode::of(&f.places.node(&f.dev, f.a.nid())).i_generation.get();
        let check = format::delta::check(f.places.seed(), f.a, generation, index, &text(index));
        let entry = Entry { block: index, codec: Codec::Alone, check, payload: &payload };
        f.forge(k, |b| assert!(delta::rewrite(b, |e| e.block != index, &[entry])));
    }
    f
}

/// Points the address of a block of `a` elsewhere.
fn lead(dev: &Memory, ino: Ino, index: u32, to: BlockAddr) {
    // A repair moves nodes.
    let places = Places::of(dev);
    let features = places.sb.features;
    let inode = places.node(dev, ino.nid());
    let path = RawInode::of(&inode).shape(features).unwrap().path(index.into()).unwrap();
    if path.depth == 0 {
        places.edit(dev, ino.nid(), true, |b| {
            let raw = RawInode::of_mut(b);
            let d = raw.divide(features).unwrap();
            raw.move_addr(d, index, to);
        });
        return;
    }
    assert_eq!(path.depth, 1);
    let nid = RawInode::of(&inode).nid(path.slots[0] as usize);
    places.edit(dev, nid, false, |b| node::set_word(b, path.slots[1] as usize, to.0));
}

#[test]
fn a_block_that_a_delta_node_holds_whole_is_not_lost_with_its_address() {
    for index in [4, 1000] {
        for to in [BlockAddr::NULL, BlockAddr(0x7FFF_0000), BlockAddr(1)] {
            let f = whole();
            assert!(f.check().findings.is_empty(), "{}", f.check());
            let held = [(4, text(4)), (1000, text(1000))];
            f.holds(&held);
            lead(&f.dev, f.a, index, to);
            f.finds(|_| true);
            let done = f.repairs(&[]);
            assert!(!done.iter().any(|a| matches!(a, Action::PointerCleared { .. })), "{index}, {to}: {done:?}");
            f.holds(&held);
        }
    }
}

#[test]
fn one_whose_entry_is_wrong_is_given_up_and_named() {
    let f = whole();
    // The check of the entry, the last in its node.
    f.forge(1, |b| {
        let payload = format::delta::codec::encode_alone(&text(4).try_into().unwrap(), BLOCK).unwrap();
        let entry = Entry { block: 4, codec: Codec::Alone, check: 5, payload: &payload };
        assert!(delta::rewrite(b, |e| e.block != 4, &[entry]));
    });
    lead(&f.dev, f.a, 4, BlockAddr::NULL);
    f.finds(|k| matches!(k, K::DeltaWithoutBase { block: 4, .. }));
    let done = f.repairs(&[Some(4)]);
    assert!(done.iter().any(|a| matches!(a, Action::DataFound { .. })), "{done:?}");
    f.holds(&[(4, page(1, 4)), (1000, text(1000))]);
}

#[test]
fn a_lost_kept_page_is_named_as_one() {
    let f = whole();
    let payload =
        kept::encode_head(9, None, &format::delta::codec::encode_alone(&text(1).try_into().unwrap(), BLOCK).unwrap());
    let entry = Entry { block: KEPT | 7, codec: Codec::Alone, check: 1, payload: &payload };
    f.forge(1, |b| assert!(delta::rewrite(b, |_| true, &[entry])));
    let report = f.check().to_string();
    assert!(report.contains("kept page 7") && !report.contains("2147483"), "{report}");
    let done = fsck::repair(&f.dev, &fsck::Options::default()).unwrap();
    let said: Vec<String> = done.actions.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|a| a.contains("kept page 7")) && !said.iter().any(|a| a.contains("2147483")), "{said:?}");
}

#[test]
fn a_block_that_never_lay_elsewhere_keeps_its_contents_when_its_address_is_damaged() {
    let dev = Arc::new(Memory::new(64 * 256));
    let features = Options::modern().features | Features::DELTA;
    f2fs::mkfs::format(&*dev, &*clock(), &Options { features, ..Options::modern() }).unwrap();
    // Writes such entries in place of blocks.
    let delta_study = Study { alone: true, longest: 3000, ..Study::default() };
    let options = MountOptions { delta_study, delta_places: Where::Nodes, ..MountOptions::default() };
    let vol = Volume::mount(dev.clone(), clock(), options).unwrap();
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
    let file = vol.mknod(Caller::default(), vol.root(), b"packed", &new).unwrap().attr.ino;
    let mut contents: Vec<u8> = (0..4).flat_map(text).collect();
    vol.write(file, 0, &contents, WriteFlags::empty()).unwrap();
    vol.fsync(file, false).unwrap();
    let before = contents.len() as u64;
    contents.extend((4..8).flat_map(text));
    vol.write(file, before, &contents[before as usize..], WriteFlags::empty()).unwrap();
    vol.fsync(file, false).unwrap();
    vol.unmount().unwrap();
    let ino = Ino(file.0 as u32);
    let packed: Vec<u32> = (0..8).filter(|n| !Places::of(&dev).base(&dev, ino, *n).is_real()).collect();
    assert!(packed.contains(&5), "{packed:?} have no blocks");
    let check = |dev: &Memory| fsck::check(dev, &fsck::Options::default()).unwrap();
    assert!(check(&dev).is_clean() && check(&dev).findings.is_empty(), "{}", check(&dev));
    for to in [BlockAddr::NULL, BlockAddr(0x7FFF_0000), BlockAddr(1), BlockAddr::COMPRESS] {
        let dev = Arc::new(dev.fork());
        lead(&dev, ino, 5, to);
        assert!(!check(&dev).is_clean(), "{to}");
        let done = fsck::repair(&*dev, &fsck::Options::default()).unwrap();
        let mended = done.actions.iter().all(|a| matches!(a, Action::Mended { .. }));
        assert!(mended && !done.actions.is_empty(), "{to}: {:?}", done.actions);
        assert!(check(&dev).is_clean(), "{to}: {}", check(&dev));
        let vol = Volume::mount(dev, clock(), MountOptions::default()).unwrap();
        let mut held = vec![0; contents.len()];
        assert_eq!(vol.read(file, 0, &mut held).unwrap(), held.len());
        assert!(held == contents, "{to}");
    }
}
