//! Does a metered device work as a file through the kernel?

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use device::energy::profile::Profile;
use device::energy::{Bill, Component, Energy, Nanos, Part};
use device::gauge::{Gauge, Setup, Speed};
use device::model::{Ask, Model};
use device::{BLOCK, Lba, Memory, Tag};
use joulefs_fuse::gauge::Files;
use joulefs_fuse::{Caching, MountOptions, Mounted};
use rustix::fs::FallocateFlags;
use serde_json::Value;
use tempfile::TempDir;

use crate::support;

const BLOCKS: u64 = 16 * 256;
const BYTES: u64 = BLOCKS * BLOCK as u64;

/// A microsecond and a nanojoule per block, a millisecond and a microjoule per flush.
#[derive(Default)]
struct Plain {
    served: u64,
}

impl Model for Plain {
    fn blocks(&self) -> u64 {
        BLOCKS
    }
    fn serve(&mut self, now: Nanos, ask: Ask, _: Tag, bill: &mut Bill) -> Nanos {
        self.served += 1;
        match ask {
            Ask::Read { blocks, .. } | Ask::Write { blocks, .. } | Ask::Discard { blocks, .. } => {
                bill.add(Part::Link, Energy(1000).times(blocks));
                now + Nanos(1000).times(blocks)
            }
            Ask::Flush | Ask::Remap { .. } => {
                bill.add(Part::Flush, Energy(1_000_000));
                now + Nanos(1_000_000)
            }
        }
    }
    fn wait(&mut self, _: Nanos, _: &mut Bill) {}
    fn power_cycle(&mut self, now: Nanos, _: &mut Bill) -> Nanos {
        now
    }
    fn cut(&mut self, _: Nanos) -> Vec<Lba> {
        Vec::new()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("served", self.served)]
    }
}

fn mount(speed: Speed) -> Option<(Arc<Gauge>, Mounted, TempDir)> {
    if !support::can_mount() {
        return None;
    }
    let gauge = Arc::new(Gauge::new(Setup {
        contents: Arc::new(Memory::new(BLOCKS)),
        discards_read_zero: true,
        model: Box::new(Plain::default()),
        profile: Profile::find("kirin9000-ufs31").expect("shipped"),
        speed,
    }));
    let dir = TempDir::new().expect("a temporary directory");
    let options = MountOptions { caching: Caching::Live, ..MountOptions::default() };
    let mounted = joulefs_fuse::mount(Arc::new(Files::new(gauge.clone())), dir.path(), &options).expect("mounts");
    Some((gauge, mounted, dir))
}

fn end(mounted: Mounted) {
    mounted.unmount().expect("nobody uses it");
    mounted.wait().expect("a clean end");
}

fn ledger(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("ledger.json")).expect("reads")).expect("JSON")
}

fn count(ledger: &Value, operation: &str) -> u64 {
    ledger["operations"][operation]["count"].as_u64().unwrap_or(0)
}

#[test]
fn data_is_read_back_and_every_operation_is_on_the_ledger() {
    let Some((gauge, mounted, dir)) = mount(Speed::Unpaced) else { return };
    let path = dir.path().join("disk");
    assert_eq!(fs::metadata(&path).unwrap().len(), BYTES);
    let disk = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    disk.write_all_at(b"hello", 5000).unwrap();
    disk.write_all_at(&vec![7; 8 * BLOCK], 8 * BLOCK as u64).unwrap();
    disk.sync_all().unwrap();
    let mut buf = [0; 7];
    disk.read_exact_at(&mut buf, 4999).unwrap();
    assert_eq!(&buf, b"\0hello\0");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&disk, hole, 8 * BLOCK as u64, 4 * BLOCK as u64).unwrap();
    let mut block = [1; BLOCK];
    disk.read_exact_at(&mut block, 11 * BLOCK as u64).unwrap();
    assert_eq!(block, [0; BLOCK]);
    disk.read_exact_at(&mut block, 12 * BLOCK as u64).unwrap();
    assert_eq!(block, [7; BLOCK]);

    let seen = ledger(dir.path());
    let counts = ["read", "write", "flush", "discard"].map(|o| count(&seen, o));
    // For the five bytes the device read the block around them.
    assert_eq!(counts, [4, 2, 1, 1]);
    assert_eq!(seen["operations"]["write"]["bytes"], 9 * BLOCK);
    assert_eq!(seen["operations"]["flush"]["time_ns"], 1_000_000);
    assert_eq!(seen["operations"]["flush"]["components_pj"]["storage"], 1_000_000);
    assert_eq!(seen["model"]["served"], 8);
    drop(disk);
    end(mounted);
    let report = gauge.report();
    let by_row: Energy = report.rows().flat_map(|r| r.energy).sum();
    let by_component: Energy = Component::ALL.iter().map(|c| report.ledger.component(*c)).sum();
    assert_eq!((by_row, by_component), (report.ledger.total(), report.ledger.total()));
    assert!(report.ledger.total() > Energy::ZERO);
}

#[test]
fn an_opened_ledger_stays_one_moment_and_the_next_is_newer() {
    let Some((_, mounted, dir)) = mount(Speed::Unpaced) else { return };
    let path = dir.path().join("ledger.json");
    let mut old = File::open(&path).unwrap();
    let size = old.metadata().unwrap().len();
    let mut first = [0; 10];
    old.read_exact(&mut first).unwrap();
    fs::write(dir.path().join("disk"), [1; BLOCK]).unwrap();
    let new = ledger(dir.path());
    let mut text = first.to_vec();
    old.read_to_end(&mut text).unwrap();
    assert_eq!(text.len() as u64, size);
    let old_value: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((count(&old_value, "write"), count(&new, "write")), (0, 1));
    drop(old);
    end(mounted);
}

#[test]
fn the_disk_is_as_large_as_it_is() {
    let Some((_, mounted, dir)) = mount(Speed::Unpaced) else { return };
    let path = dir.path().join("disk");
    // Tools that copy an image onto a block device open, truncate and write.
    fs::write(&path, b"image").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().size(), BYTES);
    assert_eq!(&fs::read(&path).unwrap()[..6], b"image\0");
    let disk = OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(disk.set_len(BYTES - 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    disk.set_len(BYTES).unwrap();
    assert_eq!(disk.write_at(b"xy", BYTES - 1).unwrap(), 1);
    assert_eq!(disk.write_at(b"x", BYTES).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    drop(disk);
    let refused = File::create(dir.path().join("other")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    assert!(fs::remove_file(&path).is_err());
    assert!(fs::write(dir.path().join("ledger.json"), b"").is_err());
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["disk", "ledger.json"]);
    end(mounted);
}

#[test]
fn synchronous_writes_are_flushed_and_a_paced_device_takes_its_time() {
    let Some((gauge, mounted, dir)) = mount(Speed::Paced) else { return };
    let sync = i32::try_from(rustix::fs::OFlags::DSYNC.bits()).unwrap();
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.write(true), sync);
    let mut disk = options.open(dir.path().join("disk")).unwrap();
    let before = gauge.report().times.elapsed;
    for _ in 0..20 {
        disk.write_all(&[3; BLOCK]).unwrap();
    }
    let report = gauge.report();
    assert_eq!(count(&report.json(), "flush"), 20);
    // The host's clock sets the pace, and after all answers the device's time cannot be ahead of it.
    assert!(report.times.elapsed.since(before) >= Nanos(20_000_000), "{:?}", report.times);
    drop(disk);
    end(mounted);
}
