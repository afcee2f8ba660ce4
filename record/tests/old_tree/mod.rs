//! Files that exist before a recording begins, and small changes to them.
// Each test program uses some of these.
#![allow(dead_code)]

use std::sync::Arc;

use device::clock::{Time, VirtualClock};
use device::rng::Rng;
use judges::oracle::tree::{Listing, of_vfs};
use record::calls::Recorder;
use vfs::{
    Allocate, Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, RenameFlags, SetAttr, WriteFlags, XattrFlags,
};

use crate::sink::Sink;

/// Size of the header before a recording's subject.
const HEAD: usize = 16;
/// Size of a chunk's header.
pub const CHUNK_HEAD: usize = 20;

pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)))
}

pub fn regular() -> NewNode {
    NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() }
}

pub fn recorder<F: FileSystem>(fs: Arc<F>, sink: &Sink) -> Recorder<F> {
    Recorder::with_contents(fs, sink.clone(), clock()).expect("memory is never full")
}

pub fn write(fs: &dyn FileSystem, ino: Ino, offset: u64, bytes: &[u8]) {
    assert_eq!(fs.write(ino, offset, bytes, WriteFlags::empty()), Ok(bytes.len()));
}

pub fn noise(rng: &mut Rng, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    rng.fill(&mut bytes);
    bytes
}

/// Offsets and lengths of the chunks.
pub fn chunks(bytes: &[u8]) -> Vec<(usize, usize)> {
    let subject = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    let (mut at, mut all) = (HEAD + subject + 4, Vec::new());
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        all.push((at, length));
        at += CHUNK_HEAD + length;
    }
    assert_eq!(at, bytes.len());
    all
}

/// A directory with files of all sizes and types, created before the recording.
pub fn old_tree(fs: &dyn FileSystem, rng: &mut Rng) {
    let root = fs.root();
    let dir = fs.mkdir(Caller { uid: 3, gid: 4 }, root, b"old", 0o750, 0).expect("made").attr.ino;
    let sub = fs.mkdir(Caller::default(), dir, b"sub", 0o755, 0).expect("made").attr.ino;
    for n in 0..12_u64 {
        let parent = if n % 2 == 0 { dir } else { sub };
        let ino =
            fs.mknod(Caller { uid: 5, gid: 6 }, parent, format!("f{n}").as_bytes(), &regular()).expect("made").attr.ino;
        let bytes = noise(rng, (n * n * 6007) as usize);
        write(fs, ino, n * 4096 * (n % 3), &bytes);
        fs.setxattr(ino, b"user.mark", &[n as u8; 7], XattrFlags::empty()).expect("room");
        fs.forget(ino, 1);
    }
    let holes = fs.mknod(Caller::default(), dir, b"holes", &regular()).expect("made").attr.ino;
    write(fs, holes, 5 << 20, b"after a hole");
    fs.setattr(holes, &SetAttr { size: Some(9 << 20), ..SetAttr::default() }).expect("longer");
    fs.link(holes, sub, b"holes-too").expect("linked");
    fs.forget(holes, 2);
    fs.symlink(Caller::default(), dir, b"link", b"sub/f1").expect("made");
    fs.mknod(Caller::default(), dir, b"fifo", &NewNode { kind: FileKind::Fifo, ..regular() }).expect("made");
    fs.forget(dir, 1);
    fs.forget(sub, 1);
}

/// Looks up a path as a kernel does, name by name.
pub fn find(fs: &dyn FileSystem, path: &str) -> Ino {
    path.split('/').fold(fs.root(), |at, name| fs.lookup(at, name.as_bytes()).expect("there").attr.ino)
}

/// Changes a little of every file, so that none keeps its old contents untouched.
pub fn change(fs: &dyn FileSystem) {
    let (dir, sub) = (find(fs, "old"), find(fs, "old/sub"));
    for n in 0..12_u64 {
        let ino = find(fs, &format!("old/{}f{n}", if n % 2 == 0 { "" } else { "sub/" }));
        match n % 6 {
            0 => write(fs, ino, n * 900, b"a small change"),
            1 => drop(fs.setattr(ino, &SetAttr { size: Some(n * 3001), ..SetAttr::default() }).expect("cut or longer")),
            2 => fs.fallocate(ino, Allocate::Zero { keep_size: true }, 4000, 200).expect("zeroed"),
            3 => {
                fs.open(ino, true).expect("emptied");
                write(fs, ino, 10, b"anew");
                fs.release(ino);
            }
            4 => fs
                .rename(Caller::default(), (dir, format!("f{n}").as_bytes()), (sub, b"moved"), RenameFlags::empty())
                .expect("moved"),
            _ => fs.fallocate(ino, Allocate::PunchHole, 4096, 8192).expect("punched"),
        }
        if n % 6 == 4 {
            write(fs, ino, 1, b"after the move");
        }
        fs.setxattr(ino, b"user.more", &[b'v'; 100], XattrFlags::empty()).expect("room");
        fs.fsync(ino, false).expect("durable");
    }
    write(fs, find(fs, "old/holes"), 7 << 20, b"in the second hole");
    write(fs, find(fs, "old/sub/holes-too"), 1 << 20, b"in the first");
    fs.rename(Caller::default(), (fs.root(), b"old"), (fs.root(), b"new"), RenameFlags::empty()).expect("moved");
    fs.lookup(dir, b"link").expect("there");
    fs.lookup(dir, b"fifo").expect("there");
    fs.unlink(sub, b"moved").expect("there");
    let again = fs.mknod(Caller::default(), sub, b"moved", &regular()).expect("made").attr.ino;
    write(fs, again, 0, b"another file of that name");
}

/// All files and their contents, without times.
pub fn listing(fs: &dyn FileSystem) -> String {
    of_vfs(fs, Listing { ignore_times: true, ..Listing::default() }).expect("a listing")
}
