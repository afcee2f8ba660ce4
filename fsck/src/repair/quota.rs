//! How is a lost quota file recreated?
//!
//! It counts nothing until Linux or `fsck.f2fs` recounts, which the checkpoint requests. If another file has taken
//! its number meanwhile, that file keeps it, and the superblock names a new number.

use format::inode::{Inline, InodeFlags, RawInode};
use format::nat::NatEntry;
use format::node::{self, Footer};
use format::quota::{FILE_BLOCKS, FILE_BYTES, Kind, fresh_file};
use format::{BLOCK, BlockAddr, Ino, Nid};

use super::edit::Editor;
use super::{Action, RepairError, Session};
use crate::report::{NodeFault, Referrer};

/// Recreates quota file `k` under its number, or under another one if a different file has it.
pub fn restore(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    k: usize,
    nid: Nid,
    fault: NodeFault,
) -> Result<(), RepairError> {
    let Some(kind) = Kind::ALL.get(k) else { return Ok(()) };
    let nid = match fault {
        NodeFault::Twice | NodeFault::OutOfRange => {
            let free = e.free_nid()?.ok_or(RepairError::NoSpace)?;
            e.quota_inos[k] = free.as_ino();
            free
        }
        _ => nid,
    };
    let ino = nid.as_ino();
    // The node in the table does not belong to this file.
    let version = e.entry(nid)?.version;
    e.nat.insert(nid, NatEntry { version, ino, addr: BlockAddr::NULL });
    let block = inode(e, ino)?;
    e.nodes.insert(nid, block);
    for (index, contents) in fresh_file(*kind, 0, 0, 0).into_iter().enumerate() {
        e.data.insert((ino, index as u64), Box::new(contents));
    }
    session.actions.push(Action::QuotaFileMade { file: Referrer::Quota(k), ino });
    Ok(())
}

/// An inode owned by root, with extra attributes of the same size as the root directory's.
fn inode(e: &Editor<'_, '_>, ino: Ino) -> Result<Box<format::Block>, RepairError> {
    let mut block = Box::new([0; BLOCK]);
    let root = e.peek(e.img.sb.root.nid())?;
    let raw = RawInode::of_mut(&mut block);
    raw.i_mode = 0o100_600.into();
    raw.i_links = 1.into();
    raw.i_size = FILE_BYTES.into();
    raw.i_blocks = (FILE_BLOCKS as u64 + 1).into();
    raw.i_flags = InodeFlags::IMMUTABLE.bits().into();
    if let Some(like) = root.as_ref().map(|b| RawInode::of(b)) {
        (raw.i_atime, raw.i_ctime, raw.i_mtime) = (like.i_ctime, like.i_ctime, like.i_ctime);
        if let Some(extra) = like.extra() {
            raw.i_inline = Inline::EXTRA_ATTR.bits();
            if let Some(own) = raw.extra_mut() {
                own.i_extra_isize = extra.i_extra_isize;
            }
        }
    }
    let footer = Footer {
        nid: ino.nid(),
        ino,
        cold: false,
        fsync: false,
        dentry: false,
        offset: 0,
        cp_ver: 0,
        next: BlockAddr::NULL,
    };
    node::set_footer(&mut block, &footer);
    Ok(block)
}
