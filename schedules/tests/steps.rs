//! Work on a file of maximum size is done in steps: their number is bounded, and other threads run between them. Steps
//! are counted in scheduling points (locks and requests), never in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::{Memory, Time, VirtualClock};
use f2fs::mkfs;
use f2fs_scheduled::{MountOptions, Volume};
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use vfs::{Allocate, Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, Seek, SetAttr, WriteFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };
const BLOCK: u64 = 4096;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)))
}

fn image(bytes: u64) -> Memory {
    let dev = Memory::new(bytes / BLOCK);
    let options = mkfs::Options { assume_zeroed: true, ..mkfs::Options::default() };
    mkfs::format(&dev, &*clock(), &options).expect("a volume");
    dev
}

/// Runs `course` on a volume, in `orders` thread orders, each in at most `most` steps.
fn scheduled(
    bytes: u64,
    options: MountOptions,
    (orders, most): (usize, usize),
    course: impl Fn(Arc<Volume>) + Send + Sync + 'static,
) {
    let mut config = Config::new();
    config.stack_size = 4 << 20;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(most);
    config.silence_warnings = true;
    let image = image(bytes);
    Runner::new(RandomScheduler::new_from_seed(7, orders), config).run(move || {
        let dev = Arc::new(image.fork());
        let vol = Volume::mount(dev.clone(), clock(), options.clone()).expect("mounts");
        course(vol.clone());
        vol.unmount().expect("unmounts");
        let report = fsck::check(&*dev, &fsck::Options::default()).expect("is read");
        assert!(report.is_clean(), "{:?}", report.errors().take(4).collect::<Vec<_>>());
    });
}

fn file(vol: &Volume, name: &str) -> Ino {
    let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
    vol.mknod(ME, vol.root(), name.as_bytes(), &new).expect("is made").attr.ino
}

fn set_size(vol: &Volume, ino: Ino, size: u64) {
    vol.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).expect("gets its size");
}

fn write(vol: &Volume, ino: Ino, block: u64, blocks: u64) {
    let bytes = contents(block, blocks);
    assert_eq!(vol.write(ino, block * BLOCK, &bytes, WriteFlags::empty()), Ok(bytes.len()));
}

fn contents(block: u64, blocks: u64) -> Vec<u8> {
    (block..block + blocks).flat_map(|b| [b as u8 | 1; BLOCK as usize]).collect()
}

fn read(vol: &Volume, ino: Ino, block: u64, blocks: u64) -> Vec<u8> {
    let mut out = vec![0; (blocks * BLOCK) as usize];
    let n = vol.read(ino, block * BLOCK, &mut out).expect("is read");
    out.truncate(n);
    out
}

#[test]
fn a_file_of_3_tib_of_holes_is_worked_on_in_few_steps() {
    const MOST: usize = 30_000;
    scheduled(GIB / 4, MountOptions::default(), (1, MOST), |vol| {
        let f = file(&vol, "f");
        set_size(&vol, f, 3 * TIB);
        let ways = [Allocate::Collapse, Allocate::Insert, Allocate::PunchHole];
        for what in ways {
            vol.fallocate(f, what, 0, BLOCK).expect("holes are shifted");
        }
        // Blocks far apart, in separate nodes, move too.
        let far = [5, 1 << 20, 1 << 25, (3 * TIB - GIB) / BLOCK];
        far.iter().for_each(|&block| write(&vol, f, block, 2));
        vol.fallocate(f, Allocate::Collapse, BLOCK, BLOCK).expect("is shifted");
        far.iter().for_each(|&block| assert!(read(&vol, f, block - 1, 2) == contents(block, 2), "{block}"));
        vol.fallocate(f, Allocate::Insert, 2 * BLOCK, 3 * BLOCK).expect("is shifted");
        far.iter().for_each(|&block| assert!(read(&vol, f, block + 2, 2) == contents(block, 2), "{block}"));
        assert_eq!(vol.getattr(f).expect("is there").size, 3 * TIB + 2 * BLOCK);
        assert_eq!(vol.seek(f, 9 * BLOCK, Seek::Data), Ok(((1 << 20) + 2) * BLOCK));
        assert_eq!(vol.seek(f, (far[3] + 2) * BLOCK, Seek::Hole), Ok((far[3] + 4) * BLOCK));
        assert_eq!(vol.seek(f, (far[3] + 4) * BLOCK, Seek::Data), Err(vfs::Error::PastEnd));
        vol.fallocate(f, Allocate::PunchHole, 0, 2 * TIB).expect("is punched");
        set_size(&vol, f, 100);
        set_size(&vol, f, 0);
    });
}

#[test]
fn data_behind_reserved_blocks_is_found_in_few_steps() {
    scheduled(2 * GIB, MountOptions::default(), (1, 100_000), |vol| {
        let f = file(&vol, "f");
        vol.fallocate(f, Allocate::Reserve { keep_size: false }, 0, GIB).expect("is reserved");
        write(&vol, f, GIB / BLOCK, 1);
        assert_eq!(vol.seek(f, 0, Seek::Data), Ok(GIB));
    });
}

