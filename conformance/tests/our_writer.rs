//! Our writer, their checkers: `fsck.f2fs` finds no errors in what we wrote, and Linux finds it as we left it.

use std::path::Path;
use std::sync::Arc;

use f2fs::mkfs::Options;
use format::superblock::Features;
use judges::oracle::tools::Mkfs;
use judges::oracle::tree::assert_same;
use judges::zoo::{self, Size, ZooOp, in_process, plan};
use vfs::{Caller, FileKind, FileSystem, NewNode, WriteFlags};

use crate::rig::*;

fn our_formats() -> [(&'static str, Options); 4] {
    let quota = Features::QUOTA_INO | Features::PRJQUOTA | Features::EXTRA_ATTR;
    [
        ("default", Options::default()),
        ("modern", Options::modern()),
        ("quota", Options { features: quota, ..Options::default() }),
        ("two segments per section", Options { segs_per_sec: 2, ..Options::default() }),
    ]
}

/// Linux finds this tree, and no errors.
#[track_caller]
fn assert_linux_finds(image: &Path, ours: &str) {
    let run = kernel().run(image, &format!("{TREELIST} >$OUT/tree")).expect_ok();
    // A message due to the flag that makes Linux and `fsck.f2fs` recount usage.
    let about_quota = |line: &&str| !line.contains("quota file may be corrupted, skip loading it");
    let complaints: Vec<&str> = run.complaints().into_iter().filter(about_quota).collect();
    assert!(complaints.is_empty(), "{complaints:?}\n{}", run.describe());
    assert_same(("ours", ours), ("Linux", &printed(run.out(), "tree")));
    assert_clean(image);
}

#[track_caller]
fn perform(fs: &dyn FileSystem, ops: &[ZooOp]) {
    in_process::perform(fs, ops).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn linux_finds_the_zoo_we_wrote() {
    for (name, options) in our_formats() {
        let work = work_dir();
        let image = work.path().join("volume.img");
        format(&image, 160 * MIB, &options);
        let volume = mount_rw(&image);
        perform(&*volume, &plan(21, Size::Small));
        let while_mounted = list(&volume);
        unmount(volume);
        assert_clean(&image);
        let volume = mount_ro(&image);
        assert_same((name, &while_mounted), ("mounted again", &list(&volume)));
        drop(volume);
        assert_linux_finds(&image, &while_mounted);
    }
}

#[test]
fn linux_finds_a_large_tree_we_wrote_on_a_volume_of_theirs() {
    let work = work_dir();
    let image = work.path().join("volume.img");
    let (size, mib) = if deep() { (Size::Full, 512) } else { (Size::Medium, 256) };
    Mkfs::default().format(&image, mib * MIB).expect("mkfs.f2fs formats");
    let volume = mount_rw(&image);
    perform(&*volume, &plan(22, size));
    let ours = list(&volume);
    unmount(volume);
    assert_clean(&image);
    assert_linux_finds(&image, &ours);
}

/// Creates a file with one reference, which the handle drops.
#[track_caller]
fn create(fs: &dyn FileSystem, name: &str) -> vfs::Ino {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: vfs::DeviceNumber::default() };
    let entry = fs.mknod(Caller::default(), fs.root(), name.as_bytes(), &new);
    entry.unwrap_or_else(|e| panic!("{name}: {e}")).attr.ino
}

#[track_caller]
fn write(fs: &dyn FileSystem, ino: vfs::Ino, offset: u64, data: &[u8]) {
    let n = fs.write(ino, offset, data, WriteFlags::empty()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(n, data.len());
}

#[test]
fn linux_recovers_what_we_synced_and_did_not_checkpoint() {
    let work = work_dir();
    let image = work.path().join("volume.img");
    format(&image, 160 * MIB, &Options::default());
    let volume = mount_rw(&image);
    perform(&*volume, &plan(23, Size::Small));
    volume.sync().expect("synced");
    // New files of every size class, old ones overwritten and appended to, renamed ones, a second name.
    let mut contents = Vec::new();
    for i in 0..60_u64 {
        let name = format!("synced-{i}");
        let ino = create(&*volume, &name);
        let len = usize::try_from(i * i * 300).expect("small");
        let mut data = vec![0; len];
        zoo::fill(i, 0, &mut data);
        write(&*volume, ino, 0, &data);
        volume.fsync(ino, i % 2 == 0).expect("synced");
        if i % 3 == 0 {
            // Again, so that the second chain of nodes must be followed, too.
            data[len / 2..].fill(b'x');
            write(&*volume, ino, (len / 2) as u64, &data[len / 2..]);
            volume.fsync(ino, false).expect("synced");
        }
        contents.push((name, data));
        volume.forget(ino, 1);
        let lost = create(&*volume, &format!("unsynced-{i}"));
        write(&*volume, lost, 0, b"nobody asked for this");
        volume.forget(lost, 1);
    }
    assert!(volume.counters.fast_fsyncs.load(std::sync::atomic::Ordering::Relaxed) > 60);
    // Stopped without unmounting: the last checkpoint is that of `sync`.
    assert!(Arc::into_inner(volume).is_some());
    assert!(!our_fsck(&image).clean_unmount);

    let copy = work.path().join("copy.img");
    std::fs::copy(&image, &copy).expect("a copy");
    let run = kernel().run(&copy, &format!("{TREELIST} >$OUT/tree")).expect_ok();
    assert!(run.log.iter().any(|l| l.text.contains("recover_")), "{}", run.describe());
    let linux = printed(run.out(), "tree");
    for (name, data) in &contents {
        let line = linux.lines().find(|l| l.starts_with(&format!("/{name} ")));
        let line = line.unwrap_or_else(|| panic!("Linux does not find {name}\n{}", run.describe()));
        assert!(line.contains(&format!(" size={} ", data.len())), "{line}");
    }
    assert_clean(&copy);

    let volume = mount_rw(&image);
    let ours = list(&volume);
    for (name, data) in &contents {
        let entry = volume.lookup(volume.root(), name.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut found = vec![0; data.len() + 1];
        let n = volume.read(entry.attr.ino, 0, &mut found).expect("read");
        assert!(found[..n] == data[..], "{name} is not as it was synced");
        volume.forget(entry.attr.ino, 1);
    }
    unmount(volume);
    let [ours, linux] = [&ours, &linux].map(|text| without_directory_times(text));
    assert_same(("ours", &ours), ("Linux", &linux));
    assert_clean(&image);
}

#[test]
fn a_volume_nearly_full_is_overwritten_again_and_again() {
    let work = work_dir();
    let image = work.path().join("volume.img");
    format(&image, 128 * MIB, &Options::default());
    let volume = mount_rw(&image);
    let free = volume.statfs().expect("statfs").blocks_available;
    let ino = create(&*volume, "large");
    let blocks = free * 95 / 100;
    let mut data = vec![0; 1 << 20];
    for at in (0..blocks * 4096).step_by(1 << 20) {
        zoo::fill(0, at, &mut data);
        let len = (blocks * 4096 - at).min(1 << 20) as usize;
        write(&*volume, ino, at, &data[..len]);
    }
    let passes = if deep() { 20 } else { 4 };
    let mut rng = device::Rng::new(5);
    let mut streams = vec![0_u64; blocks as usize];
    let mut block = [0; 4096];
    for pass in 1..=passes {
        for _ in 0..blocks {
            let n = rng.below(blocks);
            zoo::fill(pass, n * 4096, &mut block);
            write(&*volume, ino, n * 4096, &block);
            streams[n as usize] = pass;
        }
        volume.fsync(ino, true).expect("synced");
    }
    assert!(volume.counters.moved_blocks() > 0 || passes < 2);
    let mut found = [0; 4096];
    for (n, stream) in streams.iter().enumerate() {
        let at = n as u64 * 4096;
        assert_eq!(volume.read(ino, at, &mut found).expect("read"), 4096);
        zoo::fill(*stream, at, &mut block);
        assert!(found == block, "file block {n}");
    }
    volume.forget(ino, 1);
    let ours = list(&volume);
    unmount(volume);
    assert_clean(&image);
    assert_linux_finds(&image, &ours);
}

#[test]
fn a_full_volume_says_so_stays_sound_and_can_be_emptied() {
    let work = work_dir();
    let image = work.path().join("volume.img");
    format(&image, 100 * MIB, &Options::modern());
    let volume = mount_rw(&image);
    let empty = volume.statfs().expect("statfs").blocks_free;
    for round in 0..3 {
        let mut names = Vec::new();
        let data = vec![b'f'; 300_000];
        let full = 'fill: loop {
            let name = format!("{round}-{}", names.len());
            let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: vfs::DeviceNumber::default() };
            let made = volume.mknod(Caller::default(), volume.root(), name.as_bytes(), &new);
            let ino = match made {
                Ok(entry) => entry.attr.ino,
                Err(e) => break 'fill e,
            };
            names.push(name);
            let written = volume.write(ino, 0, &data, WriteFlags::empty());
            volume.forget(ino, 1);
            match written {
                Ok(n) if n == data.len() => {}
                Ok(_) => {}
                Err(e) => break 'fill e,
            }
        };
        assert!(matches!(full, vfs::Error::NoSpace), "{full}");
        assert!(names.len() > 100, "only {} files fit", names.len());
        // Accepted data must also have space in the log.
        volume.sync().expect("a full volume can be synced");
        for name in names {
            volume.unlink(volume.root(), name.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        volume.sync().expect("synced");
        let free = volume.statfs().expect("statfs").blocks_free;
        assert!(free + 64 >= empty, "{free} of {empty} blocks are free again");
    }
    let ours = list(&volume);
    unmount(volume);
    assert_clean(&image);
    assert_linux_finds(&image, &ours);
}

/// Our calls on a directory.
type Asked = Box<dyn Fn(&dyn FileSystem, vfs::Ino)>;

/// A step on a directory, as a shell command and as our calls.
struct Step {
    shell: String,
    ours: Asked,
}

fn making(names: std::ops::Range<u32>) -> Step {
    let shell = format!("for i in $(seq {} {}); do : >d/$i; done", names.start, names.end - 1);
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: vfs::DeviceNumber::default() };
    let make = move |fs: &dyn FileSystem, dir, name: u32| {
        let ino = fs.mknod(Caller::default(), dir, name.to_string().as_bytes(), &new).expect("made").attr.ino;
        fs.forget(ino, 1);
    };
    Step { shell, ours: Box::new(move |fs, dir| names.clone().for_each(|name| make(fs, dir, name))) }
}

/// Removes all except every `kept`th of them.
fn removing(names: std::ops::Range<u32>, kept: u32) -> Step {
    let (first, last) = (names.start, names.end - 1);
    let shell = format!("for i in $(seq {first} {last}); do [ $((i % {kept})) = 0 ] || echo d/$i; done | xargs rm");
    let gone = move || names.clone().filter(move |name| name % kept != 0);
    let remove = |fs: &dyn FileSystem, dir, name: u32| fs.unlink(dir, name.to_string().as_bytes()).expect("removed");
    Step { shell, ours: Box::new(move |fs, dir| gone().for_each(|name| remove(fs, dir, name))) }
}

#[test]
fn a_directory_takes_as_many_blocks_as_with_linux_while_it_grows_and_shrinks_and_grows() {
    let steps = [
        making(0..3000),
        removing(0..3000, 97),
        making(3000..3400),
        removing(3000..3400, 400),
        making(5000..5001),
        removing(5000..5002, 5001),
        making(6000..8000),
    ];
    let work = work_dir();
    let (image, theirs) = (work.path().join("volume.img"), work.path().join("theirs.img"));
    Mkfs::default().format(&image, 128 * MIB).expect("mkfs.f2fs formats");
    std::fs::copy(&image, &theirs).expect("a copy");

    let mut script = String::from("mkdir d\n");
    for step in &steps {
        script += &format!("{}\nstat -c '%s %b' d >>$OUT/blocks\n", step.shell);
    }
    let linux = printed(kernel().run(&theirs, &script).expect_ok().out(), "blocks");

    let volume = mount_rw(&image);
    let dir = volume.mkdir(Caller::default(), volume.root(), b"d", 0o755, 0).expect("made").attr.ino;
    let mut ours = String::new();
    for step in &steps {
        (step.ours)(&*volume, dir);
        let attr = volume.getattr(dir).expect("its attributes");
        ours += &format!("{} {}\n", attr.size, attr.blocks512);
    }
    volume.forget(dir, 1);
    assert_eq!(ours, linux, "size and blocks of the directory after each step");
    let listed = list(&volume);
    unmount(volume);
    assert_clean(&image);
    assert_linux_finds(&image, &listed);
}
