//! Runs operations on both and compares.

use std::sync::Arc;
use std::time::Duration;

use device::{Memory, Time, VirtualClock};
use f2fs::{MountOptions, Volume, fsck, mkfs};
use vfs::{
    Allocate, Caller, DeviceNumber, Error, FileKind, FileSystem, Ino, NewNode, RenameFlags, Result, Seek, SetAttr,
    WriteFlags, XattrFlags,
};

use super::compare::{list, same_trees, xattrs};
use super::op::{Dir, Name, Op, Place};
use crate::memfs::MemFs;

const CALLER: Caller = Caller { uid: 1, gid: 2 };

/// A way to make and mount a volume.
#[derive(Debug, Clone)]
pub struct Variant {
    /// How it is made.
    pub mkfs: mkfs::Options,
    /// How it is mounted.
    pub mount: MountOptions,
    /// Its size in MiB.
    pub mib: u64,
}

fn resolve(fs: &dyn FileSystem, dir: Dir) -> Result<Ino> {
    let mut at = fs.root();
    for name in Dir::PATHS[dir.0 as usize] {
        let e = fs.lookup(at, &Name(*name).bytes())?.attr;
        fs.forget(e.ino, 1);
        if e.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        at = e.ino;
    }
    Ok(at)
}

fn find(fs: &dyn FileSystem, p: Place) -> Result<Ino> {
    let e = fs.lookup(resolve(fs, p.0)?, &p.1.bytes())?.attr;
    fs.forget(e.ino, 1);
    Ok(e.ino)
}

/// A regular file; what a kernel would never pass on is refused here, for both alike.
fn file(fs: &dyn FileSystem, p: Place) -> Result<Ino> {
    let ino = find(fs, p)?;
    match fs.getattr(ino)?.kind {
        FileKind::Regular => Ok(ino),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("not a file")),
    }
}

fn pattern(stream: u8, len: u64) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(stream) | 1).collect()
}

fn show<T: std::fmt::Debug>(v: T) -> String {
    format!("{v:?}")
}

/// Does it; what was seen, as text.
///
/// # Errors
/// What the file system said.
pub fn apply(fs: &dyn FileSystem, op: &Op) -> Result<String> {
    let node = |kind| NewNode {
        kind,
        perm: 0o640,
        umask: 0o022,
        rdev: if kind == FileKind::Regular { DeviceNumber::default() } else { DeviceNumber { major: 5, minor: 300 } },
    };
    let made = |e: vfs::Entry| {
        fs.forget(e.attr.ino, 1);
        show((e.attr.kind, e.attr.perm, e.attr.nlink, e.attr.uid, e.attr.gid))
    };
    Ok(match op {
        Op::Create(p) => made(fs.mknod(CALLER, resolve(fs, p.0)?, &p.1.bytes(), &node(FileKind::Regular))?),
        Op::Mknod(p) => made(fs.mknod(CALLER, resolve(fs, p.0)?, &p.1.bytes(), &node(FileKind::CharDevice))?),
        Op::Mkdir(p) => made(fs.mkdir(CALLER, resolve(fs, p.0)?, &p.1.bytes(), 0o755, 0)?),
        Op::Symlink(p, len) => {
            made(fs.symlink(CALLER, resolve(fs, p.0)?, &p.1.bytes(), &vec![b't'; *len as usize])?)
        }
        Op::Link(from, to) => {
            let ino = find(fs, *from)?;
            made(fs.link(ino, resolve(fs, to.0)?, &to.1.bytes())?)
        }
        Op::Unlink(p) => show(fs.unlink(resolve(fs, p.0)?, &p.1.bytes())?),
        Op::Rmdir(p) => show(fs.rmdir(resolve(fs, p.0)?, &p.1.bytes())?),
        Op::Rename(a, b, flags) => {
            let flags = RenameFlags::from_bits_truncate(*flags);
            let (from, to) = (resolve(fs, a.0)?, resolve(fs, b.0)?);
            show(fs.rename(CALLER, (from, &a.1.bytes()), (to, &b.1.bytes()), flags)?)
        }
        Op::Write(p, r, stream) => {
            show(fs.write(file(fs, *p)?, r.at, &pattern(*stream, r.len), WriteFlags::empty())?)
        }
        Op::Truncate(p, size) => {
            show(fs.setattr(file(fs, *p)?, &SetAttr { size: Some(*size), ..SetAttr::default() })?.size)
        }
        Op::Fallocate(p, kind, r) => {
            let what = match kind {
                0 => Allocate::Reserve { keep_size: false },
                1 => Allocate::Reserve { keep_size: true },
                2 => Allocate::PunchHole,
                3 => Allocate::Zero { keep_size: false },
                4 => Allocate::Zero { keep_size: true },
                5 => Allocate::Collapse,
                _ => Allocate::Insert,
            };
            let ino = file(fs, *p)?;
            if r.len == 0 {
                return Err(Error::Invalid("no length"));
            }
            fs.fallocate(ino, what, r.at, r.len)?;
            show(fs.getattr(ino)?.size)
        }
        Op::Chmod(p, perm) => {
            show(fs.setattr(find(fs, *p)?, &SetAttr { perm: Some(*perm), ..SetAttr::default() })?.perm)
        }
        Op::Chown(p, uid) => {
            show(fs.setattr(find(fs, *p)?, &SetAttr { uid: Some(*uid), ..SetAttr::default() })?.uid)
        }
        Op::Setxattr(p, n, len, flags) => {
            let name = format!("user.attribute{n}");
            let flags = XattrFlags::from_bits_truncate(*flags);
            show(fs.setxattr(find(fs, *p)?, name.as_bytes(), &vec![*n; *len as usize], flags)?)
        }
        Op::Removexattr(p, n) => show(fs.removexattr(find(fs, *p)?, format!("user.attribute{n}").as_bytes())?),
        Op::Read(p, r) => {
            let mut buf = vec![0xee; r.len as usize];
            let n = fs.read(file(fs, *p)?, r.at, &mut buf)?;
            show((n, blake3::hash(buf.get(..n).unwrap_or_default())))
        }
        Op::Stat(p) => {
            let a = fs.getattr(find(fs, *p)?)?;
            let size = if a.kind == FileKind::Directory { 0 } else { a.size };
            show((a.kind, a.perm, a.nlink, a.uid, a.gid, a.rdev, size))
        }
        Op::Readlink(p) => show(fs.readlink(find(fs, *p)?)?),
        Op::Xattrs(p) => show(xattrs(fs, find(fs, *p)?)?),
        // Where holes are is the file system's to decide; that they read as zeroes is not.
        Op::SeekData(p, at) => {
            let ino = file(fs, *p)?;
            let size = fs.getattr(ino)?.size;
            let to = match fs.seek(ino, *at, Seek::Data) {
                Err(Error::PastEnd) if *at < size => size,
                found => found?,
            };
            show(zero_between(fs, ino, *at, to)?)
        }
        Op::SeekHole(p, at) => {
            let ino = file(fs, *p)?;
            let hole = fs.seek(ino, *at, Seek::Hole)?;
            show((hole >= *at, zero_between(fs, ino, hole, (hole | 4095) + 1)?))
        }
        Op::List(d) => {
            let mut names = list(fs, resolve(fs, *d)?)?;
            names.retain(|(name, ..)| name != b"lost+found");
            show(names.into_iter().map(|(name, kind, _)| (name, kind)).collect::<Vec<_>>())
        }
        Op::Fsync(p, data_only) => show(fs.fsync(file(fs, *p)?, *data_only)?),
        Op::Fsyncdir(d) => show(fs.fsyncdir(resolve(fs, *d)?, false)?),
        Op::Sync => show(fs.sync()?),
        Op::Tick => show(fs.tick()?),
        Op::Remount => String::new(),
    })
}

