//! An image as source and sink.

use vfs::{FileKind, FileSystem, Flow, Ino, NewNode, Seek, SetAttr, SetTime, WriteFlags, XattrFlags};

use super::item::{Glance, Item, Made, Out, Reader, Sink, Source};
use super::way::Way;
use crate::commands::names::caller;
use crate::image::Image;
use crate::output;

/// A mounted image.
pub struct Inside<'i> {
    pub image: Hold<'i>,
    /// Copies keep the owner of the original.
    pub owners: bool,
    way: Way,
}

/// An image owned by this source, or borrowed.
pub enum Hold<'i> {
    Own(Image),
    Lent(&'i Image),
}

impl std::ops::Deref for Hold<'_> {
    type Target = Image;
    fn deref(&self) -> &Image {
        match self {
            Hold::Own(image) => image,
            Hold::Lent(image) => image,
        }
    }
}

struct Open<'i> {
    inside: &'i Inside<'i>,
    ino: Ino,
    size: u64,
    at: Vec<u8>,
}

impl Open<'_> {
    fn fs(&self) -> &dyn FileSystem {
        self.inside.fs()
    }
    fn fail(&self) -> impl Fn(vfs::Error) -> String {
        self.inside.fail(&self.at)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.fs().release(self.ino);
    }
}

impl Inside<'static> {
    /// Takes an image.
    pub fn own(image: Image) -> Self {
        Inside { image: Hold::Own(image), owners: false, way: Way::default() }
    }
}

impl<'i> Inside<'i> {
    /// Borrows an image.
    pub fn lent(image: &'i Image, owners: bool) -> Self {
        Inside { image: Hold::Lent(image), owners, way: Way::default() }
    }
}

impl Inside<'_> {
    /// Formats a path for display.
    fn place(&self, at: &[u8]) -> String {
        format!("{}:{}", self.image.path().display(), output::name(at))
    }
    fn fail(&self, at: &[u8]) -> impl Fn(vfs::Error) -> String {
        move |e| format!("{}: {e}", self.place(at))
    }
    fn fs(&self) -> &dyn FileSystem {
        &*self.image.vol
    }
    fn handle(&self, at: &[u8]) -> Out<Open<'_>> {
        let found = self.way.walk(self.fs(), at).map_err(self.fail(at))?;
        let size = self.fs().getattr(found.ino()).map_err(self.fail(at))?.size;
        self.fs().open(found.ino(), false).map_err(self.fail(at))?;
        Ok(Open { inside: self, ino: found.ino(), size, at: at.to_vec() })
    }
    fn xattrs(&self, ino: Ino) -> vfs::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let names = self.fs().listxattr(ino)?;
        names.into_iter().map(|name| Ok((name.clone(), self.fs().getxattr(ino, &name)?))).collect()
    }
    fn give_way(&self, at: &[u8]) -> Out<()> {
        let (dir, name) = self.way.walk_parent(self.fs(), at).map_err(self.fail(at))?;
        match self.fs().unlink(dir, name) {
            Ok(()) | Err(vfs::Error::NotFound) => Ok(()),
            Err(e) => Err(self.fail(at)(e)),
        }
    }
}

impl Source for Inside<'_> {
    fn glance(&self, at: &[u8]) -> Out<Glance> {
        let found = self.way.walk(self.fs(), at).map_err(self.fail(at))?;
        let a = self.fs().getattr(found.ino()).map_err(self.fail(at))?;
        Ok(Glance { kind: a.kind, size: a.size, file: (0, a.ino.0) })
    }
    fn item(&self, at: &[u8]) -> Out<Item> {
        let fs = self.fs();
        let found = self.way.walk(fs, at).map_err(self.fail(at))?;
        let a = fs.getattr(found.ino()).map_err(self.fail(at))?;
        let target = match a.kind {
            FileKind::Symlink => fs.readlink(found.ino()).map_err(self.fail(at))?,
            _ => Vec::new(),
        };
        let (xattrs, amiss) = match self.xattrs(found.ino()) {
            Ok(xattrs) => (xattrs, None),
            // The directory is copied with everything below it.
            Err(e) if a.kind == FileKind::Directory => {
                (Vec::new(), Some(format!("{}: copied without its extended attributes: {e}", self.place(at))))
            }
            Err(e) => return Err(self.fail(at)(e)),
        };
        Ok(Item {
            kind: a.kind,
            perm: a.perm,
            uid: a.uid,
            gid: a.gid,
            size: a.size,
            atime: a.atime,
            mtime: a.mtime,
            rdev: a.rdev,
            identity: (a.nlink > 1 && a.kind != FileKind::Directory).then_some((0, a.ino.0)),
            target,
            xattrs,
            amiss,
        })
    }
    fn names(&self, at: &[u8]) -> (Vec<Vec<u8>>, Out<()>) {
        let mut out = Vec::new();
        let read = self.way.walk(self.fs(), at).and_then(|found| {
            self.fs().readdir(found.ino(), 0, &mut |e| {
                if e.name != b"." && e.name != b".." {
                    out.push(e.name.to_vec());
                }
                Flow::Continue
            })
        });
        out.sort();
        (out, read.map_err(self.fail(at)))
    }
    fn open<'s>(&'s self, at: &[u8]) -> Out<Box<dyn Reader + 's>> {
        Ok(Box::new(self.handle(at)?))
    }
    fn place(&self, at: &[u8]) -> String {
        Inside::place(self, at)
    }
    fn holds(&self) -> Option<u64> {
        Some(self.image.bytes())
    }
    fn names_directories_once(&self) -> bool {
        true
    }
}

