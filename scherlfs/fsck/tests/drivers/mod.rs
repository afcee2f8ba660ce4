//! Applies any bytes as changes to blocks of a volume, with corrected checksums, for the checker, the mount and the
//! repair. Nothing panics; a volume without findings mounts; a repaired volume has no findings.

use std::sync::{Arc, OnceLock};

use device::{BLOCK, BlockDevice, Memory};
use joulefs_scherlfs_fsck::{self as fsck, RepairError};
use scherlfs_format::{Block, checksum};

use crate::rig::{self, Made, SHAPES};

/// A driver with its name.
pub type Driver = (&'static str, fn(&[u8]));

/// Every driver.
pub const ALL: [Driver; 3] = [("checked", checked), ("walked", walked), ("repaired", repaired)];

fn base_volume(which: usize) -> &'static Made {
    static ALL: OnceLock<Vec<Made>> = OnceLock::new();
    &ALL.get_or_init(|| SHAPES.into_iter().map(|shape| rig::volume(shape, 33)).collect())[which % SHAPES.len()]
}

/// The structured blocks of a volume.
fn structures(which: usize) -> &'static [u64] {
    static ALL: OnceLock<Vec<Vec<u64>>> = OnceLock::new();
    let of = |made: &Made| {
        (0..made.dev.blocks()).filter(|at| *at < 2 || seal_of(&rig::block(&made.dev, *at)).is_some()).collect()
    };
    &ALL.get_or_init(|| (0..SHAPES.len()).map(|n| of(base_volume(n))).collect())[which % SHAPES.len()]
}

/// Offset of the checksum in a block.
fn seal_of(block: &Block) -> Option<usize> {
    match &block[..4] {
        b"Sche" => Some(BLOCK - 4),
        b"SINO" | b"SEXT" | b"SIDX" | b"SPTH" | b"SDEL" => Some(4),
        _ => None,
    }
}

/// The volume described by the bytes: the first selects one, then each five are a structured block, a position and
/// two values.
fn volume(bytes: &[u8]) -> Memory {
    let (which, changes) = bytes.split_first().map_or((0, bytes), |(n, rest)| (usize::from(*n), rest));
    let (image, places) = (base_volume(which).dev.fork(), structures(which));
    for c in changes.as_chunks::<6>().0 {
        let at = places[usize::from(u16::from_le_bytes([c[0], c[1]])) % places.len()];
        let mut block = rig::block(&image, at);
        let within = usize::from(u16::from_le_bytes([c[2], c[3]])) % (BLOCK - 1);
        block[within..within + 2].copy_from_slice(&c[4..]);
        if let Some(crc) = seal_of(&block) {
            block[crc..crc + 4].fill(0);
            let sum = checksum(&[&block[..]]);
            block[crc..crc + 4].copy_from_slice(&sum.to_le_bytes());
        }
        rig::write_block(&image, at, &block);
    }
    image
}

/// A volume without findings mounts and works.
pub fn checked(bytes: &[u8]) {
    let image = volume(bytes);
    if fsck::check(&image).is_clean() {
        rig::live(&Arc::new(image), "found whole");
    }
}

/// Mounts, walks, and writes to a volume, if possible.
pub fn walked(bytes: &[u8]) {
    use vfs::FileSystem;
    let dev = Arc::new(volume(bytes));
    let _ = rig::look(&dev);
    let clock = Arc::new(device::VirtualClock::default());
    let Ok(volume) = scherlfs::Volume::mount(dev, clock, scherlfs::MountOptions::default()) else { return };
    let new = vfs::NewNode { kind: vfs::FileKind::Regular, perm: 0o600, umask: 0, rdev: vfs::DeviceNumber::default() };
    if let Ok(made) = volume.mknod(rig::ME, volume.root(), b"fuzz", &new) {
        let _ = volume.write(made.attr.ino, 0, &[1; 9000], vfs::WriteFlags::empty());
    }
    if let Ok(found) = volume.lookup(volume.root(), b"torn") {
        let _ = volume.write(found.attr.ino, 40_000, &[2; 9000], vfs::WriteFlags::empty());
    }
    let _ = volume.unlink(volume.root(), b"room");
    let _ = volume.unmount();
}

/// Repairs a volume: then there are no findings, and a second repair changes nothing.
pub fn repaired(bytes: &[u8]) {
    let dev = Arc::new(volume(bytes));
    match fsck::repair(&*dev, &|_, _| {}) {
        Ok(done) => {
            assert!(done.after.is_clean() && done.after.notes.is_empty(), "{:?}", done.after);
            let before = rig::image(&dev);
            let again = fsck::repair(&*dev, &|_, _| {}).expect("it is whole");
            assert!(again.actions.is_empty() && before == rig::image(&dev), "{:?}", again.actions);
            rig::live(&dev, "repaired");
        }
        Err(RepairError::NoSpace) => {}
        Err(e) => panic!("{e}"),
    }
}
