//! Where the blocks of a defragmented file go, which requests that takes, and how it changes the rest of the volume.
//! That the file itself stays unchanged: `defragment.rs`.

use std::sync::Arc;

use device::{BlockDevice, Counting, Lba, Loss, Memory, Tag};
use format::inode::{self, RawInode};
use format::node;
use format::sit::LogType;
use format::superblock::SuperBlock;
use format::{BlockAddr, Ino as Number};
use inspect::{Progress, Volume as Seen};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use judges::damage::block;
use trials::crash::defragment;
use vfs::{Allocate, Error, FileSystem, Ino, Moving};

use crate::log_rig::pieces;
use crate::log_rig::*;

fn seen(image: &dyn BlockDevice) -> Seen {
    let options = inspect::Options { extents: true, ..inspect::Options::default() };
    Seen::read(image, &options, &mut Progress::new(&mut |_| true)).unwrap()
}

fn file(seen: &Seen, ino: Ino) -> &inspect::File {
    seen.files.iter().find(|f| u64::from(f.ino.0) == ino.0).unwrap()
}

/// Files that grow alternately, a synced block at a time.
fn grow_by_turns(vol: &Volume, names: &[&str], blocks: u64) -> Vec<Ino> {
    let files: Vec<Ino> = names.iter().map(|name| new_file(vol, vol.root(), name)).collect();
    for n in 0..blocks {
        for f in &files {
            write(vol, *f, n * 4096, &pattern(n, 4096));
            vol.fsync(*f, false).unwrap();
        }
    }
    files
}

#[test]
fn each_file_goes_to_the_log_of_its_temperature() {
    let image = Arc::new(formatted(256, &Options::default()));
    let vol = mount(image.clone());
    let files = grow_by_turns(&vol, &["film.mp4", "chat.db", "plain"], 100);
    for f in &files {
        assert_eq!(defragment(&*vol, *f, 0, Moving::Copy).unwrap(), 100);
    }
    vol.unmount().unwrap();
    let seen = seen(&*image);
    let logs: Vec<_> = files.iter().map(|f| file(&seen, *f).layout.log.unwrap()).collect();
    assert_eq!(logs, [LogType::ColdData, LogType::HotData, LogType::WarmData]);
}

#[test]
fn neighbours_are_read_at_once_whatever_their_order_and_all_is_booked_as_defragmentation() {
    let dev = Arc::new(Counting::new(formatted(256, &Options::default())));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    for n in (0..100u64).rev() {
        write(&vol, f, n * 4096, &pattern(n, 4096));
        vol.fsync(f, false).unwrap();
    }
    vol.sync().unwrap();
    assert_eq!(pieces(&vol, f), 100);
    let before = dev.snapshot();
    assert_eq!(vol.defragment(f, 0..100, Moving::Copy).unwrap(), (100, 100));
    let spent = &dev.snapshot() - &before;
    let own = spent[Cause::Defragment as u8];
    assert_eq!((own.blocks_read, own.blocks_written), (100, 100));
    // There may be a segment boundary between.
    assert!(own.reads <= 2 && own.writes <= 2, "{own:?}");
    assert_eq!(spent[Cause::UserData as u8].blocks_written, 0);
}

#[test]
fn segments_are_as_old_as_what_came_and_what_went() {
    let image = Arc::new(formatted(256, &Options::default()));
    let clock = clock();
    let vol = Volume::mount(image.clone(), clock.clone(), MountOptions::default()).unwrap();
    let files = grow_by_turns(&vol, &["f", "g"], 400);
    vol.sync().unwrap();
    let mtime = |seen: &Seen, at: BlockAddr| seen.segments.segment(seen.superblock.locate(at).unwrap().0).mtime;
    let address = |n: usize| BlockAddr(vol.extents(files[0], 0, usize::MAX).unwrap()[n].addr as u32);
    let old = address(0);
    clock.advance(std::time::Duration::from_secs(1_000_000));
    assert_eq!(defragment(&*vol, files[0], 0, Moving::Copy).unwrap(), 400);
    let new = address(0);
    vol.unmount().unwrap();
    let seen = seen(&*image);
    assert_ne!(seen.superblock.locate(old).unwrap().0, seen.superblock.locate(new).unwrap().0);
    // The mean over blocks written and removed there, some of them early.
    assert!(mtime(&seen, new) > 900_000, "{}", mtime(&seen, new));
    assert!(mtime(&seen, old) > 100_000, "{}", mtime(&seen, old));
}

