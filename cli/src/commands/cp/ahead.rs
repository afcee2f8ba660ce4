//! Reads the next files of a copy while the current one is being written.
//!
//! A thread walks the tree in the order of the copy and hands over attributes, names and the contents of small files.
//! It stays at most a few batches ahead. If it could not read something, or calls come in another order, the copy reads
//! it itself, so results are the same with and without reading ahead. Left out: large files, which need no reading
//! ahead, and hard-linked files, which are read once.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use vfs::FileKind;

use super::item::{Glance, Item, Out, Reader, Source};
use super::survey::{Inside, Met, walk};

/// Size up to which contents are read ahead.
const SMALL: u64 = 256 << 10;
/// Batches are handed over at this number of files or bytes, since each handover wakes a thread.
const HEAP: usize = 32;
const HEAP_BYTES: usize = 256 << 10;
/// Batches that may be ahead of the copy.
const AHEAD: usize = 3;

/// Ranges of data by offset.
type Contents = Vec<(u64, Vec<u8>)>;
/// The names in a directory, and an error if they are incomplete.
type Names = (Vec<Vec<u8>>, Out<()>);

/// A file or directory in the tree.
struct Found {
    path: Vec<u8>,
    item: Item,
    /// For a directory.
    inside: Option<(Glance, Names)>,
    /// For a small file.
    contents: Option<Contents>,
}

/// A source with reading ahead.
struct Ahead<'s> {
    inner: &'s dyn Source,
    coming: Receiver<Vec<Found>>,
    /// The rest of the last batch received.
    here: RefCell<std::vec::IntoIter<Found>>,
    /// The file looked up last, without the parts already taken.
    last: RefCell<Option<Found>>,
}

/// Runs `work` with a source that is read ahead from `root`.
pub fn with<T>(inner: &(dyn Source + Sync), root: &[u8], work: impl FnOnce(&dyn Source) -> T) -> T {
    std::thread::scope(|scope| {
        let (give, coming) = sync_channel(AHEAD);
        scope.spawn(move || {
            let mut out = Heap { give, found: Vec::new(), bytes: 0 };
            // Ends early when the copy ends.
            let _ = walk(inner, root, |path, met| look(inner, path, met, &mut out)).and_then(|()| out.send());
        });
        let ahead = Ahead { inner, coming, here: RefCell::default(), last: RefCell::default() };
        work(&ahead)
    })
}

/// The copy ended before the walk.
struct Ended;

/// Results not yet handed over.
struct Heap {
    give: SyncSender<Vec<Found>>,
    found: Vec<Found>,
    bytes: usize,
}

impl Heap {
    fn add(&mut self, found: Found) -> Result<(), Ended> {
        self.bytes += found.contents.iter().flatten().map(|(_, data)| data.len()).sum::<usize>();
        self.found.push(found);
        if self.found.len() < HEAP && self.bytes < HEAP_BYTES { Ok(()) } else { self.send() }
    }
    fn send(&mut self) -> Result<(), Ended> {
        self.bytes = 0;
        self.give.send(std::mem::take(&mut self.found)).map_err(|_| Ended)
    }
}

/// Reads a file ahead; returns a directory to walk.
fn look(source: &dyn Source, path: &[u8], met: &mut Met, out: &mut Heap) -> Result<Option<Inside>, Ended> {
    // The copy retries and reports the error.
    let Ok(item) = source.item(path) else { return Ok(None) };
    if item.kind != FileKind::Directory {
        let small = item.kind == FileKind::Regular && item.identity.is_none() && item.size <= SMALL;
        let contents = if small { contents(source, path, item.size).ok() } else { None };
        out.add(Found { path: path.to_vec(), item, inside: None, contents })?;
        return Ok(None);
    }
    let Ok(glance) = source.glance(path) else { return Ok(None) };
    if !met.enter(glance.file) {
        return Ok(None);
    }
    let names = source.names(path);
    let walked = Inside::of(glance.file, names.0.clone(), path);
    out.add(Found { path: path.to_vec(), item, inside: Some((glance, names)), contents: None })?;
    Ok(Some(walked))
}

fn contents(source: &dyn Source, path: &[u8], size: u64) -> Out<Contents> {
    let (mut reader, mut at, mut all) = (source.open(path)?, 0, Vec::new());
    while at < size {
        let Some((start, end)) = reader.next_data(at)?.filter(|(start, _)| *start < size) else { break };
        let mut data = vec![0; (end.min(size) - start) as usize];
        let mut done = 0;
        while done < data.len() {
            match reader.read_at(start + done as u64, &mut data[done..])? {
                // The file shrank while being read.
                0 => return Err("shorter than it was".into()),
                n => done += n,
            }
        }
        at = start + data.len() as u64;
        all.push((start, data));
    }
    Ok(all)
}

impl Ahead<'_> {
    /// Advances to a path; false if the walk did not reach it.
    fn reach(&self, path: &[u8]) -> bool {
        let (mut last, mut here) = (self.last.borrow_mut(), self.here.borrow_mut());
        while last.as_ref().is_none_or(|found| found.path != path) {
            match here.next() {
                Some(found) => *last = Some(found),
                None => match self.coming.recv() {
                    Ok(heap) => *here = heap.into_iter(),
                    Err(_) => return false,
                },
            }
        }
        true
    }

    /// Takes a part of the result for the path looked up last.
    fn take<T>(&self, path: &[u8], what: impl FnOnce(&mut Found) -> Option<T>) -> Option<T> {
        self.last.borrow_mut().as_mut().filter(|found| found.path == path).and_then(what)
    }
}

