//! Which of an inode's flags may be seen and changed, and what do they forbid?
//!
//! The kernel enforces immutable and append-only where a file system tells it of them; FUSE has no word for
//! them, so they are enforced here, for everybody. Who may change them is the caller's kernel's question, as
//! are all permissions.
//!
//! Left out: flags whose promise nobody here would keep cannot be changed (synchronous writes, compression, names that
//! fold case); they are shown.

use std::sync::Arc;

use format::inode::{Advise, InodeFlags, extra_end};
use vfs::{FileFlags, FileKind, Flags};

use crate::error::Result;
use crate::inode::{Content, Inode, Touch, touch};
use crate::volume::Volume;

/// Shown of what is stored (kernel `F2FS_GETTABLE_FS_FL`, without what it derives).
const SHOWN: InodeFlags = InodeFlags::COMPRESS
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOCOMP)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD);

/// May be changed on an inode of this kind.
fn settable(kind: FileKind) -> InodeFlags {
    let any = InodeFlags::NODUMP | InodeFlags::NOATIME;
    let both = any | InodeFlags::IMMUTABLE | InodeFlags::APPEND | InodeFlags::NOCOMP;
    match kind {
        FileKind::Regular => both,
        FileKind::Directory => both | InodeFlags::PROJINHERIT,
        _ => any,
    }
}

impl Volume {
    /// Flags and project.
    pub(crate) fn flags_of(&self, inode: &Inode) -> Flags {
        let (flags, advise) = inode.node.inode(|r| (r.flags(), r.advise()));
        let mut shown = FileFlags::from_bits_retain((flags & SHOWN).bits());
        shown.set(FileFlags::ENCRYPT, advise.contains(Advise::ENCRYPT));
        shown.set(FileFlags::VERITY, advise.contains(Advise::VERITY));
        Flags { flags: shown, project: self.project(inode) }
    }

    /// Changes flags, and the project if one is given.
    pub(crate) fn set_flags_of(&self, inode: &Arc<Inode>, wish: FileFlags, project: Option<u32>) -> Result<()> {
        let _change = self.begin()?;
        let _content = inode.content.write();
        self.check_there(inode)?;
        let now = self.flags_of(inode);
        let change = (now.flags ^ wish).bits();
        if change & !settable(inode.kind).bits() != 0 {
            return Err(vfs::Error::Unsupported(format!("changing the flags {:#x}", change)).into());
        }
        let project = project.filter(|&p| p != now.project);
        if project.is_some() && !(self.keeps_projects() && inode.node.inode(|r| r.extra_isize() >= extra_end::PROJID)) {
            return Err(vfs::Error::Unsupported("projects, which this volume does not keep".into()).into());
        }
        if change == 0 && project.is_none() {
            return Ok(());
        }
        let time = self.now();
        self.edit_inode(&inode.node, |r| {
            r.i_flags = (r.i_flags.get() ^ change).into();
            if let (Some(project), Some(e)) = (project, r.extra_mut()) {
                e.i_projid = project.into();
            }
            touch(r, Touch::Changed, time);
        });
        Ok(())
    }

    /// Refuses what neither an immutable nor an append-only inode allows.
    pub(crate) fn check_unsealed(&self, inode: &Inode) -> Result<()> {
        if inode.node.inode(|r| r.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)) {
            return Err(vfs::Error::NotPermitted("the file is immutable or append-only").into());
        }
        Ok(())
    }

    /// How many of the bytes to be written at `offset` are in an append-only file already, and need not be
    /// written: a cache above writes whole pages, and so repeats what was there. Whatever would change a byte
    /// is refused. 0 for every other file.
    pub(crate) fn already_appended(
        &self,
        inode: &Arc<Inode>,
        content: &Content,
        offset: u64,
        data: &[u8],
        cached: bool,
    ) -> Result<usize> {
        if !inode.node.inode(|r| r.flags().contains(InodeFlags::APPEND)) {
            return Ok(0);
        }
        let size = inode.size();
        let there = size.saturating_sub(offset).min(data.len() as u64) as usize;
        let gap = offset > size && !cached;
        let same = || -> Result<bool> {
            let mut found = vec![0; there];
            Ok(self.read_locked(inode, content, offset, &mut found)? == there && found == data[..there])
        };
        if gap || (there > 0 && !(cached && same()?)) {
            return Err(vfs::Error::NotPermitted("the file is append-only").into());
        }
        Ok(there)
    }
}
