//! Are two trees the same to whoever looks?

use std::collections::{BTreeMap, BTreeSet};

use vfs::{Error, FileKind, FileSystem, Flow, Ino, Result, Seek};

/// What there is to see: a line of facts for each path.
pub type Tree = BTreeMap<Vec<u8>, String>;

/// Names, kinds and inode numbers of a directory, without the dots.
pub fn list(fs: &dyn FileSystem, dir: Ino) -> Result<Vec<(Vec<u8>, FileKind, Ino)>> {
    let mut out = Vec::new();
    fs.readdir(dir, 0, &mut |e| {
        if e.name != b"." && e.name != b".." {
            out.push((e.name.to_vec(), e.kind, e.ino));
        }
        Flow::Continue
    })?;
    out.sort();
    Ok(out)
}

/// All attributes, one text.
pub fn xattrs(fs: &dyn FileSystem, ino: Ino) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut out = BTreeMap::new();
    for name in fs.listxattr(ino)? {
        let value = fs.getxattr(ino, &name)?;
        out.insert(name, value);
    }
    Ok(out)
}

/// Blocks of a file that hold a byte other than zero, by their index; found without reading holes.
pub fn content(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<BTreeMap<u64, [u8; 32]>> {
    let mut out = BTreeMap::new();
    let mut at = 0;
    while at < size {
        let start = match fs.seek(ino, at, Seek::Data) {
            Ok(n) => n / 4096 * 4096,
            Err(Error::PastEnd) => break,
            Err(e) => return Err(e),
        };
        let end = fs.seek(ino, start.max(at), Seek::Hole)?;
        let mut block = start;
        while block < end {
            let mut bytes = vec![0; 4096];
            let n = fs.read(ino, block, &mut bytes)?;
            if bytes[..n].iter().any(|&b| b != 0) {
                out.insert(block / 4096, *blake3::hash(&bytes[..n]).as_bytes());
            }
            block += 4096;
        }
        at = end.max(start + 1);
    }
    Ok(out)
}

/// Everything below the root but what may differ by nature.
///
/// # Errors
/// The first thing that could not be read.
pub fn tree(fs: &dyn FileSystem) -> Result<Tree> {
    let mut out = Tree::new();
    let mut links: BTreeMap<Ino, Vec<u8>> = BTreeMap::new();
    let mut waiting = vec![(Vec::new(), fs.root())];
    let mut seen = BTreeSet::new();
    while let Some((path, dir)) = waiting.pop() {
        if !seen.insert(dir) {
            return Err(Error::corrupt("a directory met twice"));
        }
        for (name, kind, ino) in list(fs, dir)? {
            let mut at = path.clone();
            at.push(b'/');
            at.extend_from_slice(&name);
            if at == b"/lost+found" {
                continue;
            }
            let e = fs.lookup(dir, &name)?.attr;
            let mut line = format!("{kind:?} {:o} links {} of {}:{}", e.perm, e.nlink, e.uid, e.gid);
            if e.ino != ino || e.kind != kind {
                line.push_str(" LISTED DIFFERENTLY");
            }
            match e.kind {
                FileKind::Regular => line += &format!(" {} bytes {:?}", e.size, content(fs, e.ino, e.size)?),
                FileKind::Symlink => line += &format!(" {} to {:?}", e.size, fs.readlink(e.ino)?),
                FileKind::Directory => waiting.push((at.clone(), e.ino)),
                _ => line += &format!(" {:?}", e.rdev),
            }
            line += &format!(" {:?}", xattrs(fs, e.ino)?);
            if e.kind != FileKind::Directory {
                let first = links.entry(e.ino).or_insert_with(|| at.clone());
                line += &format!(" first {}", String::from_utf8_lossy(first));
            }
            fs.forget(e.ino, 1);
            out.insert(at, line);
        }
    }
    Ok(out)
}

/// The first difference of two trees, as text.
///
/// # Errors
/// What differs, or could not be read.
pub fn same_trees(real: &dyn FileSystem, model: &dyn FileSystem) -> std::result::Result<(), String> {
    let have = tree(real).map_err(|e| format!("the volume's tree: {e}"))?;
    let want = tree(model).map_err(|e| format!("the model's tree: {e}"))?;
    let paths: BTreeSet<_> = have.keys().chain(want.keys()).collect();
    for path in paths {
        if have.get(path) != want.get(path) {
            let path_text = String::from_utf8_lossy(path);
            return Err(format!("{path_text}:\n  volume {:?}\n  model  {:?}", have.get(path), want.get(path)));
        }
    }
    Ok(())
}
