//! Random operations below one directory, recorded as they are requested, so that the [`Record`] shows at any time what
//! a power cut may leave.
//!
//! An operation that fails for a reason other than the power changes nothing or only a part: its result is looked up,
//! and recorded. Each thread of a test has its own course and directory.

use std::time::Duration;

use device::{Rng, VirtualClock};
use vfs::{
    Allocate, Caller, DeviceNumber, Entry, Error, FileKind, Ino, Moving, NewNode, RenameFlags, SetAttr, WriteFlags,
    XattrFlags,
};

use super::Record;
use crate::subject::Judged;

const ME: Caller = Caller { uid: 0, gid: 0 };

/// The parameters of a course.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Names in each directory.
    pub names: u64,
    /// Maximum number of directories.
    pub directories: usize,
    /// Approximate maximum size of files.
    pub longest: u64,
    /// Percentage of operations that sync something.
    pub syncs: u64,
    /// Mostly operations on names: create, remove, move, and directory syncs.
    pub of_names: bool,
    /// Also global syncs, passing time and cleaning, which concurrent courses leave out.
    pub alone: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Habits { names: 12, directories: 6, longest: 300_000, syncs: 25, of_names: false, alone: true }
    }
}

/// Random operations, and their promises so far.
pub struct Course<'v> {
    vol: &'v dyn Judged,
    clock: &'v VirtualClock,
    rng: Rng,
    habits: Habits,
    /// Requested changes and promises.
    pub record: Record,
    /// Operations that failed with ENOSPC, and for other reasons.
    pub refused: (u64, u64),
    /// Called with true before and false after looking up the result of a failure.
    pub quiet: Option<&'v (dyn Fn(bool) + Sync)>,
    /// Half of the data written is compressible, and no blocks are shifted, which compressed files do not support.
    pub compressible: bool,
    /// Half of the operations overwrite a few bytes and sync them, as databases do.
    pub nudges: bool,
}

type Done = vfs::Result<()>;

impl<'v> Course<'v> {
    /// Continues from a record, whose root is the directory of this course.
    pub fn new(vol: &'v dyn Judged, clock: &'v VirtualClock, record: Record, seed: u64, habits: Habits) -> Self {
        Course {
            vol,
            clock,
            rng: Rng::new(seed),
            habits,
            record,
            refused: (0, 0),
            quiet: None,
            compressible: false,
            nudges: false,
        }
    }

    /// One operation. Fails only if the state can no longer be determined.
    ///
    /// # Errors
    /// The device's, or that of a volume that accepts no more changes.
    pub fn step(&mut self) -> Done {
        if self.habits.of_names && self.rng.chance(9, 10) {
            return self.name_step();
        }
        if self.nudges && self.rng.chance(1, 2) {
            return self.nudge_step();
        }
        let kind = self.rng.below(100);
        if kind < self.habits.syncs {
            return self.sync_something();
        }
        match self.rng.below(30) {
            0..4 => self.create(),
            4..12 => self.write(),
            12..14 => self.truncate(),
            14..17 => self.allocate(),
            17..20 => self.rename(),
            20 => self.exchange(),
            21..23 => self.link(),
            23..26 => self.unlink(),
            26 => self.mkdir(),
            27 => self.rmdir(),
            28 => self.attribute(),
            _ => self.nameless(),
        }
    }

    fn name_step(&mut self) -> Done {
        match self.rng.below(64) {
            0..12 => {
                let there = self.record.entries(false).len();
                self.create()?;
                let made = self.record.entries(false).len() > there;
                // Mostly what programs do to make it durable.
                match self.record.newest().filter(|_| made && self.rng.chance(3, 4)) {
                    Some(object) => self.sync_file(object, false),
                    None => Ok(()),
                }
            }
            12..26 => self.unlink(),
            26..38 => self.rename(),
            38 => self.exchange(),
            39 => self.link(),
            40 => self.mkdir(),
            41 => self.rmdir(),
            42 => self.permissions(),
            43 => self.nameless(),
            44..48 => match self.file() {
                Some(object) => self.sync_file(object, true),
                None => Ok(()),
            },
            _ => self.sync_dir(),
        }
    }

    fn nudge_step(&mut self) -> Done {
        let Some(object) = self.file() else { return self.create() };
        let size = self.record.size(object);
        if size == 0 {
            return self.write();
        }
        for _ in 0..1 + self.rng.below(3) {
            let (at, len) = (self.rng.below(size), 1 + self.rng.index(60));
            self.write_to(object, at, len)?;
        }
        let data_only = self.rng.chance(1, 2);
        self.sync_file(object, data_only)
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.below(self.habits.names) {
            0 => vec![b'n'; 255],
            1 => b"\xff\xfe not text".to_vec(),
            n => format!("n{n}").into_bytes(),
        }
    }

