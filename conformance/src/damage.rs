//! What can be wrong with an image? A volume with everything in it, and its bytes changed.
//!
//! Left out: who must survive it (the tests), and faults of a device that is in use (`device::Faulty`).

use std::sync::Arc;

use device::{BLOCK, BlockDevice, Clock, Lba, Memory, Rng, Tag, Time, VirtualClock};
use f2fs::{MountOptions, Volume, mkfs};
use format::superblock::{Features, SuperBlock};
use format::{SegNo, node};
use vfs::{Caller, FileKind, FileSystem, Ino, NewNode, WriteFlags, XattrFlags};

/// Blocks of the image: 64 MiB, so that a copy costs little.
pub const BLOCKS: u64 = 16384;

/// Every name starts with this, which tells blocks of names from blocks of contents.
const NAME: &[u8] = b"entry_";

/// Where a checkpoint's head and tail keep their checksum on a small volume.
const SUM_AT: usize = BLOCK - 4;

/// A clock that stands still.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)))
}

fn file(vol: &Volume, dir: Ino, name: &str) -> vfs::Result<Ino> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
    Ok(vol.mknod(Caller::default(), dir, name.as_bytes(), &new)?.attr.ino)
}

/// Every block says whose it is, in words that are no node numbers.
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
    // One block behind each kind of map: in a direct node, an indirect and a double indirect one.
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
    // More segments than a checkpoint's journal has room for: the table's blocks are written.
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
/// If it cannot be made.
pub fn volume(options: &mkfs::Options) -> Memory {
    made(options).0
}

/// The same volume, unmounted.
///
/// # Panics
/// If it cannot be made.
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

/// The kinds of metadata, and the blocks of each that hold something.
pub struct Targets {
    kinds: Vec<(&'static str, Vec<u64>)>,
}

/// A block of the image.
pub fn block(mem: &Memory, at: u64) -> Box<format::Block> {
    let mut out = Box::new([0; BLOCK]);
    mem.read(Lba(at), &mut *out, Tag::default()).expect("a block of the image");
    out
}

impl Targets {
    /// Finds them.
    ///
    /// # Panics
    /// If the image is no volume.
    pub fn of(mem: &Memory) -> Self {
        let sb = SuperBlock::check(&block(mem, 0)).expect("an undamaged volume");
        let filled = |from: u64, to: u64| -> Vec<u64> {
            (from..to).filter(|at| block(mem, *at).iter().any(|b| *b != 0)).collect()
        };
        let main = u64::from(sb.main.0);
        let (sit, nat, ssa) = (sb.sit_block(0, false), sb.nat_block(0, false), sb.ssa_block(SegNo(0)));
        let (sit, nat, ssa) = (u64::from(sit.0), u64::from(nat.0), u64::from(ssa.0));
        let (mut nodes, mut names) = (Vec::new(), Vec::new());
        for at in filled(main, mem.blocks()) {
            let bytes = block(mem, at);
            let (nid, max) = (node::footer(&bytes).nid.0, sb.max_nid());
            if (1..max).contains(&nid) {
                nodes.push(at);
            } else if bytes.windows(NAME.len()).any(|w| w == NAME) {
                names.push(at);
            }
        }
        let kinds = vec![
            ("superblock", filled(0, 2)),
            ("checkpoint", filled(sb.cp.0.into(), sit)),
            ("SIT", filled(sit, nat)),
            ("NAT", filled(nat, ssa)),
            ("SSA", filled(ssa, main)),
            ("node", nodes),
            ("dentry", names),
        ];
        for (kind, blocks) in &kinds {
            assert!(!blocks.is_empty(), "no {kind} block holds anything");
        }
        Self { kinds }
    }

    /// All of them, with the name of their kind.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.kinds.iter().flat_map(|(kind, blocks)| blocks.iter().map(move |at| (*kind, *at)))
    }

    /// Flips one bit of one block, every kind equally often; says which.
    ///
    /// # Panics
    /// Never on a device of [`BLOCKS`] blocks.
    pub fn flip(&self, mem: &Memory, rng: &mut Rng) -> String {
        let (kind, blocks) = &self.kinds[rng.index(self.kinds.len())];
        let at = blocks[rng.index(blocks.len())];
        let mut bytes = block(mem, at);
        // Mostly a byte that says something: a zero is often one nobody reads.
        let used: Vec<usize> = (0..BLOCK).filter(|i| bytes[*i] != 0).collect();
        let byte =
            if rng.chance(1, 3) { rng.index(BLOCK) } else { used.get(rng.index(used.len())).copied().unwrap_or(0) };
        let bit = rng.below(8);
        let sum = |b: &format::Block| format::crc::crc32(format::crc::SEED, &b[..SUM_AT]).to_le_bytes();
        let sealed = bytes[SUM_AT..] == sum(&bytes);
        bytes[byte] ^= 1 << bit;
        // Half the checkpoint heads get a checksum that holds, or no damage would pass the door.
        let forged = sealed && *kind == "checkpoint" && rng.chance(1, 2);
        if forged {
            let new = sum(&bytes);
            bytes[SUM_AT..].copy_from_slice(&new);
        }
        mem.write(Lba(at), &*bytes, Tag::default()).expect("a block of the image");
        // Half the superblocks are damaged alike in both copies, so that no good one is left to use.
        if *kind == "superblock" && rng.chance(1, 2) {
            mem.write(Lba(1 - at), &*bytes, Tag::default()).expect("a block of the image");
        }
        format!("{kind} block {at}, byte {byte}, bit {bit}{}", if forged { ", checksum forged" } else { "" })
    }
}
