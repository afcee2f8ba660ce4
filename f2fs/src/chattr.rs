//! Which of an inode's flags are visible and which can be changed, and what do they forbid?
//!
//! The kernel enforces immutable and append-only if a file system reports them. FUSE cannot report them, so they are
//! enforced here, for all users. The kernel checks who may change them, like all permissions.
//!
//! Compression of a file can be switched on or off only while it has no blocks, because its blocks then use other slots
//! (kernel `f2fs_setflags_common`).
//!
//! Casefolding of a directory can be switched only while it is empty.
//!
//! Left out: flags that are not implemented (synchronous writes) are shown but cannot be changed.

use std::sync::Arc;

use format::compress::Method;
use format::inode::{Advise, Inline, InodeFlags, extra_end};
use format::superblock::Features;
use vfs::{FileFlags, FileKind, Flags};

use crate::context::Begin;
use crate::error::Result;
use crate::fields::{Touch, put_method, touch};
use crate::inode::{Content, Inode};
use crate::volume::Volume;

/// Stored flags that are shown (kernel `F2FS_GETTABLE_FS_FL` without derived flags).
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

/// Flags that decide whether a file is compressed.
const COMPRESSING: InodeFlags = InodeFlags::COMPRESS.union(InodeFlags::NOCOMP);

/// Flags that can be changed on an inode of this kind.
fn settable(kind: FileKind) -> InodeFlags {
    let any = InodeFlags::NODUMP | InodeFlags::NOATIME;
    let both = any | InodeFlags::IMMUTABLE | InodeFlags::APPEND | InodeFlags::NOCOMP | InodeFlags::COMPRESS;
    match kind {
        FileKind::Regular => both,
        FileKind::Directory => both | InodeFlags::PROJINHERIT | InodeFlags::CASEFOLD,
        _ => any,
    }
}

impl Volume {
    /// Flags and project of an inode.
    pub(crate) fn flags_of(&self, inode: &Inode) -> Flags {
        let (flags, advise) = inode.node.inode(|r| (r.flags(), r.advise()));
        let mut shown = FileFlags::from_bits_retain((flags & SHOWN).bits());
        shown.set(FileFlags::ENCRYPT, advise.contains(Advise::ENCRYPT));
        shown.set(FileFlags::VERITY, advise.contains(Advise::VERITY));
        Flags { flags: shown, project: self.names.project(inode) }
    }

    /// Sets the flags, and the project if given.
    pub(crate) fn set_flags_of(&self, inode: &Arc<Inode>, wish: FileFlags, project: Option<u32>) -> Result<()> {
        // Wait for operations of several steps on the file.
        let _turn = inode.steps.turn.lock();
        let _change = self.begin_modest()?;
        let mut content = inode.content.write();
        self.inodes.check_there(inode)?;
        let now = self.flags_of(inode);
        // Flags that are shown but cannot be set do not count (kernel `F2FS_SETTABLE_FS_FL`).
        let change = ((now.flags ^ wish) - (FileFlags::ENCRYPT | FileFlags::VERITY)).bits();
        if change & !settable(inode.kind).bits() != 0 {
            return Err(vfs::Error::Unsupported(format!("changing the flags {:#x}", change)).into());
        }
        let project = project.filter(|&p| p != now.project);
        if project.is_some()
            && !(self.names.keeps_projects() && inode.node.inode(|r| r.extra_isize() >= extra_end::PROJID))
        {
            return Err(vfs::Error::Unsupported("projects, which this volume does not keep".into()).into());
        }
        if change == 0 && project.is_none() {
            return Ok(());
        }
        let turned = change & InodeFlags::COMPRESS.bits() != 0;
        if change & COMPRESSING.bits() != 0 && wish.contains(FileFlags::COMPRESS | FileFlags::NOCOMP) {
            return Err(vfs::Error::Invalid("compressed and never compressed").into());
        }
        if change & InodeFlags::CASEFOLD.bits() != 0 {
            self.may_turn_folding(inode, &mut content, wish.contains(FileFlags::CASEFOLD))?;
        }
        if turned {
            self.may_turn_compressed(inode)?;
            self.files.leave_inline(inode, &mut content)?;
            // The chain may contain nodes of the other layout.
            self.promises.reshaped(inode.ino);
        }
        self.note_altered(inode);
        let time = self.ctx.now();
        let method = self.ctx.options.compress.method;
        self.nodes.edit_inode(&inode.node, |r| {
            if turned && inode.kind == FileKind::Regular {
                put_method(r, method);
            }
            r.i_flags = (r.i_flags.get() ^ change).into();
            if let (Some(project), Some(e)) = (project, r.extra_mut()) {
                e.i_projid = project.into();
            }
            touch(r, Touch::Changed, time);
        });
        Ok(())
    }

