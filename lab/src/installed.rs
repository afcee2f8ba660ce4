//! What is installed on a volume, and how is it put there?
//!
//! A list has every file of a small system and of its programs: kind, owner, size and path, one file per line,
//! separated by tabs. Owners are programs, and [`SYSTEM`] for files that several of them need. Files are created in the
//! order of the list, which has every directory before its entries, with contents from [`generate`]. Left out on
//! purpose: what a package manager writes next to the files it installs, and owners, permissions and times, which no
//! experiment uses.

use std::collections::BTreeMap;

use device::{BLOCK, generate};
use vfs::{Caller, DeviceNumber, Error, FileKind, FileSystem, Ino, NewNode, WriteFlags};

use crate::error::LabError;

/// The owner of files that several programs need.
pub(crate) const SYSTEM: &str = "system";
/// Bytes per write.
const PIECE: u64 = 1 << 20;

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Symlink,
    /// A hard link to a file earlier in the list.
    Name,
}

/// A file of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    kind: Kind,
    owner: String,
    size: u64,
    path: String,
    /// Target of a symbolic link, or the file that a hard link names.
    target: String,
}

/// Parses a list; an error names the line.
pub(crate) fn parse(text: &str) -> Result<Vec<Listed>, String> {
    let line = |(n, line): (usize, &str)| {
        let wrong = |what: &str| format!("line {}: {what}: {line:?}", n + 1);
        let fields: Vec<&str> = line.split('\t').collect();
        let [kind, owner, size, path, rest @ ..] = fields.as_slice() else {
            return Err(wrong("not kind, owner, size and path"));
        };
        let kind = match *kind {
            "d" => Kind::Directory,
            "f" => Kind::File,
            "l" => Kind::Symlink,
            "h" => Kind::Name,
            _ => return Err(wrong("no kind of file (d, f, l or h)")),
        };
        let target = match (kind, rest) {
            (Kind::Symlink | Kind::Name, [target]) => (*target).to_owned(),
            (Kind::Symlink | Kind::Name, _) => return Err(wrong("a link without a target")),
            (_, []) => String::new(),
            _ => return Err(wrong("more than a path")),
        };
        if path.split('/').any(|part| part.is_empty() || matches!(part, "." | "..")) {
            return Err(wrong("no path from the root"));
        }
        let size = size.parse().map_err(|_| wrong("no size"))?;
        Ok(Listed { kind, owner: (*owner).to_owned(), size, path: (*path).to_owned(), target })
    };
    text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')).map(line).collect()
}

impl Listed {
    /// Limits the file's size.
    pub fn cut_at(&mut self, bytes: u64) {
        self.size = self.size.min(bytes);
    }
}

/// Sizes of files, by every name they have.
#[cfg(test)]
pub(crate) fn sizes(list: &[Listed]) -> BTreeMap<&str, u64> {
    let files = list.iter().filter(|l| l.kind == Kind::File).map(|l| (l.path.as_str(), l.size));
    let mut sizes: BTreeMap<&str, u64> = files.collect();
    for name in list.iter().filter(|l| l.kind == Kind::Name) {
        sizes.insert(&name.path, sizes[name.target.as_str()]);
    }
    sizes
}

/// The files installed on a volume.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    /// Regular files, by owner.
    pub files: BTreeMap<String, Vec<Ino>>,
    /// Total bytes of those files.
    pub bytes: u64,
}

