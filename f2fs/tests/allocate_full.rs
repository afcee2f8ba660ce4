//! Blocks of a file are shifted whole or not at all, also where there is no room left.

mod log_rig;

use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use log_rig::*;
use vfs::{Allocate, Error, FileSystem, Ino, SetAttr, WriteFlags};

/// Fills the volume but for `left` blocks.
fn fill(vol: &Volume, left: u64) {
    let f = new_file(vol, vol.root(), "filler");
    let (bytes, mut at) = (vec![9; 1 << 20], 0);
    loop {
        let free = vol.statfs().unwrap().blocks_free.saturating_sub(left);
        let n = (free * 4096).min(1 << 20) as usize;
        if n == 0 {
            return;
        }
        match vol.write(f, at, &bytes[..n], WriteFlags::empty()) {
            Ok(n) => at += n as u64,
            Err(Error::NoSpace) => return,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Which of a file's blocks are there, the others being holes.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Whole,
    Odd,
    SecondHalf,
}

/// A file of `blocks` blocks on a volume with `left` blocks free.
fn file(blocks: u64, shape: Shape, left: u64) -> (std::sync::Arc<Volume>, Ino, Vec<u8>) {
    let vol = mount(std::sync::Arc::new(formatted(64, &Options::default())));
    let f = new_file(&vol, vol.root(), "f");
    let there = |i: &u64| match shape {
        Shape::Whole => true,
        Shape::Odd => i % 2 == 1,
        Shape::SecondHalf => *i >= blocks / 2,
    };
    for i in (0..blocks).filter(there) {
        write(&vol, f, i * 4096, &pattern(i, 4096));
    }
    vol.setattr(f, &SetAttr { size: Some(blocks * 4096), ..SetAttr::default() }).unwrap();
    fill(&vol, left);
    vol.sync().unwrap();
    let data = read_all(&vol, f);
    (vol, f, data)
}

#[test]
fn an_insert_without_room_leaves_the_file_as_it_was() {
    use Shape::*;
    for (shape, left) in [(Whole, 3), (Whole, 0), (Odd, 3), (Odd, 0), (Odd, 7), (SecondHalf, 5)] {
        let (vol, f, before) = file(41, shape, left);
        let free = vol.statfs().unwrap().blocks_free;
        let out = vol.fallocate(f, Allocate::Insert, 4096, 19 * 4096);
        assert_eq!(out, Err(Error::NoSpace), "{shape:?}, {left} left");
        assert!(read_all(&vol, f) == before, "{shape:?}, {left} left: half done");
        assert_eq!(vol.statfs().unwrap().blocks_free, free, "{shape:?}, {left} left");
    }
}

#[test]
fn a_collapse_without_room_leaves_the_file_as_it_was_or_is_done() {
    use Shape::*;
    for (shape, left, by) in [(Whole, 0, 3), (Odd, 0, 3), (Odd, 2, 3), (SecondHalf, 0, 10), (SecondHalf, 4, 10)] {
        let (vol, f, before) = file(41, shape, left);
        let mut after = before.clone();
        after.drain(4096..(1 + by) * 4096);
        match vol.fallocate(f, Allocate::Collapse, 4096, by as u64 * 4096) {
            Ok(()) => assert!(read_all(&vol, f) == after, "{shape:?}, {left} left"),
            Err(Error::NoSpace) => assert!(read_all(&vol, f) == before, "{shape:?}, {left} left: half done"),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn a_shift_of_more_than_the_log_has_room_for_changes_nothing() {
    for what in [Allocate::Collapse, Allocate::Insert] {
        let vol = mount(std::sync::Arc::new(formatted(128, &Options::default())));
        let f = new_file(&vol, vol.root(), "f");
        let room = vol.statfs().unwrap().blocks_free;
        for i in 0..room * 9 / 10 / 64 {
            write(&vol, f, i * 64 * 4096, &pattern(i, 64 * 4096));
        }
        vol.sync().unwrap();
        let before = read_all(&vol, f);
        assert_eq!(vol.fallocate(f, what, 0, 4096), Err(Error::NoSpace), "{what:?}");
        assert!(read_all(&vol, f) == before, "{what:?}: half done");
        // And the volume goes on.
        vol.sync().unwrap();
        write(&vol, f, 0, b"on");
        vol.unlink(vol.root(), b"f").unwrap();
        vol.sync().unwrap();
        vol.unmount().unwrap();
    }
}
