//! Creates an empty volume.
//!
//! The root and the inode map are the first transaction, the free list is the first checkpoint: a new volume equals
//! an old one after an unmount. Both superblock copies are written, so that neither is left from an earlier file
//! system.

use std::sync::Arc;
use std::time::Duration;

use device::{BlockDevice, Clock, Lba, Tag};
use rustc_hash::FxHashMap;
use scherlfs_format::inode::Attributes;
use scherlfs_format::superblock::{BLOCKS_MIN, LABEL_MAX, Placement, Superblock};
use scherlfs_format::{
    Addr, BLOCK, BLOCKS_MAX, Epoch, FIRST, FIRST_INO, FREE_LIST, HISTORY, IFILE, Ino, ORPHANS, ROOT, Seq,
};
use vfs::{Error, FileKind, Power, Result};

use crate::cause::Cause;
use crate::clean::care::Care;
use crate::clean::strategy::Clean;
use crate::imap::InodeMap;
use crate::inode::{Inode, time};
use crate::marks::Marks;
use crate::order::{Way, order};
use crate::path::Path;
use crate::space::Blocks;
use crate::volume::{MountOptions, State};

/// The name of the inode map in the root directory.
pub(crate) const IFILE_NAME: &[u8] = b".ifile";

/// Parameters of a new volume.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its label, at most 64 bytes.
    pub label: String,
    /// Its identity.
    pub uuid: [u8; 16],
    /// A secret that users of the volume must not guess: it distinguishes the log's own blocks from imitations by
    /// users. 0: none.
    pub secret: u64,
    /// Blocks per segment: a power of two from 8 to 2^20.
    pub segment_blocks: u32,
    /// Placement of inodes by the writer.
    pub placement: Placement,
    /// Owner of the root directory.
    pub owner: (u32, u32),
}

impl Default for Options {
    fn default() -> Self {
        Options {
            label: String::new(),
            uuid: [0; 16],
            secret: 0,
            segment_blocks: 256,
            placement: Placement::Before,
            owner: (0, 0),
        }
    }
}

/// Creates a volume on a whole device. Its old contents are lost.
pub fn format(dev: Arc<dyn BlockDevice>, clock: &dyn Clock, options: &Options) -> Result<()> {
    let blocks = dev.blocks().min(BLOCKS_MAX);
    if blocks < BLOCKS_MIN {
        return Err(Error::Invalid("a volume of less than 256 KiB"));
    }
    if options.label.len() > LABEL_MAX {
        return Err(Error::Invalid("a label of over 64 bytes"));
    }
    if !options.segment_blocks.is_power_of_two() || !(8..=1 << 20).contains(&options.segment_blocks) {
        return Err(Error::Invalid("segments have a power of two of blocks, 8 to 1048576"));
    }
    let mut free = Blocks::default();
    // A free run on disk has less than 2^32 blocks, and runs must not touch: a block is left out between them.
    let mut at = FIRST;
    while at < blocks {
        let len = (blocks - at).min(u64::from(u32::MAX));
        free.add(at, len);
        at += len + 1;
    }
    let hidden = |ino: Ino| Inode {
        ino,
        a: Attributes {
            mode: FileKind::Regular.mode_bits() | 0o444,
            nlink: 1,
            times: [time(clock.now()); 4],
            parent: ROOT,
            ..Attributes::default()
        },
        ..Inode::default()
    };
    let sb = Superblock {
        uuid: options.uuid,
        label: options.label.clone(),
        blocks,
        segment_blocks: options.segment_blocks,
        placement: options.placement,
        clean: false,
        checkpoint: 1,
        seq: Seq(0),
        epoch: Epoch::new(1, options.secret),
        secret: options.secret,
        // Set by the checkpoint; until then there is no superblock on the disk.
        ifile: Addr(FIRST),
        free_list: Addr(FIRST),
        orphans: None,
        history: None,
        undo_floor: Seq(0),
        free: free.count(),
        inodes: 0,
        promised: 0,
        begun: time(clock.now()),
        path: Vec::new(),
    };
    // Remove an older file system's superblocks.
    let tag = Tag { cause: Cause::Format as u8, owner: 0 };
    dev.write(Lba(0), &[0; 2 * BLOCK], tag).map_err(Error::device)?;
    dev.flush(tag).map_err(Error::device)?;
    let path = Path::through(order(&free, FIRST, &Way::Threading));
    let mut map = InodeMap::new(hidden(IFILE), 16, 2);
    map.inode.a.size = (FIRST_INO.0 / 512 + 1) as u64 * BLOCK as u64;
    let mut state = State {
        dev: dev.clone(),
        archive: None,
        sb,
        imap: map,
        free_list: hidden(FREE_LIST),
        orphan_list: hidden(ORPHANS),
        inodes: FxHashMap::default(),
        waiting: Default::default(),
        waits: 0,
        since: None,
        gone: Vec::new(),
        orphans: Default::default(),
        free,
        dead: Marks::default(),
        placement: Placement::Before,
        series: None,
        torn: false,
        path,
        history: Default::default(),
        history_list: hidden(HISTORY),
        care: Care::new(Clean::ByPower, Power::Battery),
        pace: MountOptions::default().pace(),
        accesses: Default::default(),
        background: Default::default(),
        changed: Default::default(),
        checkpointed: Default::default(),
        promised: 0,
        need: 0,
        seq: Seq(0),
        attempt: 0,
        epoch: Epoch::new(1, options.secret),
        // The first superblock is that of the checkpoint.
        begun: true,
        logged: 0,
        dir_blocks: 0,
        dir_cache: 16,
        user_bytes: 0,
        gone_names: Default::default(),
        request: parking_lot::Mutex::default(),
        broken: None,
        torn_superblock: false,
        unflushed: None,
        committed: Duration::ZERO,
        ended: false,
        host_room: None,
        relieved: 0,
    };
    let mut root = Inode {
        ino: ROOT,
        a: Attributes {
            mode: FileKind::Directory.mode_bits() | 0o755,
            nlink: 2,
            uid: options.owner.0,
            gid: options.owner.1,
            parent: ROOT,
            times: [time(clock.now()); 4],
            ..Attributes::default()
        },
        ..Inode::default()
    };
    state.names(&mut root)?;
    state.add_name(&mut root, IFILE_NAME, IFILE, FileKind::Regular)?;
    state.keep(&mut root);
    state.inodes.insert(ROOT, Box::new(root));
    state.checkpoint(true)?;
    // Also write the other copy, so that one lost block does not cost the volume.
    let copy = state.sb.write();
    dev.write(Lba(1 - state.sb.place().0), &copy[..], tag).map_err(Error::device)?;
    dev.flush(tag).map_err(Error::device)?;
    Ok(())
}
