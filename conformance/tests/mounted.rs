//! What only a real mount can show: files without names, a full volume, locks, signals, concurrent clients.

mod rig;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use device::{Access, FileDevice};
use f2fs::mkfs::Options;
use judges::filling;
use judges::oracle::tools::locate;
use judges::oracle::tree::{Listing, assert_same, of_host, of_vfs};
use judges::zoo::{self, Size, on_path, plan};
use rustix::fs::{IFlags, OFlags, ioctl_setflags};
use rustix::process::{Signal, getpid, kill_process};

use crate::rig::*;

#[test]
fn the_zoo_made_through_fuse_is_what_linux_finds() {
    let mount = OnFuse::new(160, &Options::modern());
    let root = mount.path("zoo");
    fs::create_dir(&root).expect("a directory");
    on_path::perform(&root, &plan(41, Size::Small)).expect("the zoo");
    let through_fuse = of_host(&root, Listing::default()).expect("listed");
    let (_work, image) = mount.end();
    let run = kernel().run(&image, "treelist zoo >$OUT/tree").expect_ok();
    run.assert_no_f2fs_complaints();
    assert_same(("FUSE", &through_fuse), ("Linux", &printed(run.out(), "tree")));
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    let mount = OnFuse::new(64, &Options::default());
    let free = || rustix::fs::statvfs(&mount.root).expect("statvfs").f_bfree;
    let before = free();
    let mut file =
        OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("gone")).expect("created");
    let mut data = vec![0; 8 << 20];
    zoo::fill(1, 0, &mut data);
    file.write_all(&data).expect("written");
    file.sync_all().expect("synced");
    fs::remove_file(mount.path("gone")).expect("removed");
    file.sync_all().expect("a file without a name can be synced");
    file.write_all(b"more").expect("written");
    file.seek(SeekFrom::Start(0)).expect("back");
    let mut found = Vec::new();
    file.read_to_end(&mut found).expect("read");
    assert!(found.starts_with(&data) && found.ends_with(b"more"));
    assert_eq!(file.metadata().expect("stat").len(), data.len() as u64 + 4);
    assert!(free() + 2000 < before);
    drop(file);
    // The kernel releases a file after close has returned.
    let mut patience = 1000;
    while free() + 64 < before {
        assert!(patience > 0, "{} of {before} blocks are free", free());
        patience -= 1;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    mount.end();
}

