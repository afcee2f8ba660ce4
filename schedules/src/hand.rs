//! The calls of a thread, their answers, and when each began and ended.
//!
//! A [`Hand`] executes one thread's operations. One operation is several calls (look up a name, write the file, drop
//! the reference), each recorded separately.

use std::sync::Mutex;

use device::Rng;
use vfs::{
    Allocate, Caller, DeviceNumber, Error, FileFlags, FileKind, FileSystem, Flow, Ino, Moving, NewNode, RenameFlags,
    SetAttr, WriteFlags, XattrFlags,
};

use crate::course::{CELL, Dir, Flavour, Name, Op, Place, Range};

const ME: Caller = Caller { uid: 0, gid: 0 };
const PER_CELL: usize = CELL as usize / 4;

/// The contents of a cell: the number of the call that wrote it; 0 for zeroes.
pub type Token = u32;

/// A token with this bit fills its cells with incompressible noise.
pub const NOISE: Token = 1 << 31;

/// A call. Directories and files by inode number, contents in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Call {
    Lookup(u64, Name),
    Create(u64, Name, bool),
    Link(u64, u64, Name),
    Unlink(u64, Name, bool),
    Rename((u64, Name), (u64, Name), Flavour),
    Write(u64, u64, u64, Token),
    Read(u64, u64, u64),
    Resize(u64, u64),
    Allocate(u64, Range, u64, u64),
    Stat(u64),
    List(u64),
    SetAttribute(u64, u8, Token),
    GetAttribute(u64, u8),
    Forget(u64),
    Fsync(u64),
    FsyncDir(u64),
    /// True: compressed.
    Compress(u64, bool),
    Release(u64),
    Retake(u64),
    Repack(u64, bool),
    Sync,
    /// A tick, or cleaning: no visible change.
    Background,
}

/// Why a call was refused, without the message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Refusal {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
    NotPermitted,
    NoAttribute,
    Unsupported,
    /// Errors that are never correct here: no space, damage, and so on.
    Wrong(String),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Answer {
    Done,
    Ino(u64),
    /// Number of existing cells, and contents of those that are not zeroes.
    Cells(u64, Vec<(u64, Token)>),
    Stat {
        size: u64,
        links: u32,
    },
    Names(Vec<(Name, u64)>),
    Value(Token),
    Refused(Refusal),
    /// The device failed: the call may have happened or not.
    Failed,
}

/// A call with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The calling thread.
    pub thread: usize,
    /// The call.
    pub call: Call,
    /// The answer.
    pub answer: Answer,
    /// When it began: a number used for no other beginning or end.
    pub from: u64,
    /// When it ended.
    pub to: u64,
}

/// All calls so far. The lock is the host's: never held at a scheduling point.
#[derive(Debug, Default)]
pub struct History {
    inner: Mutex<(u64, Vec<Event>)>,
}

impl History {
    fn now(&self) -> u64 {
        let mut inner = self.inner.lock().unwrap();
        inner.0 += 1;
        inner.0
    }

    fn add(&self, thread: usize, call: Call, answer: Answer, from: u64) {
        let mut inner = self.inner.lock().unwrap();
        inner.0 += 1;
        let to = inner.0;
        inner.1.push(Event { thread, call, answer, from, to });
    }

    /// All events, in order of ends.
    ///
    /// # Panics
    /// Never: no holder of the lock panics.
    pub fn events(&self) -> Vec<Event> {
        self.inner.lock().unwrap().1.clone()
    }
}

fn refusal(e: &Error) -> Answer {
    Answer::Refused(match e {
        Error::Device(_) => return Answer::Failed,
        Error::NotFound => Refusal::NotFound,
        Error::Exists => Refusal::Exists,
        Error::NotDirectory => Refusal::NotDirectory,
        Error::IsDirectory => Refusal::IsDirectory,
        Error::NotEmpty => Refusal::NotEmpty,
        Error::Invalid(_) => Refusal::Invalid,
        Error::NotPermitted(_) => Refusal::NotPermitted,
        Error::NoAttribute => Refusal::NoAttribute,
        Error::Unsupported(_) => Refusal::Unsupported,
        other => Refusal::Wrong(other.to_string()),
    })
}

