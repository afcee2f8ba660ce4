//! Which owner and rights does a mount show if mount options override those of the volume?
//!
//! [`Shown`] is a decorator that shows one owner, one group, or both, for every inode. The kernel checks rights against
//! what it is shown. So the shown owner has an owner's rights, and can change files of unknown users in a foreign
//! volume.
//!
//! Stored files keep their owner, and new files belong to their creator, as on every mount: no owner is forged. As with
//! `uid=` and `gid=` of Linux's vfat, a `chown` to the shown owner changes nothing, and any other is `EPERM`.
//!
//! Such a mount has no set-id bits, or its user could create a program that elsewhere runs as its stored owner: bits on
//! the volume are not shown, cannot be set, and are cleared from a file by any change. (Directories keep them.) Access
//! lists are shown and apply as they are.
//!
//! Masks, if given (`umask=`, `dmask=`, `fmask=` of vfat and ntfs-3g), replace the volume's rights: everything that a
//! mask does not remove is granted to all users. As with vfat, a `chmod` to the shown rights changes nothing, and any
//! other is `EPERM`. Access lists would contradict the masks, and are neither shown nor set. A symlink, whose rights
//! the kernel does not check, is shown with its own.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use vfs::{
    Allocate, Attr, Caller, Compression, DirEntry, Entry, Error, Extent, FileFlags, FileKind, FileSystem, Flags, Flow,
    Ino, Moving, NewNode, RenameFlags, Result, Room, Seek, SetAttr, StatFs, WriteFlags, XattrFlags,
};

const SUID: u16 = 0o4000;
const SGID: u16 = 0o2000;

/// The owner to show; `None`: the volume's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Rights removed from directories; `None`: the volume's rights.
    pub dmask: Option<u16>,
    /// Rights removed from all other files.
    pub fmask: Option<u16>,
}

/// Attributes that grant rights.
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
const NO_LISTS: &str = "no access lists on a mount with umask=, dmask= or fmask=";

impl Owner {
    /// True if anything differs from the volume.
    pub fn is_given(&self) -> bool {
        self.belongs() || self.masks()
    }

    /// True if an owner or group is shown in place of the stored one.
    pub fn belongs(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    fn masks(&self) -> bool {
        self.dmask.is_some() || self.fmask.is_some()
    }

    /// The rights of all files of a type, unless they are the volume's.
    fn rights(&self, kind: FileKind) -> Option<u16> {
        let mask = match kind {
            FileKind::Directory => self.dmask,
            FileKind::Symlink => None,
            _ => self.fmask,
        };
        mask.map(|mask| 0o777 & !mask)
    }

    /// The set-id bits to hide: a program would run as the shown owner, or as its stored owner despite the masks.
    fn hidden(&self) -> u16 {
        match self.fmask {
            Some(_) => SUID | SGID,
            None => self.uid.map_or(0, |_| SUID) | self.gid.map_or(0, |_| SGID),
        }
    }

    fn show(&self, mut attr: Attr) -> Attr {
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        if attr.kind != FileKind::Directory {
            attr.perm &= !self.hidden();
        }
        attr.perm = self.rights(attr.kind).unwrap_or(attr.perm);
        attr
    }

    /// The attributes left to set after checking the owner.
    fn taken(&self, set: &SetAttr) -> Result<SetAttr> {
        let mut set = *set;
        for (asked, shown) in [(&mut set.uid, self.uid), (&mut set.gid, self.gid)] {
            if shown.is_none() {
                continue;
            }
            if asked.is_some_and(|id| Some(id) != shown) {
                return Err(Error::NotPermitted("the mount shows all files as owned by one user or group"));
            }
            *asked = None;
        }
        Ok(set)
    }
}

/// A file system shown with another owner.
pub(crate) struct Shown {
    fs: Arc<dyn FileSystem>,
    owner: Owner,
}

/// Calls that do not involve owners.
macro_rules! as_they_are {
    ($($name:ident($($arg:ident: $of:ty),*) $(-> $out:ty)?;)*) => {
        $(fn $name(&self, $($arg: $of),*) $(-> $out)? {
            self.fs.$name($($arg),*)
        })*
    };
}

impl Shown {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, owner: Owner) -> Self {
        Shown { fs, owner }
    }

    fn entry(&self, found: Result<Entry>) -> Result<Entry> {
        found.map(|entry| Entry { attr: self.owner.show(entry.attr) })
    }

    /// Refuses hidden bits on files that are not directories.
    fn check(&self, perm: u16) -> Result<()> {
        match perm & self.owner.hidden() {
            0 => Ok(()),
            _ => {
                Err(Error::NotPermitted("no set-id bits where the mount shows all files as owned by one user or group"))
            }
        }
    }
}