/// Whether a range (its first MiB) is nothing but zeroes.
fn zero_between(fs: &dyn FileSystem, ino: Ino, from: u64, to: u64) -> Result<bool> {
    let mut buf = vec![0; to.saturating_sub(from).min(1 << 20) as usize];
    let n = fs.read(ino, from, &mut buf)?;
    Ok(buf.iter().take(n).all(|&b| b == 0))
}

/// A volume and the model beside it.
pub struct Lockstep {
    dev: Arc<Memory>,
    clock: Arc<VirtualClock>,
    mount: MountOptions,
    /// The volume.
    pub real: Arc<Volume>,
    /// The model.
    pub model: MemFs,
}

impl Lockstep {
    /// Both empty.
    ///
    /// # Errors
    /// Why there is no volume.
    pub fn new(variant: &Variant) -> std::result::Result<Self, String> {
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        let dev = Arc::new(Memory::new(variant.mib * 256));
        let options = mkfs::Options { assume_zeroed: true, checkpoint_version: Some(7), uuid: Some([7; 16]), ..variant.mkfs.clone() };
        mkfs::format(&*dev, &*clock, &options).map_err(show)?;
        let real = Volume::mount(dev.clone(), clock.clone(), variant.mount.clone()).map_err(show)?;
        let model = MemFs::with_clock(1 << 40, clock.clone());
        Ok(Lockstep { dev, clock, mount: variant.mount.clone(), real, model })
    }

    /// Does it on both.
    ///
    /// # Errors
    /// How they differ.
    pub fn step(&mut self, op: &Op) -> std::result::Result<(), String> {
        self.clock.advance(match op {
            Op::Tick => Duration::from_secs(30),
            _ => Duration::from_millis(3),
        });
        if *op == Op::Remount {
            return self.remount();
        }
        let (have, want) = (apply(&*self.real, op), apply(&self.model, op));
        let same = match (&have, &want) {
            (Ok(a), Ok(b)) => a == b,
            // Linux finds a missing target of an exchange before it finds a loop; the model the other way round.
            (Err(Error::NotFound), Err(Error::Invalid(_))) if matches!(op, Op::Rename(_, _, 2..)) => true,
            // Linux says so of every target that is above the source, before it looks at kinds.
            (Err(Error::NotEmpty), Err(Error::IsDirectory)) if matches!(op, Op::Rename(..)) => true,
            (Err(a), Err(b)) => std::mem::discriminant(a) == std::mem::discriminant(b),
            _ => false,
        };
        if same { Ok(()) } else { Err(format!("{op:?}: volume {have:?}, model {want:?}")) }
    }

    /// Unmounts, checks, mounts, compares.
    ///
    /// # Errors
    /// What was found.
    pub fn remount(&mut self) -> std::result::Result<(), String> {
        self.real.unmount().map_err(|e| format!("unmount: {e}"))?;
        let report = fsck::check(&*self.dev, &fsck::Options::default()).map_err(show)?;
        if !report.is_clean() {
            return Err(format!("after unmount: {:?}", report.errors().take(5).collect::<Vec<_>>()));
        }
        self.real = Volume::mount(self.dev.clone(), self.clock.clone(), self.mount.clone()).map_err(show)?;
        same_trees(&*self.real, &self.model)
    }

    /// All of them, and the trees at the end, before and after a remount.
    ///
    /// # Errors
    /// The first difference, with the number of the operation.
    pub fn run(&mut self, ops: &[Op]) -> std::result::Result<(), String> {
        for (i, op) in ops.iter().enumerate() {
            self.step(op).map_err(|e| format!("operation {i}: {e}"))?;
        }
        same_trees(&*self.real, &self.model)?;
        self.remount()
    }
}
