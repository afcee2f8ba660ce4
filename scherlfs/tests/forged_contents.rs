//! User data is never mistaken for the log, whatever it looks like: not if a power cut left the log's end at a
//! block of user data, and not in a repair that examines every block.

use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Tag, VirtualClock};
use joulefs_scherlfs as scherlfs;
use scherlfs::{MountOptions, Placement, Volume, make};
use scherlfs_format::chain::Header;
use scherlfs_format::inode as raw;
use scherlfs_format::{BLOCK, Block, ROOT, Seq};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode, WriteFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };
const BLOCKS: u64 = 256;
const THEIRS: usize = 100;

fn block(dev: &dyn BlockDevice, at: u64) -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    dev.read(Lba(at), &mut block[..], Tag::default()).unwrap();
    block
}

fn inodes(dev: &dyn BlockDevice) -> impl Iterator<Item = (u64, raw::Inode)> + '_ {
    (2..BLOCKS).filter_map(|at| Some((at, raw::Inode::read(&block(dev, at)).ok()?)))
}

fn file(volume: &Volume, name: &str, bytes: &[u8]) {
    let new = NewNode { kind: FileKind::Regular, perm: 0o666, umask: 0, rdev: DeviceNumber { major: 0, minor: 0 } };
    let ino = volume.mknod(ME, volume.root(), name.as_bytes(), &new).unwrap().attr.ino;
    assert_eq!(volume.write(ino, 0, bytes, WriteFlags::empty()).unwrap(), bytes.len());
    volume.fsync(ino, false).unwrap();
    volume.forget(ino, 1);
}

/// A user writes a file and deletes it; the log reuses its blocks; the power fails.
fn cut(secret: u64, theirs: &[Box<Block>], delete: bool) -> Arc<Memory> {
    let dev = Arc::new(Memory::new(BLOCKS));
    let clock = Arc::new(VirtualClock::default());
    make::format(dev.clone(), &*clock, &make::Options { secret, ..Default::default() }).unwrap();
    let volume = Volume::mount(dev.clone(), clock.clone(), MountOptions::default()).unwrap();
    file(&volume, "theirs", &theirs.iter().flat_map(|b| b.iter().copied()).collect::<Vec<_>>());
    if delete {
        volume.unlink(volume.root(), b"theirs").unwrap();
    }
    volume.unmount().unwrap();
    drop(volume);
    let volume = Volume::mount(dev.clone(), clock, MountOptions::default()).unwrap();
    file(&volume, "other", &vec![200; if delete { 170 } else { 20 } * BLOCK]);
    std::mem::forget(volume);
    dev
}

/// A world-writable root directory, in the transaction after the last one on this device, or in the volume's first.
fn forged(dev: &dyn BlockDevice, next: bool) -> Box<Block> {
    let (_, last) = inodes(dev).max_by_key(|(_, i)| i.header.seq).unwrap();
    let (_, mut root) = inodes(dev).filter(|(_, i)| i.header.ino == ROOT).max_by_key(|(_, i)| i.header.seq).unwrap();
    root.header.seq = Seq(1);
    if next {
        root.header = Header { seq: Seq(last.header.seq.0 + 1), piece: 0, pieces: 1, ino: ROOT, ..last.header };
    }
    (root.follow, root.follow_crc) = (0, 0);
    root.attributes.mode |= 0o777;
    root.attributes.uid = 1000;
    root.write()
}

fn numbered() -> Vec<Box<Block>> {
    (0..THEIRS).map(|n| Box::new([n as u8 + 1; BLOCK])).collect()
}

/// The user's file, with the forged block where the log of such a volume ends: the log fills the file's old blocks
/// from the front.
fn attack(on: &Memory) -> Vec<Box<Block>> {
    let left = |at: &u64| numbered().contains(&block(on, *at));
    let end = (2..BLOCKS).find(left).unwrap();
    let mut theirs = numbered();
    theirs[usize::from(block(on, end)[0]) - 1] = forged(on, true);
    theirs
}

fn root_mode(dev: Arc<Memory>) -> (u16, u32) {
    let volume = Volume::mount(dev, Arc::new(VirtualClock::default()), MountOptions::default()).unwrap();
    let attr = volume.getattr(volume.root()).unwrap();
    assert!(volume.lookup(volume.root(), b"other").is_ok(), "what was synced is there");
    (attr.perm, attr.uid)
}