impl FileSystem for Shown {
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.fs.getattr(ino).map(|attr| self.owner.show(attr))
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let mut set = self.owner.taken(set)?;
        if let Some(perm) = set.perm {
            let kind = self.fs.getattr(ino)?.kind;
            match self.owner.rights(kind) {
                Some(rights) if perm == rights => set.perm = None,
                Some(_) => return Err(Error::NotPermitted("modes are fixed by umask=, dmask= or fmask=")),
                None if kind != FileKind::Directory => self.check(perm)?,
                None => {}
            }
        }
        // The kernel does not see the bits, so it requests this only for changes of owner.
        set.kill_suid_sgid |= set.size.is_some();
        self.fs.setattr(ino, &set).map(|attr| self.owner.show(attr))
    }

    fn folds(&self) -> bool {
        self.fs.folds()
    }

    fn refuses_opening(&self) -> bool {
        self.fs.refuses_opening()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.entry(self.fs.lookup(parent, name))
    }

    fn mknod(&self, caller: Caller, parent: Ino, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.check(new.perm)?;
        self.entry(self.fs.mknod(caller, parent, name, new))
    }

    fn mkdir(&self, caller: Caller, parent: Ino, name: &[u8], perm: u16, umask: u16) -> Result<Entry> {
        self.entry(self.fs.mkdir(caller, parent, name, perm, umask))
    }

    fn symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.entry(self.fs.symlink(caller, parent, name, target))
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.entry(self.fs.link(ino, parent, name))
    }

    fn tmpfile(&self, caller: Caller, parent: Ino, perm: u16, umask: u16) -> Result<Entry> {
        self.check(perm)?;
        self.entry(self.fs.tmpfile(caller, parent, perm, umask))
    }

    fn open(&self, ino: Ino, truncate: bool) -> Result<()> {
        if truncate {
            self.changes(ino)?;
        }
        self.fs.open(ino, truncate)
    }

    fn may_write(&self, ino: Ino, appending: bool) -> Result<()> {
        self.fs.may_write(ino, appending)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        self.fs.write(ino, offset, data, flags | WriteFlags::KILL_SUID_SGID)
    }

    fn fallocate(&self, ino: Ino, what: Allocate, offset: u64, len: u64) -> Result<()> {
        self.changes(ino)?;
        self.fs.fallocate(ino, what, offset, len)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if self.hides(name) { Err(Error::NoAttribute) } else { self.fs.getxattr(ino, name) }
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.fs.listxattr(ino).map(|all| all.into_iter().filter(|name| !self.hides(name)).collect())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        if self.hides(name) { Err(Error::NotPermitted(NO_LISTS)) } else { self.fs.setxattr(ino, name, value, flags) }
    }

    as_they_are! {
        root() -> Ino;
        statfs() -> Result<StatFs>;
        read_only() -> bool;
        forget(ino: Ino, count: u64);
        readlink(ino: Ino) -> Result<Vec<u8>>;
        unlink(parent: Ino, name: &[u8]) -> Result<()>;
        rmdir(parent: Ino, name: &[u8]) -> Result<()>;
        rename(caller: Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<()>;
        release(ino: Ino);
        read(ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
        accessed(ino: Ino) -> bool;
        seek(ino: Ino, offset: u64, what: Seek) -> Result<u64>;
        readdir(ino: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()>;
        fsync(ino: Ino, data_only: bool) -> Result<()>;
        fsyncdir(ino: Ino, data_only: bool) -> Result<()>;
        sync() -> Result<()>;
        removexattr(ino: Ino, name: &[u8]) -> Result<()>;
        flags(ino: Ino) -> Result<Flags>;
        set_flags(ino: Ino, flags: FileFlags, project: Option<u32>) -> Result<()>;
        start_atomic(ino: Ino, owner: u64) -> Result<()>;
        commit_atomic(ino: Ino, owner: u64) -> Result<()>;
        abort_atomic(ino: Ino, owner: u64) -> Result<bool>;
        feature_bits() -> Result<u32>;
        compression(ino: Ino) -> Result<Option<Compression>>;
        set_compression(ino: Ino, algorithm: u8, log_cluster: u8) -> Result<()>;
        repack(ino: Ino, packed: bool) -> Result<()>;
        release_saved(ino: Ino) -> Result<u64>;
        reserve_saved(ino: Ino) -> Result<u64>;
        extents(ino: Ino, from: u64, most: usize) -> Result<Vec<Extent>>;
        defragment(ino: Ino, blocks: Range<u64>, how: Moving) -> Result<(u64, u64)>;
        room(blocks: u64, clean: bool) -> Result<Room>;
        tick() -> Result<Duration>;
        wake_by(wake: Box<dyn Fn() + Send + Sync>);
        report() -> Vec<(String, String)>;
        account(files: usize, since: u64) -> Option<String>;
        tune(name: &str, value: &str) -> std::result::Result<(), String>;
        unmount() -> Result<()>;
    }
}

impl Shown {
    /// True for access lists if masks are given.
    fn hides(&self, name: &[u8]) -> bool {
        self.owner.masks() && ACCESS_LISTS.contains(&name)
    }

    /// Called before a file's contents change: clears bits that are stored and hidden.
    fn changes(&self, ino: Ino) -> Result<()> {
        if self.fs.getattr(ino)?.perm & (SUID | SGID) != 0 {
            self.fs.setattr(ino, &SetAttr { kill_suid_sgid: true, ..SetAttr::default() })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use judges::memfs::MemFs;
    use vfs::DeviceNumber;

    const ALICE: Caller = Caller { uid: 1000, gid: 1000 };
    const BOB: Owner = Owner { uid: Some(2000), gid: Some(2001), dmask: None, fmask: None };

    fn file(perm: u16) -> NewNode {
        NewNode { kind: FileKind::Regular, perm, umask: 0, rdev: DeviceNumber::default() }
    }

    fn owner(attr: &Attr) -> (u32, u32, u16) {
        (attr.uid, attr.gid, attr.perm)
    }

    /// Alice's file, and her volume as Bob mounts it.
    fn hers(perm: u16, owner: Owner) -> (Arc<MemFs>, Shown, Ino) {
        let fs = Arc::new(MemFs::new(1 << 20));
        let ino = fs.mknod(ALICE, fs.root(), b"hers", &file(perm)).unwrap().attr.ino;
        (fs.clone(), Shown::new(fs, owner), ino)
    }

    #[test]
    fn everything_is_shown_as_belonging_to_one_owner_and_stored_as_it_is() {
        let (fs, shown, ino) = hers(0o640, BOB);
        let root = fs.root();
        assert_eq!(owner(&shown.getattr(ino).unwrap()), (2000, 2001, 0o640));
        assert_eq!(owner(&shown.lookup(root, b"hers").unwrap().attr), (2000, 2001, 0o640));
        assert_eq!(owner(&fs.getattr(ino).unwrap()), (1000, 1000, 0o640));
        let makers = Caller { uid: 5, gid: 6 };
        let made = [
            shown.mknod(makers, root, b"f", &file(0o600)).unwrap(),
            shown.mkdir(makers, root, b"d", 0o700, 0).unwrap(),
            shown.symlink(makers, root, b"s", b"f").unwrap(),
            shown.tmpfile(makers, root, 0o600, 0).unwrap(),
        ];
        for entry in made {
            assert_eq!((entry.attr.uid, entry.attr.gid), (2000, 2001));
            let stored = fs.getattr(entry.attr.ino).unwrap();
            assert_eq!((stored.uid, stored.gid), (5, 6));
        }
        assert_eq!(owner(&shown.link(ino, root, b"too").unwrap().attr), (2000, 2001, 0o640));
        let set = SetAttr { perm: Some(0o604), ..SetAttr::default() };
        assert_eq!(owner(&shown.setattr(ino, &set).unwrap()), (2000, 2001, 0o604));
        let only = Shown::new(fs, Owner { gid: None, ..BOB });
        assert_eq!(owner(&only.getattr(ino).unwrap()), (2000, 1000, 0o604));
    }

    #[test]
    fn a_chown_to_the_shown_owner_changes_nothing_and_any_other_is_refused() {
        let (fs, shown, ino) = hers(0o640, BOB);
        let chown = |uid, gid| shown.setattr(ino, &SetAttr { uid, gid, ..SetAttr::default() }).map(|a| owner(&a));
        assert_eq!(chown(Some(2000), Some(2001)), Ok((2000, 2001, 0o640)));
        for (uid, gid) in [(Some(0), None), (Some(1000), None), (None, Some(1000)), (Some(2000), Some(0))] {
            assert!(matches!(chown(uid, gid), Err(Error::NotPermitted(_))), "{uid:?} {gid:?}");
        }
        assert_eq!(owner(&fs.getattr(ino).unwrap()), (1000, 1000, 0o640));
        let only = Shown::new(fs.clone(), Owner { gid: None, ..BOB });
        only.setattr(ino, &SetAttr { gid: Some(7), ..SetAttr::default() }).unwrap();
        assert_eq!(owner(&fs.getattr(ino).unwrap()), (1000, 7, 0o640), "a group that is not shown is the volume's");
    }

    #[test]
    fn no_user_can_create_a_program_that_runs_as_another_user() {
        let (fs, shown, ino) = hers(0o6755, BOB);
        let root = fs.root();
        assert_eq!(shown.getattr(ino).unwrap().perm, 0o755);
        let chmod = |ino, perm| shown.setattr(ino, &SetAttr { perm: Some(perm), ..SetAttr::default() });
        for perm in [0o4755, 0o2755] {
            assert!(matches!(chmod(ino, perm), Err(Error::NotPermitted(_))));
            assert!(matches!(shown.mknod(ALICE, root, b"x", &file(perm)), Err(Error::NotPermitted(_))));
            assert!(matches!(shown.tmpfile(ALICE, root, perm, 0), Err(Error::NotPermitted(_))));
        }
        let dir = shown.mkdir(ALICE, root, b"d", 0o755, 0).unwrap().attr.ino;
        assert_eq!(chmod(dir, 0o2775).unwrap().perm, 0o2775);
        let changes: [&dyn Fn(); 5] = [
            &|| _ = shown.write(ino, 0, b"mine", WriteFlags::empty()).unwrap(),
            &|| _ = shown.write(ino, 0, b"mine", WriteFlags::FROM_CACHE).unwrap(),
            &|| _ = shown.setattr(ino, &SetAttr { size: Some(9), ..SetAttr::default() }).unwrap(),
            &|| shown.open(ino, true).unwrap(),
            &|| shown.fallocate(ino, Allocate::Reserve { keep_size: false }, 0, 9).unwrap(),
        ];
        for (which, change) in changes.iter().enumerate() {
            fs.setattr(ino, &SetAttr { perm: Some(0o6755), ..SetAttr::default() }).unwrap();
            change();
            assert_eq!(fs.getattr(ino).unwrap().perm, 0o755, "change {which}");
        }
        let only = Shown::new(fs.clone(), Owner { uid: None, ..BOB });
        fs.setattr(ino, &SetAttr { perm: Some(0o6755), ..SetAttr::default() }).unwrap();
        assert_eq!(only.getattr(ino).unwrap().perm, 0o4755, "who is not shown runs it as ever");
    }

    #[test]
    fn rights_are_given_by_the_mask_and_cannot_be_changed() {
        let masked = Owner { dmask: Some(0o22), fmask: Some(0o137), ..Owner::default() };
        let (fs, shown, ino) = hers(0o4755, masked);
        let root = fs.root();
        let perm = |ino| shown.getattr(ino).unwrap().perm;
        let dir = shown.mkdir(ALICE, root, b"d", 0o700, 0).unwrap().attr;
        let link = shown.symlink(ALICE, root, b"s", b"hers").unwrap().attr;
        assert_eq!((perm(ino), dir.perm, perm(root)), (0o640, 0o755, 0o755));
        assert_eq!(link.perm, fs.getattr(link.ino).unwrap().perm, "of a link nothing is masked");
        assert_eq!(owner(&shown.getattr(ino).unwrap()), (1000, 1000, 0o640), "who owns it is the volume's to say");
        let chmod = |ino, perm| shown.setattr(ino, &SetAttr { perm: Some(perm), ..SetAttr::default() });
        assert_eq!(chmod(ino, 0o640).unwrap().perm, 0o640);
        for perm in [0o644, 0o600, 0o4640] {
            assert!(matches!(chmod(ino, perm), Err(Error::NotPermitted(_))), "{perm:o}");
        }
        assert_eq!(fs.getattr(ino).unwrap().perm, 0o4755, "what is stored stays as it was");
        assert_eq!(fs.getattr(dir.ino).unwrap().perm, 0o700);
        // A single mask applies to its type only.
        let dirs = Shown::new(fs.clone(), Owner { dmask: Some(0), ..Owner::default() });
        assert_eq!((dirs.getattr(ino).unwrap().perm, dirs.getattr(root).unwrap().perm), (0o4755, 0o777));
    }

    #[test]
    fn masks_hide_access_lists() {
        let masked = Owner { fmask: Some(0o77), ..Owner::default() };
        let (fs, shown, ino) = hers(0o644, masked);
        for name in ACCESS_LISTS {
            assert!(matches!(shown.getxattr(ino, name), Err(Error::NoAttribute)));
            assert!(matches!(shown.setxattr(ino, name, b"", XattrFlags::empty()), Err(Error::NotPermitted(_))));
        }
        shown.setxattr(ino, b"user.a", b"1", XattrFlags::empty()).unwrap();
        assert_eq!(fs.getxattr(ino, b"user.a").unwrap(), b"1");
        assert_eq!(shown.listxattr(ino).unwrap(), [b"user.a"]);
    }

    /// A trait method with a default would silently use the default here.
    #[test]
    fn every_call_of_the_trait_reaches_the_file_system() {
        let (trait_, ours) = (include_str!("../../vfs/src/fs.rs"), include_str!("shown.rs"));
        let names = trait_.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split('(').next());
        let missing: Vec<_> = names.filter(|n| !ours.contains(&format!(" {n}("))).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(trait_.matches("    fn ").count() > 40);
    }
}
