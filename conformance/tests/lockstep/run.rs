//! Do the volume and the plain tree agree? Runs operations on both.

use std::fmt::Debug;
use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::VirtualClock;
use judges::medium::Medium;
use judges::plain::{Body, Bytes, Plain};
use trials::subject::Subject;
use vfs::{
    Allocate, Caller, DeviceNumber, FileKind, FileSystem, Flow, Ino, NewNode, RenameFlags, Result, Seek, SetAttr,
    WriteFlags, XattrFlags,
};

use vfs::Error::{NameTooLong, NotDirectory, NotFound};

use super::op::{Dir, Name, Op, Which};

/// Blocks of files that were defragmented, on all volumes of this process.
pub static MOVED: AtomicU64 = AtomicU64::new(0);

/// The difference between the two.
pub type Disagreement = String;
type Judged<T = ()> = std::result::Result<T, Disagreement>;

/// Larger files are not shifted block by block, which takes too long; in bytes.
const SHIFT_MAX: u64 = 64 << 20;
/// This many first bytes of every file are compared, including holes.
const WHOLE_MAX: u64 = 1 << 20;

/// A volume and its expected tree.
pub struct Lockstep<S: Subject> {
    medium: Medium,
    clock: Arc<VirtualClock>,
    subject: S,
    volume: Arc<S::Volume>,
    plain: Plain,
    /// The volume's number of each object, and the references held; `None` if not referenced.
    held: Vec<Option<(Ino, u64)>>,
    /// Pages that became deltas, up to the last remount.
    deltas: u64,
}

fn told(e: impl std::fmt::Display) -> Disagreement {
    e.to_string()
}

fn agree<A, B>(ours: Result<A>, plain: Result<B>) -> Judged<Option<(A, B)>> {
    match (ours, plain) {
        (Ok(a), Ok(b)) => Ok(Some((a, b))),
        (Err(a), Err(b)) if discriminant(&a) == discriminant(&b) => Ok(None),
        // No name can be created in a non-directory or a deleted directory, in particular not one that is too long:
        // either error is correct.
        (Err(NotDirectory | NotFound), Err(NameTooLong)) => Ok(None),
        (a, b) => Err(format!("volume {:?}, model {:?}", a.map(drop), b.map(drop))),
    }
}

fn same<T: PartialEq + Debug>(what: &str, ours: T, plain: T) -> Judged {
    if ours == plain { Ok(()) } else { Err(format!("{what}: volume {ours:?}, model {plain:?}")) }
}

fn same_bytes(offset: u64, ours: &[u8], plain: &[u8]) -> Judged {
    same("bytes read", ours.len(), plain.len())?;
    // Compare as a whole first: byte by byte would take a quarter of the test's time.
    if ours == plain {
        return Ok(());
    }
    match ours.iter().zip(plain).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(i) => Err(format!("byte {}: volume {}, model {}", offset + i as u64, ours[i], plain[i])),
    }
}

fn named(name: &[u8]) -> Result<()> {
    if name.len() > 255 { Err(vfs::Error::NameTooLong) } else { Ok(()) }
}

fn attribute(n: u8) -> Vec<u8> {
    format!("user.{}", "x".repeat(1 + usize::from(n % 4))).into_bytes()
}

impl<S: Subject> Lockstep<S> {
    /// A new volume of `mib` MiB.
    pub fn new(mib: u64, subject: S) -> Judged<Self> {
        let medium = Medium::new(mib * 256, subject.zoning(mib * 256));
        let clock = Arc::new(VirtualClock::default());
        subject.format(medium.device(), &*clock)?;
        let volume = subject.mount(medium.device(), clock.clone())?;
        let mut plain = Plain::default();
        let mut held = vec![Some((volume.root(), 0))];
        if let Ok(found) = volume.lookup(volume.root(), b"lost+found") {
            plain.create(0, b"lost+found", Body::Dir(Default::default()), found.attr.perm).map_err(told)?;
            held.push(Some((found.attr.ino, 1)));
        }
        Ok(Lockstep { medium, clock, subject, volume, plain, held, deltas: 0 })
    }

    /// Runs all operations, then compares the whole tree twice: as mounted, and after a remount. Returns the number of
    /// pages that became deltas.
    pub fn run(mut self, ops: &[Op]) -> Judged<u64> {
        for (n, op) in ops.iter().enumerate() {
            self.step(op).map_err(|e| format!("operation {n}, {op:?}: {e}"))?;
        }
        self.compare().map_err(|e| format!("at the end: {e}"))?;
        self.remount().map_err(|e| format!("after the end: {e}"))?;
        self.volume.unmount().map_err(told)?;
        Ok(self.deltas)
    }