#[test]
fn an_inode_among_a_users_contents_is_not_where_the_log_goes_on() {
    let (honest, attacked) = (0x1d87_5a0e_77c1_90b3, 0x6b0f_33e2_8d5c_4a71);
    let like = cut(honest, &numbered(), true);
    // The test can fail: with the secret, a user could write blocks that a mount takes for the log.
    let (mode, uid) = root_mode(cut(honest, &attack(&like), true));
    assert_eq!((mode & 0o777, uid), (0o777, 1000), "the forged block does not stand where the log ends");
    // Another user's volume, otherwise the same.
    assert_eq!(root_mode(cut(attacked, &attack(&like), true)), root_mode(cut(attacked, &numbered(), true)));
}

#[test]
fn a_repair_takes_no_inode_among_a_users_contents_for_one_of_the_volume() {
    let (honest, attacked) = (0x1d87_5a0e_77c1_90b3, 0x6b0f_33e2_8d5c_4a71);
    let theirs = |like: &Memory| {
        let mut theirs = numbered();
        theirs[50] = forged(like, false);
        theirs
    };
    let like = cut(honest, &numbered(), false);
    let repaired = |secret| {
        let dev = cut(secret, &theirs(&like), false);
        let theirs = inodes(&*dev).find(|(_, i)| i.follow == THEIRS as u32).unwrap().1.header.ino;
        let map = inodes(&*dev).filter(|(_, i)| [ROOT, theirs].contains(&i.header.ino));
        let map = map.map(|(at, i)| (i.attributes.uid, at));
        // The inodes of the directory and of the file are damaged: the owner of these contents is unknown.
        for (_, at) in map.filter(|(uid, _)| *uid == 0).collect::<Vec<_>>() {
            dev.write(Lba(at), &[0xAA; BLOCK], Tag::default()).unwrap();
        }
        scherlfs_fsck::repair(&*dev, &|_, _| ()).unwrap();
        assert!(scherlfs_fsck::check(&*dev).is_clean());
        let volume = Volume::mount(dev, Arc::new(VirtualClock::default()), MountOptions::default()).unwrap();
        volume.getattr(volume.root()).unwrap().uid
    };
    assert_eq!(repaired(honest), 1000, "who knew the secret could do it");
    assert_eq!(repaired(attacked), 0);
}

/// If an inode may follow its contents, contents come first: contents that look like an inode are not taken for it,
/// even from a user with the secret.
#[test]
fn contents_that_end_like_an_inode_end_nothing() {
    let run = |end: Option<&dyn Fn(&dyn BlockDevice) -> Box<Block>>| {
        let dev = Arc::new(Memory::new(BLOCKS));
        let clock = Arc::new(VirtualClock::default());
        make::format(dev.clone(), &*clock, &make::Options::default()).unwrap();
        let options = MountOptions { placement: Some(Placement::After), ..MountOptions::default() };
        let volume = Volume::mount(dev.clone(), clock, options).unwrap();
        file(&volume, "other", &[5; 100]);
        let ino = volume.lookup(volume.root(), b"other").unwrap().attr.ino;
        let mut contents: Vec<u8> = [[1; BLOCK], [2; BLOCK]].concat();
        if let Some(end) = end {
            contents.extend_from_slice(&end(&*dev)[..]);
        }
        volume.write(ino, 0, &contents, WriteFlags::empty()).unwrap();
        volume.fsync(ino, false).unwrap();
        std::mem::forget(volume);
        dev
    };
    let ends = |dev: &dyn BlockDevice| {
        let mut root = raw::Inode::read(&forged(dev, true)).unwrap();
        root.form = raw::Form::Ahead;
        root.follow = 2;
        root.follow_crc = scherlfs_format::checksum(&[&[1; BLOCK], &[2; BLOCK]]);
        root.write()
    };
    // The test can fail: as the last block of a log the same bytes are accepted by a mount.
    let like = run(None);
    let at = inodes(&*like).find(|(_, i)| i.form == raw::Form::Ahead).unwrap().0;
    let before = Arc::new(like.fork());
    let root = {
        let mut root = raw::Inode::read(&ends(&*like)).unwrap();
        root.header.seq = Seq(root.header.seq.0 - 1);
        root.write()
    };
    before.write(Lba(at), &root[..], Tag::default()).unwrap();
    assert_eq!(root_mode(before).1, 1000, "the forged block does not stand where the log ends");
    let attacked = run(Some(&ends));
    assert_eq!(root_mode(attacked.clone()).1, 0);
    let volume = Volume::mount(attacked, Arc::new(VirtualClock::default()), MountOptions::default()).unwrap();
    let size = volume.lookup(volume.root(), b"other").unwrap().attr.size;
    assert_eq!(size, 3 * BLOCK as u64, "what was synced is there");
}
