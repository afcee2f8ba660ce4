//! After a power cut a file has its synced size, whatever blocks it has behind its end.

use std::sync::Arc;

use device::{Fault, Faulty, Loss, Op, PowerCut};
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use vfs::{Allocate, Error, FileSystem, Ino, SetAttr, WriteFlags};

use crate::log_rig::*;

fn set_size(vol: &Volume, ino: Ino, size: u64) {
    vol.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

/// Fills the volume except for about `left` blocks.
fn fill(vol: &Volume, left: u64) {
    let f = new_file(vol, vol.root(), "filler");
    let block = vec![9; 1 << 20];
    let mut at = 0;
    loop {
        let free = vol.statfs().unwrap().blocks_free.saturating_sub(left);
        let n = (free * 4096).min(1 << 20) as usize;
        match n {
            0 => return,
            n => at += vol.write(f, at, &block[..n], WriteFlags::empty()).unwrap() as u64,
        }
    }
}

#[test]
fn a_file_extended_into_what_was_reserved_behind_its_end_keeps_its_size() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    write(&vol, f, 0, &[1; 10]);
    vol.sync().unwrap();
    vol.fallocate(f, Allocate::Reserve { keep_size: true }, 0, 1 << 20).unwrap();
    set_size(&vol, f, 5000);
    vol.fsync(f, false).unwrap();
    recovered(&dev.image(Loss::AllLost), |vol| {
        assert_eq!(read_all(vol, find(vol, "f").unwrap()).len(), 5000);
    });
}

#[test]
fn a_reservation_that_ran_out_of_room_does_not_lengthen_a_file_after_a_cut() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    write(&vol, f, 0, &[1; 5000]);
    fill(&vol, 300);
    vol.sync().unwrap();
    assert_eq!(vol.fallocate(f, Allocate::Reserve { keep_size: false }, 0, 8 << 20), Err(Error::NoSpace));
    vol.fsync(f, false).unwrap();
    let size = vol.getattr(f).unwrap().size;
    recovered(&dev.image(Loss::AllLost), |vol| {
        assert_eq!(read_all(vol, find(vol, "f").unwrap()).len() as u64, size);
    });
}

#[test]
fn a_change_that_could_not_read_the_last_block_does_not_lengthen_a_file_after_a_cut() {
    let changes: [fn(&Volume, Ino) -> vfs::Result<()>; 3] = [
        |v, f| v.write(f, 5000, &[2; 20_000], WriteFlags::empty()).map(drop),
        |v, f| v.fallocate(f, Allocate::Reserve { keep_size: false }, 0, 1 << 20),
        |v, f| v.fallocate(f, Allocate::Zero { keep_size: false }, 8192, 1 << 20),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let image = Arc::new(formatted(64, &Options::default()));
        {
            let vol = mount(image.clone());
            let f = new_file(&vol, vol.root(), "f");
            write(&vol, f, 0, &[1; 5000]);
            vol.unmount().unwrap();
        }
        let dev = Arc::new(Faulty::new(PowerCut::new(image.fork())));
        let vol = mount(dev.clone());
        let f = find(&vol, "f").unwrap();
        vol.setattr(f, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
        dev.add(Fault::Place { op: Op::Read, blocks: 0..u64::MAX });
        let out = change(&vol, f);
        assert!(matches!(out, Err(Error::Device(_))), "change {i}: {out:?}");
        dev.heal();
        vol.fsync(f, false).unwrap();
        assert_eq!(vol.getattr(f).unwrap().size, 5000, "change {i}");
        recovered(&dev.inner().image(Loss::AllLost), |vol| {
            assert!(read_all(vol, find(vol, "f").unwrap()) == [1; 5000], "change {i}");
        });
    }
}

#[test]
fn a_shift_cut_at_any_write_leaves_the_file_as_it_was_or_shifted() {
    for (name, what) in [("f", Allocate::Insert), ("f", Allocate::Collapse), ("f.mp4", Allocate::Insert)] {
        let mut cuts = 0;
        loop {
            let dev = power_cut(&formatted(64, &Options::default()));
            let vol = mount(dev.clone());
            let f = new_file(&vol, vol.root(), name);
            let old: Vec<u8> = (0..6).flat_map(|i| pattern(i, 4096)).collect();
            write(&vol, f, 0, &old);
            vol.sync().unwrap();
            let new = match what {
                Allocate::Insert => [&[0; 4096], &old[..]].concat(),
                _ => old[4096..].to_vec(),
            };
            vol.fallocate(f, what, 0, 4096).unwrap();
            dev.cut_after(dev.write_count() + cuts);
            let done = vol.fsync(f, false).is_ok();
            drop(vol);
            for loss in [Loss::AllKept, Loss::AllLost] {
                recovered(&dev.image(loss), |vol| {
                    let there = read_all(vol, find(vol, name).unwrap());
                    assert!(there == new || (!done && there == old), "{name}, {what:?}, cut after {cuts}, {loss:?}");
                });
            }
            if done {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 1, "{name}, {what:?}: there was nothing to cut");
    }
}