    fn pick(&self, n: u8, want: impl Fn(&Body) -> bool) -> Option<(usize, Ino)> {
        let known = self.held.iter().enumerate().filter_map(|(id, h)| h.map(|(ino, _)| (id, ino)));
        let all: Vec<_> = known.filter(|(id, _)| want(&self.plain.objects[*id].body)).collect();
        all.get(usize::from(n) % all.len().max(1)).copied()
    }
    fn any(&self, which: Which) -> (usize, Ino) {
        self.pick(which.0, |_| true).unwrap_or((0, self.volume.root()))
    }
    fn dir(&self, dir: Dir) -> (usize, Ino) {
        if dir.0 >= 250 {
            return self.any(Which(dir.0 - 250));
        }
        self.pick(dir.0, |b| matches!(b, Body::Dir(_))).unwrap_or((0, self.volume.root()))
    }
    fn bytes(&mut self, id: usize) -> Judged<&mut Bytes> {
        match &mut self.plain.objects[id].body {
            Body::File(b) => Ok(b),
            _ => Err("not a file".into()),
        }
    }

    fn create(&mut self, dir: Dir, name: Name, body: Body, perm: u16) -> Judged {
        let ((id, ino), name, caller) = (self.dir(dir), name.bytes(), Caller::default());
        let node = |kind, rdev| self.volume.mknod(caller, ino, &name, &NewNode { kind, perm, umask: 0, rdev });
        let ours = match &body {
            Body::Dir(_) => self.volume.mkdir(caller, ino, &name, perm, 0),
            Body::Symlink(target) => self.volume.symlink(caller, ino, &name, target),
            Body::Special(kind, rdev) => node(*kind, *rdev),
            Body::File(_) => node(FileKind::Regular, DeviceNumber::default()),
        };
        let plain = named(&name).and_then(|()| self.plain.create(id, &name, body, perm));
        if let Some((entry, _)) = agree(ours, plain)? {
            self.held.push(Some((entry.attr.ino, 1)));
        }
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Judged {
        let volume = self.volume.clone();
        match *op {
            Op::Create(dir, name, FileKind::Regular, perm) => {
                self.create(dir, name, Body::File(Bytes::default()), perm & 0o7777)
            }
            Op::Create(dir, name, kind, perm) => {
                let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
                let rdev = if device { DeviceNumber { major: 8, minor: 300 } } else { DeviceNumber::default() };
                self.create(dir, name, Body::Special(kind, rdev), perm & 0o7777)
            }
            Op::Mkdir(dir, name, perm) => self.create(dir, name, Body::Dir(Default::default()), perm & 0o1777),
            Op::Symlink(dir, name, len) => {
                self.create(dir, name, Body::Symlink(vec![b't'; usize::from(len).clamp(1, 4095)]), 0o777)
            }
            Op::Link(which, dir, name) => {
                let ((id, ino), (to, to_ino), name) = (self.any(which), self.dir(dir), name.bytes());
                let plain = named(&name).and_then(|()| self.plain.link(id, to, &name));
                if agree(volume.link(ino, to_ino, &name), plain)?.is_some()
                    && let Some((_, refs)) = &mut self.held[id]
                {
                    *refs += 1;
                }
                Ok(())
            }
            Op::Unlink(dir, name) => {
                let ((id, ino), name) = (self.dir(dir), name.bytes());
                let plain = named(&name).and_then(|()| self.plain.remove(id, &name, false));
                agree(volume.unlink(ino, &name), plain).map(drop)
            }
            Op::Rmdir(dir, name) => {
                let ((id, ino), name) = (self.dir(dir), name.bytes());
                let plain = named(&name).and_then(|()| self.plain.remove(id, &name, true));
                agree(volume.rmdir(ino, &name), plain).map(drop)
            }
            Op::Rename(from, old, to, new, flags) => {
                let ((from, from_ino), (to, to_ino)) = (self.dir(from), self.dir(to));
                let (old, new, flags) = (old.bytes(), new.bytes(), RenameFlags::from_bits_truncate(flags));
                let fits = Plain::check_flags(flags).and(named(&old)).and(named(&new));
                let plain = fits.and_then(|()| self.plain.rename((from, &old), (to, &new), flags));
                let ours = volume.rename(Caller::default(), (from_ino, &old), (to_ino, &new), flags);
                if let Some(((), Some(_))) = agree(ours, plain)? {
                    let white = volume.lookup(from_ino, &old).map_err(told)?;
                    self.held.push(Some((white.attr.ino, 1)));
                }
                Ok(())
            }
            Op::Chmod(which, perm) => {
                let (id, ino) = self.any(which);
                self.plain.objects[id].perm = perm & 0o7777;
                volume.setattr(ino, &SetAttr { perm: Some(perm & 0o7777), ..SetAttr::default() }).map_err(told)?;
                self.compare_attr(id, ino)
            }
            Op::SetAttribute(which, name, len) => {
                let ((id, ino), name) = (self.any(which), attribute(name));
                let value = vec![len as u8; usize::from(len % 700)];
                volume.setxattr(ino, &name, &value, XattrFlags::empty()).map_err(told)?;
                self.plain.objects[id].attributes.insert(name, value);
                Ok(())
            }
            Op::RemoveAttribute(which, name) => {
                let ((id, ino), name) = (self.any(which), attribute(name));
                let plain = self.plain.objects[id].attributes.remove(&name).ok_or(vfs::Error::NoAttribute);
                agree(volume.removexattr(ino, &name), plain).map(drop)
            }
            Op::Fsync(which, data_only) => volume.fsync(self.any(which).1, data_only).map_err(told),
            Op::Defragment(which, from, how) => {
                let moved = trials::crash::defragment(&*volume, self.any(which).1, from, how);
                moved.map(|n| _ = MOVED.fetch_add(n, Relaxed)).map_err(told)
            }
            Op::Sync => volume.sync().map_err(told),
            Op::Tick => {
                self.clock.advance(Duration::from_secs(7));
                volume.tick().map(|_| ()).map_err(told)
            }
            Op::List(dir) => match self.dir(dir) {
                (id, ino) if self.plain.names(id).is_ok() => self.compare_names(id, ino).map(drop),
                _ => Ok(()),
            },
            Op::Remount => self.remount(),
            Op::Write(w, ..)
            | Op::Nudge(w, ..)
            | Op::Truncate(w, _)
            | Op::Allocate(w, ..)
            | Op::Read(w, ..)
            | Op::Seek(w, _) => match self.pick(w.0, |b| matches!(b, Body::File(_))) {
                Some((id, ino)) => self.step_file(op, id, ino),
                None => Ok(()),
            },
        }
    }

    fn step_file(&mut self, op: &Op, id: usize, ino: Ino) -> Judged {
        let volume = self.volume.clone();
        let bytes = self.bytes(id)?;
        match *op {
            Op::Write(_, offset, len, tag) => {
                let data: Vec<u8> = (0..len).map(|i| (i / 97) as u8 ^ tag | 1).collect();
                let n = volume.write(ino, offset, &data, WriteFlags::empty()).map_err(told)?;
                bytes.write(offset, &data);
                same("bytes written", n, data.len())?;
            }
            Op::Nudge(_, at, len, tag) if bytes.size > 0 => {
                let data = vec![tag | 1; 1 + usize::from(len % 64)];
                let at = at % bytes.size;
                let n = volume.write(ino, at, &data, WriteFlags::empty()).map_err(told)?;
                bytes.write(at, &data);
                same("bytes written", n, data.len())?;
            }
            Op::Nudge(..) => {}
            Op::Truncate(_, size) => {
                volume.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).map_err(told)?;
                bytes.truncate(size);
            }
            Op::Allocate(_, what, offset, len) => {
                let shifts = matches!(what, Allocate::Collapse | Allocate::Insert);
                if !shifts || bytes.size <= SHIFT_MAX {
                    agree(volume.fallocate(ino, what, offset, len), bytes.allocate(what, offset, len))?;
                }
            }
            Op::Read(_, offset, len) => {
                let mut found = vec![0xEE; len as usize];
                let n = volume.read(ino, offset, &mut found).map_err(told)?;
                same_bytes(offset, &found[..n], &bytes.read(offset, len.into()))?;
            }
            Op::Seek(_, offset) => {
                // Nonzero bytes must be found as data, never as a hole.
                let holds = |from: u64| bytes.read(from, 4096 - from % 4096).iter().any(|&x| x != 0);
                let starts = bytes.blocks().map(|b| offset.max(b * 4096)).filter(|s| s / 4096 >= offset / 4096);
                let first = starts.filter(|&s| holds(s)).min();
                match (volume.seek(ino, offset, Seek::Data), first) {
                    (Ok(at), _) if at < offset => {
                        return Err(format!("data at {at}, before {offset}"));
                    }
                    (Ok(at), Some(first)) if at > first => {
                        return Err(format!("data at {at}, not at {first}"));
                    }
                    (Err(e), Some(first)) => return Err(format!("data at {first}: {e}")),
                    _ => {}
                }
                match volume.seek(ino, offset, Seek::Hole) {
                    Ok(at) if at < offset || holds(at) => {
                        return Err(format!("a hole at {at}, from {offset}"));
                    }
                    found => same("hole before the end", found.is_ok(), offset < bytes.size)?,
                }
            }
            _ => {}
        }
        let size = self.bytes(id)?.size;
        same("size", volume.getattr(ino).map_err(told)?.size, size)
    }