impl Reader for Open<'_> {
    fn next_data(&mut self, offset: u64) -> Out<Option<(u64, u64)>> {
        match self.fs().seek(self.ino, offset, Seek::Data) {
            Err(vfs::Error::PastEnd) => Ok(None),
            Err(e) => Err(self.fail()(e)),
            Ok(start) => {
                let end = self.fs().seek(self.ino, start, Seek::Hole).map_err(self.fail())?;
                Ok(Some((start, end)))
            }
        }
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Out<usize> {
        self.fs().read(self.ino, offset, buf).map_err(self.fail())
    }
}

/// A file being created in the image. It has its final name from the start: a previous file of that name was removed
/// first.
struct New<'i> {
    open: Open<'i>,
    placed: bool,
}

impl Made for New<'_> {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Out<()> {
        let Open { ino, .. } = self.open;
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..];
            let written = self.open.fs().write(ino, offset + done as u64, rest, WriteFlags::empty());
            done += written.map_err(self.open.fail())?;
        }
        self.open.size = self.open.size.max(offset + data.len() as u64);
        Ok(())
    }
    fn set_size(&mut self, size: u64) -> Out<()> {
        if size == self.open.size {
            return Ok(());
        }
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.open.fs().setattr(self.open.ino, &set).map(drop).map_err(self.open.fail())
    }
    fn finish(&mut self, item: &Item) -> Out<()> {
        self.open.inside.finish_inode(self.open.ino, &self.open.at, item)
    }
    fn place(mut self: Box<Self>) -> Out<()> {
        self.placed = true;
        Ok(())
    }
    fn keep(self: Box<Self>) -> bool {
        self.place().is_ok()
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        if !self.placed {
            // The failed copy has been reported.
            let _ = self.open.inside.give_way(&self.open.at);
        }
    }
}

impl Sink for Inside<'_> {
    fn kind(&self, at: &[u8]) -> Out<Option<FileKind>> {
        match self.way.walk(self.fs(), at) {
            Ok(found) => Ok(Some(self.fs().getattr(found.ino()).map_err(self.fail(at))?.kind)),
            Err(vfs::Error::NotFound) => Ok(None),
            Err(e) => Err(self.fail(at)(e)),
        }
    }
    fn make_directory(&self, at: &[u8]) -> Out<()> {
        if self.kind(at)? == Some(FileKind::Directory) {
            return Ok(());
        }
        let (dir, name) = self.way.walk_parent(self.fs(), at).map_err(self.fail(at))?;
        let e = self.fs().mkdir(caller(), dir, name, 0o700, 0).map_err(self.fail(at))?;
        self.fs().forget(e.attr.ino, 1);
        Ok(())
    }
    fn make<'s>(&'s self, at: &[u8], item: &Item) -> Out<Box<dyn Made + 's>> {
        self.give_way(at)?;
        let (dir, name) = self.way.walk_parent(self.fs(), at).map_err(self.fail(at))?;
        let entry = match item.kind {
            FileKind::Symlink => self.fs().symlink(caller(), dir, name, &item.target),
            kind => {
                let new = NewNode { kind, perm: 0o600, umask: 0, rdev: item.rdev };
                self.fs().mknod(caller(), dir, name, &new)
            }
        };
        let ino = entry.map_err(self.fail(at))?.attr.ino;
        let opened = self.fs().open(ino, false).map_err(self.fail(at));
        self.fs().forget(ino, 1);
        if opened.is_err() {
            // The failed copy has been reported.
            let _ = self.give_way(at);
        }
        opened?;
        let open = Open { inside: self, ino, size: 0, at: at.to_vec() };
        Ok(Box::new(New { open, placed: false }))
    }
    fn link(&self, existing: &[u8], at: &[u8]) -> Out<()> {
        self.give_way(at)?;
        let found = self.way.walk(self.fs(), existing).map_err(self.fail(existing))?;
        let (dir, name) = self.way.walk_parent(self.fs(), at).map_err(self.fail(at))?;
        let e = self.fs().link(found.ino(), dir, name).map_err(self.fail(at))?;
        self.fs().forget(e.attr.ino, 1);
        Ok(())
    }
    fn finish(&self, at: &[u8], item: &Item) -> Out<()> {
        let found = self.way.walk(self.fs(), at).map_err(self.fail(at))?;
        self.finish_inode(found.ino(), at, item)
    }
}

impl Inside<'_> {
    fn finish_inode(&self, ino: Ino, at: &[u8], item: &Item) -> Out<()> {
        let fs = self.fs();
        let root = self.owners || rustix::process::geteuid().is_root();
        let now = fs.getattr(ino).map_err(self.fail(at))?;
        let (uid, gid) = if root { (item.uid, item.gid) } else { (now.uid, now.gid) };
        let owner = SetAttr {
            perm: (item.kind != FileKind::Symlink).then_some(item.mode_for(uid, gid)),
            uid: root.then_some(uid),
            gid: root.then_some(gid),
            ..SetAttr::default()
        };
        fs.setattr(ino, &owner).map_err(self.fail(at))?;
        for list in item.lists_not_had() {
            fs.removexattr(ino, list).map_err(self.fail(at))?;
        }
        for (name, value) in &item.xattrs {
            match fs.setxattr(ino, name, value, XattrFlags::empty()) {
                // Attributes that F2FS cannot store belong to the host.
                Err(vfs::Error::Unsupported(_)) => {}
                other => other.map_err(self.fail(at))?,
            }
        }
        let times = SetAttr {
            atime: Some(SetTime::At(item.atime)),
            mtime: Some(SetTime::At(item.mtime)),
            ..SetAttr::default()
        };
        fs.setattr(ino, &times).map(drop).map_err(self.fail(at))
    }
}
