//! Which volumes do tests use that hold locks of this crate, so that a waiting thread is at a known place?

use std::sync::Arc;
use std::time::Duration;

use device::{Memory, Time, VirtualClock};
use format::SegNo;
use format::sit::LogType;
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};

use crate::volume::Volume;

pub const ROOT: Caller = Caller { uid: 0, gid: 0 };

/// Long enough for a thread to reach the lock that it waits for.
pub const A_WHILE: Duration = Duration::from_millis(200);

/// An empty volume.
pub fn mounted(mib: u64, options: crate::MountOptions) -> (Arc<Memory>, Arc<Volume>) {
    let dev = Arc::new(Memory::new(mib * 256));
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    crate::mkfs::format(&*dev, &*clock, &crate::mkfs::Options::default()).unwrap();
    let vol = Volume::mount(dev.clone(), clock, options).unwrap();
    (dev, vol)
}

pub fn try_file(vol: &Volume, parent: Ino, name: &str) -> vfs::Result<Ino> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    vol.mknod(ROOT, parent, name.as_bytes(), &new).map(|e| e.attr.ino)
}

pub fn file(vol: &Volume, name: &str) -> Ino {
    try_file(vol, vol.root(), name).unwrap()
}

pub fn dir(vol: &Volume, parent: Ino, name: &str) -> Ino {
    vol.mkdir(ROOT, parent, name.as_bytes(), 0o755, 0).unwrap().attr.ino
}

/// Bytes that differ by block.
pub fn blocks(count: usize) -> Vec<u8> {
    (0..count * 4096).map(|i| (i / 4096 * 7 + i % 251) as u8).collect()
}

pub fn write(vol: &Volume, ino: Ino, at: u64, data: &[u8]) {
    assert_eq!(vol.write(ino, at, data, WriteFlags::empty()).unwrap(), data.len());
}

pub fn read(vol: &Volume, ino: Ino) -> Vec<u8> {
    let mut out = vec![0; vol.getattr(ino).unwrap().size as usize];
    assert_eq!(vol.read(ino, 0, &mut out).unwrap(), out.len());
    out
}

/// Takes every free segment, so that logs find none.
pub fn take_free_segments(vol: &Volume) -> Vec<SegNo> {
    let mut seg = vol.logs.seg.lock();
    let free = |s: &SegNo| seg.table.segment(*s).held == 0 && !seg.table.is_log(*s);
    let free: Vec<SegNo> = (0..vol.ctx.sb.main_segs).map(SegNo).filter(free).collect();
    free.iter().for_each(|&s| seg.table.take(s, LogType::WarmData));
    free
}

/// Empties the taken segments: the next checkpoint frees them.
pub fn empty_segments(vol: &Volume, taken: &[SegNo]) {
    let mut seg = vol.logs.seg.lock();
    taken.iter().for_each(|&s| seg.table.release_log(s));
}

/// Unmounts; both checkers must find nothing.
pub fn judge(dev: &Memory, vol: &Volume) {
    vol.unmount().unwrap();
    let report = fsck::check(dev, &fsck::Options::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.errors().take(4).collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    dev.save(dir.path().join("image")).unwrap();
    judges::oracle::tools::assert_fsck_clean(&dir.path().join("image"));
}