    /// Checks whether casefolding of the directory can be switched.
    fn may_turn_folding(&self, dir: &Inode, content: &mut Content, on: bool) -> Result<()> {
        if on {
            // Hashes of names that are both folded and encrypted need the key, too.
            self.names.check_has_key(dir)?;
        }
        if !self.ctx.has(Features::CASEFOLD) {
            return Err(vfs::Error::Unsupported(
                "case-insensitive names; the volume lacks the feature \
                casefold"
                    .into(),
            )
            .into());
        }
        if !self.names.is_empty_dir(dir, content)? {
            return Err(vfs::Error::NotEmpty.into());
        }
        Ok(())
    }

    /// Checks whether compression of the file can be switched.
    fn may_turn_compressed(&self, inode: &Inode) -> Result<()> {
        if !self.ctx.has(Features::COMPRESSION) {
            return Err(vfs::Error::Unsupported(
                "compressed files; the volume lacks the feature \
                compression"
                    .into(),
            )
            .into());
        }
        if inode.kind == FileKind::Directory {
            return Ok(());
        }
        let advise = inode.node.inode(|r| r.advise());
        if inode.node.inode(|r| r.extra_isize() < extra_end::COMPRESS) || advise.contains(Advise::ENCRYPT) {
            return Err(vfs::Error::Unsupported("compressing this file".into()).into());
        }
        if inode.node.inode(|r| r.inline().contains(Inline::PIN_FILE)) {
            return Err(vfs::Error::Invalid("a pinned file is not compressed").into());
        }
        self.files.check_has_room(inode)?;
        self.check_no_blocks(inode)
    }

    fn check_no_blocks(&self, inode: &Inode) -> Result<()> {
        let inside = self.files.inline_room(inode)?.is_some() && inode.size() > 0;
        let own = inode.node.inode(|r| 1 + u64::from(r.i_xattr_nid.get() != 0));
        if inside || inode.node.inode(|r| r.i_blocks.get()) > own {
            return Err(vfs::Error::Invalid("only a file without blocks can become compressed, or plain").into());
        }
        Ok(())
    }