#[test]
fn a_full_mount_says_so_and_can_be_emptied() {
    let mount = OnFuse::new(64, &Options::default());
    let data = vec![b'f'; 1 << 20];
    let room = rustix::fs::statvfs(&mount.root).expect("statvfs").f_bavail * 4096 / (1 << 20);
    for _ in 0..2 {
        let mut files = 0;
        let error = loop {
            assert!(files < 100, "64 MiB hold 100 MiB");
            let write = || -> std::io::Result<()> {
                let mut file = File::create(mount.path(&format!("f{files}")))?;
                file.write_all(&data)?;
                file.sync_all()
            };
            match write() {
                Ok(()) => files += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        assert!(files + 3 >= room, "only {files} of {room} MiB fit");
        for i in 0..files {
            assert!(fs::read(mount.path(&format!("f{i}"))).expect("read") == data, "file {i}");
        }
        for i in 0..=files {
            match fs::remove_file(mount.path(&format!("f{i}"))) {
                Err(e) if i < files || e.kind() != ErrorKind::NotFound => panic!("file {i}: {e}"),
                _ => {}
            }
        }
        File::open(&mount.root).expect("the root").sync_all().expect("synced");
    }
    mount.end();
}

#[test]
fn whoever_fills_a_mount_hears_of_it_and_loses_nothing() {
    // ScherlFS never writes in place: an overwrite takes space until the next transaction.
    for (mount, overwrites) in [(OnFuse::new(100, &Options::default()), true), (OnFuse::scherlfs(100), false)] {
        filling::fill_in_every_way(&mount.root, overwrites, |files| {
            // With another file system's strings: the kernel shows what is stored.
            for (path, size) in files {
                assert_eq!(fs::metadata(path).expect("stat").len(), *size);
            }
        });
        filling::change_small_files_while_full(&mount.root);
        mount.end();
    }
}

#[test]
fn what_was_told_to_be_written_before_a_volume_was_full_is_there_after_a_remount() {
    for mount in [OnFuse::new(64, &Options::default()), OnFuse::scherlfs(64)] {
        let files = filling::fill(&mount.root, filling::Way::Buffered, 1, true);
        let (work, image) = mount.end();
        let mount = OnFuse::mount(work, image);
        for (path, size) in &files {
            assert_eq!(fs::metadata(path).expect("stat").len(), *size, "the size has changed");
            filling::judge_contents(path, 0, filling::Way::Buffered, *size);
        }
        mount.end();
    }
}

/// Opens a file in each way that can change it, and returns the results.
fn openings(path: &Path) -> Vec<(&'static str, Option<i32>)> {
    let ways: [(&str, fn(&mut OpenOptions) -> &mut OpenOptions); 6] = [
        ("to read", |o| o.read(true)),
        ("to write", |o| o.write(true)),
        ("to read and write", |o| o.read(true).write(true)),
        ("to append", |o| o.append(true)),
        ("and truncate", |o| o.write(true).truncate(true)),
        ("or create", |o| o.write(true).create(true)),
    ];
    let open = |how: fn(&mut OpenOptions) -> &mut OpenOptions| {
        how(&mut OpenOptions::new()).open(path).err().and_then(|e| e.raw_os_error())
    };
    ways.map(|(way, how)| (way, open(how))).to_vec()
}

#[test]
fn an_immutable_and_an_append_only_file_are_refused_when_they_are_opened() {
    const PERM: Option<i32> = Some(1);
    for mount in [OnFuse::new(64, &Options::default()), OnFuse::scherlfs(64)] {
        let path = mount.path("sealed");
        fs::write(&path, "AAAA").expect("written");
        let seal = |flags: IFlags| {
            let file = File::open(&path).expect("opened to read");
            ioctl_setflags(&file, flags).expect("flags are set");
        };
        let mut before = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
        before.write_all_at(b"B", 3).expect("written");
        seal(IFlags::IMMUTABLE);
        let refused: Vec<bool> = openings(&path).iter().map(|(_, error)| *error == PERM).collect();
        assert_eq!(refused, [false, true, true, true, true, true], "immutable: {:?}", openings(&path));
        // Existing writers are refused, too, and early enough.
        for _ in 0..20 {
            // Whoever reads attributes first must not make the kernel trust them for the write.
            fs::metadata(&path).expect("stat");
            assert_eq!(before.write(b"C").err().and_then(|e| e.raw_os_error()), PERM, "a file that was open");
        }
        assert_eq!(fs::read(&path).expect("read"), b"AAAB");
        seal(IFlags::APPEND);
        let refused: Vec<bool> = openings(&path).iter().map(|(_, error)| *error == PERM).collect();
        assert_eq!(refused, [false, true, true, false, true, true], "append-only: {:?}", openings(&path));
        for text in ["12", "345"] {
            let mut file = OpenOptions::new().append(true).open(&path).expect("opened to append");
            file.write_all(text.as_bytes()).expect("appended");
            file.sync_all().expect("synced");
        }
        assert_eq!(fs::read(&path).expect("read"), b"AAAB12345");
        seal(IFlags::empty());
        assert!(openings(&path).iter().all(|(_, error)| error.is_none()), "{:?}", openings(&path));
        before.write_all(b"D").expect("a file that is no longer sealed");
        drop(before);
        mount.end();
    }
}

#[test]
fn whoever_takes_o_append_back_changes_no_byte_that_an_append_only_file_has() {
    for mount in [OnFuse::new(64, &Options::default()), OnFuse::scherlfs(64)] {
        let path = mount.path("log");
        fs::write(&path, "AAAA").expect("written");
        ioctl_setflags(File::open(&path).expect("opened to read"), IFlags::APPEND).expect("flags are set");
        let mut file = OpenOptions::new().read(true).append(true).open(&path).expect("opened to append");
        file.write_all(b"B").expect("appended");
        let flags = rustix::fs::fcntl_getfl(&file).expect("flags are read");
        rustix::fs::fcntl_setfl(&file, flags - OFlags::APPEND).expect("only the kernel hears of it");
        for at in [0, 4] {
            let refused = file.write_at(b"CC", at).err().and_then(|e| e.raw_os_error());
            assert_eq!(refused, Some(1), "a write at {at}");
        }
        file.write_all_at(b"D", 5).expect("a write at the end");
        file.sync_all().expect("synced");
        assert_eq!(fs::read(&path).expect("read"), b"AAAABD");
        drop(file);
        let (work, image) = mount.end();
        let mount = OnFuse::mount(work, image);
        assert_eq!(fs::read(mount.path("log")).expect("read"), b"AAAABD");
        mount.end();
    }
}

/// Changes a file in each way as a user who is neither its owner nor in its group.
const CHANGES: [(&str, &str); 7] = [
    ("write", "echo x 1<> $F"),
    ("append", "echo x >> $F"),
    ("truncate", "truncate -s 50 $F"),
    ("truncating open", ": > $F"),
    ("fallocate", "fallocate -l 200000 $F"),
    ("punch", "fallocate -p -o 0 -l 4096 $F"),
    (
        "copy_file_range",
        "python3 -c 'import os, sys; os.copy_file_range(os.open(sys.argv[1] + \"-from\", 0), os.open(sys.argv[1], 2), 100)' $F",
    ),
];

#[test]
fn a_stranger_who_changes_a_file_takes_the_bits_away_that_linux_takes() {
    let here = work_dir();
    let mounts = [OnFuse::new(64, &Options::default()), OnFuse::scherlfs(64)];
    let roots: Vec<&Path> = [here.path()].into_iter().chain(mounts.iter().map(|mount| mount.root.as_path())).collect();
    for root in &roots {
        let mut above = Some(*root);
        while let Some(dir) = above.filter(|dir| *dir != Path::new("/")) {
            fs::set_permissions(dir, Permissions::from_mode(0o777)).expect("chmod");
            above = dir.parent().filter(|dir| *dir != std::env::temp_dir() && *dir != Path::new("/dev/shm"));
        }
    }
    for groups in ["--clear-groups", "--groups=0"] {
        for mode in [0o2666, 0o2766, 0o6666, 0o2777, 0o6777, 0o4666] {
            for (what, script) in CHANGES {
                let after: Vec<u32> = roots
                    .iter()
                    .map(|root| {
                        let path = root.join("f");
                        fs::write(root.join("f-from"), vec![1; 1000]).expect("written");
                        fs::write(&path, vec![0; 100_000]).expect("written");
                        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
                        let mut command = Command::new("setpriv");
                        command.args(["--reuid=65534", "--regid=65534", groups, "--", "sh", "-c", script]);
                        let out = command.env("F", &path).output().expect("setpriv runs (package util-linux)");
                        assert!(out.status.success(), "{what}: {}", String::from_utf8_lossy(&out.stderr));
                        let mode = fs::metadata(&path).expect("stat").permissions().mode() & 0o7777;
                        fs::remove_file(&path).expect("removed");
                        mode
                    })
                    .collect();
                assert!(
                    after.iter().all(|mode| *mode == after[0]),
                    "{what} of {mode:o}, {groups}: the host, F2FS and ScherlFS leave {}",
                    after.iter().map(|mode| format!("{mode:o} ")).collect::<String>()
                );
            }
        }
    }
    mounts.into_iter().for_each(|mount| drop(mount.end()));
}

#[test]
fn a_mounted_image_cannot_be_mounted_again() {
    let mount = OnFuse::new(64, &Options::default());
    let again = FileDevice::open(&mount.image, Access::ReadWrite).expect_err("refused");
    assert!(again.to_string().contains(mount.image.to_str().expect("plain")), "{again}");
    let (_work, image) = mount.end();
    drop(mount_rw(&image));
}

#[test]
fn an_image_that_a_loop_device_holds_is_refused() {
    let work = work_dir();
    let image = work.path().join("volume.img");
    format(&image, 64 * MIB, &Options::default());
    let losetup = locate("losetup", "mount");
    let attached = Command::new(&losetup).args(["-f", "--show"]).arg(&image).output().expect("losetup");
    if !attached.status.success() {
        let why = String::from_utf8_lossy(&attached.stderr);
        return testlog::missing(format_args!("a loop device: {}", why.trim()));
    }
    let device = String::from_utf8_lossy(&attached.stdout).trim().to_owned();
    let refused = FileDevice::open(&image, Access::ReadWrite).err();
    let detached = Command::new(&losetup).arg("-d").arg(&device).status().expect("losetup");
    assert!(detached.success());
    let refused = refused.expect("an image that a loop device holds is refused");
    assert!(refused.to_string().contains("loop"), "{refused}");
}

/// Signals reach every mount of this process that listens, so the tests that send signals run one at a time.
static SIGNALS: Mutex<()> = Mutex::new(());

#[test]
fn sigterm_leaves_a_clean_volume_with_everything_on_it() {
    let _turn = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut mount = OnFuse::new(64, &Options::default());
    mount.unmount_on_signals();
    for i in 0..100 {
        fs::write(mount.path(&format!("f{i}")), format!("text {i}")).expect("written");
    }
    kill_process(getpid(), Signal::TERM).expect("signalled");
    let (_work, image) = mount.wait();
    assert_clean(&image);
    let tree = of_vfs(&*mount_ro(&image), Listing::default()).expect("listed");
    assert_eq!(tree.lines().filter(|l| l.starts_with("/f")).count(), 100, "{tree}");
}

#[test]
fn clients_at_once_do_not_disturb_each_other() {
    let mount = OnFuse::new(256, &Options::default());
    std::thread::scope(|scope| {
        for client in 0..4_u64 {
            let root = mount.path(&format!("c{client}"));
            scope.spawn(move || {
                fs::create_dir(&root).expect("a directory");
                let shared = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(root.join("../of-all"))
                    .expect("opened");
                let mut block = [0; 4096];
                let mut found = [0; 4096];
                for i in 0..400_u64 {
                    // Each client has its own blocks of one file, and its own small files.
                    let at = (i * 4 + client) * 4096;
                    zoo::fill(client, at, &mut block);
                    shared.write_all_at(&block, at).expect("written");
                    let name = root.join(format!("f{i}"));
                    fs::write(&name, &block[..(i * 7 % 4096) as usize]).expect("written");
                    if i % 5 == 0 {
                        fs::rename(&name, root.join(format!("r{i}"))).expect("renamed");
                    } else if i % 7 == 0 {
                        fs::remove_file(&name).expect("removed");
                    }
                    if i % 50 == 0 {
                        shared.sync_data().expect("synced");
                    }
                }
                for i in 0..400_u64 {
                    let at = (i * 4 + client) * 4096;
                    zoo::fill(client, at, &mut block);
                    shared.read_exact_at(&mut found, at).expect("read");
                    assert!(found == block, "client {client}, block {i}");
                }
            });
        }
    });
    let seen = of_host(&mount.root, Listing::default()).expect("listed");
    let (_work, image) = mount.end();
    let after = of_vfs(&*mount_ro(&image), Listing::default()).expect("listed");
    assert_same(("mounted", &seen), ("on the image", &after));
}
