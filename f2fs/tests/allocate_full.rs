//! Shifting blocks of a file works even without free space; if nodes for them do not fit, nothing changes.

use device::{Loss, PowerCut};
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use vfs::{Allocate, Error, FileSystem, Ino, SetAttr, WriteFlags};

use crate::log_rig::*;

/// Fills the volume except for `left` blocks.
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

/// Which of a file's blocks exist; the others are holes.
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
fn a_shift_takes_no_room_where_no_node_is_missing() {
    use Shape::*;
    for (shape, left) in [(Whole, 3), (Whole, 0), (Odd, 3), (Odd, 0), (Odd, 7), (SecondHalf, 5)] {
        let (vol, f, before) = file(41, shape, left);
        let free = vol.statfs().unwrap().blocks_free;
        vol.fallocate(f, Allocate::Insert, 4096, 19 * 4096).unwrap();
        let after = [&before[..4096], &vec![0; 19 * 4096], &before[4096..]].concat();
        assert!(read_all(&vol, f) == after, "{shape:?}, {left} left");
        assert_eq!(vol.statfs().unwrap().blocks_free, free, "{shape:?}, {left} left");
        vol.fallocate(f, Allocate::Collapse, 4096, 19 * 4096).unwrap();
        assert!(read_all(&vol, f) == before, "{shape:?}, {left} left");
        assert_eq!(vol.statfs().unwrap().blocks_free, free, "{shape:?}, {left} left");
        vol.unmount().unwrap();
    }
}

#[test]
fn a_shift_without_room_for_its_nodes_changes_nothing() {
    for (shape, left) in [(Shape::Whole, 0), (Shape::Odd, 1), (Shape::SecondHalf, 2)] {
        let (vol, f, before) = file(41, shape, left);
        let free = vol.statfs().unwrap().blocks_free;
        for blocks in [1000, 100_000, 10_000_000] {
            let out = vol.fallocate(f, Allocate::Insert, 4096, blocks * 4096);
            assert_eq!(out, Err(Error::NoSpace), "{shape:?}, {left} left");
            assert!(read_all(&vol, f) == before, "{shape:?}, {left} left: half done");
            assert_eq!(vol.statfs().unwrap().blocks_free, free, "{shape:?}, {left} left");
        }
        vol.unmount().unwrap();
    }
}

/// A file that uses most of a volume's blocks, and its contents.
fn most_of_it() -> (std::sync::Arc<PowerCut>, std::sync::Arc<Volume>, Ino, Vec<u8>) {
    let dev = power_cut(&formatted(128, &Options::default()));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    let room = vol.statfs().unwrap().blocks_free;
    for i in 0..room * 19 / 20 / 64 {
        write(&vol, f, i * 64 * 4096, &pattern(i, 64 * 4096));
    }
    vol.sync().unwrap();
    let contents = read_all(&vol, f);
    (dev, vol, f, contents)
}

#[test]
fn more_blocks_than_the_log_has_room_for_are_shifted_all_the_same() {
    for what in [Allocate::Collapse, Allocate::Insert] {
        let (dev, vol, f, before) = most_of_it();
        vol.fallocate(f, what, 4096, 8192).unwrap();
        let after = match what {
            Allocate::Insert => [&before[..4096], &[0; 8192], &before[4096..]].concat(),
            _ => [&before[..4096], &before[12_288..]].concat(),
        };
        assert!(read_all(&vol, f) == after, "{what:?}");
        vol.unmount().unwrap();
        let image = dev.image(Loss::AllLost);
        assert_clean(&image, "unmounted");
        assert_tools_clean(&image);
    }
}

#[test]
fn a_long_shift_cut_at_any_write_leaves_the_gap_on_its_way_and_loses_nothing() {
    for what in [Allocate::Collapse, Allocate::Insert] {
        let (mut cuts, mut between) = (1, 0);
        loop {
            let (dev, vol, f, before) = most_of_it();
            dev.cut_after(dev.write_count() + cuts);
            let done = vol.fallocate(f, what, 4096, 8192).is_ok();
            drop(vol);
            if done {
                break;
            }
            for loss in [Loss::AllKept, Loss::AllLost, Loss::Random(cuts)] {
                recovered(&dev.image(loss), |vol| {
                    let now = read_all(vol, find(vol, "f").unwrap());
                    if now == before {
                        return;
                    }
                    let hole = [0; 8192];
                    let way = (4096..=now.len() - 8192).step_by(4096).find(|&gap| match what {
                        // Behind the gap blocks have their new places, before it their old ones; or vice versa.
                        Allocate::Insert => {
                            now.len() == before.len() + 8192
                                && now[gap..gap + 8192] == hole
                                && now[..gap] == before[..gap]
                                && now[gap + 8192..] == before[gap..]
                        }
                        _ => {
                            now[gap..gap + 8192] == hole
                                && now[..4096] == before[..4096]
                                && now[4096..gap] == before[12_288..gap + 8192]
                                && now[gap + 8192..] == before[gap + 8192..]
                        }
                    });
                    let whole = now[..4096] == before[..4096] && now[4096..] == before[12_288..];
                    let shifted = what == Allocate::Collapse && whole;
                    assert!(way.is_some() || shifted, "{what:?}, cut after {cuts}, {loss:?}");
                    between += u32::from(way.is_some_and(|gap| gap > 4096 && gap < now.len() - 16_384));
                });
            }
            cuts += 9;
        }
        assert!(between > 3, "{what:?}: no cut met a gap on its way");
    }
}

#[test]
fn a_shift_synced_on_a_full_volume_is_there_after_a_power_cut() {
    // The operation, the file's existing blocks, the position, and the number of inserted or collapsed blocks.
    type Case = (Allocate, Vec<u64>, u64, u64);
    let cases: [Case; 2] = [
        (Allocate::Insert, (823..923).chain([1423]).collect(), 0, 100),
        (Allocate::Collapse, (30..39).collect(), 0, 10),
    ];
    for (what, there, at, by) in cases {
        for left in [0, 3, 60] {
            let dev = power_cut(&formatted(64, &Options::default()));
            let vol = mount(dev.clone());
            let f = new_file(&vol, vol.root(), "f");
            there.iter().for_each(|&i| write(&vol, f, i * 4096, &pattern(i, 4096)));
            let size = Some((there.last().unwrap() + 60) * 4096);
            vol.setattr(f, &SetAttr { size, ..SetAttr::default() }).unwrap();
            if what == Allocate::Insert {
                // The node to which its blocks move exists.
                write(&vol, f, 923 * 4096, &pattern(923, 4096));
            }
            fill(&vol, left);
            vol.sync().unwrap();
            vol.fallocate(f, what, at * 4096, by * 4096).unwrap();
            vol.fsync(f, false).unwrap();
            let after = read_all(&vol, f);
            drop(vol);
            recovered(&dev.image(Loss::AllLost), |vol| {
                assert!(read_all(vol, find(vol, "f").unwrap()) == after, "{what:?}, {left} left");
            });
        }
    }
}