    fn compare_attr(&self, id: usize, ino: Ino) -> Judged {
        let (attr, o) = (self.volume.getattr(ino).map_err(told)?, &self.plain.objects[id]);
        same("kind", attr.kind, o.kind())?;
        same("perm", attr.perm, o.perm)?;
        same("links", attr.nlink, o.links)?;
        match o.body {
            Body::Special(_, rdev) => same("device number", attr.rdev, rdev),
            _ => Ok(()),
        }
    }

    /// Compares a directory's names; returns them with their inode numbers.
    fn compare_names(&self, id: usize, ino: Ino) -> Judged<Vec<(Vec<u8>, Ino)>> {
        let own = if id == 0 { self.subject.own_names() } else { &[] };
        let mut found = Vec::new();
        let each = &mut |e: vfs::DirEntry<'_>| {
            if e.name != b"." && e.name != b".." && !own.contains(&e.name) {
                found.push((e.name.to_vec(), e.kind, e.ino));
            }
            Flow::Continue
        };
        self.volume.readdir(ino, 0, each).map_err(told)?;
        found.sort();
        let names = self.plain.names(id).map_err(told)?;
        let wanted: Vec<_> = names.iter().map(|(n, &i)| (n.clone(), self.plain.objects[i].kind())).collect();
        same("names", found.iter().map(|(n, k, _)| (n.clone(), *k)).collect(), wanted)?;
        Ok(found.into_iter().map(|(n, _, i)| (n, i)).collect())
    }

    fn compare_object(&self, id: usize, ino: Ino) -> Judged {
        self.compare_attr(id, ino)?;
        let o = &self.plain.objects[id];
        let mut listed = self.volume.listxattr(ino).map_err(told)?;
        listed.retain(|n| n.starts_with(b"user."));
        listed.sort();
        same("attributes", listed, o.attributes.keys().cloned().collect())?;
        for (name, value) in &o.attributes {
            same("value", &self.volume.getxattr(ino, name).map_err(told)?, value)?;
        }
        match &o.body {
            Body::Symlink(target) => same("target", &self.volume.readlink(ino).map_err(told)?, target),
            Body::File(bytes) => self.compare_bytes(bytes, ino),
            Body::Dir(_) => self.compare_names(id, ino).map(drop),
            Body::Special(..) => Ok(()),
        }
    }

    fn compare_bytes(&self, bytes: &Bytes, ino: Ino) -> Judged {
        same("size", self.volume.getattr(ino).map_err(told)?.size, bytes.size)?;
        let range = |offset: u64, len: u64| {
            let mut found = vec![0xEE; len as usize];
            let n = self.volume.read(ino, offset, &mut found).map_err(told)?;
            same_bytes(offset, &found[..n], &bytes.read(offset, len))
        };
        range(0, WHOLE_MAX)?;
        bytes.blocks().try_for_each(|b| range(b.saturating_sub(1) * 4096, 3 * 4096))?;
        // And no data where the model has none.
        let mut at = 0;
        while let Ok(data) = self.volume.seek(ino, at, Seek::Data) {
            at = (data / 4096 + 1) * 4096;
            range(data, at - data)?;
        }
        Ok(())
    }

    fn compare(&self) -> Judged {
        for (id, held) in self.held.iter().enumerate() {
            if let Some((ino, _)) = held {
                self.compare_object(id, *ino).map_err(|e| format!("object {id}, inode {}: {e}", ino.0))?;
            }
        }
        Ok(())
    }

    /// Unmounts, checks, mounts, looks everything up by name and compares it.
    fn remount(&mut self) -> Judged {
        for (ino, refs) in self.held.iter().flatten() {
            self.volume.forget(*ino, *refs);
        }
        self.volume.unmount().map_err(told)?;
        self.deltas += self.subject.deltas(&self.volume);
        self.medium.in_order()?;
        self.subject.check(&*self.medium.device())?;
        self.volume = self.subject.mount(self.medium.device(), self.clock.clone())?;
        let root = self.volume.root();
        self.held.fill(None);
        self.held[0] = Some((root, 0));
        let mut todo = vec![(0, root)];
        while let Some((id, ino)) = todo.pop() {
            for (name, listed) in self.compare_names(id, ino)? {
                let child = self.plain.names(id).map_err(told)?[&name];
                let entry = self.volume.lookup(ino, &name).map_err(told)?;
                same("number looked up and listed", entry.attr.ino, listed)?;
                let (known, refs) = self.held[child].unwrap_or((listed, 0));
                same("number of two names", known, listed)?;
                self.held[child] = Some((known, refs + 1));
                if self.plain.names(child).is_ok() {
                    todo.push((child, listed));
                }
            }
        }
        self.compare()
    }
}
