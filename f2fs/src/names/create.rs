//! How are inodes and names created?

use std::sync::Arc;

use format::dentry::{self as area, Layout};
use format::inode::{Advise, DEFAULT_INLINE_XATTR, EXTRA_FULL, Inline, InodeFlags, RawInode};
use format::node::{self, Footer};
use format::superblock::Features;
use format::{Block, BlockAddr, Ino};
use vfs::{Caller, DeviceNumber, Entry, FileKind};

use super::check_name;
use crate::context::Begin;
use crate::dir::Names;
use crate::dir::type_number;
use crate::error::Result;
use crate::fields::put_method;
use crate::fields::{Touch, put_inline, set_device_number, touch};
use crate::inode::{Content, Inode};
use crate::pack::PackState;
use format::acl::Inherited;

/// Properties of a new inode.
pub(crate) struct Wish<'a> {
    pub caller: Caller,
    pub kind: FileKind,
    pub perm: u16,
    pub umask: u16,
    pub rdev: DeviceNumber,
    /// A symlink's target.
    pub target: &'a [u8],
}

/// Flags that children inherit from their directory (kernel `F2FS_FL_INHERITED`).
const INHERITED: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::NOCOMP);

/// True if a suffix in the list matches this file: `.ext` anywhere after the first character, in any case.
fn has_extension(name: &[u8], list: &[Vec<u8>]) -> bool {
    if !name.contains(&b'.') {
        return false;
    }
    let lower = name.to_ascii_lowercase();
    list.iter()
        .filter(|e| !e.is_empty())
        .any(|e| lower.iter().enumerate().skip(1).any(|(i, &c)| c == b'.' && lower[i + 1..].starts_with(e)))
}

impl Names {
    /// Creates an inode under a new name.
    pub(crate) fn create(&self, volume: &dyn Begin, parent: vfs::Ino, name: &[u8], wish: &Wish<'_>) -> Result<Entry> {
        check_name(name)?;
        if wish.target.len() >= 4096 {
            return Err(vfs::Error::NameTooLong.into());
        }
        let change = volume.begin()?;
        let dir = self.outer_dir(parent)?;
        let mut guard = dir.content.write();
        let content = &mut *guard;
        self.check_dir_changes(&dir, true)?;
        let (found, room) = self.find_or_room(&dir, content, name)?;
        if found.is_some() {
            return Err(vfs::Error::Exists.into());
        }
        self.check_has_key(&dir)?;
        let inode = self.new_inode(&change, &dir, Some(name), wish)?;
        if let Err(e) = self.insert_entry(&dir, content, name, inode.ino, wish.kind, room) {
            self.abandon(&change, &inode)?;
            return Err(e);
        }
        if wish.kind == FileKind::Directory {
            self.add_links(&dir, 1);
        }
        self.touch_dir(&dir);
        self.inodes.table.hold(inode.ino);
        Ok(Entry { attr: self.inodes.attr(&inode)? })
    }

    /// Creates a regular file without a name.
    pub(crate) fn create_nameless(&self, volume: &dyn Begin, parent: vfs::Ino, wish: &Wish<'_>) -> Result<Entry> {
        let change = volume.begin()?;
        let dir = self.outer_dir(parent)?;
        // New inodes inherit the directory's access lists, which must not change meanwhile.
        let _content = dir.content.read();
        self.check_dir_changes(&dir, true)?;
        self.check_has_key(&dir)?;
        let place = self.inodes.orphans.place()?;
        let inode = self.new_inode(&change, &dir, None, wish)?;
        self.add_links(&inode, -1);
        self.inodes.table.hold(inode.ino);
        self.inodes.orphans.put(inode.ino, place);
        Ok(Entry { attr: self.inodes.attr(&inode)? })
    }