impl Source for Ahead<'_> {
    fn glance(&self, path: &[u8]) -> Out<Glance> {
        match self.take(path, |found| found.inside.as_ref().map(|(glance, _)| *glance)) {
            Some(glance) => Ok(glance),
            None => self.inner.glance(path),
        }
    }
    fn item(&self, path: &[u8]) -> Out<Item> {
        match self.reach(path).then(|| self.take(path, |found| Some(found.item.clone()))).flatten() {
            Some(item) => Ok(item),
            None => self.inner.item(path),
        }
    }
    fn names(&self, path: &[u8]) -> Names {
        match self.take(path, |found| found.inside.as_mut().map(|(_, names)| names.clone())) {
            Some(names) => names,
            None => self.inner.names(path),
        }
    }
    fn open<'s>(&'s self, path: &[u8]) -> Out<Box<dyn Reader + 's>> {
        match self.take(path, |found| found.contents.take()) {
            Some(contents) => Ok(Box::new(Held(contents))),
            None => self.inner.open(path),
        }
    }
    fn holds(&self) -> Option<u64> {
        self.inner.holds()
    }
    fn names_directories_once(&self) -> bool {
        self.inner.names_directories_once()
    }
}

/// Contents read ahead.
struct Held(Contents);

impl Reader for Held {
    fn next_data(&mut self, offset: u64) -> Out<Option<(u64, u64)>> {
        let ends = |(start, data): &(u64, Vec<u8>)| (*start, start + data.len() as u64);
        let next = self.0.iter().map(ends).find(|(_, end)| *end > offset);
        Ok(next.map(|(start, end)| (start.max(offset), end)))
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Out<usize> {
        let Some((start, data)) = self.0.iter().rev().find(|(start, _)| *start <= offset) else { return Ok(0) };
        let some = data.get((offset - start) as usize..).unwrap_or(&[]);
        let n = some.len().min(buf.len());
        buf[..n].copy_from_slice(&some[..n]);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;

    use super::super::host::Host;
    use super::super::item::join;
    use super::*;

    /// All calls of a copy to a source, in order, except below `skipped`.
    fn told(source: &dyn Source, path: &[u8], skipped: &[u8], out: &mut Vec<String>) {
        let item = source.item(path).unwrap();
        out.push(format!("{} {:?} {} {:o}", String::from_utf8_lossy(path), item.kind, item.size, item.perm));
        match item.kind {
            FileKind::Directory => {
                out.push(format!("{:?}", source.glance(path).unwrap().file));
                let (names, read) = source.names(path);
                read.unwrap();
                if path.ends_with(skipped) {
                    return;
                }
                names.iter().for_each(|name| told(source, &join(path, name), skipped, out));
            }
            FileKind::Regular => {
                let (mut reader, mut at) = (source.open(path).unwrap(), 0);
                while let Some((start, end)) = reader.next_data(at).unwrap().filter(|(start, _)| *start < item.size) {
                    let mut data = vec![0; 1000];
                    at = start;
                    while at < end.min(item.size) {
                        let want = (end.min(item.size) - at).min(1000) as usize;
                        let n = reader.read_at(at, &mut data[..want]).unwrap();
                        out.push(format!("{at} {}", blake3::hash(&data[..n])));
                        at += n as u64;
                    }
                }
            }
            _ => out.push(String::from_utf8_lossy(&item.target).into_owned()),
        }
    }

    #[test]
    fn a_source_that_is_read_ahead_says_what_it_says_itself() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for d in ["a", "a/deep", "b", "skipped", "z"] {
            fs::create_dir(at(d)).unwrap();
        }
        for n in 0..150 {
            let name = at(["a", "a/deep", "b", "skipped"][n % 4]).join(format!("file-{n}"));
            fs::write(name, vec![n as u8; 97 * n]).unwrap();
        }
        fs::write(at("z/large"), vec![7; SMALL as usize + 5000]).unwrap();
        let holes = fs::File::create(at("z/holes")).unwrap();
        holes.set_len(200_000).unwrap();
        holes.write_all_at(b"in the midst", 100_000).unwrap();
        fs::hard_link(at("a/file-4"), at("z/again")).unwrap();
        std::os::unix::fs::symlink("elsewhere", at("z/link")).unwrap();
        fs::write(at("z/empty"), b"").unwrap();
        let root = dir.path().as_os_str().as_bytes();
        for skipped in [&b"/none"[..], b"/skipped", b"/a", b"/z"] {
            let (mut plain, mut ahead) = (Vec::new(), Vec::new());
            told(&Host::new(root), root, skipped, &mut plain);
            with(&Host::new(root), root, |source| told(source, root, skipped, &mut ahead));
            assert!(plain.len() > 20, "{plain:?}");
            assert_eq!(ahead, plain);
        }
    }
}