/// A word of noise: the first two words of a cell are its token and its index in the write.
fn noise(token: Token, cell: u32, word: usize) -> u32 {
    match word {
        0 => token,
        1 => cell,
        _ => Rng::new(u64::from(token) << 32 | u64::from(cell) << 8 | word as u64).next_u64() as u32,
    }
}

/// A cell with `token`; `place` is its index in the write. Without noise it resembles a part of a database's rollback
/// journal: some words look like repeated page numbers, and two others like the sector and page sizes in a journal's
/// header.
fn cell(token: Token, place: u32) -> Vec<u8> {
    let mut words: Vec<[u8; 4]> = match token & NOISE {
        0 => vec![token.to_le_bytes(); PER_CELL],
        _ => (0..PER_CELL).map(|word| noise(token, place, word).to_le_bytes()).collect(),
    };
    if token != 0 && token & NOISE == 0 {
        let number = (token % 3 + 1).to_be_bytes();
        (words[0], words[2], words[4]) = (number, number, number);
        (words[5], words[6]) = (512_u32.to_be_bytes(), 4096_u32.to_be_bytes());
    }
    words.as_flattened().to_vec()
}

/// Bytes of cells that all hold `token`.
pub fn filled(token: Token, cells: u64) -> Vec<u8> {
    (0..cells as u32).flat_map(|place| cell(token, place)).collect()
}

/// Decodes cells, from `first` on, without zeroes.
///
/// # Errors
/// A cell with parts of several tokens, or an incomplete one.
pub fn tokens(bytes: &[u8], first: u64) -> Result<Vec<(u64, Token)>, String> {
    let mut out = Vec::new();
    for (at, bytes) in (first..).zip(bytes.chunks(CELL as usize)) {
        let word = |k: usize| bytes.as_chunks::<4>().0.get(k).copied().map_or(0, u32::from_le_bytes);
        let (token, place) = if word(0) & NOISE != 0 { (word(0), word(1)) } else { (word(1), 0) };
        if bytes != cell(token, place) {
            return Err(format!("cell {at} holds parts of several writes"));
        }
        if token != 0 {
            out.push((at, token));
        }
    }
    Ok(out)
}

/// A thread's operations, and their recording. `dirs` are the inodes of [`Dir`]s.
pub struct Hand<'a> {
    /// The volume.
    pub fs: &'a dyn FileSystem,
    /// The recorded calls.
    pub history: &'a History,
    /// Inode numbers of the directories.
    pub dirs: &'a [u64],
    /// The thread's number.
    pub thread: usize,
    /// One in three writes is noise.
    pub noisy: bool,
    /// Files are opened and closed, like programs do.
    pub opens: bool,
}