    /// Creates an inode with one link (a directory with two). On failure, it leaves nothing behind.
    pub(super) fn new_inode(
        &self,
        held: &PackState,
        dir: &Arc<Inode>,
        name: Option<&[u8]>,
        wish: &Wish<'_>,
    ) -> Result<Arc<Inode>> {
        let inherit = self.xattrs.inherited_acl(dir, wish.kind, wish.perm, wish.umask)?;
        self.nodes.space.take_node(true)?;
        let nid = self.nodes.nat.reserve(None).inspect_err(|_| self.nodes.space.give_node(true))?;
        let ino = nid.as_ino();
        let mut bytes: Box<Block> = Box::new([0; 4096]);
        self.fill_inode(&mut bytes, ino, dir, name, wish, &inherit);
        let node = self.nodes.cache.insert(nid, ino, bytes);
        self.nodes.edit(&node, |_| ());
        let inode = self.inodes.adopt_inode(ino, wish.kind, node);
        let finish = || -> Result<()> {
            let mut content = inode.content.write();
            match wish.kind {
                FileKind::Directory => self.first_entries(&inode, &mut content, dir.ino)?,
                FileKind::Symlink => {
                    let n = self.files.write_locked(held, &inode, &mut content, 0, wish.target)?;
                    if n < wish.target.len() {
                        return Err(vfs::Error::NoSpace.into());
                    }
                }
                _ => {}
            }
            drop(content);
            self.xattrs.store_inherited_acl(held, &inode, &inherit)
        };
        if let Err(e) = finish() {
            self.abandon(held, &inode)?;
            return Err(e);
        }
        Ok(inode)
    }

    fn fill_inode(
        &self,
        bytes: &mut Block,
        ino: Ino,
        dir: &Inode,
        name: Option<&[u8]>,
        wish: &Wish<'_>,
        inherit: &Inherited,
    ) {
        let now = self.ctx.now();
        let (dir_mode, dir_gid, dir_flags) = dir.node.inode(|p| (p.i_mode.get(), p.i_gid.get(), p.flags()));
        let dir_project = self.project(dir);
        let is_dir = wish.kind == FileKind::Directory;
        let regular = wish.kind == FileKind::Regular;
        let footer = Footer {
            nid: ino.nid(),
            ino,
            cold: !is_dir,
            fsync: false,
            dentry: false,
            offset: 0,
            cp_ver: 0,
            next: BlockAddr::NULL,
        };
        node::set_footer(bytes, &footer);
        let r = RawInode::of_mut(bytes);
        let mut mode = inherit.mode;
        let gid = if dir_mode & 0o2000 != 0 {
            if is_dir {
                mode |= 0o2000;
            }
            dir_gid
        } else {
            wish.caller.gid
        };
        r.i_mode = mode.into();
        r.i_uid = wish.caller.uid.into();
        r.i_gid = gid.into();
        r.i_links = if is_dir { 2 } else { 1 }.into();
        r.i_blocks = 1.into();
        touch(r, Touch::Modified, now);
        r.i_atime = (now.secs as u64).into();
        r.i_atime_nsec = now.nanos.into();
        r.i_generation = self.ctx.next_generation().into();
        r.i_pino = dir.ino.0.into();
        if let Some(name) = name {
            r.i_namelen = (name.len() as u32).into();
            r.i_name[..name.len()].copy_from_slice(name);
        }
        let mut flags = dir_flags & INHERITED;
        if !is_dir {
            flags -= InodeFlags::DIRSYNC | InodeFlags::PROJINHERIT | InodeFlags::CASEFOLD;
        }
        flags -= InodeFlags::COMPRESS | InodeFlags::NOCOMP;
        flags |= self.compressing_flags(wish.kind, name, dir_flags);
        r.i_flags = flags.bits().into();
        if is_dir {
            r.i_current_depth = 1.into();
        }
        let mut inline = Inline::XATTR;
        if self.ctx.has(Features::EXTRA_ATTR) {
            inline |= Inline::EXTRA_ATTR;
        }
        if self.ctx.options.inline {
            inline |= match wish.kind {
                FileKind::Directory => Inline::DENTRY,
                // Linux treats a compressed file with inline contents as damaged.
                FileKind::Regular if flags.contains(InodeFlags::COMPRESS) => Inline::empty(),
                FileKind::Regular | FileKind::Symlink => Inline::DATA,
                _ => Inline::empty(),
            };
        }
        put_inline(r, inline, true);
        if let Some(e) = r.extra_mut() {
            e.i_extra_isize = EXTRA_FULL.into();
        }
        if regular && flags.contains(InodeFlags::COMPRESS) {
            put_method(r, self.ctx.options.compress.method);
        }
        if self.ctx.has(Features::FLEXIBLE_INLINE_XATTR)
            && let Some(e) = r.extra_mut()
        {
            e.i_inline_xattr_size = (DEFAULT_INLINE_XATTR as u16).into();
        }
        if let Some(e) = r.extra_mut() {
            if self.ctx.has(Features::PRJQUOTA) && dir_flags.contains(InodeFlags::PROJINHERIT) {
                e.i_projid = dir_project.into();
            }
            if self.ctx.has(Features::INODE_CRTIME) {
                e.i_crtime = (now.secs as u64).into();
                e.i_crtime_nsec = now.nanos.into();
            }
        }
        if regular && let Some(name) = name {
            if has_extension(name, &self.ctx.sb.cold_extensions) {
                r.i_advise |= Advise::COLD.bits();
            } else if has_extension(name, &self.ctx.sb.hot_extensions) {
                r.i_advise |= Advise::HOT.bits();
            }
        }
        if matches!(wish.kind, FileKind::CharDevice | FileKind::BlockDevice)
            && let Ok(d) = self.nodes.division(r)
        {
            set_device_number(r, d, wish.rdev);
        }
    }