    fn dir(&mut self) -> usize {
        let dirs = self.record.directories();
        dirs[self.rng.index(dirs.len())]
    }

    /// An existing name, with its directory.
    fn entry(&mut self, directories: bool) -> Option<(usize, Vec<u8>, usize)> {
        let mut all = self.record.entries(directories);
        (!all.is_empty()).then(|| all.swap_remove(self.rng.index(all.len())))
    }

    fn file(&mut self) -> Option<usize> {
        self.entry(false).map(|e| e.2)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.rng.fill(&mut data);
        if self.compressible && data[0] & 1 == 0 {
            // All sectors differ.
            data.chunks_mut(512).for_each(|sector| sector.iter_mut().skip(24).for_each(|b| *b = 7));
        }
        data
    }

    fn offset(&mut self, size: u64) -> u64 {
        match self.rng.below(8) {
            0 => size,
            1 => 0,
            2 => self.rng.below(self.habits.longest),
            // At the end of an inode's own addresses, and far beyond the first nodes.
            3 => 873 * 4096 + self.rng.below(60) * 4096,
            4 if self.rng.chance(1, 6) => (923 + 2 * 1018) * 4096 + self.rng.below(8192),
            _ => self.rng.below(size + 1) / 4096 * 4096,
        }
    }

    // ---- the state after a failure

    fn look<T>(&self, f: impl FnOnce() -> T) -> T {
        if let Some(quiet) = self.quiet {
            quiet(true);
        }
        let out = f();
        if let Some(quiet) = self.quiet {
            quiet(false);
        }
        out
    }

    fn count(&mut self, e: &Error) {
        if *e == Error::NoSpace { self.refused.0 += 1 } else { self.refused.1 += 1 }
    }

    /// After an operation on contents.
    fn contents(&mut self, object: usize, out: Done) -> Done {
        let Err(e) = out else { return Ok(()) };
        self.count(&e);
        let (vol, ino) = (self.vol, self.record.ino(object));
        let found = self.look(|| {
            let mut data = vec![0; vol.getattr(ino)?.size as usize];
            vol.read(ino, 0, &mut data)?;
            Ok::<_, Error>(data)
        });
        let found = found.inspect_err(|_| self.record.unfinished(object))?;
        self.record.replace(object, &found);
        Ok(())
    }

    /// After an operation on names.
    fn names(&mut self, changes: &[(usize, &[u8])], out: Done) -> Done {
        let Err(e) = out else { return Ok(()) };
        self.count(&e);
        for &(dir, name) in changes {
            let (vol, ino) = (self.vol, self.record.ino(dir));
            let found = match self.look(|| vol.lookup(ino, name)) {
                Ok(e) => {
                    vol.forget(e.attr.ino, 1);
                    let object = self.record.known(e.attr.ino);
                    Some(object.ok_or_else(|| Error::corrupt("a failed operation left an inode nobody made"))?)
                }
                Err(Error::NotFound) => None,
                Err(e) => return Err(e),
            };
            self.record.bind(&[(dir, name, found)]);
        }
        Ok(())
    }

    // ---- operations

