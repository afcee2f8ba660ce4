//! Writes covered by ballast succeed even if the host becomes full, and a shortage is reported to writers.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::host_room::{Change, FileHost, Host, LEAST, Limited, Turn};
use device::{BLOCK, BlockDevice, DeviceError, HostRoom, Lba, Memory, Retained, Rng, Tag};

const TAG: Tag = Tag { cause: 0, owner: 0 };
const MIB: u64 = 256;

type Image = Retained<Arc<Limited<Memory>>>;

/// A sparse image of 1 GiB on a host with `free` free blocks.
fn image(free: u64) -> (Arc<Limited<Memory>>, Arc<HostRoom>, Image) {
    let host = Arc::new(Limited::new(Memory::new(1024 * MIB), free));
    let room = Arc::new(HostRoom::new(host.host()));
    let image = Retained::new(host.clone(), 64 << 20).with_room(room.clone());
    (host, room, image)
}

fn write(image: &Image, at: u64, blocks: u64) -> device::Result<()> {
    image.write(Lba(at), &vec![1; blocks as usize * BLOCK], TAG)
}

fn is_full(result: &device::Result<()>) -> bool {
    matches!(result, Err(e) if e.is_full())
}

#[test]
fn what_is_covered_is_written_though_others_fill_the_host() {
    let mut rng = Rng::new(1);
    let mut shortages = 0;
    for round in 0..200 {
        let (host, room, image) = image(rng.below(200 * MIB));
        let mut at = 0;
        for _ in 0..20 {
            let blocks = 1 + rng.below(40 * MIB);
            let change = [Change::Takes, Change::Gives][rng.index(2)];
            if !room.covers(blocks, change) {
                continue;
            }
            // The data is accepted. Before it is written, the host fills up.
            host.leave_free(0);
            let mut rest = blocks;
            while rest > 0 {
                let n = rest.min(1 + rng.below(300));
                write(&image, at, n).unwrap_or_else(|e| panic!("round {round}: {rest} of {blocks} blocks left: {e}"));
                (at, rest) = (at + n, rest - n);
            }
            shortages += u64::from(room.is_short());
            if rng.chance(1, 2) {
                host.leave_free(rng.below(100 * MIB));
                room.renew();
            }
            if at > 900 * MIB {
                break;
            }
        }
    }
    assert!(shortages > 100, "the host was never short");
}

#[test]
fn a_host_is_short_from_the_first_write_without_room_until_there_is_room_again() {
    let (host, room, image) = image(100 * MIB);
    let turns = Arc::new(AtomicU64::new(0));
    let count = turns.clone();
    room.report_to(Box::new(move |turn| {
        count.fetch_add(if turn == Turn::Short { 1 } else { 100 }, Ordering::Relaxed);
    }));
    assert!(room.covers(5 * MIB, Change::Takes) && !room.is_short() && room.shortage().is_none());
    host.leave_free(0);
    room.renew();
    assert!(!room.is_short(), "the ballast is whole");
    write(&image, 0, 10).unwrap();
    assert!(room.is_short());
    assert_eq!(room.shortage(), Some(1));
    room.renew();
    assert!(room.is_short() && turns.load(Ordering::Relaxed) == 1);
    host.leave_free(100 * MIB);
    room.renew();
    assert!(!room.is_short() && turns.load(Ordering::Relaxed) == 101);
    host.leave_free(0);
    write(&image, 50, 10).unwrap();
    assert_eq!(room.shortage(), Some(2), "another one");
}

#[test]
fn what_gives_room_back_goes_on_while_the_host_is_short_and_until_the_ballast_is_used_up() {
    let (host, room, image) = image(100 * MIB);
    host.leave_free(0);
    write(&image, 0, 10).unwrap();
    assert!(room.covers(MIB, Change::Gives));
    let written = (1..).take_while(|n| write(&image, n * 10, 10).is_ok()).count() as u64;
    assert!(written * 10 > 14 * MIB, "{written} writes");
    assert!(!room.covers(1, Change::Gives) && room.is_short());
    let full = write(&image, 900 * MIB, 1);
    assert!(is_full(&full), "{full:?}");
    // Rewriting blocks with room needs no new room.
    write(&image, 0, 10).unwrap();
    // Room freed by a discard becomes ballast again.
    image.discard(Lba(0), 6 * MIB, TAG).unwrap();
    room.renew();
    assert!(room.covers(MIB, Change::Gives));
    assert!(!room.is_short());
}