/// How often can other threads write a file and sync everything during `long`?
fn meanwhile(
    long: impl Fn(&Volume, Ino) + Send + Sync + Copy + 'static,
    prepare: impl Fn(&Volume, Ino) + Send + Sync + 'static,
) -> u64 {
    let least = Arc::new(AtomicU64::new(u64::MAX));
    let seen = least.clone();
    scheduled(4 * GIB, MountOptions::default(), (3, 10_000_000), move |vol| {
        let (f, other) = (file(&vol, "f"), file(&vol, "other"));
        prepare(&vol, f);
        let (begun, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let worker = {
            let (vol, begun, ended) = (vol.clone(), begun.clone(), ended.clone());
            shuttle::thread::spawn(move || {
                begun.store(true, Ordering::SeqCst);
                long(&vol, f);
                ended.store(true, Ordering::SeqCst);
            })
        };
        let mut done = 0;
        while !ended.load(Ordering::SeqCst) {
            write(&vol, other, 3, 1);
            vol.sync().expect("is durable");
            vol.fsync(other, false).expect("is durable");
            assert!(read(&vol, other, 3, 1) == contents(3, 1));
            done += u64::from(begun.load(Ordering::SeqCst) && !ended.load(Ordering::SeqCst));
        }
        worker.join().expect("ends");
        seen.fetch_min(done, Ordering::SeqCst);
    });
    least.load(Ordering::SeqCst)
}

fn far_and_wide(vol: &Volume, f: Ino) {
    // One node for each.
    (0..300).for_each(|i| write(vol, f, 2000 + i * 1018, 1));
}

#[test]
fn checkpoints_are_written_while_much_is_reserved() {
    let times = meanwhile(
        |vol, f| vol.fallocate(f, Allocate::Reserve { keep_size: false }, 0, 2 * GIB).expect("is reserved"),
        |_, _| {},
    );
    assert!(times >= 3, "{times}");
}

#[test]
fn checkpoints_are_written_while_many_holes_are_punched() {
    let times =
        meanwhile(|vol, f| vol.fallocate(f, Allocate::PunchHole, 0, 2 * GIB).expect("is punched"), far_and_wide);
    assert!(times >= 3, "{times}");
}

#[test]
fn checkpoints_are_written_while_a_long_file_is_cut() {
    let times = meanwhile(|vol, f| set_size(vol, f, 5), far_and_wide);
    assert!(times >= 3, "{times}");
}

#[test]
fn checkpoints_are_written_while_many_blocks_are_shifted() {
    for what in [Allocate::Collapse, Allocate::Insert] {
        let times = meanwhile(move |vol, f| vol.fallocate(f, what, BLOCK, BLOCK).expect("is shifted"), far_and_wide);
        assert!(times >= 3, "{what:?}: {times}");
    }
}

#[test]
fn readers_and_writers_meet_a_file_before_or_after_its_blocks_are_shifted() {
    const BLOCKS: u64 = 700;
    for what in [Allocate::Collapse, Allocate::Insert] {
        scheduled(GIB / 4, MountOptions::default(), (20, 10_000_000), move |vol| {
            let f = file(&vol, "f");
            write(&vol, f, 0, BLOCKS);
            let before = contents(0, BLOCKS);
            let after = match what {
                Allocate::Insert => [&contents(0, 1)[..], &[0; BLOCK as usize], &contents(1, BLOCKS - 1)].concat(),
                _ => [contents(0, 1), contents(2, BLOCKS - 2)].concat(),
            };
            let worker = {
                let vol = vol.clone();
                shuttle::thread::spawn(move || vol.fallocate(f, what, BLOCK, BLOCK).expect("is shifted"))
            };
            for _ in 0..4 {
                let now = read(&vol, f, 0, BLOCKS + 1);
                assert!(now == before || now == after, "{what:?}: half shifted");
                // Whole blocks at an offset that does not change.
                write(&vol, f, 0, 1);
                vol.fsync(f, false).expect("is durable");
            }
            worker.join().expect("ends");
            assert!(read(&vol, f, 0, BLOCKS + 1) == after, "{what:?}");
        });
    }
}

#[test]
fn sizes_reservations_and_shifts_of_one_file_at_once_leave_it_sound() {
    scheduled(2 * GIB, MountOptions { node_cache: 64, ..MountOptions::default() }, (30, 10_000_000), |vol| {
        let f = file(&vol, "f");
        write(&vol, f, 0, 8);
        let work: [fn(&Volume, Ino); 4] = [
            |vol, f| vol.fallocate(f, Allocate::Reserve { keep_size: true }, 0, GIB).expect("is reserved"),
            |vol, f| set_size(vol, f, 0),
            |vol, f| match vol.fallocate(f, Allocate::Insert, 0, GIB) {
                Ok(()) | Err(vfs::Error::Invalid(_)) => {}
                Err(e) => panic!("{e}"),
            },
            |vol, f| write(vol, f, 3, 300),
        ];
        let threads: Vec<_> = work
            .into_iter()
            .map(|work| {
                let vol = vol.clone();
                shuttle::thread::spawn(move || work(&vol, f))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("ends"));
    });
}
