//! An inode's number resolves to the name the file has, or had last, whatever the inode still records.

use std::sync::Arc;

use device::{BLOCK, Counting, Memory, VirtualClock};
use joulefs_f2fs::mkfs::{self, Options};
use joulefs_f2fs::owners::{Look, Owner};
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, RenameFlags, WriteFlags};

struct Rig {
    device: Arc<Counting<Memory>>,
    vol: Arc<Volume>,
}

impl Rig {
    fn new() -> Self {
        let device = Arc::new(Counting::new(Memory::new(64 << 8)));
        let clock = VirtualClock::default();
        let options = Options { assume_zeroed: true, ..Options::default() };
        mkfs::format(&*device, &clock, &options).unwrap();
        Rig { vol: mount(&device), device }
    }
    fn again(mut self) -> Self {
        self.vol.unmount().unwrap();
        self.vol = mount(&self.device);
        self
    }
    fn dir(&self, parent: Ino, name: &str) -> Ino {
        self.vol.mkdir(Caller::default(), parent, name.as_bytes(), 0o755, 0).unwrap().attr.ino
    }
    fn file(&self, parent: Ino, name: &str) -> Ino {
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
        let ino = self.vol.mknod(Caller::default(), parent, name.as_bytes(), &new).unwrap().attr.ino;
        self.vol.write(ino, 0, &[7; 3 * BLOCK], WriteFlags::empty()).unwrap();
        ino
    }
    fn remove(&self, parent: Ino, name: &str, ino: Ino) {
        self.vol.unlink(parent, name.as_bytes()).unwrap();
        self.vol.forget(ino, 1);
    }
    #[track_caller]
    fn is(&self, ino: Ino, look: Look, expected: &Owner) {
        assert_eq!(&self.vol.owner_of(ino.0, look), expected);
    }
}

fn mount(device: &Arc<Counting<Memory>>) -> Arc<Volume> {
    Volume::mount(device.clone(), Arc::new(VirtualClock::default()), MountOptions::default()).unwrap()
}

fn path(text: &str) -> Owner {
    Owner::Path(text.as_bytes().to_vec())
}

fn deleted(text: &str) -> Owner {
    Owner::Deleted(Some(text.as_bytes().to_vec()))
}

#[test]
fn a_number_has_the_path_of_its_file_after_renames_and_mounts() {
    let rig = Rig::new();
    let root = rig.vol.root();
    let (a, b) = (rig.dir(root, "a"), rig.dir(root, "b"));
    let file = rig.file(a, "first");
    for look in [Look::InMemory, Look::Everywhere] {
        rig.is(root, look, &path("/"));
        rig.is(file, look, &path("/a/first"));
    }
    let over = rig.file(b, "second");
    rig.vol.rename(Caller::default(), (a, b"first"), (b, b"second"), RenameFlags::empty()).unwrap();
    rig.vol.rename(Caller::default(), (root, b"b"), (a, b"below"), RenameFlags::empty()).unwrap();
    rig.vol.forget(over, 1);
    rig.is(file, Look::Everywhere, &path("/a/below/second"));
    rig.is(over, Look::Everywhere, &Owner::Deleted(None));

    let rig = rig.again();
    rig.is(file, Look::Everywhere, &path("/a/below/second"));
    for number in [0, 1, 2] {
        assert_eq!(rig.vol.owner_of(number, Look::Everywhere), Owner::Volume);
    }
    for number in [9_999_999, u64::from(u32::MAX), u64::MAX] {
        assert_eq!(rig.vol.owner_of(number, Look::Everywhere), Owner::Unnamed);
    }
}

#[test]
fn of_several_names_one_that_is_there_is_told() {
    let rig = Rig::new();
    let (root, dir) = (rig.vol.root(), rig.dir(rig.vol.root(), "dir"));
    let file = rig.file(dir, "noted");
    rig.vol.link(file, dir, b"other").unwrap();
    rig.vol.unlink(dir, b"noted").unwrap();
    rig.is(file, Look::Everywhere, &path("/dir/other"));
    // The only name left is in a directory that the inode does not record.
    rig.vol.link(file, root, b"third").unwrap();
    rig.vol.unlink(dir, b"other").unwrap();
    rig.is(file, Look::Everywhere, &Owner::Unnamed);
}

#[test]
fn who_only_looks_in_memory_asks_the_device_for_nothing() {
    let rig = Rig::new();
    let dir = rig.dir(rig.vol.root(), "dir");
    let file = rig.file(dir, "file");
    let rig = rig.again();
    let reads = || rig.device.snapshot().total().reads;
    let before = reads();
    rig.is(file, Look::InMemory, &Owner::Unnamed);
    assert_eq!(reads(), before);
    rig.is(file, Look::Everywhere, &path("/dir/file"));
    assert!(reads() > before);
    let before = reads();
    rig.is(file, Look::InMemory, &path("/dir/file"));
    assert_eq!(reads(), before);
}

#[test]
fn what_was_deleted_has_its_last_path_if_that_was_asked_for() {
    let rig = Rig::new();
    let root = rig.vol.root();
    let early = rig.file(root, "early");
    rig.remove(root, "early", early);
    rig.is(early, Look::Everywhere, &Owner::Deleted(None));

    rig.vol.keep_deleted_names();
    let dir = rig.dir(root, "dir");
    let (a, b) = (rig.file(dir, "a"), rig.file(dir, "b"));
    rig.remove(dir, "a", a);
    for look in [Look::InMemory, Look::Everywhere] {
        rig.is(a, look, &deleted("/dir/a"));
    }
    // Open, but without a name.
    rig.vol.unlink(dir, b"b").unwrap();
    rig.is(b, Look::Everywhere, &deleted("/dir/b"));
    rig.vol.forget(b, 1);
    rig.vol.rename(Caller::default(), (root, b"dir"), (root, b"moved"), RenameFlags::empty()).unwrap();
    rig.is(b, Look::Everywhere, &deleted("/moved/b"));
    rig.vol.rmdir(root, b"moved").unwrap();
    rig.vol.forget(dir, 1);
    for look in [Look::InMemory, Look::Everywhere] {
        rig.is(dir, look, &deleted("/moved"));
        rig.is(b, look, &deleted("/moved/b"));
    }
}
