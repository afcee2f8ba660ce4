//! A volume with everything in it: every shape of file, names, attributes, an orphan, and an fsync to replay.
//!
//! Left out: the damage to it (`judges::damage`).

use std::sync::Arc;

use device::{BLOCK, Memory};
use f2fs::{MountOptions, Volume, mkfs};
use format::superblock::Features;
use judges::damage::{BLOCKS, clock};
use vfs::{Caller, FileKind, FileSystem, Ino, NewNode, WriteFlags, XattrFlags};

fn file(vol: &Volume, dir: Ino, name: &str) -> vfs::Result<Ino> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
    Ok(vol.mknod(Caller::default(), dir, name.as_bytes(), &new)?.attr.ino)
}

/// Every block names its owner, in words that are not node numbers.
fn write(vol: &Volume, ino: Ino, offset: u64, len: usize) -> vfs::Result<()> {
    let mut data = vec![0xa5; len];
    for (i, block) in data.chunks_mut(BLOCK).enumerate() {
        let words = [ino.0 as u32 | 0xa500_0000, ((offset / BLOCK as u64) as u32 + i as u32) | 0xa500_0000];
        let words = words.map(u32::to_be_bytes);
        let n = block.len().min(8);
        block[..n].copy_from_slice(&words.as_flattened()[..n]);
    }
    vol.write(ino, offset, &data, WriteFlags::empty()).map(drop)
}

/// Small updates: of a short file, which become a zone, and of a long one, which become delta nodes.
fn make_deltas(vol: &Volume, short: Ino, long: Ino) -> vfs::Result<()> {
    for n in 0..4_u64 {
        vol.write(short, n * BLOCK as u64 + 100, &[n as u8; 30], WriteFlags::empty())?;
    }
    vol.fsync(short, false)?;
    for turn in 0..6_u64 {
        for n in 0..4 {
            for part in 0..5 {
                let at = (n * (turn + 1) * 97 % 2000) * BLOCK as u64 + 800 * part + turn;
                vol.write(long, at, &[turn as u8 + 1; 90], WriteFlags::empty())?;
            }
        }
        vol.fsync(long, false)?;
        if turn == 2 {
            vol.sync()?;
        }
    }
    Ok(())
}

fn populate(vol: &Volume, deltas: bool) -> vfs::Result<()> {
    let (root, me) = (vol.root(), Caller::default());
    let inline = file(vol, root, "entry_inline")?;
    write(vol, inline, 0, 100)?;
    vol.link(inline, root, b"entry_hard_link")?;
    let blocks = file(vol, root, "entry_blocks")?;
    write(vol, blocks, 0, 9 * BLOCK)?;
    // A block behind each kind of mapping: in a direct node, an indirect and a double indirect one.
    let sparse = file(vol, root, "entry_sparse")?;
    for block in [0u64, 1000, 4000, 2_500_000] {
        write(vol, sparse, block * BLOCK as u64, BLOCK)?;
    }
    vol.setxattr(inline, b"user.small", b"value", XattrFlags::empty())?;
    vol.setxattr(blocks, b"user.large", &[7; 2000], XattrFlags::empty())?;
    vol.symlink(me, root, b"entry_symlink", b"entry_inline")?;
    vol.symlink(me, root, b"entry_long_symlink", &[b'x'; 3900])?;
    let mut dir = root;
    for depth in 0..3 {
        let name = format!("entry_dir_{depth}");
        dir = vol.mkdir(me, dir, name.as_bytes(), 0o755, 0)?.attr.ino;
    }
    let many = vol.mkdir(me, root, b"entry_many", 0o755, 0)?.attr.ino;
    for n in 0..400 {
        vol.link(inline, many, format!("entry_number_{n}").as_bytes())?;
    }
    let orphan = file(vol, root, "entry_orphan")?;
    write(vol, orphan, 0, 5 * BLOCK)?;
    vol.open(orphan, false)?;
    vol.unlink(root, b"entry_orphan")?;
    // More segments than fit in a checkpoint's journal: the table's blocks are written.
    let long = file(vol, root, "entry_long")?;
    write(vol, long, 0, 8 << 20)?;
    vol.sync()?;
    if deltas {
        make_deltas(vol, blocks, long)?;
    }
    let synced = file(vol, dir, "entry_synced")?;
    write(vol, synced, 0, 6 * BLOCK)?;
    vol.fsync(synced, false)
}

/// A volume that was not unmounted, with every shape of file, an orphan and an fsync to replay.
///
/// # Panics
/// If it cannot be created.
pub fn volume(options: &mkfs::Options) -> Memory {
    made(options).0
}

/// The same volume, unmounted.
///
/// # Panics
/// If it cannot be created.
pub fn unmounted(options: &mkfs::Options) -> Memory {
    let (_, mem, vol) = made(options);
    vol.unmount().expect("nothing is in the way");
    mem.fork()
}

fn made(options: &mkfs::Options) -> (Memory, Arc<Memory>, Arc<Volume>) {
    let mem = Arc::new(Memory::new(BLOCKS));
    mkfs::format(&*mem, &*clock(), options).expect("the image is large enough");
    let vol = Volume::mount(mem.clone(), clock(), MountOptions::default()).expect("fresh volume");
    populate(&vol, options.features.contains(Features::DELTA)).expect("the volume has room");
    (mem.fork(), mem, vol)
}