    /// Compression flags of a new inode: from its name, else from its directory (kernel `set_compress_new_inode`).
    fn compressing_flags(&self, kind: FileKind, name: Option<&[u8]>, dir: InodeFlags) -> InodeFlags {
        if !self.ctx.has(Features::COMPRESSION) {
            return InodeFlags::empty();
        }
        let inherited = if dir.contains(InodeFlags::NOCOMP) { InodeFlags::NOCOMP } else { dir & InodeFlags::COMPRESS };
        match (kind, name) {
            (FileKind::Directory, _) => inherited,
            (FileKind::Regular, Some(name)) if !has_extension(name, &self.ctx.sb.hot_extensions) => {
                match self.ctx.options.compress.by_name(name) {
                    Some(true) => InodeFlags::COMPRESS,
                    Some(false) => InodeFlags::empty(),
                    None => inherited,
                }
            }
            _ => InodeFlags::empty(),
        }
    }

    /// Adds `.` and `..` to a new directory.
    fn first_entries(&self, dir: &Arc<Inode>, content: &mut Content, parent: Ino) -> Result<()> {
        let kind = type_number(FileKind::Directory);
        let entries: [(usize, &[u8], Ino); 2] = [(0, b".", dir.ino), (1, b"..", parent)];
        if self.is_inline_dir(dir) {
            return self.nodes.edit(&dir.node, |b| {
                let range = self.inline_dir_area(RawInode::of(b))?;
                let l = Layout::inline(range.len());
                for (slot, name, ino) in entries {
                    area::insert(&l, &mut b[range.clone()], slot, name, 0, ino.0, kind);
                }
                RawInode::of_mut(b).i_size = (range.len() as u64).into();
                Ok(())
            });
        }
        let b = self.new_dir_block(dir, content, 0)?;
        entries.into_iter().for_each(|(slot, name, ino)| b.insert(slot, name, 0, ino.0, kind));
        Ok(())
    }

    /// Adds a name to an inode.
    pub(crate) fn link_inode(&self, volume: &dyn Begin, ino: vfs::Ino, parent: vfs::Ino, name: &[u8]) -> Result<Entry> {
        check_name(name)?;
        let _change = volume.begin()?;
        let inode = self.outer(ino)?;
        if inode.kind == FileKind::Directory {
            return Err(vfs::Error::NotPermitted("directories have one name").into());
        }
        let dir = self.outer_dir(parent)?;
        let mut content = dir.content.write();
        self.check_dir_changes(&dir, true)?;
        let flags = inode.node.inode(|r| r.flags());
        if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(vfs::Error::NotPermitted("the file is immutable or append-only").into());
        }
        let (found, room) = self.find_or_room(&dir, &mut content, name)?;
        if found.is_some() {
            return Err(vfs::Error::Exists.into());
        }
        self.check_has_key(&dir)?;
        if inode.node.inode(|r| r.i_links.get()) == u32::MAX {
            return Err(vfs::Error::TooManyLinks.into());
        }
        self.check_project(&inode, &dir)?;
        // Another thread may be removing the inode's last name: links are counted under this lock.
        let _counting = inode.content.write();
        self.inodes.check_there(&inode)?;
        self.insert_entry(&dir, &mut content, name, inode.ino, inode.kind, room)?;
        self.promises.renamed.lock().insert(inode.ino);
        let now = self.ctx.now();
        if self.add_links(&inode, 1) == 1 {
            // The inode had no name: roll-forward may restore this one.
            self.inodes.orphans.remove(inode.ino);
            self.promises.names.lock().revived(inode.ino);
            self.set_place(&inode, &dir, name);
        } else {
            self.doubt_place(&inode);
        }
        self.nodes.edit_inode(&inode.node, |r| touch(r, Touch::Changed, now));
        self.touch_dir(&dir);
        self.inodes.table.hold(inode.ino);
        Ok(Entry { attr: self.inodes.attr(&inode)? })
    }
}