#[test]
fn all_torn_stretches_of_a_file_are_brought_together_at_once() {
    let vol = mount(Arc::new(formatted(256, &Options::default())));
    let f = grow_by_turns(&vol, &["f", "g"], 90)[0];
    for hole in [30, 60] {
        vol.fallocate(f, Allocate::PunchHole, hole * 4096, 4096).unwrap();
    }
    assert_eq!(vol.bring_together(f, Moving::Copy).unwrap(), 88);
    assert_eq!(pieces(&vol, f), 3);
    assert_eq!(vol.bring_together(f, Moving::Copy).unwrap(), 0);
}

#[test]
fn no_hole_is_filled_by_a_log_that_stands_in_a_segment_with_holes() {
    let image = Arc::new(formatted(256, &Options::default()));
    let vol = mount(image.clone());
    let f = grow_by_turns(&vol, &["f", "g"], 200)[0];
    let holed = new_file(&vol, vol.root(), "holed");
    write(&vol, holed, 0, &pattern(5, 6 << 20));
    vol.sync().unwrap();
    for n in 0..768 {
        vol.fallocate(holed, Allocate::PunchHole, n * 8192, 4096).unwrap();
    }
    vol.sync().unwrap();
    // The log of warm data fills holes, and continues to.
    vol.tune("gc_urgent", "1").unwrap();
    let filler = new_file(&vol, vol.root(), "filler");
    write(&vol, filler, 0, &pattern(6, 600 * 4096));
    vol.fsync(filler, false).unwrap();
    assert!(pieces(&vol, filler) > 20, "{} pieces: no hole was filled", pieces(&vol, filler));
    vol.tune("gc_urgent", "0").unwrap();
    assert_eq!(defragment(&*vol, f, 0, Moving::Copy).unwrap(), 200);
    assert!(pieces(&vol, f) <= 2, "{} pieces", pieces(&vol, f));
}

/// Changes the addresses of a file's inode on an unmounted volume.
fn readdress(image: &Memory, ino: Ino, change: impl Fn(&SuperBlock, &mut [BlockAddr; 10])) {
    let sb = SuperBlock::check(&block(image, 0)).unwrap();
    let seed = inode::checksum_seed(&sb.uuid);
    for at in u64::from(sb.main.0)..image.blocks() {
        let mut bytes = block(image, at);
        let f = node::footer(&bytes);
        if f.ino != Number(ino.0 as u32)
            || f.nid != f.ino.nid()
            || inode::verify_checksum(sb.features, seed, &bytes).is_err()
        {
            continue;
        }
        let raw = RawInode::of_mut(&mut bytes);
        let Ok(division) = raw.divide(sb.features) else { continue };
        let mut all = std::array::from_fn(|slot| raw.addr(division, slot as u32));
        change(&sb, &mut all);
        (0..).zip(all).for_each(|(slot, to)| raw.set_addr(division, slot, to));
        inode::seal(sb.features, seed, &mut bytes);
        image.write(Lba(at), &bytes[..], Tag::default()).unwrap();
    }
}

#[test]
fn wrong_addresses_are_told_and_nothing_is_moved() {
    type Change = fn(&SuperBlock, &mut [BlockAddr; 10]);
    let outside: Change = |_, all| all[4] = BlockAddr(3);
    let twice: Change = |_, all| all[4] = all[7];
    let free: Change = |sb, all| all[4] = sb.main.plus(sb.main_segs * 512 - 9);
    for (change, why) in
        [(outside, "file block 4: address 0x3 is outside the main area"), (twice, "twice in one file"), (free, "")]
    {
        let image = Arc::new(formatted(256, &Options::default()));
        let vol = mount(image.clone());
        let f = grow_by_turns(&vol, &["f", "g"], 10)[0];
        vol.unmount().unwrap();
        readdress(&image, f, change);
        let vol = mount(image.clone());
        let before = vol.extents(f, 0, usize::MAX).unwrap();
        match vol.defragment(f, 0..10, Moving::Copy) {
            Err(Error::Corrupt(said)) => assert!(said.contains(why), "{said}"),
            other => panic!("{why}: {other:?}"),
        }
        assert_eq!(vol.extents(f, 0, usize::MAX).unwrap(), before, "{why}");
    }
}

#[test]
fn a_page_shown_elsewhere_stays_where_the_last_checkpoint_names_it() {
    let cut = power_cut(&formatted(256, &Options::default()));
    let vol = mount(cut.clone());
    let f = grow_by_turns(&vol, &["f", "g"], 100)[0];
    vol.sync().unwrap();
    assert_eq!(vol.defragment(f, 0..100, Moving::Share).unwrap(), (100, 100));
    for loss in [Loss::AllKept, Loss::AllLost] {
        let found = recovered(&cut.image(loss), |vol| read_all(vol, f));
        assert!(found == (0..100).flat_map(|n| pattern(n, 4096)).collect::<Vec<u8>>(), "{loss:?}");
    }
}