#[test]
fn ballast_grows_with_what_is_accepted_up_to_a_quarter_of_what_is_free() {
    let (host, room, _) = image(400 * MIB);
    assert!(room.held() <= 16 << 20);
    assert!(room.covers(40 * MIB, Change::Takes));
    assert!(!room.covers(70 * MIB, Change::Takes));
    let bytes = room.held();
    assert!((64 << 20..=100 << 20).contains(&bytes), "{bytes}");
    assert_eq!(host.free() + bytes / BLOCK as u64, 400 * MIB);
}

#[test]
fn a_host_with_too_little_room_is_short_from_the_start_and_all_it_has_serves_to_give_room_back() {
    let (host, room, image) = image(3 * MIB);
    assert!(room.is_short() && room.held() > 0);
    assert!(room.covers(MIB / 2, Change::Gives));
    host.leave_free(0);
    write(&image, 0, MIB / 2).unwrap();
    let (_, room, _) = self::image(0);
    assert!(room.is_short() && !room.covers(1, Change::Gives));
}

#[test]
fn an_image_that_has_all_its_blocks_needs_no_ballast_until_some_are_discarded() {
    let host = Arc::new(Limited::new(Memory::new(64 * MIB), 64 * MIB));
    host.write(Lba(0), &vec![1; 64 * MIB as usize * BLOCK], TAG).unwrap();
    assert_eq!(host.free(), 0);
    let room = Arc::new(HostRoom::new(host.host()));
    let image = Retained::new(host.clone(), 64 << 20).with_room(room.clone());
    assert!(!room.is_short() && room.held() == 0);
    assert!(room.covers(u64::MAX, Change::Takes));
    image.discard(Lba(0), 8 * MIB, TAG).unwrap();
    assert!(room.held() >= LEAST, "what the image gave back is held before others take it");
    host.leave_free(0);
    assert!(room.covers(2 * MIB, Change::Takes) && !room.covers(60 * MIB, Change::Takes));
    write(&image, 0, 2 * MIB).unwrap();
}

#[test]
fn a_flush_that_finds_no_room_is_repeated_after_way_was_made() {
    /// A host with delayed allocation: flushes fail while the ballast is complete.
    struct Late(Memory, Arc<AtomicU64>);
    impl BlockDevice for Late {
        fn blocks(&self) -> u64 {
            self.0.blocks()
        }
        fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
            self.0.read(at, buf, tag)
        }
        fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
            self.0.write(at, data, tag)
        }
        fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
            self.0.discard(at, blocks, tag)
        }
        fn flush(&self, tag: Tag) -> device::Result<()> {
            if self.1.load(Ordering::Relaxed) > 15 << 20 {
                let source = std::io::Error::from_raw_os_error(28);
                return Err(DeviceError::Io { op: "flush", at: Lba(0), source });
            }
            self.0.flush(tag)
        }
    }
    struct Told(Arc<AtomicU64>);
    impl Host for Told {
        fn hold(&mut self, bytes: u64) -> std::io::Result<()> {
            self.0.store(bytes, Ordering::Relaxed);
            Ok(())
        }
        fn free(&self) -> std::io::Result<u64> {
            Ok(1 << 30)
        }
        fn growth(&self) -> std::io::Result<u64> {
            Ok(1 << 30)
        }
        fn most(&self) -> u64 {
            16 << 20
        }
    }
    let held = Arc::new(AtomicU64::new(0));
    let room = Arc::new(HostRoom::new(Told(held.clone())));
    let image = Retained::new(Late(Memory::new(1024), held.clone()), 64 << 20).with_room(room.clone());
    assert_eq!(held.load(Ordering::Relaxed), 16 << 20);
    image.write(Lba(0), &[1; 512 * BLOCK], TAG).unwrap();
    image.flush(TAG).unwrap();
    assert!(room.is_short() && held.load(Ordering::Relaxed) < 15 << 20);
}

#[test]
fn a_file_s_host_holds_room_in_an_unnamed_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let file = File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    let mut host = FileHost::new(file.try_clone().unwrap(), &path).unwrap();
    assert!(host.can_hold(), "{} has unnamed files and reserves blocks", dir.path().display());
    for bytes in [8 << 20, 1 << 20, 0] {
        host.hold(bytes).unwrap();
    }
    assert!(host.hold(1 << 60).is_err(), "no host has so much");
    host.hold(1 << 20).unwrap();
    assert!(host.free().unwrap() > 0 && host.growth().unwrap() >= 64 << 20);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 64 << 20).unwrap();
    assert!([0, u64::MAX].contains(&host.growth().unwrap()), "all of it, unless the host writes to new places");
}
