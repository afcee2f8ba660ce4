//! A sync during another thread's checkpoint or fsync makes its own changes durable.

use std::sync::Arc;
use std::time::Duration;

use device::{Fault, Faulty, Gate, Loss, Op, PowerCut};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::mkfs::Options;
use vfs::{FileSystem, RenameFlags};

use crate::log_rig::*;

/// A device on which one request can be blocked, and may then fail.
fn gate(inner: Arc<PowerCut>) -> Arc<Gate<Faulty<Arc<PowerCut>>>> {
    Arc::new(Gate::new(Faulty::new(inner)))
}

/// Long enough for a thread to reach the lock that it waits for.
const A_WHILE: Duration = Duration::from_millis(200);

#[test]
fn what_waited_for_a_checkpoint_to_end_is_in_the_next_one() {
    for by_directory in [true, false] {
        let cut = power_cut(&formatted(64, &Options::default()));
        let dev = gate(cut.clone());
        let vol = mount(dev.clone());
        new_file(&vol, vol.root(), "first");
        // The nodes of a checkpoint.
        dev.stop(Op::Write, Some(Cause::Node.tag().cause));
        std::thread::scope(|s| {
            s.spawn(|| vol.sync().unwrap());
            assert!(dev.await_one());
            let waits = s.spawn(|| new_file(&vol, vol.root(), "second"));
            std::thread::sleep(A_WHILE);
            dev.go_on();
            waits.join().unwrap();
        });
        match by_directory {
            true => vol.fsyncdir(vol.root(), false).unwrap(),
            false => vol.sync().unwrap(),
        }
        recovered(&cut.image(Loss::AllLost), |vol| {
            assert!(find(vol, "first").is_some());
            assert!(find(vol, "second").is_some(), "synced by its directory: {by_directory}");
        });
    }
}

#[test]
fn a_flush_that_failed_for_one_is_not_made_good_by_the_next_for_another() {
    let cut = power_cut(&formatted(64, &Options::default()));
    let dev = gate(cut.clone());
    let vol = mount(dev.clone());
    let files = ["one", "two"].map(|name| new_file(&vol, vol.root(), name));
    files.iter().for_each(|&f| write(&vol, f, 0, &[1; 9000]));
    vol.sync().unwrap();
    // Both overwrite in place and need one flush each.
    files.iter().for_each(|&f| write(&vol, f, 0, &[2; 4096]));
    dev.stop(Op::Flush, None);
    let next = dev.inner().requests(Op::Flush) + 1;
    dev.inner().add(Fault::Nth { op: Op::Flush, requests: next..next + 1 });
    std::thread::scope(|s| {
        let first = s.spawn(|| vol.fsync(files[0], true));
        assert!(dev.await_one());
        let second = s.spawn(|| vol.fsync(files[1], true));
        std::thread::sleep(A_WHILE);
        dev.go_on();
        assert!(first.join().unwrap().is_err());
        // Its writes may be among those lost by the failed flush.
        assert!(second.join().unwrap().is_err());
    });
}

#[test]
fn an_fsync_of_a_directory_waits_for_a_name_that_another_fsync_has_on_its_way() {
    let cut = power_cut(&formatted(64, &Options::default()));
    let dev = gate(cut.clone());
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    dev.stop(Op::Write, Some(Cause::FsyncNode.tag().cause));
    std::thread::scope(|s| {
        let file = s.spawn(|| vol.fsync(f, false).unwrap());
        assert!(dev.await_one());
        let directory = s.spawn(|| vol.fsyncdir(vol.root(), false).unwrap());
        std::thread::sleep(A_WHILE);
        assert!(!directory.is_finished(), "the name is not on the device");
        dev.go_on();
        directory.join().unwrap();
        let image = cut.image(Loss::AllLost);
        file.join().unwrap();
        recovered(&image, |vol| assert!(find(vol, "f").is_some()));
    });
    assert_eq!(vol.counters.fast_dir_fsyncs.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn an_fsync_that_finds_everything_taken_up_by_another_waits_until_the_device_has_it() {
    // Contents at a new address, contents in place, and contents in the inode only.
    for (before, cause) in [(0, Cause::FsyncNode), (9000, Cause::UserData), (9000, Cause::FsyncNode)] {
        let cut = power_cut(&formatted(64, &Options::default()));
        let dev = gate(cut.clone());
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &vec![1; before]);
        vol.sync().unwrap();
        write(&vol, f, 0, &[2; 6000]);
        dev.stop(Op::Write, Some(cause.tag().cause));
        let early = std::thread::scope(|s| {
            let first = s.spawn(|| vol.fsync(f, false));
            assert!(dev.await_one());
            let second = s.spawn(|| vol.fsync(f, false));
            std::thread::sleep(A_WHILE);
            let early = second.is_finished().then(|| cut.image(Loss::AllLost));
            dev.go_on();
            first.join().unwrap().unwrap();
            second.join().unwrap().unwrap();
            early
        });
        for image in early.iter().chain([&cut.image(Loss::AllLost)]) {
            recovered(image, |vol| {
                let bytes = read_all(vol, find(vol, "f").unwrap());
                assert!(bytes.starts_with(&[2; 6000]), "{before} {cause:?}, early: {}", early.is_some());
            });
        }
        vol.unmount().unwrap();
        assert_tools_clean(&cut.image(Loss::AllLost));
    }
}

#[test]
fn a_rename_during_an_fsync_of_the_file_comes_before_it_or_after_it() {
    for flags in [RenameFlags::EXCHANGE, RenameFlags::empty()] {
        let cut = power_cut(&formatted(64, &Options::default()));
        let dev = gate(cut.clone());
        let vol = mount(dev.clone());
        let one = new_file(&vol, vol.root(), "one");
        vol.fsync(one, false).unwrap();
        let two = new_file(&vol, vol.root(), "two");
        write(&vol, two, 0, &[1; 9000]);
        // The fsync has decided how to make the file durable, but has not written its inode.
        dev.stop(Op::Write, Some(Cause::UserData.tag().cause));
        std::thread::scope(|s| {
            let fsync = s.spawn(|| vol.fsync(two, false));
            assert!(dev.await_one());
            let to: &[u8] = if flags.is_empty() { b"three" } else { b"one" };
            let rename = s.spawn(|| vol.rename(ROOT, (vol.root(), b"two"), (vol.root(), to), flags));
            std::thread::sleep(A_WHILE);
            dev.go_on();
            fsync.join().unwrap().unwrap();
            rename.join().unwrap().unwrap();
        });
        let names = recovered(&cut.image(Loss::AllLost), |vol| ["one", "two", "three"].map(|name| find(vol, name)));
        let before = [Some(one), Some(two), None];
        let after = if flags.is_empty() { [Some(one), None, Some(two)] } else { [Some(two), Some(one), None] };
        assert!([before, after].contains(&names), "both files were synced: {names:?}");
    }
}
