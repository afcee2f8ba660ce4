//! Directories: from a name to an inode number.
//!
//! * [`blocks`]: a directory's blocks in memory.
//! * [`change`]: finding, adding, removing and redirecting entries. [`spot`]: the place of an entry.
//! * [`list`]: walking all entries in a stable order.
//! * [`naming`]: how names are compared, hashed and spelled.
//!
//! The caller holds the directory's lock exclusively: even a lookup may load blocks.

pub mod blocks;
pub mod change;
pub mod list;
pub(crate) mod naming;
pub mod spot;

use crate::context::Context;
use crate::file::Files;
use crate::inode::Inodes;
use crate::node::Nodes;
use crate::promises::Promises;
use crate::segment::Logs;
use crate::xattr::Xattrs;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use vfs::FileKind;

/// Directories and the names in them.
pub struct Names {
    pub(crate) ctx: Arc<Context>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) promises: Arc<Promises>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) xattrs: Arc<Xattrs>,
    pub(crate) files: Arc<Files>,
    /// Held by renames between directories: one at a time.
    pub(crate) renames: Mutex<()>,
    /// Directory blocks loaded since the last check of their number.
    dir_blocks_brought: AtomicU64,
}

impl Names {
    pub(crate) fn new(
        ctx: &Arc<Context>,
        logs: &Arc<Logs>,
        promises: &Arc<Promises>,
        nodes: &Arc<Nodes>,
        inodes: &Arc<Inodes>,
        xattrs: &Arc<Xattrs>,
        files: &Arc<Files>,
    ) -> Arc<Self> {
        Arc::new(Names {
            ctx: ctx.clone(),
            logs: logs.clone(),
            promises: promises.clone(),
            nodes: nodes.clone(),
            inodes: inodes.clone(),
            xattrs: xattrs.clone(),
            files: files.clone(),
            renames: Mutex::new(()),
            dir_blocks_brought: AtomicU64::new(0),
        })
    }
}

/// The type number in a dentry.
pub fn type_number(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

/// The kind for a dentry's type number.
pub fn kind_of(number: u8) -> Option<FileKind> {
    Some(match number {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}
