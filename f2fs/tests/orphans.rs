//! Inodes without a name: their limit, and what happens if one cannot be freed.

use std::sync::Arc;

use device::{BlockDevice, Fault, Faulty, Lba, Loss, Memory, Op, PowerCut, Tag};
use format::node::{self, NodeKind};
use format::orphan::ORPHANS_PER_BLOCK;
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use judges::damage::block;
use vfs::{Error, FileSystem, Ino, RenameFlags};

use crate::log_rig::*;

/// An empty volume whose checkpoint packs have so much payload that one block is left for orphans.
fn with_room_for_one_block_of_orphans() -> Memory {
    let dev = formatted(64, &Options::default());
    judges::payload::give(&dev, 503);
    dev
}

fn close(vol: &Volume, ino: Ino) {
    vol.forget(ino, 1);
}

#[test]
fn no_more_inodes_lose_their_names_than_a_checkpoint_can_list() {
    let dev = Arc::new(with_room_for_one_block_of_orphans());
    let vol = mount(dev.clone());
    let root = vol.root();
    let [file, other] = ["file", "other"].map(|n| new_file(&vol, root, n));
    vol.mkdir(ROOT, root, b"dir", 0o755, 0).unwrap();
    let open: Vec<Ino> = (0..ORPHANS_PER_BLOCK).map(|_| vol.tmpfile(ROOT, root, 0o600, 0).unwrap().attr.ino).collect();
    let rename = |from: &[u8], to: &[u8], flags| vol.rename(ROOT, (root, from), (root, to), flags);
    let free = vol.statfs().unwrap().blocks_free;

    assert_eq!(vol.tmpfile(ROOT, root, 0o600, 0).map(drop), Err(Error::NoSpace));
    assert_eq!(vol.unlink(root, b"file"), Err(Error::NoSpace));
    assert_eq!(vol.rmdir(root, b"dir"), Err(Error::NoSpace));
    assert_eq!(rename(b"other", b"file", RenameFlags::empty()), Err(Error::NoSpace));
    for (name, ino) in [("file", file), ("other", other)] {
        assert_eq!(find(&vol, name), Some(ino), "{name} is where it was");
        assert_eq!(vol.getattr(ino).unwrap().nlink, 1, "{name}");
    }
    assert!(find(&vol, "dir").is_some());
    assert_eq!(vol.statfs().unwrap().blocks_free, free, "nothing was made or freed");
    rename(b"other", b"file", RenameFlags::EXCHANGE).unwrap();
    rename(b"other", b"third", RenameFlags::empty()).unwrap();
    vol.sync().unwrap();
    assert_clean(&*dev, "all open");

    close(&vol, open[0]);
    vol.unlink(root, b"file").unwrap();
    assert_eq!(vol.unlink(root, b"third"), Err(Error::NoSpace), "file is open");
    vol.sync().unwrap();
    recovered(&dev.fork(), |vol| assert!(find(vol, "file").is_none() && find(vol, "third").is_some()));
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
}

/// A volume with a file `large` that has nodes of all levels, and no name if `nameless`; and the number of blocks free
/// without it.
fn with_large(nameless: bool) -> (Memory, u64) {
    let dev = power_cut(&formatted(256, &Options::default()));
    let vol = mount(dev.clone());
    write(&vol, new_file(&vol, vol.root(), "kept"), 0, b"kept");
    let free = vol.statfs().unwrap().blocks_free;
    let large = new_file(&vol, vol.root(), "large");
    for at in [0, 900, 2000, 3000, 100_000, 2_200_000] {
        write(&vol, large, at * 4096, &pattern(at, 6000));
    }
    if nameless {
        vol.unlink(vol.root(), b"large").unwrap();
    }
    vol.sync().unwrap();
    // A mount reads the segments of the logs, whoever owns their blocks.
    for _ in 0..600 {
        let passing = new_file(&vol, vol.root(), "passing");
        vol.sync().unwrap();
        vol.unlink(vol.root(), b"passing").unwrap();
        vol.forget(passing, 1);
    }
    vol.sync().unwrap();
    (dev.image(Loss::AllLost), free)
}

/// `kept` is unchanged, and the volume accepts changes.
fn works(vol: &Volume) {
    assert_eq!(read_all(vol, find(vol, "kept").unwrap()), b"kept");
    write(vol, new_file(vol, vol.root(), "new"), 0, b"new");
}

/// After a mount without errors the orphan is gone, and the file written by [`works`] exists.
fn freed_in_the_end(image: &Memory, free: u64) {
    recovered(image, |vol| assert_eq!(read_all(vol, find(vol, "new").unwrap()), b"new"));
    let vol = mount_copy(image);
    vol.unlink(vol.root(), b"new").unwrap();
    assert_eq!(vol.statfs().unwrap().blocks_free, free);
}

#[test]
fn an_orphan_that_cannot_be_read_does_not_keep_an_unmount_from_writing_its_checkpoint() {
    let (image, free) = with_large(false);
    let dev = Arc::new(Faulty::new(PowerCut::new(image)));
    let vol = mount(dev.clone());
    find(&vol, "large").unwrap();
    vol.unlink(vol.root(), b"large").unwrap();
    works(&vol);
    dev.add(Fault::Place { op: Op::Read, blocks: 0..u64::MAX });
    let before = dev.requests(Op::Read);
    vol.unmount().unwrap();
    assert!(dev.requests(Op::Read) > before, "its nodes were in memory");
    freed_in_the_end(&dev.inner().image(Loss::AllLost), free);
}

/// Addresses of the direct nodes of `large`.
fn nodes_of_large(image: &Memory) -> Vec<u64> {
    (0..image.blocks())
        .filter(|&at| {
            let f = node::footer(&block(image, at));
            matches!(node::kind_of(f.offset), NodeKind::Direct { .. }) && (4..64).contains(&f.ino.0) && f.nid.0 < 64
        })
        .collect()
}

#[test]
fn an_orphan_that_cannot_be_read_does_not_keep_a_volume_from_being_mounted_and_used() {
    let (image, free) = with_large(true);
    let nodes = nodes_of_large(&image);
    assert_eq!(nodes.len(), 5, "{nodes:?}");
    for bad in nodes {
        let dev = Arc::new(Faulty::new(PowerCut::new(image.fork())));
        dev.add(Fault::Place { op: Op::Read, blocks: bad..bad + 1 });
        let vol = mount(dev.clone());
        works(&vol);
        vol.unmount().unwrap();
        dev.heal();
        freed_in_the_end(&dev.inner().image(Loss::AllLost), free);
    }
}

#[test]
fn nor_does_one_whose_nodes_are_damaged() {
    let (image, _) = with_large(true);
    for bad in nodes_of_large(&image) {
        let dev = Arc::new(image.fork());
        dev.write(Lba(bad), &[0xFF; 4096], Tag::default()).unwrap();
        let vol = mount(dev.clone());
        works(&vol);
        vol.unmount().unwrap();
        let vol = mount(dev.clone());
        assert!(find(&vol, "new").is_some());
        vol.unmount().unwrap();
        fsck::repair(&dev, &fsck::Options::default()).unwrap();
        assert_clean(&*dev, "repaired");
    }
}