    /// Creates an inode under a name. After a failure it may exist nevertheless, and its number is looked up.
    fn make(&mut self, dir: usize, name: &[u8], directory: bool, ask: impl FnOnce(Ino) -> vfs::Result<Entry>) -> Done {
        let object = self.record.making((dir, name), directory);
        let (vol, parent) = (self.vol, self.record.ino(dir));
        let made = ask(parent);
        let found = match &made {
            Ok(_) => made,
            Err(e) => {
                self.count(e);
                self.look(|| vol.lookup(parent, name))
            }
        };
        match found {
            Ok(e) => {
                self.vol.forget(e.attr.ino, 1);
                self.record.made(object, e.attr.ino);
            }
            Err(Error::NotFound) => self.record.not_made((dir, name)),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn create(&mut self) -> Done {
        let (dir, name) = (self.dir(), self.name());
        if self.record.get(dir, &name).is_some() {
            return self.write();
        }
        let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
        let vol = self.vol;
        self.make(dir, &name, false, |parent| vol.mknod(ME, parent, &name, &new))
    }

    fn mkdir(&mut self) -> Done {
        let (dir, name) = (self.dir(), self.name());
        if self.record.get(dir, &name).is_some() || self.record.directories().len() >= self.habits.directories {
            return Ok(());
        }
        let vol = self.vol;
        self.make(dir, &name, true, |parent| vol.mkdir(ME, parent, &name, 0o700, 0))
    }

    fn write(&mut self) -> Done {
        let Some(object) = self.file() else { return Ok(()) };
        let at = self.offset(self.record.size(object));
        let most = if self.rng.chance(1, 4) { self.habits.longest / 2 } else { 9000 };
        let len = 1 + self.rng.below(most) as usize;
        self.write_to(object, at, len)
    }

    fn write_to(&mut self, object: usize, at: u64, len: usize) -> Done {
        let data = self.bytes(len);
        self.record.write(object, at, &data);
        let out = match self.vol.write(self.record.ino(object), at, &data, WriteFlags::empty()) {
            Ok(n) if n == data.len() => Ok(()),
            Ok(_) => Err(Error::NoSpace),
            Err(e) => Err(e),
        };
        self.contents(object, out)
    }

    fn truncate(&mut self) -> Done {
        let Some(object) = self.file() else { return Ok(()) };
        let size = match self.rng.below(4) {
            0 => 0,
            1 => self.record.size(object) + self.rng.below(20_000),
            _ => self.rng.below(self.record.size(object) + 1),
        };
        self.record.resize(object, size);
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let out = self.vol.setattr(self.record.ino(object), &set).map(drop);
        self.contents(object, out)
    }

    fn allocate(&mut self) -> Done {
        let Some(object) = self.file() else { return Ok(()) };
        let (size, keep_size) = (self.record.size(object), self.rng.chance(1, 2));
        let what = match self.rng.below(6) {
            0 | 1 => Allocate::Reserve { keep_size },
            2 => Allocate::PunchHole,
            3 => Allocate::Zero { keep_size },
            _ if self.compressible => Allocate::PunchHole,
            4 => Allocate::Collapse,
            _ => Allocate::Insert,
        };
        let (mut at, mut len) = (self.rng.below(size + 8192), 1 + self.rng.below(60_000));
        if matches!(what, Allocate::Collapse | Allocate::Insert) {
            (at, len) = (at / 4096 * 4096, len.div_ceil(4096) * 4096);
            if at >= size || (what == Allocate::Collapse && at + len >= size) {
                return Ok(());
            }
        }
        self.record.allocate(object, what, at, len);
        let out = self.vol.fallocate(self.record.ino(object), what, at, len);
        self.contents(object, out)
    }

    fn rename(&mut self) -> Done {
        let directories = self.rng.chance(1, 4);
        let Some((dir, name, object)) = self.entry(directories) else { return Ok(()) };
        let (to, new) = (self.dir(), self.name());
        let replaced = self.record.get(to, &new);
        let fits = replaced.is_none_or(|r| {
            r != object && self.record.is_directory(r) == self.record.is_directory(object) && self.record.is_empty(r)
        });
        if (dir, &name) == (to, &new) || !fits || self.record.is_below(to, object) {
            return Ok(());
        }
        self.record.bind(&[(to, &new, Some(object)), (dir, &name, None)]);
        let (from, into) = ((self.record.ino(dir), &name[..]), (self.record.ino(to), &new[..]));
        let out = self.vol.rename(ME, from, into, RenameFlags::empty());
        self.names(&[(to, &new), (dir, &name)], out)
    }

    fn exchange(&mut self) -> Done {
        let directories = self.rng.chance(1, 4);
        let (Some((dir, name, object)), Some((to, new, other))) = (self.entry(directories), self.entry(false)) else {
            return Ok(());
        };
        if object == other || self.record.is_below(to, object) {
            return Ok(());
        }
        self.record.bind(&[(to, &new, Some(object)), (dir, &name, Some(other))]);
        let (from, into) = ((self.record.ino(dir), &name[..]), (self.record.ino(to), &new[..]));
        let out = self.vol.rename(ME, from, into, RenameFlags::EXCHANGE);
        self.names(&[(to, &new), (dir, &name)], out)
    }

    fn link(&mut self) -> Done {
        let Some(object) = self.file() else { return Ok(()) };
        let (dir, name) = (self.dir(), self.name());
        if self.record.get(dir, &name).is_some() {
            return Ok(());
        }
        self.record.bind(&[(dir, &name, Some(object))]);
        let out = self.vol.link(self.record.ino(object), self.record.ino(dir), &name);
        let out = out.map(|e| self.vol.forget(e.attr.ino, 1));
        self.names(&[(dir, &name)], out)
    }

    fn unlink(&mut self) -> Done {
        let Some((dir, name, _)) = self.entry(false) else { return Ok(()) };
        self.record.bind(&[(dir, &name, None)]);
        let out = self.vol.unlink(self.record.ino(dir), &name);
        self.names(&[(dir, &name)], out)
    }

    fn rmdir(&mut self) -> Done {
        let Some((dir, name, object)) = self.entry(true) else { return Ok(()) };
        if !self.record.is_empty(object) {
            return Ok(());
        }
        self.record.bind(&[(dir, &name, None)]);
        let out = self.vol.rmdir(self.record.ino(dir), &name);
        self.names(&[(dir, &name)], out)
    }

    fn attribute(&mut self) -> Done {
        let Some(object) = self.file() else { return Ok(()) };
        let name = format!("user.{}", self.rng.below(3)).into_bytes();
        let len = [10, 100, 900, 1200][self.rng.index(4)];
        let value = self.bytes(len);
        self.record.set_attribute(object, &name, &value);
        match self.vol.setxattr(self.record.ino(object), &name, &value, XattrFlags::empty()) {
            Ok(()) => Ok(()),
            Err(e) => {
                self.count(&e);
                let (vol, ino) = (self.vol, self.record.ino(object));
                let found = self.look(|| Record::attributes_of(vol, ino))?;
                self.record.replace_attributes(object, found);
                Ok(())
            }
        }
    }

    fn permissions(&mut self) -> Done {
        let dir = self.dir();
        let (before, now) = (self.vol.getattr(self.record.ino(dir))?.perm, 0o700 + self.rng.below(64) as u16);
        self.record.set_permissions(dir, before, now);
        let set = SetAttr { perm: Some(now), ..SetAttr::default() };
        self.vol.setattr(self.record.ino(dir), &set).map(drop)
    }

    fn sync_file(&mut self, object: usize, data_only: bool) -> Done {
        let out = self.vol.fsync(self.record.ino(object), data_only);
        if out.is_ok() {
            self.record.synced(object);
        }
        self.synced(out)
    }

    fn sync_dir(&mut self) -> Done {
        let dir = self.dir();
        let out = self.vol.fsyncdir(self.record.ino(dir), false);
        if out.is_ok() {
            self.record.synced_names(dir);
        }
        self.synced(out)
    }

    /// A failed sync promises nothing.
    fn synced(&mut self, out: Done) -> Done {
        if let Err(e) = &out {
            self.count(e);
        }
        Ok(())
    }

    fn nameless(&mut self) -> Done {
        let (dir, name) = (self.dir(), self.name());
        if self.record.get(dir, &name).is_some() {
            return Ok(());
        }
        let e = match self.vol.tmpfile(ME, self.record.ino(dir), 0o600, 0) {
            Ok(e) => e,
            Err(e) => {
                self.count(&e);
                return Ok(());
            }
        };
        let (ino, object) = (e.attr.ino, self.record.object(e.attr.ino, false));
        let len = 1 + self.rng.below(20_000) as usize;
        let data = self.bytes(len);
        self.record.write(object, 0, &data);
        let out = match self.vol.write(ino, 0, &data, WriteFlags::empty()) {
            Ok(n) if n == data.len() => Ok(()),
            Ok(_) => Err(Error::NoSpace),
            Err(e) => Err(e),
        };
        self.contents(object, out)?;
        self.record.bind(&[(dir, &name, Some(object))]);
        let out = self.vol.link(ino, self.record.ino(dir), &name).map(|_| self.vol.forget(ino, 1));
        let out = self.names(&[(dir, &name)], out);
        self.vol.forget(ino, 1);
        out
    }

    fn sync_something(&mut self) -> Done {
        let most = if self.habits.alone { 26 } else { 20 };
        let out = match self.rng.below(most) {
            kind @ 0..16 => {
                let Some(object) = self.file() else { return Ok(()) };
                return self.sync_file(object, kind % 3 == 0);
            }
            16..20 => return self.sync_dir(),
            20 => {
                let out = self.vol.sync();
                if out.is_ok() {
                    self.record.synced_all();
                }
                out
            }
            21 | 22 => {
                let passed = Duration::from_secs(self.rng.below(40));
                self.clock.advance(passed);
                let out = self.vol.tick().map(drop);
                if out.is_ok() && self.vol.commits_within().is_some_and(|within| passed >= within) {
                    self.record.synced_all();
                }
                out
            }
            24 | 25 => {
                let Some(object) = self.file() else { return Ok(()) };
                let how = if self.rng.chance(1, 3) { Moving::Share } else { Moving::Copy };
                let from = if self.rng.chance(1, 2) { 0 } else { self.rng.below(40) };
                super::run::defragment(self.vol, self.record.ino(object), from, how).map(drop)
            }
            _ => self.vol.make_room(1 + self.rng.index(64)),
        };
        self.synced(out)
    }
}
