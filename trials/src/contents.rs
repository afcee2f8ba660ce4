//! What does every name of a volume lead to? Snapshots of an image can be compared, before and after damage and repair.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use device::{BLOCK, Memory};
use f2fs::{MountOptions, Volume};
use vfs::{Attr, FileKind, FileSystem, Flow};

use judges::damage::clock;

/// Maximum number of entries read per directory, and of waiting directories: directories of a damaged volume may form a
/// cycle.
const MOST: usize = 1000;

/// The target of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its inode.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// A digest of its kind, contents and extended attributes, as far as readable. Directories with the same attributes
    /// have the same digest.
    pub digest: u64,
}

/// Everything that has a name, by path, as far as readable. Empty if the image cannot be mounted.
pub fn contents(image: &Memory) -> BTreeMap<Vec<u8>, Seen> {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let mut out = BTreeMap::new();
    let Ok(vol) = Volume::mount(Arc::new(image.fork()), clock(), options) else { return out };
    let mut known = BTreeMap::new();
    let mut dirs = vec![(vol.root(), Vec::new())];
    while let Some((dir, path)) = dirs.pop() {
        let mut names = Vec::new();
        let _ = vol.readdir(dir, 0, &mut |e| {
            names.push(e.name.to_vec());
            if names.len() < MOST { Flow::Continue } else { Flow::Stop }
        });
        for name in names.into_iter().filter(|n| n != b"." && n != b"..") {
            let Ok(entry) = vol.lookup(dir, &name) else { continue };
            let path = [&path[..], b"/", &name].concat();
            let (ino, kind) = (entry.attr.ino, entry.attr.kind);
            let digest = *known.entry(ino).or_insert_with(|| digest(&vol, &entry.attr));
            if kind == FileKind::Directory && dirs.len() < MOST {
                dirs.push((ino, path.clone()));
            }
            out.insert(path, Seen { ino: ino.0, kind, digest });
            vol.forget(ino, 1);
        }
    }
    out
}

fn digest(vol: &Volume, attr: &Attr) -> u64 {
    let mut hash = DefaultHasher::new();
    format!("{:?}", attr.kind).hash(&mut hash);
    let mut buf = [0; 16 * BLOCK];
    match attr.kind {
        FileKind::Symlink => vol.readlink(attr.ino).ok().hash(&mut hash),
        FileKind::Regular => {
            attr.size.hash(&mut hash);
            for block in [0, 1000, 1500, 4000, 2_500_000] {
                let n = vol.read(attr.ino, block * BLOCK as u64, &mut buf);
                n.map(|n| buf[..n].to_vec()).ok().hash(&mut hash);
            }
        }
        _ => {}
    }
    for name in vol.listxattr(attr.ino).unwrap_or_default() {
        vol.getxattr(attr.ino, &name).ok().hash(&mut hash);
    }
    hash.finish()
}
