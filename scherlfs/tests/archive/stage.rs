//! A sleeping disk is left alone: writes wait, an fsync is durable elsewhere, and the causes of wakes are reported.

use std::sync::Arc;
use std::time::Duration;

use device::{BLOCK, BlockDevice, Counts, Lba, Memory, Tag, VirtualClock};
use scherlfs::{Beside, MountOptions, Sync, Volume};
use vfs::{FileSystem, WriteFlags};

use crate::support::{
    Device, STAGE, all_of, counting, empty_index, formatted, mount, read_only, requests, settle, without_index, write,
};

const HOUR: Duration = Duration::from_secs(3600);

struct Disks {
    disk: Device,
    index: Arc<Memory>,
    stage: Arc<Memory>,
}

fn disks() -> Disks {
    Disks { disk: Arc::new(formatted()), index: Arc::new(empty_index()), stage: Arc::new(Memory::new(STAGE)) }
}

impl Disks {
    fn options(&self) -> MountOptions {
        MountOptions {
            sync: Sync::Burst,
            dirty: 400,
            beside: Beside {
                index: Some(self.index.clone()),
                stage: Some(self.stage.clone()),
                sleep: Some(Duration::from_secs(600)),
                program_of: Some(|pid| (pid == 77).then(|| "player".to_owned())),
                ..Beside::default()
            },
            ..MountOptions::default()
        }
    }
}

fn reported(volume: &Volume, name: &str) -> String {
    volume.report().into_iter().find(|(n, _)| n == name).map(|(_, v)| v).unwrap_or_default()
}

/// Lets time pass, with a tick per second.
fn passes(volume: &Volume, clock: &VirtualClock, time: Duration) {
    for _ in 0..time.as_secs() {
        clock.advance(Duration::from_secs(1));
        volume.tick().unwrap();
    }
}