    /// Sets the compression method of a compressed file without blocks.
    pub(crate) fn set_method_of(&self, inode: &Arc<Inode>, algorithm: u8, log_cluster: u8) -> Result<()> {
        let _turn = inode.steps.turn.lock();
        let _change = self.begin_modest()?;
        let _content = inode.content.write();
        self.inodes.check_there(inode)?;
        self.files.check_plain(inode)?;
        let Some(now) = self.files.clusters(inode)? else {
            return Err(vfs::Error::Invalid("the file is not a compressed one").into());
        };
        let flag = u16::from(now.checksum);
        let method = Method::of_inode(algorithm, log_cluster, flag)
            .map_err(|_| vfs::Error::Invalid("no such algorithm, or clusters of that size"))?;
        self.check_no_blocks(inode)?;
        self.promises.reshaped(inode.ino);
        self.nodes.edit_inode(&inode.node, |r| put_method(r, method));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vfs::{Allocate, FileSystem, SetAttr, SetTime, Timestamp, WriteFlags, XattrFlags};

    use super::*;
    use crate::MountOptions;
    use crate::rig::*;

    fn seal(vol: &Volume, inode: &Inode, flags: InodeFlags) {
        vol.nodes.edit_inode(&inode.node, |r| r.i_flags = flags.bits().into());
    }

    #[test]
    fn whoever_waits_for_a_file_that_is_sealed_meanwhile_is_refused() {
        let (dev, vol) = mounted(64, MountOptions::default());
        let f = file(&vol, "f");
        write(&vol, f, 0, &blocks(3));
        vol.setxattr(f, b"user.a", b"1", XattrFlags::empty()).unwrap();
        let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let owner = SetAttr { uid: Some(7), ..SetAttr::default() };
        let work: [&(dyn Fn() -> vfs::Result<()> + Sync); 6] = [
            &|| vol.write(f, 100, b"x", WriteFlags::empty()).map(drop),
            &|| vol.setattr(f, &size(5)).map(drop),
            &|| vol.setattr(f, &owner).map(drop),
            &|| vol.fallocate(f, Allocate::PunchHole, 0, 4096),
            &|| vol.setxattr(f, b"user.a", b"2", XattrFlags::empty()),
            &|| vol.removexattr(f, b"user.a"),
        ];
        let inode = vol.names.outer(f).unwrap();
        for (i, work) in work.into_iter().enumerate() {
            std::thread::scope(|s| {
                let content = inode.content.read();
                let waiting = s.spawn(work);
                std::thread::sleep(A_WHILE);
                seal(&vol, &inode, InodeFlags::IMMUTABLE);
                drop(content);
                let out = waiting.join().unwrap();
                assert!(matches!(out, Err(vfs::Error::NotPermitted(_))), "{i}: {out:?}");
                seal(&vol, &inode, InodeFlags::empty());
            });
        }
        assert!(read(&vol, f) == blocks(3));
        assert_eq!(vol.getxattr(f, b"user.a").unwrap(), b"1");
        drop(inode);
        judge(&dev, &vol);
    }

    #[test]
    fn a_cache_may_repeat_what_an_append_only_file_has_and_append_megabytes() {
        let (dev, vol) = mounted(64, MountOptions::default());
        let f = file(&vol, "f");
        let all = blocks(900);
        write(&vol, f, 0, &all[..100]);
        seal(&vol, &vol.names.outer(f).unwrap(), InodeFlags::APPEND);
        assert_eq!(vol.write(f, 0, &all, WriteFlags::FROM_CACHE).unwrap(), all.len());
        assert!(read(&vol, f) == all);
        let other = vol.write(f, 0, b"other", WriteFlags::FROM_CACHE);
        assert!(matches!(other, Err(vfs::Error::NotPermitted(_))), "{other:?}");
        judge(&dev, &vol);
    }

    #[test]
    fn the_times_of_an_append_only_file_may_become_now_and_no_others() {
        let (dev, vol) = mounted(64, MountOptions::default());
        let f = file(&vol, "f");
        seal(&vol, &vol.names.outer(f).unwrap(), InodeFlags::APPEND);
        let then = Timestamp { sec: 5, nsec: 0 };
        let (now, at) = (Some(SetTime::Now), Some(SetTime::At(then)));
        let set = |atime, mtime, ctime| SetAttr { atime, mtime, ctime, ..SetAttr::default() };
        for (allowed, set) in [
            (true, set(now, now, None)),
            (true, set(None, now, None)),
            // What a cache above that owns times passes: the file grew, or was touched.
            (true, set(None, at, Some(then))),
            (true, set(now, at, Some(then))),
            (false, set(at, None, None)),
            (false, set(None, at, None)),
            (false, set(at, at, Some(then))),
            (false, SetAttr { perm: Some(0o600), ..set(None, now, None) }),
        ] {
            let out = vol.setattr(f, &set);
            assert_eq!(out.is_ok(), allowed, "{set:?}: {out:?}");
        }
        seal(&vol, &vol.names.outer(f).unwrap(), InodeFlags::APPEND | InodeFlags::IMMUTABLE);
        assert!(vol.setattr(f, &set(None, now, None)).is_err(), "immutable");
        judge(&dev, &vol);
    }
}