/// Fragmentation of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Files with blocks of their own.
    pub files: u64,
    /// Extents.
    pub pieces: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Installed {
    /// Writes the listed files whose owner `wanted` accepts to `fs` and makes them durable. Missing parent directories
    /// are created.
    pub fn add(
        &mut self,
        fs: &dyn FileSystem,
        list: &[Listed],
        wanted: impl Fn(&str) -> bool,
        seed: u64,
        mut step: impl FnMut() -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let mut buf = vec![0; PIECE as usize];
        let (mut directories, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (n, listed) in list.iter().enumerate().filter(|(_, l)| wanted(&l.owner)) {
            if listed.kind == Kind::Directory {
                directory(fs, &listed.path, &mut directories)?;
                step()?;
                continue;
            }
            let (above, name) = listed.path.rsplit_once('/').unwrap_or(("", &listed.path));
            let dir = directory(fs, above, &mut directories)?;
            let made = match listed.kind {
                Kind::Symlink => fs.symlink(Caller::default(), dir, name.as_bytes(), listed.target.as_bytes())?,
                Kind::Name => {
                    let known = names.get(listed.target.as_str()).copied();
                    let no = || LabError::parameters(format!("{}: {} comes later", listed.path, listed.target));
                    fs.link(known.ok_or_else(no)?, dir, name.as_bytes())?
                }
                Kind::File | Kind::Directory => {
                    let new = NewNode { kind: FileKind::Regular, perm: 0o755, umask: 0, rdev: DeviceNumber::default() };
                    let made = fs.mknod(Caller::default(), dir, name.as_bytes(), &new)?;
                    for at in (0..listed.size).step_by(PIECE as usize) {
                        let piece = &mut buf[..PIECE.min(listed.size - at) as usize];
                        generate(seed ^ (n as u64) << 20, (at / BLOCK as u64) as u32, piece);
                        write(fs, made.attr.ino, at, piece)?;
                    }
                    self.files.entry(listed.owner.clone()).or_default().push(made.attr.ino);
                    names.insert(listed.path.as_str(), made.attr.ino);
                    self.bytes += listed.size;
                    made
                }
            };
            fs.forget(made.attr.ino, 1);
            step()?;
        }
        directories.into_values().filter(|ino| *ino != fs.root()).for_each(|ino| fs.forget(ino, 1));
        Ok(fs.sync()?)
    }

    /// Fragmentation of an owner's files.
    pub fn pieces(&self, fs: &dyn FileSystem, owner: &str) -> Result<Pieces, LabError> {
        let mut all = Pieces::default();
        for ino in self.files.get(owner).into_iter().flatten() {
            let extents = fs.extents(*ino, 0, usize::MAX)?;
            // A file inside its inode has no blocks.
            all.files += u64::from(!extents.is_empty());
            all.pieces += extents.len() as u64;
            all.blocks += extents.iter().map(|e| e.blocks).sum::<u64>();
        }
        Ok(all)
    }
}

/// A directory by its path from the root, created with its parents if missing; `known` are those already found.
fn directory(fs: &dyn FileSystem, path: &str, known: &mut BTreeMap<String, Ino>) -> Result<Ino, LabError> {
    if path.is_empty() {
        return Ok(fs.root());
    }
    if let Some(ino) = known.get(path) {
        return Ok(*ino);
    }
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let dir = directory(fs, above, known)?;
    let made = match fs.mkdir(Caller::default(), dir, name.as_bytes(), 0o755, 0) {
        Err(Error::Exists) => fs.lookup(dir, name.as_bytes())?,
        made => made?,
    };
    known.insert(path.to_owned(), made.attr.ino);
    Ok(made.attr.ino)
}

fn write(fs: &dyn FileSystem, ino: Ino, at: u64, bytes: &[u8]) -> Result<(), LabError> {
    let mut done = 0;
    while done < bytes.len() {
        match fs.write(ino, at + done as u64, &bytes[done..], WriteFlags::empty())? {
            0 => return Err(Error::NoSpace.into()),
            n => done += n,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use f2fs::{MountOptions, Volume};

    use super::*;
    use sim::aging;

    const LIST: &str = "# a comment\nd\tsystem\t0\tusr\nd\tone\t0\tusr/lib\nf\tsystem\t10000\tusr/lib/a.so\n\
        h\tsystem\t0\tusr/lib/b.so\tusr/lib/a.so\nl\tone\t0\tusr/bin/run\t../lib/one\nf\tone\t3\tusr/lib/one\nf\ttwo\t5\tusr/two\n";

    #[test]
    fn files_of_wanted_owners_are_there_and_those_of_others_are_not() {
        let clock = aging::clock();
        let device = std::sync::Arc::new(device::Fingerprint::new(64 << 8));
        aging::format(::volume::Kind::F2fs, device.clone(), &*clock, 1, true).unwrap();
        let volume = Volume::mount(device, clock, MountOptions::default()).unwrap();
        let list = parse(LIST).unwrap();
        let mut installed = Installed::default();
        let mut steps = 0;
        let mut add = |wanted: &dyn Fn(&str) -> bool| {
            installed.add(&*volume, &list, wanted, 7, || {
                steps += 1;
                Ok(())
            })
        };
        add(&|owner| owner == SYSTEM).unwrap();
        let find = |path: &str| {
            let step = |dir: Result<Ino, Error>, name: &str| Ok(volume.lookup(dir?, name.as_bytes())?.attr.ino);
            path.split('/').fold(Ok(volume.root()), step)
        };
        assert!(matches!(find("usr/lib/one"), Err(Error::NotFound)));
        add(&|owner| owner == "one").unwrap();
        let size = |path: &str| volume.getattr(find(path).unwrap()).unwrap().size;
        assert_eq!((size("usr/lib/a.so"), size("usr/lib/one")), (10_000, 3));
        assert_eq!(find("usr/lib/a.so").unwrap(), find("usr/lib/b.so").unwrap());
        assert_eq!(volume.readlink(find("usr/bin/run").unwrap()).unwrap(), b"../lib/one");
        assert!(matches!(find("usr/two"), Err(Error::NotFound)));
        assert_eq!((installed.bytes, steps), (10_003, 6));
        // Three blocks in one extent; the three-byte file is inside its inode.
        let pieces = Pieces { files: 1, pieces: 1, blocks: 3 };
        assert_eq!(installed.pieces(&*volume, SYSTEM).unwrap(), pieces);
        assert_eq!(installed.pieces(&*volume, "one").unwrap(), Pieces::default());
    }

    #[test]
    fn a_line_that_makes_no_sense_is_refused_and_named() {
        for line in
            ["f\ta\t1", "x\ta\t1\tp", "f\ta\tmany\tp", "f\ta\t1\t/p", "f\ta\t1\tp/../q", "l\ta\t0\tp", "f\ta\t1\tp\tq"]
        {
            let error = parse(&format!("d\ta\t0\tp\n{line}\n")).unwrap_err();
            assert!(error.starts_with("line 2: "), "{line:?}: {error}");
        }
    }
}