fn bytes_of(volume: &Volume, name: &str) -> Vec<u8> {
    let attr = volume.lookup(volume.root(), name.as_bytes()).unwrap().attr;
    let mut bytes = vec![0; attr.size as usize];
    volume.read(attr.ino, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn an_fsync_is_durable_on_the_stage_and_the_disk_sees_nothing_of_it() {
    let disks = disks();
    let counted = counting(&disks.disk);
    let volume = mount(counted.clone(), disks.options());
    settle(&volume);
    let before = requests(&counted);
    for n in 0..10_u8 {
        let ino = write(&volume, &format!("f{n}"), &vec![n; 5000 * usize::from(n)]).unwrap();
        volume.fsync(ino, false).unwrap();
        assert_eq!(bytes_of(&volume, &format!("f{n}")), vec![n; 5000 * usize::from(n)], "read back from the stage");
    }
    write(&volume, "not-synced", &[1; 100]).unwrap();
    assert_eq!(requests(&counted) - before, Counts::default());
    assert_ne!(reported(&volume, "staged_blocks"), "0");
    drop(volume);

    // Without the stage the volume is valid, in its earlier state.
    let alone = without_index(&disks.disk);
    assert!(!alone.contains_key("/f1"), "{:?}", alone.keys());
    // With it, even a read-only mount sees everything.
    let stage = disks.stage.fork();
    for read_only in [true, false] {
        let options = MountOptions { read_only, ..disks.options() };
        let volume = mount(disks.disk.clone(), options);
        for n in 0..10_u8 {
            assert_eq!(bytes_of(&volume, &format!("f{n}")), vec![n; 5000 * usize::from(n)], "read-only: {read_only}");
        }
        assert!(volume.lookup(volume.root(), b"not-synced").is_err());
        assert_eq!(read_only, disks.stage.same_as(&stage), "read-only: {read_only}");
        drop(volume);
    }
    // By now the disk has it.
    assert!(without_index(&disks.disk).contains_key("/f9"));
}

#[test]
fn a_stage_is_brought_in_by_a_mount_that_does_not_stage() {
    let disks = disks();
    let volume = mount(disks.disk.clone(), disks.options());
    let ino = write(&volume, "f", &[3; 7000]).unwrap();
    volume.fsync(ino, false).unwrap();
    drop(volume);
    let beside = Beside { stage: Some(disks.stage.clone()), ..Beside::default() };
    let volume = mount(disks.disk.clone(), MountOptions { beside, ..MountOptions::default() });
    assert_eq!(bytes_of(&volume, "f"), [3; 7000]);
    let ino = write(&volume, "g", &[4; 7000]).unwrap();
    volume.fsync(ino, false).unwrap();
    drop(volume);
    assert!(without_index(&disks.disk).contains_key("/g"));
}

#[test]
fn a_stage_for_another_state_of_the_volume_is_refused_and_kept() {
    let disks = disks();
    let volume = mount(disks.disk.clone(), disks.options());
    let ino = write(&volume, "f", &[3; 7000]).unwrap();
    volume.fsync(ino, false).unwrap();
    drop(volume);
    // The disk is mounted without its stage and written to.
    let volume = mount(disks.disk.clone(), MountOptions::default());
    write(&volume, "other", &[3; 7000]).unwrap();
    volume.unmount().unwrap();
    let stage = disks.stage.fork();
    let refused = Volume::mount(disks.disk.clone(), Arc::new(VirtualClock::default()), disks.options());
    let why = refused.err().expect("it is refused").to_string();
    assert!(why.contains("the stage has fsyncs"), "{why}");
    assert!(stage.same_as(&disks.stage));
    // An empty stage fits any volume.
    disks.stage.write(Lba(1), &[0; BLOCK], Tag::default()).unwrap();
    assert!(Volume::mount(disks.disk.clone(), Arc::new(VirtualClock::default()), disks.options()).is_ok());
}

#[test]
fn a_record_behind_one_that_was_lost_is_not_taken_for_one_of_the_next_mount() {
    let disks = disks();
    let volume = mount(disks.disk.clone(), disks.options());
    for n in 0..3 {
        let ino = write(&volume, &format!("f{n}"), &[3; 100]).unwrap();
        volume.fsync(ino, false).unwrap();
    }
    drop(volume);
    // The first record is torn, the later ones are complete.
    let mut block = [0; BLOCK];
    disks.stage.read(Lba(1), &mut block, Tag::default()).unwrap();
    block[20] ^= 1;
    disks.stage.write(Lba(1), &block, Tag::default()).unwrap();
    let volume = mount(disks.disk.clone(), disks.options());
    let ino = write(&volume, "g0", &[4; 100]).unwrap();
    volume.fsync(ino, false).unwrap();
    drop(volume);
    let volume = mount(disks.disk.clone(), disks.options());
    let names = all_of(&volume);
    assert!(names.contains_key("/g0") && !names.contains_key("/f0") && !names.contains_key("/f1"), "{names:?}");
    volume.unmount().unwrap();
}

#[test]
fn waiting_blocks_are_written_when_contents_are_read_and_not_because_time_passes() {
    let disks = disks();
    let counted = counting(&disks.disk);
    let clock = Arc::new(VirtualClock::default());
    let volume = Volume::mount(counted.clone(), clock.clone(), disks.options()).unwrap();
    let old = write(&volume, "old", &[1; 50_000]).unwrap();
    settle(&volume);
    volume.unmount().unwrap();
    let volume = Volume::mount(counted.clone(), clock.clone(), disks.options()).unwrap();
    settle(&volume);
    let before = requests(&counted);
    write(&volume, "new", &[2; 10_000]).unwrap();
    passes(&volume, &clock, HOUR);
    assert_eq!(requests(&counted) - before, Counts::default(), "an hour");
    assert_eq!(reported(&volume, "disk"), "asleep");

    let _player = vfs::asking::asks(77);
    volume.read(old, 0, &mut [0; 8192]).unwrap();
    assert_eq!(requests(&counted).writes, before.writes, "not within the read itself");
    passes(&volume, &clock, Duration::from_secs(8));
    let after = requests(&counted);
    assert!(after.writes > before.writes && after.flushes > before.flushes);
    assert!(without_index(&disks.disk).contains_key("/new"));
    // Only once: later writes wait for the next reader.
    write(&volume, "newer", &[2; 10_000]).unwrap();
    passes(&volume, &clock, Duration::from_secs(60));
    assert_eq!(requests(&counted), after);
    assert_eq!((reported(&volume, "disk_wakes_contents"), reported(&volume, "disk_wakes")), ("1".into(), "2".into()));
    let wake = reported(&volume, "disk_wake_1");
    assert!(wake.contains("contents read, /old, by player (77); it had slept 50 min"), "{wake}");
    assert!(reported(&volume, "disk_wake_2").contains("mount"), "{}", reported(&volume, "disk_wake_2"));
    volume.unmount().unwrap();
}

#[test]
fn each_cause_of_a_wake_is_reported() {
    let disks = disks();
    let clock = Arc::new(VirtualClock::default());
    let mut options = disks.options();
    options.sync = Sync::Fsync;
    let volume = Volume::mount(disks.disk.clone(), clock.clone(), options).unwrap();
    settle(&volume);
    passes(&volume, &clock, HOUR);
    let ino = write(&volume, "f", &[1; 5000]).unwrap();
    volume.fsync(ino, false).unwrap();
    passes(&volume, &clock, HOUR);
    volume.write(ino, 0, &vec![5; 3 << 20], WriteFlags::empty()).unwrap();
    passes(&volume, &clock, HOUR);
    volume.unmount().unwrap();
    let count = |name: &str| reported(&volume, &format!("disk_wakes_{name}"));
    let all = ["mount", "fsync", "stage_full", "unmount", "contents", "names"].map(count);
    assert_eq!(all, ["1", "1", "1", "1", "0", "0"]);
    // The next tick flushes a burst.
    assert_eq!(reported(&volume, "disk_slept_seconds"), (3 * 3000 - 1).to_string());
}

#[test]
fn names_that_no_index_has_wake_the_disk_and_say_so() {
    let disks = disks();
    let volume = mount(disks.disk.clone(), MountOptions::default());
    write(&volume, "f", &[1; 5000]).unwrap();
    volume.unmount().unwrap();
    let clock = Arc::new(VirtualClock::default());
    let beside = Beside { sleep: Some(Duration::from_secs(600)), ..Beside::default() };
    let options = MountOptions { beside, ..MountOptions::default() };
    let volume = Volume::mount(disks.disk.clone(), clock.clone(), options).unwrap();
    passes(&volume, &clock, HOUR);
    volume.lookup(volume.root(), b"f").unwrap();
    assert_eq!(reported(&volume, "disk_wakes_names"), "1");
}

#[test]
fn a_full_stage_leaves_as_one_burst() {
    let disks = disks();
    let counted = counting(&disks.disk);
    let volume = mount(counted.clone(), disks.options());
    settle(&volume);
    let before = requests(&counted);
    let mut n = 0;
    while requests(&counted) == before {
        let ino = write(&volume, &format!("f{n}"), &[1; 40_000]).unwrap();
        volume.fsync(ino, false).unwrap();
        n += 1;
    }
    // A record has a head, and a transaction has an inode, the directory's inode and its block.
    assert!((60..=STAGE / 11).contains(&n), "{n} files of ten blocks on {STAGE} blocks");
    drop(volume);
    let volume = mount(disks.disk.clone(), MountOptions { sync: Sync::Fsync, ..disks.options() });
    (0..n).for_each(|n| assert_eq!(bytes_of(&volume, &format!("f{n}")), [1; 40_000]));
}

#[test]
fn a_burst_without_a_stage_is_refused() {
    let options = MountOptions { sync: Sync::Burst, ..read_only() };
    assert!(Volume::mount(disks().disk, Arc::new(VirtualClock::default()), options).is_err());
}