impl Hand<'_> {
    fn call(&self, call: Call, ask: impl FnOnce(&dyn FileSystem) -> vfs::Result<Answer>) -> Answer {
        let from = self.history.now();
        let answer = ask(self.fs).unwrap_or_else(|e| refusal(&e));
        self.history.add(self.thread, call, answer.clone(), from);
        answer
    }

    fn ino(&self, dir: Dir) -> u64 {
        self.dirs[usize::from(dir.0)]
    }

    fn forget(&self, ino: u64) {
        self.call(Call::Forget(ino), |fs| {
            fs.forget(Ino(ino), 1);
            Ok(Answer::Done)
        });
    }

    /// Calls `use_it` on the inode that a name refers to, if it exists.
    fn with(&self, (dir, name): Place, use_it: impl FnOnce(u64, FileKind)) {
        self.with_ino(self.ino(dir), name, use_it);
    }

    /// Calls `use_it` on the inode that a name in this directory refers to, if it exists.
    pub fn with_ino(&self, parent: u64, name: Name, use_it: impl FnOnce(u64, FileKind)) {
        let mut kind = FileKind::Regular;
        let answer = self.call(Call::Lookup(parent, name), |fs| {
            let e = fs.lookup(Ino(parent), &name.bytes())?;
            kind = e.attr.kind;
            Ok(Answer::Ino(e.attr.ino.0))
        });
        if let Answer::Ino(ino) = answer {
            use_it(ino, kind);
            self.forget(ino);
        }
    }

    fn with_file(&self, place: Place, use_it: impl FnOnce(u64)) {
        self.with(place, |ino, kind| {
            if kind == FileKind::Regular {
                let open = self.opens && self.fs.open(Ino(ino), false).is_ok();
                use_it(ino);
                if open {
                    self.fs.release(Ino(ino));
                }
            }
        });
    }

    /// Executes the operation with this number.
    pub fn perform(&self, number: usize, op: Op) {
        let plain = number as Token + 1;
        let token = if self.noisy && number.is_multiple_of(3) { plain | NOISE } else { plain };
        match op {
            Op::Create(place, cells, sync) | Op::CreateCompressed(place, cells, sync) => {
                if let Answer::Ino(ino) = self.create(place, false) {
                    if matches!(op, Op::CreateCompressed(..)) {
                        self.compress(ino, true);
                    }
                    if cells > 0 {
                        self.write(ino, 0, cells, token);
                    }
                    if sync {
                        self.fsync(ino, false);
                    }
                    self.forget(ino);
                }
            }
            Op::Mkdir(place) => {
                if let Answer::Ino(ino) = self.create(place, true) {
                    self.forget(ino);
                }
            }
            Op::Link(place, (dir, name)) => self.with_file(place, |ino| {
                let dir = self.ino(dir);
                let answer = self.call(Call::Link(ino, dir, name), |fs| {
                    Ok(Answer::Ino(fs.link(Ino(ino), Ino(dir), &name.bytes())?.attr.ino.0))
                });
                if let Answer::Ino(ino) = answer {
                    self.forget(ino);
                }
            }),
            Op::Unlink((dir, name)) => self.remove(dir, name, false),
            Op::Rmdir((dir, name)) => self.remove(dir, name, true),
            Op::Rename((dir, name), (to, new), flavour) => {
                let (dir, to) = (self.ino(dir), self.ino(to));
                let flags = match flavour {
                    Flavour::Plain => RenameFlags::empty(),
                    Flavour::NoReplace => RenameFlags::NO_REPLACE,
                    Flavour::Exchange => RenameFlags::EXCHANGE,
                };
                self.call(Call::Rename((dir, name), (to, new), flavour), |fs| {
                    fs.rename(ME, (Ino(dir), &name.bytes()), (Ino(to), &new.bytes()), flags)?;
                    Ok(Answer::Done)
                });
            }
            Op::Write(place, at, cells) => self.with_file(place, |ino| self.write(ino, at, cells, token)),
            Op::Read(place, at, cells) => self.with_file(place, |ino| {
                self.read(ino, at, cells);
            }),
            Op::Truncate(place, cells) => self.with_file(place, |ino| {
                let set = SetAttr { size: Some(cells * CELL), ..SetAttr::default() };
                self.call(Call::Resize(ino, cells), |fs| fs.setattr(Ino(ino), &set).map(|_| Answer::Done));
            }),
            Op::Allocate(place, range, at, cells) => self.with_file(place, |ino| {
                let what = match range {
                    Range::Punch => Allocate::PunchHole,
                    Range::Reserve => Allocate::Reserve { keep_size: false },
                    Range::Zero => Allocate::Zero { keep_size: false },
                    Range::Collapse => Allocate::Collapse,
                    Range::Insert => Allocate::Insert,
                };
                self.call(Call::Allocate(ino, range, at, cells), |fs| {
                    fs.fallocate(Ino(ino), what, at * CELL, cells * CELL).map(|()| Answer::Done)
                });
            }),
            Op::Stat(place) => self.with_file(place, |ino| self.stat(ino)),
            Op::List(dir) => {
                self.list(self.ino(dir));
            }
            Op::SetAttribute(place, which, len) => self.with_file(place, |ino| {
                let value = plain.to_le_bytes().repeat(usize::from(len) / 4);
                self.call(Call::SetAttribute(ino, which, plain), |fs| {
                    let name = [b'u', b's', b'e', b'r', b'.', b'0' + which];
                    fs.setxattr(Ino(ino), &name, &value, XattrFlags::empty()).map(|()| Answer::Done)
                });
            }),
            Op::GetAttribute(place, which) => self.with_file(place, |ino| {
                self.call(Call::GetAttribute(ino, which), |fs| {
                    let value = fs.getxattr(Ino(ino), &[b'u', b's', b'e', b'r', b'.', b'0' + which])?;
                    let words = value.as_chunks::<4>().0;
                    match words.first() {
                        Some(w) if words.iter().all(|x| x == w) => Ok(Answer::Value(Token::from_le_bytes(*w))),
                        _ => Ok(Answer::Refused(Refusal::Wrong("a mixed attribute".into()))),
                    }
                });
            }),
            Op::Fsync(place, data_only) => self.with_file(place, |ino| self.fsync(ino, data_only)),
            Op::FsyncDir(dir) => self.fsync_dir(dir),
            Op::Journal(place) => {
                self.perform(number, Op::Create(place, 9, true));
                self.fsync_dir(place.0);
                self.perform(number, Op::Unlink(place));
                self.fsync_dir(place.0);
            }
            Op::Compress(place, on) => self.with_file(place, |ino| self.compress(ino, on)),
            Op::Release(place) => self.with_file(place, |ino| {
                self.call(Call::Release(ino), |fs| fs.release_saved(Ino(ino)).map(|_| Answer::Done));
            }),
            Op::Retake(place) => self.with_file(place, |ino| {
                self.call(Call::Retake(ino), |fs| fs.reserve_saved(Ino(ino)).map(|_| Answer::Done));
            }),
            Op::Repack(place, packed) => self.with_file(place, |ino| {
                self.call(Call::Repack(ino, packed), |fs| fs.repack(Ino(ino), packed).map(|()| Answer::Done));
            }),
            Op::Defragment(place, from) => self.with_file(place, |ino| self.background(|| self.gather(ino, from))),
            Op::Sync => {
                self.call(Call::Sync, |fs| fs.sync().map(|()| Answer::Done));
            }
            Op::Tick(_) => {
                self.call(Call::Background, |fs| fs.tick().map(|_| Answer::Done));
            }
            // Not a file system call, or without visible effect: see `background`.
            Op::Clean(_) | Op::Thin(_) => {}
        }
    }

    fn gather(&self, ino: u64, from: u64) -> vfs::Result<()> {
        let mut at = from;
        while at < u64::MAX {
            at = match self.fs.defragment(Ino(ino), at..u64::MAX, Moving::Copy) {
                Ok((next, _)) => next,
                // Not possible for this file or at this moment.
                Err(Error::Busy(_) | Error::Invalid(_) | Error::NotPermitted(_) | Error::NoSpace) => return Ok(()),
                // Its last name and its last reference were removed meanwhile.
                Err(Error::NotFound) => return Ok(()),
                Err(e) => return Err(e),
            };
        }
        Ok(())
    }

    fn compress(&self, ino: u64, on: bool) {
        let flags = if on { FileFlags::COMPRESS } else { FileFlags::empty() };
        self.call(Call::Compress(ino, on), |fs| fs.set_flags(Ino(ino), flags, None).map(|()| Answer::Done));
    }

    fn fsync_dir(&self, dir: Dir) {
        let dir = self.ino(dir);
        self.call(Call::FsyncDir(dir), |fs| fs.fsyncdir(Ino(dir), false).map(|()| Answer::Done));
    }

    /// An operation without visible effect.
    pub fn background(&self, work: impl FnOnce() -> vfs::Result<()>) {
        self.call(Call::Background, |_| work().map(|()| Answer::Done));
    }

    fn create(&self, (dir, name): Place, directory: bool) -> Answer {
        let dir = self.ino(dir);
        self.call(Call::Create(dir, name, directory), |fs| {
            let e = if directory {
                fs.mkdir(ME, Ino(dir), &name.bytes(), 0o700, 0)?
            } else {
                let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
                fs.mknod(ME, Ino(dir), &name.bytes(), &new)?
            };
            Ok(Answer::Ino(e.attr.ino.0))
        })
    }

    fn remove(&self, dir: Dir, name: Name, directory: bool) {
        let dir = self.ino(dir);
        self.call(Call::Unlink(dir, name, directory), |fs| {
            let name = name.bytes();
            if directory {
                fs.rmdir(Ino(dir), &name)?
            } else {
                fs.unlink(Ino(dir), &name)?
            }
            Ok(Answer::Done)
        });
    }

    fn write(&self, ino: u64, at: u64, cells: u64, token: Token) {
        self.call(Call::Write(ino, at, cells, token), |fs| {
            let data = filled(token, cells);
            match fs.write(Ino(ino), at * CELL, &data, WriteFlags::empty())? {
                n if n == data.len() => Ok(Answer::Done),
                n => Ok(Answer::Refused(Refusal::Wrong(format!("{n} of {} bytes written", data.len())))),
            }
        });
    }

    fn fsync(&self, ino: u64, data_only: bool) {
        self.call(Call::Fsync(ino), |fs| fs.fsync(Ino(ino), data_only).map(|()| Answer::Done));
    }

    /// Reads cells.
    pub fn read(&self, ino: u64, at: u64, cells: u64) -> Answer {
        self.call(Call::Read(ino, at, cells), |fs| {
            let mut bytes = vec![0xEE; (cells * CELL) as usize];
            let n = fs.read(Ino(ino), at * CELL, &mut bytes)?;
            Ok(match tokens(&bytes[..n], at) {
                Ok(found) => Answer::Cells(n as u64 / CELL, found),
                Err(e) => Answer::Refused(Refusal::Wrong(e)),
            })
        })
    }

    /// Reads size and links.
    pub fn stat(&self, ino: u64) {
        self.call(Call::Stat(ino), |fs| {
            let a = fs.getattr(Ino(ino))?;
            Ok(Answer::Stat { size: a.size / CELL, links: a.nlink })
        });
    }

    /// Lists names.
    pub fn list(&self, dir: u64) -> Answer {
        self.call(Call::List(dir), |fs| Ok(Answer::Names(names(fs, dir)?)))
    }
}

/// A directory's entries, sorted by name.
///
/// # Errors
/// The file system's; a name that no thread created is damage.
pub fn names(fs: &dyn FileSystem, dir: u64) -> vfs::Result<Vec<(Name, u64)>> {
    let mut found = Vec::new();
    let mut unknown = None;
    fs.readdir(Ino(dir), 0, &mut |e| {
        if !matches!(e.name, b"." | b".." | b"lost+found" | b".ifile") {
            match Name::of(e.name) {
                Some(name) => found.push((name, e.ino.0)),
                None => unknown = Some(String::from_utf8_lossy(e.name).into_owned()),
            }
        }
        Flow::Continue
    })?;
    found.sort_unstable();
    match unknown {
        Some(name) => Err(Error::corrupt(format_args!("a name nobody made: {name:?}"))),
        None => Ok(found),
    }
}
