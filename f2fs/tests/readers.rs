//! What does a reader wait for? Not for writers of other inodes: neither for a checkpoint that writes tables or nodes,
//! nor for the NAT block of another node.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use device::{Gate, Memory, Op};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{FileSystem, Ino, SetAttr};

use crate::log_rig::*;

const FILES: usize = 1200;

/// A newly mounted volume with empty caches and files whose nodes have entries in three NAT blocks.
fn with_files(mib: u64) -> (Arc<Gate<Memory>>, Arc<Volume>, Vec<Ino>) {
    let inner: Memory = formatted(mib, &Options::default());
    let dev = Arc::new(Gate::new(inner));
    let vol = Volume::mount(dev.clone(), clock(), MountOptions::default()).unwrap();
    let files = (0..FILES).map(|i| new_file(&vol, vol.root(), &format!("f{i}"))).collect();
    vol.unmount().unwrap();
    let vol = Volume::mount(dev.clone(), clock(), MountOptions::default()).unwrap();
    (dev, vol, files)
}

fn touch(vol: &Volume, ino: Ino) {
    vol.setattr(ino, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
}

/// True if `reader` ends while a request of that kind from `writer` is blocked.
fn ends_meanwhile(
    dev: &Gate<Memory>,
    stop: (Op, Cause),
    writer: impl FnOnce() + Send,
    reader: impl FnOnce() + Send,
) -> bool {
    dev.stop(stop.0, Some(stop.1.tag().cause));
    std::thread::scope(|s| {
        s.spawn(writer);
        assert!(dev.await_one());
        let (done, ended) = channel();
        s.spawn(move || {
            reader();
            done.send(()).unwrap();
        });
        let in_time = ended.recv_timeout(Duration::from_secs(10)).is_ok();
        dev.go_on();
        in_time
    })
}

#[test]
fn a_reader_does_not_wait_for_a_checkpoint_that_writes_the_nat() {
    let (dev, vol, files) = with_files(64);
    // More entries than the journal holds.
    files[..200].iter().for_each(|f| touch(&vol, *f));
    let read = || {
        // In the same NAT block and another, changed and not, in memory and not.
        for i in [0, 150, 300, 1100] {
            assert_eq!(vol.lookup(vol.root(), format!("f{i}").as_bytes()).unwrap().attr.ino, files[i]);
            assert_eq!(vol.read(files[i], 0, &mut [0; 8]).unwrap(), 0);
            assert_eq!(vol.getattr(files[i]).unwrap().perm == 0o600, i < 200);
        }
    };
    assert!(ends_meanwhile(&dev, (Op::Write, Cause::Nat), || vol.sync().unwrap(), read));
    vol.unmount().unwrap();
    let vol = Volume::mount(dev, clock(), MountOptions::default()).unwrap();
    assert!((0..FILES).all(|i| (vol.getattr(files[i]).unwrap().perm == 0o600) == (i < 200)));
}

#[test]
fn a_reader_does_not_wait_for_the_nat_block_of_another_node() {
    let (dev, vol, files) = with_files(64);
    vol.getattr(files[0]).unwrap();
    let slow = || assert_eq!(vol.getattr(files[1100]).unwrap().ino, files[1100]);
    let read = || assert_eq!(vol.getattr(files[1]).unwrap().ino, files[1]);
    assert!(ends_meanwhile(&dev, (Op::Read, Cause::Nat), slow, read));
}

#[test]
fn a_reader_does_not_wait_for_nodes_of_others_on_their_way_to_the_device() {
    // Large enough that this many dirty nodes wait for the checkpoint, which writes them by the mebibyte.
    let (dev, vol, files) = with_files(1024);
    files[..600].iter().for_each(|f| touch(&vol, *f));
    // A writer of many nodes is stopped while it holds some of them.
    let read = || files.iter().for_each(|f| assert_eq!(vol.getattr(*f).unwrap().ino, *f));
    assert!(ends_meanwhile(&dev, (Op::Write, Cause::Node), || vol.sync().unwrap(), read));
}
